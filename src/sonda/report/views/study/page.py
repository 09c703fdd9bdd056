"""A study as a page: the answer, its pictures, published against ours, the tables, and what must be said of them.

Every study goes through these functions, and what its figures do not allow is left out: no study has a page of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sonda.report.figures import Figure
from sonda.report.labels import markup
from sonda.report.markup import panel, place_figure, table_html, to_try
from sonda.report.output import whole_file
from sonda.report.page import framed
from sonda.report.provenance import with_study_words
from sonda.report.section import Section
from sonda.report.table import Table
from sonda.report.views.corun_figures import miss_curve, misses_table, slowdown_map
from sonda.report.views.study.answer import Answer, answer, measured
from sonda.report.views.study.cells import (
    axis_cell,
    figure_hint,
    holds,
    interval_words,
    is_guessed,
    is_ratio,
    study_cell,
)
from sonda.report.views.study.dot_plot import dots_figure, dots_of, dots_table
from sonda.report.views.study.facets import parts
from sonda.report.views.study.figures import (
    accuracy_caption,
    accuracy_figure,
    accuracy_table,
    energy_figure,
    energy_table,
    scaling_figure,
    scaling_table,
)
from sonda.report.views.study.operations import operations_table
from sonda.report.views.study.optimisations import (
    limit_sentences,
    limits_table,
    options_figure,
    options_table,
    options_title,
)
from sonda.report.views.study.published import REACHED, pairs, published_figure, published_table
from sonda.report.views.study.screen import failure_lines
from sonda.report.views.study.stacked_bars import stack_figure, stack_table, stacks
from sonda.report.views.study.tables import (
    SLOWDOWN,
    WITH,
    Document,
    beside,
    figure_name,
    known,
    matrix,
    of_variant,
    study_tables,
    unmeasured,
    variants_of,
)
from sonda.report.views.study.tradeoff import trade_figure, trade_table, trades

ENERGIES = (
    ("energy", "Energy", ("energy", "energy_with_idle")),
    ("edp", "Energy-delay product", ("edp", "edp_with_idle")),
    ("relative", "Energy-delay product against the base", ("relative_edp", "relative_edp_with_idle")),
)
"""Places and titles of bars, and the figures that they show, whatever their unit."""
WIDE = 10_000
"""A page scrolls: no table is taken apart."""
MISSES = "modelled_misses@"
UNTITLED = "Every configuration"
FEW = 3
"""Rows out of line that are said at once."""


@dataclass(frozen=True)
class Picture:
    place: str
    title: str
    figure: Figure
    caption: str = ""
    table: Table | None = None
    """The table behind it; None where it stands below on the page."""


def write_study_page(path: Path, study: Document) -> Path:
    """Write one self-contained page about a study; returns its path. Raises SondaError when it cannot be written."""
    text = framed(str(study["study"]), [study_section(study)])
    with whole_file(path) as stream:
        stream.write(text.encode("utf-8"))
    return path


def study_section(study: Document) -> Section:
    """Everything about a study, with its figures."""
    drawn: list[Figure] = []
    found = answer(study)
    scale = f" at scale {study['scale']}" if study["scale"] else ""
    pieces = [
        f"<h1>{markup(str(study['study']) + scale)}</h1>",
        f'<p class="soft">{markup(study["question"])}</p>',
        _answer_panel(study, found),
    ]
    for picture in _pictures(study, found):
        html = place_figure(picture.figure, f"study{picture.place}", drawn, "", picture.table)
        pieces.append(panel(_titled(picture.title), html, picture.caption))
    pieces += _options(study, found, drawn)
    pieces += _published(study, drawn)
    for one in study_tables(study, WIDE, page=True):
        pieces.append(panel(_titled(one.title or UNTITLED), table_html(one.table, "sortable"), one.caption))
    pieces += _operations(study)
    pieces += _said(study)
    section = Section(str(study["study"]), "study", "\n".join(pieces), tuple(drawn))
    figures = [figure for row in study["rows"] for figure in row["figures"].values()]
    shown = [(str(column["figure"]), str(column["unit"])) for column in known(study)["columns"]]
    return with_study_words(section, shown, any(one["source"] == "simulated" for one in figures))


def _titled(name: str) -> str:
    """Titles are names of figures, which begin small elsewhere."""
    return name[:1].upper() + name[1:]


def _answer_panel(study: Document, found: Answer) -> str:
    """The answer with its numbers, what to try, then how much of the study it rests on."""
    first, *others = [one for one in found.sentences if one not in found.places]
    lines = [f'<p class="first">{markup(first)}</p>', *(f"<p>{markup(one)}</p>" for one in others)]
    strange = [f'<p class="warning">Out of line: {markup(one)}.</p>' for one in study.get("verdicts", ())]
    lines += strange[:FEW]
    if strange[FEW:]:
        more = "".join(strange[FEW:])
        lines.append(f"<details><summary>{len(strange) - FEW:,} more out of line</summary>{more}</details>")
    lines.append(to_try(f"{markup(one[:1].upper() + one[1:])}." for one in study.get("remedies", ())))
    rows = study["rows"]
    found_any = sum(map(measured, rows))
    counts = sorted({figure["n"] for row in rows for figure in row["figures"].values() if figure["value"] is not None})
    facts = [("configurations measured", f"{found_any:,} of {len(rows):,}")]
    if counts:
        facts.append(("repetitions", f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"))
    disturbed = sum(int(row.get("disturbed", 0)) for row in rows)
    runs = sum(len(row.get("runs", ())) for row in rows)
    if disturbed:
        facts.append(("disturbed by other programs", f"{disturbed:,} of {runs:,} runs"))
    boxes = "".join(f"<div><dt>{name}</dt><dd>{markup(text)}</dd></div>" for name, text in facts)
    return f'<div class="panel verdict">{"".join(lines)}<dl class="facts">{boxes}</dl></div>'


def _pictures(study: Document, found: Answer) -> Iterator[Picture]:
    """Every picture that the study's figures allow, in the order of the page."""
    columns = {str(column["figure"]): column for column in study["columns"]}
    heat = _matrix_picture(study)
    if heat is not None:
        yield heat
    for number, key in enumerate(found.figures):
        if heat is None or key != SLOWDOWN:
            yield from _dots(study, columns[key], f"dots{number}")
    scaling = scaling_figure(study)
    if scaling is not None:
        caption = (
            "Filled: training, validation and test; open, beside it: the training part. The bound holds where only "
            "training is shared; validation and test of the base are its serial part."
        )
        table = scaling_table(study["scaling"])
        yield Picture("scaling", "Speed-up by number of devices", scaling, caption, table)
    accuracy = accuracy_figure(study)
    if accuracy is not None:
        yield Picture("accuracy", "Accuracy by epoch", accuracy, accuracy_caption(study), accuracy_table(study))
    yield from _energies(study)
    for stack in stacks(study):
        yield Picture(stack.place, stack.title, stack_figure(stack), "", stack_table(stack))
    trade = trades(study)
    if trade:
        caption = "Each point is a variant; no other needs fewer cycles and less energy than those on the front."
        yield Picture("trade", "Pareto front: cycles and energy", trade_figure(trade), caption, trade_table(trade))
    misses = _misses(study)
    curve = miss_curve(misses)
    if curve is not None:
        caption = "Of one modelled step; no clock is read."
        yield Picture("misses", "Misses by size of the last cache", curve, caption, misses_table(misses))


