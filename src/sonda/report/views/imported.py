"""Imported runs: on a screen, on a page and as a document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sonda.analysis.device.critical_path import CriticalPath
from sonda.analysis.ranks.stragglers import Job
from sonda.analysis.ranks.verdict import several
from sonda.analysis.summary import Value
from sonda.analysis.traces.operations import OperationTotals
from sonda.analysis.traces.profile import ProfileSummary, StepTimes
from sonda.analysis.traces.step_breakdown import PARTS
from sonda.analysis.traces.summary import DeviceWork, TraceSummary
from sonda.report import quantities
from sonda.report.figures import Figure
from sonda.report.labels import markup
from sonda.report.markup import panel, place_figure, table_html
from sonda.report.screen import Screen
from sonda.report.table import Cell, Column, Table, build, numbers, shares, words
from sonda.report.values import SCHEMA, Document, plain_data, value_document
from sonda.report.views.device.kernels import (
    PATH_PARTS,
    counters_table,
    device_work_document,
    devices_table,
    kernel_name,
    kernels_table,
    path_table,
    streams_table,
)  # fmt: skip
from sonda.report.views.imported_ranks import (
    group_lines,
    groups_table,
    job_document,
    job_figure,
    job_lines,
    job_table,
    rank_steps_table,
)
from sonda.report.views.steps.document import verdict_document
from sonda.report.views.steps.screen import show_verdicts
from sonda.report.views.steps.section import Section
from sonda.report.views.steps.verdict import evidence, remedies

# ---- Tables of an imported profile: steps, what they are spent on, operations and where they ran --------------------

HINTS = {
    "compute": "a device computes", "communication": "a device communicates, and none computes",
    "transfer": "data are moved to or from a device, and nothing is computed there",
    "compile": "a function is traced or compiled", "operations": "the host executes an operation of the model",
    "input": "the next batch is waited for", "launch": "work is being launched on a device",
    "host": "the framework is at work, and nothing that it called", "idle": "nothing was recorded",
}  # fmt: skip
MEANINGS = {"compute": "device compute", "operations": "operations on the host", "launch": "kernel launch",
            "host": "the framework itself"}  # fmt: skip
LONGEST = 60
"""Characters of an operation's path on a screen."""


def profile_tables(found: ProfileSummary, rows: int) -> list[Table]:
    """Everything there is to show; up to `rows` operations."""
    tables = [steps_table(found.steps), breakdown_table(found.steps[0])] if found.steps else []
    if found.operations and rows:
        tables.append(operations_table(found, found.operations[:rows]))
    return [*tables, placement_table(found)] if found.operations else tables


def steps_table(steps: tuple[StepTimes, ...]) -> Table:
    """How long steps took, by rank and name."""
    ranks = len({one.rank for one in steps}) > 1
    named = [f"rank {one.rank} {one.name}" if ranks else one.name for one in steps]
    columns: list[tuple[Column, list[Cell]]] = [
        (Column("steps of", right=False), words(named)),
        (Column("count"), numbers([Value(len(one.durations), "1", "counted") for one in steps])[1]),
    ]
    shown: dict[str, list[float]] = {
        "median": [one.median for one in steps],
        "shortest": [float(min(one.durations)) for one in steps],
        "longest": [float(max(one.durations)) for one in steps],
    }
    for name, times in shown.items():
        columns.append((Column(name), numbers([Value(time, "ns", "measured") for time in times], suffix=True)[1]))
    if any(one.device for one in steps):
        of_device = [Value(one.on_device, "ns", "measured") for one in steps]
        hint = "median, from the first activity launched in a step to the end of the last"
        columns.append((Column("on the device", hint=hint), numbers(of_device, suffix=True)[1]))
    return build(columns, "steps")


