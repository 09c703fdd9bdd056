"""Ugly output of perf stat -j: what is summed is right, what is lost is said."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from sonda.imports.perf_stat import PerfCounts, counted_span, read_perf
from sonda.record.errors import SondaError
from sonda.targets.imported.launcher import import_files

LINE = (
    '{{"interval" : {}, "counter-value" : "{}", "unit" : "{}", "event" : "{}", "event-runtime" : 4767124, '
    '"pcnt-running" : 100.00, "metric-value" : 70.902288, "metric-unit" : "K/sec"}}\n'
)
WHOLE = "# started on Sun Nov 15 07:45:27 2026\n\n" + "".join(
    LINE.format(f"0.{moment}00", faults, "", "page-faults") + LINE.format(f"0.{moment}00", clock, "msec", "task-clock")
    for moment, faults, clock in ((1, "338.000000", "4.767124"), (2, "1041.000000", "0.500000"))
)
SUMS = {("page-faults", "1"): Decimal(338 + 1041), ("task-clock", "ns"): Decimal(4_767_124 + 500_000)}
ADDENDS = {("page-faults", "1"): {338, 1041}, ("task-clock", "ns"): {4_767_124, 500_000}}


def read(text: str | bytes) -> tuple[PerfCounts, list[tuple[int, int, float]], list[str]]:
    """What is read of a text, and what is said about it; a text that is refused is one line."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    counts = PerfCounts()
    try:
        samples = list(read_perf(data.splitlines(keepends=True), counts))
    except SondaError as error:
        assert "\n" not in str(error)
        return counts, [], [str(error)]
    return counts, samples, counted_span(counts, "counts.json")[1]


def test_all_of_it_is_read_and_nothing_is_said() -> None:
    counts, samples, notes = read(WHOLE)
    assert counts.sums == SUMS and len(samples) == 4 and notes == []


def test_cut_at_every_byte_it_is_incomplete_and_every_count_is_one_of_perfs() -> None:
    begin = WHOLE.index("{")
    for cut in range(begin + 1, len(WHOLE)):
        counts, samples, notes = read(WHOLE[:cut])
        assert {value for _, _, value in samples} <= {338, 1041, 4_767_124, 500_000}
        in_an_object = WHOLE[cut - 1] not in "}\n"
        assert counts.cut == in_an_object and (not in_an_object or notes), cut
        assert counts.unreadable == 0


@pytest.mark.parametrize("output", ["x", '"', "\n", "\r", ",", "}", "{", "loss 0.5\n", '{"loss" : 1}', "\u0663", "{}"])
def test_output_of_the_program_anywhere_makes_no_wrong_number_and_loses_none_in_silence(output: str) -> None:
    lines = WHOLE.splitlines(keepends=True)
    for at in range(len(lines[3]) + 1):
        counts, _, notes = read("".join([*lines[:3], lines[3][:at] + output + lines[3][at:], *lines[4:]]))
        for key, addends in ADDENDS.items():
            assert counts.sums.get(key, Decimal(0)) in {*addends, sum(addends)}, (at, lines[3][:at])
        assert counts.sums == SUMS or notes, (at, lines[3][:at])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (LINE.format("1e9999999999999999999", "5", "", "page-faults"), "cannot"),
        (LINE.format("-1", "5", "", "page-faults"), "a time that cannot be"),
        (LINE.format("0.3", "9" * 400, "", "page-faults"), "no count"),
        (LINE.format("0.3", "\u0665", "", "page-faults"), "no count"),
        (LINE.format("0.3", "-5", "", "page-faults"), "no count"),
        (LINE.format("0.3", "0x5", "", "page-faults"), "no count"),
        (LINE.format("0.3", "", "", "page-faults"), "no count"),
        (LINE.format("0.3", "5", "", "page-faults").replace('"page-faults"', '"\\ud800"'), "cannot be read"),
        (LINE.format("0.3", "5", "", "page-faults").replace('"page-faults"', "7"), "cannot be read"),
        (LINE.format("0.3", "5", "", "").replace('"page-faults"', '""'), "cannot be read"),
        (LINE.format("0.3", "5", "a\\u001fb", "page\\u001ffaults"), "page"),
    ],
)  # fmt: skip
def test_a_count_that_cannot_be_is_left_out_and_said(line: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "counts.json").write_text(WHOLE + line, encoding="utf-8")
    run = import_files([tmp_path / "counts.json"], tmp_path / "runs")
    assert run.spans.metric("page_faults", "counted").tolist() == [1379]
    assert any(said in note for note in run.info.notes) and run.info.status == "complete"


def test_a_file_that_ends_in_the_middle_is_an_incomplete_run(tmp_path: Path) -> None:
    (tmp_path / "counts.json").write_text(WHOLE[:-30])
    run = import_files([tmp_path / "counts.json"], tmp_path / "runs")
    assert run.info.status == "incomplete" and run.spans.metric("task_clock", "counted").tolist() == [4_767_124]
    assert "the file ends in the middle: what was counted then is left out" in run.info.notes
    assert "task-clock was counted in 1 intervals, others in 2" in run.info.notes


def test_an_event_that_an_interval_lacks_is_said() -> None:
    lines = WHOLE.splitlines(keepends=True)
    assert read("".join(lines[:-1]))[2] == ["task-clock was counted in 1 intervals, others in 2"]
    by_cpu = [line.replace('{"interval"', f'{{"cpu" : "{number}", "interval"') for number, line in enumerate(lines)]
    assert read("".join(by_cpu[:-1]))[2] == []


def test_more_events_than_perf_can_be_asked_for_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sonda.imports.perf_stat.MOST_EVENTS", 3)
    counts, _, notes = read("".join(LINE.format("0.1", "5", "", f"e{number}") for number in range(10)))
    assert len(counts.sums) == 3 and "7 counts cannot be read: left out" in notes