def _dots(study: Document, column: Document, place: str) -> Iterator[Picture]:
    """A figure of every configuration: in one picture, or in one for each part of the study."""
    key = str(column["figure"])
    drawn = 0
    for name, part in parts(study, lambda one: len({dot.place for dot in dots_of(one, key)})):
        figure = dots_figure(part, column)
        if figure is not None:
            title = figure_name(column) + (f": {name}" if name else "")
            caption, table = _dots_caption(part, key), dots_table(part, column)
            yield Picture(f"{place}{f'-{drawn}' if drawn else ''}", title, figure, caption, table)
            drawn += 1


def _dots_caption(study: Document, key: str) -> str:
    """What bars, grey marks and open ones are, where there are some."""
    figures = [row["figures"][key] for row in study["rows"]]
    said = [interval_words(figures, "A bar is an interval")]
    ours = [figure for figure in figures if figure["value"] is not None]
    if is_ratio(key) and any(holds(figure, 1.0) for figure in ours):
        said.append("Filled grey marks are not significant: their interval holds 1.")
    if any(is_guessed(figure) for figure in ours):
        said.append("Open marks in colour are estimated.")
    printed = [one["value"]["value"] for figure in figures for one in figure.get("published", ())]
    if printed:
        said.append("Open grey marks are published figures.")
    if None in printed:
        said.append("A grey line between two of them is a published range.")
    return " ".join(one for one in said if one)


def _matrix_picture(study: Document) -> Picture | None:
    """The slowdown matrix, where a study has one."""
    if not {"workload", WITH} <= set(study["axes"]) or not any(
        column["figure"] == SLOWDOWN for column in study["columns"]
    ):
        return None
    variants = variants_of(study) if not study.get("base") else []
    whole = of_variant(study, variants[0]) if variants else study
    by = {row: {name: one for name, one in cells.items() if one["value"] is not None}
          for row, cells in beside(whole, SLOWDOWN).items()}  # fmt: skip
    by = {row: cells for row, cells in by.items() if cells}
    if not by:
        return None
    names = list(dict.fromkeys(name for cells in by.values() for name in cells))
    values = [[cells[name]["value"] if name in cells else None for name in names] for cells in by.values()]
    texts = [[study_cell(cells[name]).text if name in cells else "" for name in names] for cells in by.values()]
    hints = [[figure_hint(cells[name]) if name in cells else "" for name in names] for cells in by.values()]
    caption = "Time per step beside another program over time per step alone: a row suffers from a column."
    column = next(column for column in study["columns"] if column["figure"] == SLOWDOWN)
    figure = slowdown_map(list(by), names, values, texts, hints)
    return Picture("heat", "Slowdown matrix", figure, caption, matrix(whole, column))


