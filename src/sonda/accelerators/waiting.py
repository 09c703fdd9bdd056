"""Many memories at once, for what moves to and from them and how long engines wait for that (see `behind`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sonda.accelerators.memory import Memory, Sizes


class Memories:
    """Several memories as if they were one whose numbers are arrays, an element for each memory."""

    def __init__(self, memories: Sequence[Memory]) -> None:
        self.sizes = Sizes(*np.array([memory.sizes for memory in memories], np.int64).T)
        self.double_buffering = _of(memories, "double_buffering", np.bool_)
        self.bytes_per_cycle = _of(memories, "bytes_per_cycle", np.float64)
        self.latency_cycles = _of(memories, "latency_cycles", np.int64)
        self.row_miss_cycles = _of(memories, "row_miss_cycles", np.int64)
        self.banks = _of(memories, "banks", np.int64)


def _of(memories: Sequence[Memory], name: str, kind: Any) -> Any:
    return np.array([getattr(memory, name) for memory in memories], kind)
