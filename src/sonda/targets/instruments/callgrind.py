"""The modelled pass: a job or a command a second time, under callgrind, for counters of one step.

It runs on one thread with a fixed hash seed, so that two passes count the same; the program is ended after that step.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import msgspec
import numpy as np

from sonda.frameworks.collector.callgrind import VARIABLE
from sonda.frameworks.reconstruction.events import read_events
from sonda.probes.callgrind.penalties import measure_penalties
from sonda.probes.callgrind.valgrind import (
    EVENT_NAMES,
    CallgrindCaches,
    callgrind_command,
    read_cache_geometry,
    read_dumps,
    valgrind_version,
)
from sonda.record.errors import SondaError
from sonda.record.progress import Expected, Say
from sonda.record.run import ProbeState
from sonda.record.spans import Spans
from sonda.record.store import Store
from sonda.targets.instrument import AGAIN, Command, Contribution, EndedRun, Instrument, Rerun, RunPlan
from sonda.targets.instruments.callgrind_spans import ModelledStep, append_modelled, modelled_step
from sonda.targets.instruments.miss_curve import miss_curve, parse_sizes
from sonda.targets.job import OUTCOME, ProbeWord
from sonda.targets.signals import describe_exit, end_with_parent

PROBE = "callgrind"
LIMIT_S, SLOWDOWN = 600.0, 3000.0
"""A pass is given up after `LIMIT_S` seconds and `SLOWDOWN` times what the program took natively up to the same step.
Emulation alone takes some hundred times as long."""


@dataclass(frozen=True)
class StepChoice:
    """The steps that matter: instrumentation begins with step `start`, step `step` is modelled; both count from 0."""

    start: int
    step: int
    native_s: float = 0.0
    """s that the program natively takes until the modelled step has ended."""


class CallgrindInstrument(Instrument):
    """Runs the program once more, on the threads that were asked for or one, and models one of its steps.

    `sizes`: last-level caches of other sizes (bytes) for a miss curve.
    """

    needs = frozenset({AGAIN})

    def __init__(self, sizes: tuple[int, ...] = ()) -> None:
        self.sizes = sizes

    @classmethod
    def from_words(cls, words: Sequence[ProbeWord]) -> CallgrindInstrument:
        return cls(parse_cache_sizes(words[0]))

    def prepare(self, plan: RunPlan) -> Mapping[str, str]:
        if plan.job is not None and plan.on_gpu:
            raise SondaError(
                f"--probe callgrind models a processor, and this {plan.kind} run is on {plan.job.on}",
                "use --on cpu, or leave it out",
            )
        valgrind_version()
        return {}

    def collect(self, ended_run: EndedRun) -> Contribution:
        plan, native = ended_run.plan, ended_run.observation.native
        if plan.job is None:
            steps = choose_steps(native)
            if steps is None:
                reason = "no step was seen natively, so there was none to model"
                return Contribution(states=[ProbeState(PROBE, "missing", reason)])
        else:
            # After one step to warm up and one to warm the simulated caches.
            longest = native.number("duration")[native.where(kind="step", pass_="timed")].max(initial=0)
            steps = StepChoice(1, 2, 3e-9 * float(longest))
        threads = plan.asked_threads or 1

        def again(directory: Path, under: tuple[str, ...]) -> Command:
            return ended_run.again(Rerun(directory, under=under, warmup=1, steps=2, threads=threads))

        emulation = Emulation(again, threads, steps, plan.store, plan.say)
        machine, isa = ended_run.observation.circumstances.machine, instruction_set(plan.directory)
        contribution = emulation.model(ended_run.spans, self.sizes, machine, isa)
        if contribution.target and plan.job is not None and plan.job.framework == "tensorflow":
            contribution.notes.append("the modelled step ran in pieces, layer by layer, not as one graph")
        return contribution


def parse_cache_sizes(word: ProbeWord) -> tuple[int, ...]:
    """Sizes of last-level caches in bytes, of a word such as `callgrind:512KiB+2MiB`. Raises SondaError for others."""
    return parse_sizes(word.written) if ":" in word.text else ()


def instruction_set(directory: Path) -> str:
    """The instruction set that PyTorch used natively (`AVX512`), from the collectors' files; '' where not stated."""
    facts = (read_events(path).fact("isa", "") for path in sorted(directory.glob("*.events")))
    return next((str(isa) for isa in facts if isa), "")


def choose_steps(native: Spans) -> StepChoice | None:
    """Choose the third training step, or the third step of any kind; an earlier one where there are fewer."""
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
    is_training = in_training[first] if in_training else False
    count = 1
    while count < 3 and first + count < len(rows) and in_training[first + count] == is_training:
        count += 1
    last = first + count - 1
    row = rows[last]
    until = float(native.number("start")[row] + native.number("duration")[row]) * 1e-9
    return StepChoice(max(first, last - 1) if count > 2 else last, last, until)


