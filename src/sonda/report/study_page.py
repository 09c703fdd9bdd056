"""A study as a page: its figures, then the tables that the terminal shows, then what must be said of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sonda.report.figures import Figure
from sonda.report.labels import markup
from sonda.report.markup import panel, place_figure, table_html
from sonda.report.optimisations import options_figure, options_title, summary_lines, verdict_lines
from sonda.report.output import whole_file
from sonda.report.page import framed
from sonda.report.sections import Section
from sonda.report.study import failure_lines
from sonda.report.study_figures import accuracy_figure, energy_figure, scaling_figure
from sonda.report.study_tables import Document, option_tables, study_tables, unmeasured

ENERGIES = (
    ("energy", "Energy", ("energy", "energy_with_idle")),
    ("edp", "Energy-delay product", ("edp", "edp_with_idle")),
    ("relative", "Energy-delay product against the base", ("relative_edp", "relative_edp_with_idle")),
)
"""Places and titles of bars, and the figures that they show, whatever their unit."""
WIDE = 10_000
"""A page scrolls: no table is taken apart."""


def write_study_page(path: Path, study: Document) -> Path:
    """Write one self-contained page about a study; returns its path. Raises SondaError when it cannot be written."""
    text = framed(str(study["study"]), [study_section(study)])
    with whole_file(path) as stream:
        stream.write(text.encode("utf-8"))
    return path


def study_section(study: Document) -> Section:
    """Everything about a study, with its figures."""
    drawn: list[Figure] = []
    scale = f" at scale {study['scale']}" if study["scale"] else ""
    pieces = [f"<h1>{markup(str(study['study']) + scale)}</h1>", f'<p class="soft">{markup(study["question"])}</p>']
    for place, title, figure, caption in _figures(study):
        if figure is not None:
            pieces.append(panel(title, place_figure(figure, f"study{place}", drawn, ""), caption))
    places = study.get("optimisations", ())
    pieces += [f"<p><b>{markup(sentence)}</b></p>" for sentence in summary_lines(places)]
    for number, place in enumerate(places):
        bars = options_figure(place)
        if bars is not None:
            said = "".join(f"<p>{markup(line)}</p>" for line in verdict_lines(place))
            pieces.append(panel(options_title(place), place_figure(bars, f"studyoptions{number}", drawn, "") + said))
    for one in [*study_tables(study, WIDE), *option_tables(study)]:
        pieces.append(panel(one.title, table_html(one.table, "sortable")))
    lacking = [f"– {', '.join(names)}: {reason}" for reason, names in unmeasured(study).items()]
    for title, lines in (("Not measured", lacking), ("Failed", failure_lines(study)),
                         ("Deviations", study["deviations"]), ("Notes", study["notes"])):  # fmt: skip
        if lines:
            pieces.append(panel(title, "".join(f"<p>{markup(str(line))}</p>" for line in lines)))
    return Section(str(study["study"]), "study", "\n".join(pieces), tuple(drawn))


def _figures(study: Document) -> Iterator[tuple[str, str, Figure | None, str]]:
    """Place, title, figure and caption."""
    yield (
        "scaling",
        "Speed-up by number of devices",
        scaling_figure(study),
        ("The bound holds where only training is shared; validation and test of the base are its serial part."),
    )
    yield "accuracy", "Accuracy by epoch", accuracy_figure(study), "Mean of the repetitions; least to most is shaded."
    for place, title, metrics in ENERGIES:
        columns = [one for one in study["columns"] if not one.get("of") and _metric(one) in metrics]
        unit = str(columns[0]["unit"]) or f"times {study.get('base', '')}" if columns else ""
        figure = energy_figure(study, [str(one["figure"]) for one in columns], unit)
        yield place, title, figure, "Hatched: estimated by a power model, not measured."


def _metric(column: Document) -> str:
    """`edp` of `edp_Js`, `relative_edp` of itself."""
    key, unit = str(column["figure"]), column["unit"]
    return key.rpartition("_")[0] if unit else key
