"""Helpers of `test_formulas_layers.py` that other tests use too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from formulas_cases import run_counted


def same_work(fused: Callable[[], Any], written_out: Callable[[], Any]) -> None:
    """Both give the same tensors and count the same FLOPs."""
    left, first = run_counted(fused)
    right, second = run_counted(written_out)
    torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-5)
    assert first.flops == second.flops > 0
