"""Announces what a program that Sonda drives does: steps, passes, compilations, phases, layers, operations.

For frameworks whose compiled functions hide what is inside them: nothing of the framework is wrapped, the driver says
where each thing begins and ends. What is written is what the observer of PyTorch writes, so everything after it is one.

    observer = AnnouncedObserver(recorder, counting, "ResidualNet")
    observer.open({"jax": "0.10.2"}, threads=2)
    with observer.span("step", "train"):
        with observer.phase("forward"), observer.layer(""), observer.layer("stem.0", "Conv2d"):
            ...
    observer.finish(threads=2)
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from time import perf_counter_ns as now
from typing import Any

from sonda.frameworks.collector.callgrind import begin_modelling
from sonda.frameworks.collector.counters.process import Counting
from sonda.frameworks.collector.overhead import measure_reading_costs, time_cold, time_repeated
from sonda.frameworks.collector.phases import Phases
from sonda.frameworks.collector.recorder import Recorder


class AnnouncedObserver:
    """Writes spans through the collector's files. `open` begins, `finish` states what only the end knows."""

    def __init__(self, recorder: Recorder, counting: Counting | None, root: str, rank: int = 0) -> None:
        """`root`: class of the outermost layer, which has the path ''. Without `counting` nothing is counted.

        `rank`: of this process among those that train together.
        """
        self.recorder = recorder
        self.counting = counting
        self.root = root
        self.rank = rank
        self.phases = Phases(recorder)
        self.notes: list[str] = []
        """Sentences for the run; those that are there when `finish` is called are kept."""
        self._shape = recorder.define(kind="value", quantity="shape", source="counted")
        self._layers: dict[tuple[str, str], int] = {}

    def open(self, versions: dict[str, str], threads: int) -> None:
        """State what runs here: versions of the framework's packages by name, threads of one operation."""
        if self.counting is not None:
            self.counting.define(self.recorder)
            self.phases.open(self.counting)
        self.recorder.state(process=os.getpid(), rank=self.rank, threads=threads,
                            versions={"python": sys.version.split()[0], **versions})  # fmt: skip
        begin_modelling(self, announced=True)

    def span(self, kind: str, name: str) -> AbstractContextManager[None]:
        """A `step` (its name is the part: train, validate, test), a `pass` (warmup, count, kernels) or a `compile`."""
        return self.recorder.span(kind, name, self.counting)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """A phase of a step: data, transfer, forward, loss, backward, optimizer, prefill, decode."""
        code = self.phase_code(name)
        stream = self.recorder.stream()
        stream.begin(code, None)
        try:
            yield
        finally:
            # Inputs have one shape: compiled functions know no other.
            stream.push((self._shape, 0))
            stream.end()

    @contextmanager
    def layer(self, path: str, class_name: str = "", direction: str = "forward") -> Iterator[None]:
        """A layer inside a phase, with its path and class as PyTorch has them; '' is the network itself."""
        code = self.layer_code(path, class_name, direction)
        stream = self.recorder.stream()
        stream.push((code, now()))
        try:
            yield
        finally:
            stream.push((code + 1, now()))

    def phase_code(self, name: str) -> int:
        """What begins a phase in the recorder's stream; its end is 1 more."""
        code = self.phases.codes.get(name)
        if code is None:
            code = self.phases.codes[name] = self.recorder.define(kind="phase", name=name)
        return code

    def layer_code(self, path: str, class_name: str = "", direction: str = "forward") -> int:
        """What begins a layer in the recorder's stream; its end is 1 more."""
        code = self._layers.get((path, direction))
        if code is None:
            code = self._layers[path, direction] = self.recorder.define(
                kind="layer", name=class_name or self.root, direction=direction, **self._place(path, class_name)
            )
        return code

    def _place(self, path: str, class_name: str) -> dict[str, Any]:
        """Where a layer stands: a loss is no part of the network, and its path is its class, as in PyTorch."""
        if class_name.endswith("Loss"):
            return {"path": "", "root": 2, "root_name": class_name}
        return {"path": path, "root": 1, "root_name": self.root}

    @contextmanager
    def operation(self, name: str, flops: int | None, size: int | None, dtype: str) -> Iterator[None]:
        """One operation of the counted step, with what it costs by formula: FLOPs and bytes; None: not known."""
        known = flops is not None
        code = self.recorder.define(kind="op", name=name, flops=flops, bytes=size, known=known, dtype=dtype)
        stream = self.recorder.stream()
        stream.push((code, now()))
        try:
            yield
        finally:
            stream.push((code + 1, now()))

    def finish(self, threads: int) -> None:
        """State what observing cost, where counts came from, and that this is all."""
        span_ns, phase_ns = _measure_costs()
        counting: dict[str, Any] = {}
        if self.counting is not None:
            counting = {**self.counting.facts(), **measure_reading_costs(self.counting)}
        self.recorder.state(
            rank=self.rank, threads=threads, notes=self.notes, span_ns=span_ns, phase_ns=phase_ns, **counting
        )  # fmt: skip
        self.recorder.state(finished=True)
        self.phases.close()
        if self.counting is not None:
            self.counting.close()


@contextmanager
def open_observer(
    directory: Path, counting: Counting, root: str, versions: dict[str, str], threads: int,
    notes: Sequence[str] = (), rank: int = 0,
) -> Iterator[AnnouncedObserver]:  # fmt: skip
    """An observer that is open inside, and has written everything into the directory afterwards."""
    recorder = Recorder(str(directory))
    try:
        observer = AnnouncedObserver(recorder, counting, root, rank)
        observer.notes += notes
        observer.open(versions, threads)
        try:
            yield observer
        finally:
            observer.finish(threads)
    finally:
        recorder.close()


def _measure_costs() -> tuple[float, float]:
    """ns that a layer and a phase cost to record, on this machine, now; layers follow each other closely, a phase comes
    behind other work."""
    observer = AnnouncedObserver(Recorder(""), None, "Root")
    stream = observer.recorder.stream()

    def layer() -> None:
        with observer.layer("add", "Add"):
            pass

    def phase() -> None:
        with observer.phase("forward"):
            pass

    return time_repeated(layer, stream), time_cold(phase)
