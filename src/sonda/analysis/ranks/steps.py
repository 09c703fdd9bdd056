"""The steps of every rank of an imported run: what they are spent on, and which operations take that time.

A rank with a device computes when the device does. Without one, its operations compute; in a profile only those of the
model, which it tells from the framework's own work. What only stands around others while a collective is under way is
waiting, not computing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sonda.analysis.ranks.collectives import RankCollectives, communicates
from sonda.analysis.traces.operations import OperationTable
from sonda.analysis.traces.profile import COLUMNS, is_profile
from sonda.analysis.traces.step_breakdown import (
    COMMUNICATION,
    COMPUTE,
    HOST,
    INPUT,
    NOTHING,
    OPERATIONS,
    Breakdown,
    classes,
)
from sonda.record.files.tables import read_blocks
from sonda.record.run import Run
from sonda.record.spans import Spans

LOADING = "enumerate(DataLoader)"
"""How PyTorch's mark of waiting for the next batch begins."""
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
    for spans in read_blocks(run, COLUMNS):
        if not len(spans):
            continue
        rank = int(spans.number("rank")[0])  # a block holds one rank
        kinds = _classes(spans, collectives[rank], (OPERATIONS,) if is_profile(run) else (OPERATIONS, HOST))
        ranks[rank].feed(spans, kinds)
        # Operations are told from what stands around them by the table itself.
        listed = np.where((kinds == COMPUTE) & spans.words("clock").equal("host"), OPERATIONS, kinds)
        tables[rank].feed(spans, listed, ranks[rank].in_step(spans.number("start")))
    result = {}
    for rank, breakdown in ranks.items():
        steps = breakdown.result()
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


def _classes(spans: Spans, collectives: RankCollectives, computing: tuple[int, ...]) -> np.ndarray:
    """The class of every span, as `step_breakdown.classes`; without a device those of `computing` compute."""
    kinds = classes(spans)
    kind, name = spans.words("kind"), spans.words("name")
    op = kind.equal("op")
    communicating = op & np.array([communicates(word) for word in name.words])[name.codes]
    if not collectives.on_device:
        kinds[op & np.isin(kinds, computing)] = COMPUTE
        kinds[op & _around(spans, collectives)] = HOST
    kinds[communicating] = COMMUNICATION
    loading = op & np.array([word.startswith(LOADING) for word in name.words])[name.codes]
    if loading.any():
        kinds[(kinds != NOTHING) & _inside(spans, np.flatnonzero(loading))] = INPUT
    return kinds


def _around(spans: Spans, collectives: RankCollectives) -> np.ndarray:
    """Which spans hold others, and a whole collective of another thread."""
    start, finish = collectives.start, collectives.finish
    if not len(start):
        return np.zeros(len(spans), bool)
    earliest = np.append(np.minimum.accumulate(finish[::-1])[::-1], np.iinfo(np.int64).max)
    begin = spans.number("start")
    holds = earliest[np.searchsorted(start, begin, "left")] <= begin + spans.number("duration")
    first = int(spans.number("id")[0])
    parents = spans.number("parent") - first
    mine = np.zeros(len(spans), bool)
    mine[parents[parents >= 0]] = True
    return holds & mine


def _inside(spans: Spans, outer: np.ndarray) -> np.ndarray:
    """Which spans lie in one of the `outer` ones on its thread, or are one."""
    start, thread = spans.number("start"), spans.number("thread")
    end = start + spans.number("duration")
    inside = np.zeros(len(spans), bool)
    for number in np.unique(thread[outer]).tolist():
        holders = outer[thread[outer] == number]
        mine = np.flatnonzero((thread == number) & spans.words("clock").equal("host"))
        at = np.searchsorted(start[holders], start[mine], "right") - 1
        inside[mine] = (at >= 0) & (end[mine] <= end[holders][np.maximum(at, 0)])
    return inside
