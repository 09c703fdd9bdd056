"""A study for a page: the answer, its pictures, published against ours, the tables, and what must be said of them.

Every study goes through these functions. What its figures do not allow is left out: no study has a page of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from sonda.report.blocks import (
    Advice,
    Block,
    FigureBlock,
    Fold,
    Heading,
    Number,
    Numbers,
    Panel,
    Paragraph,
    Suggestion,
    TableBlock,
    VerdictBlock,
    paragraphs,
)
from sonda.report.charts.chart import Chart
from sonda.report.table import Table
from sonda.report.views.corun_figures import miss_curve, misses_table, slowdown_map
from sonda.report.views.study.answer import Answer, answer, is_measured
from sonda.report.views.study.cells import (
    axis_cell,
    figure_hint,
    interval_holds,
    interval_words,
    is_guessed,
    is_ratio,
    study_cell,
)
from sonda.report.views.study.dot_plot import dots_figure, dots_of, dots_table, map_figure
from sonda.report.views.study.facets import split_study
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
from sonda.report.views.study.screen import failure_lines, lists_operations, scale_suffix, setting_text
from sonda.report.views.study.stacked_bars import stack_figure, stack_table, stacks
from sonda.report.views.study.tables import (
    SLOWDOWN,
    WITH,
    Document,
    by_workload_and_neighbour,
    figure_name,
    neighbour_matrix,
    select_variant,
    study_tables,
    unmeasured_figures,
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
MAP_CAPTION = "Dark is little, bright is much."
FEW = 3
"""Rows out of line that are shown at once; the others are folded."""
OPTIONS = (
    "Times as many samples a second as the base, with intervals that hold for all options at once with 95 %; grey is "
    "not significant."
)


def study_panels(study: Document) -> list[Block]:
    """Everything about a study, with its figures."""
    answered = answer(study)
    return [
        Heading(f"{study['study']}{scale_suffix(study)}", str(study["question"])),
        _answer_panel(study, answered),
        *_first_opened(_pictures(study, answered)),
        *_option_panels(study, answered),
        *_published_panels(study),
        *(
            Panel(_capitalised(titled.title or UNTITLED), [TableBlock(titled.table)], titled.caption)
            for titled in study_tables(study, WIDE, page=True)
        ),
        *_operation_panels(study),
        *_closing_panels(study),
    ]


def _first_opened(panels: Iterable[Panel]) -> Iterator[Panel]:
    """The picture that answers the question is open, the others are to be opened."""
    for number, panel in enumerate(panels):
        yield replace(panel, opened=not number)


def _capitalised(name: str) -> str:
    """Titles are names of figures, which begin small elsewhere."""
    return name[:1].upper() + name[1:]


def _answer_panel(study: Document, answered: Answer) -> VerdictBlock:
    """The answer with its numbers, what to try, then how much of the study it rests on."""
    first, *others = [sentence for sentence in answered.sentences if sentence not in answered.places]
    strange = paragraphs((f"Out of line: {sentence}." for sentence in study.get("verdicts", ())), "remark")
    blocks: list[Block] = [Paragraph(first, "first"), *paragraphs(others, ""), *strange[:FEW]]
    if strange[FEW:]:
        blocks.append(Fold(f"{len(strange) - FEW:,} more out of line", strange[FEW:]))
    remedies = [Suggestion(f"{_capitalised(remedy)}.") for remedy in study.get("remedies", ())]
    return VerdictBlock([*blocks, Advice(remedies), Numbers(_extent(study), "facts")])


def _extent(study: Document) -> list[Number]:
    """How many configurations were measured, how often, and how many of the runs were disturbed."""
    rows = study["rows"]
    counts = sorted({figure["n"] for row in rows for figure in row["figures"].values() if figure["value"] is not None})
    numbers = [Number("configurations measured", f"{sum(map(is_measured, rows)):,} of {len(rows):,}")]
    if counts:
        text = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        numbers.append(Number("repetitions", text))
    disturbed = sum(int(row.get("disturbed", 0)) for row in rows)
    if disturbed:
        runs = sum(len(row.get("runs", ())) for row in rows)
        numbers.append(Number("disturbed by other programs", f"{disturbed:,} of {runs:,} runs"))
    return numbers


def _picture(place: str, title: str, figure: Chart, caption: str = "", table: Table | None = None) -> Panel:
    """A figure with the table behind it."""
    return Panel(_capitalised(title), [FigureBlock(figure, place, table)], caption)


def _pictures(study: Document, answered: Answer) -> Iterator[Panel]:
    """Every picture that the study's figures allow, in the order of the page."""
    columns = {str(column["figure"]): column for column in study["columns"]}
    heat = _matrix_picture(study)
    if heat is not None:
        yield heat
    for number, key in enumerate(answered.figures):
        if heat is None or key != SLOWDOWN:
            yield from _dot_pictures(study, columns[key], f"dots{number}")
    scaling = scaling_figure(study)
    if scaling is not None:
        caption = (
            "Filled: training, validation and test; open, beside it: the training part. The bound holds where only "
            "training is shared; validation and test of the base are its serial part."
        )
        table = scaling_table(study["scaling"])
        yield _picture("scaling", "Speed-up by number of devices", scaling, caption, table)
    accuracy = accuracy_figure(study)
    if accuracy is not None:
        yield _picture("accuracy", "Accuracy by epoch", accuracy, accuracy_caption(study), accuracy_table(study))
    yield from _energy_pictures(study)
    for stack in stacks(study):
        yield _picture(stack.place, stack.title, stack_figure(stack), "", stack_table(stack))
    compared = trades(study)
    if compared:
        caption = "Each point is a variant; no other needs fewer cycles and less energy than those on the front."
        table = trade_table(compared)
        yield _picture("trade", "Pareto front: cycles and energy", trade_figure(compared), caption, table)
    misses = _misses(study)
    curve = miss_curve(misses)
    if curve is not None:
        caption = "Of one modelled step; no clock is read."
        yield _picture("misses", "Misses by size of the last cache", curve, caption, misses_table(misses))


