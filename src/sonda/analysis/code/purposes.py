"""What each sample of a step is for: by what it calls, where in the step it lies, and whom its values reach.

A step has marks: the calls by which its forward and backward begin. Where a sample and a mark lie in one function,
their lines tell which comes first, and the source tells whether values of the one reach the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sonda.analysis.code.activities import CONVERSIONS, Callee
from sonda.analysis.code.placement import DOING
from sonda.analysis.code.summary import OTHER, Activity, Doing

DATA, FORWARD, BACKWARD = "data", "forward", "backward"
FIRST_MARKS, LAST_MARKS = (FORWARD, "fused", "loss"), (BACKWARD, "optimizer")
"""Phases that mark where a step's network begins, and where what it has made is used; the first that was sampled is
taken."""
CALLER = "0"
"""Among what a line feeds: whoever called its function."""
ASIDE = 0.1
"""A statement that writes records for less than a tenth of its time does something else."""


class UserFrame(NamedTuple):
    """A frame of the user's code, with what its source tells."""

    function: tuple[str, str, int]
    """File, name and first line."""
    statement: int
    loops: frozenset[str]
    """Lines of the loops around it."""
    feeds: frozenset[str]
    """Lines of statements that its values reach."""
    known: bool
    """Whether there was a source."""


class PlacedSample(NamedTuple):
    """A sample with the user's frames that it lies in, the outermost first, and what the innermost one calls."""

    frames: Sequence[UserFrame]
    callee: Callee
    doing: int
    call: str
    phase: str
    weight: float
    collecting: bool


class Position(NamedTuple):
    """Where a sample lies in its step."""

    after: bool
    """Behind the begin of the network's forward."""
    before: bool
    feeds: bool
    """Whether its values may reach a forward or a backward."""
    group: tuple[object, ...]
    """The call in the function that steps which it belongs to."""
    loop: tuple[object, ...] | None
    """The innermost function with a loop inside of the step; None where there is none."""
    marked: bool
    """Whether it is a line by which a phase begins."""
    known: bool
    """Whether there were sources of the function that steps and of those that it calls on the way to the sample."""


class StepMarks:
    """Where the network of a step begins, and where what it has made is used."""

    def __init__(self, samples: Iterable[PlacedSample]) -> None:
        weights: dict[str, dict[tuple[UserFrame, ...], float]] = defaultdict(lambda: defaultdict(float))
        self.lines: set[tuple[object, int]] = set()
        """Functions and statements by which phases begin."""
        for sample in samples:
            if sample.frames:
                weights[sample.phase][tuple(sample.frames)] += sample.weight
                if sample.phase != OTHER:
                    self.lines.add((sample.frames[-1].function, sample.frames[-1].statement))
        self.first, self.last = (
            next((max(weights[name], key=weights[name].__getitem__) for name in names if name in weights), None)
            for names in (FIRST_MARKS, LAST_MARKS)
        )

    @property
    def trains(self) -> bool:
        return self.last is not None

    def place(self, sample: PlacedSample) -> Position:
        """Where a sample lies, as far as marks tell."""
        frames = sample.frames
        marks = [mark for mark in (self.first, self.last) if mark is not None]
        levels = [_find_common(frames, mark) for mark in marks]
        after = before = False
        if self.first is not None and levels[0] >= 0:
            own, mark = frames[levels[0]].statement, self.first[levels[0]].statement
            after, before = own > mark, own < mark
        inner = max(levels, default=-1)
        # Where it lies in the forward itself, the function that steps is the one that calls backward too.
        level = inner if sample.phase == OTHER or not marks else min(levels)
        return Position(
            after, before, any(_reaches(frames, mark, at) for mark, at in zip(marks, levels, strict=True)),
            (frames[inner].function, frames[inner].statement, *(at.function for at in frames[inner + 1 : inner + 2]))
            if inner >= 0 else (),
            _find_loop(frames, level, marks),
            bool(frames) and (frames[-1].function, frames[-1].statement) in self.lines,
            all(frame.known for frame in frames[max(inner, 0) :]),
        )  # fmt: skip


