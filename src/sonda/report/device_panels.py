"""The GPU's side of a run on a page: what it did in a step, its kernels, what was counted in them, their roofline."""

from __future__ import annotations

from sonda.analysis.summary import PartSummary, Summary
from sonda.report.counted_tables import stall_sentences, titled_tables
from sonda.report.device_tables import device_tables, memory_phrases, side_phrases
from sonda.report.figures import Figure, largest_of
from sonda.report.kernel_roofline import kernel_caption, kernel_roof_table, kernel_roofline
from sonda.report.labels import markup
from sonda.report.markup import legend, panel, place_figure, table_html
from sonda.report.stall_figures import MOST_KERNELS as STALLED
from sonda.report.stall_figures import reasons_meant, stall_figure

MOST_KERNELS = 200
"""Kernels that a page lists."""
STALLS = (
    "A GPU runs threads in groups, its warps. Each bar is a kernel, those with the most time first: what its warps did "
    "with their cycles, or what they waited for."
)


def device_panels(part: PartSummary, summary: Summary, place: str, drawn: list[Figure]) -> str:
    """Of the part that the kernels belong to; empty for the others. Figures are added to `drawn`."""
    if part.device is None or part is not summary.parts[0]:
        return ""
    listed = [table for table in device_tables(summary, MOST_KERNELS) if table.name != "roofline of kernels"]
    tables = "".join(table_html(table, f"{table.name} sortable") for table in listed)
    said = _listed(side_phrases(part.device) + memory_phrases(summary))
    panels = panel(
        "GPU and its kernels", said + tables, "A kernel is a program that runs on the GPU; the host launches it."
    )
    roofline = summary.kernel_roofline
    if roofline is not None and roofline.rows:
        figure = kernel_roofline(roofline.rows, roofline.roofs)
        table = kernel_roof_table(roofline.rows[:MOST_KERNELS])
        panels += panel(
            "Kernels against the roofline",
            place_figure(figure, f"{place}kernels", drawn, "no kernel has FLOPs and bytes")
            + table_html(table, "sortable"),
            kernel_caption(roofline.rows, figure) if figure is not None else "",
        )
    counted = summary.kernel_counters
    if counted is not None:
        for title, table in titled_tables(counted):
            figure = stall_figure(counted.stalls) if table.name == "stalls" else None
            picture = place_figure(figure, f"{place}stalls", drawn, "") if figure is not None else ""
            caption = STALLS + largest_of(STALLED, len(counted.stalls), "kernels", "time") if picture else ""
            meant = legend(reasons_meant(counted.stalls)) if table.name == "stalls" else ""
            panels += panel(title, picture + meant + table_html(table, f"{table.name} sortable"), caption)
        sentences = [*stall_sentences(counted.stalls), *counted.sentences]
        panels += panel("What the counts say", _listed(sentences)) if sentences else ""
    return panels


def _listed(phrases: list[str]) -> str:
    return '<ul class="plain soft small">' + "".join(f"<li>{markup(phrase)}</li>" for phrase in phrases) + "</ul>"