def _dot_pictures(study: Document, column: Document, place: str) -> Iterator[Panel]:
    """A figure of every configuration: in one picture, or in one for each part of the study."""
    key = str(column["figure"])
    drawn = 0
    for name, part in split_study(study, lambda part: len({dot.place for dot in dots_of(part, key)})):
        drawn_map = map_figure(part, column)
        figure = drawn_map or dots_figure(part, column)
        if figure is not None:
            title = figure_name(column) + (f": {name}" if name else "")
            suffix = f"-{drawn}" if drawn else ""
            yield _picture(
                f"{place}{suffix}",
                title,
                figure,
                MAP_CAPTION if drawn_map else _dots_caption(part, key),
                dots_table(part, column),
            )
            drawn += 1


def _dots_caption(study: Document, key: str) -> str:
    """What bars, grey marks and open ones are, where there are some."""
    figures = [row["figures"][key] for row in study["rows"]]
    sentences = [interval_words(figures, "A bar is an interval")]
    ours = [figure for figure in figures if figure["value"] is not None]
    if is_ratio(key) and any(interval_holds(figure, 1.0) for figure in ours):
        sentences.append("Filled grey marks are not significant: their interval holds 1.")
    if any(is_guessed(figure) for figure in ours):
        sentences.append("Open marks in colour are estimated.")
    published = [printed["value"]["value"] for figure in figures for printed in figure.get("published", ())]
    if published:
        sentences.append("Open grey marks are published figures.")
    if None in published:
        sentences.append("A grey line between two of them is a published range.")
    return " ".join(filter(None, sentences))


def _matrix_picture(study: Document) -> Panel | None:
    """The slowdown matrix, where a study has one."""
    if not {"workload", WITH} <= set(study["axes"]) or not any(
        column["figure"] == SLOWDOWN for column in study["columns"]
    ):
        return None
    variants = variants_of(study) if not study.get("base") else []
    whole = select_variant(study, variants[0]) if variants else study
    measured_in = {row: {name: figure for name, figure in figures.items() if figure["value"] is not None}
                   for row, figures in by_workload_and_neighbour(whole, SLOWDOWN).items()}  # fmt: skip
    by_row = {row: figures for row, figures in measured_in.items() if figures}
    if not by_row:
        return None
    names = list(dict.fromkeys(name for figures in by_row.values() for name in figures))
    lines = [[figures.get(name) for name in names] for figures in by_row.values()]
    values = [[figure["value"] if figure else None for figure in line] for line in lines]
    texts = [[study_cell(figure).text if figure else "" for figure in line] for line in lines]
    hints = [[figure_hint(figure) if figure else "" for figure in line] for line in lines]
    caption = "Time per step beside another program over time per step alone: a row suffers from a column."
    column = next(column for column in study["columns"] if column["figure"] == SLOWDOWN)
    drawn = slowdown_map(list(by_row), names, values, texts, hints)
    return _picture("heat", "Slowdown matrix", drawn, caption, neighbour_matrix(whole, column))


