"""Imported runs: on a screen, on a page and as a document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sonda.analysis import wording
from sonda.analysis.device.critical_path import CriticalPath
from sonda.analysis.ranks.stragglers import ImportedJob
from sonda.analysis.ranks.verdict import several
from sonda.analysis.summary import Summary, Value
from sonda.analysis.traces.operations import OperationTotals
from sonda.analysis.traces.profile import ProfileSummary, StepTimes
from sonda.analysis.traces.step_breakdown import PARTS
from sonda.analysis.traces.summary import DeviceWork, TraceSummary
from sonda.record.run import RunInfo
from sonda.record.stored import plain
from sonda.report import quantities
from sonda.report.blocks import (
    FEW_ROWS,
    ROWS,
    Bar,
    Bars,
    Block,
    FigureBlock,
    Gap,
    Heading,
    Items,
    Panel,
    Paragraph,
    StackedBar,
    TableBlock,
    VerdictBlock,
    View,
    paragraphs,
    stack_parts,
)
from sonda.report.provenance import lacking_blocks, summary_words
from sonda.report.table import Cell, Column, Table, build, numbers, shares, words
from sonda.report.values import Document, value_document
from sonda.report.views.device.kernels import (
    OF_ACTIVITIES,
    PATH_PARTS,
    counters_table,
    device_work_fields,
    devices_table,
    kernel_bars,
    kernel_name,
    kernels_table,
    path_table,
    streams_table,
)  # fmt: skip
from sonda.report.views.imported_ranks import (
    group_lines,
    groups_table,
    job_fields,
    job_figure,
    job_lines,
    job_table,
    rank_steps_table,
)
from sonda.report.views.steps.document import verdicts_fields
from sonda.report.views.steps.glance import doubt_line, found_blocks, headline
from sonda.report.views.steps.screen import verdict_blocks
from sonda.report.views.steps.verdict import advice, evidence
from sonda.report.words import in_words, verdict_sentences

# ---- Tables of an imported profile: steps, what they are spent on, operations and where they ran --------------------

HINTS = {
    "compute": "a device computes",
    "communication": "ranks or devices exchange data or wait for it, and nothing computes",
    "transfer": "data are moved to or from a device, and nothing is computed there",
    "compile": "a function is traced or compiled", "operations": "the host executes an operation of the model",
    "input": "the next batch is waited for", "launch": "work is being launched on a device",
    "host": "the framework is at work, and nothing that it called", "idle": "nothing was recorded",
}  # fmt: skip
MEANINGS = {"compute": "device compute", "operations": "operations on the host", "launch": "kernel launch",
            "host": "the framework itself"}  # fmt: skip
LONGEST = 60
"""Characters of an operation's path on a screen."""


def profile_tables(profile: ProfileSummary, rows: int) -> list[Table]:
    """Everything there is to show; up to `rows` operations."""
    tables = (
        [steps_table(profile.steps), breakdown_table(profile.steps[0], _has_several_ranks(profile.steps))]
        if profile.steps
        else []
    )
    if profile.operations and rows:
        tables.append(operations_table(profile, profile.operations[:rows]))
    return [*tables, placement_table(profile)] if profile.operations else tables


def _has_several_ranks(steps: tuple[StepTimes, ...]) -> bool:
    return len({times.rank for times in steps}) > 1


def steps_table(steps: tuple[StepTimes, ...]) -> Table:
    """How long steps took, by rank and name."""
    ranks = _has_several_ranks(steps)
    named = [f"rank {times.rank} {times.name}" if ranks else times.name for times in steps]
    columns: list[tuple[Column, list[Cell]]] = [
        (Column("steps of", right=False), words(named)),
        (Column("count"), numbers([Value(len(times.durations), "1", "counted") for times in steps])[1]),
    ]
    shown: dict[str, list[float]] = {
        "median": [times.median for times in steps],
        "shortest": [float(min(times.durations)) for times in steps],
        "longest": [float(max(times.durations)) for times in steps],
    }
    for name, durations in shown.items():
        columns.append((Column(name), numbers([Value(time, "ns", "measured") for time in durations], suffix=True)[1]))
    if any(times.device for times in steps):
        of_device = [Value(times.on_device, "ns", "measured") for times in steps]
        hint = "median, from the first activity launched in a step to the end of the last"
        columns.append((Column("on the device", hint=hint), numbers(of_device, suffix=True)[1]))
    return build(columns, "steps")


