"""Several programs side by side: each alone, each pair, and all together, measured in turn in the same processes."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter, perf_counter_ns
from typing import Any

import msgspec

from sonda.frameworks.reconstruction.assembly import assemble
from sonda.probes.availability import probe_states
from sonda.probes.cache_partition.partition import Partition, restore_partition
from sonda.probes.cache_partition.resctrl import GroupUsage
from sonda.probes.cache_partition.resctrl_files import ResctrlFiles
from sonda.probes.machine.contamination import find_disturbances, read_conditions
from sonda.probes.machine.environment import installed_versions, thread_variables
from sonda.probes.machine.record import machine_record
from sonda.record.errors import SondaError
from sonda.record.progress import Say
from sonda.record.run import ProbeState, Run, now
from sonda.record.store import Store
from sonda.record.target import CorunPmu, CorunTarget, CorunWindow, WindowPart
from sonda.record.workload import Workload, workload_document
from sonda.targets.corun.cache_partition import CacheDivision
from sonda.targets.corun.crew import Crew
from sonda.targets.corun.messages import RUNS, WINDOW, Ready, WindowReport
from sonda.targets.corun.plan import Cast, CorunSettings, PlannedWindow, parse_cast, plan_windows
from sonda.targets.corun.pmu import event_groups
from sonda.targets.corun.spans import SpanGatherer, WindowMeasurement
from sonda.targets.instrument import AROUND, INSIDE, Circumstances, Launcher, Observation, RunPlan
from sonda.targets.instruments.counters import PMU, named_events
from sonda.targets.instruments.registry import instruments_for
from sonda.targets.pipeline import RunLabels, make_run
from sonda.targets.signals import handle_signals


def corun(
    participants: Sequence[str],
    store: Store,
    cores: str = "",
    setting: CorunSettings | None = None,
    say: Say = lambda text: None,
    files: ResctrlFiles | None = None,
    labels: RunLabels | None = None,
    warn: Say | None = None,
) -> Run:
    """Carry out the experiment and keep it as one run, whose `target["corun"]` holds what was measured.

    Participants and cores are as in `parse_cast`. `files` is the resctrl to use, the machine's unless given. `warn` is
    called before anything is measured with what was asked for and cannot be done; it is `say` unless given. Raises
    SondaError when the experiment cannot be done, or when a participant dies or hangs. Then all of them are stopped and
    cache partitions are restored.
    """
    launcher = CorunLauncher(participants, cores, setting or CorunSettings(), files, warn)
    return make_run(launcher, instruments_for(launcher.setting.probe, launcher), store, labels, say)


class CorunLauncher(Launcher):
    """Runs programs alone and side by side. Raises SondaError for programs and settings that cannot be.

    Its participants read the counters of the system and the PMU themselves, window by window.
    """

    kind = "corun"
    offers = frozenset({AROUND, INSIDE})

    def __init__(
        self,
        participants: Sequence[str],
        cores: str = "",
        setting: CorunSettings | None = None,
        files: ResctrlFiles | None = None,
        warn: Say | None = None,
    ) -> None:
        self.setting = setting or CorunSettings()
        self.setting.check()
        self.cast = parse_cast(participants, cores)
        self.files = files
        self.warn = warn

    def plan(self, store: Store, directory: Path, say: Say) -> RunPlan:
        self.groups, self.pmu = event_groups(named_events(self.setting.probe))
        restored = restore_partition(store.root, self.files)
        self.cache = CacheDivision(self.setting, self.files)
        self.cache.divide(self.cast)
        if self.cache.lacks:
            (self.warn or say)(f"partitions are left out: {self.cache.lacks}")
        self.notes = [*([restored] if restored else []), *self.cast.notes, *self.cache.notes]
        return RunPlan(self.kind, store, directory, say, counted="over windows")

    @contextmanager
    def around(self, plan: RunPlan) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(_end_on_signals())
            self.partition = self.cache.open(stack, plan.store.root, self.cast)
            yield

    def launch(self, plan: RunPlan, environment: Mapping[str, str]) -> None:
        windows = plan_windows(len(self.cast.participants), self.cache.partitions)
        self.before = read_conditions()
        self.begin = perf_counter_ns()
        self.experiment = _Experiment(
            self.cast, self.setting, self.partition, self.groups, SpanGatherer(self.begin), plan, environment
        )
        for repetition in range(self.setting.repeat):
            # Every second repetition goes backwards, so that a drift of the machine favours no participant.
            order = windows if repetition % 2 == 0 else windows[::-1]
            self.experiment.repeat(repetition, order, plan.directory / str(repetition))
        self.end = perf_counter_ns()
        self.after = read_conditions()

    def observe(self, plan: RunPlan) -> Observation:
        cast, setting, experiment, cache = self.cast, self.setting, self.experiment, self.cache
        machine = machine_record()
        used = len({core for participant in cast.participants for core in participant.cores})
        flags = find_disturbances(self.before, self.after, used, "passive")  # waiting in turn is part of the experiment
        return Observation(
            experiment.spans.table(),
            workload=Workload(name=" + ".join(cast.names), framework="torch"),
            target=CorunTarget.of(
                spec=",".join("+".join(map(str, participant.cores)) for participant in cast.participants),
                device="corun",
                corun={
                    "participants": experiment.describe_participants(),
                    "seconds": setting.seconds,
                    "repeat": setting.repeat,
                    "timeout": setting.timeout,
                    "windows": experiment.windows,
                    "cache": cache.describe(),
                    "pmu": experiment.describe_pmu(self.pmu),
                },
            ),
            circumstances=Circumstances(
                now(),
                {**machine, "environment": thread_variables()},
                {**installed_versions(), **experiment.versions},
                [
                    *(state for state in probe_states(virtual=machine.get("virtual_machine")) if state.name != PMU),
                    self.pmu,
                    *cache.states(),
                ],
                list(dict.fromkeys([*self.notes, *experiment.notes])),
                [flag.sentence for flag in flags if flag.contaminated],
            ),
            begin=self.begin,
            end=self.end,
            # Which devices a command uses, only their sensors can tell.
            used=None if any(participant.command for participant in cast.participants) else ("cpu",),
        )


class _Experiment:
    """Repetitions, one after the other, and their results."""

    def __init__(
        self,
        cast: Cast,
        setting: CorunSettings,
        partition: Partition | None,
        groups: Sequence[dict[str, Any]],
        spans: SpanGatherer,
        plan: RunPlan,
        environment: Mapping[str, str],
    ) -> None:
        self.cast = cast
        self.setting = setting
        self.partition = partition
        self.groups = groups
        self.spans = spans
        self.say = plan.say
        self.processes = plan.processes
        self.environment = environment
        self.windows: list[CorunWindow] = []
        self.versions: dict[str, str] = {}
        self.notes: list[str] = []
        self._ready: list[Ready] = []

    def describe_participants(self) -> list[dict[str, Any]]:
        """The participants for `run.json`, with the settings of their jobs or their commands."""
        return [
            {
                "name": participant.name,
                "workload": workload_document(ready.workload),
                "cores": list(participant.cores),
                "threads": participant.threads,
                "region": ready.region,
                "observed": ready.stride,
                **(participant.job.settings_record() if participant.job else {"command": list(participant.command)}),
            }
            for participant, ready in zip(self.cast.participants, self._ready, strict=True)
        ]

    def describe_pmu(self, state: ProbeState) -> CorunPmu:
        """What the PMU counted, and why it counted nothing on this machine or of a participant."""
        events = [event["name"] for group in self.groups for event in group["events"]]
        return CorunPmu(
            events=list(dict.fromkeys(events)),
            reason=state.reason if not self.groups else "",
            remedy=state.remedy,
            refused={
                participant.name: ready.pmu
                for participant, ready in zip(self.cast.participants, self._ready, strict=True)
                if ready.pmu
            },
        )

    def _region_notes(self) -> list[str]:
        """Notes on what a step of each command is."""
        words = {
            RUNS: "a step is a whole run of the command",
            WINDOW: "the command runs on while a window lasts and has no steps",
        }
        return [f"{participant.name}: {words[ready.region]}"
                for participant, ready in zip(self.cast.participants, self._ready, strict=True)
                if ready.region in words]  # fmt: skip

    def repeat(self, repetition: int, windows: Sequence[PlannedWindow], directory: Path) -> None:
        """Measure all windows once, with new processes."""
        begin = perf_counter_ns()
        measured: list[WindowMeasurement] = []
        everything = self.setting.repeat * len(windows)
        self.say(f"starting {len(self.cast.participants)} programs")
        setting = self.setting
        with Crew(
            self.cast.participants, directory, setting.seconds, setting.timeout, self.groups, self._on_start,
            self.environment,
        ) as crew:  # fmt: skip
            self._ready = crew.warm()
            self.notes += self._region_notes()
            for number, window in enumerate(windows, start=1):
                label = " + ".join(self.cast.names[slot] for slot in window.members)
                divided = f" ({window.partition})" if window.partition else ""
                self.say(f"window {repetition * len(windows) + number} of {everything}: {label}{divided}")
                measured += self._measure_window(crew, number, label, window, repetition)
            crew.finish()
        end = perf_counter_ns()
        for slot in range(len(self.cast.participants)):
            assembly = assemble(directory / str(slot), begin, end)
            self.versions.update(assembly.versions)
            self.spans.add(assembly.spans, begin, [measurement for measurement in measured if measurement.slot == slot])

    def _on_start(self, slot: int, process: int) -> None:
        self.processes.add(process)
        if self.partition is not None:
            self.partition.resctrl.move(process, self.partition.groups[self.cast.names[slot]])

    def _measure_window(
        self, crew: Crew, number: int, label: str, window: PlannedWindow, repetition: int
    ) -> list[WindowMeasurement]:
        if self.partition is not None:
            self.notes += self.partition.share(window.shares)
        first, begin = self._usages(window), perf_counter()
        reports = crew.measure(number, window.members)
        last, seconds = self._usages(window), perf_counter() - begin
        index = len(self.windows)
        self.windows.append(
            CorunWindow(
                members=list(window.members),
                partition=window.partition,
                repetition=repetition,
                measured=[
                    _describe_part(slot, report, self.spans.origin, first.get(slot), last.get(slot), seconds)
                    for slot, report in zip(window.members, reports, strict=True)
                ],
            )
        )
        measurements = []
        for slot, report in zip(window.members, reports, strict=True):
            ends = report.slices[-1][0] + report.slices[-1][1]
            measurements.append(
                WindowMeasurement(index, label, slot, report.slices[0][0], ends, _counter_columns(report.counters))
            )
        return measurements

    def _usages(self, window: PlannedWindow) -> dict[int, GroupUsage]:
        if self.partition is None:
            return {}
        return {slot: self.partition.resctrl.read_usage(self.partition.groups[self.cast.names[slot]])
                for slot in window.members}  # fmt: skip


def _describe_part(
    slot: int, report: WindowReport, origin: int, first: GroupUsage | None, last: GroupUsage | None, seconds: float
) -> WindowPart:
    """What a participant did in a window, for `run.json`. Times are ns since `origin`, when the run began.

    `first` and `last` are the usages of its resctrl group at both ends of the window, which lasted `seconds`.
    """
    part = WindowPart(
        slot=slot,
        begin=report.begin - origin,
        end=report.end - origin,
        slices=[(start - origin, lasted, steps, cpu_ns) for start, lasted, steps, cpu_ns in report.slices],
        counters=report.counters,
    )
    if first is None or last is None:
        return part
    moved = None if first.total is None or last.total is None else (last.total - first.total) / seconds
    return msgspec.structs.replace(
        part, occupancy=last.occupancy, traffic=moved, reasons={**first.reasons, **last.reasons}
    )


def _counter_columns(counters: dict[str, float]) -> dict[str, float]:
    """The counts of a window by column, `quantity:source`. Scaled counts are estimates; only the PMU's are scaled."""
    system = ("cpu_time", "run_queue_wait", "page_faults", "context_switches")
    source = "estimated" if "scaled" in counters else "counted"
    return {f"{name}:{'counted' if name in system else source}": value for name, value in counters.items()
            if name not in ("time", "scaled")}  # fmt: skip


@contextmanager
def _end_on_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into SondaError, so that programs are stopped and partitions restored."""

    def end(number: int, _frame: object) -> None:
        raise SondaError(f"ended by {signal.Signals(number).name}: all programs were stopped", exit_code=128 + number)

    with handle_signals(end, signal.SIGTERM, signal.SIGHUP):
        yield
