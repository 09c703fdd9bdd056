"""Imported runs: on a screen, on a page and as a document."""

from __future__ import annotations

from collections.abc import Sequence

from sonda.analysis.critical_path import CriticalPath
from sonda.analysis.rank_verdict import several
from sonda.analysis.ranks import Job
from sonda.analysis.trace_summary import DeviceWork, TraceSummary
from sonda.report import quantities
from sonda.report.document import verdict_document
from sonda.report.figures import Figure
from sonda.report.group_tables import group_lines, groups_table
from sonda.report.job_tables import job_document, job_figure, job_lines, job_table, steps_table
from sonda.report.kernel_tables import (
    PATH_PARTS,
    counters_table,
    device_work_document,
    devices_table,
    kernels_table,
    path_table,
    streams_table,
)  # fmt: skip
from sonda.report.labels import markup
from sonda.report.markup import panel, place_figure, table_html
from sonda.report.profile_tables import profile_document, profile_tables
from sonda.report.screen import Screen
from sonda.report.sections import Section
from sonda.report.table import Table
from sonda.report.terminal import show_verdicts
from sonda.report.values import SCHEMA, Document, plain_data, value_document
from sonda.report.verdict_panel import evidence, remedies

MOST_ON_PAGE = 500


def render_trace(found: TraceSummary, width: int | None = None, *, rows: int = 10, short: str = "",
                 color: bool | None = None) -> str:  # fmt: skip
    """One screen; `rows` is how many kernels are listed, `short` the id to type."""
    screen = Screen(width, color)
    show_trace(screen, found, rows)
    screen.saved(short or found.summary.run)
    return screen.text()


def show_trace(screen: Screen, found: TraceSummary, rows: int) -> None:
    """Verdicts, ranks, steps, devices and so many kernels, and what a reader must know."""
    summary, work = found.summary, found.work
    show_verdicts(screen, summary)
    if found.job is not None and rows:
        screen.line()
        screen.table(job_table(found.job, rows))
        if rows < len(found.job.ranks):
            screen.line(f"not above: {len(found.job.ranks) - rows:,} more ranks", "dim", 2)
        for line in job_lines(found.job):
            screen.line(line, "dim", 2, 2)
        if several(found.job):
            screen.line()
            screen.table(groups_table(found.job, rows))
            for line in group_lines(found.job):
                screen.line(line, "", 2, 2)
    for table in _profile(found, rows) + _tables(work, found.paths, rows):
        screen.line()
        screen.table(table)
        if table.name == "kernels" and rows < len(work.kernels):
            rest = sum(one.total for one in work.kernels[rows:])
            screen.line(f"not above: {len(work.kernels) - rows:,} more, {quantities.amount(rest, 'ns')}", "dim", 2)
    screen.line()
    for warning in summary.warnings:
        screen.line(f"! {warning}", "yellow", 2, 2)
    for note in summary.notes:
        screen.line(note, "dim", 2, 2)


def _profile(found: TraceSummary, rows: int) -> list[Table]:
    return profile_tables(found.profile, rows) if found.profile is not None else []


def _tables(work: DeviceWork, paths: Sequence[CriticalPath], rows: int) -> list[Table]:
    found = []
    if work.devices:
        found += [devices_table(work.devices), streams_table(work.devices)]
    if work.kernels and rows:
        found.append(kernels_table(work, work.kernels[:rows]))
    if paths:
        found.append(path_table(paths))
    if work.counters:
        found.append(counters_table(work))
    return found


def trace_section(found: TraceSummary, index: int, alone: bool) -> Section:
    """The same for a page."""
    summary, place, level = found.summary, f"run{index}", "h1" if alone else "h2"
    sentences = "".join(f'<p class="first">{markup(one.sentence)}</p>{evidence(one)}' for one in summary.verdicts)
    sentences += remedies(summary.verdicts)
    warnings = "".join(f'<p class="warning">{markup(one)}</p>' for one in summary.warnings)
    notes = "".join(f'<p class="soft small">{markup(note)}</p>' for note in summary.notes)
    status = "" if summary.status == "complete" else f" · {summary.status}"
    pieces = [
        f"<{level}>{markup(summary.title)}</{level}>",
        f'<p class="soft">{markup(summary.subtitle + status)} · run {markup(summary.run)}</p>',
        f'<div class="panel verdict">{sentences}{warnings}{notes}</div>',
    ]
    drawn: list[Figure] = []
    if found.job is not None:
        pieces += _job_panels(found.job, place, drawn)
    for table in _profile(found, MOST_ON_PAGE) + _tables(found.work, found.paths, 0):
        pieces.append(panel(table.name[:1].upper() + table.name[1:], table_html(table, "sortable")))
    if found.work.kernels:
        shown = found.work.kernels[:MOST_ON_PAGE]
        more = len(found.work.kernels) - len(shown)
        left = f'<p class="soft small">{more:,} more are in sonda show --json</p>' if more > 0 else ""
        pieces.append(panel("Kernels", table_html(kernels_table(found.work, shown), "sortable") + left))
    return Section(f"{summary.title} ({summary.run})", place, "\n".join(pieces), tuple(drawn))


def _job_panels(job: Job, place: str, drawn: list[Figure]) -> list[str]:
    said = "".join(f"<li>{markup(line)}</li>" for line in job_lines(job))
    listed = f'<ul class="plain soft small">{said}</ul>'
    groups = []
    if several(job):
        table = table_html(groups_table(job, MOST_ON_PAGE), "sortable")
        spoken = "".join(f"<li>{markup(line)}</li>" for line in group_lines(job))
        groups = [panel("Groups of ranks", f'{table}<ul class="plain soft small">{spoken}</ul>')]
    return [
        panel("Ranks", table_html(job_table(job, len(job.ranks)), "sortable") + listed),
        *groups,
        panel(
            "Ranks and steps",
            place_figure(job_figure(job), f"{place}ranks", drawn, "no step is common to all ranks", steps_table(job)),
            "What a step takes each rank without waiting in collectives for others.",
        ),
    ]  # fmt: skip


def trace_document(found: TraceSummary) -> Document:
    """Everything as plain JSON values, times in ns."""
    summary = found.summary
    return {
        "schema": SCHEMA, "kind": "imported", "run": summary.run, "title": summary.title,
        "subtitle": summary.subtitle, "status": summary.status,
        "workload": plain_data(summary.workload), "machine": plain_data(summary.machine),
        "verdicts": [verdict_document(one) for one in summary.verdicts],
        **device_work_document(found.work),
        "steps_ns": {str(rank): list(durations) for rank, durations in found.work.steps.items()},
        "counts": {name: value_document(value) for name, value in found.work.counters},
        "critical_paths": [
            {"rank": path.rank, "total_ns": path.total, **{f"{name}_ns": getattr(path, name) for name in PATH_PARTS},
             "activities_ns": path.names}
            for path in found.paths
        ],
        "warnings": list(summary.warnings), "notes": list(summary.notes),
        **({"profile": profile_document(found.profile)} if found.profile is not None else {}),
        **({"job": job_document(found.job)} if found.job is not None else {}),
    }  # fmt: skip
