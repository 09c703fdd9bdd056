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
from typing import Any

import numpy as np

from sonda.analysis.corun_counters import NO_STEPS, counted
from sonda.analysis.corun_layers import (
    LayerSlowdown,
    Table,
    layer_slowdowns,
    layer_tables,
    phase_slowdowns,
    phase_tables,
)
from sonda.analysis.listed import listed
from sonda.analysis.slowdown import FEW_REPETITIONS, FEWEST_REPETITIONS, Law, Rate, paired, rate, together, unknown
from sonda.analysis.statistics import median
from sonda.analysis.summary import Summary, Value
from sonda.record.errors import SondaError
from sonda.record.run import Run

STEP, CPU = 1, 3
"""Places of the duration and the CPU time in a piece; 2 is its steps."""
NO_PROGRESS = "without a PMU nobody counts what a command does in a window: only what it does to others is known"
NOT_MEASURED = "not measured in this experiment"
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
    described: tuple[dict[str, Any], ...]
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
    warnings: tuple[str, ...]
    notes: tuple[str, ...]

    def slowdown(self, row: str, column: str, cpu: bool = False) -> Value:
        """What `row` suffers from `column`: missing for a participant and itself."""
        for pair in self.pairs:
            if {row, column} == set(pair.members) and row != column:
                return (pair.cpu_slowdowns if cpu else pair.slowdowns)[row]
        return Value(None, "1", "derived", reason="a program alone has no neighbour" if row == column else NOT_MEASURED)

    @property
    def sentence(self) -> str:
        """The largest slowdown of two that is beyond doubt, and how all of them fared."""
        row, column, value, sure = self._largest()
        if sure:
            cpu = times(self.slowdown(row, column, cpu=True))
            first = f"{column} slows {row} most: {times(value)}, of CPU time {cpu}"
        else:
            first = f"No slowdown of two is beyond doubt; the largest seen is that of {row} by {column}: {times(value)}"
        whole = self.together
        count = len(self.participants)
        speed = whole.weighted_speedup
        if speed.value is None:
            return f"{first}."
        return (
            f"{first}. {'Both' if count == 2 else f'All {count}'} together: weighted speed-up "
            f"{_number(speed)} of {count}, fairness {_number(whole.fairness)}."
        )

    @property
    def remedy(self) -> str:
        """What to try against the largest slowdown of two; '' where nothing is slowed."""
        row, column, value, sure = self._largest()
        if not sure:
            in_doubt = value.value is not None and (value.high is None or value.high > WORTH)
            return "measure again with a higher --repeat, while no other program runs" if in_doubt else ""
        pair = next(one for one in self.pairs if {row, column} == set(one.members))
        shared = sorted(set(self._cores(row)) & set(self._cores(column)))
        if shared:
            return f"give each cores of its own with --cores: they take turns on {', '.join(map(str, shared))}"
        if pair.weighted_speedup.high is not None and pair.weighted_speedup.high < 1:
            part = f"{pair.weighted_speedup.value:.2f}"
            return f"run {row} and {column} one after the other: side by side they get {part} of that done in the time"
        cpu = pair.cpu_slowdowns[row]
        if cpu.low is None or cpu.low <= 1:
            return f"look at what {row} waits for: beside {column} its steps are not shown to take more CPU time"
        suffered = self.together.slowdowns[row]
        better = [
            (one.slowdowns[row].value or 0.0, one) for one in self.partitions
            if (high := one.slowdowns[row].high) is not None and suffered.low is not None and high < suffered.low
        ]  # fmt: skip
        if better:
            best = min(better, key=lambda one: one[0])[1]
            return f"divide the cache as in {best.partition}: {row} is then slowed {times(best.slowdowns[row])}"
        if not self.partitions and not self.partition_reason and not self.monitor_reason:
            return "give each a part of the cache: --sweep-ways tries how large"
        return f"keep {column} off the caches and the memory of {row}: on another socket or machine, or at another time"

    def _largest(self) -> tuple[str, str, Value, bool]:
        """Who suffers most from whom, how much, and whether that is beyond doubt; what is goes before what is not."""
        seen = [
            (value.low is not None and value.low > 1, value.value or 0.0, row, column, value)
            for row in self.participants
            for column in self.participants
            if row != column and (value := self.slowdown(row, column)).reason != NOT_MEASURED
        ]
        sure, _, row, column, value = max(seen, key=lambda one: one[:2])
        return row, column, value, sure

    def _cores(self, name: str) -> list[int]:
        return next(list(one["cores"]) for one in self.described if one["name"] == name)


def times(value: Value) -> str:
    """`1.42x (1.35 to 1.50)`."""
    if value.value is None:
        return "unknown"
    if value.low is None or value.high is None:
        return f"{value.value:.2f}x"
    return f"{value.value:.2f}x ({value.low:.2f} to {value.high:.2f})"


def _number(value: Value) -> str:
    return times(value).replace("x", "", 1)


def is_corun(run: Run) -> bool:
    return isinstance(run.info.target.get("corun"), Mapping)


