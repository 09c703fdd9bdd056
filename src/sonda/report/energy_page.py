"""Energy in the sections of a page: of its own for `sonda energy`, at the end of any other run's."""

from __future__ import annotations

from dataclasses import replace

from sonda.analysis.energy_summary import EnergySummary
from sonda.report.energy_figures import energy_panels
from sonda.report.labels import markup
from sonda.report.sections import Section


def energy_section(found: EnergySummary, index: int, alone: bool) -> Section:
    """A whole run of `sonda energy`."""
    place = f"run{index}"
    level = "h1" if alone else "h2"
    html, figures = energy_panels(found, place)
    head = f'<{level}>{markup(found.title)}</{level}>\n<p class="soft">run {markup(found.run)}</p>\n'
    return Section(f"{found.title} ({found.run})", place, head + html, figures)


def with_energy(section: Section, found: EnergySummary | None) -> Section:
    """The section of a run with its energy below, where that was read."""
    if found is None:
        return section
    html, figures = energy_panels(found, f"{section.place}energy")
    return replace(section, html=f"{section.html}\n<h2>Energy</h2>\n{html}", figures=(*section.figures, *figures))
