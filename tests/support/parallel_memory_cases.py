"""Helpers of `test_parallel_memory.py` that other tests use too."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sonda.frameworks.torch.parallel.shared_memory import SharedMemory


class Keys:
    """A store of PyTorch's, as far as ranks use it here."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.changed = threading.Condition()

    def set(self, key: str, value: str) -> None:
        with self.changed:
            self.values[key] = value.encode()
            self.changed.notify_all()

    def get(self, key: str) -> bytes:
        with self.changed:
            assert self.changed.wait_for(lambda: key in self.values, 300)
            return self.values[key]


def on_threads(
    size: int, work: Callable[[SharedMemory], Any], room: int = 1 << 16, timeout_s: float = 300
) -> list[Any]:
    """What each rank's work gives; ranks are threads, their regions the same as between processes."""
    keys = Keys()

    def rank(number: int) -> Any:
        return work(SharedMemory(number, size, keys, "test", room, timeout_s))

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(rank, range(size)))
