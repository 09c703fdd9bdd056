"""Commands as participants: by steps, by whole runs, by the window; where they run and what is counted of them."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from corun_examples import QUICK, alive, script, until
from sonda.analysis.corun.interference import interference
from sonda.frameworks.collector.counters.perf_event import SOFTWARE, TYPE_SOFTWARE
from sonda.probes.counters.command_counter import KernelCounter
from sonda.record.errors import SondaError
from sonda.record.run import ProbeState
from sonda.record.store import Store
from sonda.report.blocks import Detail
from sonda.report.views.corun import CorunView
from sonda.report.words import describe
from sonda.targets.corun import launcher as corun_module
from sonda.targets.corun.launcher import corun
from sonda.targets.corun.plan import CorunSettings, parse_cast
from sonda.targets.corun.process_tree import continue_below, end_below, processes_below, stop_below
from sonda.targets.corun.spans import SpanGatherer

needs_perf = pytest.mark.skipif(
    KernelCounter(children=False).state().state != "ok", reason="the kernel refuses perf events here"
)


def test_commands_are_named_by_their_program_and_split_as_a_shell_does():
    cast = parse_cast(["cmd:sh -c 'exit 0'", "x=window:sleep 1000", f"cmd:{sys.executable} -u a=b.py --lr=0.1"])
    assert cast.names == ["sh", "x", "a=b.py"]
    first, second, third = cast.participants
    assert first.command == ("sh", "-c", "exit 0") and first.job is None and first.region == ""
    assert second.region == "window" and second.threads == len(second.cores)
    assert third.command[1:] == ("-u", "a=b.py", "--lr=0.1")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("cmd:", "names no command"),
        ("window:  ", "names no command"),
        ("cmd:no-such-program-here", "there is no program 'no-such-program-here'"),
        ("cmd:sh -c 'x", "quotation"),
    ],
)
def test_commands_that_cannot_be_are_one_line(text, word):
    with pytest.raises(SondaError, match=word) as caught:
        parse_cast(["cmd:true", text])
    assert caught.value.remedy and "\n" not in str(caught.value)


# ---- processes below ----------------------------------------------------------------------------------------------

TREE = "import os, sys, time\nfor _ in range(int(sys.argv[1])):\n    os.fork()\ntime.sleep(1000)\n"


def test_a_tree_is_held_let_go_and_ended(tmp_path):
    script(tmp_path / "tree.py", TREE)
    child = os.fork()
    if not child:
        os.setsid()
        os.execv(sys.executable, [sys.executable, "-I", "-S", str(tmp_path / "tree.py"), "2"])
    try:
        until(lambda: len(alive(tmp_path / "tree.py")) == 4)
        mine = set(alive(tmp_path / "tree.py"))
        assert mine <= set(processes_below(os.getpid())) and set(processes_below(child)) == mine - {child}
        stop_below(child)
        assert set(processes_below(child).values()) == {"T"} and processes_below(os.getpid())[child] != "T", (
            "itself is not held"
        )
        continue_below(child)
        until(lambda: set(processes_below(child).values()) == {"S"})
        end_below(child)
        assert processes_below(child) == {} and alive(tmp_path / "tree.py") == [child]
    finally:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)


# ---- whole runs -----------------------------------------------------------------------------------------------------

TOUCHES = """
import mmap, os, sys
pages = int(sys.argv[2])
memory = mmap.mmap(-1, pages * mmap.PAGESIZE)
memory.madvise(mmap.MADV_NOHUGEPAGE)
for page in range(pages):
    memory[page * mmap.PAGESIZE] = 1
with open(sys.argv[1], "a") as file:
    file.write(f"{sorted(os.sched_getaffinity(0))}\\n")