def _find_common(frames: Sequence[UserFrame], mark: Sequence[UserFrame]) -> int:
    """The innermost level at which two stacks are in the same call of a function; -1 for none."""
    for level, (own, other) in enumerate(zip(frames, mark, strict=False)):
        if own.function != other.function:
            return level - 1
        if own.statement != other.statement:
            return level
    return min(len(frames), len(mark)) - 1


def _reaches(frames: Sequence[UserFrame], mark: Sequence[UserFrame], level: int) -> bool:
    """Whether values of a sample may reach a mark; where nothing is known, they may."""
    if level < 0:
        return True
    if any(frame.known and CALLER not in frame.feeds for frame in frames[level + 1 :]):
        return False
    own, other = frames[level], mark[level]
    return not own.known or own.statement == other.statement or str(other.statement) in own.feeds


def _find_loop(
    frames: Sequence[UserFrame], level: int, marks: Sequence[Sequence[UserFrame]]
) -> tuple[object, ...] | None:
    """The innermost function with a loop that is not the loop over steps."""
    steps = {loop for mark in marks if 0 <= level < len(mark) for loop in mark[level].loops}
    for at in range(len(frames) - 1, max(level, 0) - 1, -1):
        if frames[at].loops - (steps if at == level else frozenset()):
            return frames[at].function if level >= 0 or at > 0 else None
    return None


def find_purposes(samples: Sequence[PlacedSample]) -> list[Activity]:
    """What each sample of the thread that steps is for; UNKNOWN where nothing tells."""
    marks = StepMarks(samples)
    positions = [marks.place(sample) for sample in samples]
    purposes = [_judge(sample, position) for sample, position in zip(samples, positions, strict=True)]
    _judge_loops(samples, positions, purposes)
    _judge_writers(samples, purposes)
    _judge_statements(samples, purposes)
    if marks.trains:
        _judge_groups(samples, positions, purposes)
    return [purpose or Activity.UNKNOWN for purpose in purposes]


def _judge(sample: PlacedSample, position: Position) -> Activity | None:
    """What one sample is for by itself."""
    if not sample.frames:
        return Activity.COLLECTION if sample.collecting else None
    doing, callee = DOING[sample.doing], sample.callee
    named = callee.find_activity(sample.phase == FORWARD)
    if named is Activity.COLLECTION:
        return named
    if sample.phase == DATA:
        return Activity.INPUT
    if sample.collecting and named is None:
        return Activity.COLLECTION  # what copies or writes makes objects, and has their collections for its own
    if callee.waits(doing, sample.call) and named not in (Activity.LOG, Activity.CHECKPOINT):
        return Activity.WAIT
    if named is Activity.INPUT:
        return Activity.INPUT if not position.after and sample.phase == OTHER else None
    if named is not None:
        return named
    alone = position.loop is None and position.known  # without a source nobody knows of loops, and whom values reach
    if sample.phase == OTHER and position.before and position.feeds and alone and not position.marked:
        return Activity.INPUT
    return None


def _judge_loops(
    samples: Sequence[PlacedSample], positions: Sequence[Position], purposes: list[Activity | None]
) -> None:
    """A loop whose turns are mostly Python code is one, with the short calls that it makes, with smaller copies of its
    function, those from lists and into lists, and with the conversion of what loops have filled, there or in functions
    that are called there, however long."""
    loops: dict[object, list[int]] = defaultdict(list)
    copies: dict[object, list[int]] = defaultdict(list)
    for at, (sample, position, purpose) in enumerate(zip(samples, positions, purposes, strict=True)):
        copied = purpose is Activity.COPY and sample.callee.name != "deepcopy"
        if sample.phase == DATA or not (purpose is None or copied):
            continue
        if position.loop is not None or (copied and sample.callee.walks):
            loops[position.loop or sample.frames[-1].function].append(at)
        elif copied:
            copies[sample.frames[-1].function].append(at)
    for function, rows in loops.items():
        whole = _add_up(samples, rows)
        if 2 * _add_up(samples, (at for at in rows if _is_turn(samples[at], purposes[at]))) < whole:
            continue
        beside = copies.get(function, [])
        for at in [*rows, *(beside if _add_up(samples, beside) < whole else ())]:
            if purposes[at] is Activity.COPY or not samples[at].callee.framework:
                purposes[at] = Activity.LOOP
    left = [at for at, purpose in enumerate(purposes) if purpose is Activity.COPY and samples[at].phase != DATA]
    for at in _find_conversions(samples, [at for at, purpose in enumerate(purposes) if purpose is Activity.LOOP], left):
        purposes[at] = Activity.LOOP


