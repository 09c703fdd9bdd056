"""Figures of a study: speed-up by number of devices, accuracy by epoch with its spread, energy and EDP as bars."""

from __future__ import annotations

from collections.abc import Sequence

from sonda.analysis.wording import join, plural
from sonda.report import quantities
from sonda.report.figures import Figure
from sonda.report.labels import markup
from sonda.report.palette import GREY, HATCH
from sonda.report.quantities import significant
from sonda.report.table import Cell, Column, Table, build
from sonda.report.views.study.cells import figure_hint, study_cell
from sonda.report.views.study.dot_plot import AROUND, COLORS, MARKS, OF_A_NAME, error_bars
from sonda.report.views.study.tables import Document, figure_name, row_names

HEIGHT = 380
OF_A_GROUP = 26
"""px of height of two bars."""
MOST_CURVES = 24
FEW_EPOCHS = 20
"""Each has its tick."""
BESIDE, FROM_EACH_OTHER = 0.6, 0.1
"""Parts of the way from one number of devices to the next: what configurations are spread over, and the most between
two of them."""
MARK = 0.025
"""Part of the height of an axis that a mark takes: 7 of some 280 px."""
SHADE = 0.18
"""Opacity of what lies between the least and the most, of all curves that lie upon each other together."""
DASHES = ("solid", "dash", "dot", "dashdot")
BEYOND = "measured speed-ups are beyond it: validation and test are shared too, or devices are unlike the base's"
MOST_BELOW = 3
"""Curves below another that are broader than it."""


def scaling_figure(study: Document) -> Figure | None:
    """Speed-ups against the base, the ideal line, and Amdahl's bound; None where no numbers of devices differ.

    A series for each configuration, those of as many devices side by side; of each, the whole beside the training part.
    """
    curve = study.get("scaling")
    if not curve:
        return None
    counts = [count for count, _ in curve["bound"]]
    data: list[Figure] = [
        _line("as many times as devices", counts, [count / curve["devices"] for count in counts], GREY, "dot"),
        _line(
            f"Amdahl's bound, {significant(100 * curve['serial'])} % serial", counts,
            [bound for _, bound in curve["bound"]], GREY, "dash",
        ),
    ]  # fmt: skip
    for number, point in enumerate(curve["points"]):
        alike = [neighbour for neighbour in curve["points"] if neighbour["devices"] == point["devices"]]
        width = min(BESIDE / len(alike), FROM_EACH_OTHER)
        middle = point["devices"] + width * (alike.index(point) - (len(alike) - 1) / 2)
        mark, color = MARKS[number % len(MARKS)], COLORS[number % len(COLORS)]
        shown = [(middle + way * width / 4, mark + opened, name, {"n": 2, **point[key]})
                 for name, key, way, opened in (("whole", "whole", -1, ""), ("training part", "training", 1, "-open"))
                 if point[key]["value"] is not None]  # fmt: skip
        values = [value for _, _, _, value in shown]
        data.append({
            "type": "scatter", "mode": "lines+markers", "name": markup(point["name"]),
            "line": {"color": color, "width": 1},
            "marker": {"color": color, "size": 9, "symbol": [symbol for _, symbol, _, _ in shown]},
            "x": [x for x, _, _, _ in shown], "y": [value["value"] for value in values], "error_y": error_bars(values),
            "text": [f"<b>{markup(point['name'])}</b><br>times as fast, {name}: {markup(figure_hint(value))}"
                     for _, _, name, value in shown],
            "hovertemplate": "%{text}<extra></extra>",
        })  # fmt: skip
    layout = {
        "height": HEIGHT + OF_A_NAME * len(data),
        "xaxis": {"title": {"text": "devices"}, "dtick": 1},
        "yaxis": {"title": {"text": f"times {markup(curve['base'])}"}, "rangemode": "tozero"},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"},
    }
    return {"data": data, "layout": layout}


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