"""


def test_a_step_is_a_whole_run_and_all_of_its_faults_count_where_it_was_put(tmp_path):
    """Two sizes of memory, 2000 pages apart: the difference has nothing of Python in it."""
    core = max(os.sched_getaffinity(0))
    texts = [script(tmp_path / "touches.py", TOUCHES, str(tmp_path / name), pages, name=name)
             for name, pages in (("small", "1000"), ("large", "3000"))]  # fmt: skip
    run = corun(texts, Store(tmp_path / "store"), f"{core},{core}", QUICK)
    facts = run.info.target.corun
    assert [one.region for one in facts.participants] == ["runs", "runs"]
    assert "small: a step is a whole run of the command" in run.info.notes
    lines = (tmp_path / "large").read_text().splitlines()
    assert set(lines) == {f"[{core}]"}
    steps = [sum(piece[2] for piece in one.slices) for window in facts.windows for one in window.measured]
    assert min(steps) >= 3 and sum(steps) < len(lines) + len((tmp_path / "small").read_text().splitlines())
    found = interference(run)
    faults = {name: found.alone[name].counters[name]["page_faults"].value for name in ("small", "large")}
    assert faults["large"] - faults["small"] == pytest.approx(2000, rel=0.02)
    assert found.slowdown("small", "large").value > 0 and found.together.layers == {"small": (), "large": ()}
    waiting = found.together.counters["small"]["waiting"]
    assert waiting.value is None and "command's processes" in waiting.reason


def software(*names: str) -> list[dict]:
    """Groups of one software event each, as if the PMU had counted them: for what no machine here has."""
    return [
        {"events": [{"name": name, "type": TYPE_SOFTWARE, "config": SOFTWARE[event], "kernel": True}], "whole": True}
        for name, event in zip(names[::2], names[1::2], strict=True)
    ]


@needs_perf
def test_what_the_pmu_counts_of_a_command_is_shown_alone_and_together(tmp_path, monkeypatch):
    """Page faults in the place of instructions: as many as the system counts, in processes that have ended."""
    groups = software("instructions", "page-faults", "cycles", "task-clock", "cache_misses", "page-faults")
    monkeypatch.setattr(corun_module, "event_groups", lambda extra: (groups, ProbeState("pmu", "ok")))
    texts = [script(tmp_path / "touches.py", TOUCHES, str(tmp_path / name), "2000", name=name) for name in "ab"]
    run = corun(texts, Store(tmp_path / "store"), setting=QUICK)
    for window in run.info.target.corun.windows:
        for one in window.measured:
            counters = one.counters
            # An exec's first faults are in one account, those of the process that starts the command in the other.
            assert counters["instructions"] == pytest.approx(counters["page_faults"], rel=0.02)
            assert counters["cycles"] > 0.5 * counters["cpu_time"]
    found = interference(run)
    assert found.pmu_reason == ""
    for company in (found.alone["a"], found.together):
        assert company.counters["a"]["cache_misses"].value == pytest.approx(1000), "per 1000 of the same"
        assert 0 < company.counters["a"]["ipc"].value < 1
    text = CorunView(found).text(200, color=False, detail=Detail.ALL)
    assert "IPC alone" in text and "IPC together" in text and "cache misses /1000 alone" in text
    assert "instructions:counted" in run.spans.metrics


# ---- the window -------------------------------------------------------------------------------------------------

BEATS = """
import sys, time
with open(sys.argv[1], "a", buffering=1) as file:
    while True:
        file.write(f"{time.monotonic_ns()}\\n")
        time.sleep(0.002)