def breakdown_table(steps: StepTimes, ranked: bool) -> Table:
    """What the steps of one name are spent on; the times of all rows add up to the mean step. `ranked`: the rank is
    named."""
    count = len(steps.durations)
    name = f"rank {steps.rank} {steps.name}" if ranked else steps.name
    means = [_mean(steps.parts[part], count) for part in PARTS]
    part_shares = [Value(None if mean.value is None else steps.share(part), "1", mean.source, reason=mean.reason)
             for part, mean in zip(PARTS, means, strict=True)]  # fmt: skip
    labels = [Cell(MEANINGS.get(part, part), part, HINTS[part]) for part in PARTS]
    cells = [
        shares([share.value], "the steps")[0]
        if share.value is not None
        else Cell(quantities.MISSING, None, share.reason, share.reason, "quiet")
        for share in part_shares
    ]
    return build(
        [
            (Column(f"a step of {name}", right=False), labels),
            (Column("mean"), numbers(means, suffix=True)[1]),
            (Column("share %"), cells),
        ],
        "breakdown",
    )


def operations_table(profile: ProfileSummary, operations: tuple[OperationTotals, ...]) -> Table:
    """Operations, those with the longest time of their own first."""
    whole = sum(operation.own for operation in profile.operations)
    placed = any(operation.path for operation in profile.operations)
    where = (
        [(Column("in", right=False, path=True, keep=6), [_path(operation.path) for operation in operations])]
        if placed
        else []
    )
    return build(
        [
            (Column("operation", right=False), [kernel_name(operation.name) for operation in operations]),
            *where,
            (Column("on", right=False, keep=7), words([operation.place for operation in operations])),
            (Column("calls", keep=5), numbers([Value(operation.calls, "1", "counted") for operation in operations])[1]),
            (Column("own time", hint="without the operations inside"),
             numbers([Value(float(operation.own), "ns", "measured") for operation in operations], suffix=True)[1]),
            (Column("share %", keep=8), shares([operation.own / whole if whole else 0.0 for operation in operations],
                                               "all operations")),
        ],
        "operations",
    )  # fmt: skip


def placement_table(profile: ProfileSummary) -> Table:
    """How much ran on the host and how much on devices."""
    places = profile.placement
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


def profile_fields(profile: ProfileSummary) -> dict[str, Any]:
    """Everything as plain JSON values, times in ns."""
    return {
        "steps_are": profile.how,
        "steps": [
            {"rank": times.rank, "name": times.name, "durations_ns": list(times.durations),
             "device_ns": list(times.device),
             "parts": {part: value_document(value) for part, value in times.parts.items()}}
            for times in profile.steps
        ],
        "operations": [
            {"name": operation.name, "path": operation.path, "on": operation.place, "calls": operation.calls,
             "total_ns": operation.total, "own_ns": operation.own}
            for operation in profile.operations
        ],
        "placement": {place: {"operations": kinds, "calls": calls, "own_ns": own}
                      for place, (kinds, calls, own) in profile.placement.items()},
        "traced": {name: {"calls": calls, "traced": traced} for name, (calls, traced) in profile.traced.items()},
    }  # fmt: skip


def _mean(value: Value, count: int) -> Value:
    mean = None if value.value is None else value.value / count
    return Value(mean, value.unit, value.source, reason=value.reason)


def _path(path: str) -> Cell:
    return Cell(path if len(path) <= LONGEST else f"…{path[1 - LONGEST :]}", path, path)


# ----------------------------------------------------------------------------------------------------------------------

MOST_ON_PAGE = 500