def _misses(study: Document) -> dict[str, dict[float, float]]:
    """Modelled misses by program and bytes of cache."""
    misses: dict[str, dict[float, float]] = {}
    for row in study["rows"]:
        for key, figure in row["figures"].items():
            size = axis_cell(key.removeprefix(MISSES)).order if key.startswith(MISSES) else None
            if isinstance(size, float) and figure["value"] is not None:
                misses.setdefault(str(row["configuration"].get("workload", "")), {})[size] = figure["value"]
    return misses


def _energy_pictures(study: Document) -> Iterator[Panel]:
    """Energy of trainings; joules of simulated steps stand with their cycles."""
    for place, title, metrics in ENERGIES if study.get("base") else ():
        columns = [column for column in study["columns"] if not column.get("of") and _metric(column) in metrics]
        unit = str(columns[0]["unit"]) or f"times {study.get('base', '')}" if columns else ""
        figure = energy_figure(study, [str(column["figure"]) for column in columns], unit)
        if figure is not None:
            guessed = any(
                row["figures"][column["figure"]]["source"] == "estimated" for column in columns for row in study["rows"]
            )
            caption = "Hatched: estimated by a power model, not measured." if guessed else ""
            yield _picture(place, title, figure, caption, energy_table(study, columns))


def _metric(column: Document) -> str:
    """`edp` of `edp_Js`, `relative_edp` of itself."""
    key, unit = str(column["figure"]), column["unit"]
    return key.rpartition("_")[0] if unit else key


def _option_panels(study: Document, answered: Answer) -> Iterator[Panel]:
    """What options bring, place by place: in a sentence, as bars with their table, and what limits each."""
    for number, place in enumerate(study.get("optimisations", ())):
        head = f"{place['place']}: "
        sentences = [sentence.removeprefix(head) for sentence in answered.places if sentence.startswith(head)]
        bars = options_figure(place)
        table = options_table(place)
        picture: Block = TableBlock(table) if bars is None else FigureBlock(bars, f"options{number}", table)
        title = options_title(place)
        yield Panel(
            title if place["place"] else _capitalised(title),
            [*paragraphs(sentences, ""), picture, *_limit_blocks(place)],
            OPTIONS,
        )


def _limit_blocks(place: Document) -> list[Block]:
    """A line for each configuration; whole sentences are folded. Nothing where nothing was measured."""
    table = limits_table(place)
    if table is None:
        return []
    return [
        Heading("What limits each", level=4),
        TableBlock(table),
        Fold("In whole sentences", paragraphs(limit_sentences(place), "")),
    ]


def _published_panels(study: Document) -> Iterator[Panel]:
    printed = pairs(study)
    if printed:
        figure, table = published_figure(printed), published_table(printed)
        shown: Block = TableBlock(table) if figure is None else FigureBlock(figure, "published", table)
        ranges = any(pair.printed["in_range"] for pair in printed)
        grey = f" Grey: {REACHED}." if any(pair.reached for pair in printed) else ""
        drawn = f"Each mark is a printed figure; 1 is as printed.{grey}" if figure is not None else ""
        caption = f"{drawn} Ranges and bounds have no ratio.".strip() if ranges else drawn
        yield Panel("Published against ours", [shown], caption)


def _operation_panels(study: Document) -> Iterator[Panel]:
    if lists_operations(study):
        yield Panel("Operations one by one", [TableBlock(operations_table(study["operations"]))])


def _closing_panels(study: Document) -> Iterator[Panel]:
    """What is missing and why, what differs from the publication, what else there is to know."""
    lacking = [f"– {', '.join(names)}: {reason}" for reason, names in unmeasured_figures(study).items()]
    for title, lines in (("Not measured", lacking), ("Failed", failure_lines(study)),
                         ("Deviations from what was published", study["deviations"]), ("Notes", study["notes"]),
                         ("Where the numbers come from", list(_origin(study)))):  # fmt: skip
        if lines:
            yield Panel(title, paragraphs(map(str, lines), ""))


def _origin(study: Document) -> Iterator[str]:
    """Machines, days, versions, and what all configurations share."""
    about = study.get("provenance") or {}
    if about.get("devices"):
        where = f"{', '.join(about['devices'])}, {', '.join(about['recorded'])}"
        sources = {figure["source"] for row in study["rows"] for figure in row["figures"].values()
                   if figure["value"] is not None}  # fmt: skip
        how = "Simulated" if "simulated" in sources and "measured" not in sources else "Measured"
        yield f"{how} on {where}."
    if about.get("versions"):
        yield "Versions: " + ", ".join(f"{name} {version}" for name, version in about["versions"].items()) + "."
    if study.get("fixed"):
        settings = [f"{key.replace('_', ' ')} {setting_text(value)}" for key, value in study["fixed"].items()]
        yield f"All configurations: {', '.join(settings)}."
