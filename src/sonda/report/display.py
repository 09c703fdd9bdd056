"""Parts of a run that show themselves: as text when printed, as a table or a drawing in a notebook."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, TypeVar, overload

from sonda.analysis.comparison.summary import Comparison
from sonda.analysis.corun.interference import Interference
from sonda.analysis.roofline import lines
from sonda.analysis.summary import LayerRow, PartSummary, PhaseRow, Summary, Value
from sonda.record.errors import SondaError
from sonda.report import figures
from sonda.report.blocks import Paragraph, TableBlock
from sonda.report.charts.chart import Chart
from sonda.report.charts.svg import standalone
from sonda.report.cost_quantities import COST_QUANTITIES
from sonda.report.notebook import render_fragment
from sonda.report.screen import render
from sonda.report.table import Table
from sonda.report.views.compare.screen import comparison_glance
from sonda.report.views.corun import CorunView
from sonda.report.views.simulated import simulated_layer_table, stack_tables
from sonda.report.views.steps.tables import layer_table, phase_table

OF_LAYER = ("forward", "backward", "own", "activations")
"""Numbers of a layer beside those of its cost."""


Row = TypeVar("Row", PhaseRow, LayerRow)


class PartRows(Sequence[Row]):
    """Rows of a part that show themselves as a table. A sequence."""

    nothing = ""
    """What is shown where there are no rows."""
    texts: Mapping[str, str] = MappingProxyType({})
    """Fields of a row that are no numbers, and the Arrow types of their columns."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows: tuple[Row, ...] = tuple(rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        return self.rows[index]

    @property
    def table(self) -> Table:
        """The rows as a table."""
        raise NotImplementedError

    def to_arrow(self) -> Any:
        """An Arrow table, a row for each, per step; the fields of numbers say their unit and source."""
        import pyarrow as pa

        about_columns = [pa.field(name, getattr(pa, kind)()) for name, kind in self.texts.items()]
        columns: list[list[Any]] = [[getattr(row, name) for row in self.rows] for name in self.texts]
        about_columns.append(pa.field("bound", pa.string()))
        columns.append([row.cost.bound for row in self.rows])
        for name, values in self._numbers().items():
            units, sources = ({getattr(value, key): None for value in values if value.value is not None}
                              for key in ("unit", "source"))  # fmt: skip
            about = {"unit": ", ".join(units), "source": ", ".join(sources)}
            about_columns.append(pa.field(name, pa.float64(), metadata=about))
            columns.append([value.value for value in values])
        schema = pa.schema(about_columns)
        return pa.table(
            [pa.array(cells, field.type) for cells, field in zip(columns, schema, strict=True)], schema=schema
        )

    def _numbers(self) -> dict[str, list[Value]]:
        """Quantities of every row, by name; those of simulated machines where there are any."""
        values = {quantity.name: [quantity.value(row.cost) for row in self.rows] for quantity in COST_QUANTITIES}
        if any(row.simulated is not None for row in self.rows):
            nothing = Value(None, "cycle", "simulated")
            values["cycles"] = [row.simulated.cycles if row.simulated else nothing for row in self.rows]
        return values

    def to_pandas(self) -> Any:
        """The same as a pandas DataFrame. Raises SondaError where pandas is not installed."""
        return arrow_to_pandas(self.to_arrow())

    def __repr__(self) -> str:
        if not self.rows:
            return self.nothing
        return render([TableBlock(self.table, indent=0)], color=False)

    def _repr_html_(self) -> str:
        return render_fragment([TableBlock(self.table) if self.rows else Paragraph(self.nothing.strip("<>"))])


