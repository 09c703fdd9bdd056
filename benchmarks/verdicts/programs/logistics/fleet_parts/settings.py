"""Settings of a run, from the environment where it says something."""

import os
from dataclasses import dataclass, field

import torch


def number(name, otherwise):
    return field(default_factory=lambda: int(os.environ.get(name, otherwise)))


@dataclass(frozen=True)
class Settings:
    trucks: int = number("FLEET_TRUCKS", 64)
    horizon: int = number("FLEET_HORIZON", 24)
    updates: int = number("FLEET_UPDATES", 40)
    lanes: int = number("FLEET_LANES", 12)

    def __post_init__(self):
        torch.manual_seed(7)
        torch.set_num_threads(self.lanes)