def interference(run: Run, title: str = "") -> Interference:
    """What an experiment found. Raises SondaError when the run holds none."""
    try:
        return _Reader(run).read(title or str(run.info.workload.get("name", "")))
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise SondaError(
            f"{run.directory.name} holds no co-run that can be read ({error})", "run sonda corun again"
        ) from None


def summarise_corun(run: Run, title: str) -> Summary:
    """A co-run where summaries of runs are listed: what it found, no parts."""
    found = interference(run, title)
    return listed(run, found, found.subtitle, "a co-run has no roofline", corun=found)


class _Reader:
    """Tables of pieces by window, and what they mean."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.facts = run.info.target["corun"]
        self.names = tuple(str(one["name"]) for one in self.facts["participants"])
        self.windows: dict[tuple[tuple[int, ...], str], list[tuple[int, dict[str, Any]]]] = {}
        for index, window in enumerate(self.facts["windows"]):
            key = (tuple(window["members"]), str(window["partition"]))
            self.windows.setdefault(key, []).append((index, window))
        self._phases = phase_tables(run)
        self._layers = layer_tables(run)

    def read(self, title: str) -> Interference:
        info, facts = self.run.info, self.facts
        everybody = tuple(range(len(self.names)))
        companies = {key: self._company(*key) for key in self.windows}
        alone = {self.names[slot]: companies[(slot,), ""] for slot in everybody}
        cache = facts["cache"]
        seconds = f"{facts['seconds']:g} s each, {facts['repeat']} time{'s' if facts['repeat'] != 1 else ''}"
        return Interference(
            run=self.run.id,
            title=title,
            subtitle=" · ".join(
                [*([str(info.machine["processor"])] if info.machine.get("processor") else []), self._cores(), seconds]
            ),
            participants=self.names,
            described=tuple(facts["participants"]),
            alone=alone,
            pairs=tuple(one for key, one in companies.items() if len(key[0]) == 2 and not key[1]),
            together=companies[everybody, ""],
            partitions=tuple(one for key, one in companies.items() if key[1]),
            partition_reason=str(cache.get("reason") or ""),
            monitor_reason=str(cache.get("monitor_reason") or ""),
            pmu_reason=str(facts.get("pmu", {}).get("reason") or ""),
            warnings=tuple(info.disturbed),
            notes=(*self._few(), *info.notes),
        )

    def _few(self) -> list[str]:
        if int(self.facts["repeat"]) >= FEWEST_REPETITIONS:
            return []
        return [f"{FEW_REPETITIONS}: give --repeat {FEWEST_REPETITIONS} or more"]

    def _cores(self) -> str:
        return ", ".join(
            f"{one['name']} on {'cores' if len(one['cores']) > 1 else 'core'} {'+'.join(map(str, one['cores']))}"
            for one in self.facts["participants"]
        )

    def _company(self, members: tuple[int, ...], partition: str) -> Company:
        slowdowns, cpu, phases, layers, steps, counters = {}, {}, {}, {}, {}, {}
        everybody = len(members) == len(self.names) and not partition
        laws: list[Law] = []
        for slot in members:
            name = self.names[slot]
            steps[name] = self._step(members, partition, slot)
            found = [one for _, one in self._measured(members, partition, slot).values()]
            counters[name] = counted(found, self.facts["participants"][slot], self.facts)
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
            weighted_speedup=together(laws, lambda slow: (1 / slow).sum(axis=0)),
            harmonic_mean=together(laws, lambda slow: len(slow) / slow.sum(axis=0)),
            fairness=together(laws, lambda slow: slow.min(axis=0) / slow.max(axis=0)),
        )

    def _measured(self, members: tuple[int, ...], partition: str, slot: int) -> dict[int, tuple[int, dict[str, Any]]]:
        """By repetition: the window's number, and what the participant did in it."""
        return {
            int(window["repetition"]): (index, one)
            for index, window in self.windows[members, partition]
            for one in window["measured"]
            if one["slot"] == slot
        }

    def _law(self, members: tuple[int, ...], partition: str, slot: int, column: int) -> Law:
        before, after = self._measured((slot,), "", slot), self._measured(members, partition, slot)
        if not _progress([*before.values(), *after.values()]):
            return unknown(NO_PROGRESS)
        return paired([(_window_rate(before[turn][1], column), _window_rate(one, column))
                        for turn, (_, one) in after.items() if turn in before])  # fmt: skip

    def _step(self, members: tuple[int, ...], partition: str, slot: int) -> Value:
        found = self._measured(members, partition, slot).values()
        if self.facts["participants"][slot].get("region") == "window":
            return Value(None, "ns", "measured", reason=NO_STEPS)
        estimate = median([_window_rate(one, STEP).mean for _, one in found])
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


def _progress(found: list[tuple[int, dict[str, Any]]]) -> bool:
    """Whether all of them did something that can be counted."""
    return all(sum(piece[2] for piece in one["slices"]) > 0 for _, one in found)


def _window_rate(one: dict[str, Any], column: int) -> Rate:
    """Time or CPU time per step of a participant in a window."""
    pieces = np.array(one["slices"], dtype=np.float64)
    return rate(pieces[:, column], pieces[:, 2])