class Layers(PartRows[LayerRow]):
    """The layers of a part, parents before their children. A sequence of `LayerRow`."""

    nothing = "<no layer was seen>"
    texts = MappingProxyType({"path": "string", "name": "string", "leaf": "bool_", "calls": "int64"})

    def __init__(self, part: PartSummary | None) -> None:
        super().__init__(part.layers if part is not None else ())

    @property
    def table(self) -> Table:
        """All layers as a table; of a simulated machine, those of which something ran on an engine."""
        simulated = [row for row in self.rows if row.own_simulated is not None]
        return simulated_layer_table(simulated, "layer") if simulated else layer_table(self.rows, "layer", own=True)

    def _numbers(self) -> dict[str, list[Value]]:
        return {name: [getattr(row, name) for row in self.rows] for name in OF_LAYER} | super()._numbers()


class StepPhases(PartRows[PhaseRow]):
    """The phases of a part in their order. A sequence of `PhaseRow`."""

    nothing = "<no phase was seen>"
    texts = MappingProxyType({"name": "string"})

    def __init__(self, part: PartSummary | None) -> None:
        super().__init__(part.phases if part is not None else ())
        self.part = part

    @property
    def table(self) -> Table:
        """All phases as a table; of a simulated machine, what their cycles were spent on. Raises SondaError without a
        part."""
        if self.part is None:
            raise SondaError("no phase was seen", "take a run with steps")
        return stack_tables(self.part)[0] if self.part.simulated is not None else phase_table(self.part)

    def _numbers(self) -> dict[str, list[Value]]:
        return super()._numbers() | {"peak_memory": [row.peak_memory for row in self.rows]}


@dataclass(frozen=True, repr=False)
class ComparisonDisplay(Comparison):
    """B against A, which shows itself: as text when printed, as tables in a notebook."""

    def __repr__(self) -> str:
        return render(comparison_glance(self), color=False)

    def _repr_html_(self) -> str:
        return render_fragment(comparison_glance(self))


def display_comparison(comparison: Comparison) -> ComparisonDisplay:
    """The same comparison, able to show itself."""
    return ComparisonDisplay(**{field.name: getattr(comparison, field.name) for field in fields(comparison)})


@dataclass(frozen=True, repr=False)
class InterferenceDisplay(Interference):
    """Programs side by side, who slows whom, which shows itself: as text when printed, as tables in a notebook."""

    def __repr__(self) -> str:
        return CorunView(self).text(color=False)

    def _repr_html_(self) -> str:
        return CorunView(self).fragment()


def display_interference(interference: Interference) -> InterferenceDisplay:
    """The same experiment, able to show itself."""
    return InterferenceDisplay(**{field.name: getattr(interference, field.name) for field in fields(interference)})


class Drawing:
    """A figure: a drawing in a notebook, whose marks say what they are under the pointer."""

    def __init__(self, figure: Chart, words: str) -> None:
        self.figure = figure
        self._words = words

    def _repr_svg_(self) -> str:
        return standalone(self.figure)

    def __repr__(self) -> str:
        return self._words


def roofline_drawing(summary: Summary) -> Drawing:
    """Every leaf of the first part under the machine's ceilings. Raises SondaError where there is nothing to draw."""
    part = summary.parts[0] if summary.parts else None
    figure = figures.roofline(part.layers, lines(summary.ceilings)) if part is not None else None
    if figure is None or part is None:
        raise SondaError(
            f"no layer of run {summary.run} has FLOPs, bytes and time", "draw a measured run whose steps were counted"
        )
    count = len(figures.roofline_rows(part.layers))
    return Drawing(figure, f"<roofline of run {summary.run}: {count} layer{'' if count == 1 else 's'}>")


def arrow_to_pandas(table: Any) -> Any:
    """An Arrow table as a pandas DataFrame, with units and sources of its columns in `attrs`: pandas drops them.

    Raises SondaError where pandas is not installed.
    """
    from importlib.util import find_spec

    if find_spec("pandas") is None:
        raise SondaError("pandas is not installed", "pip install pandas, or use .to_arrow()")
    frame = table.to_pandas()
    for about in (b"unit", b"source"):
        texts = {
            field.name: field.metadata[about].decode() for field in table.schema if about in (field.metadata or {})
        }
        frame.attrs[about.decode()] = texts
    return frame
