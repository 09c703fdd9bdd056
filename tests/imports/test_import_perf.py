"""perf stat -j: intervals become samples, sums become metrics, what was not counted is said."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from places import DATA
from sonda.record.errors import SondaError
from sonda.targets.imported.launcher import import_files

LINE = '{{"interval" : {}, "counter-value" : "{}", "unit" : "{}", "event" : "{}", "pcnt-running" : {}}}'


def test_intervals_add_up_and_keep_their_moments(tmp_path: Path) -> None:
    lines = [
        "# started on Sun Nov 15 07:56:14 2026", "", "output of the program",
        LINE.format("0.100000001", "1.365953", "msec", "task-clock", "100.00"),
        LINE.format("0.100000001", "77.000000", "", "page-faults", "100.00"),
        LINE.format("0.100000001", "<not supported>", "", "cycles", "100.00"),
        LINE.format("0.200000003", "0.5", "msec", "task-clock", "100.00"),
        LINE.format("0.200000003", "3", "", "page-faults", "100.00"),
        LINE.format("0.200000003", "1000", "", "instructions:u", "50.00"),
        LINE.format("0.200000003", "2.50", "Joules", "power/energy-pkg/", "100.00"),
    ]  # fmt: skip
    (tmp_path / "counts.json").write_text("\n".join(lines))
    run = import_files([tmp_path / "counts.json"], tmp_path / "runs")
    spans = run.spans
    assert spans.number("duration").tolist() == [200_000_003]
    assert spans.metric("task_clock", "counted").tolist() == [1_865_953]
    assert spans.metric("page_faults", "counted").tolist() == [80]
    assert spans.metric("instructions.u", "estimated").tolist() == [1000]
    assert [(one.time, one.sensor, one.value, one.source) for one in run.samples] == [
        (100_000_001, "task-clock", 1_365_953, "counted"), (100_000_001, "page-faults", 77, "counted"),
        (200_000_003, "task-clock", 500_000, "counted"), (200_000_003, "page-faults", 3, "counted"),
        (200_000_003, "instructions:u", 1000, "estimated"), (200_000_003, "power/energy-pkg/", 2.5, "counted"),
    ]  # fmt: skip
    notes = " ".join(run.info.notes)
    assert "cycles not supported" in notes and "power/energy-pkg/ 2.5 J" in notes and "took turns" in notes


@pytest.mark.skipif(shutil.which("perf") is None, reason="perf is not installed")
def test_what_perf_itself_writes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "counts.json"
    program = [
        sys.executable,
        "-c",
        "import time\nend = time.monotonic() + 0.3\nwhile time.monotonic() < end: bytearray(1 << 20)",
    ]
    done = subprocess.run(
        ["perf", "stat", "-j", "-I", "50", "-e", "task-clock,page-faults", "-o", str(path), *program], check=False
    )
    if done.returncode:
        pytest.skip("perf may not count here")
    run = import_files([path], tmp_path / "runs")
    assert run.spans.metric("page_faults", "counted")[0] > 100
    assert 0 < run.spans.metric("task_clock", "counted")[0] <= 2 * run.spans.number("duration")[0]
    moments = [sample.time for sample in run.samples]
    assert moments == sorted(moments) and len(moments) >= 2


@pytest.mark.parametrize("text", ['{"counter-value" : 5}\n', '{"counter-value" : "1", "event" : ""}\n'])
def test_lines_that_say_nothing_are_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "counts.json").write_text(text)
    with pytest.raises(SondaError, match=r"counts\.json: it holds no counts"):
        import_files([tmp_path / "counts.json"], tmp_path / "runs")


def test_a_comma_for_a_point_is_not_taken_for_thousands(tmp_path: Path) -> None:
    (tmp_path / "counts.json").write_text(LINE.format("0.1", "1,365", "msec", "task-clock", "100.00"))
    run = import_files([tmp_path / "counts.json"], tmp_path / "runs")
    assert run.spans.metrics == {} and "1,365" in run.info.notes[0]


def test_a_line_that_was_damaged_is_counted(tmp_path: Path) -> None:
    good = LINE.format("0.1", "5", "", "page-faults", "100.00")
    (tmp_path / "counts.json").write_bytes(
        f"{good}\n{good[:40]}\n".encode() + b'{"event" : "\xff", "counter-value" : "1"}\n'
    )
    run = import_files([tmp_path / "counts.json"], tmp_path / "runs")
    assert run.spans.metric("page_faults", "counted").tolist() == [5]
    assert "2 counts cannot be read: left out" in run.info.notes


RECORDED = DATA / "perf_stat"


@pytest.mark.parametrize("packed", [False, True])
def test_what_perf_wrote_on_a_real_machine_is_read_packed_or_not(packed: bool, tmp_path: Path) -> None:
    """Sums by hand: the file as text, without the reader."""
    for name in ("whole.json", "interval.json"):
        data = (RECORDED / name).read_bytes()
        path = tmp_path / (f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(data) if packed else data)
        run = import_files([path], tmp_path / "runs")
        lines = [json.loads(line) for line in data.splitlines() if line.startswith(b"{")]
        said = [line for line in lines if not line["counter-value"].startswith("<")]
        faults = sum(float(line["counter-value"]) for line in said if line["event"] == "page-faults")
        clock = sum(Decimal(line["counter-value"]) for line in said if line["event"] == "task-clock")
        assert run.spans.metric("page_faults", "counted").tolist() == [faults] and faults > 300
        assert run.spans.metric("task_clock", "counted").tolist() == [float(clock * 10**6)]
        assert len(run.samples) == sum("interval" in line for line in said) and run.info.status == "complete"
        assert any("instructions not supported" in note for note in run.info.notes)
