"""Shared memory: how ranks on the processors of one machine exchange, at a fraction of the cost of a socket.

Every rank has a region of memory that all can read: a page of counters, slots for small exchanges, room for all
gradients. A rank writes there and raises a counter, and the others wait for that counter. They wait in the kernel
(futex) and use no processor: with a quota of processor time, spinning would cost them time for work.

Every sum is computed once, in the order of ranks, so all ranks get the same bits.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
from time import monotonic
from typing import Any

import numpy as np

from sonda.record.errors import SondaError

MACHINE, FUTEX_CALL = "x86_64", 202
"""x86-64 makes stores visible in their order. Elsewhere a counter could be seen before the data that it announces."""
FUTEX_WAIT, FUTEX_WAKE, ALL_WAITERS = 0, 1, 1 << 30
HALF = 1 << 31
SMALL, GRADIENTS, SUMMED, RELEASED, STEPPED = range(5)
"""The counters of a rank. SMALL: small exchanges done. GRADIENTS: pieces of gradients written, or known not to come.
SUMMED: steps whose pieces this rank has summed. RELEASED: steps whose gradients this rank needs no more. STEPPED: steps
that this rank's optimizer has taken."""
COUNTERS = 5
PUBLISHED_AT = 64
"""Offset of a rank's published number in its page of counters, bytes."""
SLOT = 1 << 18
"""Most bytes of a small exchange. There are two slots: before a rank writes to one again, all ranks have read it."""
SLOTS = mmap.PAGESIZE
ROOM = SLOTS + 2 * SLOT
MOST_RANKS = 4
"""Every rank reads what all ranks wrote. With more than a few ranks that costs more than sockets do."""
POLL_S = 0.2
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Options of glibc's `mallopt`: how much freed memory the process keeps, and the size from which allocations are mapped
one by one, so that freeing them always returns their memory."""
KEPT, MOST_MAPPED = 1 << 30, 1 << 25
"""Bytes. By mallopt(3), glibc may refuse a mapping threshold above MOST_MAPPED. If only the other option were set, its
threshold would stay at the initial 128 kB."""


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def reason_against(ranks: int) -> str:
    """Why so many ranks of one machine cannot exchange through memory; '' where they can."""
    if platform.machine() != MACHINE or not hasattr(os, "memfd_create"):
        return f"exchanging through memory needs Linux on {MACHINE}"
    if ranks > MOST_RANKS:
        return f"exchanging through memory is for at most {MOST_RANKS} ranks, not {ranks}"
    return ""


class SharedMemory:
    """The regions of all ranks of a group, seen from one of them. All tensors are in the processor's memory."""

    def __init__(self, me: int, size: int, keys: Any, name: str, room: int, timeout_s: float) -> None:
        """`keys` is a store of PyTorch that all ranks see; `name` tells groups apart; `room` are the bytes for
        gradients. The first rank's region has as many bytes again, for weights."""
        self.me, self.size, self.timeout_s = me, size, timeout_s
        self.waited = 0.0
        """Time spent waiting for others since `take_waited`, s."""
        length = ROOM + (2 * room if me == 0 else room)
        self.weights_at: int | None = ROOM + room
        """Offset for weights in the first rank's region; None once it is in use."""
        self._file = os.memfd_create(f"sonda-{name}-{me}")
        try:
            os.posix_fallocate(self._file, 0, length)
        except OSError as error:
            raise SondaError(
                f"no room for {length / 1e6:.0f} MB of shared memory: {error.strerror}", "use @backend=gloo"
            ) from None
        keys.set(f"{name}/{me}", f"{os.getpid()} {self._file}")
        self._maps = []
        for rank in range(size):
            process, file = map(int, keys.get(f"{name}/{rank}").decode().split())
            descriptor = os.open(f"/proc/{process}/fd/{file}", os.O_RDWR) if rank != me else self._file
            self._maps.append(mmap.mmap(descriptor, 0))
            if rank != me:
                os.close(descriptor)
        self._counters = [
            [ctypes.c_uint32.from_buffer(region, 4 * which) for which in range(COUNTERS)] for region in self._maps
        ]
        self._slots = [
            [np.frombuffer(region, np.uint8, SLOT, SLOTS + half * SLOT) for region in self._maps] for half in range(2)
        ]
        self._published = [ctypes.c_int64.from_buffer(region, PUBLISHED_AT) for region in self._maps]
        self._typed: list[dict[np.dtype, tuple[np.ndarray, ...]]] = [{}, {}]
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._written = 0
        """Bytes of this step's gradients written so far."""

    # ---- counters ---------------------------------------------------------------------------------------------

    def announce(self, which: int, by: int = 1) -> int:
        """Raise a counter of this rank and wake the ranks that wait for it. Returns its value."""
        counter = self._counters[self.me][which]
        counter.value += by
        self._call(FUTEX_CALL, ctypes.byref(counter), FUTEX_WAKE, ALL_WAITERS, None, None, 0)
        return int(counter.value)

    def all_reached(self, which: int, value: int) -> bool:
        """Whether this counter has reached the value on every rank."""
        # Differences, so that a counter may wrap around.
        return all((counters[which].value - value) & 0xFFFF_FFFF < HALF for counters in self._counters)

    def wait(self, which: int, value: int) -> None:
        """Wait until this counter has reached the value on every rank. Raises TimeoutError."""
        if self.all_reached(which, value):
            return
        begin = monotonic()
        poll = _Timespec(0, int(1e9 * POLL_S))
        for rank in range(self.size):
            counter = self._counters[rank][which]
            while ((seen := counter.value) - value) & 0xFFFF_FFFF >= HALF:
                expected = ctypes.c_uint32(seen)
                self._call(FUTEX_CALL, ctypes.byref(counter), FUTEX_WAIT, expected, ctypes.byref(poll), None, 0)
                if monotonic() - begin > self.timeout_s:
                    raise TimeoutError(f"timed out after {self.timeout_s:g} s waiting for rank {rank}")
        self.waited += monotonic() - begin

    def own_count(self, which: int) -> int:
        """The value of this rank's counter."""
        return int(self._counters[self.me][which].value)

    def publish(self, number: int) -> None:
        """Publish a signed 64-bit number. The others may read it once they have seen the next counter announced."""
        self._published[self.me].value = number

    def published(self) -> list[int]:
        """The number that each rank published last."""
        return [number.value for number in self._published]

    def take_waited(self) -> float:
        """Time that this rank has waited since the last call, s."""
        waited, self.waited = self.waited, 0.0
        return waited

    def view(self, rank: int, at: int, like: Any) -> Any:
        """A rank's memory from offset `at` as a one-dimensional tensor with as many elements as `like`, of its type."""
        import torch

        return torch.frombuffer(self._maps[rank], dtype=like.dtype, count=like.numel(), offset=at)

    # ---- exchanges --------------------------------------------------------------------------------------------

    def gather(self, values: Any) -> Any:
        """The one-dimensional tensors of all ranks as rows; each has at most `SLOT` bytes."""
        import torch

        flat = values.detach().view(torch.uint8).numpy()
        slots = self.slots(flat.dtype, len(flat))
        slots[self.me][: len(flat)] = flat
        self.exchange()
        return torch.from_numpy(np.stack([slot[: len(flat)] for slot in slots])).view(values.dtype)

    def slots(self, dtype: np.dtype, length: int) -> tuple[np.ndarray, ...]:
        """The slots of the next small exchange, one per rank, for `length` numbers.

        Write to your own slot, call `exchange()`, then read all slots before the following exchange. Raises SondaError
        where the numbers do not fit.
        """
        if length * dtype.itemsize > SLOT:  # compiled kernels do not check bounds
            raise SondaError(
                f"{length:,} numbers of {dtype} are too many for one exchange through memory", "use @backend=gloo"
            )
        half = (self.own_count(SMALL) + 1) & 1
        if dtype not in self._typed[half]:
            self._typed[half][dtype] = tuple(slot.view(dtype) for slot in self._slots[half])
        return self._typed[half][dtype]

    def exchange(self) -> None:
        """Announce that this rank has written to its slot, and wait until every rank has."""
        self.wait(SMALL, self.announce(SMALL))

    def write(self, values: Any) -> tuple[int, int]:
        """Write a piece of this step's gradients; every rank writes pieces of equal size in the same order.

        Returns the offset and the counter value that `add` takes.
        """
        if not self._written:
            # Until all ranks have read the pieces of the step before.
            self.wait(RELEASED, self.own_count(RELEASED))
        at = ROOM + self._written
        self.view(self.me, at, values).copy_(values)
        self._written += (values.numel() * values.element_size() + 63) & ~63
        return at, self.announce(GRADIENTS)

    def add(self, values: Any, at: int, number: int) -> None:
        """Replace a piece by its sum over all ranks. `at` and `number` are what `write` returned for it."""
        import torch

        self.wait(GRADIENTS, number)
        pieces = [self.view(rank, at, values) for rank in range(self.size)]
        torch.add(pieces[0], pieces[1], out=values)
        for piece in pieces[2:]:
            values.add_(piece)

    def end_step(self) -> None:
        """Announce that this rank has added all pieces of this step."""
        self._written = 0
        self.announce(RELEASED)


def keep_freed_memory() -> None:
    """Let this process keep the memory that it frees.

    Otherwise the C library may return it and ask for it again in every step, page by page: 85 MB for a ResNet-34. It
    depends on the history of the process whether that happens.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):  # glibc
        library.mallopt(TRIM_THRESHOLD, KEPT)
        if not library.mallopt(MMAP_THRESHOLD, KEPT):
            library.mallopt(MMAP_THRESHOLD, MOST_MAPPED)


def shared_bytes(model: Any) -> int:
    """Bytes for all gradients of a model, or for its weights and buffers. Each tensor begins at a cache line."""
    tensors = [*model.parameters(), *model.buffers()]
    return sum((tensor.numel() * tensor.element_size() + 63) & ~63 for tensor in tensors) + mmap.PAGESIZE
