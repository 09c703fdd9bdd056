"""Shared memory: how ranks on the processors of one machine exchange, at a fraction of what a socket costs.

Every rank has a region of memory that all can read: a page of counters, slots for small things, room for all gradients.
It writes there, raises a counter, and others wait for that counter. The kernel wakes those that wait (futex), so that
a rank that waits uses no processor: with a quota of processor time it would pay for spinning.

Nothing is summed twice and everybody sums in the order of ranks, so that all get the same bits.
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

MACHINE, SYSTEM_CALL = "x86_64", 202
"""Stores become visible in their order on this machine; on others a counter could be seen before what it announces."""
WAIT, WAKE, EVERYBODY = 0, 1, 1 << 30
HALF = 1 << 31
SMALL, GRADIENTS, SUMMED, TAKEN, STEPPED = range(5)
"""Counters: small exchanges done, pieces of gradients written or known not to come, steps whose pieces this rank has
summed, steps whose gradients this rank needs no more, steps that this rank's optimizer has taken."""
COUNTERS = 5
TOLD = 64
"""Byte of the page of counters at which a rank tells the others a number."""
SLOT = 1 << 18
"""Bytes of a small exchange at most. There are two slots: when a rank writes to one again, all have read it."""
SLOTS = mmap.PAGESIZE
ROOM = SLOTS + 2 * SLOT
MOST_RANKS = 4
"""Every rank reads what all have written: beyond a few, that is more than what sockets cost."""
LOOK_S = 0.2
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Of glibc's `mallopt`: how much freed memory is kept, and pieces from which size on are always given back."""
KEPT, MOST_MAPPED = 1 << 30, 1 << 25
"""Bytes. mallopt(3): more than the second need not be taken for pieces that are given back; told the other number only,
glibc keeps the limit that it began with, 128 kB."""


