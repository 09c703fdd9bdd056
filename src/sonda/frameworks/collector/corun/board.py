"""The board: shared memory on which the participants of an experiment line up, and on which their life can be seen.

Every number has one writer, so nothing needs a lock. Participants are slots; a window is a number that only grows.
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
"""Between two looks. Participants that share a core must let each other arrive, so nobody spins."""


class Board:
    """Made by the parent with `Board.make`, opened by participants from its descriptor."""

    def __init__(self, descriptor: int, slots: int) -> None:
        self.descriptor = descriptor
        self.slots = slots
        self._memory = mmap.mmap(descriptor, slots * FIELDS * WORD)
        self._words = memoryview(self._memory).cast("q")

    @classmethod
    def make(cls, slots: int) -> Board:
        """Memory without a name: it is gone with the last process that holds it, however that ends."""
        descriptor = os.memfd_create("sonda-board")
        os.ftruncate(descriptor, slots * FIELDS * WORD)
        return cls(descriptor, slots)

    def arrive(self, slot: int, window: int) -> None:
        """This participant is ready for the window."""
        self._words[slot * FIELDS + ARRIVED] = window

    def mark_measured(self, slot: int, window: int) -> None:
        """This participant has measured the window, and goes on only so that others do not measure alone."""
        self._words[slot * FIELDS + MEASURED] = window

    def add_step(self, slot: int) -> None:
        """This participant has finished another step."""
        self._words[slot * FIELDS + STEPS] += 1

    def steps(self, slot: int) -> int:
        return self._words[slot * FIELDS + STEPS]

    def missing(self, members: Sequence[int], window: int) -> list[int]:
        """Members that have not arrived."""
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
