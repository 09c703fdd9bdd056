"""Interference: how much programs slow each other, from an experiment that ran them alone, in twos and all together.

The **slowdown** of a program is its time per step beside others over its time per step alone: whole windows over the
steps done in them, because programs that share a core run in turn, which a median of single steps would not see. The
slowdown of **CPU time** leaves out waiting for a core: what is left is caches, memory and clock. Each repetition gives
the logarithm of one such ratio, measured in the same processes; the interval is Student's t over repetitions, never
narrower than what the pieces within windows allow; fewer than three repetitions have none.
**Weighted speed-up** is the sum of 1/slowdown, the number of programs where nobody suffers (Snavely and Tullsen, ASPLOS
2000); the **harmonic mean** of the speed-ups weighs losers more (Luo, Gummaraju and Franklin, ISPASS 2001);
**fairness** is the smallest slowdown over the largest (Gabor, Weiss and Mendelson, MICRO 2006).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sonda.analysis import reasons
from sonda.analysis.bounds import BoundedRatio
from sonda.analysis.corun.counters import corun_counters
from sonda.analysis.corun.findings import (
    DivideCache,
    FewRepetitions,
    Interfering,
    KeepApart,
    LookAtWaiting,
    MeasureAgain,
    OneAfterTheOther,
    OwnCores,
    SweepWays,
)
from sonda.analysis.corun.layers import (
    LayerSlowdown,
    Table,
    layer_slowdowns,
    layer_tables,
    phase_slowdowns,
    phase_tables,
)
from sonda.analysis.corun.slowdown import (
    FEWEST_REPETITIONS,
    Rate,
    SlowdownLaw,
    joint_figure,
    paired_slowdown,
    rate,
    unknown_slowdown,
)
from sonda.analysis.energy.run import summarise_energy
from sonda.analysis.energy.summary import EnergySummary
from sonda.analysis.findings import Finding, Remark
from sonda.analysis.statistics import median
from sonda.analysis.summary import Summary, Value, list_experiment
from sonda.analysis.titles import describe_experiment
from sonda.record.errors import SondaError
from sonda.record.readings import SensorReadings
from sonda.record.run import Run
from sonda.record.target import CorunFacts, CorunTarget, CorunWindow, ParticipantFacts, WindowPart

STEP, CPU = 1, 3
"""Places of the duration and the CPU time in a piece; 2 is its steps."""
WORTH = 1.1
"""A slowdown that may be larger is worth measuring again."""


@dataclass(frozen=True)
class Company:
    """Participants that ran together, under a partition or none, and how it went for all of them."""

    members: tuple[str, ...]
    partition: str
    slowdowns: dict[str, Value]
    """By participant; 1 is as fast as alone."""
    cpu_slowdowns: dict[str, Value]
    """Of CPU time per step."""
    phases: dict[str, dict[str, Value]]
    """Slowdowns by participant and phase, where it has phases."""
    layers: dict[str, tuple[LayerSlowdown, ...]]
    """By participant, those that cost it most first, where its layers were seen; of all together without partition."""
    steps: dict[str, Value]
    """ns per step by participant."""
    counters: dict[str, dict[str, Value]]
    """By participant, see `corun_counters.counted`."""
    weighted_speedup: Value
    harmonic_mean: Value
    fairness: Value

    @property
    def label(self) -> str:
        return " + ".join(self.members)


@dataclass(frozen=True)
class Interference:
    """An experiment that was kept."""

    run: str
    title: str
    subtitle: str
    participants: tuple[str, ...]
    described: tuple[ParticipantFacts, ...]
    alone: dict[str, Company]
    pairs: tuple[Company, ...]
    together: Company
    partitions: tuple[Company, ...]
    """All together, under each partition that was measured."""
    partition_reason: str
    """Why no partition was measured, where one was asked for."""
    monitor_reason: str
    pmu_reason: str
    """Why the PMU counted nothing."""
    warnings: tuple[Finding, ...]
    notes: tuple[Finding, ...]
    probed: tuple[SensorReadings, ...] = ()
    """What probes read meanwhile."""
    energy: EnergySummary | None = None
    """Of the whole experiment, where it was read."""

    def slowdown(self, row: str, column: str, cpu: bool = False) -> Value:
        """What `row` suffers from `column`: missing for a participant and itself."""
        for pair in self.pairs:
            if {row, column} == set(pair.members) and row != column:
                return (pair.cpu_slowdowns if cpu else pair.slowdowns)[row]
        return Value(None, "1", "derived", reason=reasons.NO_NEIGHBOUR if row == column else reasons.NOT_IN_EXPERIMENT)

    @property
    def finding(self) -> Finding:
        """The largest slowdown of two that is beyond doubt, and how all of them fared."""
        row, column, value, sure = self._largest()
        whole = self.together
        return Interfering(
            slowed=row,
            by=column,
            slowdown=value,
            cpu_slowdown=self.slowdown(row, column, cpu=True),
            sure=sure,
            programs=len(self.participants),
            weighted_speedup=whole.weighted_speedup,
            fairness=whole.fairness,
            all_known=all(slowdown.value is not None for slowdown in whole.slowdowns.values()),
        )

    @property
    def remedy(self) -> Finding | None:
        """What to try against the largest slowdown of two; None where nothing is slowed."""
        row, column, value, sure = self._largest()
        if not sure:
            in_doubt = value.value is not None and (value.high is None or value.high > WORTH)
            return MeasureAgain() if in_doubt else None
        pair = next(pair for pair in self.pairs if {row, column} == set(pair.members))
        shared = sorted(set(self._cores(row)) & set(self._cores(column)))
        if shared:
            return OwnCores(tuple(shared))
        if pair.weighted_speedup.high is not None and pair.weighted_speedup.high < 1:
            return OneAfterTheOther(row, column, pair.weighted_speedup)
        cpu = pair.cpu_slowdowns[row]
        if cpu.low is None or cpu.low <= 1:
            return LookAtWaiting(row, column)
        suffered = self.together.slowdowns[row]
        better = [
            (partition.slowdowns[row].value or 0.0, partition) for partition in self.partitions
            if (high := partition.slowdowns[row].high) is not None and suffered.low is not None and high < suffered.low
        ]  # fmt: skip
        if better:
            best = min(better, key=lambda choice: choice[0])[1]
            return DivideCache(row, best.partition, best.slowdowns[row])
        if not self.partitions and not self.partition_reason and not self.monitor_reason:
            return SweepWays()
        return KeepApart(row, column)

    def _largest(self) -> tuple[str, str, Value, bool]:
        """Who suffers most from whom, how much, and whether that is beyond doubt; what is goes before what is not."""
        seen = [
            (value.low is not None and value.low > 1, value.value or 0.0, row, column, value)
            for row in self.participants
            for column in self.participants
            if row != column and (value := self.slowdown(row, column)).reason != reasons.NOT_IN_EXPERIMENT
        ]
        sure, _, row, column, value = max(seen, key=lambda seen_value: seen_value[:2])
        return row, column, value, sure

    def _cores(self, name: str) -> list[int]:
        return next(participant.cores for participant in self.described if participant.name == name)


def _at_most(figure: Value, most: float) -> Value:
    """A figure of all programs, whose best is that nobody suffers: company makes nobody faster."""
    unsure = reasons.LOOK_FASTER_TOGETHER.format(figure.reason) if figure.reason else ""
    return BoundedRatio(figure, most).value(unsure or reasons.FASTER_TOGETHER)


def interference(run: Run, title: str = "") -> Interference:
    """What an experiment found. Raises SondaError when the run holds none."""
    try:
        return _Reader(run, corun_facts(run)).read(title or run.info.workload.name)
    except (KeyError, ValueError, IndexError) as error:
        raise SondaError(
            f"{run.directory.name} holds no co-run that can be read ({error})", "run sonda corun again"
        ) from None


def corun_facts(run: Run) -> CorunFacts:
    """The experiment that a run holds. Raises SondaError for runs of other kinds."""
    if not isinstance(run.info.target, CorunTarget):
        raise SondaError(f"{run.directory.name} holds no co-run", "run sonda corun")
    return run.info.target.corun


def summarise_corun(run: Run, title: str) -> Summary:
    """A co-run where summaries of runs are listed: what it found, no parts."""
    summary = interference(run, title)
    return list_experiment(run, summary, summary.subtitle, reasons.CORUN_HAS_NO_ROOF, corun=summary)


class _Reader:
    """Tables of pieces by window, and what they mean."""

    def __init__(self, run: Run, facts: CorunFacts) -> None:
        self.run = run
        self.facts = facts
        self.names = tuple(participant.name for participant in facts.participants)
        self.windows: dict[tuple[tuple[int, ...], str], list[tuple[int, CorunWindow]]] = {}
        for index, window in enumerate(facts.windows):
            key = (tuple(window.members), window.partition)
            self.windows.setdefault(key, []).append((index, window))
        self._phases = phase_tables(run)
        self._layers = layer_tables(run)

    def read(self, title: str) -> Interference:
        info, facts = self.run.info, self.facts
        everybody = tuple(range(len(self.names)))
        companies = {key: self._company(*key) for key in self.windows}
        alone = {self.names[slot]: companies[(slot,), ""] for slot in everybody}
        return Interference(
            run=self.run.id,
            title=title,
            subtitle=describe_experiment(info, facts),
            participants=self.names,
            described=tuple(facts.participants),
            alone=alone,
            pairs=tuple(company for key, company in companies.items() if len(key[0]) == 2 and not key[1]),
            together=companies[everybody, ""],
            partitions=tuple(company for key, company in companies.items() if key[1]),
            partition_reason=facts.cache.reason or "",
            monitor_reason=facts.cache.monitor_reason or "",
            pmu_reason=(facts.pmu.reason if facts.pmu is not None else "") or "",
            warnings=tuple(map(Remark, info.disturbed)),
            notes=(*self._few(), *map(Remark, info.notes)),
            probed=tuple(info.target.probed or ()),
            energy=summarise_energy(self.run),
        )

    def _few(self) -> list[Finding]:
        return [FewRepetitions(FEWEST_REPETITIONS)] if self.facts.repeat < FEWEST_REPETITIONS else []

    def _company(self, members: tuple[int, ...], partition: str) -> Company:
        slowdowns, cpu, phases, layers, steps, counters = {}, {}, {}, {}, {}, {}
        everybody = len(members) == len(self.names) and not partition
        laws: list[SlowdownLaw] = []
        for slot in members:
            name = self.names[slot]
            steps[name] = self._step(members, partition, slot)
            windows = [window for _, window in self._measured(members, partition, slot).values()]
            counters[name] = corun_counters(windows, self.facts.participants[slot], self.facts)
            if members == (slot,) and not partition:
                continue
            law = self._law(members, partition, slot, STEP)
            laws.append(law)
            slowdowns[name] = law.value()
            cpu[name] = self._law(members, partition, slot, CPU).value()
            phases[name] = phase_slowdowns(self._pairs(self._phases, members, partition, slot))
            if everybody:
                layers[name] = layer_slowdowns(self._pairs(self._layers, members, partition, slot))
        return Company(
            members=tuple(self.names[slot] for slot in members),
            partition=partition,
            slowdowns=slowdowns,
            cpu_slowdowns=cpu,
            phases=phases,
            layers=layers,
            steps=steps,
            counters=counters,
            weighted_speedup=_at_most(joint_figure(laws, lambda slow: (1 / slow).sum(axis=0)), len(laws)),
            harmonic_mean=_at_most(joint_figure(laws, lambda slow: len(slow) / slow.sum(axis=0)), 1),
            fairness=_at_most(joint_figure(laws, lambda slow: slow.min(axis=0) / slow.max(axis=0)), 1),
        )

    def _measured(self, members: tuple[int, ...], partition: str, slot: int) -> dict[int, tuple[int, WindowPart]]:
        """By repetition: the window's number, and what the participant did in it."""
        return {
            window.repetition: (index, measured)
            for index, window in self.windows[members, partition]
            for measured in window.measured
            if measured.slot == slot
        }

    def _law(self, members: tuple[int, ...], partition: str, slot: int, column: int) -> SlowdownLaw:
        before, after = self._measured((slot,), "", slot), self._measured(members, partition, slot)
        if not _progress([*before.values(), *after.values()]):
            return unknown_slowdown(reasons.NO_PROGRESS)
        return paired_slowdown([(_window_rate(before[turn][1], column), _window_rate(later, column))
                        for turn, (_, later) in after.items() if turn in before])  # fmt: skip

    def _step(self, members: tuple[int, ...], partition: str, slot: int) -> Value:
        windows = self._measured(members, partition, slot).values()
        if self.facts.participants[slot].region == "window":
            return Value(None, "ns", "measured", reason=reasons.COMMAND_HAS_NO_STEPS)
        estimate = median([_window_rate(window, STEP).mean for _, window in windows])
        return Value(estimate.value, "ns", "measured", estimate.low, estimate.high, few=estimate.few)

    def _pairs(
        self, tables: Mapping[tuple[int, int], Table], members: tuple[int, ...], partition: str, slot: int
    ) -> list[tuple[Table, Table]]:
        """What was seen of a participant alone and in this company, a pair for each repetition."""
        alone, others = self._measured((slot,), "", slot), self._measured(members, partition, slot)
        return [
            (tables.get((alone[turn][0], slot), {}), tables.get((index, slot), {}))
            for turn, (index, _) in others.items()
            if turn in alone
        ]


def _progress(windows: list[tuple[int, WindowPart]]) -> bool:
    """Whether all of them did something that can be counted."""
    return all(sum(piece[2] for piece in window.slices) > 0 for _, window in windows)


def _window_rate(window: WindowPart, column: int) -> Rate:
    """Time or CPU time per step of a participant in a window."""
    pieces = np.array(window.slices, dtype=np.float64)
    return rate(pieces[:, column], pieces[:, 2])
