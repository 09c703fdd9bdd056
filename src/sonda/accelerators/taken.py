"""What an engine makes of many operations at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sonda.accelerators.result import Result


@dataclass(frozen=True)
class Taken:
    """Some of the operations that an engine was given, each under a mapping."""

    places: Sequence[int]
    """Which of them."""
    result: Result
    """Counts are arrays with an element for each: of one of the products that the operation consists of."""
    count: NDArray[np.int64]
    """Products of each operation, which follow each other."""
    mapping: Callable[[int], dict[str, Any]]
    """Of an element."""
