"""Runs the programs of tests/programs bare and observed, and says what was seen of them in plain counts."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter_ns

import numpy as np

from places import PROGRAMS
from sonda.frameworks.reconstruction.assembly import Assembly, assemble
from sonda.record.spans import Spans
from warm_worker import quiet_environment


@dataclass
class Outcome:
    """How a program ended: its exit code (negative for a signal), its output, and what was observed."""

    code: int
    output: str
    assembly: Assembly | None = None
    directory: Path | None = None


class Nursery:
    """One process with PyTorch in memory that forks a child per program; all tests of a process share it."""

    _shared: subprocess.Popen[str] | None = None

    def __init__(self) -> None:
        if Nursery._shared is None or Nursery._shared.poll() is not None:
            Nursery._shared = subprocess.Popen(
                [sys.executable, str(PROGRAMS / "nursery.py")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=quiet_environment(),
            )
            atexit.register(_end, Nursery._shared)
        self._process = Nursery._shared

    def run(self, program: str, *arguments: str, directory: Path, observe: bool, **settings: object) -> Outcome:
        """Run one program to its end: one of tests/programs, or a file by its path without the ending.

        `settings` are those of the collector.
        """
        directory.mkdir(parents=True, exist_ok=True)
        order: dict[str, object] = {
            "program": str(PROGRAMS / f"{program}.py"),
            "arguments": list(arguments),
            "output": str(directory / "output.txt"),
        }
        if observe:
            order["settings"] = {"directory": str(directory), **settings}
        assert self._process.stdin and self._process.stdout
        begin = perf_counter_ns()
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        status = int(self._process.stdout.readline())
        end = perf_counter_ns()
        outcome = Outcome(os.waitstatus_to_exitcode(status), (directory / "output.txt").read_text())
        failures = [path.read_text() for path in directory.glob("*.failure")]
        assert not failures, failures
        if observe:
            outcome.assembly = assemble(directory, begin, end)
            outcome.directory = directory
        return outcome


def _end(process: subprocess.Popen[str]) -> None:
    assert process.stdin and process.stdout
    process.stdin.close()
    process.stdout.close()
    process.wait()


@dataclass
class Seen:
    """What a run says of a program, in counts that a reader of the program can make by hand."""

    parts: list[tuple[str, int]] = field(default_factory=list)
    """Sections in order of time: the part's name and its number of steps."""
    epochs: int = 0
    counted: int = 0
    """Steps spent on counting operations."""
    phases: dict[str, int] = field(default_factory=dict)
    forward: dict[str, int] = field(default_factory=dict)
    """Forward calls by path."""
    backward: dict[str, int] = field(default_factory=dict)


def seen(spans: Spans) -> Seen:
    """Count what is in a table of spans; without steps in which nothing ran, made of what a graph costs."""
    kind, name, path = (spans.words(column).decoded() for column in ("kind", "name", "path"))
    parent, direction = spans.number("parent"), spans.words("direction").decoded()
    made = spans.where(kind="step", pass_="count") & (spans.number("duration") == 0)
    result = Seen()
    step_part = {}
    for row in range(len(spans)):
        if kind[row] == "part":
            step_part[row] = len(result.parts)
            result.parts.append((name[row], 0))
        elif kind[row] == "epoch":
            step_part[row] = step_part[int(parent[row])]
            result.epochs += 1
        elif kind[row] == "step" and not made[row]:
            at = step_part[int(parent[row])]
            result.parts[at] = (result.parts[at][0], result.parts[at][1] + 1)
    in_step = np.array([kind[p] == "step" and not made[p] for p in parent])
    result.counted = int((spans.where(kind="step", pass_="count")).sum())
    result.phases = dict(Counter(name[(kind == "phase") & in_step]))
    result.forward = dict(Counter(path[(kind == "layer") & (direction == "forward")]))
    result.backward = dict(Counter(path[(kind == "layer") & (direction == "backward")]))
    return result


def check_structure(spans: Spans) -> None:
    """What holds for every table of spans, whatever the program was."""
    kind = spans.words("kind").decoded()
    parent, start = spans.number("parent"), spans.number("start")
    end = start + spans.number("duration")
    thread, rank = spans.number("thread"), spans.number("rank")
    count = len(spans)
    assert np.array_equal(spans.number("id"), np.arange(count))
    assert kind[0] == "run" and parent[0] == -1
    assert (parent[1:] >= 0).all() and (parent < np.arange(count)).all()
    assert (end >= start).all()
    inner = np.arange(1, count)
    outside = inner[(start[inner] < start[parent[inner]]) | (end[inner] > end[parent[inner]])]
    assert not len(outside), [(kind[i], kind[parent[i]], spans.words("path").decoded()[i]) for i in outside[:5]]
    around = {"part": {"run"}, "epoch": {"part"}, "step": {"part", "epoch"}, "phase": {"step", "run"},
              "layer": {"phase", "layer"}, "op": {"phase", "layer", "run"},
              "compile": {"run", "step", "phase"}, "stage": {"run"}}  # fmt: skip
    for row in inner:
        assert kind[parent[row]] in around[kind[row]], (kind[row], kind[parent[row]])
    for process in set(zip(rank.tolist(), thread.tolist(), strict=True)):
        mine = (rank == process[0]) & (thread == process[1])
        for what in ("step", "phase"):
            rows = np.flatnonzero(mine & (kind == what))
            rows = rows[np.argsort(start[rows], kind="stable")]
            assert (end[rows[:-1]] <= start[rows[1:]]).all(), f"{what}s overlap"
    duration = spans.number("duration")
    for row in np.flatnonzero(kind == "step"):
        children = parent == row
        assert duration[children].sum() <= duration[row]
    layers = np.flatnonzero(kind == "layer")
    for row in layers:
        if kind[parent[row]] == "layer" or not len(layers):
            continue
        assert kind[parent[row]] == "phase"


def share_of_data(spans: Spans, part: str) -> float:
    """Of the timed steps of a part the share that waits for input."""
    name, parent, duration = spans.words("name").decoded(), spans.number("parent"), spans.number("duration")
    parts = spans.where(kind="part")
    steps = [
        row
        for row in np.flatnonzero(spans.where(kind="step", pass_="timed"))
        if _within(row, parent, parts, name) == part
    ]
    waits = [row for row in np.flatnonzero(spans.where(kind="phase", name="data")) if parent[row] in steps]
    return float(duration[waits].sum() / duration[steps].sum())


def _within(row: int, parent: np.ndarray, wanted: np.ndarray, name: np.ndarray) -> str:
    while row >= 0 and not wanted[row]:
        row = int(parent[row])
    return str(name[row]) if row >= 0 else ""