def trace_blocks(found: TraceSummary, rows: int) -> list[Block]:
    """Verdicts, ranks, steps, devices and so many kernels, and what a reader must know."""
    summary, work = found.summary, found.work
    blocks: list[Block] = [*verdict_blocks(summary)]
    if found.job is not None and rows:
        blocks += [Gap(), TableBlock(job_table(found.job, rows))]
        if rows < len(found.job.ranks):
            blocks.append(Paragraph(f"not above: {len(found.job.ranks) - rows:,} more ranks", "quiet", hang=0))
        blocks += paragraphs(job_lines(found.job))
        if several(found.job):
            blocks += [Gap(), TableBlock(groups_table(found.job, rows)), *paragraphs(group_lines(found.job), "")]
    for table in _profile(found, rows) + _tables(work, found.paths, rows):
        blocks += [Gap(), TableBlock(table)]
        if table.name == "kernels" and rows < len(work.kernels):
            rest = sum(kernel.total for kernel in work.kernels[rows:])
            blocks.append(
                Paragraph(
                    f"not above: {len(work.kernels) - rows:,} more, {quantities.amount(rest, 'ns')}", "quiet", hang=0
                )
            )
    blocks += [Gap(), *paragraphs(in_words(summary.warnings), "warning"), *paragraphs(in_words(summary.notes))]
    return blocks


def trace_glance(found: TraceSummary, rows: int) -> list[Block]:
    """What limits, what a step or a device's time is made of, and the ranks, kernels or operations that take most."""
    summary = found.summary
    blocks: list[Block] = [headline(summary), Gap(), *found_blocks(summary), Gap()]
    return [*blocks, *_time_bar(found), *_longest(found, rows), *doubt_line(summary)]


def _time_bar(found: TraceSummary) -> list[Block]:
    """A step by what it is spent on, or else the first device's time."""
    if found.profile is not None and found.profile.steps:
        steps = found.profile.steps[0]
        mean = quantities.amount(steps.total / len(steps.durations), "ns")
        parts = [(MEANINGS.get(part, part), steps.share(part)) for part in PARTS]
        name = f"rank {steps.rank} {steps.name}" if _has_several_ranks(found.profile.steps) else steps.name
        return [stack_parts(f"{name}, {mean}", parts)]
    if found.work.devices and found.work.devices[0].window:
        device = found.work.devices[0]
        window = quantities.amount(device.window, "ns")
        times = {"computes": device.compute, "exchanges or copies": device.non_compute, "idle": device.idle}
        parts = [(name, time / device.window) for name, time in times.items()]
        return [stack_parts(f"{device.device}, {window}", parts)]
    return []


def _longest(found: TraceSummary, rows: int) -> list[Block]:
    head = ""
    if found.job is not None:
        ranks = sorted(found.job.ranks, key=lambda rank: (rank.wait, -rank.compute, rank.rank))[:rows]
        most = max((rank.compute for rank in ranks), default=0.0) or 1.0
        bars = [
            Bar(f"rank {rank.rank}", rank.compute / most, f"computes {quantities.amount(rank.compute, 'ns')}",
                note=f"waits {quantities.amount(rank.wait, 'ns')} of {quantities.amount(rank.step, 'ns')}")
            for rank in ranks
        ]  # fmt: skip
    elif found.work.kernels:
        bars, head = kernel_bars(found.work, rows), OF_ACTIVITIES
    elif found.profile is not None and found.profile.operations:
        head = "operations, % of the time of all of them"
        total = sum(operation.own for operation in found.profile.operations) or 1
        bars = [
            Bar(operation.name, operation.own / total, quantities.amount(operation.own, "ns"),
                note=f"{wording.percent(operation.own / total)}, {wording.plural(operation.calls, 'call')}")
            for operation in found.profile.operations[:rows]
        ]  # fmt: skip
    else:
        counts = [f"{name.replace('_', ' ')} {quantities.amount(value.value, value.unit)}"
                  for name, value in found.work.counters[:rows]]  # fmt: skip
        return [Items(counts)] if counts else []
    return [Bars(bars, paths=False, head=head)]


def _profile(trace: TraceSummary, rows: int) -> list[Table]:
    return profile_tables(trace.profile, rows) if trace.profile is not None else []


def _tables(work: DeviceWork, paths: Sequence[CriticalPath], rows: int) -> list[Table]:
    tables = []
    if work.devices:
        tables += [devices_table(work.devices), streams_table(work.devices)]
    if work.kernels and rows:
        tables.append(kernels_table(work, work.kernels[:rows]))
    if paths:
        tables.append(path_table(paths))
    if work.counters:
        tables.append(counters_table(work))
    return tables


