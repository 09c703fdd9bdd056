"""Steps of profiles that do not mark them, found in what the profile has: calls of compiled functions, or of input.

* TensorFlow and Keras: calls of a `tf.function`; JAX: calls of a jitted function. Of all functions the one with the
  largest product of calls and their median time is the step's; calls inside others are none. A step begins with the
  first batch asked for since the last call, or with its call, and ends where the next begins. Where more than ten times
  the median pause, and more than the median call, lies between two calls, the program did something else meanwhile: the
  step ends with its call, and so does the last. A call of JAX, which only hands work over, ends with its own work, at
  most where the next call begins. Calls outside of these steps, such as those of a validation, are steps of their own
  where they come to a tenth of that product.
* A loop without a compiled function: from one batch asked for to the next. The last is asked for in vain.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np

from sonda.imports.xplane.names import FUNCTION, JITTED, function_name
from sonda.imports.xplane.planes import EventBlock
from sonda.record.conventions.profile_names import GET_NEXT

# ---- Work that calls of jitted functions hand over ------------------------------------------------------------------

NEAR = 20_000
"""ns. Work with shorter pauses is remembered as one stretch."""
MOST = 1 << 18
"""Stretches of one module, 4 MB; of more the shorter half of the pauses is forgotten."""
MODULE = "jit_"
OTHER = re.compile(r"[^\w.\-]")
"""What stands in the name of a function and not in that of its module."""


class ModuleWork:
    """Stretches of XLA's work by module, in ns.

    A call of JAX returns while XLA still works. The profile says of each instruction to which module it belongs, and a
    module has the name of its function: `jit_step` that of `step`. Work of other modules is ignored.
    """

    def __init__(self) -> None:
        self._parts: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
        self._size: dict[str, int] = {}

    def add(self, start: np.ndarray, end: np.ndarray, module: np.ndarray, modules: list[str]) -> None:
        """Instructions of one thread or stream; `module`: of each its place among `modules`, below 0 for none."""
        for place, name in enumerate(modules):
            mine = module == place
            if not name.startswith(MODULE) or not mine.any():
                continue
            key = name.rstrip("_")
            known = self._parts.setdefault(key, [])
            known.append(_merge_stretches(start[mine], end[mine]))
            self._size[key] = self._size.get(key, 0) + len(known[-1][0])
            if self._size[key] > MOST:
                self._join(key, MOST // 2)

    def clear(self) -> None:
        self._parts.clear()
        self._size.clear()

    def until(self, function: str, before: np.ndarray) -> np.ndarray:
        """Until when (ns) what began of a function's module before each of these moments was worked on; the smallest
        number where nothing did."""
        key = (MODULE + OTHER.sub("_", function)).rstrip("_")
        until = np.full(len(before), np.iinfo(np.int64).min)
        if key in self._parts:
            start, end = self._join(key, MOST)
            at = np.searchsorted(start, before, "left") - 1
            until[at >= 0] = end[at[at >= 0]]
        return until

    def _join(self, key: str, most: int) -> tuple[np.ndarray, np.ndarray]:
        """All stretches of a module in the order of time, none inside another; they are kept so."""
        parts = self._parts[key]
        if len(parts) > 1 or self._size[key] > most:
            start, end = (np.concatenate(column) for column in zip(*parts, strict=True))
            joined = _merge_stretches(start, end, most)
            self._parts[key], self._size[key] = [joined], len(joined[0])
        return self._parts[key][0]


def _merge_stretches(start: np.ndarray, end: np.ndarray, most: int = MOST) -> tuple[np.ndarray, np.ndarray]:
    """Beginnings and ends of stretches, in the order of time; where there are more than `most`, the longest pauses
    are between them."""
    order = np.argsort(start, kind="stable")
    start, reached = start[order], np.maximum.accumulate(end[order])
    pause = start[1:] - reached[:-1]
    apart = np.flatnonzero(pause > NEAR) + 1
    if len(apart) >= most:
        apart = np.sort(apart[np.argsort(-pause[apart - 1], kind="stable")[: most - 1]])
    first = np.concatenate(([0], apart))
    return start[first], reached[np.concatenate((apart, [len(start)])) - 1]


# ---- Finding steps ---------------------------------------------------------------------------------------------------

PAUSES = 10
WORTH = 0.1
CALL, INNER, FETCH, COMPILING = range(4)
"""What is remembered: a call of a compiled function, the graph that it runs, a batch asked for, a compilation."""


@dataclass
class _RememberedCalls:
    starts: list[np.ndarray] = field(default_factory=list)
    ends: list[np.ndarray] = field(default_factory=list)
    names: list[np.ndarray] = field(default_factory=list)
    traced: list[np.ndarray] = field(default_factory=list)

    def columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """In the order of time, of equal starts the longest first."""
        parts = (self.starts, self.ends, self.names, self.traced)
        start, end, name, traced = (np.concatenate(column) if column else np.zeros(0, np.int64) for column in parts)
        order = np.lexsort((-end, start))
        return start[order], end[order], name[order], traced[order]


@dataclass(frozen=True)
class FoundSteps:
    """Steps of one thread, times in ns."""

    thread: int
    name: str
    starts: np.ndarray
    ends: np.ndarray
    how: str
    """What a step is, in words."""


class StepFinder:
    """Watches the events of a host go by."""

    def __init__(self) -> None:
        self.marked = False
        """Whether anything marks steps."""
        self._found: dict[tuple[int, int], _RememberedCalls] = {}
        self._names: dict[str, int] = {}
        self._work = ModuleWork()

    def mark(self) -> None:
        """Note that the profile marks its steps, so that none need to be found."""
        self.marked = True
        self._work.clear()

    def add_work(self, rows: np.ndarray, module: np.ndarray, modules: list[str]) -> None:
        """Work of XLA on one thread or stream; `module`: of each row the place of its module among `modules`."""
        if not self.marked:
            self._work.add(rows["start"], rows["start"] + rows["duration"], module, modules)

    def watch(self, thread: int, block: EventBlock, names: list[tuple[int, str]], shown: np.ndarray) -> None:
        """A block's events, those of them that are `shown`; `names` are the long names of its metadata."""
        traced, words = block.texts("tf_function_call")
        calls = shown & (traced >= 0)
        anew = np.isin(traced, [place for place, word in enumerate(words) if word.startswith("traced")])
        called = set(np.unique(block.metadata[calls]).tolist())
        start, end = block.start_ns, block.start_ns + block.duration_ns
        for metadata, name in names:
            jitted = JITTED.match(name)
            if jitted or name.startswith((FUNCTION, *GET_NEXT)):
                kind = CALL if jitted else INNER if name.startswith(FUNCTION) else FETCH
                rows = shown & (block.metadata == metadata)
                self._add(thread, kind, rows, start, end, jitted[1] if jitted else name, anew)
            elif metadata in called:
                self._add(thread, CALL, calls & (block.metadata == metadata), start, end, name, anew)

    def add_compilations(self, thread: int, starts: np.ndarray, ends: np.ndarray) -> None:
        self._add(thread, COMPILING, np.ones(len(starts), bool), starts, ends, "", np.zeros(len(starts), bool))

    def _add(
        self, thread: int, kind: int, rows: np.ndarray, start: np.ndarray, end: np.ndarray, name: str, anew: np.ndarray
    ) -> None:  # fmt: skip
        if not rows.any():
            return
        number = self._names.setdefault(name, len(self._names))
        into = self._found.setdefault((thread, kind), _RememberedCalls())
        into.starts.append(start[rows])
        into.ends.append(end[rows])
        into.names.append(np.full(int(rows.sum()), number))
        into.traced.append(anew[rows].astype(np.int64))

    def steps(self) -> list[FoundSteps]:
        """The steps of the thread that spends most time in them, those of the main function first; empty where nothing
        tells them."""
        by_calls = [self._steps_by_calls(thread) for thread, kind in self._found if kind == CALL]
        by_fetches = [self._steps_by_fetches(thread) for thread, kind in self._found if kind == FETCH]
        for candidates in (by_calls, by_fetches):
            known = [steps for steps in candidates if steps]
            if known:
                return max(known, key=lambda steps: int((steps[0].ends - steps[0].starts).sum()))
        return []

    def traced(self) -> dict[str, tuple[int, int]]:
        """Functions that were traced or compiled meanwhile: how many calls there were, and how many of them did so."""
        words = list(self._names)
        counts: dict[str, tuple[int, int]] = {}
        for thread, kind in self._found:
            if kind != CALL:
                continue
            start, end, name, anew = self._outermost(thread)
            compiled = anew.astype(bool) | self._holds_compilation(start, end, thread)
            for number in np.unique(name[compiled]).tolist():
                calls, before = counts.get(words[number], (0, 0))
                mine = name == number
                counts[words[number]] = calls + int(mine.sum()), before + int(compiled[mine].sum())
        return counts

    def _holds_compilation(self, start: np.ndarray, end: np.ndarray, thread: int) -> np.ndarray:
        """Which of these calls have a compilation inside."""
        remembered = self._found.get((thread, COMPILING))
        if remembered is None:
            return np.zeros(len(start), bool)
        inside = remembered.columns()[0]
        at = np.searchsorted(inside, start, "left")
        return (at < len(inside)) & (inside[np.minimum(at, len(inside) - 1)] < end)

    def _outermost(self, thread: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        start, end, name, anew = self._found[thread, CALL].columns()
        reached = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(end)[:-1]))
        outer = start >= reached
        return start[outer], end[outer], name[outer], anew[outer]

    def _graphs(self, start: np.ndarray, end: np.ndarray, name: np.ndarray, thread: int) -> np.ndarray:
        """Of every call the name of the graph that it runs, or its own: training and testing share the latter."""
        remembered = self._found.get((thread, INNER))
        if remembered is None:
            return name
        inside, _, graph, _ = remembered.columns()
        # The last: a first call runs other graphs before, which set up variables.
        at = np.searchsorted(inside, end, "left") - 1
        known = (at >= 0) & (inside[np.maximum(at, 0)] >= start)
        return np.where(known, graph[np.maximum(at, 0)], name)

    def _end_with_work(self, thread: int, start: np.ndarray, end: np.ndarray, name: np.ndarray) -> np.ndarray:
        """The ends of calls, in the order of time, with the work of their functions; at most where the next begins."""
        words, ends = list(self._names), end.copy()
        for number in np.unique(name).tolist():
            mine = np.flatnonzero(name == number)
            begun = np.append(start, self._next_call_elsewhere(thread, number, int(start[mine[-1]])))[mine + 1]
            over = self._work.until(words[number], begun)
            ends[mine] = np.maximum(end[mine], np.minimum(over, begun))
        return ends

    def _next_call_elsewhere(self, thread: int, number: int, after: int) -> int:
        """When another thread calls a function, after this moment: what is worked on then may be that call's."""
        elsewhere = [
            self._found[other_thread, kind]
            for other_thread, kind in self._found
            if kind == CALL and other_thread != thread
        ]
        starts = [start[(name == number) & (start > after)]
                  for calls in elsewhere for start, name in zip(calls.starts, calls.names, strict=True)]  # fmt: skip
        return min((int(later.min()) for later in starts if len(later)), default=np.iinfo(np.int64).max)

    def _steps_by_calls(self, thread: int) -> list[FoundSteps]:
        start, end, name, _ = self._outermost(thread)
        worked = self._end_with_work(thread, start, end, name)
        name = self._graphs(start, end, name, thread)
        end = worked
        series: list[FoundSteps] = []
        least = 0.0
        while len(start):
            main, weight = _main_function(start, end, name)
            mine = name == main
            if series and (weight < least or mine.sum() < 2):
                break
            least = least or WORTH * weight
            steps = self._from_call_to_call(thread, start[mine], end[mine], function_name(list(self._names)[main]))
            series.append(steps)
            at = np.searchsorted(steps.starts, start, "right") - 1
            outside = ~mine & ((at < 0) | (start >= steps.ends[np.maximum(at, 0)]))
            start, end, name = start[outside], end[outside], name[outside]
        return series

    def _from_call_to_call(self, thread: int, start: np.ndarray, end: np.ndarray, called: str) -> FoundSteps:
        begin = start.copy()
        fetches = self._found.get((thread, FETCH))
        if fetches is not None:
            asked = fetches.columns()[0]
            # Before the first call may lie batches that were asked for long before: it begins with itself.
            at = np.searchsorted(asked, np.concatenate((start[:1], end[:-1])), "left")
            first = asked[np.minimum(at, len(asked) - 1)]
            begin = np.where((at < len(asked)) & (first < start), first, start)
        pause = begin[1:] - end[:-1]
        apart = (pause > PAUSES * np.median(pause)) & (pause > np.median(end - start)) if len(pause) else pause > 0
        begin[1:][apart] = start[1:][apart]
        stop = np.concatenate((np.where(apart, end[:-1], begin[1:]), end[-1:]))
        return FoundSteps(thread, called, begin, stop, f"from one call of {called} to the next")

    def _steps_by_fetches(self, thread: int) -> list[FoundSteps]:
        start, end, _, _ = self._found[thread, FETCH].columns()
        reached = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(end)[:-1]))
        start = start[start >= reached]
        if len(start) < 2:
            return []
        return [FoundSteps(thread, "step", start[:-1], start[1:], "from one batch asked for to the next")]


def _main_function(start: np.ndarray, end: np.ndarray, name: np.ndarray) -> tuple[int, float]:
    """The function whose calls come to most, and to how much: a call that compiles is no measure of the others."""
    weights = {
        number: float(np.median((end - start)[name == number]) * (name == number).sum())
        for number in np.unique(name).tolist()
    }
    return max(weights.items(), key=lambda item: item[1])
