"""The roofline of kernels on a screen, on a page and as a document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sonda.analysis.device.kernel_roofline import LEVELS, KernelRoof, Roofs
from sonda.analysis.summary import Value
from sonda.report import quantities
from sonda.report.charts.chart import Chart, Points
from sonda.report.figures import ceiling_lines, largest_of, mark_size, roofline_chart
from sonda.report.palette import BOUND_COLORS, GREEN
from sonda.report.palette import SYMBOLS as MARKS
from sonda.report.table import Cell, Column, Table, build, numbers, percents, words
from sonda.report.values import value_document
from sonda.report.views.device.kernels import kernel_name

MOST_POINTS = 300
COLORS = {"compute": BOUND_COLORS["compute"], "DRAM": BOUND_COLORS["memory"], "L2": GREEN, "": BOUND_COLORS[""]}
SYMBOLS = {"compute": MARKS["compute"], "DRAM": MARKS["memory"], "L2": "diamond", "": MARKS[""]}
"""Of what bounds a kernel, as colours are; open at its intensity in L2."""
OPEN = {"DRAM": "", "L2": "-open"}
LINES = {"solid": "solid: measured", "dash": "dashed: theoretical"}


def kernel_roof_table(rows: Sequence[KernelRoof]) -> Table:
    """Kernels against their ceilings, one row each."""
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (Column("kernel", right=False), [kernel_name(row.name) for row in rows]),
        (Column("launches", keep=2), numbers([Value(row.launches, "1", "counted") for row in rows])[1]),
        (Column("mean"), numbers([row.time for row in rows], suffix=True)[1]),
        (Column("precision", right=False, keep=7), words([row.precision for row in rows])),
        (Column("achieved", keep=6), numbers([row.achieved for row in rows], suffix=True)[1]),
        (Column("% of peak", keep=7, hint="the measured one of this precision"), percents([row.peak for row in rows])),
        (Column("% of theory", keep=4, hint="the maker's peak of it"), percents([row.theory for row in rows])),
    ]
    for level in LEVELS:
        if any(level in row.bandwidth for row in rows):
            cells = percents([_level(row, level) for row in rows])
            columns.append((Column(f"% of {level}", keep=5, hint=f"of the measured bandwidth of {level}"), cells))
    columns.append((Column("% of roof", hint="time that the ceilings allow, divided by the time taken"),
                    percents([row.roof for row in rows])))  # fmt: skip
    columns.append((Column("bound", right=False), words([row.bound for row in rows], _tone)))
    return build(columns, "roofline of kernels")


def kernel_roofline(rows: Sequence[KernelRoof], roofs: Roofs) -> Chart | None:
    """Kernels as points, filled at their DRAM intensity and open at their L2 intensity, under the roofs of their
    precisions; None where no kernel has FLOPs and bytes. Areas are the time of all launches."""
    points = _marks(rows)
    if not points:
        return None
    across = [x for _, _, x in points]
    marks = ceiling_lines(
        roofs.lines(list(dict.fromkeys(row.precision for row, _, _ in points))), min(across), max(across)
    )
    longest = max(row.total for row, _, _ in points) or 1.0
    for level, form in OPEN.items():
        for bound, color in COLORS.items():
            chosen = [(row, x) for row, of, x in points if of == level and row.bound == bound]
            if chosen:
                marks.append(Points(
                    f"{level} intensity, {_bound_words(bound)}", color,
                    tuple((x, row.achieved.value or 0.0) for row, x in chosen), symbols=(SYMBOLS[bound] + form,),
                    sizes=tuple(mark_size(row.total, longest) for row, _ in chosen), opacity=0.8,
                    hints=tuple(f"{_words(row)}\n{level} intensity {quantities.number(x)} FLOP/B, counted"
                                for row, x in chosen),
                ))  # fmt: skip
    return roofline_chart(marks, "intensity, FLOP per byte (counted)", 380)


def _marks(rows: Sequence[KernelRoof]) -> list[tuple[KernelRoof, str, float]]:
    """The kernels of the picture, each with a memory level and its intensity there."""
    shown = sorted(rows, key=lambda row: -row.total)[:MOST_POINTS]
    points = [(row, level, row.intensity(level)) for row in shown for level in LEVELS]
    return [(row, level, x) for row, level, x in points if x and row.achieved.value]


def kernel_caption(rows: Sequence[KernelRoof], figure: Chart) -> str:
    """What the marks and lines of the picture of these kernels are, of those that it has."""
    drawn = {level for _, level, _ in _marks(rows)}
    levels = [level for level in OPEN if level in drawn]
    both = len(levels) == len(OPEN)
    where = "filled by its bytes in DRAM, open by those in L2" if both else f"by its bytes in {levels[0]}"
    dashes = {mark.line for mark in figure.marks if isinstance(mark, Points)}
    roofs = [words for dash, words in LINES.items() if dash in dashes]
    sentence = f" Lines are ceilings ({', '.join(roofs)})." if roofs else ""
    return f"Each kernel {where}, as counted.{sentence}{largest_of(MOST_POINTS, len(rows), 'kernels', 'time')}"


def kernel_roof_fields(rows: Sequence[KernelRoof]) -> list[dict[str, Any]]:
    """For `--json`; amounts are means of a launch."""
    return [
        {
            "name": row.name, "launches": row.launches, "total_ns": row.total, "precision": row.precision,
            "bound": row.bound,
            **{name: value_document(getattr(row, name)) for name in
               ("time", "flops", "achieved", "peak", "theory", "roof")},
            "traffic": {level: value_document(value) for level, value in row.traffic.items()},
            "bandwidth": {level: value_document(value) for level, value in row.bandwidth.items()},
        }
        for row in rows
    ]  # fmt: skip


def _level(row: KernelRoof, level: str) -> Value:
    return row.bandwidth.get(level, Value(None, "1", "derived", reason=f"{level} bytes were not counted"))


def _tone(bound: str) -> str:
    return bound if bound == "compute" else "memory"


def _bound_words(bound: str) -> str:
    return f"{bound}-bound" if bound else "no clear bound"


def _words(row: KernelRoof) -> str:
    """Everything about a kernel, one line each, for the hover box."""
    lines = [
        row.name[:120],
        f"{row.launches:,} launches, {quantities.amount(row.total, 'ns')} in all",
        f"achieved {quantities.provenance(row.achieved)}",
    ]
    if quantities.known(row.peak):
        lines.append(f"{quantities.percent(row.peak.value)} % of the measured peak of {row.precision}")
    if quantities.known(row.theory):
        lines.append(f"{quantities.percent(row.theory.value)} % of the theoretical peak")
    lines += [f"{quantities.percent(value.value)} % of {level}'s bandwidth" for level, value in row.bandwidth.items()
              if quantities.known(value)]  # fmt: skip
    if quantities.known(row.roof):
        lines.append(f"{quantities.percent(row.roof.value)} % of roof, {_bound_words(row.bound)}")
    return "\n".join(lines)
