"""Why a device counts more or fewer FLOPs than formulas have."""

from __future__ import annotations

import pytest

from sonda.report.words.device import _because


@pytest.mark.parametrize(
    ("layer", "ratio", "reason"),
    [
        ("Conv2d", 0.5, "Winograd"),
        ("Linear", 0.5, "not counted as FLOPs"),
        ("Add", 2.0, "multiply-add of two"),
        ("Linear", 1.5, "filled up"),
        ("Softmax", 3.0, "such as exp"),
        ("GELU", 3.0, "such as exp"),
        ("MaxPool2d", 3.0, ""),
    ],
)
def test_a_reason_fits_the_layer(layer: str, ratio: float, reason: str) -> None:
    told = _because(layer, ratio)
    assert reason in told and bool(told) == bool(reason)
