"""Data of a PyTorch program: batches fetched from a DataLoader, and tensors copied to another device."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from time import perf_counter_ns as now
from typing import Any

from ...collector.recorder import Recorder, Stream
from .identity import IdentityMap
from .inspection.code_places import CodePlaces

OPTIONS = {
    "workers": "num_workers",
    "prefetch": "prefetch_factor",
    "pin": "pin_memory",
    "persistent_workers": "persistent_workers",
}
"""Attributes of a DataLoader, by the names that Sonda's own workloads use."""


class DataPhases:
    """Wraps a DataLoader's methods and copies between devices. `phase(stream, code)` is the context of a phase.

    `begin` gives the stream on which fetching is a phase, or None where it is none. `stream` gives the thread's stream.
    """

    def __init__(
        self,
        torch: Any,
        recorder: Recorder,
        phase: Callable[..., Any],
        begin: Callable[[], Any],
        stream: Callable[[], Any],
        marks: Any = None,
    ) -> None:
        """`marks` (`DeviceMarks`) mark where copies begin and end on a GPU."""
        self._recorder = recorder
        self._phase = phase
        self._begin = begin
        self._stream = stream
        self._marks = marks
        self._number = itertools.count()
        self._loaders = IdentityMap()
        """The number of each loader."""
        self._fetching = IdentityMap()
        """Three numbers for each iterator: of its loader, of itself, and of its dataset."""
        self._lines = IdentityMap()
        """Where each loader was made."""
        self._places = CodePlaces(torch)
        self._datasets = DatasetNumbers(torch)
        define = recorder.define
        self._code = define(kind="phase", name="data")
        self._transfer = define(kind="phase", name="transfer")
        names = ("loader", "iterator", "dataset", "exhausted")
        self._values = {name: define(kind="value", quantity=name, source="counted") for name in names}

    def wrap_init(self, original: Any) -> Any:
        def wrapper(loader: Any, *args: Any, **kwargs: Any) -> None:
            original(loader, *args, **kwargs)
            self._lines.set(loader, self._places.find())

        return wrapper

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
                data = self._datasets.number(getattr(loader, "dataset", None))
                self._fetching.set(iterator, (self._loaders.get(loader), next(self._number), data))
                self._push_source(stream, iterator)
            return iterator

        return wrapper

    def wrap_next(self, original: Any) -> Any:
        def wrapper(iterator: Any) -> Any:
            stream = self._begin()
            if stream is None:
                return original(iterator)
            with self._phase(stream, self._code):
                self._push_source(stream, iterator)
                try:
                    batch = original(iterator)
                except StopIteration:
                    stream.push((self._values["exhausted"], 1))
                    raise
            stream.schedule.waits.begin()
            return batch

        return wrapper

    def _introduce(self, loader: Any) -> None:
        """State the options of a loader."""
        options = {name: getattr(loader, attribute, None) for name, attribute in OPTIONS.items()}
        line = self._lines.get(loader)
        loads = {"loader": "torch", **options, **({"loader_line": line} if line else {})}
        self._recorder.state_lasting(loader=self._loaders.get(loader), loads=loads)

    def wrap_copy(self, original: Any) -> Any:
        """Wrap a method of Tensor that may copy to another device; outside of every phase a copy is a phase."""
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

    def _push_source(self, stream: Stream, iterator: Any) -> None:
        """Record where the data of the open phase comes from."""
        numbers = self._fetching.get(iterator)
        if numbers is not None:
            values = self._values
            stream.push((values["loader"], numbers[0], values["iterator"], numbers[1], values["dataset"], numbers[2]))


class DatasetNumbers:
    """Numbers datasets. A dataset like one that is gone takes its number: a program may make its validation data anew
    for every validation."""

    def __init__(self, torch: Any) -> None:
        self._tensor = torch.Tensor
        self._numbers = IdentityMap()
        self._free: dict = {}
        """Numbers of datasets that are gone, by their structure."""
        self._last = 0

    def number(self, dataset: Any) -> int:
        number = self._numbers.get(dataset)
        if number is None:
            free = self._free.setdefault(self._structure(dataset), [])
            number = free.pop() if free else self._next()
            try:
                self._numbers.set(dataset, number)
                weakref.finalize(dataset, free.append, number).atexit = False
            except TypeError:  # a list, which has no weak references
                free.append(number)
        return int(number)

    def _next(self) -> int:
        self._last += 1
        return self._last

    def _structure(self, dataset: Any) -> tuple:
        """A dataset's class, and the sizes of its attributes. No method of the dataset is called."""
        attributes = getattr(dataset, "__dict__", {"": dataset})
        return type(dataset).__qualname__, *((name, self._size(value)) for name, value in sorted(attributes.items()))

    def _size(self, value: Any) -> Any:
        if type(value) in (tuple, list):
            return len(value), self._size(value[0]) if value else None
        if type(value) is self._tensor:
            return tuple(value.shape)
        return value if type(value) in (bool, int, str) else type(value).__qualname__
