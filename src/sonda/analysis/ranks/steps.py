"""The steps of every rank of an imported run: what they are spent on, and which operations take that time.

A rank with a device computes when the device does. Without one, its operations compute (`HostClasses`); in a profile
only those of the model, which it tells from the framework's own work.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from sonda.analysis.ranks.collectives import RankCollectives
from sonda.analysis.traces.operations import OperationTable
from sonda.analysis.traces.profile import COLUMNS, is_profile
from sonda.analysis.traces.step_breakdown import (
    COMMUNICATION,
    COMPUTE,
    INPUT,
    NOTHING,
    OPERATIONS,
    Breakdown,
    Enclosure,
    HostClasses,
    as_operations,
    classes,
)
from sonda.record.conventions.profile_names import LOADING, executes_collective
from sonda.record.files.tables import read_blocks
from sonda.record.run import Run
from sonda.record.spans import Spans

NUMBERED = re.compile(r"(.*?)[#\s_]*(\d{1,18})")
WHOLE = "the whole trace"
Key = tuple[str, int]
"""A step: what it is called, and its number."""


@dataclass(frozen=True)
class RankSteps:
    """The steps of one rank, in order; times in ns."""

    rank: int
    keys: tuple[Key, ...]
    starts: np.ndarray
    ends: np.ndarray
    parts: np.ndarray
    """A row for each step, a column for each of `step_breakdown.PARTS`."""
    operations: dict[str, float]
    """Own time of operations that begin in steps, by name."""
    numbered: bool
    """Whether the trace numbers its steps; else they are counted."""
    marked: bool
    """Whether it has any; else all of it counts as one."""


def steps_of(run: Run, collectives: Mapping[int, RankCollectives]) -> dict[int, RankSteps]:
    """By rank, with memory that grows with steps only. Where no rank marks steps, each has one: all of it."""
    steps = _read(run, collectives, {rank: Breakdown(rank) for rank in collectives}, True)
    if any(len(rank_steps.keys) for rank_steps in steps.values()):
        return steps
    whole = {
        rank: Breakdown.whole(rank, WHOLE, collectives_of_rank.begin, collectives_of_rank.end)
        for rank, collectives_of_rank in collectives.items()
    }
    return _read(run, collectives, whole, False)


def _read(
    run: Run, collectives: Mapping[int, RankCollectives], ranks: dict[int, Breakdown], marked: bool
) -> dict[int, RankSteps]:
    tables = {rank: OperationTable() for rank in ranks}
    on_host = {rank: not (of_rank.on_device or is_profile(run)) for rank, of_rank in collectives.items()}
    told = {rank: _classifier(run, of_rank) for rank, of_rank in collectives.items()}
    for spans in read_blocks(run, COLUMNS):
        if not len(spans):
            continue
        rank = int(spans.number("rank")[0])  # a block holds one rank
        kinds = told[rank](spans)
        ranks[rank].feed(spans, kinds, innermost=on_host[rank])
        tables[rank].feed(spans, as_operations(kinds, spans), ranks[rank].in_step(spans.number("start")))
    result = {}
    for rank, breakdown in ranks.items():
        steps = breakdown.result()
        if on_host[rank]:
            steps.parts[:, COMPUTE] += steps.parts[:, OPERATIONS]
            steps.parts[:, OPERATIONS] = 0
        keys, numbered = step_keys(steps.names)
        operations: dict[str, float] = {}
        for row in tables[rank].rows():
            if row.in_steps and row.total:
                # Own time is known of all calls together; those outside steps are taken to be like the others.
                operations[row.name] = operations.get(row.name, 0.0) + row.own * row.in_steps / row.total
        result[rank] = RankSteps(rank, keys, steps.starts, steps.ends, steps.parts, operations, numbered, marked)
    return result


def step_keys(names: tuple[str, ...]) -> tuple[tuple[Key, ...], bool]:
    """Steps by number where every name ends in one and none comes twice, else by their order among their name."""
    matches = [NUMBERED.fullmatch(name) for name in names]
    keys = [(match[1], int(match[2])) for match in matches if match is not None]
    if names and len(set(keys)) == len(names):
        return tuple(keys), True
    seen: dict[str, int] = {}
    counted = []
    for name, match in zip(names, matches, strict=True):
        word = match[1] if match is not None else name
        seen[word] = seen.get(word, -1) + 1
        counted.append((word, seen[word]))
    return tuple(counted), False


def _classifier(run: Run, collectives: RankCollectives) -> Callable[[Spans], np.ndarray]:
    """What gives the class of every span of a rank's next block: a profile of TensorFlow or JAX without a device
    computes by operations of the model, a trace of PyTorch without one by any."""
    if collectives.on_device:
        return _DeviceClasses().of
    return _model_classes if is_profile(run) else HostClasses().of


def _model_classes(spans: Spans) -> np.ndarray:
    kinds = classes(spans)
    kinds[kinds == OPERATIONS] = COMPUTE
    return kinds


@dataclass
class _DeviceClasses:
    """Classes of spans of a rank that has a device, where the host may communicate, too."""

    _loading: Enclosure = field(default_factory=Enclosure)

    def of(self, spans: Spans) -> np.ndarray:
        kinds, name = classes(spans), spans.words("name")
        op = spans.words("kind").equal("op")
        kinds[op & np.array([executes_collective(word) for word in name.words])[name.codes]] = COMMUNICATION
        loading = op & np.array([word.startswith(LOADING) for word in name.words])[name.codes]
        kinds[(kinds != NOTHING) & self._loading.holds(spans, loading)] = INPUT
        return kinds
