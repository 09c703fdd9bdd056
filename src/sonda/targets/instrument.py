"""The two contracts of the pipeline: an `Instrument` reads something of a run, a `Launcher` starts what is measured.

`pipeline.make_run` brings them together, in this order:

1. `Launcher.plan` checks what was asked for. Nothing has been started yet.
2. `Instrument.prepare` of each instrument checks the machine, leaves files and names variables for the program.
3. `Launcher.around`, then `Instrument.around` of each: what lasts while the program runs.
4. `Launcher.launch` runs the program to its end, and adds its processes to `RunPlan.processes` as it starts them; then
   these contexts end, the last one first.
5. `Launcher.observe` reads what the program left and says what it was.
6. `Instrument.collect` of each gives what it adds to the run. Each is shown the spans as the ones before it left them.
7. `Launcher.keep` writes the run.

Instruments stand in one order, that of `instruments.registry.BUILT_IN`: those that add rows come before energy, which
is spread over all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from sonda.frameworks.collector.counters.perf_event import Event
from sonda.frameworks.reconstruction.assembly import Assembly
from sonda.record.errors import SondaError
from sonda.record.progress import Say
from sonda.record.run import ProbeState, Run, RunInfo, write_run
from sonda.record.samples import Sample
from sonda.record.spans import Spans
from sonda.record.stacks import Stacks
from sonda.record.store import Store
from sonda.record.target import AnyTarget
from sonda.record.workload import Workload
from sonda.targets.job import Job
from sonda.targets.processes import MeasuredProcesses

AROUND = "around"
"""A launcher offers it where a program runs between the beginning and the end of the instruments' contexts. The
processes that it starts are then in `RunPlan.processes`."""
INSIDE = "inside"
"""The program's processes read the files that instruments leave in the directory, and write into it what they see."""
AGAIN = "again"
"""The program can be started once more, by `Launcher.again`."""
REPLAY = "replay"
"""Its kernels can be launched several times in place of once, since none waits for another process."""


NO_SPANS = Spans({"start": np.zeros(0)}, {})
"""Of a launcher that writes its tables itself."""


@dataclass(frozen=True)
class RunPlan:
    """What is going to run. Made by a launcher, which has checked it."""

    kind: str
    """The launcher's."""
    store: Store
    directory: Path
    """For the files of this run; it is removed once the run is kept."""
    say: Say
    job: Job | None = None
    """A workload of Sonda's; None where a command runs, or several jobs."""
    on_gpu: bool = False
    """Whether a GPU is, or may be, among the devices."""
    asked_threads: int = 0
    """Threads that the user asked for; 0 where that is left to Sonda."""
    outside: bool = False
    """Whether the launcher itself counts the whole program, from outside."""
    counted: str = ""
    """How the launcher counts events of the PMU: `per interval`, `over windows`; '' where the collector inside the
    program counts them."""
    events: dict[str, Event] = field(default_factory=dict)
    """Events of the PMU that were asked for, by name; instruments add theirs in `prepare`. A launcher that counts
    counts these."""
    processes: MeasuredProcesses = field(default_factory=MeasuredProcesses)
    """The program's processes. A launcher adds those that it starts: the process of a workload or of a served model,
    the command, the agent whose children the ranks are, a process for every program of a co-run. Before it has started
    one, and after their end, there are none."""


@dataclass(frozen=True)
class Circumstances:
    """Fields of a run's `info` that say where and how it ran, before instruments add theirs."""

    created: str
    machine: dict[str, Any]
    versions: dict[str, str]
    probes: list[ProbeState] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    disturbed: list[str] = field(default_factory=list)
    overhead: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Observation:
    """What a launcher read of the program that it has run."""

    spans: Spans
    """The first is the whole run; steps hang on it, or on parts of it."""
    workload: Workload
    target: AnyTarget
    """Its type says what kind of run it is."""
    circumstances: Circumstances
    begin: int = 0
    """ns on the host's clock, as is `end`."""
    end: int = 0
    assembly: Assembly | None = None
    """What its processes stated; None where nothing was observed from inside."""
    used: tuple[str, ...] | None = ("cpu",)
    """Devices that it used; None where only their sensors can tell."""
    identities: Mapping[str, str] = field(default_factory=dict)
    """GPUs as the driver knows them, by the program's own names."""
    complete: bool = True
    exit_code: int | None = None
    notes: list[str] = field(default_factory=list)
    """What stands behind the notes of the circumstances."""
    samples: list[Sample] = field(default_factory=list)

    @property
    def native(self) -> Spans:
        """The spans before profiles changed passes and added rows."""
        return self.assembly.spans if self.assembly is not None else self.spans


