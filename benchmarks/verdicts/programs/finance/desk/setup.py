"""Settings of a run and how they take effect."""

import random
from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class RunConfig:
    seed: int = 2024
    repeatable: bool = True
    assets: int = 384
    lookback: int = 8
    hidden: int = 1024
    batch: int = 512
    steps: int = 45
    lr: float = 3e-4


def settle(config):
    """Seed every generator; a repeatable run also sums in one fixed order."""
    random.seed(config.seed)
    np.random.seed(config.seed)
    torch.manual_seed(config.seed)
    if config.repeatable:
        torch.use_deterministic_algorithms(True)
        torch.set_num_threads(1)
