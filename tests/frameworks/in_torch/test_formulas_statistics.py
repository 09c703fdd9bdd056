"""Statistics of a batch norm by themselves, as ranks that share one take them, against the same written out."""

from __future__ import annotations

import torch
from torch import Tensor

from formulas_cases import cost_of
from formulas_layers_cases import same_work

IMAGE = torch.randn(5, 4, 6, generator=torch.Generator().manual_seed(3))


def written_out(x: Tensor) -> tuple[Tensor, Tensor]:
    m = x.numel() // x.shape[1]
    mean = x.sum((0, 2)) / m
    deviation = x - mean[:, None]
    return mean, (deviation * deviation).sum((0, 2)) / m


def test_statistics_are_mean_and_variance_alone() -> None:
    same_work(lambda: torch.batch_norm_update_stats(IMAGE, None, None, 0.0), lambda: written_out(IMAGE))


def test_statistics_by_hand() -> None:
    """120 values in 4 channels: mean 120 + 4, variance 120 (−) + 240 (multiply-add) + 4 (÷)."""
    entry = cost_of(lambda: torch.batch_norm_update_stats(IMAGE, None, None, 0.0), "aten.batch_norm_update_stats")
    assert entry.flops == 120 + 4 + 120 + 240 + 4
    assert entry.bytes == 4 * (120 + 4 + 4)


def test_running_statistics_are_read_and_written() -> None:
    """3 each for mean and variance and 1 for the unbiased variance, of 4 channels."""
    running = torch.zeros(4), torch.ones(4)
    entry = cost_of(lambda: torch.batch_norm_update_stats(IMAGE, *running, 0.1), "aten.batch_norm_update_stats")
    assert entry.flops == 488 + 7 * 4
    assert entry.bytes == 4 * (120 + 8 + 2 * 8)
