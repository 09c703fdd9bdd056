"""Announces what a JAX program that Sonda drives does: steps, passes, phases, layers, compilations.

Compiled functions hide what is inside them, so nothing of JAX is wrapped: the driver says where each begins and ends.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from time import perf_counter_ns as now
from typing import Any

from sonda.frameworks.collector.counting import Counting
from sonda.frameworks.collector.phases import Phases
from sonda.frameworks.collector.recorder import Recorder

ROOT = "OperationList"
"""The class of the outermost layer, as in PyTorch."""
CALLS = 2_000


class JaxObserver:
    """Writes spans through the collector's files. `open` begins, `finish` states what only the end knows."""

    def __init__(self, recorder: Recorder, counting: Counting | None) -> None:
        self.recorder = recorder
        self.counting = counting
        self.phases = Phases(recorder)
        self.notes: list[str] = []
        self._shape = recorder.define(kind="value", quantity="shape", source="counted")
        self._root = self._layer("", ROOT)
        self._layers: dict[str, int] = {}

    def open(self, versions: dict[str, str], threads: int) -> None:
        if self.counting is not None:
            self.counting.define(self.recorder)
            self.phases.open(self.counting)
        self.recorder.state(process=os.getpid(), rank=0, threads=threads,
                            versions={"python": sys.version.split()[0], **versions})  # fmt: skip

    def _layer(self, path: str, name: str) -> int:
        return self.recorder.define(
            kind="layer", name=name, path=path, root=1, root_name=ROOT, direction="forward"
        )  # fmt: skip

    def span(self, kind: str, name: str) -> AbstractContextManager[None]:
        """A step, a pass or a compilation."""
        return self.recorder.span(kind, name, self.counting)

    @contextmanager
    def forward(self) -> Iterator[None]:
        """The phase, and in it the layer that holds all others."""
        stream = self.recorder.stream()
        stream.begin(self.phases.codes["forward"], None)
        stream.push((self._root, now()))
        try:
            yield
        finally:
            stream.push((self._root + 1, now(), self._shape, 0))
            stream.end()

    @contextmanager
    def layer(self, path: str) -> Iterator[None]:
        """One operation, named like PyTorch's class for it: `add` is an Add."""
        code = self._layers.get(path)
        if code is None:
            code = self._layers[path] = self._layer(path, path.capitalize())
        stream = self.recorder.stream()
        stream.push((code, now()))
        try:
            yield
        finally:
            stream.push((code + 1, now()))

    @contextmanager
    def operation(self, name: str, flops: int, size: int, dtype: str) -> Iterator[None]:
        """One operation of the counted step, with its formula."""
        code = self.recorder.define(kind="op", name=name, flops=flops, bytes=size, known=True, dtype=dtype)
        stream = self.recorder.stream()
        stream.push((code, now()))
        try:
            yield
        finally:
            stream.push((code + 1, now()))

    def finish(self, threads: int) -> None:
        """State what observing cost, where counts came from, and that this is all."""
        span_ns, phase_ns = _costs()
        counting: dict[str, Any] = self.counting.facts() if self.counting is not None else {}
        self.recorder.state(
            rank=0, threads=threads, notes=self.notes, span_ns=span_ns, phase_ns=phase_ns, **counting
        )  # fmt: skip
        self.recorder.state(finished=True)
        self.phases.close()
        if self.counting is not None:
            self.counting.close()


def _costs() -> tuple[float, float]:
    """ns that a layer and a phase cost to record, on this machine, now."""
    observer = JaxObserver(Recorder(""), None)
    stream = observer.recorder.stream()

    def layer() -> None:
        with observer.layer("add"):
            pass

    def phase() -> None:
        with observer.forward():
            pass

    best: list[float] = []
    for record in (layer, phase):
        times: Sequence[int] = [_lasted(record, stream.events) for _ in range(5)]
        best.append(min(times) / CALLS)
    return best[0], best[1]


def _lasted(record: Any, events: list[int]) -> int:
    begin = now()
    for _ in range(CALLS):
        record()
    taken = now() - begin
    events.clear()
    return taken
