"""An exploration on the terminal, on a page and as files: its sentence, its front, and which points cannot be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sonda.analysis.simulated.exploration import Exploration, Point, amount, times
from sonda.analysis.summary import TABLES, Value
from sonda.record.errors import SondaError
from sonda.report import quantities
from sonda.report.blocks import (
    FEW_ROWS,
    ROWS,
    Aside,
    Block,
    FigureBlock,
    Gap,
    Heading,
    Panel,
    Paragraph,
    TableBlock,
    View,
    answer,
    opening,
    paragraphs,
)
from sonda.report.charts.axes import log_axis
from sonda.report.charts.chart import Chart, ColorScale, Dots, Plot, Points
from sonda.report.output import whole_file
from sonda.report.palette import GREY, HEAT, VERMILION
from sonda.report.quantities import provenance
from sonda.report.table import LAST, Cell, Column, Table, build, numbers, words
from sonda.report.values import metrics, plain_data
from sonda.report.words import describe
from sonda.report.words.simulated import BEST_TRADE, SUPERLATIVES

# ---- All points of an exploration as a table: those of the front first, the impossible ones with their reason -------

MOST_POINTS = 2000
"""Points of the table. A larger exploration shows its front and an even sample of the rest."""
SIMULATED = ":simulated"


def points_table(exploration: Exploration, points: Any) -> Table:
    """A row for each point: its settings, its figures, whether it is on the front, and why not where it cannot be."""
    rows = _choose_points(points).to_pylist()
    columns: list[tuple[Column, Sequence[Cell]]] = []
    for key in exploration.axes:
        values = [row.get(key) for row in rows]
        right = all(isinstance(value, int | float) for value in values if value is not None)
        columns.append((Column(key, right=right), [_setting_cell(value) for value in values]))
    why = [str(row.get("impossible") or row.get("unpriced") or "") for row in rows]
    for name in ("cycles", "energy", "area"):
        column = f"{name}{SIMULATED}"
        if column in points.column_names:
            unit = (points.schema.field(column).metadata or {}).get(b"unit", b"1").decode()
            columns.append(_point_figures(name, unit, rows, why))
    columns.append((Column("on the front", right=False), words(["yes" if row["front"] else "no" for row in rows])))
    return build(columns, "points")


def _choose_points(points: Any) -> Any:
    """The rows to show, the front first."""
    import numpy as np

    front = points["front"].to_numpy()
    on_front, others = np.flatnonzero(front), np.flatnonzero(~front)
    room = max(0, MOST_POINTS - len(on_front))
    if len(others) > room:
        others = others[np.linspace(0, len(others) - 1, room).astype(int)] if room else others[:0]
    return points.take(np.concatenate([on_front[:MOST_POINTS], others]))


def _point_figures(
    name: str, unit: str, rows: Sequence[dict[str, Any]], why: Sequence[str]
) -> tuple[Column, list[Cell]]:
    values = []
    for row, reason in zip(rows, why, strict=True):
        stored = row[f"{name}{SIMULATED}"]
        # An impossible point has no cycles; one that no table prices has no energy or area.
        missing = stored is None or bool(reason and not stored)
        ends = (row.get(f"{name}_{end}{SIMULATED}") for end in ("low", "high"))
        low, high = (None if missing else end for end in ends)
        amount = None if missing else float(stored)
        values.append(Value(amount, unit, "simulated", low, high, reason if missing else "", bounds=TABLES))
    if name == "cycles":
        return Column(name), [_exact_cell(value) for value in values]
    shown, cells = numbers(values)
    return Column(f"{name} {shown}".strip(), hint="the tooltip has the bounds of the tables"), cells


def _exact_cell(value: Value) -> Cell:
    if value.value is None:
        return Cell(quantities.MISSING, None, value.reason, tone="quiet")
    return Cell(quantities.whole(value.value), value.value, "exact, simulated")


def _setting_cell(value: object) -> Cell:
    if value is None:
        return Cell(quantities.MISSING, tone="quiet")
    return Cell(str(value), value if isinstance(value, int | float) else str(value), tone="name")


# ---- Pictures of an exploration: every point as a dot, the Pareto front as larger ones ------------------------------

MOST_DOTS = 2000
"""Dots that are not on the front; of more an even sample is drawn."""
FEW_DOTS = 300
"""Up to so many dots are drawn larger."""


def trade_figure(exploration: Exploration, points: Any, name: str, shade: str = "") -> Chart:
    """Cycles to the right, or time where clocks differ, energy or area upwards, both logarithmic; the shade of the
    front, which is never empty, is a third objective."""
    scale = _scale(exploration, name)
    cloud = _points_off_front(points, name, exploration.by_time)
    others = tuple((x, y / scale.factor) for x, y in zip(*cloud, strict=True) if x > 0 and y > 0)
    best = tuple(
        (exploration.value(point, "cycles").value or 0.0, (point.values[name].value or 0.0) / scale.factor)
        for point in exploration.front
    )
    shades = _shading(exploration, shade)
    colors = tuple(shades.color(value) for value in _shade_values(exploration, shade)) if shades else ()
    front = Points(
        "Pareto front", "" if shades else VERMILION, best, symbols=("diamond",), sizes=(12,), colors=colors,
        hints=tuple(_hover(exploration, point) for point in exploration.front),
    )  # fmt: skip
    speed = "time, ns" if exploration.by_time else "cycles"
    values = [*others, *best]
    upright = log_axis(f"{name}, {scale.unit} (simulated)", [y for _, y in values], "1")
    dots = Dots("other points", GREY, others, 4 if len(others) > FEW_DOTS else 7)
    across = log_axis(f"{speed} (simulated)", [x for x, _ in values], "1")
    return Chart(across, (Plot(upright, (dots, front) if others else (front,)),), 340, scale=shades, legend=True)


def _points_off_front(points: Any, name: str, by_time: bool) -> tuple[list[float], list[float]]:
    """Cycles, or times, and figures of the points that are not on the front and have both."""
    import numpy as np

    front = points["front"].to_numpy()
    figures = points[f"{name}:simulated"].to_numpy(zero_copy_only=False).astype(np.float64)
    rows = np.flatnonzero(~front & ~np.isnan(figures))
    rows = rows[:: max(1, -(-len(rows) // MOST_DOTS))]
    cycles = points["cycles:simulated"].to_numpy(zero_copy_only=False).astype(np.float64)
    speed = times(points) if by_time else cycles
    return speed[rows].tolist(), figures[rows].tolist()


def _shade_values(exploration: Exploration, shade: str) -> list[float]:
    """The objective that shades stand for, of each point of the front, in the unit in which it is shown."""
    factor = _scale(exploration, shade).factor
    return [(point.values[shade].value or 0.0) / factor for point in exploration.front]


def _shading(exploration: Exploration, shade: str) -> ColorScale | None:
    values = _shade_values(exploration, shade) if shade else []
    if len(set(values)) < 2:  # one shade tells nothing
        return None
    return ColorScale(f"{shade}, {_scale(exploration, shade).unit}", HEAT, min(values), max(values))


def _scale(exploration: Exploration, name: str) -> quantities.UnitScale:
    """The scale in which an objective of the front is shown."""
    return quantities.common_scale(
        (point.values[name].value for point in exploration.front), exploration.front[0].values[name].unit
    )


def _hover(exploration: Exploration, point: Point) -> str:
    lines = [point.words]
    for name in ("time", *exploration.objectives) if exploration.by_time else exploration.objectives:
        value = point.values[name]
        bounds = ""
        if value.low is not None and value.high is not None:
            low, high = (amount(Value(end, value.unit, value.source)) for end in (value.low, value.high))
            bounds = f" ({low} to {high})"
        lines.append(f"{name} {amount(value)}{bounds}, {value.source}")
    return "\n".join(lines)


# ----------------------------------------------------------------------------------------------------------------------

SHOWN_REASONS = 5
MOST_ROWS = 500
"""Points of the front that a page lists."""
FEW_SETTINGS = 3
"""Columns that fit beside the figures."""
MARKS = {**SUPERLATIVES, "knee": BEST_TRADE}


def exploration_blocks(found: Exploration, rows: int = 10) -> list[Block]:
    """One screen: the sentence, `rows` of the front, counts."""
    blocks: list[Block] = [
        Heading(f"{found.title} · {found.subtitle}"),
        Gap(),
        Paragraph(describe(found.finding), "first"),
    ]
    shown = choose_front(found, rows)
    if shown:
        blocks += [Gap(), TableBlock(front_table(found, shown))]
        same = _shared_settings(found, shown)
        if same:
            words_of = " ".join(f"{key}={shown[0].settings[key]}" for key in same)
            blocks.append(Paragraph(f"all of them: {words_of}"))
        if len(shown) < len(found.front):
            blocks.append(
                Paragraph(
                    f"{len(found.front) - len(shown):,} more on the front, with --rows {len(found.front)}",
                    "quiet",
                    hang=0,
                )
            )
    blocks += [Gap(), *paragraphs(count_lines(found), "")]
    return [*blocks, Aside(paragraphs(map(describe, found.notes)))]


def exploration_glance(found: Exploration, rows: int) -> list[Block]:
    """The best points, those of the front that stand out, and how many points there were."""
    blocks = opening(f"{found.title} · {found.subtitle}", found.finding)
    shown = choose_front(found, rows)[:rows]
    if shown:
        blocks += [Gap(), TableBlock(front_table(found, shown), reasons=False)]
    counts = f"{found.points:,} points, {found.possible:,} possible, {len(found.front):,} on the front"
    return [*blocks, Paragraph(counts, "quiet"), Gap()]


def front_table(exploration: Exploration, points: Sequence[Point]) -> Table:
    """Points of the front, a row each: what varies, cycles, how many of them wait for memory, energy, area.

    Where clocks differ, the time of each stands before its cycles.
    """
    same = _shared_settings(exploration, points)
    settings = [key for key in exploration.axes if key not in same and any(key in point.settings for point in points)]
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (Column(key, right=_is_number(points, key), keep=LAST), _settings(points, key)) for key in settings
    ]
    if exploration.by_time:
        columns.append(_figures("time", [point.values["time"] for point in points]))
    cycles, cells = _figures("cycles", [point.values["cycles"] for point in points])
    # Beside times they are what a narrow screen can spare.
    columns.append((replace(cycles, keep=5) if exploration.by_time else cycles, cells))
    if any(point.values["memory_cycles"].value for point in points):
        columns.append(_figures("of them waiting", [point.values["memory_cycles"] for point in points]))
    for name in ("energy", "area"):
        if name in exploration.objectives:
            columns.append(_figures(name, [point.values[name] for point in points]))
    if len(exploration.on_host) > 1:
        columns.append((Column("on the host", right=False, keep=3), words([point.on_host for point in points])))
    if any(point.equal for point in points):
        equal = [f"{point.equal:,}" if point.equal else "" for point in points]
        columns.append((Column("equal", keep=1, hint="other points with the same figures"), words(equal)))
    columns.append((Column("stands out", right=False, keep=8), words([_mark(exploration, point) for point in points])))
    return build(columns, "front")


def choose_front(exploration: Exploration, rows: int) -> list[Point]:
    """The points that stand out, and others spread evenly over the front, in its order."""
    if len(exploration.front) <= rows:
        return list(exploration.front)
    marked = [point for point in exploration.front if _mark(exploration, point)]
    free = max(0, rows - len(marked))
    others = [point for point in exploration.front if point not in marked]
    step = len(others) / free if free else 0.0
    chosen = {id(point) for point in (*marked, *(others[int(step * place)] for place in range(free)))}
    return [point for point in exploration.front if id(point) in chosen]


def count_lines(exploration: Exploration) -> list[str]:
    """How many points there are, how fast they came, and what stood in the way of others, in sentences."""
    front = f"{len(exploration.front):,} on the front"
    done = f"{exploration.simulations:,} simulations" if exploration.simulations else "all of them simulated before,"
    lines = [
        f"{exploration.points:,} points, {exploration.possible:,} possible, {front}; {done} in "
        f"{exploration.seconds:.2f} s: {quantities.whole(exploration.rate)} points/s"
    ]
    for state, groups in (("impossible", exploration.impossible), ("not compared", exploration.unpriced)):
        for group in groups[:SHOWN_REASONS]:
            example = (group.example or group.reason).partition("; ")[0]
            lines.append(f"{group.points:,} {state}{', such as' if group.points > 1 else ''}: {example}")
        if len(groups) > SHOWN_REASONS:
            rest = sum(group.points for group in groups[SHOWN_REASONS:])
            lines.append(f"{rest:,} {state} for {len(groups) - SHOWN_REASONS} more reasons, all with --json")
    if len(exploration.on_host) > 1:
        lines.append("points that leave other operations to the host are compared among themselves only")
    return lines


def _trade_caption(exploration: Exploration, name: str, shade: str) -> str:
    varies = shade and len({point.values[shade].value for point in exploration.front}) > 1
    sampled = (
        " Of the other points an even sample is drawn."
        if exploration.possible - len(exploration.front) > MOST_DOTS
        else ""
    )
    return (
        f"Diamonds are the front: no other point is better in {', '.join(exploration.objectives)} at once. Down and "
        f"left is better in {exploration.speed} and {name}{f'; the shade is {shade}' if varies else ''}.{sampled}"
    )


def write_points(path: Path, points: Any, form: str) -> Path:
    """Write all points as a file of `csv` or `parquet`. Raises SondaError when it cannot be written."""
    import pyarrow as pa
    import pyarrow.csv as csv
    import pyarrow.parquet as parquet

    if form not in ("csv", "parquet"):
        raise SondaError(f"points are not written as {form!r}", "use csv or parquet")
    with whole_file(path) as stream:
        if form == "parquet":
            parquet.write_table(points, stream, compression="zstd")
        else:
            # Dictionaries are a matter of storage; a CSV file holds the words.
            plain_types = [
                field.with_type(pa.string()) if pa.types.is_dictionary(field.type) else field for field in points.schema
            ]
            csv.write_csv(points.cast(pa.schema(plain_types)), stream)
    return path


def _shared_settings(exploration: Exploration, points: Sequence[Point]) -> list[str]:
    """Settings that all these points share; none where there is room for all settings as columns."""
    settings = [key for key in exploration.axes if any(key in point.settings for point in points)]
    if len(settings) <= FEW_SETTINGS:
        return []
    return [key for key in settings if len({str(point.settings.get(key)) for point in points}) == 1]


def _mark(exploration: Exploration, point: Point) -> str:
    return ", ".join(MARKS[name] for name, best in exploration.best.items() if best.number == point.number)


def _figures(name: str, values: Sequence[Value]) -> tuple[Column, Sequence[Cell]]:
    if name in ("cycles", "of them waiting"):
        # Cycles are exact: all digits.
        texts = [quantities.MISSING if value.value is None else quantities.whole(value.value) for value in values]
        cells = [Cell(text, value.value, provenance(value)) for text, value in zip(texts, values, strict=True)]
        return Column(name, keep=LAST if name == "cycles" else 4), cells
    unit, cells = numbers(values)
    return Column(f"{name} {unit}".strip()), cells


def _settings(points: Sequence[Point], key: str) -> list[Cell]:
    return [
        Cell("–", tone="quiet")
        if key not in point.settings
        else Cell(str(point.settings[key]), point.settings[key], tone="name")
        for point in points
    ]


def _is_number(points: Sequence[Point], key: str) -> bool:
    return all(isinstance(point.settings.get(key, 0), int | float) for point in points)


def _point_fields(point: Point) -> dict[str, Any]:
    return {
        "point": point.number,
        "settings": point.settings,
        "metrics": metrics(point.values),
        "on_host": point.on_host,
        "equal": point.equal,
    }


class ExplorationView(View):
    """The best points and the Pareto front; `points`, an Arrow table, are all of them."""

    kind = "exploration"

    def __init__(self, found: Exploration, points: Any = None) -> None:
        self.found, self.points = found, points
        self.run, self.title = found.run, found.title

    def glance(self, rows: int = FEW_ROWS) -> list[Block]:
        return exploration_glance(self.found, rows)

    def tables(self, rows: int = ROWS) -> list[Block]:
        return exploration_blocks(self.found, rows)

    def full(self) -> list[Block]:
        found = self.found
        blocks: list[Block] = [Heading(found.title, f"{found.subtitle} · run {found.run}"), answer(found.finding)]
        front = front_table(found, found.front[:MOST_ROWS])
        others = [name for name in found.objectives if name != "cycles"]
        for number, name in enumerate(others):
            shade = next((objective for objective in others if objective != name), "")
            picture = FigureBlock(trade_figure(found, self.points, name, shade), f"f{number}", front)
            first = not number
            title = f"{found.speed.capitalize()} and {name}"
            blocks.append(Panel(title, [picture], _trade_caption(found, name, shade), opened=first))
        more = len(found.front) - MOST_ROWS
        left = [f"{more:,} more are in sonda show {found.run} --json"] if more > 0 else []
        listed = points_table(found, self.points)
        few = len(listed.rows) < found.points
        shown = f"{len(listed.rows):,} of {found.points:,} points"
        note = (
            f"{shown}: the front, and an even sample of the others; all with sonda explore --csv FILE." if few else ""
        )
        return [
            *blocks,
            Panel("Pareto front", [TableBlock(front), *paragraphs(left)]),
            Panel("All points", [TableBlock(listed, tall=True)], note),
            Panel("What was simulated", [*paragraphs(count_lines(found), ""), *paragraphs(map(describe, found.notes))]),
        ]

    def fields(self) -> dict[str, Any]:
        found, points = self.found, self.points
        fields = {
            "target": found.subtitle,
            "sentence": describe(found.finding),
            "axes": found.axes,
            "together": [list(fields) for fields in found.together],
            "points": found.points,
            "possible": found.possible,
            "impossible": plain_data(found.impossible),
            "unpriced": plain_data(found.unpriced),
            "objectives": list(found.objectives),
            "by_time": found.by_time,
            "best": {name: _point_fields(point) for name, point in found.best.items()},
            "front": [_point_fields(point) for point in found.front],
            "seconds": found.seconds,
            "simulations": found.simulations,
            "notes": list(map(describe, found.notes)),
        }
        if points is not None:
            fields["columns"] = points.to_pydict()
        return fields
