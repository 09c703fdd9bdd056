"""The memory of tensors that are alive, by the layer that made them.

Bytes belong to storages, not to tensors: views share one. Only weak references to storages are kept. PyTorch keeps the
Python object of a storage as long as the storage itself lives, whether a tensor or the autograd graph holds it. So the
reference dies with the memory, and observing keeps nothing alive.
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


class _LiveStorage(NamedTuple):
    """A storage that was alive when last seen."""

    reference: weakref.ref[Any]
    address: int
    size: int
    owner: Hashable


class LiveTensors:
    """Bytes of the distinct storages that are alive among the tracked tensors.

    Tensors without memory of their own (subclasses that intercept operations, fake, meta and opaque tensors) are
    skipped. Any thread may track tensors, and any thread may free them.
    """

    MODEL = "model"
    """The owner of tensors that existed before: see `adopt`."""

    def __init__(self) -> None:
        # Reentrant: a garbage collection under this lock may run a finaliser that makes tensors in the same thread.
        self._lock = RLock()
        self._live: dict[int, _LiveStorage] = {}
        self._serial_at: dict[int, int] = {}
        self._serials = count()
        # A storage may die at any moment, in any thread: its callback only appends its number here.
        self._dead: deque[int] = deque()
        self._current = 0
        self._peak = 0

    def track(self, tensor: Any, owner: Hashable) -> None:
        """Count the storage of `tensor` for `owner`. A storage that is counted already keeps its owner and takes its
        present size."""
        for storage in _storages(tensor):
            self._track_storage(storage, owner)

    def adopt(self, tensors: Iterable[Any]) -> None:
        """Count tensors that existed before (parameters, buffers, gradients, inputs) for the owner "model"."""
        for tensor in tensors:
            self.track(tensor, self.MODEL)

    @property
    def current(self) -> int:
        """Bytes alive now."""
        with self._lock:
            self._remove_dead()
            return self._current

    @property
    def peak(self) -> int:
        """Most bytes alive at any moment since the beginning or the last `reset_peak`."""
        with self._lock:
            return self._peak

    def reset_peak(self) -> None:
        """Set the peak to the bytes alive now."""
        with self._lock:
            self._remove_dead()
            self._peak = self._current

    def bytes_by_owner(self) -> dict[Hashable, int]:
        """Bytes alive now, by the owner named when the storage was first tracked."""
        totals: dict[Hashable, int] = {}
        with self._lock:
            self._remove_dead()
            for entry in self._live.values():
                totals[entry.owner] = totals.get(entry.owner, 0) + entry.size
        return totals

    def _track_storage(self, storage: Any, owner: Hashable) -> None:
        address, size = storage._cdata, storage.nbytes()
        with self._lock:
            # The dead first: a new storage may have the address of one that died.
            self._remove_dead()
            serial = self._serial_at.get(address)
            if serial is None:
                serial = next(self._serials)
                reference = weakref.ref(storage, partial(_note_dead, self._dead, serial))
                self._serial_at[address] = serial
                self._live[serial] = _LiveStorage(reference, address, size, owner)
                self._current += size
            elif self._live[serial].size != size:
                entry = self._live[serial]
                self._current += size - entry.size
                self._live[serial] = entry._replace(size=size)
            else:
                return
            self._peak = max(self._peak, self._current)

    def _remove_dead(self) -> None:
        while self._dead:
            entry = self._live.pop(self._dead.popleft())
            self._current -= entry.size
            del self._serial_at[entry.address]


def _note_dead(dead: deque[int], serial: int, reference: object) -> None:
    dead.append(serial)


def _storages(tensor: Any) -> list[Any]:
    """The storages of a tensor's elements: one, two for a sparse tensor, none for a tensor without its own memory."""
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
    except Exception:  # opaque and compressed layouts raise several kinds
        return []