def _job_panels(job: ImportedJob) -> list[Block]:
    picture = FigureBlock(job_figure(job), "ranks", rank_steps_table(job))
    caption = "What a step takes each rank without waiting in collectives for others."
    blocks: list[Block] = [Panel("Ranks and steps", [picture], caption)] if len(job.steps) else []
    blocks.append(Panel("Ranks", [TableBlock(job_table(job, len(job.ranks))), Items(job_lines(job))]))
    if several(job):
        groups = TableBlock(groups_table(job, MOST_ON_PAGE))
        blocks.append(Panel("Groups of ranks", [groups, Items(group_lines(job))]))
    return blocks


class TraceView(View):
    """An imported trace: devices, kernels, ranks."""

    kind = "imported"

    def __init__(self, found: TraceSummary, info: RunInfo | None = None) -> None:
        self.found, self.info = found, info
        self.run, self.title = found.summary.run, found.summary.title

    def glance(self, rows: int = FEW_ROWS) -> list[Block]:
        return trace_glance(self.found, rows)

    def tables(self, rows: int = ROWS) -> list[Block]:
        return trace_blocks(self.found, rows)

    def full(self) -> list[Block]:
        found, summary = self.found, self.found.summary
        status = "" if summary.status == "complete" else f" · {summary.status}"
        told: list[Block] = []
        for verdict, sentence in zip(summary.verdicts, verdict_sentences(summary), strict=True):
            told += [Paragraph(sentence, "first"), evidence(verdict)]
        blocks: list[Block] = [
            Heading(summary.title, f"{summary.subtitle}{status} · run {summary.run}"),
            VerdictBlock([
                *told, advice(summary.verdicts), *paragraphs(in_words(summary.warnings), "warning"),
                *paragraphs(in_words(summary.notes)),
            ]),
        ]  # fmt: skip
        times = [*_time_bar(found), *_longest(found, FEW_ROWS)]
        if any(isinstance(block, StackedBar | Bars) for block in times):
            blocks.append(Panel("Where the time goes", times, opened=True))
        if found.job is not None:
            blocks += _job_panels(found.job)
        for table in _profile(found, MOST_ON_PAGE) + _tables(found.work, found.paths, 0):
            blocks.append(Panel(table.name[:1].upper() + table.name[1:], [TableBlock(table)]))
        if found.work.kernels:
            shown = found.work.kernels[:MOST_ON_PAGE]
            more = len(found.work.kernels) - len(shown)
            left = [f"{more:,} more are in sonda show --json"] if more > 0 else []
            blocks.append(Panel("Kernels", [TableBlock(kernels_table(found.work, shown)), *paragraphs(left)]))
        return [*blocks, *lacking_blocks(self._known(), self.info)]

    def words(self, text: str) -> tuple[tuple[str, str], ...]:
        return summary_words(self._known())

    def _known(self) -> Summary:
        """Without steps: what is not known of these is not missing."""
        return replace(self.found.summary, parts=(), device_work=self.found.work)

    def fields(self) -> Document:
        found = self.found
        summary = found.summary
        return {
            "subtitle": summary.subtitle,
            "status": summary.status,
            "workload": summary.workload.plain(),
            "machine": plain(summary.machine),
            "verdicts": verdicts_fields(summary),
            **device_work_fields(found.work),
            "steps_ns": {str(rank): list(durations) for rank, durations in found.work.steps.items()},
            "counts": {name: value_document(value) for name, value in found.work.counters},
            "critical_paths": [
                {
                    "rank": path.rank,
                    "total_ns": path.total,
                    **{f"{name}_ns": getattr(path, name) for name in PATH_PARTS},
                    "activities_ns": path.names,
                }
                for path in found.paths
            ],
            "warnings": in_words(summary.warnings),
            "notes": in_words(summary.notes),
            **({"profile": profile_fields(found.profile)} if found.profile is not None else {}),
            **({"job": job_fields(found.job)} if found.job is not None else {}),
        }
