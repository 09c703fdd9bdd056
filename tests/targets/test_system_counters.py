"""What the operating system counted by phase, and what second sources counted of the whole: analysis and tables."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from plain_runs import load_plain, run_info
from report_examples import training
from sonda.analysis.counters.findings import ManyFaults, OnlyOursObserved, PapiCountsKernel, WaitedForProcessor
from sonda.analysis.counters.second_sources import summarise_second
from sonda.analysis.counters.system import summarise_system
from sonda.analysis.doubts import UnevenPhases
from sonda.analysis.run_summary import _uneven, summarise
from sonda.analysis.summary import PartSummary, Value
from sonda.probes.counters.command_counter import CountedCommand, EventCount
from sonda.record.errors import SondaError
from sonda.record.run import ProbeState, Run
from sonda.record.spans import Spans
from sonda.record.store import Store
from sonda.report.blocks import Detail
from sonda.report.page import page_text
from sonda.report.views.counters.system import in_table, second_table, system_table
from sonda.report.views.steps.view import StepsView
from sonda.report.words import describe
from sonda.targets.instrument import Circumstances, EndedRun, Observation
from sonda.targets.instruments import second_sources as second
from sonda.targets.job import JOB, Job
from sonda.targets.local import command as whole
from sonda.targets.local.launcher import LocalLauncher

MS = 1e6
NOTHING = Spans({"start": np.zeros(0)}, {})


def value(amount: float, unit: str = "1", source: str = "counted") -> Value:
    return Value(amount, unit, source)


def part(wait: float = 0.0, faults: float = 0.0) -> PartSummary:
    """The training example, whose forward and backward were read, with so much wait and so many faults in forward."""
    whole = training().parts[0]
    counters = {
        "task_clock:counted": value(60 * MS, "ns"), "page_faults:counted": value(faults),
        "context_switches:counted": value(3), "run_queue_wait:counted": value(wait, "ns"),
        "resident_memory:measured": value(4e8, "B", "measured"),
    }  # fmt: skip
    phases = tuple(replace(one, counters=counters if one.name == "forward" else {}) for one in whole.phases)
    return replace(whole, phases=phases, counters=counters)


def test_phases_that_were_not_read_are_left_out_and_the_step_is_last() -> None:
    system = summarise_system(part(), asked=True)
    assert system is not None and [row.name for row in system.rows] == ["forward", "step"]
    forward = system.rows[0]
    assert forward.busy.value == pytest.approx(60 * MS / (forward.time.value or 0))
    assert forward.values["migrations"].value is None and forward.values["migrations"].reason
    assert system.shown and not system.remarks


def test_nothing_remarkable_has_no_table_and_nothing_counted_has_nothing() -> None:
    quiet = summarise_system(part(), asked=False)
    assert quiet is not None and not quiet.shown
    bare = replace(part(), counters={}, phases=tuple(replace(one, counters={}) for one in part().phases))
    assert summarise_system(bare, asked=True) is None


def test_waits_and_faults_that_take_a_tenth_of_a_phase_are_remarked() -> None:
    forward = next(one for one in part().phases if one.name == "forward").cost.time.value or 0.0
    waiting = summarise_system(part(wait=0.11 * forward), asked=False)
    assert waiting is not None and waiting.shown
    waited = waiting.remarks[0]
    assert isinstance(waited, WaitedForProcessor) and [name for name, _ in waited.phases] == ["forward"]
    little = summarise_system(part(wait=0.09 * forward), asked=False)
    assert little is not None and not little.shown
    # At 1 µs each at the least, so many faults are 11 % of the phase.
    faulting = summarise_system(part(faults=0.11 * forward / 1000), asked=False)
    assert faulting is not None and isinstance(faulting.remarks[0], ManyFaults)


def test_the_table_stands_in_for_the_line_of_counters() -> None:
    summary = training()
    shown = replace(part(), system=summarise_system(part(), asked=True))
    table = system_table(shown.system) if shown.system else None
    assert table is not None
    heads = [column.name for column in table.columns]
    assert heads == ["per step", "CPU ms", "busy", "page faults", "switches", "waited ns", "resident MB"]
    text = StepsView(replace(summary, parts=(shown,))).text(140, color=False, detail=Detail.ALL)
    assert "resident MB" in text and "context switches 3/step" not in text
    hidden = replace(part(), system=summarise_system(part(), asked=False))
    assert "context switches 3/step" in StepsView(replace(summary, parts=(hidden,))).text(
        140, color=False, detail=Detail.ALL
    )
    assert not in_table(hidden) and "task_clock:counted" in in_table(shown)


# ---- second sources -----------------------------------------------------------------------------------------------


def run_with(target: dict[str, Any], command: bool = False) -> Run:
    workload = {"name": "x", **({"command": ["x"]} if command else {})}
    info = run_info(id="r", created="2026-11-15T00:00:00Z", status="complete", workload=workload, target=target)
    run = Run(Path("nowhere"), info)
    run.__dict__.update(spans=NOTHING, samples=[])  # as if read
    return run


def counts(**values: float) -> dict[str, Any]:
    return {"counts": {name: {"value": one} for name, one in values.items()}}


def test_differences_are_relative_to_ours() -> None:
    target = {"second": {
        "sonda": counts(page_faults=1000.0, cpu_migrations=0.0, context_switches=0.0),
        "perf-stat": {**counts(page_faults=1010.0, cpu_migrations=0.0, context_switches=3.0),
                      "missing": {"cycles": "not supported"}},
    }}  # fmt: skip
    found = summarise_second(run_with(target))
    assert found is not None and found.sources == ("perf-stat",)
    apart = {row.quantity: row.apart["perf-stat"] for row in found.rows}
    assert apart["page_faults"].value == pytest.approx(0.01)
    assert apart["cpu_migrations"].value == 0.0
    assert apart["context_switches"].value is None and apart["context_switches"].reason == "ours is 0"
    texts = {row[0].text: [cell.text for cell in row[1:]] for row in second_table(found).rows}
    assert texts["page faults"] == ["1,000", "1,010", "+1 %"]
    document = StepsView(summarise(run_with(target))).document()["second_sources"]
    assert document["sources"] == ["sonda", "perf-stat"]
    assert document["counts"]["page_faults"]["perf-stat"]["apart"]["value"] == pytest.approx(0.01)


def test_of_a_command_ours_is_what_was_counted_from_outside() -> None:
    target = {"outside": counts(page_faults=200.0), "second": {"papi": counts(page_faults=190.0, cycles=5.0)}}
    found = summarise_second(run_with(target, command=True))
    assert found is not None
    assert found.rows[0].apart["papi"].value == pytest.approx(-0.05)
    assert OnlyOursObserved() in found.findings and PapiCountsKernel() in found.findings


@pytest.mark.parametrize("table", [None, {}, {"papi": {}}])
def test_a_record_without_counts_has_no_second_sources(table: Any) -> None:
    assert summarise_second(run_with({"second": table})) is None


@pytest.mark.parametrize("table", [[], {"perf-stat": 3}, {"perf-stat": {"counts": {"a": "b"}}}])
def test_a_damaged_record_has_no_second_sources(table: Any, tmp_path: Path) -> None:
    with pytest.raises(SondaError, match=r"^[^\n]* is damaged: run\.json: [^\n]*\$\.target\.second[^\n]*$"):
        load_plain(tmp_path, workload={"name": "x"}, target={"second": table})


class Source:
    """Counts what it is told to, and remembers the command."""

    name = "source"

    def __init__(self, found: CountedCommand | SondaError) -> None:
        self.found = found
        self.jobs: list[bytes] = []

    def state(self) -> ProbeState:
        return ProbeState(self.name, "ok", "version 1")

    def count(
        self, command: tuple[str, ...], events: tuple[str, ...], interval: float = 0.0,
        environment: dict[str, str] | None = None,
    ) -> CountedCommand:  # fmt: skip
        assert command[1:4] == ("-P", "-m", "sonda.targets.local.command")
        assert environment and environment["OMP_PLACES"] == "{0}" and environment["PATH"] == os.environ["PATH"]
        self.jobs.append((Path(command[4]) / JOB).read_bytes())
        if isinstance(self.found, SondaError):
            raise self.found
        return self.found


def test_a_workload_is_counted_once_more_by_each_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Source(CountedCommand(0, {"page-faults": EventCount(100.0, 1, 1)}))
    other = Source(CountedCommand(0, {"page-faults": EventCount(101.0, 1, 1)}, missing={"cycles": "not supported"}))
    dead = Source(SondaError("cannot attach", "be root"))
    monkeypatch.setattr(second, "KernelCounter", lambda known: own)
    monkeypatch.setattr(second, "SOURCES", {"perf-stat": lambda: other, "papi": lambda: dead})
    launcher = LocalLauncher(Job(workload="mlp", steps=7, bind="0", probe="pmu,perf-stat"))
    plan = launcher.plan(Store(tmp_path), tmp_path, str)
    observation = Observation(NOTHING, {}, {}, Circumstances("", {}, {}))
    seen = EndedRun(plan, observation, NOTHING, partial(launcher.again, plan))
    added = second.SecondSourcesInstrument(("perf-stat", "papi")).collect(seen)
    found, states = added.target["second"], added.states
    assert found["sonda"] == {"counts": {"page_faults": {"value": 100.0, "scaled": False}}}
    assert found["perf-stat"]["missing"] == {"cycles": "not supported"} and "papi" not in found
    assert [(one.name, one.state, one.reason) for one in states] == [
        ("perf-stat", "ok", "version 1"), ("papi", "dead", "cannot attach"),
    ]  # fmt: skip
    assert own.jobs == other.jobs and b'"steps":7' in own.jobs[0] and b'"probe":""' in own.jobs[0]


def test_the_command_of_a_workload_is_its_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(workload="mlp", threads=3)
    command = whole.job_command(job, tmp_path)
    assert command[1:] == ["-P", "-m", "sonda.targets.local.command", str(tmp_path)]
    seen: dict[str, Any] = {}

    def main() -> int:
        seen["job"], seen["threads"] = os.read(0, 1 << 16), os.environ["OMP_NUM_THREADS"]
        return 4

    monkeypatch.setattr(whole, "main", main)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("MKL_NUM_THREADS", "1")
    standard = os.dup(0)
    try:
        assert whole.run_job_file(tmp_path) == 4
    finally:
        os.dup2(standard, 0)
        os.close(standard)
    assert seen["threads"] == "3" and msgspec.json.decode(seen["job"], type=Job) == job


# ---- the page and the shares --------------------------------------------------------------------------------------


def test_the_page_has_both_tables() -> None:
    target = {"second": {"sonda": counts(page_faults=1000.0), "perf-stat": counts(page_faults=1010.0)}}
    shown = replace(part(), system=summarise_system(part(), asked=True))
    summary = replace(training(), parts=(shown,), second=summarise_second(run_with(target)))
    html = page_text([summary])
    assert "What the operating system counted" in html and "Second sources" in html and "+1 %" in html


def test_shares_that_do_not_add_up_are_explained() -> None:
    whole_part = training().parts[0]
    assert _uneven(whole_part) == []
    half = [replace(one, cost=replace(one.cost, share=one.cost.share / 2)) for one in whole_part.phases]
    total = sum(one.cost.share for one in half)
    [said] = _uneven(replace(whole_part, phases=tuple(half)))
    assert said == UnevenPhases(whole_part.name, Value(total, "1", "derived"))
    scale = 1.04 / (2 * total)
    nearly = [replace(one, cost=replace(one.cost, share=one.cost.share * scale)) for one in whole_part.phases]
    assert _uneven(replace(whole_part, phases=tuple(nearly))) == [], "1.0 times is no news"
    twice = [replace(one, cost=replace(one.cost, share=2 * one.cost.share)) for one in nearly]
    [doubled] = _uneven(replace(whole_part, phases=tuple(twice)))
    assert "add up to 2.1 times the median step" in describe(doubled) and "different steps" in describe(doubled)
