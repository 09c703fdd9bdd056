"""An exploration on the terminal, on a page and as files: its sentence, its front, and which points cannot be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sonda.analysis.exploration import SUPERLATIVES, Exploration, Point
from sonda.analysis.summary import Value
from sonda.record.errors import SondaError
from sonda.report.exploration_figures import MOST_DOTS, trade_figure
from sonda.report.exploration_points import points_table
from sonda.report.figures import Figure
from sonda.report.labels import markup
from sonda.report.markup import panel, place_figure, table_html
from sonda.report.output import whole_file
from sonda.report.quantities import provenance
from sonda.report.screen import Screen
from sonda.report.sections import Section
from sonda.report.table import LAST, Cell, Column, Table, build, numbers, words
from sonda.report.values import SCHEMA, metrics

SHOWN_REASONS = 5
MOST_ROWS = 500
"""Of the front, on a page."""
FEW_SETTINGS = 3
"""Columns that fit beside the figures."""
MARKS = {**SUPERLATIVES, "knee": "best trade"}


def render_exploration(
    found: Exploration, width: int | None = None, rows: int = 10, *, short: str = "", color: bool | None = None
) -> str:
    """One screen: the sentence, `rows` of the front, counts; `short` is the id to type."""
    screen = Screen(width, color)
    screen.line(f"{found.title} · {found.subtitle}", "bold")
    screen.line()
    screen.line(found.sentence, "bold", 2, 2)
    shown = front_to_show(found, rows)
    if shown:
        screen.line()
        screen.table(front_table(found, shown))
        same = _same(found, shown)
        if same:
            words_of = " ".join(f"{key}={shown[0].settings[key]}" for key in same)
            screen.line(f"all of them: {words_of}", "", 2, 2)
        if len(shown) < len(found.front):
            screen.line(
                f"{len(found.front) - len(shown):,} more on the front, with --rows {len(found.front)}", "dim", 2
            )
    screen.line()
    for line in count_lines(found):
        screen.line(line, "", 2, 2)
    for note in found.notes:
        screen.line(note, "dim", 2, 2)
    screen.saved(short or found.run)
    return screen.text()


def front_table(found: Exploration, points: Sequence[Point]) -> Table:
    """Points of the front, a row each: what varies, cycles, how many of them wait for memory, energy, area.

    Where clocks differ, the time of each stands before its cycles.
    """
    same = _same(found, points)
    settings = [key for key in found.axes if key not in same and any(key in point.settings for point in points)]
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (Column(key, right=_is_number(points, key), keep=LAST), _settings(points, key)) for key in settings
    ]
    if found.by_time:
        columns.append(_figures("time", [point.values["time"] for point in points]))
    columns.append(_figures("cycles", [point.values["cycles"] for point in points]))
    if any(point.values["memory_cycles"].value for point in points):
        columns.append(_figures("of them waiting", [point.values["memory_cycles"] for point in points]))
    for name in ("energy", "area"):
        if name in found.objectives:
            columns.append(_figures(name, [point.values[name] for point in points]))
    if len(found.on_host) > 1:
        columns.append((Column("on the host", right=False, keep=3), words([point.on_host for point in points])))
    if any(point.equal for point in points):
        equal = [f"{point.equal:,}" if point.equal else "" for point in points]
        columns.append((Column("equal", keep=1, hint="other points with the same figures"), words(equal)))
    columns.append((Column("stands out", right=False, keep=2), words([_mark(found, point) for point in points])))
    return build(columns, "front")


def front_to_show(found: Exploration, rows: int) -> list[Point]:
    """The points that stand out, and others spread evenly over the front, in its order."""
    if len(found.front) <= rows:
        return list(found.front)
    marked = [point for point in found.front if _mark(found, point)]
    free = max(0, rows - len(marked))
    others = [point for point in found.front if point not in marked]
    step = len(others) / free if free else 0.0
    kept = {id(point) for point in (*marked, *(others[int(step * place)] for place in range(free)))}
    return [point for point in found.front if id(point) in kept]


def count_lines(found: Exploration) -> list[str]:
    """How many points there are, how fast they came, and what stood in the way of others, in sentences."""
    front = f"{len(found.front):,} on the front"
    done = f"{found.simulations:,} simulations" if found.simulations else "all of them simulated before,"
    lines = [
        f"{found.points:,} points, {found.possible:,} possible, {front}; {done} in "
        f"{found.seconds:.2f} s: {found.rate:,.0f} points/s"
    ]
    for what, groups in (("impossible", found.impossible), ("not compared", found.unpriced)):
        for group in groups[:SHOWN_REASONS]:
            example = group["example"].partition("; ")[0]
            lines.append(f"{group['points']:,} {what}{', such as' if group['points'] > 1 else ''}: {example}")
        if len(groups) > SHOWN_REASONS:
            rest = sum(group["points"] for group in groups[SHOWN_REASONS:])
            lines.append(f"{rest:,} {what} for {len(groups) - SHOWN_REASONS} more reasons, all with --json")
    if len(found.on_host) > 1:
        lines.append("points that leave other operations to the host are compared among themselves only")
    return lines


def exploration_document(found: Exploration, points: Any = None) -> dict[str, Any]:
    """As a JSON object; `points`, an Arrow table, adds all of them by column."""
    document = {
        "schema": SCHEMA,
        "kind": "exploration",
        "run": found.run,
        "title": found.title,
        "target": found.subtitle,
        "sentence": found.sentence,
        "axes": found.axes,
        "together": [list(fields) for fields in found.together],
        "points": found.points,
        "possible": found.possible,
        "impossible": list(found.impossible),
        "unpriced": list(found.unpriced),
        "objectives": list(found.objectives),
        "by_time": found.by_time,
        "best": {name: _point_document(point) for name, point in found.best.items()},
        "front": [_point_document(point) for point in found.front],
        "seconds": found.seconds,
        "simulations": found.simulations,
        "notes": list(found.notes),
    }
    if points is not None:
        document["columns"] = points.to_pydict()
    return document


def exploration_section(found: Exploration, points: Any, index: int, alone: bool) -> Section:
    """The exploration on a page: the sentence, pictures of the trades, the front and all points as tables."""
    place = f"run{index}"
    level = "h1" if alone else "h2"
    drawn: list[Figure] = []
    pieces = [
        f"<{level}>{markup(found.title)}</{level}>",
        f'<p class="soft">{markup(found.subtitle)} · run {markup(found.run)}</p>',
        f'<div class="panel verdict"><p class="first">{markup(found.sentence)}</p></div>',
    ]
    others = [name for name in found.objectives if name != "cycles"]
    for number, name in enumerate(others):
        shade = next((one for one in others if one != name), "")
        figure = trade_figure(found, points, name, shade)
        behind = front_table(found, found.front[:MOST_ROWS])
        drawing = place_figure(figure, f"{place}f{number}", drawn, "", behind)
        pieces.append(panel(f"{found.speed.capitalize()} and {name}", drawing, _trade_caption(found, name, shade)))
    table = table_html(front_table(found, found.front[:MOST_ROWS]), "sortable")
    more = len(found.front) - MOST_ROWS
    left = f'<p class="soft small">{more:,} more are in sonda show {markup(found.run)} --json</p>' if more > 0 else ""
    pieces.append(panel("Pareto front", table + left))
    listed = points_table(found, points)
    shown = f"{len(listed.rows):,} of {found.points:,} points" if len(listed.rows) < found.points else ""
    note = f"{shown}: the front, and an even sample of the others; all with sonda explore --csv FILE." if shown else ""
    tall = table_html(listed, "sortable", tall=True)
    pieces.append(panel("All points", tall, note))
    lines = "".join(f"<p>{markup(line)}</p>" for line in count_lines(found))
    notes = "".join(f'<p class="soft small">{markup(note)}</p>' for note in found.notes)
    pieces.append(panel("What was simulated", lines + notes))
    return Section(f"{found.title} ({found.run})", place, "\n".join(pieces), tuple(drawn))


def _trade_caption(found: Exploration, name: str, shade: str) -> str:
    varies = shade and len({point.values[shade].value for point in found.front}) > 1
    sampled = " Of the other points an even sample is drawn." if found.possible - len(found.front) > MOST_DOTS else ""
    return (
        f"Diamonds are the front: no other point is better in {', '.join(found.objectives)} at once. Down and left is "
        f"better in {found.speed} and {name}{f'; the shade is {shade}' if varies else ''}.{sampled}"
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


def _same(found: Exploration, points: Sequence[Point]) -> list[str]:
    """Settings that all these points share; none where there is room for all settings as columns."""
    settings = [key for key in found.axes if any(key in point.settings for point in points)]
    if len(settings) <= FEW_SETTINGS:
        return []
    return [key for key in settings if len({str(point.settings.get(key)) for point in points}) == 1]


def _mark(found: Exploration, point: Point) -> str:
    return ", ".join(MARKS[name] for name, best in found.best.items() if best.number == point.number)


def _figures(name: str, values: Sequence[Value]) -> tuple[Column, Sequence[Cell]]:
    if name in ("cycles", "of them waiting"):
        # Cycles are exact: all digits.
        cells = [Cell("–" if one.value is None else f"{one.value:,.0f}", one.value, provenance(one)) for one in values]
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


def _point_document(point: Point) -> dict[str, Any]:
    return {
        "point": point.number,
        "settings": point.settings,
        "metrics": metrics(point.values),
        "on_host": point.on_host,
        "equal": point.equal,
    }
