"""The list of a cost's quantities is the one place that says where each shows."""

from __future__ import annotations

from dataclasses import fields

import pytest

from report_examples import cost
from sonda.analysis.summary import Cost, Value, arithmetic_intensity
from sonda.report.cost_quantities import COST_QUANTITIES, CostQuantity, cost_columns, cost_values

COST = cost(time=2e6, step=8e6, flops=6e9, moved=3e6)


def test_every_number_of_a_cost_is_in_the_list_in_its_order() -> None:
    """What follows from others stands among them as a property."""
    held = [field.name for field in fields(Cost) if isinstance(getattr(COST, field.name), Value)]
    listed = list(cost_values(COST))
    assert [name for name in listed if name in held] == held
    assert all(isinstance(getattr(Cost, name), property) for name in listed if name not in held)


def test_a_property_of_a_cost_is_a_column_by_its_row_in_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    row = CostQuantity("intensity", ("layers",), heading="intensity", keep=2)
    monkeypatch.setattr("sonda.report.cost_quantities.COST_QUANTITIES", (*COST_QUANTITIES, row))
    column, (cell,) = cost_columns([COST], "layers")[-1]
    assert (column.name, column.keep, cell.order, cell.unit) == ("intensity FLOP/B", 2, 2000.0, "FLOP/B")
    assert column not in [other for other, _ in cost_columns([COST], "phases")]
    assert cost_values(COST)["intensity"] == Value(2000.0, "FLOP/B", "derived")


@pytest.mark.parametrize(
    ("flops", "moved", "reason"),
    [(None, 4.0, "not counted"), (4.0, None, "not counted"), (4.0, 0.0, "no byte is moved")],
)
def test_intensity_is_missing_with_its_reason(flops: float | None, moved: float | None, reason: str) -> None:
    lacking = [Value(value, "1", "nominal", reason="not counted" if value is None else "") for value in (flops, moved)]
    assert arithmetic_intensity(*lacking) == Value(None, "FLOP/B", "derived", reason=reason)
