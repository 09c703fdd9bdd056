"""The networks in PyTorch are what they were when each was written by hand: modules, weights, calls and results."""

from __future__ import annotations

import json
from typing import Any

import pytest

from network_records import CASES, KEPT, machine, record

BEFORE = json.loads(KEPT.read_text(encoding="utf-8"))
ROUNDING = 1e-4
"""Of float32 sums in another order, through some fifty layers."""
ROUNDING_FLOAT64 = 1e-8
"""Through three steps of training too, in which a batch norm of few values makes a difference 100,000 times larger."""


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[dict[str, Any], dict[str, Any]]:
    """A network as it is and as it was."""
    return record(request.param), BEFORE["networks"][request.param]


@pytest.mark.parametrize("part", ["modules", "state", "parameters", "loss", "optimizer", "calls", "equal_at_first"])
def test_modules_weights_and_calls_have_the_names_and_order_that_they_had(case: tuple, part: str) -> None:
    now, before = case
    assert now[part] == before[part]


def test_weights_and_inputs_are_drawn_as_they_were(case: tuple) -> None:
    now, before = case
    assert now["inputs"] == before["inputs"]
    assert now["initial"] == before["initial"]


def test_results_are_what_they_were(case: tuple) -> None:
    now, before = case
    assert now["output_norm"] == pytest.approx(before["output_norm"], rel=ROUNDING)
    assert now["losses"][0] == pytest.approx(before["losses"][0], rel=ROUNDING)
    assert now["losses_float64"] == pytest.approx(before["losses_float64"], rel=ROUNDING_FLOAT64)


@pytest.mark.skipif(machine() != BEFORE["machine"], reason="bits were kept by another processor or version of PyTorch")
def test_bits_of_results_are_what_they_were(case: tuple) -> None:
    now, before = case
    assert now["bits"] == before["bits"]
