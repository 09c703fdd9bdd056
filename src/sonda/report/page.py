"""The page: one HTML file with everything inside, that needs no network and sends nothing.

A content security policy in the page forbids every outside request, so this holds whatever a name contains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path

from sonda.analysis.comparison.summary import Comparison
from sonda.analysis.summary import Summary
from sonda.record.run import Run
from sonda.report.blocks import View
from sonda.report.labels import UNITS, markup
from sonda.report.markup import panel_html
from sonda.report.output import whole_file
from sonda.report.provenance import SOURCE
from sonda.report.section import Section, render_section, section_of
from sonda.report.views.compare.rooflines import targets_panels
from sonda.report.views.compare.section import comparison_panels, comparison_title, side_by_side_panels
from sonda.report.views.kinds import view_of
from sonda.report.views.steps.tables import column_names
from sonda.report.views.steps.view import StepsView
from sonda.version import VERSION

POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"


def write_page(
    path: Path,
    summaries: Sequence[Summary],
    runs: Sequence[Run] | None = None,
    comparison: Comparison | None = None,
    asked: Sequence[str] = (),
) -> Path:
    """Write one self-contained page about these runs; returns its path.

    `runs`, in the order of the summaries, add what `run.json` knows: versions, probes, command. `asked` says by which
    name each was asked for: runs of one name are processes of the same configuration. Raises SondaError when the file
    cannot be written; nothing is left behind then.
    """
    text = page_text(summaries, runs, comparison, asked)
    with whole_file(path) as stream:
        stream.write(text.encode("utf-8"))
    return path


def write_view(path: Path, view: View) -> Path:
    """Write one self-contained page about what this view shows; returns its path. Raises SondaError as `write_page`."""
    text = frame_page(view.title, [section_of(view)])
    with whole_file(path) as stream:
        stream.write(text.encode("utf-8"))
    return path


def page_text(
    summaries: Sequence[Summary],
    runs: Sequence[Run] | None = None,
    comparison: Comparison | None = None,
    asked: Sequence[str] = (),
) -> str:
    """The page as text."""
    names = column_names(summaries, asked)
    # Runs that were asked for one by one are called the same in every section.
    sides = names if asked and len(set(asked)) == len(asked) else asked
    groups = list(sides) if len(set(sides)) > 1 else [""] * len(summaries)
    sections: list[Section] = []
    title = summaries[0].title if summaries else "Sonda"
    if comparison is not None:
        both = list(dict.fromkeys(sides))
        title = comparison_title(comparison, [summary.title for summary in summaries], both)
        blocks = comparison_panels(comparison, both, title)
        sections.append(render_section("Comparison", "comparison", blocks))
    kept: Sequence[Run | None] = runs or [None] * len(summaries)
    # An exploration has no step that could stand beside those of runs.
    steps = [
        (summary, name, run, group) for summary, name, run, group in zip(summaries, names, kept, groups, strict=True)
        if run is None or run.info.kind != "exploration"
    ]  # fmt: skip
    if len(steps) > 1:
        beside, called, judged, together = zip(*steps, strict=True)
        grouped = together if len(set(together)) > 1 else ()
        blocks = side_by_side_panels(beside, called, judged, comparison, grouped)
        sections.append(render_section("Side by side", "together", blocks, alone=comparison is None))
        of_side = [summary.run in comparison.b for summary in beside] if comparison is not None else []
        shared = targets_panels(beside, called, of_side)
        sections += [render_section("Rooflines", "targets", shared)] if shared else []
    for index, (summary, name, run) in enumerate(zip(summaries, names, kept, strict=True)):
        alone = len(sections) == 0 and len(summaries) == 1
        # Without what `run.json` knows it is a run of steps.
        view = view_of(run, summary, name) if run is not None else StepsView(summary, name=name)
        sections.append(replace(section_of(view, index, alone), folded=len(summaries) > 1))
    return frame_page(title, sections)


def frame_page(title: str, sections: Sequence[Section]) -> str:
    """A whole page of these sections."""
    links = "".join(f'<a href="#{section.place}">{markup(section.name)}</a>' for section in sections)
    body = "\n".join(map(_section_html, sections))
    body += _words_panel(sections)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="Sonda {markup(VERSION)}">
<title>{markup(title)} · Sonda</title>
<style>
{_asset("page.css")}</style>
</head>
<body>
<header>{f"<nav>{links}</nav>" if len(sections) > 1 else ""}</header>
<main data-units="{markup(UNITS)}">
{body}
</main>
<footer>Made by Sonda {markup(VERSION)}. Hover over a number, tap it or walk to it with the arrow keys for its unit,
source and interval; hatched ones are guesses with bounds, estimated or from tables of energy and area; – is
missing, with its reason below.
<noscript>Sorting and tooltips of figures need scripts, which are switched off here.</noscript></footer>
<script>
{_asset("tables.js")}{_asset("csv.js")}{_asset("hints.js")}{_asset("figures.js")}</script>
</body>
</html>
"""


def _section_html(section: Section) -> str:
    html = f'<section id="{section.place}">\n{section.html}\n</section>'
    if not section.folded:
        return html
    return f'<details class="report"><summary><h2>{markup(section.name)}</h2></summary>{html}</details>'


def _words_panel(sections: Sequence[Section]) -> str:
    """The words of all sections, each once; '' where there are none."""
    meanings = dict(word for section in sections for word in section.words)
    if not meanings:
        return ""
    meanings[SOURCE[0]] = meanings.pop(SOURCE[0])  # the last
    items = "".join(f"<dt>{markup(word)}</dt><dd>{markup(meaning)}</dd>" for word, meaning in meanings.items())
    return panel_html("Words on this page", f'<dl class="words">{items}</dl>', opened=False)


def _asset(name: str) -> str:
    return resources.files("sonda.report").joinpath("assets", name).read_text(encoding="utf-8")