@dataclass(frozen=True)
class Emulation:
    """One program under valgrind; the simulated caches may change from pass to pass."""

    again: Callable[[Path, tuple[str, ...]], Command]
    """Gives the program's command under these words, which leaves its files in a directory."""
    threads: int
    steps: StepChoice
    store: Store
    say: Say

    def model(self, native: Spans, sizes: tuple[int, ...], machine: dict[str, Any], native_isa: str) -> Contribution:
        """Model a step and append it to the native run's spans; with `sizes` (bytes) also the miss curve."""
        machine_caches = read_cache_geometry()
        caches = machine_caches.simulable()
        penalties = measure_penalties(machine)
        try:
            steps, seconds = self.run(caches)
        except SondaError as error:
            return Contribution(states=[ProbeState(PROBE, "dead", error.cause, error.remedy)])
        notes = []
        step = steps[0]
        if not all(modelled.complete for modelled in steps):
            notes.append("the program ended in the middle of its modelled step: what was complete by then is shown")
        if machine_caches.assumed:
            notes.append(
                f"the kernel does not show {', '.join(machine_caches.assumed)}: usual caches were simulated instead"
            )
        target = {
            **geometry_record(machine_caches),
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
        if len(steps) > 1:
            target["ranks"] = [modelled.rank for modelled in steps]
            notes.append("every rank ran under callgrind: what it executes while it waits for others is in its counts")
        if penalties is not None:
            target["penalties"] = msgspec.to_builtins(penalties)
        if sizes:
            try:
                target["miss_curve"] = miss_curve(
                    sizes, caches, step.spans, lambda other_caches: self.run(other_caches, seconds)[0][0].spans
                )
            except SondaError as error:
                notes.append(f"no miss curve: {error}")
        spans = native
        for modelled in steps:
            spans = append_modelled(spans, modelled.spans)
        return Contribution(spans, {"modelled": target}, [ProbeState(PROBE, "ok")], notes)

    def run(self, caches: CallgrindCaches, expected: float = 0.0) -> tuple[list[ModelledStep], float]:
        """Run one pass: the modelled step of every rank, and the s that it took. Raises SondaError where there is none.

        `expected` are the s that a pass with other caches took.
        """
        with self.store.scratch() as scratch:
            directory = scratch.resolve()
            command = self.again(directory, tuple(callgrind_command(caches, directory)))
            begin = perf_counter()
            text = f"modelling {command.name} under valgrind"
            self.say(
                Expected(f"{text}, last cache {caches.LL.bytes >> 10:,} KiB", expected)
                if expected
                else f"{text} (a minute or more)"
            )
            code = _run_emulated(command, self.threads, self.steps, directory)
            seconds = perf_counter() - begin
            modelled = _read_modelled_steps(directory)
            if not modelled:
                raise _explain_failure(command, code, directory)
        best = {step.rank: step for step in sorted(modelled, key=lambda step: step.complete)}
        return sorted(best.values(), key=lambda step: (not step.complete, step.rank)), seconds


def geometry_record(machine_caches: CallgrindCaches) -> dict[str, Any]:
    """The caches that are simulated, as valgrind was told, and the machine's own under `asked`."""
    simulated = machine_caches.simulable()
    return {"I1": str(simulated.I1), "D1": str(simulated.D1), "LL": str(simulated.LL), "asked": machine_caches.record()}


def _run_emulated(command: Command, threads: int, steps: StepChoice, directory: Path) -> int | None:
    """Run the program; its exit code, or None where it took too long."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "PYTHONHASHSEED": "0",
        **command.environment,
        VARIABLE: msgspec.json.encode({"start": steps.start, "step": steps.step}).decode(),
    }
    limit = LIMIT_S + SLOWDOWN * steps.native_s
    with (directory / "output").open("wb") as output:
        stdin = subprocess.PIPE if command.given is not None else subprocess.DEVNULL
        child = subprocess.Popen(
            command.words, env=environment, stdin=stdin, stdout=output, stderr=output, start_new_session=True,
            preexec_fn=end_with_parent,  # nobody else would end it, and it runs for minutes
        )  # fmt: skip
        with _kill_group_at_end(child):
            try:
                child.communicate(command.given, timeout=limit)
            except subprocess.TimeoutExpired:
                return None
            return child.returncode


@contextmanager
def _kill_group_at_end(child: subprocess.Popen[bytes]) -> Any:
    """Kill the program and all that it started when the block ends, also by an exception."""
    try:
        yield
    finally:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        child.wait()


def _read_modelled_steps(directory: Path) -> list[ModelledStep]:
    steps = []
    for path in sorted(directory.glob("*.events")):
        events = read_events(path)
        parts = read_dumps(directory, int(path.stem))
        with TemporaryDirectory(dir=directory) as scratch:
            step = modelled_step(events, parts, Path(scratch), 0)
        if step is not None and len(step.spans) > 1:
            steps.append(step)
    return steps


def _explain_failure(command: Command, code: int | None, directory: Path) -> SondaError:
    """Why there is no modelled step, in one line."""
    try:
        outcome = msgspec.json.decode((directory / OUTCOME).read_bytes())
        if outcome.get("cause"):
            return SondaError(f"under valgrind {outcome['cause']}", outcome.get("remedy", ""))
    except FileNotFoundError:
        pass  # a command, or a workload that was ended before it had written it
    if code is None:
        return SondaError(
            f"{command.name} under valgrind did not reach its modelled step in time", "make its steps smaller"
        )
    facts = [read_events(path) for path in directory.glob("*.events")]
    if any((events.fact("modelled") or {}).get("outside") for events in facts):
        return SondaError(
            f"{command.name} ran PyTorch in a process that valgrind could not follow", "run its Python program directly"
        )
    steps = max((int((events.fact("modelled") or {}).get("steps", 0)) for events in facts), default=0)
    lines = [line.strip() for line in _tail(directory / "output") if line.strip()]
    last = f": {lines[-1][:200]}" if lines else ""
    return SondaError(
        f"{command.name} under valgrind {describe_exit(code)} after {steps} steps, before the one to be modelled was "
        f"over{last}",
        "check that it does the same each time it is started",
    )


def _tail(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()[-20:]
    except OSError:
        return []
