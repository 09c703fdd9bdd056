"""Figures of a study: speed-up by number of devices, accuracy by epoch with its spread, energy and EDP as bars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sonda.analysis.wording import join, plural
from sonda.report import quantities
from sonda.report.charts.chart import Area, Axis, BarPart, Chart, Dash, Mark, Plot, Points, grouped_bars
from sonda.report.palette import GREY
from sonda.report.quantities import significant
from sonda.report.table import Cell, Column, Table, build
from sonda.report.views.study.cells import figure_hint, study_cell
from sonda.report.views.study.dot_plot import COLORS, MARKS, interval_of
from sonda.report.views.study.tables import Document, figure_name, row_names

HEIGHT = 300
MOST_CURVES = 24
BESIDE, FROM_EACH_OTHER = 0.6, 0.1
"""Parts of the way from one number of devices to the next: what configurations are spread over, and the most between
two of them."""
MARK = 0.025
"""Part of the height of an axis that a mark takes: 7 of some 280 px."""
SHADE = 0.18
"""Opacity of what lies between the least and the most, of all curves that lie upon each other together."""
DASHES: tuple[Dash, ...] = ("solid", "dash", "dot", "dashdot")
BEYOND = "measured speed-ups are beyond it: validation and test are shared too, or devices are unlike the base's"
MOST_BELOW = 3
"""Curves below another that are broader than it."""


def scaling_figure(study: Document) -> Chart | None:
    """Speed-ups against the base, the ideal line, and Amdahl's bound; None where no numbers of devices differ.

    A series for each configuration, those of as many devices side by side; of each, the whole beside the training part.
    """
    curve = study.get("scaling")
    if not curve:
        return None
    counts = [count for count, _ in curve["bound"]]
    marks = [
        Points("as many times as devices", GREY, tuple((count, count / curve["devices"]) for count in counts), "dot"),
        Points(f"Amdahl's bound, {significant(100 * curve['serial'])} % serial", GREY,
               tuple((count, bound) for count, bound in curve["bound"]), "dash"),
    ]  # fmt: skip
    for number, point in enumerate(curve["points"]):
        alike = [neighbour for neighbour in curve["points"] if neighbour["devices"] == point["devices"]]
        width = min(BESIDE / len(alike), FROM_EACH_OTHER)
        middle = point["devices"] + width * (alike.index(point) - (len(alike) - 1) / 2)
        mark, color = MARKS[number % len(MARKS)], COLORS[number % len(COLORS)]
        shown = [(middle + way * width / 4, mark + opened, name, {"n": 2, **point[key]})
                 for name, key, way, opened in (("whole", "whole", -1, ""), ("training part", "training", 1, "-open"))
                 if point[key]["value"] is not None]  # fmt: skip
        marks.append(Points(
            str(point["name"]), color, tuple((x, value["value"]) for x, _, _, value in shown), "solid", 1,
            symbols=tuple(symbol for _, symbol, _, _ in shown), upright=True,
            intervals=tuple(interval_of(value) for _, _, _, value in shown),
            hints=tuple(f"{point['name']}\ntimes as fast, {name}: {figure_hint(value)}" for _, _, name, value in shown),
        ))  # fmt: skip
    most = max([*counts, *(point["devices"] for point in curve["points"])])
    axis = Axis("devices", ends=(0.5, most + 0.5), whole=True)
    return Chart(axis, (Plot(Axis(f"times {curve['base']}"), tuple(marks)),), HEIGHT, legend=True)


Named = tuple[str, Document]


def _curves(study: Document) -> list[Named]:
    """Names and rows of the configurations that were validated."""
    return [(name, row) for name, row in zip(row_names(study), study["rows"], strict=True) if row.get("curve")]


def _group_overlapping(curves: Sequence[Named]) -> list[list[Named]]:
    """The curves in groups that a reader sees as one: nowhere further apart than a mark is high."""
    means = {name: {point["epoch"]: point["accuracy"]["mean"] for point in row["curve"]} for name, row in curves}
    near = MARK * max((mean for curve in means.values() for mean in curve.values()), default=0.0)
    groups: list[list[Named]] = []
    for name, row in curves:
        for group in groups:
            first = means[group[0][0]]
            if first.keys() == means[name].keys() and all(abs(first[at] - means[name][at]) <= near for at in first):
                group.append((name, row))
                break
        else:
            groups.append([(name, row)])
    return groups


def accuracy_caption(study: Document) -> str:
    """What is drawn, which curves look like one, and how many are left out."""
    curves = _curves(study)
    repeated = any(point["n"] > 1 for _, row in curves for point in row["curve"])
    sentences = ["Mean of the repetitions; least to most is shaded." if repeated else "One run of each."]
    for group in _group_overlapping(curves[:MOST_CURVES]):
        if len(group) > 1:
            names = f"All {len(group)}" if len(group) == len(curves) else join([f'"{name}"' for name, _ in group])
            sentences.append(f"{names} lie upon each other: thin and dashed lines over broad ones.")
    if len(curves) > MOST_CURVES:
        sentences.append(f"The first {MOST_CURVES} of {len(curves)} configurations; the table has all.")
    return " ".join(sentences)


def accuracy_figure(study: Document) -> Chart | None:
    """Mean validation accuracy by epoch, least to most shaded; None where nothing was validated.

    Of curves that lie upon each other the first is the broadest, so that all can be seen.
    """
    rows = _curves(study)[:MOST_CURVES]
    if not rows:
        return None
    below = {name: (at, len(group)) for group in _group_overlapping(rows) for at, (name, _) in enumerate(group)}
    marks: list[Mark] = []
    for number, (name, row) in enumerate(rows):
        color = COLORS[number % len(COLORS)]
        above, many = below[name]
        over = min(many - 1 - above, MOST_BELOW)
        epochs = tuple(point["epoch"] for point in row["curve"])
        spread = [point["accuracy"] for point in row["curve"]]
        if any(point["n"] > 1 for point in row["curve"]):
            low, high = (tuple(100 * accuracy[end] for accuracy in spread) for end in ("minimum", "maximum"))
            marks.append(Area(name, color, epochs, low, high, SHADE / many))
        marks.append(Points(
            name, color, tuple((epoch, 100 * accuracy["mean"]) for epoch, accuracy in zip(epochs, spread, strict=True)),
            DASHES[above % len(DASHES)], 2 + 3 * over, symbols=(MARKS[number % len(MARKS)],), sizes=(7 + 5 * over,),
            hints=tuple(f"{name}, epoch {point['epoch']}: {significant(100 * accuracy['mean'])} %\n"
                        f"{significant(point['passed'])} s, {plural(point['n'], 'run')}, "
                        f"{significant(100 * accuracy['minimum'])} to {significant(100 * accuracy['maximum'])} %"
                        for point, accuracy in zip(row["curve"], spread, strict=True)),
        ))  # fmt: skip
    seen = [point["epoch"] for _, row in rows for point in row["curve"]]
    axis = Axis("epoch", ends=(min(seen) - 0.5, max(seen) + 0.5), whole=True)
    return Chart(axis, (Plot(Axis("validation accuracy, %"), tuple(marks)),), HEIGHT, legend=True)


def scaling_table(curve: Document) -> Table:
    """The table behind the curve."""
    points = curve["points"]
    bounds = dict(map(tuple, curve["bound"]))
    return build(
        [
            (Column("configuration", right=False), [Cell(str(point["name"]), str(point["name"])) for point in points]),
            (Column("devices"), [_count(point["devices"], "devices, as asked for") for point in points]),
            (Column("whole, times"), [study_cell({"n": 2, **point["whole"]}) for point in points]),
            (Column("training part, times"), [study_cell({"n": 2, **point["training"]}) for point in points]),
            (Column("Amdahl's bound"), [_bound(bounds.get(point["devices"])) for point in points]),
        ],
        "speed-up",
    )


def _count(value: int, what: str) -> Cell:
    return Cell(f"{value:,}", value, f"{value:,} {what}", unit="1")


def _bound(value: float | None) -> Cell:
    if value is None:
        return Cell(quantities.MISSING, missing=BEYOND, tone="quiet")
    return Cell(quantities.ratio(value), value, f"{significant(value)} times, derived", unit="1")


def accuracy_table(study: Document) -> Table:
    """The table behind the curves: a row for each epoch of each configuration."""
    named = zip(row_names(study), study["rows"], strict=True)
    points = [(name, point) for name, row in named for point in row.get("curve", ())]
    columns = [
        (Column("configuration", right=False), [Cell(name, name) for name, _ in points]),
        (Column("epoch"), [_count(point["epoch"], "number of the epoch") for _, point in points]),
        (Column("so far s"), [
            Cell(significant(point["passed"]), point["passed"], f"{significant(point['passed'])} s, measured", unit="s")
            for _, point in points
        ]),
    ]  # fmt: skip
    for title, key in (("mean %", "mean"), ("least %", "minimum"), ("most %", "maximum")):
        shares = [100 * point["accuracy"][key] for _, point in points]
        columns.append(
            (
                Column(title),
                [
                    Cell(quantities.rounded(share, 1), share, f"{significant(share)} %, measured", unit="%")
                    for share in shares
                ],
            )
        )
    columns.append((Column("runs"), [_count(point["n"], "repetitions, counted") for _, point in points]))
    return build(columns, "accuracy by epoch")


def energy_figure(study: Document, figures: Sequence[str], title: str) -> Chart | None:
    """One figure or two of energy as bars, a group for each row; what is estimated is hatched. None without any."""
    named = zip(row_names(study), study["rows"], strict=True)
    known = [(name, row) for name, row in named if any(_value(row, figure) is not None for figure in figures)]
    if not known:
        return None
    names = [name for name, _ in known]
    parts = []
    for number, figure in enumerate(figures):
        cells = [row["figures"].get(figure, {"value": None}) for _, row in known]
        if any(cell["value"] is not None for cell in cells):
            part = "with idle devices" if "_with_idle" in figure else "devices that trained"
            hints = [f"{name}, {part}: {figure_hint(cell)}" if cell["value"] is not None else ""
                     for name, cell in zip(names, cells, strict=True)]  # fmt: skip
            parts.append(BarPart(part, COLORS[number], [cell["value"] for cell in cells], hints,
                              [cell.get("source") == "estimated" for cell in cells],
                              [interval_of(cell) for cell in cells]))  # fmt: skip
    return replace(grouped_bars(names, parts, Axis(title)), legend=True)


def energy_table(study: Document, columns: Sequence[Document]) -> Table:
    """The table behind the bars."""
    names = row_names(study)
    shown = [(Column("configuration", right=False), [Cell(name, name) for name in names])]
    for column in columns:
        cells = [study_cell(row["figures"][column["figure"]]) for row in study["rows"]]
        shown.append((Column(figure_name(column)), cells))
    return build(shown, "energy")


def _value(row: Document, figure: str) -> float | None:
    cell = row["figures"].get(figure)
    return None if cell is None else cell["value"]
