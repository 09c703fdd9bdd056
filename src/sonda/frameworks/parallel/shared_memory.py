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

from sonda.record.errors import SondaError

MACHINE, SYSTEM_CALL = "x86_64", 202
"""Stores become visible in their order on this machine; on others a counter could be seen before what it announces."""
WAIT, WAKE, EVERYBODY = 0, 1, 1 << 30
SMALL, GRADIENTS, TAKEN = range(3)
"""Counters: small exchanges done, pieces of gradients written, steps whose gradients were taken from the others."""
SLOT = 1 << 18
"""Bytes of a small exchange at most. There are two slots: when a rank writes to one again, all have read it."""
SLOTS = mmap.PAGESIZE
ROOM = SLOTS + 2 * SLOT
MOST_RANKS = 4
"""Every rank reads what all have written: beyond a few, that is more than what sockets cost."""
LOOK_S = 0.2


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
        """`keys` is a store of PyTorch's that all ranks see, `name` tells groups apart, `room` is for gradients."""
        self.me, self.size, self.timeout_s = me, size, timeout_s
        self.waited = 0.0
        """s spent waiting for others since `take_waited`."""
        length = ROOM + room
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
            self._maps.append(mmap.mmap(descriptor, length))
            if rank != me:
                os.close(descriptor)
        self._counters = [
            [ctypes.c_uint32.from_buffer(region, 4 * which) for which in range(3)] for region in self._maps
        ]
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._at = 0
        """Bytes of this step's gradients that were written."""

    # ---- counters ---------------------------------------------------------------------------------------------

    def _raise(self, which: int) -> int:
        """Raise a counter of this rank's, and wake who waits for it; returns its value."""
        counter = self._counters[self.me][which]
        counter.value += 1
        self._call(SYSTEM_CALL, ctypes.byref(counter), WAKE, EVERYBODY, None, None, 0)
        return int(counter.value)

    def _wait(self, which: int, value: int) -> None:
        """Until that counter of every rank is at the value, or beyond. Raises TimeoutError."""
        begin = monotonic()
        look = _Moment(0, int(1e9 * LOOK_S))
        for rank in range(self.size):
            counter = self._counters[rank][which]
            # Differences, so that a counter may come round.
            while (behind := ctypes.c_int32(value - counter.value).value) > 0:
                seen = ctypes.c_uint32(value - behind)
                self._call(SYSTEM_CALL, ctypes.byref(counter), WAIT, seen, ctypes.byref(look), None, 0)
                if monotonic() - begin > self.timeout_s:
                    raise TimeoutError(f"timed out after {self.timeout_s:g} s waiting for rank {rank}")
        self.waited += monotonic() - begin

    def take_waited(self) -> float:
        """s that this rank has waited since the last call."""
        waited, self.waited = self.waited, 0.0
        return waited

    def _view(self, rank: int, at: int, like: Any) -> Any:
        import torch

        return torch.frombuffer(self._maps[rank], dtype=like.dtype, count=like.numel(), offset=at)

    # ---- exchanges --------------------------------------------------------------------------------------------

    def gather(self, values: Any) -> Any:
        """One row per rank of a one-dimensional tensor of at most `SLOT` bytes."""
        import torch

        number = int(self._counters[self.me][SMALL].value) + 1
        at = SLOTS + (number & 1) * SLOT
        self._view(self.me, at, values).copy_(values)
        self._raise(SMALL)
        self._wait(SMALL, number)
        return torch.stack([self._view(rank, at, values) for rank in range(self.size)])

    def write(self, values: Any) -> tuple[int, int]:
        """Write a piece of this step's gradients; every rank writes equal pieces in the same order.

        Returns what `add` needs to know of it.
        """
        if not self._at:
            # What was written in the step before has been taken by everybody.
            self._wait(TAKEN, int(self._counters[self.me][TAKEN].value))
        at = ROOM + self._at
        self._view(self.me, at, values).copy_(values)
        self._at += (values.numel() * values.element_size() + 63) & ~63
        return at, self._raise(GRADIENTS)

    def add(self, values: Any, at: int, number: int) -> None:
        """Replace a piece by its sum over all ranks."""
        import torch

        self._wait(GRADIENTS, number)
        pieces = [self._view(rank, at, values) for rank in range(self.size)]
        torch.add(pieces[0], pieces[1], out=values)
        for piece in pieces[2:]:
            values.add_(piece)

    def step_ends(self) -> None:
        """Everything of this step's gradients was added."""
        self._at = 0
        self._raise(TAKEN)


def room_for(model: Any) -> int:
    """Bytes for all gradients of a model, or its weights and buffers, in pieces that begin at whole lines of cache."""
    tensors = [*model.parameters(), *model.buffers()]
    return sum((one.numel() * one.element_size() + 63) & ~63 for one in tensors) + mmap.PAGESIZE
