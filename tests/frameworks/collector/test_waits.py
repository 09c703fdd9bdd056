"""How long a training waits outside its phases: by hand, and in real programs."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from builders import RunBuilder
from observed import Nursery
from plain_runs import change_workload
from sonda.analysis.comparison.runs import _differing_settings
from sonda.analysis.rules.advice import Change, TryChange
from sonda.analysis.rules.judge import verdicts
from sonda.analysis.rules.limit_findings import NoClearLimit, WaitsOutside
from sonda.analysis.summary import Summary
from sonda.frameworks.collector.sampling import waits
from sonda.frameworks.collector.sampling.waits import ALL_OF_FIRST, MOST, ONE_IN, WORTH_NS, Waits
from sonda.frameworks.reconstruction.assembly import Assembly
from sonda.record.workload import StepWaits, Workload
from sonda.targets.circumstances import describe_habits
from verdicts_cases import bare, cost, layer, phase, summary

MS = 1_000_000


class Clocks:
    """Clocks that run when they are told to, and how often they were read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.time = self.ran = self.queued = 0
        self.readings = 0
        monkeypatch.setattr(waits, "now", lambda: self.time)
        monkeypatch.setattr(waits, "ran", self._ran)
        monkeypatch.setattr(waits.os, "open", lambda path, flags: os.dup(0))
        monkeypatch.setattr(waits.os, "read", lambda file, size: f"{self.ran} {self.queued} 1\n".encode())

    def _ran(self) -> int:
        self.readings += 1
        return self.ran

    def pass_by(self, waiting: int = 0, running: int = 0, queued: int = 0) -> None:
        self.time += waiting + running + queued
        self.ran += running
        self.queued += queued


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


def step(seen: Waits, clocks: Clocks, **between: int) -> None:
    seen.begin()
    clocks.pass_by(**between)
    if seen.open:
        seen.end()
    clocks.pass_by(running=5_000_000)
    seen.end_step()


def test_only_time_in_which_a_thread_neither_runs_nor_queues_is_a_wait(clocks: Clocks) -> None:
    seen = Waits()
    for _ in range(20):
        step(seen, clocks, waiting=3_000_000, running=2_000_000, queued=4_000_000)
    assert seen.facts() == {"waits": {"step_ns": 3_000_000, "steps": 20, "waited": 20}}


