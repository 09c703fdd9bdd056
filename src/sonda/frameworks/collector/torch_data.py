"""Data of a PyTorch program: batches fetched from a DataLoader, and tensors copied to another device."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from time import perf_counter_ns as now
from typing import Any

from .identity import ByIdentity
from .recorder import Recorder, Stream

OPTIONS = {
    "workers": "num_workers",
    "prefetch": "prefetch_factor",
    "pin": "pin_memory",
    "persistent_workers": "persistent_workers",
}
"""Of a DataLoader, by the names that Sonda's own workloads have for them."""


class DataPhases:
    """Wraps what a DataLoader does, and copies. `phase(stream, code)` is a phase.

    `begin` gives the stream on which fetching is a phase of its own, `stream` that of the thread; None for neither.
    """

    def __init__(
        self,
        recorder: Recorder,
        phase: Callable[..., Any],
        begin: Callable[[], Any],
        stream: Callable[[], Any],
        marks: Any = None,
    ) -> None:
        """`marks` (`DeviceMarks`) say where copies begin and end on a GPU."""
        self._recorder = recorder
        self._phase = phase
        self._begin = begin
        self._stream = stream
        self._marks = marks
        self._number = itertools.count()
        self._loaders = ByIdentity()
        """The number of each data loader."""
        self._fetching = ByIdentity()
        """The numbers of each iterator's loader and of its present round."""
        define = recorder.define
        self._code = define(kind="phase", name="data")
        self._transfer = define(kind="phase", name="transfer")
        names = ("loader", "iterator", "exhausted")
        self._values = {name: define(kind="value", quantity=name, source="counted") for name in names}

    def wrap_iter(self, original: Any) -> Any:
        def wrapper(loader: Any) -> Any:
            stream = self._begin()
            if stream is None:
                return original(loader)
            with self._phase(stream, self._code):
                iterator = original(loader)
                if self._loaders.get(loader) is None:
                    self._loaders.set(loader, next(self._number))
                    self._introduce(loader)
                self._fetching.set(iterator, (self._loaders.get(loader), next(self._number)))
                self._say_whence(stream, iterator)
            return iterator

        return wrapper

    def wrap_next(self, original: Any) -> Any:
        def wrapper(iterator: Any) -> Any:
            stream = self._begin()
            if stream is None:
                return original(iterator)
            with self._phase(stream, self._code):
                self._say_whence(stream, iterator)
                try:
                    batch = original(iterator)
                except StopIteration:
                    stream.push((self._values["exhausted"], 1))
                    raise
            stream.schedule.waits.begin()
            return batch

        return wrapper

    def _introduce(self, loader: Any) -> None:
        """State how a loader loads."""
        options = {name: getattr(loader, attribute, None) for name, attribute in OPTIONS.items()}
        self._recorder.state_lasting(loader=self._loaders.get(loader), loads={"loader": "torch", **options})

    def wrap_copy(self, original: Any) -> Any:
        """A method of Tensor that may copy to another device; a phase where it does, outside every other."""
        code = self._transfer

        def wrapper(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            stream = self._stream()
            if stream is None or stream.layers or stream.phases:
                return original(tensor, *args, **kwargs)
            marks = self._marks
            begin = now()
            first = marks.mark()
            result = original(tensor, *args, **kwargs)
            if result.device != tensor.device:
                stream.push((code, begin, marks.begin, first, marks.end, marks.mark(), code + 1, now()))
            return result

        return wrapper

    def _say_whence(self, stream: Stream, iterator: Any) -> None:
        """Say where the data of the open phase comes from."""
        numbers = self._fetching.get(iterator)
        if numbers is not None:
            stream.push((self._values["loader"], numbers[0], self._values["iterator"], numbers[1]))
