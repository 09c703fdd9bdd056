"""How long, how fast, and in which portions to train."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    seed: int = 5
    steps: int = 45
    rate: float = 1e-3
    batch: int = 256
    part: int = 4