def accuracy_figure(study: Document) -> Figure | None:
    """Mean validation accuracy by epoch, least to most shaded; None where nothing was validated.

    Of curves that lie upon each other the first is the broadest, so that all can be seen.
    """
    rows = _curves(study)[:MOST_CURVES]
    if not rows:
        return None
    below = {name: (at, len(group)) for group in _group_overlapping(rows) for at, (name, _) in enumerate(group)}
    data: list[Figure] = []
    for number, (plain, row) in enumerate(rows):
        color, name = COLORS[number % len(COLORS)], markup(plain)
        above, many = below[plain]
        over = min(many - 1 - above, MOST_BELOW)
        epochs = [point["epoch"] for point in row["curve"]]
        spread = [point["accuracy"] for point in row["curve"]]
        if any(point["n"] > 1 for point in row["curve"]):
            data.append({
                "type": "scatter", "mode": "lines", "x": epochs + epochs[::-1], "line": {"width": 0},
                "y": [*(100 * accuracy["maximum"] for accuracy in spread),
                      *(100 * accuracy["minimum"] for accuracy in spread[::-1])],
                "fill": "toself", "fillcolor": color, "opacity": SHADE / many, "hoverinfo": "skip", "showlegend": False,
                "legendgroup": name,
            })  # fmt: skip
        data.append({
            "type": "scatter", "mode": "lines+markers", "name": name, "x": epochs, "legendgroup": name,
            "y": [100 * accuracy["mean"] for accuracy in spread],
            "line": {"color": color, "width": 2 + 3 * over, "dash": DASHES[above % len(DASHES)]},
            "marker": {"size": 7 + 5 * over, "symbol": MARKS[number % len(MARKS)]},
            "text": [f"{significant(point['passed'])} s, {plural(point['n'], 'run')}, "
                     f"{significant(100 * accuracy['minimum'])} to {significant(100 * accuracy['maximum'])} %"
                     for point, accuracy in zip(row["curve"], spread, strict=True)],
            "hovertemplate": f"{name}, epoch %{{x}}: %{{y:.3~g}} %<br>%{{text}}<extra></extra>",
        })  # fmt: skip
    few = max(len(row["curve"]) for _, row in rows) <= FEW_EPOCHS
    layout = {
        "height": HEIGHT + 12 * len(rows),
        "xaxis": {"title": {"text": "epoch"}, "tickformat": "d", **({"dtick": 1} if few else {})},
        "yaxis": {"title": {"text": "validation accuracy, %"}, "rangemode": "tozero"},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "itemsizing": "constant"},
    }
    return {"data": data, "layout": layout}


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


def energy_figure(study: Document, figures: Sequence[str], title: str) -> Figure | None:
    """One figure or two of energy as bars, a group for each row; what is estimated is hatched. None without any."""
    named = zip(row_names(study), study["rows"], strict=True)
    known = [(name, row) for name, row in named if any(_value(row, figure) is not None for figure in figures)]
    if not known:
        return None
    names, rows = [markup(name) for name, _ in known], [row for _, row in known]
    places = list(range(len(rows)))
    data = []
    for number, figure in enumerate(figures):
        cells = [row["figures"].get(figure, {"value": None}) for row in rows]
        if all(cell["value"] is None for cell in cells):
            continue
        name = "with idle devices" if "_with_idle" in figure else "devices that trained"
        hatched = ["/" if cell.get("source") == "estimated" else "" for cell in cells]
        data.append({
            "type": "bar", "orientation": "h", "name": name, "y": places, "x": [cell["value"] for cell in cells],
            "error_x": error_bars(cells),
            "marker": {"color": COLORS[number], "pattern": {**HATCH, "shape": hatched}},
            "hovertext": [f"<b>{shown_name}</b>, {name}: {markup(figure_hint(cell))}"
                          if cell["value"] is not None else "" for shown_name, cell in zip(names, cells, strict=True)],
            "hoverinfo": "text",
        })  # fmt: skip
    layout = {
        "height": AROUND + OF_A_GROUP * max(3, len(rows)), "barmode": "group",
        "xaxis": {"title": {"text": title}, "rangemode": "tozero"},
        "yaxis": {"tickvals": places, "ticktext": names, "autorange": "reversed", "automargin": True},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "traceorder": "normal"}, "showlegend": True,
    }  # fmt: skip
    return {"data": data, "layout": layout}


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


def _line(name: str, x: Sequence[float], y: Sequence[float], color: str, dash: str) -> Figure:
    return {
        "type": "scatter", "mode": "lines", "name": name, "x": list(x), "y": list(y),
        "line": {"color": color, "dash": dash}, "hoverinfo": "skip",
    }  # fmt: skip
