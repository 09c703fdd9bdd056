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

from sonda.analysis.collectives import RankCollectives, communicates
from sonda.analysis.operation_table import OperationTable
from sonda.analysis.profile_summary import COLUMNS, is_profile
from sonda.analysis.step_breakdown import COMMUNICATION, COMPUTE, HOST, INPUT, NOTHING, OPERATIONS, Breakdown, classes
from sonda.record.run import Run
from sonda.record.span import Spans
from sonda.record.span_file import read_blocks

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
    found = _read(run, collectives, {rank: Breakdown(rank) for rank in collectives}, True)
    if any(len(one.keys) for one in found.values()):
        return found
    whole = {rank: Breakdown.whole(rank, WHOLE, one.begin, one.end) for rank, one in collectives.items()}
    return _read(run, collectives, whole, False)


def _read(
    run: Run, collectives: Mapping[int, RankCollectives], ranks: dict[int, Breakdown], marked: bool
) -> dict[int, RankSteps]:
    tables = {rank: OperationTable() for rank in ranks}
    for spans in read_blocks(run, COLUMNS):
        if not len(spans):
            continue
        rank = int(spans.number("rank")[0])  # a block holds one rank
        found = _classes(spans, collectives[rank], (OPERATIONS,) if is_profile(run) else (OPERATIONS, HOST))
        ranks[rank].feed(spans, found)
        # Operations are told from what stands around them by the table itself.
        listed = np.where((found == COMPUTE) & spans.words("clock").equal("host"), OPERATIONS, found)
        tables[rank].feed(spans, listed, ranks[rank].in_step(spans.number("start")))
    result = {}
    for rank, breakdown in ranks.items():
        steps = breakdown.result()
        keys, numbered = step_keys(steps.names)
        operations: dict[str, float] = {}
        for one in tables[rank].rows():
            if one.in_steps and one.total:
                # Own time is known of all calls together; those outside steps are taken to be like the others.
                operations[one.name] = operations.get(one.name, 0.0) + one.own * one.in_steps / one.total
        result[rank] = RankSteps(rank, keys, steps.starts, steps.ends, steps.parts, operations, numbered, marked)
    return result


def step_keys(names: tuple[str, ...]) -> tuple[tuple[Key, ...], bool]:
    """Steps by number where every name ends in one and none comes twice, else by their order among their name."""
    said = [NUMBERED.fullmatch(name) for name in names]
    keys = [(found[1], int(found[2])) for found in said if found is not None]
    if names and len(set(keys)) == len(names):
        return tuple(keys), True
    seen: dict[str, int] = {}
    counted = []
    for name, found in zip(names, said, strict=True):
        word = found[1] if found is not None else name
        seen[word] = seen.get(word, -1) + 1
        counted.append((word, seen[word]))
    return tuple(counted), False


def _classes(spans: Spans, collectives: RankCollectives, computing: tuple[int, ...]) -> np.ndarray:
    """The class of every span, as `step_breakdown.classes`; without a device those of `computing` compute."""
    found = classes(spans)
    kind, name = spans.words("kind"), spans.words("name")
    op = kind.equal("op")
    said = op & np.array([communicates(word) for word in name.words])[name.codes]
    if not collectives.on_device:
        found[op & np.isin(found, computing)] = COMPUTE
        found[op & _around(spans, collectives)] = HOST
    found[said] = COMMUNICATION
    loading = op & np.array([word.startswith(LOADING) for word in name.words])[name.codes]
    if loading.any():
        found[(found != NOTHING) & _inside(spans, np.flatnonzero(loading))] = INPUT
    return found


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
    found = np.zeros(len(spans), bool)
    for one in np.unique(thread[outer]).tolist():
        holders = outer[thread[outer] == one]
        mine = np.flatnonzero((thread == one) & spans.words("clock").equal("host"))
        at = np.searchsorted(start[holders], start[mine], "right") - 1
        found[mine] = (at >= 0) & (end[mine] <= end[holders][np.maximum(at, 0)])
    return found