def _is_turn(sample: PlacedSample, purpose: Activity | None) -> bool:
    """Whether it is Python code of a loop, and not one long copy that a turn makes."""
    return _is_python(sample) and (purpose is None or sample.callee.walks)


def _find_conversions(samples: Sequence[PlacedSample], filling: Iterable[int], copies: Iterable[int]) -> list[int]:
    """Those copies that turn a list which these samples have filled into a tensor or an array, element by element."""
    feeds: dict[object, set[str]] = defaultdict(set)
    for at in filling:
        for frame in samples[at].frames:
            feeds[frame.function] |= frame.feeds
    return [
        at for at in copies
        if samples[at].callee.name in CONVERSIONS
        and str(samples[at].frames[-1].statement) in feeds[samples[at].frames[-1].function]
    ]  # fmt: skip


def _judge_writers(samples: Sequence[PlacedSample], purposes: list[Activity | None]) -> None:
    """What a function computes that writes records, and hands to nobody, it computes for the records."""
    writers = {
        sample.frames[-1].function
        for sample, purpose in zip(samples, purposes, strict=True)
        if purpose is Activity.LOG and sample.frames
    }
    for at, sample in enumerate(samples):
        if purposes[at] not in (None, Activity.LOOP, Activity.COPY) or not sample.frames:
            continue
        frame = sample.frames[-1]
        if frame.function in writers and frame.known and CALLER not in frame.feeds and sample.phase == OTHER:
            purposes[at] = Activity.LOG


def _judge_statements(samples: Sequence[PlacedSample], purposes: list[Activity | None]) -> None:
    """A statement that writes records, and whose value reaches nothing, computes its arguments for the records too;
    not where it runs layers, or several phases."""
    below: dict[tuple[object, int], list[int]] = defaultdict(list)
    for at, sample in enumerate(samples):
        for frame in sample.frames:
            if frame.known and not frame.feeds:
                below[frame.function, frame.statement].append(at)
    for rows in below.values():
        written = _add_up(samples, (at for at in rows if purposes[at] is Activity.LOG))
        alone = len({samples[at].phase for at in rows}) == 1 and not any(samples[at].callee.layer for at in rows)
        if not alone or not written or written < ASIDE * _add_up(samples, rows):
            continue
        for at in rows:
            if purposes[at] in (None, Activity.LOOP, Activity.COPY, Activity.INPUT):
                purposes[at] = Activity.LOG


def _add_up(samples: Sequence[PlacedSample], rows: Iterable[int]) -> float:
    return sum(samples[at].weight for at in rows)


def _is_python(sample: PlacedSample) -> bool:
    return DOING[sample.doing] is Doing.PYTHON and not sample.callee.framework


def _judge_groups(
    samples: Sequence[PlacedSample], positions: Sequence[Position], purposes: list[Activity | None]
) -> None:
    """A call behind the forward whose values reach nothing is there for one thing: what takes most of it. Where names
    do not tell for what, it computes a metric."""
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for at, (sample, position) in enumerate(zip(samples, positions, strict=True)):
        if sample.phase == OTHER and position.after and not position.feeds and not position.marked:
            groups[position.group].append(at)
    for rows in groups.values():
        times: dict[Activity, float] = defaultdict(float)
        for at in rows:
            purpose = purposes[at]
            named = purpose not in (None, Activity.LOOP, Activity.INPUT)
            times[purpose if named and purpose is not None else Activity.METRIC] += samples[at].weight
        if Activity.CHECKPOINT in times:
            # The file that is opened and written holds what is saved.
            times[Activity.CHECKPOINT] += times.pop(Activity.LOG, 0.0)
        main = max(times, key=times.__getitem__)
        for at in rows:
            purposes[at] = main