class _Moment(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def reason_against(ranks: int) -> str:
    """Why ranks of one machine cannot exchange through memory; '' where they can."""
    if platform.machine() != MACHINE or not hasattr(os, "memfd_create"):
        return f"exchanging through memory needs Linux on {MACHINE}"
    if ranks > MOST_RANKS:
        return f"exchanging through memory is for at most {MOST_RANKS} ranks, not {ranks}"
    return ""


class SharedMemory:
    """The regions of all ranks of a group, seen from one of them. Tensors are those of the processor."""

    def __init__(self, me: int, size: int, keys: Any, name: str, room: int, timeout_s: float) -> None:
        """`keys` is a store of PyTorch's that all ranks see, `name` tells groups apart, `room` is for gradients. The
        first rank has as much again, for weights."""
        self.me, self.size, self.timeout_s = me, size, timeout_s
        self.waited = 0.0
        """s spent waiting for others since `take_waited`."""
        length = ROOM + (2 * room if me == 0 else room)
        self.weights_at: int | None = ROOM + room
        """Where weights may lie in the first rank's region; None once they do."""
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
        self._told = [ctypes.c_int64.from_buffer(region, TOLD) for region in self._maps]
        self._typed: list[dict[np.dtype, tuple[np.ndarray, ...]]] = [{}, {}]
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._at = 0
        """Bytes of this step's gradients that were written."""

    # ---- counters ---------------------------------------------------------------------------------------------

    def announce(self, which: int, by: int = 1) -> int:
        """Raise a counter of this rank's, and wake who waits for it; returns its value."""
        counter = self._counters[self.me][which]
        counter.value += by
        self._call(SYSTEM_CALL, ctypes.byref(counter), WAKE, EVERYBODY, None, None, 0)
        return int(counter.value)

    def reached(self, which: int, value: int) -> bool:
        """Whether that counter of every rank is at the value, or beyond."""
        # Differences, so that a counter may come round.
        return all((counters[which].value - value) & 0xFFFF_FFFF < HALF for counters in self._counters)

    def wait(self, which: int, value: int) -> None:
        """Until that counter of every rank is at the value, or beyond. Raises TimeoutError."""
        if self.reached(which, value):
            return
        begin = monotonic()
        look = _Moment(0, int(1e9 * LOOK_S))
        for rank in range(self.size):
            counter = self._counters[rank][which]
            while ((seen := counter.value) - value) & 0xFFFF_FFFF >= HALF:
                expected = ctypes.c_uint32(seen)
                self._call(SYSTEM_CALL, ctypes.byref(counter), WAIT, expected, ctypes.byref(look), None, 0)
                if monotonic() - begin > self.timeout_s:
                    raise TimeoutError(f"timed out after {self.timeout_s:g} s waiting for rank {rank}")
        self.waited += monotonic() - begin

    def own(self, which: int) -> int:
        """This rank's counter."""
        return int(self._counters[self.me][which].value)

    def tell(self, number: int) -> None:
        """Let the others read a number, of 64 bits with its sign, once the counter that is announced next has reached
        them."""
        self._told[self.me].value = number

    def told(self) -> list[int]:
        """What every rank has told last."""
        return [one.value for one in self._told]

    def take_waited(self) -> float:
        """s that this rank has waited since the last call."""
        waited, self.waited = self.waited, 0.0
        return waited

    def view(self, rank: int, at: int, like: Any) -> Any:
        """A rank's memory as a one-dimensional tensor of as many elements, of the same type."""
        import torch

        return torch.frombuffer(self._maps[rank], dtype=like.dtype, count=like.numel(), offset=at)

    # ---- exchanges --------------------------------------------------------------------------------------------

    def gather(self, values: Any) -> Any:
        """One row per rank of a one-dimensional tensor of at most `SLOT` bytes."""
        import torch

        flat = values.detach().view(torch.uint8).numpy()
        slots = self.slots(flat.dtype, len(flat))
        slots[self.me][: len(flat)] = flat
        self.exchange()
        return torch.from_numpy(np.stack([slot[: len(flat)] for slot in slots])).view(values.dtype)

    def slots(self, dtype: np.dtype, length: int) -> tuple[np.ndarray, ...]:
        """The slots of the next small exchange, one per rank, for so many numbers: write to your own, `exchange()`,
        then read all of them before the exchange that follows. Raises SondaError where they do not fit."""
        if length * dtype.itemsize > SLOT:  # what is compiled writes wherever it is told to
            raise SondaError(
                f"{length:,} numbers of {dtype} are too many for one exchange through memory", "use @backend=gloo"
            )
        half = (self.own(SMALL) + 1) & 1
        if dtype not in self._typed[half]:
            self._typed[half][dtype] = tuple(slot.view(dtype) for slot in self._slots[half])
        return self._typed[half][dtype]

    def exchange(self) -> None:
        """Until every rank has written to its slot."""
        self.wait(SMALL, self.announce(SMALL))

    def write(self, values: Any) -> tuple[int, int]:
        """Write a piece of this step's gradients; every rank writes equal pieces in the same order.

        Returns what `add` needs to know of it.
        """
        if not self._at:
            # What was written in the step before has been taken by everybody.
            self.wait(TAKEN, self.own(TAKEN))
        at = ROOM + self._at
        self.view(self.me, at, values).copy_(values)
        self._at += (values.numel() * values.element_size() + 63) & ~63
        return at, self.announce(GRADIENTS)

    def add(self, values: Any, at: int, number: int) -> None:
        """Replace a piece by its sum over all ranks."""
        import torch

        self.wait(GRADIENTS, number)
        pieces = [self.view(rank, at, values) for rank in range(self.size)]
        torch.add(pieces[0], pieces[1], out=values)
        for piece in pieces[2:]:
            values.add_(piece)

    def step_ends(self) -> None:
        """Everything of this step's gradients was added."""
        self._at = 0
        self.announce(TAKEN)


def keep_freed_memory() -> None:
    """Let this process keep the memory that it frees. Else the C library may give it back and ask for it anew in every
    step, 85 MB page by page for a ResNet-34, depending on what else the process has done."""
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):  # glibc
        library.mallopt(TRIM_THRESHOLD, KEPT)
        if not library.mallopt(MMAP_THRESHOLD, KEPT):
            library.mallopt(MMAP_THRESHOLD, MOST_MAPPED)


def room_for(model: Any) -> int:
    """Bytes for all gradients of a model, or its weights and buffers, in pieces that begin at whole lines of cache."""
    tensors = [*model.parameters(), *model.buffers()]
    return sum((one.numel() * one.element_size() + 63) & ~63 for one in tensors) + mmap.PAGESIZE