@dataclass(frozen=True)
class Rerun:
    """How a program is to be run once more."""

    directory: Path
    """For its files."""
    observed: bool = True
    """Whether its processes write what they see; a workload then ends when it has seen enough."""
    under: tuple[str, ...] = ()
    """The words of a tool that each of its processes is to run under, before their own."""
    replay: bool = False
    """Whether it marks one step for a profiler that counts kernels."""
    steps: int | None = None
    """Timed steps of a workload, `warmup` before them, and its threads; as before where nothing is given."""
    warmup: int | None = None
    threads: int = 0


@dataclass(frozen=True)
class Command:
    """A program to start: its words, what it is given on standard input, and variables beside this process's."""

    name: str
    words: tuple[str, ...]
    given: bytes | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass
class EndedRun:
    """A run whose program has ended, as an instrument is shown it. The plan's directory is still there."""

    plan: RunPlan
    observation: Observation
    spans: Spans
    """With what the instruments before it have added."""
    again: Callable[[Rerun], Command]
    """The launcher's, for instruments that need `AGAIN`."""


@dataclass(frozen=True)
class Contribution:
    """What an instrument adds to a run."""

    spans: Spans | None = None
    """The table with its columns or rows; None where it leaves `EndedRun.spans` as they are."""
    target: dict[str, Any] = field(default_factory=dict)
    """Fields of the run's target by name, as plain values; what has no field there is kept among what is `added`. A
    number that terminal, page and `--json` should show goes to `probed`, which every instrument may add to."""
    states: list[ProbeState] = field(default_factory=list)
    """Each takes the place of an earlier one with its name."""
    notes: list[str] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)


class Instrument(Protocol):
    """Something that is read of a run. It serves one run; what it knows between two calls it keeps itself.

    Subclass it and write `collect`; the others do nothing unless written.
    """

    needs: frozenset[str]
    """Among `AROUND`, `INSIDE`, `AGAIN` and `REPLAY`: where a launcher does not offer all of it, it is refused."""

    def prepare(self, plan: RunPlan) -> Mapping[str, str]:
        """Make ready before anything starts; returns variables for the program's environment.

        Raises SondaError for what this machine or this plan cannot do.
        """
        return {}

    def around(self, plan: RunPlan) -> AbstractContextManager[Any]:
        """Entered before the program starts and left after its end.

        A thread that lives meanwhile may ask `plan.processes.living()` for the process ids of the program. A process
        may end before it is read, so what is gone from `/proc` is no failure.
        """
        return nullcontext()

    def collect(self, ended_run: EndedRun) -> Contribution:
        """What it adds. A failure that leaves the run worth keeping is a `ProbeState`, not an exception."""
        ...


@dataclass(frozen=True)
class Draft:
    """A run that is to be written."""

    info: RunInfo
    spans: Spans
    samples: list[Sample]
    stacks: Stacks | None = None


class Launcher(Protocol):
    """A way to run something. It serves one run; what it knows between two calls it keeps itself.

    Subclass it and write `launch` and `observe`; the others do what most launchers need.
    """

    kind: str
    """In a word, for the user."""
    offers: frozenset[str]
    """Among `AROUND`, `INSIDE`, `AGAIN` and `REPLAY`; a probe that needs more is refused in one line."""

    where: str = ""
    """What else that line says of the run, where another of its kind is offered more: ` on several nodes`."""

    def plan(self, store: Store, directory: Path, say: Say) -> RunPlan:
        """Raises SondaError for what cannot be done. `directory` is for the files of this run."""
        return RunPlan(self.kind, store, directory, say)

    def around(self, plan: RunPlan) -> AbstractContextManager[Any]:
        """Entered before the instruments' contexts, left after them."""
        return nullcontext()

    def launch(self, plan: RunPlan, environment: Mapping[str, str]) -> None:
        """Run the program to its end, with these variables beside this process's. Raises SondaError where it fails.

        Call `plan.processes.add(pid)` for every process that is started here; those below it are found.
        """
        ...

    def observe(self, plan: RunPlan) -> Observation:
        """Read what the program left behind."""
        ...

    def again(self, plan: RunPlan, rerun: Rerun) -> Command:
        """How to run it once more; asked only of launchers that offer `AGAIN`."""
        raise SondaError(f"a {self.kind} run cannot be run once more")

    def keep(self, plan: RunPlan, draft: Draft) -> Run:
        """Write the run."""
        return write_run(plan.store.root, draft.info, draft.spans, draft.samples, stacks=draft.stacks)

    def close(self) -> None:
        """Called at last, whatever happened."""
        return
