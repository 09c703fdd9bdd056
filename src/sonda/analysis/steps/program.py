"""The whole program: where the time of a command went, from its start to its end, steps and everything around them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sonda.analysis.span_tree import nearest
from sonda.analysis.summary import Value
from sonda.record.run import Run
from sonda.record.spans import PARTS, Spans

START, IMPORTS, PREPARATION, COMPILE, CHECKPOINTS = "start", "imports", "preparation", "compile", "checkpoints"
BETWEEN, ENDING, RUNNING, OBSERVING = "between", "ending", "running", "observing"
STAGES = (START, IMPORTS, PREPARATION, COMPILE, *PARTS, CHECKPOINTS, BETWEEN, RUNNING, ENDING, OBSERVING)
"""In the order in which they are shown. `start` is the interpreter's own, `running` all else that a program without
steps does, `between` and `ending` what no other stage covers between its steps and after the last."""
NAMED = {"import": IMPORTS, "checkpoint": CHECKPOINTS, "observing": OBSERVING}
"""Stages by the name of their spans."""
AGAIN, BACKWARD = "again", "backward"
"""Paths of the compilation of code that was compiled before, and of the backward of what was compiled."""
MOST_PACKAGES = 3


@dataclass(frozen=True)
class ProgramStage:
    """What one stage took; stages are exclusive and add up to the program."""

    name: str
    """One of `STAGES`."""
    time: Value
    """ns."""
    share: float
    """Of the program's time, 0 to 1."""
    count: int = 0
    """Steps, outermost imports, files or compilations; 0 where there is nothing to count."""
    of_it: tuple[tuple[str, float], ...] = ()
    """Of imports: the packages that took most, with their ns, without what they import of other packages."""
    again: int = 0
    """Of compilations: those of code that was compiled before."""
    line: str = ""
    """Of files of weights: where most of the time in them was asked for."""


@dataclass(frozen=True)
class Program:
    """The time of a command, from its start to the end of its last process."""

    whole: Value
    """ns."""
    stages: tuple[ProgramStage, ...]
    """Those that took any time."""

    def stage(self, name: str) -> ProgramStage | None:
        return next((stage for stage in self.stages if stage.name == name), None)

    @property
    def steps(self) -> int:
        """Steps of all parts, counted and warm-up ones included."""
        return sum(stage.count for stage in self.stages if stage.name in PARTS)

    @property
    def steps_share(self) -> float:
        """The part of the program's time that its steps take, 0 to 1."""
        return sum(stage.share for stage in self.stages if stage.name in PARTS)


class _Intervals(NamedTuple):
    """Of one stage in one thread; ns since the run began."""

    stage: str
    thread: int
    start: np.ndarray
    end: np.ndarray


