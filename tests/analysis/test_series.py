"""A command counted from outside, as `sonda run --interval` does it: what is kept of it, and what a reader sees."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from builders import MS, RunBuilder
from charts import boxes_of, series_of
from fake_kernel import FakeKernel
from perf_event_cases import needs_kernel
from plain_runs import change_target
from sonda.analysis.counters.command import summarise_outside
from sonda.analysis.counters.findings import LevelChange
from sonda.analysis.counters.summary import Outside
from sonda.analysis.run_summary import summarise
from sonda.analysis.summary import Value
from sonda.frameworks.collector.counters.perf_event import Event
from sonda.probes.counters.command_counter import CountedCommand, EventCount, KernelCounter
from sonda.probes.counters.pmu import CountingPlan
from sonda.record.errors import SondaError
from sonda.record.run import Run
from sonda.record.samples import Sample
from sonda.record.store import Store
from sonda.report.blocks import Detail
from sonda.report.charts.chart import Guide
from sonda.report.page import page_text
from sonda.report.views.counters.command import outside_figure, outside_table, totals_words
from sonda.report.views.steps.view import StepsView
from sonda.report.words import describe
from sonda.targets import circumstances
from sonda.targets.instruments import counters as counting
from sonda.targets.program import launcher as program
from sonda.targets.program import process_counts as outside
from sonda.targets.program.launcher import ProgramLauncher, WatchSettings, parse_interval, run_command

SECOND = 1000 * MS
PAGES = 5000
TOUCHING = f"import mmap\nm = mmap.mmap(-1, {PAGES} * 4096)\nfor p in range({PAGES}): m[p * 4096] = 1\n"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(circumstances, "load_or_measure", lambda root, threads, machine: {})
    return Store(tmp_path / "store")


def sums(run: Run) -> dict[str, float]:
    found: dict[str, float] = {}
    for sample in run.samples:
        found[sample.sensor] = found.get(sample.sensor, 0.0) + sample.value
    return found


# ---- running -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("100ms", 0.1), ("0.5s", 0.5), ("2", 2.0), (" 1 ms ", 0.001), (".5", 0.5), ("1.s", 1.0), ("", 0.0)],
)
def test_intervals(text: str, seconds: float) -> None:
    assert parse_interval(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "why"),
    [("0", "too short"), ("0.5ms", "too short"), ("-1s", "not a time"), ("1m", "not a time"), ("fast", "not a time"),
     ("1e3", "not a time"), ("nan", "not a time"), (" ", "not a time"), ("9" * 30, "too long")],
)  # fmt: skip
def test_what_is_no_interval_is_refused(text: str, why: str) -> None:
    with pytest.raises(SondaError, match=why):
        parse_interval(text)


@needs_kernel
def test_the_intervals_of_a_program_add_up_to_it(
    store: Store, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    witness = tmp_path / "runs"
    program = f"import time\nopen({str(witness)!r}, 'a').write('x')\n{TOUCHING}time.sleep(1)\n{TOUCHING}print('out')\n"
    run, code = run_command(
        [sys.executable, "-c", program + "raise SystemExit(5)"], store, WatchSettings(interval=0.02, probe=("pmu",))
    )
    assert code == 5 and capfd.readouterr() == ("out\n", "")
    assert witness.read_text() == "x", "it ran once"
    kept = run.info.target.outside
    assert kept.interval == 20 * MS
    totals = {name: one.value for name, one in kept.counts.items()}
    assert set(totals) >= {"task_clock", "page_faults", "context_switches", "cpu_migrations"}
    assert sums(run) == pytest.approx(totals)
    assert totals["page_faults"] >= 2 * PAGES
    faults = [(one.time, one.value) for one in run.samples if one.sensor == "page_faults"]
    assert any(value == 0 for _, value in faults), "in the sleep nothing happens"
    whole = run.spans.number("duration")[0]
    assert faults[-1][0] == pytest.approx(whole, abs=1000) and {one.source for one in run.samples} == {"counted"}
    assert Run.load(run.directory).samples == run.samples


@needs_kernel
@pytest.mark.parametrize(
    ("words", "code"), [(["sleep", "0.05"], 0), (["sh", "-c", "exit 3"], 3), (["sh", "-c", "kill -9 $$"], 137)]
)
def test_a_program_that_is_not_python_is_counted_too(store: Store, words: list[str], code: int) -> None:
    run, passed_on = run_command(words, store, WatchSettings())
    assert passed_on == run.info.exit_code == code
    assert run.samples == [] and len(run.spans) == 1
    summary = summarise(run)
    assert summary.outside is not None and summary.outside.totals["page_faults"].value
    text = StepsView(summary).text(width=200, detail=Detail.ALL)
    assert text.count("Whole program: ") == 1 and "page faults" in text
    assert "no process of the program imported PyTorch" in text
    assert "check that the part that trains" not in text and "run it again" not in text
    assert ("ended with code 3" in text) == (code == 3) and ("was ended by SIGKILL" in text) == (code == 137)


@needs_kernel
@pytest.mark.skipif(shutil.which("perf") is None, reason="needs perf")
def test_totals_agree_with_perf_stat(store: Store, tmp_path: Path) -> None:
    command = [sys.executable, "-S", "-E", "-c", TOUCHING]
    run, _ = run_command(["env", *command], store, WatchSettings(interval=0.01))
    file = tmp_path / "stat"
    subprocess.run(["perf", "stat", "-x,", "-e", "page-faults", "-o", file, "env", *command], check=True)
    theirs = float(next(line for line in file.read_text().splitlines() if "page-faults" in line).split(",")[0])
    # Addresses differ from run to run, and with them some pages of an interpreter.
    assert abs(sums(run)["page_faults"] - theirs) <= 150


def test_where_events_are_refused_the_kernels_account_is_shown_and_the_reason_told(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = FakeKernel(refuse=lambda event: errno.EACCES)
    monkeypatch.setattr(outside, "KernelCounter", lambda known: KernelCounter(kernel=kernel, known=known))
    run, code = run_command(["sh", "-c", "exit 4"], store, WatchSettings(interval=0.01))
    assert code == 4 and run.samples == []
    found = summarise_outside(run)
    assert found is not None
    # wait4 accounts for page faults and switches of any child; migrations are known to events alone.
    assert (found.totals["page_faults"].value or 0) > 0
    assert found.totals["cpu_migrations"].value is None and found.totals["cpu_migrations"].reason
    assert found.stretches == () and outside_figure(found) is None
    said = totals_words(replace(found, totals={**found.totals, "context_switches": Value(1.0, "1", "counted")}))
    assert ", 1 context switch (counted" in said
    assert f"not counted: task clock, cpu migrations ({found.totals['cpu_migrations'].reason})" in said


def test_a_program_that_takes_other_rights_is_not_said_to_do_nothing() -> None:
    kept = outside.describe_counts(
        CountedCommand(0, {"page-faults": EventCount(0.0), "task-clock": EventCount(5.0, 5, 5)})
    )["outside"]
    assert set(kept["counts"]) == {"task_clock"} and "setuid" in kept["missing"]["page_faults"]


def test_with_an_interval_the_pmu_is_read_from_outside_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cycles, instructions, misses = (
        Event(name, 0, at) for at, name in enumerate(("cycles", "instructions", "l2_misses"))
    )
    named = Event("branch_misses", 0, 5)
    found = CountingPlan([[cycles, instructions, misses], [cycles, instructions, named]])
    monkeypatch.setattr(counting, "plan_counting", lambda extra: found)
    asked = counting.request_counters(("pmu:branch-misses",), tmp_path, "per interval")
    assert asked.events == {"cycles": cycles, "instructions": instructions, "branch_misses": named}
    assert list(tmp_path.iterdir()) == [] and asked.target == {}
    assert [(one.name, one.state, one.reason) for one in asked.states] == [("pmu", "ok", "counted per interval")]
    counted_outside: list[Mapping[str, Event]] = []

    def stop(command: Sequence[str], events: Mapping[str, Event], *rest: Any) -> None:
        counted_outside.append(events)
        raise SondaError("enough")

    monkeypatch.setattr(program, "count_outside", stop)
    for interval, events in ((0.1, asked.events), (0.0, {})):
        launcher = ProgramLauncher(["true"], WatchSettings(interval=interval))
        plan = launcher.plan(Store(tmp_path / "store"), tmp_path, str)
        counting.CounterInstrument(("pmu:branch-misses",)).prepare(plan)
        assert plan.events == asked.events and (tmp_path / "counting.json").exists() == (not interval)
        with pytest.raises(SondaError, match="enough"):
            launcher.launch(plan, {})
        assert counted_outside[-1] == events


def test_samples_are_what_each_interval_added() -> None:
    series = [
        (0.1, {"page-faults": EventCount(10.0, 100, 100), "cycles": EventCount(200.0, 100, 50)}),
        (0.2, {"page-faults": EventCount(10.0, 200, 200), "cycles": EventCount(400.0, 200, 80)}),
        (0.3, {"page-faults": EventCount(15.0, 300, 300), "cycles": EventCount(600.0, 300, 80)}),
    ]
    found = outside.interval_samples(CountedCommand(0, series[-1][1], series, interval=0.1))
    assert [(one.time, one.value) for one in found if one.sensor == "page_faults"] == [
        (100 * MS, 10.0), (200 * MS, 0.0), (300 * MS, 5.0),
    ]  # fmt: skip
    # 100 in 50 of 100 ns, 60 in 30 of 100; of the third interval nothing is known.
    assert [(one.time, one.value, one.unit, one.source) for one in found if one.sensor == "cycles"] == [
        (100 * MS, 200.0, "cycle", "estimated"), (200 * MS, 200.0, "cycle", "estimated"),
    ]  # fmt: skip


# ---- what it means -----------------------------------------------------------------------------------------------


def counted(hardware: bool = False, **change: Any) -> Run:
    """4 s in 40 intervals of 100 ms, then 20 ms more: 1 processor and 1,000 page faults a second; from 2 s on two
    processors and 3,000 page faults, and only then steps of 50 ms: 10 data, 30 forward, 10 that no phase covers.

    IPC is 2, and 1 from 2 s on.
    """
    builder = RunBuilder()
    builder.rows[0]["duration"] = 4020 * MS
    part = builder.part("test")
    builder.clock = 2 * SECOND
    for _ in range(40):
        builder.step(part, 50, {"data": 10, "forward": 30})
    samples = []
    totals = {"task_clock": 0.0, "page_faults": 0.0, "context_switches": 0.0}
    totals |= {"cycles": 0.0, "instructions": 0.0} if hardware else {}
    for number in range(41):
        length = 100 * MS if number < 40 else 20 * MS
        late = number >= 20
        amounts = {
            "task_clock": (1 + late) * length,
            "page_faults": (1000 + 2000 * late) * length / SECOND,
            "context_switches": 0.0,
            "cycles": 3.0 * length,
            "instructions": (3.0 if late else 6.0) * length,
        }
        for name in totals:
            totals[name] += amounts[name]
            samples.append(
                Sample(
                    min(number + 1, 40) * 100 * MS + (20 * MS if number == 40 else 0),
                    name,
                    amounts[name],
                    "1",
                    "counted",
                )
            )
    about = {
        "counts": {name: {"value": value, "scaled": False} for name, value in totals.items()},
        "interval": 100 * MS,
    }
    run = builder.run(
        workload={"command": ["train"]}, target={"spec": "", "device": "cpu", "threads": 2, "outside": about | change}
    )
    run.samples = samples
    return run


def of(run: Run) -> Outside:
    found = summarise_outside(run)
    assert found is not None
    return found


def test_totals_and_rates_of_a_constructed_program() -> None:
    found = of(counted(hardware=True))
    assert (found.duration.value, found.interval) == (4020 * MS, 100 * MS)
    # 2 s x 1 + 2.02 s x 2 processors; 2,000 + 2.02 x 3,000 faults; 12e9 + 6.06e9 instructions in 12.06e9 cycles.
    assert found.busy.value == pytest.approx((2 + 2.02 * 2) / 4.02)
    assert found.totals["page_faults"].value == pytest.approx(2000 + 6060)
    assert found.ipc.value == pytest.approx(18.06 / 12.06)
    series = {one.name: one for one in found.series}
    assert list(series) == ["busy processors", "IPC", "page faults per second", "context switches per second",
                            "cycles per second", "instructions per second"]  # fmt: skip
    assert series["busy processors"].values == pytest.approx([1.0] * 20 + [2.0] * 21)
    assert series["IPC"].values == pytest.approx([2.0] * 20 + [1.0] * 21)
    assert series["page faults per second"].values == pytest.approx([1000.0] * 20 + [3000.0] * 21)
    assert found.starts[20] == 2 * SECOND and found.ends[-1] == 4020 * MS


def test_phases_stand_beside_the_intervals() -> None:
    found = of(counted())
    assert list(found.phases) == ["data", "forward", "other"]
    # Two steps of 50 ms are in every later interval: 20 and 60 of 100 ms; the steps end at 4 s.
    assert found.phases["data"] == pytest.approx([0.0] * 20 + [0.2] * 20 + [0.0], abs=1e-6)
    assert found.phases["forward"] == pytest.approx([0.0] * 20 + [0.6] * 20 + [0.0], abs=1e-6)
    assert [sum(values) for values in zip(*found.phases.values(), strict=True)] == pytest.approx([1.0] * 41)


def test_a_phase_is_cut_where_an_interval_ends() -> None:
    run = counted()
    builder = RunBuilder()
    part = builder.part("train")
    builder.clock = 70 * MS
    builder.step(part, 150, {"forward": 150})
    run.spans = builder.spans()
    assert of(run).phases["forward"][:4] == pytest.approx([0.3, 1.0, 0.2, 0.0])


def test_changes_are_named_by_their_time() -> None:
    (change,) = of(counted(hardware=True)).findings
    assert isinstance(change, LevelChange) and (change.of, change.time, change.phase) == ("", 2e9, None)
    assert (change.lead.name, change.lead.before, change.lead.after) == ("busy processors", 1, 2)
    assert len(change.others) == 5
    assert [(other.name, other.before, other.after) for other in change.others[:3]] == [
        ("IPC", 2, 1), ("page faults per second", 1000, 3000), ("instructions per second", 6e9, 3e9),
    ]  # fmt: skip


def test_few_events_say_nothing() -> None:
    run = counted()
    for index, sample in enumerate(run.samples):
        # 1 and 2 in an interval: three times as many, and nothing.
        if sample.sensor == "page_faults":
            run.samples[index] = Sample(sample.time, "page_faults", 1.0 if sample.value <= 100 else 3.0, "1", "counted")
    assert "page faults" not in " ".join(map(describe, of(run).findings))


def test_a_table_of_a_dozen_rows_has_sums_not_means_of_ratios() -> None:
    run = counted(hardware=True)
    found = of(run)
    assert len(found.stretches) == 11, "41 intervals in fours"
    assert [one.start for one in found.stretches][:3] == [0, 400 * MS, 800 * MS]
    assert found.stretches[-1].end == 4020 * MS
    assert found.stretches[4].rates["busy processors"].value == pytest.approx(1.0)
    assert found.stretches[5].rates["IPC"].value == pytest.approx(1.0)
    assert (found.stretches[0].phase, found.stretches[6].phase) == ("other", "forward")
    assert found.stretches[6].share == pytest.approx(0.6)
    # A stretch of which half has a tenth of the cycles: instructions over cycles, 4 x 30 over 3 x 30 + 3.
    slow = {0: (30.0, 30.0), 1: (30.0, 30.0), 2: (30.0, 30.0), 3: (30.0, 3.0)}
    run.samples = [
        Sample((number + 1) * 100 * MS, name, value, "1", "counted")
        for number in range(48) for name, value in zip(("instructions", "cycles"), slow[number % 4], strict=True)
    ]  # fmt: skip
    assert of(run).stretches[0].rates["IPC"].value == pytest.approx(120 / 93)
    table = outside_table(found)
    assert [column.name for column in table.columns][:3] == ["from, s", "busy processors", "IPC"]
    assert table.columns[-1].name == "mostly" and table.rows[6][-1].text == "forward 60 %"


def test_what_was_scaled_is_called_estimated() -> None:
    run = counted(hardware=True, counts={"cycles": {"value": 10, "scaled": True}, "instructions": {"value": 30}})
    run.samples = [
        Sample(one.time, one.sensor, one.value, one.unit, "estimated" if one.sensor == "cycles" else "counted")
        for one in run.samples
    ]
    found = of(run)
    assert found.ipc.source == "estimated" and "IPC ~3.00" in totals_words(found)
    assert {one.name: one.source for one in found.series} == {
        "IPC": "estimated", "cycles per second": "estimated", "instructions per second": "derived",
    }  # fmt: skip


@pytest.mark.parametrize("table", [3, "text", {"counts": 3}, {"counts": {"page_faults": "many"}}, {"interval": "x"}])
def test_a_damaged_table_is_not_read(table: Any) -> None:
    with pytest.raises(msgspec.ValidationError, match="outside"):
        change_target(counted(), outside=table)


def test_a_run_without_the_table_has_no_such_summary() -> None:
    run = counted()
    change_target(run, outside=None)
    assert summarise(run).outside is None


def test_samples_of_other_sensors_are_left_alone() -> None:
    run = counted()
    before = of(run)
    run.samples = [*run.samples, Sample(17, "power", 40.0, "W", "measured")]
    assert of(run) == before


# ---- what is shown -----------------------------------------------------------------------------------------------


def test_the_screen_the_document_and_the_page_show_it() -> None:
    run = counted(hardware=True)
    summary = summarise(run)
    text = StepsView(summary).text(width=160, detail=Detail.ALL)
    assert "Whole program: 4.02 s, 6.04 s of processor time (1.50 processors busy), 8,060 page faults" in text
    assert "the program: from 2.0 s on busy processors rise by 100 %" in text
    document = StepsView(summary).document()["outside"]
    assert document["metrics"]["page_faults:counted"] == {
        "value": pytest.approx(8060),
        "unit": "1",
        "source": "counted",
    }
    assert document["series"][0]["changes"][0]["interval"] == 21 and len(document["starts"]) == 41
    page = page_text([summary], [run])
    assert "The whole program over time" in page and "from 2.0 s on busy processors" in page


def test_the_figure_marks_the_change_where_its_interval_begins_and_has_the_phases_beneath() -> None:
    figure = outside_figure(of(counted()))
    assert figure is not None
    assert {mark.at for mark in figure.marks if isinstance(mark, Guide)} == {2.0}
    assert figure.x.title == "time since the program began, s"
    assert figure.x.ends == (0, 4.02)
    bars = boxes_of(figure)
    assert list(bars) == ["data", "forward", "other"]
    assert [strip.right - strip.left for strip in figure.strips] == pytest.approx([0.1] * 40 + [0.02])
    forward = {round((left + right) / 2, 3): high - low for left, right, low, high in bars["forward"].places}
    assert forward[2.55] == pytest.approx(60)
    lines = series_of(figure)
    assert len(lines) == 3 and all(len(line.points) == 41 for line in lines)


def test_a_program_without_phases_has_none_beneath() -> None:
    run = counted()
    run.spans = RunBuilder().spans()
    found = of(run)
    figure = outside_figure(found)
    assert found.phases == {} and figure is not None
    assert len(figure.fields) == 3 and not boxes_of(figure)
