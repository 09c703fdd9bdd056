"""`stress-cache`, `stress-bandwidth`, `stress-compute`: kernels that want one part of the machine and little else.

They are neighbours for other workloads. Sizes follow the caches of the machine that they run on.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from sonda.record.errors import SondaError
from sonda.workloads.description import SIZE, Description, option, whole

if TYPE_CHECKING:
    from sonda.record.protocols import Task

FLOAT = 4
LINE = 64
"""Bytes of a cache line on x86-64 and on most arm64."""
ASSUMED = {2: 1 << 20, 3: 32 << 20}
"""Bytes of a cache where the kernel shows none."""
UNITS = {"K": 1 << 10, "M": 1 << 20}


def cache_bytes(level: int, root: Path = Path("/")) -> int:
    """Bytes of the first processor's cache of this level; an assumption where the kernel shows none."""
    for index in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index[0-9]*")):
        try:
            its_level = int((index / "level").read_text())
            kind, size = (index / "type").read_text().strip(), (index / "size").read_text().strip()
            if its_level == level and kind != "Instruction":
                return int(size[:-1]) * UNITS[size[-1]]
        except (OSError, ValueError, KeyError, IndexError):
            continue
    return ASSUMED[level]


@dataclass(frozen=True)
class Stress(Description):
    """What the three stress workloads share. They only infer: they have nothing to learn."""

    kind: ClassVar[str]

    size: int = option(0, SIZE, "bytes that a pass touches; 0: what suits this machine's caches")
    rounds: int = option(1, whole(), "passes in a step")

    def __post_init__(self) -> None:
        if not self.size:
            object.__setattr__(self, "size", self.suitable_size())
        super().__post_init__()

    @property
    def name(self) -> str:
        return f"stress-{self.kind}"

    def suitable_size(self) -> int:
        """The size that suits this machine's caches, bytes."""
        raise NotImplementedError

    def check(self) -> None:
        if self.size < 4096:
            raise SondaError(f"{self.name}: size={self.size} is less than a page", "use 4KiB or more")

    def in_torch(self, train: bool, seed: int) -> Task:
        from sonda.workloads.in_torch.stress import build

        if train:
            raise SondaError(f"{self.name} does not learn", "leave out --train")
        return build(self, seed)


@dataclass(frozen=True)
class StressCache(Stress):
    """Adds up every line of a buffer that fills half of the last-level cache, in random order.

    The order defeats prefetching, so what counts is whether the lines are still in the cache.
    """

    kind = "cache"

    def suitable_size(self) -> int:
        return cache_bytes(3) // 2

    @property
    def lines(self) -> int:
        return self.size // LINE


@dataclass(frozen=True)
class StressBandwidth(Stress):
    """a = b + s·c over arrays four times as large as the last-level cache together, so that all comes from memory."""

    kind = "bandwidth"

    def suitable_size(self) -> int:
        return 4 * cache_bytes(3)

    @property
    def elements(self) -> int:
        """Of each of the three arrays."""
        return self.size // (3 * FLOAT)


@dataclass(frozen=True)
class StressCompute(Stress):
    """Products of square matrices that together fill half of the second-level cache: arithmetic, hardly any memory."""

    kind = "compute"

    rounds: int = option(16, whole(), "products in a step")

    def suitable_size(self) -> int:
        return cache_bytes(2) // 2

    @property
    def side(self) -> int:
        """Of each of the three matrices, a multiple of 16: whole vectors."""
        return max(16, int((self.size / (3 * FLOAT)) ** 0.5) // 16 * 16)
