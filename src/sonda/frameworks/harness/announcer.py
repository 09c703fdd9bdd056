"""Records what a driver announces: steps, passes, compilations, phases, layers, operations.

It serves frameworks whose compiled functions hide what is inside them. Nothing of the framework is replaced: the driver
says where everything begins and ends. The files are like those of PyTorch's observer, and are read in the same way.

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
    """Writes announced spans to the collector's files. Call `open` first and `finish` at the end."""

    def __init__(self, recorder: Recorder, counting: Counting | None, root: str, rank: int = 0) -> None:
        """`root`: class of the outermost layer, which has the path ''. Without `counting` nothing is counted.

        `rank`: rank of this process among those that train together.
        """
        self.recorder = recorder
        self.counting = counting
        self.root = root
        self.rank = rank
        self.phases = Phases(recorder)
        self.notes: list[str] = []
        """Sentences for the run; `finish` writes them."""
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
        """Record a `step` (named train, validate or test), a `pass` (warmup, count, kernels) or a `compile`."""
        return self.recorder.span(kind, name, self.counting)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Record a phase of a step: data, transfer, forward, loss, backward, optimizer, prefill, decode."""
        code = self.phase_code(name)
        stream = self.recorder.stream()
        stream.begin(code, None)
        try:
            yield
        finally:
            # Inputs have one shape: a compiled function takes no other.
            stream.push((self._shape, 0))
            stream.end()

    @contextmanager
    def layer(self, path: str, class_name: str = "", direction: str = "forward") -> Iterator[None]:
        """Record a layer inside a phase, with its path and class as in PyTorch; '' is the network itself."""
        code = self.layer_code(path, class_name, direction)
        stream = self.recorder.stream()
        stream.push((code, now()))
        try:
            yield
        finally:
            stream.push((code + 1, now()))

    def phase_code(self, name: str) -> int:
        """The code that begins a phase; the code that ends it is 1 more."""
        code = self.phases.codes.get(name)
        if code is None:
            code = self.phases.codes[name] = self.recorder.define(kind="phase", name=name)
        return code

    def layer_code(self, path: str, class_name: str = "", direction: str = "forward") -> int:
        """The code that begins a layer; the code that ends it is 1 more."""
        code = self._layers.get((path, direction))
        if code is None:
            code = self._layers[path, direction] = self.recorder.define(
                kind="layer", name=class_name or self.root, direction=direction, **self._place(path, class_name)
            )
        return code

    def _place(self, path: str, class_name: str) -> dict[str, Any]:
        """Path and root of a layer. A loss is no part of the network: it is a root of its own, as in PyTorch."""
        if class_name.endswith("Loss"):
            return {"path": "", "root": 2, "root_name": class_name}
        return {"path": path, "root": 1, "root_name": self.root}

    @contextmanager
    def operation(self, name: str, flops: int | None, size: int | None, dtype: str) -> Iterator[None]:
        """Record an operation of the counted step, with FLOPs and bytes by formula; None where there is no formula."""
        has_formula = flops is not None
        code = self.recorder.define(kind="op", name=name, flops=flops, bytes=size, known=has_formula, dtype=dtype)
        stream = self.recorder.stream()
        stream.push((code, now()))
        try:
            yield
        finally:
            stream.push((code + 1, now()))

    def finish(self, threads: int) -> None:
        """State what observing cost and where counts came from, and that nothing follows."""
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
    """Open an observer for the block; afterwards everything is written to the directory."""
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
    """What a layer and a phase cost to record, ns, on this machine, now.

    Layers follow each other closely, so they are timed in a loop. Phases follow other work, so they are timed cold.
    """
    observer = AnnouncedObserver(Recorder(""), None, "Root")
    stream = observer.recorder.stream()

    def layer() -> None:
        with observer.layer("add", "Add"):
            pass

    def phase() -> None:
        with observer.phase("forward"):
            pass

    return time_repeated(layer, stream), time_cold(phase)
