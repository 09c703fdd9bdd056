"""How long graphs wait for the batches that they fetch themselves, and what the stages of tf.data spend on them.

`fit` and `evaluate` of Keras give an iterator to one graph: nothing outside sees when a batch came. But tf.data keeps
gaps, the times from the end of a fetch to the begin of the next, for the last hundred fetches. They are in the model by
which it tunes itself (`tf.data.experimental.get_model_proto`). The time between the begins of two calls that is in no
gap was spent on fetching. The last fetch of an iterator has no next one, so that its wait is unknown.

A call of several batches may fetch a batch while it computes with another. Such a fetch is no wait. It is assumed that
each batch computes for as long as the last one, after whose fetch there is only computing. The rest of the call's time
is then the least that it waited.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from time import perf_counter_ns as now
from typing import Any

from ...collector.recorder import Recorder

GAPS_KEPT = 100
"""The number of gaps that tf.data keeps, the latest last."""
ASK_AFTER = GAPS_KEPT // 3
"""Batches after which tf.data is asked again: an iterator may end, and its stages with it, before gaps are lost."""
MOST_BATCHES = GAPS_KEPT // 2
"""The most batches of one call: the gaps of a call are read after the next one."""
LEAST_NS = 1000
"""tf.data counts in µs: no fetch takes less than that."""
DROPPED_NS = 9_000_000_000
"""tf.data drops gaps of ten seconds and more, which moves older ones out of their places. A bit less, because a call
begins before its fetch."""
INTERLEAVING = "ParallelInterleave"
NO_MODEL = "its tf.data pipeline has no model of itself (Options.autotune.enabled is False, or TensorFlow is too old)"
MANY_BATCHES = f"a call fetches more than {MOST_BATCHES} batches"
SHARED = "several threads fetch from one iterator"
UNEVEN = "its calls fetch different numbers of batches"


class FetchHistory:
    """The calls that fetched from one iterator, and what tf.data told about it."""

    def __init__(self, resource: Any, loader: int) -> None:
        self.resource = resource
        """The handle of the iterator in tf.data; dropped when the iterator is gone and was asked for the last time."""
        self.loader = loader
        self.thread = threading.get_ident()
        self.calls: list = []
        """Calls whose waits are not known yet: number, begin and end (ns), and whether something was traced."""
        self.elements = -1
        """The number of batches that were fetched when it was asked last; -1 before that."""
        self.counted = 0
        """How many of `calls` have their batches among these."""
        self.batches = 0
        """Batches of each call; 0: not known yet."""
        self.stated_waits = 0
        """The number of waits that were stated."""
        self.carried = 0
        """By how much the waits so far are too short, ns: a call may begin closer to its fetch than the next one."""
        self.why = ""
        """Why the waits of its calls are unknown; '' where they are not."""
        self.stages: list = []

    def due(self) -> bool:
        """Whether to ask tf.data now: after the first two calls, later before gaps are lost."""
        return len(self.calls) > (1 if not self.batches else max(ASK_AFTER // self.batches, 2) - 1) or self.elements < 0


class GraphFetches:
    """Finds out the waits of all calls that fetch. `note_call` numbers them, and waits are stated by these numbers."""

    def __init__(self, recorder: Recorder, add_note: Any) -> None:
        self._recorder = recorder
        self._add_note = add_note
        """Called with a sentence for the reader of the run."""
        self._histories: dict = {}
        """By the identity of an iterator: a weak reference to it, and its history."""
        self._closed: list = []
        """Histories of iterators that are gone, to be asked once more. A list: iterators may go in any thread."""
        self._last = 0
        self._waits: list = []
        """Numbers and waits (ns) that are known and not stated yet."""
        self._timed_fetches: deque = deque(maxlen=GAPS_KEPT)
        """Begin and end (ns) of fetches by Keras for which a graph waits, since its last call."""
        self._unknown: set = set()
        self.pipelines: dict = {}
        """By loader and names of its stages: the sums over all its iterators."""

    def note_call(self, owner: Any, resource: Any, loader: int, begin: int, end: int, traced: bool, done: bool) -> int:
        """Note a call of a graph that fetches, from `begin` to `end` (ns); returns the number of its wait.

        `resource` is the handle of its iterator, which lives as long as `owner`. Not `done`: the call failed, perhaps
        because the data ended.
        """
        self.ask_closed()
        self._last += 1
        history = self._history(owner, resource, loader)
        if history.thread != threading.get_ident():
            self._give_up(history, SHARED)
        if history.why:
            if done and not traced and self._timed_fetches:
                self._overlap(begin, end)
            return self._last
        history.calls.append((self._last if done else 0, begin, end, traced))
        if history.due() or not done:
            self._ask(history)
        return self._last

    def time_fetch(self, fetch: Any) -> Any:
        """Fetch a batch that a graph waits for, in any thread, and time it; returns the batch."""
        begin = now()
        try:
            return fetch()
        finally:
            self._timed_fetches.append((begin, now()))

    def _overlap(self, begin: int, end: int) -> None:
        """The wait of the last call, from `begin` to `end`, is its overlap with the timed fetches."""
        fetches = list(self._timed_fetches)
        self._timed_fetches.clear()
        wait = sum(max(min(last, end) - max(first, begin), 0) for first, last in fetches)
        self._waits.append((self._last, max(wait, LEAST_NS)))
        if len(self._waits) >= GAPS_KEPT:
            self._state()

    def _state(self) -> None:
        if self._waits:
            numbers, waits = zip(*self._waits, strict=True)
            self._recorder.state(fetches=list(numbers), fetch_ns=list(waits))
        self._waits = []

    def follow(self, owner: Any, resource: Any, loader: int, over: bool) -> None:
        """Note that the program itself fetched a batch, and waited for it; ask for stages when the data are `over`."""
        self.ask_closed()
        history = self._history(owner, resource, loader)
        if over and not history.why:
            self._ask(history)

    def ask_closed(self) -> None:
        """Ask once more for the iterators that are gone."""
        while self._closed:
            self._close(self._closed.pop())

    def facts(self) -> dict:
        """Facts that are stated at the end."""
        for _, history in list(self._histories.values()):
            self._close(history)
        self._histories.clear()
        self.ask_closed()
        self._state()
        return {"pipelines": list(self.pipelines.values())} if self.pipelines else {}

    def note_unknown(self, why: str) -> None:
        """Add a note, once for each reason, that waits inside a graph are unknown."""
        if why not in self._unknown:
            self._unknown.add(why)
            self._add_note(f"how long a graph waits for its input cannot be told, and is in its own time: {why}")

    # ---- one iterator -------------------------------------------------------------------------------------------

    def _history(self, owner: Any, resource: Any, loader: int) -> FetchHistory:
        entry = self._histories.get(id(owner))
        if entry is not None and entry[0]() is owner:
            history: FetchHistory = entry[1]
            return history
        if entry is not None:  # the address was another one's
            self._closed.append(entry[1])
        history = FetchHistory(resource, loader)
        key, histories, closed = id(owner), self._histories, self._closed

        def leave(reference: Any) -> None:
            entry_now = histories.get(key)
            if entry_now is not None and entry_now[0] is reference:
                del histories[key]
                closed.append(history)

        self._histories[key] = (weakref.ref(owner, leave), history)
        return history

    def _give_up(self, history: FetchHistory, why: str) -> None:
        history.why = history.why or why
        if history.calls and not self._timed_fetches:
            self.note_unknown(why)
        history.calls = []
        history.resource = None

    def _close(self, history: FetchHistory) -> None:
        if history.resource is not None:
            self._ask(history)
        history.resource = None
        if history.stages:
            names = tuple(stage["name"] for stage in history.stages)
            earlier = self.pipelines.get((history.loader, names))
            stages = history.stages
            if earlier:
                stages = [_merge_stages(*pair) for pair in zip(earlier["stages"], stages, strict=True)]
            self.pipelines[history.loader, names] = {"loader": history.loader, "stages": stages}
        history.stages = []

    def _ask(self, history: FetchHistory) -> None:
        """Ask tf.data for its model, and state the waits that follow from it."""
        try:
            model = _model_of(history.resource)
            elements, gaps = model.nodes[model.output].num_elements, list(model.gap_times)
        except Exception:  # there is no model, or of another version
            self._give_up(history, NO_MODEL)
            return
        stages = stages_of(model)
        # A generator that has ended is gone from the model, and its work with it.
        if len(stages) >= len(history.stages):
            history.stages = stages
        failed = bool(history.calls) and not history.calls[-1][0]
        calls, following = [call for call in history.calls if call[0]], history.calls[1:]
        first, fetched, new_calls = history.elements < 0, elements - history.elements, len(calls) - history.counted
        history.elements = elements
        history.calls = [] if failed else calls[-1:]
        history.counted = len(history.calls)
        if first or not new_calls:
            return
        history.batches = history.batches or fetched // new_calls
        if history.batches > MOST_BATCHES:
            self._give_up(history, MANY_BATCHES)
        elif history.batches and fetched == history.batches * new_calls:
            waits = _waits_from_gaps(history, list(zip(calls, following, strict=False)), gaps[::-1], 0 if failed else 1)
            history.stated_waits += len(waits)
            self._waits += waits
            self._state()
        elif not history.stated_waits:
            self.note_unknown(UNEVEN)


def _waits_from_gaps(history: FetchHistory, calls: list, gaps: list, missing: int) -> list:
    """Numbers and waits (ns) of calls, from the gaps, the latest first. Each call comes with the one that follows it.

    `missing` is the number of gaps that the last fetch still lacks.
    """
    per_call = history.batches
    settled = []
    for behind, (call, following) in enumerate(reversed(calls), missing):
        call_gaps = gaps[behind * per_call - missing : (behind + 1) * per_call - missing]
        if following[1] - call[1] > DROPPED_NS or len(call_gaps) < per_call:
            break
        if not call[3] and not following[3]:  # otherwise tracing lies between the begin of a call and its fetch
            settled.append((call, following[1], call_gaps))
    waits = []
    for (number, begin, end, _), next_begin, call_gaps in reversed(settled):
        wait = next_begin - begin - 1000 * sum(call_gaps) + history.carried
        if per_call > 1:
            computing = end - (next_begin - 1000 * call_gaps[0])
            wait = min(wait, end - begin - per_call * computing)
        else:
            history.carried = min(wait, 0)
        waits.append((number, max(min(wait, end - begin), LEAST_NS)))
    return waits


# ---- What a model says ----------------------------------------------------------------------------------------------


def _model_of(resource: Any) -> Any:
    from tensorflow.core.framework import model_pb2
    from tensorflow.python.ops import gen_experimental_dataset_ops as operations

    return model_pb2.ModelProto.FromString(operations.iterator_get_model_proto(resource).numpy())


def stages_of(model: Any) -> list:
    """The stages of a pipeline, the last one first: name, elements that it gave, ns of its own work, parallel calls.

    A stage with a buffer has its size too. Parallel inputs of the same name are one stage. Inputs of a parallel
    interleave run in parallel as often as the interleave says.
    """
    stages: list = []
    pending = [([model.nodes[model.output]], 1)]
    while pending:
        nodes, outer = pending.pop(0)
        parameters = {parameter.name: int(parameter.value) for node in nodes for parameter in node.parameters}
        parallel = parameters.get("parallelism", outer)
        stage = {"name": nodes[0].name, "parallel": parallel}
        stage["elements"] = sum(node.num_elements for node in nodes)
        stage["ns"] = sum(node.processing_time for node in nodes)
        if "buffer_size" in parameters:
            stage["buffer"] = parameters["buffer_size"]
        stages.append(stage)
        inputs: dict = {}
        for node in nodes:
            for number in node.inputs:
                inputs.setdefault(model.nodes[number].name, []).append(model.nodes[number])
        outer = parallel if INTERLEAVING in nodes[0].name else outer
        pending += [(group, outer) for group in inputs.values()]
    return stages


def _merge_stages(earlier: dict, later: dict) -> dict:
    sums = {name: earlier[name] + later[name] for name in ("elements", "ns")}
    largest = {name: max(earlier.get(name, 0), later[name]) for name in ("parallel", "buffer") if name in later}
    return {**earlier, **sums, **largest}
