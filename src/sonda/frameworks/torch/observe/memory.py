"""The memory of tensors that are alive, by the layer that made them.

Bytes belong to storages, not to tensors: views share one. A storage is held only by weak reference. PyTorch keeps the
Python object of a storage as long as the storage itself lives, wherever it is held (a tensor, a saved activation of the
autograd graph), so the reference dies with the memory and observing prolongs no life.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Hashable, Iterable
from functools import partial
from itertools import count
from threading import RLock
from typing import Any, NamedTuple


class _Held(NamedTuple):
    """A storage that was alive when last looked at."""

    reference: weakref.ref[Any]
    address: int
    size: int
    owner: Hashable


class LiveTensors:
    """Bytes of distinct storages alive among the tensors that were shown to it.

    Tensors without memory of their own kind (subclasses that intercept operations, fake, meta and opaque tensors) are
    passed over. Any thread may show tensors, and any thread may free them.
    """

    MODEL = "model"
    """The owner of what existed before: see `adopt`."""

    def __init__(self) -> None:
        # Reentrant: collecting garbage while it is held may run a finaliser that makes tensors in the same thread.
        self._lock = RLock()
        self._held: dict[int, _Held] = {}
        self._serial_at: dict[int, int] = {}
        self._serials = count()
        # A storage may die at any moment, in any thread: its callback only leaves its number here.
        self._dead: deque[int] = deque()
        self._current = 0
        self._peak = 0

    def see(self, tensor: Any, owner: Hashable) -> None:
        """Count the storage of `tensor` for `owner` unless it is counted already; a resized one takes its new size."""
        for storage in _storages(tensor):
            self._see(storage, owner)

    def adopt(self, tensors: Iterable[Any]) -> None:
        """Count tensors that existed before (parameters, buffers, gradients, inputs) for the owner "model"."""
        for tensor in tensors:
            self.see(tensor, self.MODEL)

    @property
    def current(self) -> int:
        """Bytes alive now."""
        with self._lock:
            self._bury()
            return self._current

    @property
    def peak(self) -> int:
        """The most bytes alive at any one moment since the beginning or the last `reset_peak`."""
        with self._lock:
            return self._peak

    def reset_peak(self) -> None:
        """Let the peak begin again at what is alive now."""
        with self._lock:
            self._bury()
            self._peak = self._current

    def held_by_owner(self) -> dict[Hashable, int]:
        """Bytes alive now, by the owner that was named when their storage was first seen."""
        totals: dict[Hashable, int] = {}
        with self._lock:
            self._bury()
            for held in self._held.values():
                totals[held.owner] = totals.get(held.owner, 0) + held.size
        return totals

    def _see(self, storage: Any, owner: Hashable) -> None:
        address, size = storage._cdata, storage.nbytes()
        with self._lock:
            # First the dead: a new storage may lie at the address of one that died.
            self._bury()
            serial = self._serial_at.get(address)
            if serial is None:
                serial = next(self._serials)
                reference = weakref.ref(storage, partial(_leave, self._dead, serial))
                self._serial_at[address] = serial
                self._held[serial] = _Held(reference, address, size, owner)
                self._current += size
            else:
                held = self._held[serial]
                self._current += size - held.size
                self._held[serial] = held._replace(size=size)
            self._peak = max(self._peak, self._current)

    def _bury(self) -> None:
        while self._dead:
            held = self._held.pop(self._dead.popleft())
            self._current -= held.size
            del self._serial_at[held.address]


def _leave(dead: deque[int], serial: int, reference: object) -> None:
    dead.append(serial)


def _storages(tensor: Any) -> list[Any]:
    """The storages that hold a tensor's elements: one, two for a sparse tensor, none where it holds none itself."""
    torch = sys.modules["torch"]
    kind = type(tensor)
    if kind is not torch.Tensor and kind is not torch.nn.Parameter:
        return []
    try:
        if tensor.device.type == "meta":
            return []
        if tensor.is_sparse:
            return [*_storages(tensor._indices()), *_storages(tensor._values())]
        return [tensor.untyped_storage()]
    except Exception:  # opaque and compressed layouts raise several kinds; they are passed over
        return []
