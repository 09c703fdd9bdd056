"""The modelled pass: a job or a command a second time, under callgrind, for counters of one step.

It runs on one thread with a fixed hash seed, so that two passes count the same; the program is ended after that step.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import msgspec
import numpy as np

from sonda.frameworks.collector.modelled import VARIABLE
from sonda.frameworks.events import read_events
from sonda.probes.callgrind import EVENT_NAMES, Caches, command_line, read_dumps, read_geometry, valgrind_version
from sonda.probes.penalties import measure_penalties
from sonda.record.errors import SondaError
from sonda.record.run import ProbeState
from sonda.record.saying import Expected, Say
from sonda.record.span import Spans
from sonda.record.store import Store
from sonda.targets.job import OUTCOME, Job
from sonda.targets.miss_curve import miss_curve, parse_sizes
from sonda.targets.modelled_spans import ModelledStep, modelled_step, with_modelled
from sonda.targets.signals import end_with_parent, ending
from sonda.targets.spec import whole_of

PROBE = "callgrind"
LIMIT_S, SLOWDOWN = 600.0, 3000.0
"""A pass is given up after so many seconds, and so many times what the program took natively up to the same step;
emulation alone takes some hundred times."""


@dataclass(frozen=True)
class Steps:
    """Which steps of a program are used: instrumentation begins with `start`, `step` is modelled; both from 0."""

    start: int
    step: int
    native_s: float = 0.0
    """How long the program natively takes up to its end."""


@dataclass
class Modelled:
    """What a modelled pass adds to a run."""

    target: dict[str, Any] = field(default_factory=dict)
    """For `run.json`, under `modelled`; empty where nothing came of it."""
    state: ProbeState | None = None
    """None where nobody asked."""
    notes: list[str] = field(default_factory=list)
    spans: Spans | None = None

    def kept(self) -> dict[str, Any]:
        """What the run's `target` has of it."""
        return {"modelled": self.target} if self.target else {}

    def said(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The fields of a run's `info` with what this pass has to say."""
        probes = [*fields["probes"], *([self.state] if self.state else [])]
        return {**fields, "probes": probes, "notes": [*fields["notes"], *self.notes]}

    def added(self, native: Spans) -> Spans:
        """The native run's spans with the modelled step's behind them."""
        return with_modelled(native, self.spans) if self.spans is not None else native


@dataclass(frozen=True)
class Request:
    """What was asked for: the step, and last-level caches of other sizes (bytes) for a miss curve."""

    sizes: tuple[int, ...] = ()


def asked_for(probes: str | Sequence[str]) -> Request | None:
    """The modelled pass among these probes, `callgrind` or `callgrind:512KiB+2MiB`; None where it is not.

    Raises SondaError at once where it cannot be.
    """
    for word in probes.split(",") if isinstance(probes, str) else probes:
        name, colon, sizes = word.strip().partition(":")
        if name == PROBE:
            request = Request(parse_sizes(sizes) if colon else ())
            valgrind_version()
            return request
    return None


def instruction_set(directory: Path) -> str:
    """What PyTorch said of the processor natively (`AVX512`), from the collectors' files; '' where none did."""
    facts = (read_events(path).fact("isa", "") for path in sorted(directory.glob("*.events")))
    return next((str(isa) for isa in facts if isa), "")


def model_job(
    job: Job,
    request: Request,
    threads: int,
    native: Spans,
    machine: dict[str, Any],
    native_isa: str,
    store: Store,
    say: Say,
) -> Modelled:
    """Model a step of a job that has run natively: after one step to warm up and one to warm the simulated caches."""
    longest = native.number("duration")[native.where(kind="step", pass_="timed")].max(initial=0)
    steps = Steps(1, 2, 3e-9 * float(longest))
    shorter = msgspec.structs.replace(job, warmup=1, steps=2, threads=threads, probe="")
    words = [sys.executable, "-P", "-m", "sonda.targets.worker"]
    task = _Task(words, {}, msgspec.json.encode(shorter), job.workload, pass_directory=True)
    modelled = _Pass(task, threads, steps, store, say).model(request, machine, native_isa)
    if job.framework == "tensorflow" and modelled.target:
        modelled.notes.append("the modelled step ran in pieces, layer by layer, not as one graph")
    return modelled


def model_command(
    command: Sequence[str],
    request: Request,
    environment: dict[str, str],
    native: Spans,
    machine: dict[str, Any],
    native_isa: str,
    store: Store,
    say: Say,
) -> Modelled:
    """Model a step of a program that has run natively; `environment` is what makes it observed, for a directory."""
    steps = choose_steps(native)
    if steps is None:
        return Modelled(state=ProbeState(PROBE, "missing", "no step was seen natively, so there was none to model"))
    asked = os.environ.get("OMP_NUM_THREADS", "")
    threads = whole_of(asked) or 1
    task = _Task(list(command), environment, None, Path(command[0]).name)
    return _Pass(task, threads, steps, store, say).model(request, machine, native_isa)


def choose_steps(native: Spans) -> Steps | None:
    """The third training step, or the third of whatever there is; an earlier one where there are fewer."""
    is_step = native.where(kind="step") & (native.number("rank") == native.number("rank").min(initial=0))
    rows = np.flatnonzero(is_step)
    if not len(rows):
        return None
    rows = rows[np.argsort(native.number("start")[rows], kind="stable")]
    part = native.where(kind="part", name="train")
    parent = native.number("parent")
    in_training = []
    for row in rows.tolist():
        while row >= 0 and not part[row]:
            row = int(parent[row])
        in_training.append(row >= 0)
    first = in_training.index(True) if any(in_training) else 0
    wanted = in_training[first] if in_training else False
    count = 1
    while count < 3 and first + count < len(rows) and in_training[first + count] == wanted:
        count += 1
    last = first + count - 1
    row = rows[last]
    until = float(native.number("start")[row] + native.number("duration")[row]) * 1e-9
    return Steps(max(first, last - 1) if count > 2 else last, last, until)


@dataclass(frozen=True)
class _Task:
    """A program to run under valgrind."""

    words: list[str]
    environment: dict[str, str]
    given: bytes | None
    """Standard input."""
    name: str
    pass_directory: bool = False
    """Whether the directory is the program's last argument."""


@dataclass(frozen=True)
class _Pass:
    """How one program is run under valgrind; the caches may change from pass to pass."""

    task: _Task
    threads: int
    steps: Steps
    store: Store
    say: Say

    def model(self, request: Request, machine: dict[str, Any], native_isa: str) -> Modelled:
        asked = read_geometry()
        caches = asked.simulable()
        penalties = measure_penalties(machine)
        try:
            step, seconds = self.run(caches)
        except SondaError as error:
            return Modelled(state=ProbeState(PROBE, "dead", error.cause, error.remedy))
        notes = []
        if not step.complete:
            notes.append("the program ended in the middle of its modelled step: what was complete by then is shown")
        if asked.assumed:
            notes.append(f"the kernel does not show {', '.join(asked.assumed)}: usual caches were simulated instead")
        target = {
            **geometry_record(asked),
            "tool": f"callgrind {valgrind_version()}",
            "isa": step.isa,
            "native_isa": native_isa,
            "threads": step.threads,
            "marker_instructions": float(step.markers.span[0]),
            "phase_marker_instructions": float(step.markers.phase[0]),
            "markers": {name: float(value) for name, value in zip(EVENT_NAMES, step.markers.span, strict=True)},
            "step": self.steps.step,
            "start": self.steps.start,
            "part": step.part,
            "complete": step.complete,
            "seconds": seconds,
        }
        if penalties is not None:
            target["penalties"] = penalties.record()
        if request.sizes:
            try:
                target["miss_curve"] = miss_curve(
                    request.sizes, caches, step.spans, lambda other: self.run(other, seconds)[0].spans
                )
            except SondaError as error:
                notes.append(f"no miss curve: {error}")
        return Modelled(target, ProbeState(PROBE, "ok"), notes, step.spans)

    def run(self, caches: Caches, expected: float = 0.0) -> tuple[ModelledStep, float]:
        """The modelled step and the seconds it all took; raises SondaError where there is none.

        `expected`: what a pass with other caches took.
        """
        return run_pass(self.task, self.threads, self.steps, caches, self.store, self.say, expected)


def geometry_record(asked: Caches) -> dict[str, Any]:
    """The caches that are simulated, as valgrind was told, and the machine's own under `asked`."""
    simulated = asked.simulable()
    return {"I1": str(simulated.I1), "D1": str(simulated.D1), "LL": str(simulated.LL), "asked": asked.record()}


def run_pass(
    task: _Task, threads: int, steps: Steps, caches: Caches, store: Store, say: Say, expected: float = 0.0
) -> tuple[ModelledStep, float]:
    """One pass under valgrind: the modelled step and the seconds it all took. Raises SondaError where there is none."""
    with store.scratch() as scratch:
        directory = scratch.resolve()
        begin = perf_counter()
        text = f"modelling {task.name} under valgrind"
        say(
            Expected(f"{text}, last cache {caches.LL.bytes >> 10:,} KiB", expected)
            if expected
            else f"{text} (a minute or more)"
        )
        code = _run(task, threads, steps, caches, directory)
        seconds = perf_counter() - begin
        found = _steps_of(directory)
        if not found:
            raise _reason(task, code, directory)
    return min(found, key=lambda step: (not step.complete, step.rank)), seconds


def _run(task: _Task, threads: int, steps: Steps, caches: Caches, directory: Path) -> int | None:
    """Run the program; its exit code, or None where it took too long."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "PYTHONHASHSEED": "0",
        **{name: value.replace(DIRECTORY, str(directory)) for name, value in task.environment.items()},
        VARIABLE: msgspec.json.encode({"start": steps.start, "step": steps.step}).decode(),
    }
    words = [*command_line(caches, directory), *task.words, *([str(directory)] if task.pass_directory else [])]
    limit = LIMIT_S + SLOWDOWN * steps.native_s
    with (directory / "output").open("wb") as output:
        given = subprocess.PIPE if task.given is not None else subprocess.DEVNULL
        child = subprocess.Popen(
            words, env=environment, stdin=given, stdout=output, stderr=output, start_new_session=True,
            preexec_fn=end_with_parent,  # nobody else would end it, and it runs for minutes
        )  # fmt: skip
        with _ended(child):
            try:
                child.communicate(task.given, timeout=limit)
            except subprocess.TimeoutExpired:
                return None
            return child.returncode


DIRECTORY = "{directory}"
"""Stands in a task's environment for the directory of its events."""


@contextmanager
def _ended(child: subprocess.Popen[bytes]) -> Any:
    """End the program with all that it started, whatever happens here."""
    try:
        yield
    finally:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        child.wait()


def _steps_of(directory: Path) -> list[ModelledStep]:
    found = []
    for path in sorted(directory.glob("*.events")):
        events = read_events(path)
        parts = read_dumps(directory, int(path.stem))
        with TemporaryDirectory(dir=directory) as scratch:
            step = modelled_step(events, parts, Path(scratch), 0)
        if step is not None and len(step.spans) > 1:
            found.append(step)
    return found


def _reason(task: _Task, code: int | None, directory: Path) -> SondaError:
    """Why there is no modelled step, in one line."""
    try:
        said = msgspec.json.decode((directory / OUTCOME).read_bytes())
        if said.get("cause"):
            return SondaError(f"under valgrind {said['cause']}", said.get("remedy", ""))
    except FileNotFoundError:
        pass  # a command, or a workload that was ended before it had written it
    if code is None:
        return SondaError(
            f"{task.name} under valgrind did not reach its modelled step in time", "make its steps smaller"
        )
    facts = [read_events(path) for path in directory.glob("*.events")]
    if any((events.fact("modelled") or {}).get("outside") for events in facts):
        return SondaError(
            f"{task.name} ran PyTorch in a process that valgrind could not follow", "run its Python program directly"
        )
    steps = max((int((events.fact("modelled") or {}).get("steps", 0)) for events in facts), default=0)
    lines = [line.strip() for line in _tail(directory / "output") if line.strip()]
    last = f": {lines[-1][:200]}" if lines else ""
    return SondaError(
        f"{task.name} under valgrind {ending(code)} after {steps} steps, before the one to be modelled was over{last}",
        "check that it does the same each time it is started",
    )


def _tail(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()[-20:]
    except OSError:
        return []