"""


@pytest.fixture
def origin(monkeypatch):
    """When the run began, ns of CLOCK_MONOTONIC, once it has."""
    found = []
    monkeypatch.setattr(corun_module, "SpanGatherer", lambda begin: found.append(begin) or SpanGatherer(begin))
    return found


def test_a_command_that_runs_on_is_stopped_between_its_windows(tmp_path, origin):
    noise = script(tmp_path / "beats.py", BEATS, str(tmp_path / "beats"), name="noise", kind="window")
    run = corun(
        ["a=cmd:true", noise], Store(tmp_path / "store"), setting=CorunSettings(seconds=0.3, repeat=1, timeout=100)
    )
    assert alive(tmp_path) == []
    beats = [int(line) for line in (tmp_path / "beats").read_text().split()]
    facts = run.info.target.corun
    assert [window.members for window in facts.windows] == [[0], [1], [0, 1]]
    inside = []
    for window in facts.windows:
        first = window.measured[0]
        inside.append(sum(first.begin <= beat - origin[0] <= first.end for beat in beats))
    assert inside[0] == 0, "it rests while the other is measured alone"
    assert inside[1] > 0 and inside[2] > 0
    found = interference(run)
    unknown = found.slowdown("noise", "a")
    assert found.slowdown("a", "noise").value > 0
    if facts.pmu.reason:
        assert unknown.value is None and "without a PMU" in unknown.reason
        assert found.together.weighted_speedup.value is None and "weighted speed-up" not in describe(found.finding)
    assert found.alone["noise"].steps["noise"].reason == "the command has no steps"
    json.dumps(CorunView(found).document())
    assert "the command has no steps" in CorunView(found).text(160, color=False, detail=Detail.ALL)


def test_a_window_command_that_ends_is_named(tmp_path):
    with pytest.raises(SondaError, match=r"^true#2 ended with code 0 while starting: it is to run on") as caught:
        # Much longer than it runs, which is not waited for.
        corun(["cmd:true", "window:true"], Store(tmp_path), setting=CorunSettings(seconds=60, repeat=1, timeout=100))
    assert "cmd:" in caught.value.remedy


# ---- an observed program ------------------------------------------------------------------------------------------

TRAINS = """
import sys, time, torch
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with open(sys.argv[1], "w", buffering=1) as file:
    for _ in range(int(sys.argv[2])):
        optimizer.zero_grad()
        model(torch.randn(32, 64)).sum().backward()
        optimizer.step()
        file.write(f"{time.monotonic_ns()}\\n")
"""


@pytest.mark.slow
def test_an_unmodified_program_is_measured_by_its_steps_with_phases_and_layers(tmp_path, origin):
    """Behind a shell. It keeps a diary of its own: the steps that were measured are those in it.

    An entry comes after a step was counted: the first in a window is of the step before, and the last comes after it.
    """
    program = tmp_path / "trains.py"
    program.write_text(TRAINS)
    text = f"net=cmd:sh -c '{sys.executable} {program} {tmp_path / 'diary'} 1000000; echo never'"
    run = corun(
        [text, "a=cmd:true"], Store(tmp_path / "store"), setting=CorunSettings(seconds=0.3, repeat=1, timeout=100)
    )
    assert alive(tmp_path) == []
    facts = run.info.target.corun
    assert [one.region for one in facts.participants] == ["steps", "runs"]
    diary = [int(line) for line in (tmp_path / "diary").read_text().split()]
    measured = [one for window in facts.windows for one in window.measured if one.slot == 0]
    assert len(measured) == 2
    for one in measured:
        steps = sum(piece[2] for piece in one.slices)
        begin, end = one.slices[0][0], sum(one.slices[-1][:2])
        assert steps == sum(begin < entry - origin[0] <= end for entry in diary) >= 3
    found = interference(run)
    assert set(found.together.phases["net"]) >= {"forward", "backward", "optimizer"}
    layers = found.together.layers["net"]
    assert {one.layer for one in layers} >= {"0", "2"} and {one.direction for one in layers} == {"forward", "backward"}
    assert all(one.alone.value > 0 and one.together.value > 0 for one in layers if one.layer)


@pytest.mark.slow
def test_a_program_that_has_no_more_steps_is_named(tmp_path):
    program = tmp_path / "trains.py"
    program.write_text(TRAINS)
    text = f"net=cmd:{sys.executable} {program} {tmp_path / 'diary'} 5"
    with pytest.raises(SondaError, match=r"^net ended with code 0 while running net: it had no more steps") as caught:
        corun([text, "a=cmd:true"], Store(tmp_path / "store"), setting=CorunSettings(seconds=5, repeat=1, timeout=100))
    assert "--seconds" in caught.value.remedy and alive(tmp_path) == []
    assert not list(Path(tmp_path / "store").glob("*"))
