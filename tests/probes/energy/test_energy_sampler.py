"""The sampler: a grid, marks, an end with its parent; and the process itself around a program, on a fake tree."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from fake_energy import Powercap
from sonda.probes.energy import sampler as power_sampler
from sonda.probes.energy.channels import Channel, EnergySources
from sonda.probes.energy.meter import EnergySampler
from sonda.probes.energy.regions import VARIABLE, Mark, RegionFile, parse_mark, region
from sonda.probes.energy.sampler import Sampler, SamplerHeader, SamplerRow
from sonda.record.errors import SondaError

MS = 1_000_000


class Steady:
    """A source that shows how often it was read."""

    def __init__(self, update: float = 0.0) -> None:
        self.channels = [
            Channel(sensor="package-0 energy", device="cpu", unit="J", kind="counter", origin="", update=update)
        ]
        self.reads = 0

    def read(self) -> tuple[int, list[float | None]]:
        self.reads += 1
        return self.reads, [float(self.reads)]

    def close(self) -> None:
        self.reads = -1


def sampler(rows: list[Any], interval: float = 0.5, update: float = 0.0) -> Sampler:
    made = Sampler(EnergySources([Steady(update)]), interval, rows.append)
    made.begin()
    return made


# ---- the grid -------------------------------------------------------------------------------------------------------


def test_readings_keep_to_the_grid_and_missed_moments_are_left_out() -> None:
    rows: list[Any] = []
    made = sampler(rows)
    start = made._next
    wanted: list[int] = []
    # It wakes 1 ms late, then 1.7 s late (three moments missed), then in time; then its input closes.
    late = iter([1 * MS, 1700 * MS, 0])
    clock = [0]

    def wait(moment: int) -> list[Mark] | None:
        wanted.append((moment - start) // MS)
        lag = next(late, None)
        clock[0] = moment + (lag or 0)
        return None if lag is None else []

    made.run(wait, lambda: clock[0])
    assert wanted == [0, 500, 2500, 3000]
    assert sum(bool(row.readings) for row in rows[1:]) == 4


def test_a_mark_is_stamped_and_read_at_once_but_not_twice_within_5_ms() -> None:
    rows: list[Any] = []
    made = sampler(rows)
    start = made._next
    moments = iter([(start - 400 * MS, [Mark(True, "a", 11)]), (start - 398 * MS, [Mark(False, "a")]),
                    (start - 300 * MS, [Mark(True, "b")])])  # fmt: skip
    clock = [0]

    def wait(_moment: int) -> list[Mark] | None:
        clock[0], marks = next(moments, (0, None))
        return marks

    made.run(wait, lambda: clock[0])
    assert [row.mark.name if row.mark else "read" for row in rows[1:]] == ["read", "a", "read", "a", "b", "read"]
    marks = [row.mark for row in rows[1:] if row.mark]
    assert marks[0].time == 11
    assert abs(marks[1].time - time.perf_counter_ns()) < 60e9


def test_the_interval_doubles_before_a_long_run_fills_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power_sampler, "MOST_ROWS", 3)
    rows: list[Any] = []
    made = sampler(rows)
    waits = iter(range(10))
    steps: list[int] = []
    clock = [0]

    def wait(moment: int) -> list[Mark] | None:
        steps.append(moment)
        clock[0] = moment
        return [] if next(waits, None) is not None else None

    made.run(wait, lambda: clock[0])
    assert [row.interval for row in rows[1:] if row.interval] == [1.0, 2.0, 4.0]
    assert (steps[-1] - steps[-2]) // MS == 4000
    made.end(lambda seconds: None)


def test_the_end_waits_for_one_update_of_the_slowest_counter() -> None:
    rows: list[Any] = []
    made = sampler(rows, update=0.1)
    rested: list[float] = []
    made.end(rested.append)
    assert rested == [0.1]
    assert sum(bool(row.readings) for row in rows[1:]) == 3


# ---- regions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "mark"),
    [
        ("begin training", Mark(True, "training")),
        ("end  epoch 3 ", Mark(False, "epoch 3")),
        ("begin@123 epoch 3", Mark(True, "epoch 3", 123)),
        ("begin", None),
        ("begin@x a", None),
        ("start training", None),
        ("", None),
    ],
)
def test_lines_of_the_region_file(line: str, mark: Mark | None) -> None:
    assert parse_mark(line) == mark


def test_a_region_is_two_lines_and_nothing_where_nobody_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with region("unseen"):
        pass
    path = tmp_path / "regions"
    path.touch()
    follower = RegionFile(str(path))
    monkeypatch.setenv(VARIABLE, str(path))
    before = time.perf_counter_ns()
    with pytest.raises(KeyError), region("train\nend all"):
        raise KeyError
    marks = follower.read_marks()
    assert [(mark.begins, mark.name) for mark in marks] == [(True, "train end all"), (False, "train end all")]
    assert before < marks[0].time < marks[1].time < time.perf_counter_ns()
    with path.open("a") as file:
        file.write("begin half a li")
    assert follower.read_marks() == []
    with path.open("a") as file:
        file.write("ne\n\xff\n")
    assert [mark.name for mark in follower.read_marks()] == ["half a line"]
    follower.close()
    path.unlink()
    with region("gone"):  # measuring must not make a program fail
        pass


# ---- the process ----------------------------------------------------------------------------------------------------


def wait_until_read(directory: Path, what: float | str) -> None:
    """Until the sampler has written this mark, or two readings with this value (J): a flat counter around a moment."""
    for _ in range(30_000):
        lines = (directory / "energy.rows").read_bytes().split(b"\n")[1:-1]
        rows = [msgspec.json.decode(line, type=SamplerRow) for line in lines]
        values = [row.readings[0][1] for row in rows if row.readings]
        if what in [row.mark.name for row in rows if row.mark] or values.count(what) > 1:
            return
        time.sleep(0.01)
    raise AssertionError(f"the sampler did not see {what}")


def test_a_program_between_two_readings(tmp_path: Path) -> None:
    """One process, all of its behaviours: idling, regions, readings at both ends, its own cost."""
    root, directory = tmp_path / "root", tmp_path / "scratch"
    directory.mkdir()
    package = Powercap(root).zone("0", "package-0", 262_143_328_850 - 30_000_000)
    with EnergySampler(directory, 0.01, idle=0.1, root=root, gpus=False) as sampling:
        assert sampling.check_readable().state in ("ok", "dead")  # nothing has moved the fake counter yet
        begin = time.perf_counter_ns()
        package.write_text("10000000")  # 40 J, across the wrap
        wait_until_read(directory, 10.0)
        with open(sampling.environment[VARIABLE], "a") as file:
            file.write("begin hot\n")
        wait_until_read(directory, "hot")
        package.write_text("60000000")  # 50 J more, inside the region
        wait_until_read(directory, 60.0)
        with open(sampling.environment[VARIABLE], "a") as file:
            file.write("end hot\nbegin forever\n")
        wait_until_read(directory, "forever")
        end = time.perf_counter_ns()
    found = sampling.result(begin, end)
    counter = [one for one in found.samples if one.sensor == "package-0 energy"]
    assert counter[-1].value - counter[0].value == pytest.approx(90.0)
    assert counter[0].time < -100 * MS  # idling came first
    assert any(found.facts.idle[1] <= one.time <= 0 for one in counter)  # one between idling and the program
    assert found.readings.series[0].wraps == 1
    assert found.facts.idle[1] - found.facts.idle[0] >= 100 * MS
    (hot, forever) = found.regions
    assert (hot[0], forever[0], forever[2]) == ("hot", "forever", end - begin)
    # No device spends 50 J at one blow, as this counter does.
    series = replace(found.readings.series[0].counter_series, highest=np.inf)
    value, low, high = series.between(np.array([begin + hot[1]]), np.array([begin + hot[2]]))
    # A reading comes when the machine has time for it; what is spread between two of them is in the bounds.
    assert low[0] <= min(50.0, value[0]) and max(50.0, value[0]) <= high[0]
    assert "region 'forever' was not ended: it is taken to end with the program" in found.notes
    assert found.states[0].state == "ok"
    assert 0 < found.facts.cpu < 10


def test_the_sampler_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    root, directory = tmp_path / "root", tmp_path / "scratch"
    directory.mkdir()
    Powercap(root).zone("0", "package-0")
    program = (
        "import sys, time; from pathlib import Path; from sonda.probes.energy.meter import EnergySampler\n"
        "with EnergySampler(Path(sys.argv[2]), 0.5, root=Path(sys.argv[1]), gpus=False) as sampler:\n"
        "    print(sampler.process, flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", program, str(root), str(directory)], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    process = int(parent.stdout.readline())
    gone = os.pidfd_open(process)
    os.kill(process, signal.SIGINT)  # a terminal's interrupt is the program's
    os.kill(process, signal.SIGTERM)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert select.select([gone], [], [], 300)[0], "the sampler outlived its parent"
    os.close(gone)
    lines = (directory / "energy.rows").read_bytes().splitlines()
    assert msgspec.json.decode(lines[0], type=SamplerHeader).channels
    assert msgspec.json.decode(lines[-1], type=SamplerRow).cpu > 0  # it came to its end, and was not killed


@pytest.mark.parametrize(("interval", "idle"), [(0.009, 0.0), (11.0, 0.0), (float("nan"), 0.0), (0.5, -1.0)])
def test_intervals_out_of_range_are_refused(tmp_path: Path, interval: float, idle: float) -> None:
    with pytest.raises(SondaError, match="out of range"):
        EnergySampler(tmp_path, interval, idle)


def test_a_sampler_that_cannot_start_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SondaError, match=r"the energy sampler failed: .*is not a power model"):
        EnergySampler(tmp_path, model="nonsense", gpus=False).__enter__()


def test_a_sampler_that_ends_while_the_machine_idles_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler = EnergySampler(tmp_path, 0.01, 1.0, root=tmp_path, gpus=False)

    def ended(seconds: float) -> None:
        os.kill(sampler.process, signal.SIGKILL)
        os.waitid(os.P_PID, sampler.process, os.WEXITED | os.WNOWAIT)

    with (
        monkeypatch.context() as during,
        pytest.raises(SondaError, match="sampler failed: it ended without a word"),
    ):
        during.setattr(time, "sleep", ended)
        sampler.__enter__()