def breakdown_table(steps: StepTimes) -> Table:
    """What the steps of one name are spent on; the times of all rows add up to the mean step."""
    count = len(steps.durations)
    means = [_mean(steps.parts[part], count) for part in PARTS]
    share = [Value(None if one.value is None else steps.share(part), "1", one.source, reason=one.reason)
             for part, one in zip(PARTS, means, strict=True)]  # fmt: skip
    labels = [Cell(MEANINGS.get(part, part), part, HINTS[part]) for part in PARTS]
    cells = [shares([one.value], "the steps")[0] if one.value is not None
             else Cell("–", None, one.reason, one.reason, "quiet") for one in share]  # fmt: skip
    return build(
        [
            (Column(f"a step of {steps.name}", right=False), labels),
            (Column("mean"), numbers(means, suffix=True)[1]),
            (Column("share %"), cells),
        ],
        "breakdown",
    )


def operations_table(found: ProfileSummary, operations: tuple[OperationTotals, ...]) -> Table:
    """Operations, those with the longest time of their own first."""
    whole = sum(one.own for one in found.operations)
    placed = any(one.path for one in found.operations)
    where = [(Column("in", right=False, path=True, keep=6), [_path(one.path) for one in operations])] if placed else []
    return build(
        [
            (Column("operation", right=False), [kernel_name(one.name) for one in operations]),
            *where,
            (Column("on", right=False, keep=7), words([one.place for one in operations])),
            (Column("calls", keep=5), numbers([Value(one.calls, "1", "counted") for one in operations])[1]),
            (Column("own time", hint="without the operations inside"),
             numbers([Value(float(one.own), "ns", "measured") for one in operations], suffix=True)[1]),
            (Column("share %", keep=8), shares([one.own / whole if whole else 0.0 for one in operations],
                                               "all operations")),
        ],
        "operations",
    )  # fmt: skip


def placement_table(found: ProfileSummary) -> Table:
    """How much ran on the host and how much on devices."""
    places = found.placement
    whole = sum(own for _, _, own in places.values())
    return build(
        [
            (Column("operations on", right=False), words(list(places))),
            (Column("different"), numbers([Value(kinds, "1", "counted") for kinds, _, _ in places.values()])[1]),
            (Column("calls"), numbers([Value(calls, "1", "counted") for _, calls, _ in places.values()])[1]),
            (Column("own time"), numbers([Value(float(own), "ns", "measured") for _, _, own in places.values()],
                                         suffix=True)[1]),
            (Column("share %"), shares([own / whole if whole else 0.0 for _, _, own in places.values()],
                                       "all operations")),
        ],
        "placement",
    )  # fmt: skip


def profile_document(found: ProfileSummary) -> dict[str, Any]:
    """Everything as plain JSON values, times in ns."""
    return {
        "steps_are": found.how,
        "steps": [
            {"rank": one.rank, "name": one.name, "durations_ns": list(one.durations), "device_ns": list(one.device),
             "parts": {part: value_document(value) for part, value in one.parts.items()}}
            for one in found.steps
        ],
        "operations": [
            {"name": one.name, "path": one.path, "on": one.place, "calls": one.calls, "total_ns": one.total,
             "own_ns": one.own}
            for one in found.operations
        ],
        "placement": {place: {"operations": kinds, "calls": calls, "own_ns": own}
                      for place, (kinds, calls, own) in found.placement.items()},
        "traced": {name: {"calls": calls, "traced": traced} for name, (calls, traced) in found.traced.items()},
    }  # fmt: skip


def _mean(value: Value, count: int) -> Value:
    mean = None if value.value is None else value.value / count
    return Value(mean, value.unit, value.source, reason=value.reason)


def _path(path: str) -> Cell:
    return Cell(path if len(path) <= LONGEST else f"…{path[1 - LONGEST :]}", path, path)


# ----------------------------------------------------------------------------------------------------------------------

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
            place_figure(job_figure(job), f"{place}ranks", drawn, "no step is common to all ranks",
                         rank_steps_table(job)),
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
