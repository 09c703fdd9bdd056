"""The data phase of a PyTorch program: iterators of a DataLoader being made, and batches fetched from them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from .identity import ByIdentity
from .recorder import Recorder, Stream


class DataPhases:
    """Wraps what a DataLoader does. `phase(stream, code)` is a phase; `begin` says on which stream, or None."""

    def __init__(self, recorder: Recorder, phase: Callable[..., Any], begin: Callable[[], Any]) -> None:
        self._phase = phase
        self._begin = begin
        self._number = itertools.count()
        self._loaders = ByIdentity()
        """The number of each data loader."""
        self._fetching = ByIdentity()
        """The numbers of each iterator's loader and of its present round."""
        define = recorder.define
        self._code = define(kind="phase", name="data")
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
                    return original(iterator)
                except StopIteration:
                    stream.push((self._values["exhausted"], 1))
                    raise

        return wrapper

    def _say_whence(self, stream: Stream, iterator: Any) -> None:
        """Say where the data of the open phase comes from."""
        numbers = self._fetching.get(iterator)
        if numbers is not None:
            stream.push((self._values["loader"], numbers[0], self._values["iterator"], numbers[1]))