def summarise_program(run: Run) -> Program | None:
    """Where a command's time went; None of other runs, and where no Python process of it told its stages.

    Of stages inside one another the innermost counts. Of several threads and processes the one with the most time in
    steps counts, then the one that lived longest; others fill the time for which those before them told nothing.
    """
    spans = run.spans
    processes = np.flatnonzero(spans.where(kind="stage", name="process"))
    runs = np.flatnonzero(spans.where(kind="run"))
    if run.info.workload.command is None or not len(processes) or not len(runs):
        return None
    whole = int(spans.number("duration")[runs[0]])
    if whole <= 0:
        return None
    intervals = list(_intervals(spans))
    start, end = spans.number("start"), spans.number("start") + spans.number("duration")
    apart = spans.where(kind="stage")  # imports inside one another too, and whole processes
    sides = [side for interval in intervals for side in (interval.start, interval.end)]
    bounds = np.concatenate([np.array([0, whole]), start[apart], end[apart], *sides])
    edges = np.unique(np.clip(bounds, 0, whole))
    begin, lasted = edges[:-1], np.diff(edges)
    stages = np.full(len(begin), -1)
    by_thread: dict[int, list[_Intervals]] = {}
    for interval in intervals:
        by_thread.setdefault(interval.thread, []).append(interval)
    for thread in _order_intervals(spans, intervals, processes):
        sides = [side for interval in by_thread[thread] for side in (interval.start, interval.end)]
        first, last = np.searchsorted(begin, (min(map(np.min, sides)), max(map(np.max, sides))))
        left = first + np.flatnonzero(stages[first:last] < 0)
        stages[left] = _innermost(by_thread[thread], begin[left])
    _fill(stages, begin, spans, intervals, processes)
    times = np.bincount(stages, weights=lasted, minlength=len(STAGES))
    counts = _counts(spans)
    again = _compilations(spans, AGAIN)
    importing = stages == STAGES.index(IMPORTS)
    packages = _packages(spans, begin[importing], lasted[importing])
    return Program(
        whole=Value(float(whole), "ns", "measured"),
        stages=tuple(
            ProgramStage(
                name, Value(float(time), "ns", "measured"), float(time / whole), counts.get(name, 0),
                packages if name == IMPORTS else (), again if name == COMPILE else 0,
                _saving_line(spans) if name == CHECKPOINTS else "",
            )
            for name, time in zip(STAGES, times, strict=True) if time > 0
        ),
    )  # fmt: skip


def _intervals(spans: Spans) -> Iterator[_Intervals]:
    """The times of every stage, thread by thread, those that touch or overlap as one."""
    start = spans.number("start")
    end = start + spans.number("duration")
    thread = spans.number("thread")
    for stage, rows in _rows(spans):
        grouped = rows[np.argsort(thread[rows], kind="stable")]
        which, first = np.unique(thread[grouped], return_index=True)
        for number, mine in zip(which.tolist(), np.split(grouped, first[1:]), strict=False):
            yield _Intervals(stage, number, *_joined(start[mine], end[mine]))


def _rows(spans: Spans) -> Iterator[tuple[str, np.ndarray]]:
    """Rows of the spans of every stage. What ran under an emulator is another run of the program."""
    here = ~spans.words("pass").equal("modelled")
    for name, stage in NAMED.items():
        yield stage, np.flatnonzero(spans.where(kind="stage", name=name))
    yield COMPILE, np.flatnonzero(spans.where(kind="compile") & here)
    # A step that only counts what a graph does was never run, and took no time.
    steps = np.flatnonzero(spans.where(kind="step") & here & (spans.number("duration") > 0))
    part = nearest(spans.number("parent"), spans.where(kind="part"))[steps]
    names = spans.words("name")
    for name in PARTS:
        yield name, steps[(part >= 0) & names.equal(name)[np.maximum(part, 0)]]


