"""The target of `sonda run -- command`: an unmodified program, observed from inside by injection."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from sonda.frameworks import INJECT
from sonda.frameworks.reconstruction.assembly import Assembly, assemble
from sonda.frameworks.reconstruction.processes import Processes
from sonda.probes.counters.command_counter import CountedCommand, StoppedCommand
from sonda.probes.machine.contamination import read_conditions
from sonda.record.errors import SondaError
from sonda.record.progress import Say
from sonda.record.run import Run, write_run
from sonda.record.store import Store
from sonda.record.target import ProgramTarget
from sonda.record.workload import Workload
from sonda.targets.circumstances import (
    describe_evidence,
    describe_gpus,
    describe_habits,
    describe_pipelines,
    describe_processes,
    gpu_identities,
    observed_circumstances,
)
from sonda.targets.instrument import (
    AGAIN,
    AROUND,
    INSIDE,
    REPLAY,
    Command,
    Draft,
    Instrument,
    Launcher,
    Observation,
    Rerun,
    RunPlan,
)
from sonda.targets.instruments.registry import instruments_for
from sonda.targets.local.launcher import MEASURING_CEILINGS
from sonda.targets.pipeline import make_run
from sonda.targets.profiles.jax import with_jitted_layers
from sonda.targets.profiles.kernels import with_kernels
from sonda.targets.profiles.tensorflow import with_graph_layers
from sonda.targets.program.lookout import Lookout, UnobservedProcess, describe_unobserved, keep_looking
from sonda.targets.program.process_counts import count_outside, describe_counts, interval_samples
from sonda.targets.signals import handle_signals, signal_name
from sonda.targets.target import available_threads, has_gpu, parse_seconds, parse_whole

PYTHON = re.compile(r"^(python|pypy)[\d.]*$")
VALUE_FLAGS = "cmWX"
"""Flags of Python after which the rest of the word, or the next word, is a value; `-c` and `-m` end the flags."""
SIZE_CAP = 256 << 20
SHORTEST = 0.001
"""s. Reading the counters takes some 10 µs: 1 % of such an interval."""
PER_INTERVAL = "from outside, per interval"
NOT_PER_PHASE = (
    "hardware counters were read per interval, from outside; leave --interval out to have them per phase and layer"
)
LONGEST = 1e6
"""s, like all times that a user gives: the system's own waiting ends somewhere beyond."""


@dataclass(frozen=True)
class WatchSettings:
    """How a program is observed: steps `first` up to `last` in detail, for `max_time` s at most; 0 means to the end."""

    count: bool = True
    first: int = 0
    last: int = 0
    max_time: float = 0.0
    size_cap: int = SIZE_CAP
    redact: bool = False
    output_to_stderr: bool = False
    probe: tuple[str, ...] = ()
    """Probes that are asked for beside those that are always on."""
    stacks: bool = True
    """Whether the stacks of its threads are sampled."""
    interval: float = 0.0
    """s between readings of the counters outside the program; 0: its totals only."""


def parse_steps(text: str) -> tuple[int, int]:
    """`10:30`: steps 10 up to 30; `10:` from 10 on; `30` the first 30; '' all. Raises SondaError for anything else."""
    match = re.fullmatch(r"\s*(?:(\d*):)?(\d*)\s*", text)
    first, last = (int(match[1] or 0), int(match[2] or 0)) if match else (1, 0)
    if not match or (last and first >= last):
        raise SondaError(f"--steps {text!r} is not a range of steps", "write it like 10:30, 10: or 30")
    return first, last


def parse_interval(text: str) -> float:
    """`100ms`, `0.5s`, `2` in s; '' is 0, no interval. Raises SondaError for anything else."""
    if not text:
        return 0.0
    seconds = parse_seconds(text)
    if seconds is None:
        raise SondaError(f"--interval {text!r} is not a time", "write it like 100ms or 0.5s")
    if not SHORTEST <= seconds < LONGEST:
        length = "short" if seconds < SHORTEST else "long"
        raise SondaError(f"--interval {text!r} is too {length}", "give 1ms or more, less than a million seconds")
    return seconds