def _misses(study: Document) -> dict[str, dict[float, float]]:
    """Modelled misses by program and bytes of cache."""
    found: dict[str, dict[float, float]] = {}
    for row in study["rows"]:
        for key, figure in row["figures"].items():
            size = axis_cell(key.removeprefix(MISSES)).order if key.startswith(MISSES) else None
            if isinstance(size, float) and figure["value"] is not None:
                found.setdefault(str(row["configuration"].get("workload", "")), {})[size] = figure["value"]
    return found


def _energies(study: Document) -> Iterator[Picture]:
    """Energy of trainings; joules of simulated steps stand with their cycles."""
    for place, title, metrics in ENERGIES if study.get("base") else ():
        columns = [one for one in study["columns"] if not one.get("of") and _metric(one) in metrics]
        unit = str(columns[0]["unit"]) or f"times {study.get('base', '')}" if columns else ""
        figure = energy_figure(study, [str(one["figure"]) for one in columns], unit)
        if figure is not None:
            guessed = any(
                row["figures"][one["figure"]]["source"] == "estimated" for one in columns for row in study["rows"]
            )
            caption = "Hatched: estimated by a power model, not measured." if guessed else ""
            yield Picture(place, title, figure, caption, energy_table(study, columns))


def _metric(column: Document) -> str:
    """`edp` of `edp_Js`, `relative_edp` of itself."""
    key, unit = str(column["figure"]), column["unit"]
    return key.rpartition("_")[0] if unit else key


def _options(study: Document, found: Answer, drawn: list[Figure]) -> Iterator[str]:
    """What options bring, place by place: in a sentence, as bars with their table, and what limits each."""
    for number, place in enumerate(study.get("optimisations", ())):
        head = f"{place['place']}: "
        said = "".join(f"<p>{markup(one.removeprefix(head))}</p>" for one in found.places if one.startswith(head))
        bars = options_figure(place)
        table = table_html(options_table(place), "sortable")
        picture = place_figure(bars, f"studyoptions{number}", drawn, "") if bars is not None else ""
        title = options_title(place)
        yield panel(title if place["place"] else _titled(title), said + picture + table + _limits(place), OPTIONS)


def _limits(place: Document) -> str:
    """A line for each configuration; whole sentences are folded. '' where nothing was measured."""
    table = limits_table(place)
    if table is None:
        return ""
    lines = "".join(f"<p>{markup(line)}</p>" for line in limit_sentences(place))
    more = f'<details class="behind"><summary>In whole sentences</summary>{lines}</details>'
    return f"<p><strong>What limits each</strong></p>{table_html(table, 'sortable')}{more}"


OPTIONS = (
    "Times as many samples a second as the base, with intervals that hold for all options at once with 95 %; grey is "
    "not significant."
)


def _published(study: Document, drawn: list[Figure]) -> Iterator[str]:
    found = pairs(study)
    if found:
        figure = published_figure(found)
        picture = place_figure(figure, "studypublished", drawn, "none of the published figures has ours beside it")
        table = table_html(published_table(found), "sortable", tall=True)
        grey = f" Grey: {REACHED}." if any(pair.reached for pair in found) else ""
        caption = f"Each mark is a printed figure; 1 is as printed.{grey}"
        yield panel("Published against ours", picture + table, caption)


def _operations(study: Document) -> Iterator[str]:
    operations = study.get("operations", ())
    if len(operations) > len(study["rows"]) or any(row["counted"] is not None for row in operations):
        yield panel("Operations one by one", table_html(operations_table(operations), "sortable"))


def _said(study: Document) -> Iterator[str]:
    """What is missing and why, what differs from the publication, what else there is to know."""
    lacking = [f"– {', '.join(names)}: {reason}" for reason, names in unmeasured(study).items()]
    for title, lines in (("Not measured", lacking), ("Failed", failure_lines(study)),
                         ("Deviations from what was published", study["deviations"]), ("Notes", study["notes"]),
                         ("Where the numbers come from", list(_origin(study)))):  # fmt: skip
        if lines:
            yield panel(title, "".join(f"<p>{markup(str(line))}</p>" for line in lines))


def _origin(study: Document) -> Iterator[str]:
    """Machines, days, versions, and what all configurations share."""
    about = study.get("provenance") or {}
    if about.get("devices"):
        where = f"{', '.join(about['devices'])}, {', '.join(about['recorded'])}"
        found = {figure["source"] for row in study["rows"] for figure in row["figures"].values()
                 if figure["value"] is not None}  # fmt: skip
        yield f"Simulated on {where}." if "simulated" in found and "measured" not in found else f"Measured on {where}."
    if about.get("versions"):
        yield "Versions: " + ", ".join(f"{name} {version}" for name, version in about["versions"].items()) + "."
    if study.get("fixed"):
        yield "All configurations: " + ", ".join(_said_of_all(study["fixed"])) + "."


def _said_of_all(fixed: Document) -> Iterator[str]:
    """`batch 16`, `train true`."""
    for key, value in fixed.items():
        yield f"{key.replace('_', ' ')} {str(value).lower() if isinstance(value, bool) else value}"