def _joined(start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    reached = np.maximum.accumulate(end)
    first = np.concatenate(([True], start[1:] > reached[:-1]))[: len(start)]
    last = np.append(np.flatnonzero(first)[1:] - 1, len(start) - 1) if len(start) else np.zeros(0, dtype=np.int64)
    return start[first], reached[last]


def _order_intervals(spans: Spans, intervals: list[_Intervals], processes: np.ndarray) -> list[int]:
    """Threads: those that step most first, then the main threads of processes by how long they lived."""
    stepped: dict[int, int] = {}
    for interval in intervals:
        if interval.stage in PARTS:
            stepped[interval.thread] = stepped.get(interval.thread, 0) + int((interval.end - interval.start).sum())
    lived = dict(
        zip(spans.number("thread")[processes].tolist(), spans.number("duration")[processes].tolist(), strict=True)
    )
    threads = {interval.thread for interval in intervals}
    return sorted(threads, key=lambda thread: (-stepped.get(thread, 0), -lived.get(thread, 0), thread))


def _innermost(intervals: list[_Intervals], moments: np.ndarray) -> np.ndarray:
    """The stage at each moment that began last of those that are open, as its place in `STAGES`; -1 for none."""
    stages = np.full(len(moments), -1)
    since = np.full(len(moments), -1, dtype=np.int64)
    for interval in intervals:
        _take(stages, since, STAGES.index(interval.stage), moments, interval.start, interval.end)
    return stages


def _take(
    stages: np.ndarray, since: np.ndarray, number: int, moments: np.ndarray, start: np.ndarray, end: np.ndarray
) -> None:  # fmt: skip
    """Give the moments inside these intervals to `number`, where none is open that began later (`since`). Moments and
    intervals are in order."""
    if not len(start):
        return
    near = slice(*np.searchsorted(moments, (start[0], end[-1])).tolist())
    stages, since, moments = stages[near], since[near], moments[near]
    at = np.searchsorted(start, moments, "right") - 1
    began = start[at]
    inside = (moments < end[at]) & (began >= since)
    stages[inside], since[inside] = number, began[inside]


def _fill(
    stages: np.ndarray, moments: np.ndarray, spans: Spans, intervals: list[_Intervals], processes: np.ndarray
) -> None:  # fmt: skip
    """Name the time that no span tells of, by where it lies."""
    start = spans.number("start")
    begun = start[processes].min()
    ended = (start + spans.number("duration"))[processes].max()
    steps = [interval for interval in intervals if interval.stage in PARTS and len(interval.start)]
    middle, last = RUNNING, ended
    first = ended
    if steps:
        middle = BETWEEN
        first, last = min(step.start.min() for step in steps), max(one.end.max() for one in steps)
    for name, inside in (
        (START, moments < begun),
        (PREPARATION if steps else RUNNING, (moments >= begun) & (moments < first)),
        (middle, (moments >= np.maximum(begun, first)) & (moments < last)),
        (ENDING, moments >= np.maximum(begun, last)),
    ):
        stages[(stages < 0) & inside] = STAGES.index(name)


def _counts(spans: Spans) -> dict[str, int]:
    counts = {stage: len(rows) for stage, rows in _rows(spans) if stage != OBSERVING}
    # A backward that is compiled when it is first called belongs to the compilation of its forward.
    return {**counts, COMPILE: counts[COMPILE] - _compilations(spans, BACKWARD)}


def _saving_line(spans: Spans) -> str:
    """The line in which most of the time in files of weights was asked for; '' where it is not known."""
    rows = np.flatnonzero(spans.where(kind="stage", name="checkpoint"))
    paths, lasted = spans.words("path"), spans.number("duration")
    times: dict[str, int] = {}
    for row in rows.tolist():
        line = paths.words[paths.codes[row]].partition(" ")[2]
        times[line] = times.get(line, 0) + int(lasted[row])
    return max(times, key=lambda line: times[line], default="")


def _compilations(spans: Spans, path: str) -> int:
    return int(spans.words("path").equal(path)[dict(_rows(spans))[COMPILE]].sum())


def _packages(spans: Spans, moments: np.ndarray, lasted: np.ndarray) -> tuple[tuple[str, float], ...]:
    """The packages whose imports took most of these moments, with their ns: of each moment the innermost import's."""
    rows = np.flatnonzero(spans.where(kind="stage", name="import"))
    paths = spans.words("path")
    names = [paths.words[code].partition(".")[0] for code in paths.codes[rows].tolist()]
    start = spans.number("start")[rows]
    end = start + spans.number("duration")[rows]
    whose = np.full(len(moments), -1)
    since = np.full(len(moments), -1, dtype=np.int64)
    places: dict[str, list[int]] = {}
    for place, package in enumerate(names):
        places.setdefault(package, []).append(place)
    packages = list(places)
    for number, mine in enumerate(places.values()):
        _take(whose, since, number, moments, *_joined(start[mine], end[mine]))
    times = np.bincount(whose[whose >= 0], weights=lasted[whose >= 0], minlength=len(packages))
    spent = {package: float(time) for package, time in zip(packages, times, strict=True) if time > 0}
    return tuple(sorted(spent.items(), key=lambda item: -item[1])[:MOST_PACKAGES])
