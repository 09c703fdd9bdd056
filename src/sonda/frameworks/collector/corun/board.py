"""The board: shared memory by which the participants of an experiment line up and show their progress.

Every number has one writer, so no lock is needed. Each participant has a slot. Windows are numbered upwards.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Sequence

ARRIVED, MEASURED, STEPS = range(3)
FIELDS = 3
WORD = 8
NAP_S = 20e-6
"""Pause between two looks at the board. Participants may share a core, so waiting must not keep it busy."""


class Board:
    """Shared memory with three numbers per slot. The parent calls `Board.make`; participants open its descriptor."""

    def __init__(self, descriptor: int, slots: int) -> None:
        self.descriptor = descriptor
        self.slots = slots
        self._memory = mmap.mmap(descriptor, slots * FIELDS * WORD)
        self._words = memoryview(self._memory).cast("q")

    @classmethod
    def make(cls, slots: int) -> Board:
        """Make a board in unnamed memory, which is freed when the last process that holds it ends."""
        descriptor = os.memfd_create("sonda-board")
        os.ftruncate(descriptor, slots * FIELDS * WORD)
        return cls(descriptor, slots)

    def arrive(self, slot: int, window: int) -> None:
        """Mark that this participant is ready for the window."""
        self._words[slot * FIELDS + ARRIVED] = window

    def mark_measured(self, slot: int, window: int) -> None:
        """Mark that this participant has measured the window. It goes on so that others do not measure alone."""
        self._words[slot * FIELDS + MEASURED] = window

    def add_step(self, slot: int) -> None:
        """Add a finished step of this participant."""
        self._words[slot * FIELDS + STEPS] += 1

    def steps(self, slot: int) -> int:
        return self._words[slot * FIELDS + STEPS]

    def missing(self, members: Sequence[int], window: int) -> list[int]:
        """Members that have not arrived for the window."""
        return [slot for slot in members if self._words[slot * FIELDS + ARRIVED] < window]

    def measuring(self, members: Sequence[int], window: int) -> list[int]:
        """Members that have not measured the window yet."""
        return [slot for slot in members if self._words[slot * FIELDS + MEASURED] < window]

    def line_up(self, slot: int, members: Sequence[int], window: int, timeout: float) -> None:
        """Arrive and wait for all others. Raises TimeoutError naming the slots that did not come within `timeout` s."""
        self.arrive(slot, window)
        end = time.monotonic() + timeout
        while missing := self.missing(members, window):
            if time.monotonic() > end:
                raise TimeoutError(f"participants {missing} did not arrive in {timeout:g} s")
            time.sleep(NAP_S)

    def close(self) -> None:
        self._words.release()
        self._memory.close()
        os.close(self.descriptor)
