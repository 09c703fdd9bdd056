"""Studies in the terminal: which there are, what one would measure, what it found beside what was published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sonda.report import quantities
from sonda.report.labels import plain
from sonda.report.screen import Screen
from sonda.report.table import LAST, Cell, Column, Table, build, words

Document = Mapping[str, Any]


def render_studies(studies: Sequence[Document], width: int | None = None, *, color: bool | None = None) -> str:
    """The studies that ship with Sonda."""
    screen = Screen(width, color)
    table = build(
        [
            (Column("study", right=False), words([str(one["name"]) for one in studies])),
            (Column("runs"), words([f"{one['runs']:,}" for one in studies])),
            (Column("scales", right=False), words([", ".join(one["scales"]) for one in studies])),
            (Column("question", right=False, wrap=True), words([str(one["question"]) for one in studies])),
        ]
    )
    screen.table(table, indent=0, reasons=False)
    screen.line()
    screen.line("Carry one out with: sonda study NAME --scale small", "dim")
    return screen.text()


def render_plan(plan: Document, width: int | None = None, *, color: bool | None = None) -> str:
    """What a study would measure, in order."""
    screen = Screen(width, color)
    runs = plan["runs"]
    screen.line(f"{plain(plan['study'])}{_at_scale(plan)}: {len(runs):,} runs, each a process of its own", "bold")
    keys = list(dict.fromkeys(key for run in runs for key in run if key != "identity"))
    columns = [(Column(key, right=False), words([str(run.get(key, "")) for run in runs])) for key in keys]
    screen.table(build(columns), reasons=False)
    return screen.text()


def render_study(study: Document, width: int | None = None, *, color: bool | None = None) -> str:
    """A study's table: our figures with their intervals, the published ones beside them, deviations below."""
    screen = Screen(width, color)
    screen.line(f"{plain(study['study'])}{_at_scale(study)}", "bold")
    if study["question"]:
        screen.line(plain(study["question"]), "", 2, 2)
    screen.line()
    screen.table(_ours(study))
    for column in study["columns"]:
        beside = _beside(study, column)
        if beside is not None:
            screen.line()
            screen.line(f"{_name(column)}, ours beside what was published", "bold", 2)
            screen.table(beside, reasons=False)
    failures = [failure for row in study["rows"] for failure in row["failures"]]
    for title, lines in (("Failed", failures), ("Deviations", study["deviations"]), ("Notes", study["notes"])):
        if lines:
            screen.line()
            screen.line(title, "bold", 2)
            for line in lines:
                screen.line(plain(str(line)), "", 4, 2)
    return screen.text()


def _at_scale(document: Document) -> str:
    return f" at scale {plain(document['scale'])}" if document["scale"] else ""


Columns = list[tuple[Column, Sequence[Cell]]]


def _axes(study: Document) -> Columns:
    return [
        (Column(axis, right=False), words([str(row["configuration"].get(axis, "")) for row in study["rows"]]))
        for axis in study["axes"]
    ]


def _ours(study: Document) -> Table:
    """Every figure that was measured."""
    columns = _axes(study)
    for index, column in enumerate(study["columns"]):
        figures = [row["figures"][column["figure"]] for row in study["rows"]]
        if any(figure["value"] is not None for figure in figures):
            columns.append((Column(_name(column), keep=max(1, LAST - index)), [_cell(one) for one in figures]))
    return build(columns)


def _beside(study: Document, column: Document) -> Table | None:
    """One figure of ours with the published ones, a column for each machine; None where nothing was published."""
    figures = [row["figures"][column["figure"]] for row in study["rows"]]
    machines = dict.fromkeys(one["hardware"] for figure in figures for one in figure.get("published", ()))
    if not machines:
        return None
    columns = [*_axes(study), (Column("ours"), [_cell(one) for one in figures])]
    columns += [(Column(machine or "published"), [_printed(one, machine) for one in figures]) for machine in machines]
    return build(columns)


def _name(column: Document) -> str:
    """`step ms`, `MFLOP/s`, `accuracy`."""
    key, unit = str(column["figure"]), str(column["unit"])
    if not unit:
        return key
    stem, _, word = key.rpartition("_")
    return f"{stem.replace('_', ' ')} {unit}" if stem and not word.startswith("second") else unit


def _cell(figure: Document) -> Cell:
    value = figure["value"]
    if value is None:
        return Cell(quantities.MISSING, missing=str(figure["reason"]))
    low, high = figure["low"], figure["high"]
    spread = f" ±{50 * (high - low) / value:.0f} %" if low is not None and high is not None and value else ""
    return Cell(quantities.number(value) + spread, value)


def _printed(figure: Document, hardware: str) -> Cell:
    for one in figure.get("published", ()):
        if one["hardware"] == hardware:
            return Cell(quantities.number(one["value"]["value"]), one["value"]["value"], tone="quiet")
    return Cell(quantities.MISSING)