def run_command(
    command: Sequence[str],
    store: Store,
    watching: WatchSettings,
    say: Say = lambda text: None,
    further: Sequence[Instrument] = (),
) -> tuple[Run, int]:
    """Run a program unmodified; returns the run and the program's own exit code. Call `refuse_isolated` first.

    Its Python processes are observed from inside, the whole of it is counted from outside. The code is 128 + n for a
    program that signal n ended. `further` instruments come behind those that are asked for by name.
    """
    launcher = ProgramLauncher(command, watching)
    run = make_run(launcher, [*instruments_for(watching.probe, launcher), *further], store, say=say)
    return run, run.info.exit_code or 0


class ProgramLauncher(Launcher):
    """Runs a command, into whose Python processes the collector is injected."""

    kind = "program"
    offers = frozenset({AROUND, INSIDE, AGAIN, REPLAY})

    def __init__(self, command: Sequence[str], watching: WatchSettings) -> None:
        self.command = list(command)
        self.watching = watching

    def plan(self, store: Store, directory: Path, say: Say) -> RunPlan:
        asked_threads = parse_whole(os.environ.get("OMP_NUM_THREADS", "")) or 0
        return RunPlan(
            self.kind, store, directory, say, on_gpu=has_gpu(), asked_threads=asked_threads, outside=True,
            counted=PER_INTERVAL if self.watching.interval else "",
        )  # fmt: skip

    def launch(self, plan: RunPlan, environment: Mapping[str, str]) -> None:
        plan.say("")  # what the program prints stands alone
        self.before = read_conditions()
        self.counted, self.unseen = _run_observed(self.command, plan, self.watching, environment)
        self.after = read_conditions()

    def observe(self, plan: RunPlan) -> Observation:
        counted, directory, redact = self.counted, plan.directory, self.watching.redact
        plan.say("reading what was observed")
        assembly = assemble(directory, counted.begin, counted.end)
        kernels = with_kernels(assembly, directory, counted.begin)
        spans, of_graphs = with_graph_layers(assembly, kernels.spans, directory, counted.begin)
        spans, of_jitted = with_jitted_layers(assembly, spans, directory, counted.begin)
        if any(directory.glob("*.full")):
            raise SondaError(
                f"the disk under {plan.store.root} filled up while observing: what was seen is lost",
                "free some space, or set $SONDA_HOME",
            )
        failure = read_failure(directory)
        threads = assembly.crew.busiest.threads or assembly.threads or available_threads()
        if assembly.processes:
            plan.say(MEASURING_CEILINGS)
        circumstances = observed_circumstances(assembly, threads, plan.store.root, self.before, self.after, redact)
        code = counted.code if counted.code >= 0 else 128 - counted.code
        return Observation(
            spans,
            workload=Workload.of(
                {
                    "name": program_name(self.command),
                    "command": recorded_command(self.command, redact),
                    "framework": assembly.framework or "torch",
                    **({"traced": assembly.traced} if assembly.traced else {}),
                    **describe_pipelines(assembly),
                    **describe_evidence(assembly),
                    **({"device_calls": kernels.calls} if kernels.calls else {}),
                    **describe_habits(assembly),
                }
            ),
            target=ProgramTarget.of(
                spec="",
                device="cuda" if assembly.devices else "cpu",
                threads=threads,
                **describe_processes(assembly),
                **describe_gpus(assembly),
                **describe_counts(counted),
            ),
            circumstances=replace(
                circumstances,
                notes=[*_observation_notes(assembly, counted.code, failure, self.unseen), *circumstances.notes],
            ),
            begin=counted.begin,
            end=counted.end,
            assembly=assembly,
            used=("cpu", *gpu_identities(assembly)),
            identities=gpu_identities(assembly),
            complete=code == 0,
            exit_code=code,
            notes=[*kernels.notes, *of_graphs, *of_jitted, *([NOT_PER_PHASE] if plan.counted and plan.events else [])],
            samples=interval_samples(counted),
        )

    def keep(self, plan: RunPlan, draft: Draft) -> Run:
        patches = {path.name: path for path in sorted(plan.directory.glob("*.patch"))}
        return write_run(plan.store.root, draft.info, draft.spans, draft.samples, patches, draft.stacks)

    def again(self, plan: RunPlan, rerun: Rerun) -> Command:
        name, words = Path(self.command[0]).name, (*rerun.under, *self.command)
        if not rerun.observed:
            return Command(name, words)
        # FLOPs were counted natively; a step spent on counting would not be the step that is wanted.
        watching = replace(self.watching, count=False, stacks=False)
        if not rerun.replay:
            watching = replace(watching, first=0, last=0, max_time=0.0)
        return Command(name, words, None, _observation_variables(str(rerun.directory), watching, rerun.replay))


