"""Ceilings that a program beats while its operations are counted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from builders import RunBuilder
from sonda.frameworks.reconstruction.assembly import Assembly
from sonda.targets import circumstances

NS = 1000
"""What an operation of a builder takes."""


def program(flops: dict[str, float] | None = None, devices: dict[str, Any] | None = None) -> Assembly:
    """A counted step with a convolution of 144 GFLOP/s of which 120 are executed, a product of 105, and an addition
    whose formula counts too much."""
    builder = RunBuilder()
    forward = builder.step(builder.part("train"), 10, {"forward": 10}, pass_="count")["forward"]
    convolution = builder.op(forward, "aten.convolution", 144.0 * NS, 1.0)
    builder.rows[convolution]["metrics"]["executed_flops:nominal"] = 120.0 * NS
    builder.op(forward, "aten.mm", 105.0 * NS, 1.0)
    builder.op(forward, "aten.add", 9e3 * NS, 1.0)
    return Assembly(spans=builder.spans(), flops=flops or {"float32": 1e9, "int64": 0.0}, devices=devices or {})


def record(peak: float, minutes: float = 0.0, disturbed: list[str] | None = None) -> dict[str, Any]:
    measured = (datetime.now(UTC) - timedelta(minutes=minutes)).isoformat()
    return {"threads": {"2": {"flops": {"float32": peak}, "measured": measured, "disturbed": disturbed or []}}}


def hold_above(assembly: Assembly, ceilings: dict[str, Any]) -> float:
    held = circumstances._hold_above(assembly, 2, ceilings, Path("nowhere"), {})
    return float(held["threads"]["2"]["flops"]["float32"])


def test_a_peak_is_no_lower_than_what_a_counted_product_executes() -> None:
    assert hold_above(program(), record(1e11)) == pytest.approx(120e9)


def test_a_peak_that_was_not_beaten_stays() -> None:
    assert hold_above(program(), record(1.3e11)) == 1.3e11


@pytest.mark.parametrize(
    "assembly",
    [program(flops={"float32": 1e9, "bfloat16": 1e9}), program(devices={"0": {}})],
    ids=["two precisions", "a GPU, whose calls return before their work is done"],
)
def test_where_a_product_s_rate_is_not_known_the_peak_stays(assembly: Assembly) -> None:
    assert hold_above(assembly, record(1e11)) == 1e11


def test_an_old_peak_that_was_beaten_is_measured_again_first(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def measure(root: Path, threads: list[int], machine: dict[str, Any], again: bool) -> dict[str, Any]:
        asked.append(again)
        return record(1.25e11)

    monkeypatch.setattr(circumstances, "load_or_measure", measure)
    assert hold_above(program(), record(1e11, minutes=60)) == 1.25e11
    assert asked == [True]


def test_a_disturbed_peak_which_nothing_is_held_against_is_not_measured_again() -> None:
    assert hold_above(program(), record(1e11, minutes=60, disturbed=["others ran"])) == 1e11