def test_a_loop_that_does_not_wait_is_looked_at_now_and_then(clocks: Clocks) -> None:
    seen = Waits()
    for _ in range(ONE_IN * 100):
        step(seen, clocks, running=2_000_000, waiting=WORTH_NS // 2)
    # Two readings of the first steps and of a sixteenth of the others, as the golden ratio spreads them.
    assert clocks.readings == pytest.approx(2 * (ALL_OF_FIRST + 99), abs=4)
    assert seen.facts()["waits"] == {"step_ns": WORTH_NS // 2, "steps": clocks.readings // 2, "waited": 0}


def test_a_beginning_that_waits_does_not_stand_for_all(clocks: Clocks) -> None:
    """200 steps wait, each of which is looked at; 2,000 do not, of which every sixteenth is."""
    seen = Waits()
    for at in range(2_200):
        step(seen, clocks, waiting=2 * WORTH_NS if at < 200 else 0)
    assert sum(waited > 0 for waited, _ in seen.steps) > len(seen.steps) / 2
    assert seen.facts()["waits"]["step_ns"] == pytest.approx(2 * WORTH_NS * 200 / 2_200, rel=0.05)


@pytest.mark.parametrize("period", [2, 3, 4, 8, 10, 16, 50])
def test_waits_of_some_steps_count_by_how_often_they_come(clocks: Clocks, period: int) -> None:
    seen = Waits()
    for at in range(16_000):
        step(seen, clocks, waiting=20 * WORTH_NS if at % period == 0 else 0)
    assert seen.facts()["waits"]["step_ns"] == pytest.approx(20 * WORTH_NS / period, rel=0.25)


def test_no_descriptor_stays_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    kept = []
    for _ in range(20):
        kept.append(Waits())
        kept[-1].begin()
        kept[-1].end()
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_is_kept_is_bounded(clocks: Clocks) -> None:
    seen = Waits()
    for _ in range(20 * MOST):
        step(seen, clocks, waiting=2 * WORTH_NS)
    assert len(seen.steps) <= MOST
    assert seen.facts()["waits"]["step_ns"] == 2 * WORTH_NS


def test_where_no_queue_is_told_nothing_is_taken_off(clocks: Clocks, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: str, flags: int) -> int:
        raise PermissionError

    monkeypatch.setattr(waits.os, "open", refused)
    seen = Waits()
    step(seen, clocks, waiting=3_000_000, running=2_000_000)
    assert seen.facts() == {"waits": {"step_ns": 3_000_000, "steps": 1, "waited": 1}}


def test_a_thread_that_is_held_up_while_its_queue_is_read_does_not_wait(
    clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a crowded machine, before the kernel has told it and after."""

    def read(file: int, size: int) -> bytes:
        clocks.pass_by(queued=40_000_000)
        told = f"{clocks.ran} {clocks.queued} 1\n".encode()
        clocks.pass_by(queued=50_000_000)
        return told

    monkeypatch.setattr(waits.os, "read", read)
    seen = Waits()
    for _ in range(3):
        step(seen, clocks, running=2_000_000)
    assert seen.facts() == {"waits": {"step_ns": 0, "steps": 3, "waited": 0}}


def test_a_count_that_the_program_closed_is_no_wait(clocks: Clocks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the file is gone at the end of a stretch, or at its begin."""
    seen = Waits()
    clocks.pass_by(queued=9_000_000)
    step(seen, clocks, waiting=3_000_000)
    seen.begin()
    monkeypatch.setattr(waits.os, "read", lambda file, size: b"something else\n")
    clocks.pass_by(waiting=2_000_000)
    seen.end()
    seen.end_step()
    step(seen, clocks, waiting=2_000_000)
    assert [waited for waited, _ in seen.steps] == [3_000_000, 2_000_000, 2_000_000]


def test_a_stretch_in_which_something_else_began_is_forgotten(clocks: Clocks) -> None:
    """A whole step that is one function has no forward: only the next step says that it ran."""
    seen = Waits()
    for _ in range(5):
        seen.begin()
        clocks.pass_by(waiting=3_000_000)
        seen.end_step()
    assert seen.facts() == {}
    seen.begin()
    clocks.pass_by(waiting=3_000_000)
    seen.begin()
    clocks.pass_by(waiting=2_000_000)
    seen.end()
    seen.end_step()
    assert seen.facts() == {"waits": {"step_ns": 2_000_000, "steps": 1, "waited": 1}}


def test_nothing_looked_at_is_nothing_known() -> None:
    assert Waits().facts() == {}


# ---- real programs --------------------------------------------------------------------------------------------------

BEGIN = """
import time, torch
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(64, 64)
"""
STEP = """
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
"""
SPIN = "    until = time.thread_time() + 0.02\n    while time.thread_time() < until: pass"
LOADS = """
class Slow(torch.utils.data.Dataset):
    def __len__(self): return 30
    def __getitem__(self, at):
        time.sleep(0.02)
        return x
for x in torch.utils.data.DataLoader(Slow(), batch_size=None):
"""
LOOP = "for _ in range(30):\n"
PROGRAMS = {
    "between steps": (BEGIN + LOOP + STEP + "    time.sleep(0.02)\n", True),
    "before the forward": (BEGIN + LOOP + "    time.sleep(0.02)\n" + STEP, True),
    "before the forward with a loader": (BEGIN + LOADS.replace("0.02", "0") + "    time.sleep(0.02)\n" + STEP, True),
    "computes": (BEGIN + LOOP + SPIN + STEP, False),
    "in a loader": (BEGIN + LOADS + STEP, False),
}


def observe_program(code: str, directory: Path) -> Assembly:
    """What is seen of a program that prints nothing."""
    (directory / "program.py").write_text(code)
    outcome = Nursery().run(str(directory / "program"), directory=directory, observe=True)
    assert (outcome.code, outcome.output) == (0, "")
    assert outcome.assembly is not None
    return outcome.assembly


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_wait_outside_the_phases_is_named_and_nothing_else(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    code, waits = PROGRAMS[name]
    found = observe_program(code, tmp_path).crew.busiest.waits
    assert found["steps"] > 5
    # Half of the 20 ms that every program sleeps or computes: others on the machine add some ms, or take them off.
    if waits:
        assert found["step_ns"] > 10_000_000, "the sleep"
    else:
        assert found["step_ns"] < 10_000_000, "neither what a phase waits nor what the program computes is one"


def waiting(mean: float, rows: list, layers: list, others: list[float], waited: int = 30) -> Summary:
    """A training whose steps of 100 ms wait so many ms; `others` are the ms outside of its phases, in turn."""
    made = summary(rows, layers)
    steps = tuple(MS * others[at % len(others)] for at in range(20))
    durations = tuple(30 * MS + outside for outside in steps)
    parts = (replace(made.parts[0], phase_steps={"other": steps}, durations=durations),)
    facts = StepWaits(step_ns=round(mean * MS), steps=30, waited=waited)
    return replace(made, parts=parts, workload=Workload(waits=facts))


def test_a_wait_is_said_with_what_to_do_about_it() -> None:
    rows = [phase("forward", cost(30, "compute", 0.8)), phase("other", bare(70))]
    layers = [layer("0", "Conv2d", cost(30, "compute", 0.8))]
    long = waiting(60, rows, layers, [70])
    first = verdicts(long)[0][0]
    assert (first.kind, first.share) == ("waiting", pytest.approx(0.6))
    assert isinstance(first.finding, WaitsOutside) and first.finding.time.value == pytest.approx(60 * MS)
    assert [remedy.advice for remedy in first.remedies] == [
        TryChange(Change.READ_IN_WORKERS),
        TryChange(Change.NEXT_BATCH_IN_THREAD),
    ]
    assert not any(isinstance(one.finding, NoClearLimit) for one in verdicts(long)[0]), "10 % are left there"
    unclear = cost(30, "", 0.1)
    partly = waiting(40, [phase("forward", unclear), phase("other", bare(70))], [layer("0", "Conv2d", unclear)], [70])
    kinds = [one.kind for one in verdicts(partly)[0]]
    assert kinds == ["waiting", "none"], "40 % before the 30 % that are left there"
    assert all(one.kind != "waiting" for one in verdicts(waiting(5, rows, layers, [70]))[0])
    assert all(one.kind != "waiting" for one in verdicts(waiting(60, rows, layers, [70], waited=4))[0]), "chance"
    inference = replace(long, parts=(replace(long.parts[0], name="test"),))
    assert all(one.kind != "waiting" for one in verdicts(inference)[0])


def test_steps_that_wait_now_and_then_are_told_so() -> None:
    """Every fourth step waits for 100 ms, the others not at all: 25 of 55 ms."""
    rows = [phase("forward", cost(99, "compute", 0.8)), phase("other", bare(1))]
    first = verdicts(waiting(25, rows, [layer("0", "Conv2d", cost(30, "compute", 0.8))], [0, 0, 0, 100]))[0]
    assert {one.kind: one.share for one in first}["waiting"] == pytest.approx(25 / 55)


def test_threads_that_step_beside_each_other_wait_for_the_interpreter(tmp_path: Path) -> None:
    """No loader helps there, so nothing is kept of it."""
    pytest.importorskip("torch")
    body = "".join(f"    {line}\n" for line in (BEGIN + LOOP + STEP).splitlines())
    starts = "workers = [threading.Thread(target=train) for _ in range(2)]\nfor one in workers: one.start()\n"
    code = f"import threading\ndef train():\n{body}{starts}for one in workers: one.join()\n"
    seen = observe_program(code, tmp_path)
    assert seen.crew.busiest.waits and seen.crew.busiest.stepping == 2
    assert "waits" not in describe_habits(seen)


def test_runs_that_waited_differently_are_of_the_same_work(tmp_path: Path) -> None:
    first, second = (RunBuilder().run() for _ in range(2))
    for run, waited in ((first, 5), (second, 7)):
        change_workload(run, waits={"step_ns": waited, "steps": 9})
    assert _differing_settings([first, second]) == {}
    change_workload(second, batch=3)
    assert len(_differing_settings([first, second])) == 1
