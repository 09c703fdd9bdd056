"""Settings of the laboratory, and how models and images are made ready for it."""

from dataclasses import dataclass

import torch


@dataclass
class Lab:
    side: int = 96
    batch: int = 16
    steps: int = 40
    rate: float = 0.05
    layout: torch.memory_format = torch.contiguous_format
    dtype: torch.dtype = torch.float32


def ready(thing, lab):
    """A model or a batch in the type and the layout that the laboratory works with."""
    return thing.to(dtype=lab.dtype, memory_format=lab.layout)
