"""Tables of a study: our figures with their intervals, published ones beside them, variants side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sonda.analysis import reasons
from sonda.analysis.figure_names import figure_words
from sonda.report import quantities
from sonda.report.screen import GAP
from sonda.report.table import LAST, Cell, Column, Table, build, words
from sonda.report.views.study.cells import (
    STUDENT,
    axis_cell,
    bare_cell,
    column_cell,
    interval_words,
    printed_cell,
    study_cell,
)
from sonda.report.views.study.optimisations import limits_table, limits_title, options_table, options_title

Document = Mapping[str, Any]
INDENT = 2
"""Cells that a table stands in on a screen."""
LIMITS = "What limits is the first verdict of the run in the middle: sonda show RUN and the page have it in whole."


@dataclass(frozen=True)
class TitledTable:
    """A table of a study with its title; `reasons`: whether those of missing numbers are said below it."""

    title: str
    table: Table
    reasons: bool = True
    caption: str = ""
    """What its intervals are."""


def study_tables(study: Document, width: int, *, page: bool = False) -> Iterator[TitledTable]:
    """All tables of a study, in their order; those that stand behind pictures are left out for a `page`.

    Without a base the first variant is shown whole and all of them by the figures that the study compares; with a base
    variants are rows like any other.
    """
    variants = variants_of(study) if not study.get("base") else []
    whole = select_variant(study, variants[0]) if variants else study
    for number, (title, columns) in enumerate(column_families(with_measured_columns(whole))):
        head = [word for word in (variants[0] if variants and not number else "", title) if word]
        table = ours_table(whole, columns, title)
        # Every figure of trainings counts: what does not fit goes into a table below instead of being left out.
        pieces = _split_columns(table, width) if any(column.get("topic") for column in columns) else [table]
        for piece, table_piece in enumerate(pieces):
            caption = interval_words(_figures(whole, columns))
            yield TitledTable(": ".join([*head, "continued"] if piece else head), table_piece, not piece, caption)
    for variant in variants[1:]:
        for title, columns in column_families({**study, "columns": columns_only_of(study, variants[0], variant)}):
            own = select_variant(study, variant)
            caption = interval_words(_figures(own, columns))
            yield TitledTable(
                f"{variant}: {title}" if title else variant, ours_table(own, columns, title), caption=caption
            )
    for column in study["columns"]:
        if study.get("statistics") and any("spread" in row["figures"][column["figure"]] for row in study["rows"]):
            table = statistics_table(study, column, study["statistics"])
            yield TitledTable(f"{figure_name(column)}, {', '.join(study['statistics'])}", table)
    for column in study["columns"]:
        if column["figure"] == SLOWDOWN and {"workload", WITH} <= set(study["axes"]) and not page:
            yield TitledTable("Slowdown: a row suffers from a column", neighbour_matrix(whole, column), reasons=False)
        printed = None if page else beside_table(study, column)
        if printed is not None:
            yield TitledTable(f"{figure_name(column)}, ours beside what was published", printed, reasons=False)
    for column in study["columns"] if variants else ():
        if column["figure"] in study.get("compare", ()):
            for number, table in enumerate(side_by_side_tables(study, column, variants, width)):
                title = "(continued)" if number else f"{figure_name(column)}, variants side by side"
                yield TitledTable(title, table, reasons=False)


def _figures(study: Document, columns: Sequence[Document]) -> list[Document]:
    return [row["figures"][column["figure"]] for column in columns for row in study["rows"]]


def option_tables(study: Document) -> Iterator[TitledTable]:
    """What options bring against the base, and what limits each configuration, place by place."""
    for place in study.get("optimisations", ()):
        yield TitledTable(options_title(place), options_table(place), reasons=False)
        limits = limits_table(place)
        if limits is not None:
            yield TitledTable(limits_title(place), limits, reasons=False, caption=LIMITS)


def _split_columns(table: Table, width: int) -> list[Table]:
    """The table in pieces that fit, each with the columns that name the rows."""
    heads = [column.name for column in table.columns if not column.right]
    wide = {
        column.name: max(len(column.name), *(len(row[at].text) for row in table.rows)) + GAP
        for at, column in enumerate(table.columns)
    }
    room = width - INDENT - sum(wide[name] for name in heads) + GAP
    pieces: list[list[str]] = [[]]
    for column in table.columns:
        if column.name in heads:
            continue
        if pieces[-1] and sum(wide[name] for name in pieces[-1]) + wide[column.name] > room:
            pieces.append([])
        pieces[-1].append(column.name)
    return [table.drop_columns({column.name for column in table.columns} - {*heads, *piece}) for piece in pieces]


def statistics_table(study: Document, column: Document, statistics: Sequence[str]) -> Table:
    """One figure with what was asked for of its repetitions."""
    cells = [row["figures"][column["figure"]] for row in study["rows"]]
    columns = [*_place_columns(study, study["rows"]), (Column("median"), [study_cell(figure) for figure in cells])]
    for word in statistics:
        shown = []
        for figure in cells:
            spread = figure.get("spread")
            if spread is None:
                shown.append(Cell(quantities.MISSING))
            elif word == "mean":
                mean = {**figure, "value": spread["mean"], "low": spread["low"], "high": spread["high"]}
                shown.append(study_cell(mean, STUDENT))
            else:
                shown.append(study_cell({**figure, "value": spread[word], "low": None, "high": None, "reason": word}))
        columns.append((Column(word), shown))
    columns.append(
        (Column("runs"), [Cell(str(figure["n"]), figure["n"], "repetitions, counted", unit="1") for figure in cells])
    )
    return build(columns)


Columns = list[tuple[Column, Sequence[Cell]]]
Rows = Sequence[Document]
VARIANT = "variant"
WITH, SLOWDOWN = "with", "slowdown"
NEIGHBOUR = "the neighbour's"
WHOLE = {"slowdown": "its own", "modelled_misses": "this machine's cache"}
"""What stands beside figures of places, where it is no whole of them."""
RELATIVE = "geometric mean"
"""Names the row of ratios to the first variant."""
NUMBER = 11
"""Cells of a large number."""
MOST_NAMED = 3
"""Variants that a reason names."""


def variants_of(study: Document) -> list[str]:
    """Names of the variants in their order; none where the study has none."""
    return list(dict.fromkeys(str(row["configuration"][VARIANT]) for row in study["rows"] if VARIANT in study["axes"]))


def select_variant(study: Document, variant: str) -> Document:
    """The same study with one variant only, which its title names."""
    rows = [row for row in study["rows"] if row["configuration"][VARIANT] == variant]
    return {**study, "rows": rows, "axes": [axis for axis in study["axes"] if axis != VARIANT]}


def columns_only_of(study: Document, first: str, variant: str) -> list[Document]:
    """Columns that this variant has and the first has not, and that are not shown side by side."""

    def has(name: str, column: Document) -> bool:
        rows = select_variant(study, name)["rows"]
        return any(row["figures"][column["figure"]]["value"] is not None for row in rows)

    return [column for column in study["columns"] if column["figure"] not in study.get("compare", ())
            and has(variant, column) and not has(first, column)]  # fmt: skip


def unmeasured_figures(study: Document) -> dict[str, list[str]]:
    """Figures that no row has, neither measured nor published, by reason."""
    columns_by_reason: dict[str, list[Document]] = {}
    for column in study["columns"]:
        cells = [row["figures"][column["figure"]] for row in study["rows"]]
        if cells and all(cell["value"] is None and not cell.get("published") for cell in cells):
            variants: dict[str, dict[str, None]] = {}
            for cell, row in zip(cells, study["rows"], strict=True):
                variants.setdefault(bare_reason(cell), {})[str(row["configuration"].get(VARIANT, ""))] = None
            # A reason that all variants share is said once; others name theirs.
            shared = len(variants) == 1 or VARIANT not in study["axes"]
            worded = [reason if shared else f"{reason} ({_variant_names(list(of))})" for reason, of in variants.items()]
            columns_by_reason.setdefault("; ".join(worded), []).append(column)
    return {reason: _join_figure_names(columns) for reason, columns in columns_by_reason.items()}


def _variant_names(variants: Sequence[str]) -> str:
    """Their names, which may have commas themselves; of many, how many."""
    return "; ".join(variants) if len(variants) <= MOST_NAMED else f"{len(variants)} variants"


def _join_figure_names(columns: Sequence[Document]) -> list[str]:
    """Names of figures, one that is missing at several places once: `ipc (whole, forward, backward)`."""
    stems: dict[str, list[Document]] = {}
    for column in columns:
        stems.setdefault(figure_name({**column, "of": ""}), []).append(column)
    return [
        figure_name(alike[0]) if len(alike) == 1
        else f"{name} ({', '.join(str(column['of']) or 'whole' for column in alike)})"
        for name, alike in stems.items()
    ]  # fmt: skip


def with_measured_columns(study: Document) -> Document:
    """The same study with the figures that some row has."""
    columns = [column for column in study["columns"]
               if any(row["figures"][column["figure"]]["value"] is not None for row in study["rows"])]  # fmt: skip
    return {**study, "columns": columns or study["columns"][:1]}


def bare_reason(cell: Document) -> str:
    """Why a figure was not measured, without saying that it was not."""
    return str(cell["reason"]).removeprefix(reasons.NOT_MEASURED.format(""))


def by_workload_and_neighbour(study: Document, figure: str) -> dict[str, dict[str, Document]]:
    """A figure by workload and neighbour, where nothing else varies."""
    by_workload: dict[str, dict[str, Document]] = {}
    for row in study["rows"]:
        others = [str(value) for key, value in row["configuration"].items() if key not in ("workload", WITH, VARIANT)]
        name = " ".join([str(row["configuration"]["workload"]), *others])
        by_workload.setdefault(name, {})[str(row["configuration"][WITH])] = row["figures"][figure]
    return by_workload


def neighbour_matrix(study: Document, column: Document) -> Table:
    """A figure with a row for each workload and a column for each neighbour, where nothing else varies."""
    by_workload = by_workload_and_neighbour(study, column["figure"])
    neighbours = dict.fromkeys(name for by in by_workload.values() for name in by)
    columns: Columns = [(Column("slowed", right=False), words(list(by_workload)))]
    for name in neighbours:
        cells = [
            column_cell(SLOWDOWN, by[name]) if name in by else Cell(quantities.MISSING) for by in by_workload.values()
        ]
        columns.append((Column(f"by {name}"), cells))
    return build(columns)


def column_families(study: Document) -> list[tuple[str, list[Document]]]:
    """Columns by table: figures of trainings by topic, the same figure of several modules, all others together."""
    stems: dict[str, list[Document]] = {}
    topics: dict[str, list[Document]] = {}
    for column in study["columns"]:
        if column.get("topic"):
            topics.setdefault(str(column["topic"]), []).append(column)
            continue
        stems.setdefault(str(column["figure"]).partition("@")[0], []).append(column)
    families: dict[str, list[Document]] = {}
    for columns in stems.values():
        title = figure_name({**columns[0], "of": ""}) if len(columns) > 1 else ""
        families.setdefault(title, []).extend(columns)
    against = f"Against {study.get('base')}" if study.get("base") else "Against the base"
    return [
        *families.items(),
        *((against if name == "Against the base" else name, of) for name, of in topics.items()),
    ]


def _place_columns(study: Document, rows: Rows) -> Columns:
    """Where each row stands. Where variants are rows, an axis that one of them alone walks along is in its name."""
    if not study.get("base"):
        return _axis_columns(study["axes"], rows)
    values: dict[str, dict[str, set[str]]] = {}
    for row in study["rows"]:
        for axis in study["axes"]:
            walked = values.setdefault(axis, {}).setdefault(str(row["configuration"].get(VARIANT)), set())
            walked.add(str(row["configuration"].get(axis, "")))
    columns = [VARIANT, *(axis for axis in study["axes"] if axis != VARIANT
                          and sum(len(walked) > 1 for walked in values[axis].values()) > 1)]  # fmt: skip
    names = []
    for row in rows:
        own = str(row["configuration"].get(VARIANT))
        along = [axis for axis in study["axes"] if axis not in columns and len(values[axis][own]) > 1]
        names.append(", ".join([own, *(str(row["configuration"].get(axis, "")) for axis in along)]))
    return [(Column(VARIANT, right=False), words(names)), *_axis_columns(columns[1:], rows)]


def row_names(study: Document) -> list[str]:
    """A name for each row, for figures and sentences: what its first columns say, numbers with what they are of."""
    columns = _place_columns(study, study["rows"])
    shown = [column for column in columns if len({cell.text for cell in column[1]}) > 1] or columns
    names = []
    for row, cells in zip(study["rows"], zip(*(cells for _, cells in shown), strict=True), strict=True):
        name = ""
        for (column, _), cell in zip(shown, cells, strict=True):
            value = row["configuration"].get(column.name, cell.text)
            text = f"{column.name} {cell.text}" if not isinstance(value, str) else cell.text
            text = f"no {column.name}" if text == "none" and column.name != VARIANT else text
            # A neighbour is not one more property of what it stands beside.
            name += f" beside {text}" if column.name == WITH and name else f", {text}" if name else text
        names.append(name)
    return names


def _axis_columns(axes: Sequence[str], rows: Rows) -> Columns:
    return [
        (Column(axis.replace("_", " "), right=False), [axis_cell(row["configuration"].get(axis, "")) for row in rows])
        for axis in axes
    ]


def ours_table(study: Document, of: Sequence[Document], title: str) -> Table:
    """Every figure that was measured; in a table of modules they are named by module."""
    columns = _place_columns(study, study["rows"])
    for index, column in enumerate(of):
        figures = [row["figures"][column["figure"]] for row in study["rows"]]
        if any(figure["value"] is not None for figure in figures):
            name = place_name(column) if title and not column.get("topic") else figure_name(column)
            cells = [column_cell(str(column["figure"]), figure) for figure in figures]
            columns.append((Column(name, keep=max(1, LAST - index)), cells))
    return build(columns)


def beside_table(study: Document, column: Document) -> Table | None:
    """One figure of ours with the published ones, a column for each machine; None where nothing was published."""
    rows = [row for row in study["rows"] if row["figures"][column["figure"]].get("published")]
    if not rows:
        return None
    figures = [row["figures"][column["figure"]] for row in rows]
    machines = dict.fromkeys(printed["hardware"] for figure in figures for printed in figure.get("published", ()))
    alike = len({row["configuration"].get(VARIANT) for row in rows}) == 1
    axes = [axis for axis in study["axes"] if axis != VARIANT or not alike]
    places = _place_columns(study, rows) if study.get("base") else _axis_columns(axes, rows)
    columns = [*places, (Column("ours"), [column_cell(str(column["figure"]), figure) for figure in figures])]
    columns += [
        (Column(machine or "published"), [_printed_for(figure, machine) for figure in figures]) for machine in machines
    ]
    return build(columns)


def side_by_side_tables(study: Document, column: Document, variants: Sequence[str], width: int) -> Iterator[Table]:
    """One figure, a column for each variant that has it; the last row says how they compare with the first variant.

    Where not all fit beside each other, there are several tables, each with the first variant.
    """
    axes = [axis for axis in study["axes"] if axis != VARIANT]
    figures: dict[str, dict[str, Document]] = {}
    rows: dict[str, Document] = {}
    for row in study["rows"]:
        place = repr([row["configuration"].get(axis) for axis in axes])
        rows.setdefault(place, row)
        figures.setdefault(place, {})[row["configuration"][VARIANT]] = row["figures"][column["figure"]]
    having = [variant for variant in variants if any(_has_value(figures[place], variant) for place in rows)]
    if having in ([], [variants[0]]):  # which is shown whole
        return
    ratios = {
        compared["variant"]: compared["ratio"]
        for compared in study["compared"]
        if compared["figure"] == column["figure"]
    }
    columns = _axis_columns(axes, list(rows.values()))
    if ratios:
        ratios[variants[0]] = 1.0
        columns = [
            (head, [*cells, Cell("" if at else RELATIVE, tone="quiet")]) for at, (head, cells) in enumerate(columns)
        ]
    for shown in _variants_by_table(having, width - sum(max(len(cell.text) for cell in cells) for _, cells in columns)):
        beside = []
        for variant in shown:
            cells = [bare_cell(figures[place].get(variant)) for place in rows]
            if ratios:
                text = f"{quantities.number(ratios[variant])}×" if variant in ratios else quantities.MISSING
                cells.append(Cell(text, None, f"{RELATIVE} of the ratios to {variants[0]}, derived", tone="quiet"))
            beside.append((Column(variant), cells))
        yield build([*columns, *beside])


def _has_value(figures: Mapping[str, Document], variant: str) -> bool:
    return variant in figures and figures[variant]["value"] is not None


def _variants_by_table(variants: Sequence[str], room: int) -> list[list[str]]:
    """The variants by table, the first in every one of them."""
    tables: list[list[str]] = []
    left = 0
    for variant in variants[1:] or variants:
        need = max(len(variant), NUMBER) + GAP
        if not tables or need > left:
            tables.append([variants[0]] if len(variants) > 1 else [])
            left = room - GAP - max(len(variants[0]), NUMBER) - GAP
        tables[-1].append(variant)
        left -= need
    return tables


def figure_name(column: Document) -> str:
    """`step ms`, `MFLOP/s`, `test accuracy %`, `embeddings share %`."""
    if column.get("label"):
        return str(column["label"])
    name = figure_words(str(column["figure"]), str(column["unit"]))
    return f"{name}, {place_name(column)}" if _is_percentile(column) else f"{column.get('of', '')} {name}".lstrip()


def place_name(column: Document) -> str:
    """What a column of one figure at several places is called: the module or phase, `whole`, `percentile 90`."""
    own = WHOLE.get(str(column["figure"]), "whole")
    of = NEIGHBOUR if column["of"] == WITH else str(column["of"]) or own
    return f"percentile {of}" if _is_percentile(column) else of


def _is_percentile(column: Document) -> bool:
    return str(column["figure"]).startswith("latency_") and bool(column.get("of"))


def _printed_for(figure: Document, hardware: str) -> Cell:
    """The figure that was published of this machine."""
    for printed in figure.get("published", ()):
        if printed["hardware"] == hardware:
            return printed_cell(printed)
    return Cell(quantities.MISSING)
