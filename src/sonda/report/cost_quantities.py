"""The quantities of a cost: the one list from which terminal, page, notebook and `--json` take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sonda.analysis.summary import Cost, Value
from sonda.report.table import LAST, Cell, Column, numbers, percents

Place = Literal["phases", "layers", "hover"]
"""The table of phases, the tables of layers, and the box that a layer's point shows under the mouse."""


@dataclass(frozen=True)
class CostQuantity:
    """A number of `Cost` and where it shows. `--json` and `to_arrow` have every one, in the order of the list. Its unit
    is that of its values."""

    name: str
    """Field or property of `Cost`; the name in `to_arrow` and, with its source, in `--json`: `flops:nominal`."""
    shows: tuple[Place, ...] = ()
    label: str = ""
    """What precedes it in a hover box."""
    heading: str = ""
    """Stands above its column, before the unit."""
    hint: str = ""
    """What the column's tooltip says."""
    percent: bool = False
    """Whether 1 is shown as 100 %."""
    keep: int = LAST
    """As in `Column`."""

    def value(self, cost: Cost) -> Value:
        value = getattr(cost, self.name)
        assert isinstance(value, Value), f"Cost.{self.name} is no Value"
        return value

    def column(self, costs: Sequence[Cost]) -> tuple[Column, list[Cell]]:
        """Its column in a table with a row for each cost."""
        values = [self.value(cost) for cost in costs]
        unit, cells = ("", percents(values)) if self.percent else numbers(values)
        return Column(f"{self.heading} {unit}".strip(), keep=self.keep, hint=self.hint), cells


COST_QUANTITIES = (
    CostQuantity("time"),
    CostQuantity("flops", ("phases", "layers", "hover"), "FLOPs", keep=2,
                 hint="floating-point operations per step; a multiply-add is two"),
    CostQuantity("bytes"),
    CostQuantity("achieved", ("phases", "hover"), "achieved", keep=1, hint="achieved"),
    CostQuantity("bandwidth"),
    CostQuantity("roof", ("phases", "layers"), heading="% of roof", percent=True, keep=5,
                 hint="time that the measured ceilings allow, divided by the time taken"),
    CostQuantity("operations"),
)  # fmt: skip
"""Tables place times themselves: phases before their share, layers by direction."""


def cost_values(cost: Cost) -> dict[str, Value]:
    """Every quantity by its name; `executed_flops` where these are fewer than `flops`."""
    values = {quantity.name: quantity.value(cost) for quantity in COST_QUANTITIES}
    return values if cost.executed is None else {**values, "executed_flops": cost.executed}


def shown_in(place: Place) -> tuple[CostQuantity, ...]:
    """The quantities that show there, in order."""
    return tuple(quantity for quantity in COST_QUANTITIES if place in quantity.shows)


def cost_columns(costs: Sequence[Cost], place: Place) -> list[tuple[Column, list[Cell]]]:
    """The columns of a table with a row for each cost."""
    return [quantity.column(costs) for quantity in shown_in(place)]