def read_failure(directory: Path) -> str:
    """Why observing failed, in one line; empty where it did not."""
    failures = sorted(directory.glob("*.failure"))
    return (failures[0].read_text(encoding="utf-8").split("\n")[-2:-1] or ["?"])[0] if failures else ""


def refuse_isolated(command: Sequence[str]) -> None:
    """Raise SondaError for a Python that ignores PYTHONPATH: one with `-I`, `-E` or `-S`."""
    words = list(command)
    if not words:
        raise SondaError("no command after --", "write: sonda run train.py")
    program = shutil.which(words[0])
    if program is None:
        file = Path(words[0])
        script = file.suffix == ".py" and file.is_file()
        hint = f"write: sonda run {words[0]}" if script else "write its path: sonda run -- ./PROGRAM"
        raise SondaError(f"there is no program {words[0]!r}", hint)
    flags = _parse_flags(words[1:]) if PYTHON.match(Path(words[0]).name) else _shebang_flags(Path(program))
    for flag in "IES":
        if flag in flags:
            raise SondaError(
                f"python -{flag} ignores PYTHONPATH, so the program cannot be observed", f"run it without -{flag}"
            )


def _parse_flags(words: Sequence[str]) -> str:
    """The one-letter flags before a script's name."""
    flags = ""
    skip = False
    for word in words:
        if skip:
            skip = False
            continue
        if not word.startswith("-") or word in ("-", "--"):
            break
        if word.startswith("--"):
            continue
        for position, letter in enumerate(word[1:], start=2):
            if letter in VALUE_FLAGS:
                if letter in "cm":
                    return flags
                skip = position == len(word)
                break
            flags += letter
    return flags


def _shebang_flags(program: Path) -> str:
    """Flags in the first line of a script that Python runs, such as `#!/usr/bin/python3 -Es`."""
    try:
        with program.open("rb") as file:
            line = file.readline(256)
    except OSError:
        return ""
    if not line.startswith(b"#!"):
        return ""
    words = line[2:].decode(errors="replace").split()
    while words and not PYTHON.match(Path(words[0]).name):
        words = words[1:]
    return _parse_flags(words[1:])


def _observation_variables(directory: str, watching: WatchSettings, replay: bool = False) -> dict[str, str]:
    """The variables that make a program's Python processes observe themselves and write into a directory."""
    settings = {
        "directory": directory,
        "count": watching.count,
        "first": watching.first,
        "last": watching.last,
        "max_time": watching.max_time,
        "size_cap": watching.size_cap,
        "stacks": watching.stacks,
        "replay": replay,
    }
    path = os.pathsep.join(entry for entry in (str(INJECT), os.environ.get("PYTHONPATH", "")) if entry)
    return {"PYTHONPATH": path, "SONDA_COLLECT": msgspec.json.encode(settings).decode()}


