"""Several programs at once: everybody alone, every two, all together, measured in turn in the same processes."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter, perf_counter_ns
from typing import Any

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
from sonda.record.target import CorunTarget
from sonda.record.workload import Workload, workload_document
from sonda.targets.corun.cache_partition import Division
from sonda.targets.corun.crew import Crew
from sonda.targets.corun.messages import RUNS, WINDOW, Ready, Report
from sonda.targets.corun.plan import Cast, Setting, Window, cast_of, windows_of
from sonda.targets.corun.pmu import event_groups
from sonda.targets.corun.spans import Measured, SpanGatherer
from sonda.targets.instrument import AROUND, INSIDE, Circumstances, Launcher, Observation, RunPlan
from sonda.targets.instruments.counters import PMU, named_events
from sonda.targets.instruments.registry import instruments_for
from sonda.targets.pipeline import Place, make_run
from sonda.targets.signals import handled

Facts = dict[str, Any]


def corun(
    participants: Sequence[str],
    store: Store,
    cores: str = "",
    setting: Setting | None = None,
    say: Say = lambda text: None,
    files: ResctrlFiles | None = None,
    place: Place | None = None,
    warn: Say | None = None,
) -> Run:
    """Carry out the experiment and keep it as one run, whose `target["corun"]` holds what was measured.

    Participants and cores are as in `cast_of`. `files` is the resctrl to use, the machine's unless given; `place` is
    where the run belongs. `warn` is told, before anything is measured, what was asked for and cannot be; `say` unless
    given. Raises SondaError when it cannot be done, or when a participant dies or hangs; all of them are stopped then,
    and cache partitions restored.
    """
    launcher = CorunLauncher(participants, cores, setting or Setting(), files, warn)
    return make_run(launcher, instruments_for(launcher.setting.probe, launcher), store, place, say)


class CorunLauncher(Launcher):
    """Runs programs alone and side by side. Raises SondaError for programs and settings that cannot be.

    Its participants count by themselves, window by window, what the system and the PMU count.
    """

    kind = "corun"
    offers = frozenset({AROUND, INSIDE})

    def __init__(
        self,
        participants: Sequence[str],
        cores: str = "",
        setting: Setting | None = None,
        files: ResctrlFiles | None = None,
        warn: Say | None = None,
    ) -> None:
        self.setting = setting or Setting()
        self.setting.check()
        self.cast = cast_of(participants, cores)
        self.files = files
        self.warn = warn

    def plan(self, store: Store, directory: Path, say: Say) -> RunPlan:
        self.groups, self.pmu = event_groups(named_events(self.setting.probe))
        restored = restore_partition(store.root, self.files)
        self.cache = Division(self.setting, self.files)
        self.cache.divide(self.cast)
        if self.cache.lacks:
            (self.warn or say)(f"partitions are left out: {self.cache.lacks}")
        self.notes = [*([restored] if restored else []), *self.cast.notes, *self.cache.notes]
        return RunPlan(self.kind, store, directory, say, counted="over windows")

    @contextmanager
    def around(self, plan: RunPlan) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(_ended_in_order())
            self.partition = self.cache.open(stack, plan.store.root, self.cast)
            yield

    def launch(self, plan: RunPlan, environment: Mapping[str, str]) -> None:
        windows = windows_of(len(self.cast.participants), self.cache.partitions)
        self.before = read_conditions()
        self.begin = perf_counter_ns()
        self.experiment = _Experiment(
            self.cast, self.setting, self.partition, self.groups, SpanGatherer(self.begin), plan.say, environment
        )
        for repetition in range(self.setting.repeat):
            # Forth and back, so that a machine that drifts favours nobody.
            order = windows if repetition % 2 == 0 else windows[::-1]
            self.experiment.repeat(repetition, order, plan.directory / str(repetition))
        self.end = perf_counter_ns()
        self.after = read_conditions()

    def observe(self, plan: RunPlan) -> Observation:
        cast, setting, experiment, cache = self.cast, self.setting, self.experiment, self.cache
        machine = machine_record()
        used = len({core for one in cast.participants for core in one.cores})
        flags = find_disturbances(self.before, self.after, used, "passive")  # waiting in turn is part of the experiment
        return Observation(
            experiment.spans.table(),
            workload=Workload(name=" + ".join(cast.names), framework="torch"),
            target=CorunTarget.of(
                spec=",".join("+".join(map(str, one.cores)) for one in cast.participants),
                device="corun",
                corun={
                    "participants": experiment.described(),
                    "seconds": setting.seconds,
                    "repeat": setting.repeat,
                    "timeout": setting.timeout,
                    "windows": experiment.windows,
                    "cache": cache.facts(),
                    "pmu": experiment.pmu_facts(self.pmu),
                },
            ),
            circumstances=Circumstances(
                now(),
                {**machine, "environment": thread_variables()},
                {**installed_versions(), **experiment.versions},
                [
                    *(one for one in probe_states(virtual=machine.get("virtual_machine")) if one.name != PMU),
                    self.pmu,
                    *cache.states(),
                ],
                list(dict.fromkeys([*self.notes, *experiment.notes])),
                [flag.sentence for flag in flags if flag.contaminated],
            ),
            begin=self.begin,
            end=self.end,
            # Which devices a command uses, only their sensors can tell.
            used=None if any(one.command for one in cast.participants) else ("cpu",),
        )


class _Experiment:
    """Repetitions, one after the other, and what they gave."""

    def __init__(
        self,
        cast: Cast,
        setting: Setting,
        partition: Partition | None,
        groups: Sequence[Facts],
        spans: SpanGatherer,
        say: Say,
        environment: Mapping[str, str],
    ) -> None:
        self.cast = cast
        self.setting = setting
        self.partition = partition
        self.groups = groups
        self.spans = spans
        self.say = say
        self.environment = environment
        self.windows: list[Facts] = []
        self.versions: dict[str, str] = {}
        self.notes: list[str] = []
        self._ready: list[Ready] = []

    def described(self) -> list[Facts]:
        return [
            {
                "name": one.name,
                "workload": workload_document(ready.workload),
                "cores": list(one.cores),
                "threads": one.threads,
                "region": ready.region,
                "observed": ready.stride,
                **(one.job.how() if one.job else {"command": list(one.command)}),
            }
            for one, ready in zip(self.cast.participants, self._ready, strict=True)
        ]

    def pmu_facts(self, state: ProbeState) -> Facts:
        """What was counted, and why not where it was not: on this machine, or of a participant."""
        refused = {one.name: ready.pmu for one, ready in zip(self.cast.participants, self._ready, strict=True)
                   if ready.pmu}  # fmt: skip
        events = [event["name"] for group in self.groups for event in group["events"]]
        return {"events": list(dict.fromkeys(events)), "reason": state.reason if not self.groups else "",
                "remedy": state.remedy, "refused": refused}  # fmt: skip

    def _regions(self) -> list[str]:
        """What a step of each command is."""
        words = {
            RUNS: "a step is a whole run of the command",
            WINDOW: "the command runs on while a window lasts and has no steps",
        }
        return [f"{one.name}: {words[ready.region]}"
                for one, ready in zip(self.cast.participants, self._ready, strict=True)
                if ready.region in words]  # fmt: skip

    def repeat(self, repetition: int, windows: Sequence[Window], directory: Path) -> None:
        """All windows once, with processes of their own."""
        begin = perf_counter_ns()
        measured: list[Measured] = []
        everything = self.setting.repeat * len(windows)
        self.say(f"starting {len(self.cast.participants)} programs")
        setting = self.setting
        with Crew(
            self.cast.participants, directory, setting.seconds, setting.timeout, self.groups, self._started,
            self.environment,
        ) as crew:  # fmt: skip
            self._ready = crew.warm()
            self.notes += self._regions()
            for number, window in enumerate(windows, start=1):
                label = " + ".join(self.cast.names[slot] for slot in window.members)
                divided = f" ({window.partition})" if window.partition else ""
                self.say(f"window {repetition * len(windows) + number} of {everything}: {label}{divided}")
                measured += self._window(crew, number, label, window, repetition)
            crew.finish()
        end = perf_counter_ns()
        for slot in range(len(self.cast.participants)):
            assembly = assemble(directory / str(slot), begin, end)
            self.versions.update(assembly.versions)
            self.spans.add(assembly.spans, begin, [one for one in measured if one.slot == slot])

    def _started(self, slot: int, process: int) -> None:
        if self.partition is not None:
            self.partition.resctrl.move(process, self.partition.groups[self.cast.names[slot]])

    def _window(self, crew: Crew, number: int, label: str, window: Window, repetition: int) -> list[Measured]:
        if self.partition is not None:
            self.notes += self.partition.share(window.shares)
        first, begin = self._usages(window), perf_counter()
        reports = crew.measure(number, window.members)
        last, seconds = self._usages(window), perf_counter() - begin
        index = len(self.windows)
        self.windows.append(
            {
                "members": list(window.members),
                "partition": window.partition,
                "repetition": repetition,
                "measured": [
                    {**_kept(slot, report, self.spans.origin), **_moved(first.get(slot), last.get(slot), seconds)}
                    for slot, report in zip(window.members, reports, strict=True)
                ],
            }
        )
        found = []
        for slot, report in zip(window.members, reports, strict=True):
            ends = report.slices[-1][0] + report.slices[-1][1]
            found.append(Measured(index, label, slot, report.slices[0][0], ends, _columns(report.counters)))
        return found

    def _usages(self, window: Window) -> dict[int, GroupUsage]:
        if self.partition is None:
            return {}
        return {slot: self.partition.resctrl.read_usage(self.partition.groups[self.cast.names[slot]])
                for slot in window.members}  # fmt: skip


def _kept(slot: int, report: Report, origin: int) -> Facts:
    """A report for `run.json`, times since the run began."""
    return {
        "slot": slot,
        "begin": report.begin - origin,
        "end": report.end - origin,
        "slices": [[start - origin, *rest] for start, *rest in report.slices],
        "counters": report.counters,
    }


def _columns(counters: dict[str, float]) -> dict[str, float]:
    """What was counted in a window, by column: scaled counts are estimates, and those are of the PMU only."""
    system = ("cpu_time", "run_queue_wait", "page_faults", "context_switches")
    source = "estimated" if "scaled" in counters else "counted"
    return {f"{name}:{'counted' if name in system else source}": value for name, value in counters.items()
            if name not in ("time", "scaled")}  # fmt: skip


def _moved(first: GroupUsage | None, last: GroupUsage | None, seconds: float) -> Facts:
    """What the group held at the end of the window, and what it moved from and to memory meanwhile."""
    if first is None or last is None:
        return {}
    found: Facts = {"llc_occupancy_B": last.occupancy, "reasons": {**first.reasons, **last.reasons}}
    if first.total is not None and last.total is not None:
        found["memory_B_per_s"] = (last.total - first.total) / seconds
    return found


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Have SIGTERM and SIGHUP end the experiment as an exception, so that all is stopped and restored."""

    def end(number: int, _frame: object) -> None:
        raise SondaError(f"ended by {signal.Signals(number).name}: all programs were stopped", exit_code=128 + number)

    with handled(end, signal.SIGTERM, signal.SIGHUP):
        yield
