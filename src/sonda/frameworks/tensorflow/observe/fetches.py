"""How long graphs wait for the batches that they fetch themselves, and what the stages of tf.data spend on them.

`fit` and `evaluate` of Keras hand an iterator to one graph: nothing outside sees when a batch came. tf.data keeps the
time from the end of a fetch to the begin of the next, for the last hundred, in the model that it tunes itself by
(`tf.data.experimental.get_model_proto`). So what lies between the begins of two calls and in none of these gaps was
spent on fetching. The last fetch of an iterator has no next one, and its wait is not known.

A call of several batches may fetch the next one beside the computing of another. What hid behind computing is no wait:
of such a call that time counts which is left when each batch computes for as long as the last one, behind whose fetch
only computing lies. That is the least that it waited.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from time import perf_counter_ns as now
from typing import Any

from ...collector.recorder import Recorder

KEPT = 100
"""Gaps that tf.data keeps, the latest last."""
OFTEN = KEPT // 3
"""Batches after which it is asked again: a walk through the data may end, and its stages with it, before gaps do."""
MOST_BATCHES = KEPT // 2
"""Of one call: the gaps of a call are read behind the next one."""
LEAST_NS = 1000
"""tf.data counts in µs: no fetch takes less than that."""
DROPPED_NS = 9_000_000_000
"""Of gaps of ten seconds and more tf.data keeps nothing, so older ones have lost their places; some room for a call
that begins before its fetch does."""
INTERLEAVING = "ParallelInterleave"
NO_MODEL = "its tf.data pipeline has no model of itself (Options.autotune.enabled is False, or TensorFlow is too old)"
MANY_BATCHES = f"a call fetches more than {MOST_BATCHES} batches"
SHARED = "several threads fetch from one iterator"
UNEVEN = "its calls fetch different numbers of batches"


class Walk:
    """One iterator, as far as it was asked."""

    def __init__(self, resource: Any, loader: int) -> None:
        self.resource = resource
        """The handle that tf.data knows the iterator by. It is let go when the iterator is gone and was asked last."""
        self.loader = loader
        self.thread = threading.get_ident()
        self.calls: list = []
        """Number, begin and end (ns) of the calls whose waits are not known yet, and whether something was traced."""
        self.elements = -1
        """Batches fetched when it was asked last; -1 before that."""
        self.counted = 0
        """Of `calls` those whose batches are among these."""
        self.batches = 0
        """Of each call; 0: not known yet."""
        self.told = 0
        """Waits that were stated."""
        self.carried = 0
        """ns that the waits so far came out too short by, where a call began later before its fetch than the next."""
        self.why = ""
        """Why the waits of its calls cannot be told."""
        self.stages: list = []

    def due(self) -> bool:
        """Whether it is to be asked: behind its first two calls, then before gaps are forgotten."""
        return len(self.calls) > (1 if not self.batches else max(OFTEN // self.batches, 2) - 1) or self.elements < 0


class Fetches:
    """`called` is told of every call that fetches; waits are stated by the numbers that it gives them."""

    def __init__(self, recorder: Recorder, notes: Any) -> None:
        self._recorder = recorder
        self._notes = notes
        """Called with a sentence for whoever reads the run."""
        self._walks: dict = {}
        """By the identity of an iterator: a weak reference to it, and its walk."""
        self._gone: list = []
        """Walks whose iterators are gone: they are asked once more. A list, because iterators go in any thread."""
        self._last = 0
        self._waits: list = []
        """Numbers and waits (ns) that are known and not stated yet."""
        self._noted: deque = deque(maxlen=KEPT)
        """Begin and end (ns) of fetches of Keras that a graph waits for, since its last call."""
        self._unknown: set = set()
        self.pipelines: dict = {}
        """By loader and the names of its stages: what all walks through it took."""

    def called(self, owner: Any, resource: Any, loader: int, begin: int, end: int, traced: bool, done: bool) -> int:
        """A graph was called from `begin` to `end`, ns, that fetches from `resource`, the handle of an iterator that
        lives as long as `owner`; the number of its wait. Not `done`: it failed, for want of data perhaps."""
        self.ask_gone()
        self._last += 1
        walk = self._walk(owner, resource, loader)
        if walk.thread != threading.get_ident():
            self._give_up(walk, SHARED)
        if walk.why:
            if done and not traced and self._noted:
                self._overlap(begin, end)
            return self._last
        walk.calls.append((self._last if done else 0, begin, end, traced))
        if walk.due() or not done:
            self._ask(walk)
        return self._last

    def noted(self, fetch: Any) -> Any:
        """Give what `fetch` gives: a batch that a graph waits for, in whichever thread."""
        begin = now()
        try:
            return fetch()
        finally:
            self._noted.append((begin, now()))

    def _overlap(self, begin: int, end: int) -> None:
        """The wait of the last call, from `begin` to `end`, is what it has in common with fetches that were noted."""
        noted = list(self._noted)
        self._noted.clear()
        wait = sum(max(min(last, end) - max(first, begin), 0) for first, last in noted)
        self._waits.append((self._last, max(wait, LEAST_NS)))
        if len(self._waits) >= KEPT:
            self._state()

    def _state(self) -> None:
        if self._waits:
            numbers, waits = zip(*self._waits, strict=True)
            self._recorder.state(fetches=list(numbers), fetch_ns=list(waits))
        self._waits = []

    def follow(self, owner: Any, resource: Any, loader: int, over: bool) -> None:
        """The program itself fetched a batch, and its wait was seen: ask for the stages when that is `over`."""
        self.ask_gone()
        walk = self._walk(owner, resource, loader)
        if over and not walk.why:
            self._ask(walk)

    def ask_gone(self) -> None:
        """Ask for what the iterators that are gone have not told yet."""
        while self._gone:
            self._close(self._gone.pop())

    def facts(self) -> dict:
        """What is stated at the end."""
        for _, walk in list(self._walks.values()):
            self._close(walk)
        self._walks.clear()
        self.ask_gone()
        self._state()
        return {"pipelines": list(self.pipelines.values())} if self.pipelines else {}

    def tell_unknown(self, why: str) -> None:
        """Say once that waits inside a graph cannot be told, and why."""
        if why not in self._unknown:
            self._unknown.add(why)
            self._notes(f"how long a graph waits for its input cannot be told, and is in its own time: {why}")

    # ---- one iterator -------------------------------------------------------------------------------------------

    def _walk(self, owner: Any, resource: Any, loader: int) -> Walk:
        known = self._walks.get(id(owner))
        if known is not None and known[0]() is owner:
            walk: Walk = known[1]
            return walk
        if known is not None:  # the address was another one's
            self._gone.append(known[1])
        walk = Walk(resource, loader)
        key, walks, gone = id(owner), self._walks, self._gone

        def leave(reference: Any) -> None:
            mine = walks.get(key)
            if mine is not None and mine[0] is reference:
                del walks[key]
                gone.append(walk)

        self._walks[key] = (weakref.ref(owner, leave), walk)
        return walk

    def _give_up(self, walk: Walk, why: str) -> None:
        walk.why = walk.why or why
        if walk.calls and not self._noted:
            self.tell_unknown(why)
        walk.calls = []
        walk.resource = None

    def _close(self, walk: Walk) -> None:
        if walk.resource is not None:
            self._ask(walk)
        walk.resource = None
        if walk.stages:
            names = tuple(one["name"] for one in walk.stages)
            known = self.pipelines.get((walk.loader, names))
            stages = (
                [_added(*both) for both in zip(known["stages"], walk.stages, strict=True)] if known else walk.stages
            )
            self.pipelines[walk.loader, names] = {"loader": walk.loader, "stages": stages}
        walk.stages = []

    def _ask(self, walk: Walk) -> None:
        """Ask tf.data for its model, and state the waits that follow from it."""
        try:
            model = _model_of(walk.resource)
            elements, gaps = model.nodes[model.output].num_elements, list(model.gap_times)
        except Exception:  # without one, or of another version
            self._give_up(walk, NO_MODEL)
            return
        stages = stages_of(model)
        if len(stages) >= len(walk.stages):  # a generator that has ended is gone from the model, and its work with it
            walk.stages = stages
        vain = bool(walk.calls) and not walk.calls[-1][0]
        calls, following = [one for one in walk.calls if one[0]], walk.calls[1:]
        first, fetched, new = walk.elements < 0, elements - walk.elements, len(calls) - walk.counted
        walk.elements = elements
        walk.calls = [] if vain else calls[-1:]
        walk.counted = len(walk.calls)
        if first or not new:
            return
        walk.batches = walk.batches or fetched // new
        if walk.batches > MOST_BATCHES:
            self._give_up(walk, MANY_BATCHES)
        elif walk.batches and fetched == walk.batches * new:
            waits = _waits(walk, list(zip(calls, following, strict=False)), gaps[::-1], 0 if vain else 1)
            walk.told += len(waits)
            self._waits += waits
            self._state()
        elif not walk.told:
            self.tell_unknown(UNEVEN)


def _waits(walk: Walk, calls: list, gaps: list, missing: int) -> list:
    """Numbers and waits (ns) of calls, each with the one that follows it, from the gaps, the latest first; `missing`:
    gaps that the last fetch still lacks."""
    each = walk.batches
    known = []
    for back, (call, following) in enumerate(reversed(calls), missing):
        mine = gaps[back * each - missing : (back + 1) * each - missing]
        if following[1] - call[1] > DROPPED_NS or len(mine) < each:
            break
        if not call[3] and not following[3]:  # tracing lies between the begin of a call and its fetch
            known.append((call, following[1], mine))
    waits = []
    for (number, begin, end, _), next_begin, mine in reversed(known):
        wait = next_begin - begin - 1000 * sum(mine) + walk.carried
        if each > 1:
            computing = end - (next_begin - 1000 * mine[0])
            wait = min(wait, end - begin - each * computing)
        else:
            walk.carried = min(wait, 0)
        waits.append((number, max(min(wait, end - begin), LEAST_NS)))
    return waits


# ---- What a model says ----------------------------------------------------------------------------------------------


def _model_of(resource: Any) -> Any:
    from tensorflow.core.framework import model_pb2
    from tensorflow.python.ops import gen_experimental_dataset_ops as operations

    return model_pb2.ModelProto.FromString(operations.iterator_get_model_proto(resource).numpy())


def stages_of(model: Any) -> list:
    """The stages of a pipeline, the last one first: name, elements that it gave, ns that it worked itself, how many
    calls it makes at once, and its buffer where it has one. Inputs of one name side by side are one stage; what is
    interleaved in parallel is made as often at once as that says."""
    found: list = []
    waiting = [([model.nodes[model.output]], 1)]
    while waiting:
        nodes, around = waiting.pop(0)
        tuned = {one.name: int(one.value) for node in nodes for one in node.parameters}
        parallel = tuned.get("parallelism", around)
        stage = {"name": nodes[0].name, "parallel": parallel}
        stage["elements"] = sum(node.num_elements for node in nodes)
        stage["ns"] = sum(node.processing_time for node in nodes)
        if "buffer_size" in tuned:
            stage["buffer"] = tuned["buffer_size"]
        found.append(stage)
        inputs: dict = {}
        for node in nodes:
            for number in node.inputs:
                inputs.setdefault(model.nodes[number].name, []).append(model.nodes[number])
        around = parallel if INTERLEAVING in nodes[0].name else around
        waiting += [(same, around) for same in inputs.values()]
    return found


def _added(one: dict, other: dict) -> dict:
    sums = {name: one[name] + other[name] for name in ("elements", "ns")}
    largest = {name: max(one.get(name, 0), other[name]) for name in ("parallel", "buffer") if name in other}
    return {**one, **sums, **largest}