def _run_observed(
    command: Sequence[str], plan: RunPlan, watching: WatchSettings, variables: Mapping[str, str]
) -> tuple[CountedCommand, list[UnobservedProcess]]:
    """Run the program to its end; returns its counts and its processes that could not be observed.

    Raises SondaError where it cannot be started.
    """
    lookouts: list[Lookout] = []

    @contextmanager
    def accompanied(child: StoppedCommand) -> Iterator[None]:
        plan.processes.add(child.pid)
        lookouts.append(Lookout(plan.processes, str(INJECT), lambda words: _parse_flags(words[1:]), name_process))
        with pass_on_signals(child), keep_looking(lookouts[0]):
            yield

    # Counters that are read in phases count the sampler's thread too: whoever asks for them wants the program's alone.
    watching = replace(watching, stacks=watching.stacks and not plan.events)
    environment = {**os.environ, **_observation_variables(str(plan.directory.resolve()), watching), **variables}
    output = sys.stderr.fileno() if watching.output_to_stderr else None
    events = plan.events if plan.counted else {}
    counted = count_outside(command, events, watching.interval, environment, output, accompanied)
    return counted, list(lookouts[0].found.values())


@contextmanager
def pass_on_signals(child: StoppedCommand) -> Iterator[None]:
    """Survive interrupts until the block ends, and pass them to the program where the terminal did not send them."""

    def pass_on(number: int, _frame: object) -> None:
        if number == signal.SIGINT and _terminal_interrupts_children():
            return
        child.send(number)

    with handle_signals(pass_on, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        yield


def _terminal_interrupts_children() -> bool:
    """Whether a terminal sends its interrupts to this process and its children alike."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def _observation_notes(assembly: Assembly, ending: int, failure: str, unseen: list[UnobservedProcess]) -> list[str]:
    notes = [describe_unobserved(unseen)] if unseen else []
    if failure:
        stepped = bool(assembly.spans.where(kind="step").any())
        notes.append(f"{'not all of the program was observed' if stepped else 'the program ran unobserved'}: {failure}")
    elif not assembly.processes and not unseen:
        notes.append(
            "nothing was observed inside: no process of the program imported PyTorch, TensorFlow, Keras, JAX or "
            "PyTensor and lived to write anything, or its environment hid PYTHONPATH"
        )
    if ending != 0:
        how = f"was ended by {signal_name(-ending)}" if ending < 0 else f"ended with code {ending}"
        notes.append(f"the program {how}; this is what was seen until then")
    notes += _early_end_notes(assembly.crew)
    if assembly.crew.together:
        notes.append(f"steps of {assembly.crew.together} processes are shown together: they have no rank of their own")
    return notes


def _early_end_notes(crew: Processes) -> list[str]:
    notes = []
    if crew.unfinished:
        subject = "a process" if crew.unfinished == 1 else f"{crew.unfinished} processes"
        notes.append(
            f"{subject} ended before {'its' if crew.unfinished == 1 else 'their'} last half second was written"
        )
    if crew.unstarted:
        subject = "a process that had" if crew.unstarted == 1 else f"{crew.unstarted} processes that had"
        verb = "was" if crew.unstarted == 1 else "were"
        notes.append(f"{subject} imported a framework {verb} ended before anything was seen to run there")
    return notes


def program_name(command: Sequence[str]) -> str:
    """The program as its user thinks of it: the script, not the interpreter."""
    words = [word for word in command[1:] if not word.startswith("-")] if PYTHON.match(Path(command[0]).name) else []
    return Path(words[0] if words else command[0]).name


def name_process(words: Sequence[str]) -> str:
    """The program of a process that another one started, in a few words."""
    if "--multiprocessing-fork" in words:
        return "a process of multiprocessing"
    options = itertools.takewhile(lambda word: word.startswith("-"), words[1:])
    return "python -c" if any(re.fullmatch(r"-\w*c", word) for word in options) else program_name(words)


def recorded_command(command: Sequence[str], redact: bool) -> list[str]:
    return [program_name(command)] if redact else list(command)
