"""The watchdog: who of those that should be stepping has not, seen on the board."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from sonda.frameworks.collector.board import Board


class Watchdog:
    """Tells which slots have finished no step for `timeout` seconds, although they should."""

    def __init__(self, board: Board, timeout: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.board = board
        self.timeout = timeout
        self.clock = clock
        self._seen: dict[int, tuple[int, float]] = {}

    def restart(self) -> None:
        """A new window begins: nobody owes a step yet."""
        self._seen.clear()

    def stuck(self, members: Sequence[int]) -> list[int]:
        now = self.clock()
        found = []
        for slot in members:
            steps = self.board.steps(slot)
            last, since = self._seen.get(slot, (-1, now))
            if steps != last:
                self._seen[slot] = (steps, now)
            elif now - since > self.timeout:
                found.append(slot)
        return found
