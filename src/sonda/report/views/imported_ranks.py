"""The ranks of a job that was imported: a table, a heat map of ranks and steps, and JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sonda.analysis.ranks.stragglers import GroupTime, ImportedJob, RankTime
from sonda.analysis.summary import Value
from sonda.analysis.traces.step_breakdown import PARTS
from sonda.report import quantities
from sonda.report.charts.chart import Axis, Chart, ColorScale, heat_map
from sonda.report.palette import HEAT
from sonda.report.table import LAST, Cell, Column, Table, build, numbers, shares, words
from sonda.report.words import describe
from sonda.report.words.ranks import group_words, matching_words

# ---- Groups of ranks of a job that was imported: how far apart their ranks come, and for whom they wait -------------

MOST_RANKS = 8
"""Ranks of a group that are named."""
MOST_SENTENCES = 4
NOBODY = "nobody comes last as far as clocks can tell"


def _slowest_first(job: ImportedJob) -> list[GroupTime]:
    return sorted(job.groups, key=lambda group: (-group.held, -group.skew, group.name, group.ranks))


def groups_table(job: ImportedJob, rows: int) -> Table:
    """A row for each group, that in which one rank keeps the others longest first; at most `rows`."""
    shown = _slowest_first(job)[:rows]
    hints = [group_words(group, job.step) for group in shown]
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (Column("group", right=False), [Cell(_name(group), None, hint)
                                        for group, hint in zip(shown, hints, strict=True)]),
        (Column("ranks", right=False, keep=8), words([_ranks(group) for group in shown])),
        (Column("collectives", keep=7), [Cell(f"{group.collectives:,}", float(group.collectives)) for group in shown]),
    ]  # fmt: skip
    for name, hint, values, keep in (
        ("skew", "from the first arrival to the last, mean over collectives", [group.skew for group in shown], 8),
        ("largest skew", "of one collective", [group.worst for group in shown], 4),
        ("waits", "a step: mean over its ranks, until the last has come", [group.wait for group in shown], 6),
    ):
        columns.append((Column(name, hint=hint, keep=keep), _cells(values)))
    columns.append((Column("last", hint="the rank that keeps the others waiting longest", keep=9),
                    [_last(group) for group in shown]))  # fmt: skip
    column = Column("keeps others waiting", hint="a step: from the last arrival but one to its own", keep=LAST)
    columns.append((column, _cells([group.held for group in shown])))
    return build(columns, "groups of ranks")


def group_lines(job: ImportedJob) -> list[str]:
    """A sentence for each of the groups that wait longest."""
    shown = _slowest_first(job)[:MOST_SENTENCES]
    sentences = [f"{_name(group)} of ranks {_ranks(group)}: {group_words(group, job.step)}" for group in shown]
    more = len(job.groups) - len(shown)
    return sentences + ([f"{more:,} more groups: sonda show --json"] if more else [])


def groups_fields(job: ImportedJob) -> list[dict[str, Any]]:
    """Everything as plain JSON values, times in ns."""
    return [
        {
            "name": group.name, "description": group.description, "ranks": list(group.ranks), "missing": group.missing,
            "collectives": group.collectives, "together": group.together,
            "matched_by": "number" if group.numbered else "order", "skew_ns": group.skew,
            "largest_skew_ns": group.worst, "wait_ns": group.wait,
            "latest": group.latest if group.latest >= 0 else None, "last": group.last,
            "held_ns": group.held, "sentence": group_words(group, job.step),
        }
        for group in job.groups
    ]  # fmt: skip


def _name(group: GroupTime) -> str:
    if not group.name:
        return "not said"
    return (
        f"{group.description} ({group.name})" if group.description and group.description != group.name else group.name
    )


def _ranks(group: GroupTime) -> str:
    named = ", ".join(str(rank) for rank in group.ranks[:MOST_RANKS])
    more = len(group.ranks) - MOST_RANKS
    return f"{named}, … ({len(group.ranks):,})" if more > 0 else named


def _last(group: GroupTime) -> Cell:
    if group.latest < 0:
        return Cell(quantities.MISSING, None, NOBODY)
    return Cell(f"rank {group.latest}, {group.last:,} times", float(group.latest))


def _cells(values: Sequence[float]) -> list[Cell]:
    return list(numbers([Value(float(value), "ns", "derived") for value in values], suffix=True)[1])


# ----------------------------------------------------------------------------------------------------------------------

MOST_COLUMNS, MOST_RANKS_DRAWN = 60, 40
"""Columns and rows of the heat map; of more, means of neighbours."""
FEW_COLUMNS = 40
"""Up to so many have their numbers."""
MOST_STEPS = 400
"""Steps of a rank that the table behind the heat map lists; of more, means of neighbours."""
ROW = 22
"""px of height of a row."""
MOST_ROWS = 20_000
"""Rows of the table behind the heat map."""
HINTS = {
    "own": "without waiting in collectives for others", "step": "from its begin to its end",
    "waits": "in collectives, until the last rank has come", "computes": "the device, or without one the host",
}  # fmt: skip


def job_table(job: ImportedJob, rows: int) -> Table:
    """A row for each rank, those that the others wait for first; at most `rows`."""
    shown = sorted(job.ranks, key=lambda rank: (rank.wait, -rank.compute, rank.rank))[:rows]
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (Column("rank"), [Cell(str(rank.rank), float(rank.rank)) for rank in shown]),
    ]
    if len({rank.host for rank in job.ranks}) > 1:
        columns.append((Column("machine", right=False, keep=3), words([rank.host for rank in shown])))
    for name, hint, values, keep in (
        ("step", "mean over the steps that all ranks have", [rank.step for rank in shown], 9),
        ("compute", "a step: the device computes, or without one operations of the host do",
         [rank.compute for rank in shown], 8),
        ("communication", "a step: exchanging or waiting while nothing computes", [rank.exposed for rank in shown], 7),
        ("input", "a step: waiting for the next batch", [rank.parts["input"] for rank in shown], 4),
        ("waits for others", "a step: in collectives, until the last has come", [rank.wait for rank in shown], 8),
        ("transfers", "a step: in collectives, after the last has come", [rank.transfer for rank in shown], 6),
        ("idle", "a step: nothing was recorded", [rank.parts["idle"] for rank in shown], 5),
        ("keeps others waiting", "a step: from the last arrival but one to its own", [rank.held for rank in shown], 9),
    ):  # fmt: skip
        if name == "input" and not any(rank.parts["input"] for rank in job.ranks):
            continue
        if name in ("waits for others", "transfers", "keeps others waiting") and not job.collectives:
            continue
        columns.append((Column(name, hint=hint, keep=keep), numbers(_times(values), suffix=True)[1]))
    if job.collectives:
        share = [rank.last / rank.collectives if rank.collectives else 0.0 for rank in shown]
        columns.append((Column("last %", hint="of its collectives", keep=7), shares(share, "collectives")))
    return build(columns, "ranks")


def job_figure(job: ImportedJob) -> Chart:
    """Ranks below each other, steps to the right; the colour is what a step takes a rank without waiting for others."""
    own, names = job.own / 1e6, [f"{name} {number}".strip() for name, number in job.steps]
    words = {name for name, _ in job.steps}
    # Where all steps have one name, the axis has it, and there is room for the numbers.
    alike = next(iter(words)) if len(words) == 1 and len({number for _, number in job.steps}) == len(names) else ""
    below = [str(number) for _, number in job.steps] if alike else names
    together = max(1, math.ceil(len(names) / MOST_COLUMNS))
    columns = list(range(0, len(names), together))
    ranks = max(1, math.ceil(len(job.ranks) / MOST_RANKS_DRAWN))
    rows = list(range(0, len(job.ranks), ranks))
    values = [[float(own[row : row + ranks, at : at + together].mean()) for at in columns] for row in rows]
    more = f" and {together - 1} more" if together > 1 else ""
    hints = [
        [_hint(job, row, at, names[at]) if together == ranks == 1
         else f"{_rank_name(job, row, ranks)}, {names[at]}{more}: {quantities.number(value)} ms, derived"
         for at, value in zip(columns, line, strict=True)]
        for row, line in zip(rows, values, strict=True)
    ]  # fmt: skip
    known = [value for line in values for value in line if math.isfinite(value)]
    scale = ColorScale("ms", HEAT, min(known, default=0.0), max(known, default=1.0))
    means = f" (means of {together} neighbours)" if together > 1 else ""
    shown = heat_map([_rank_name(job, row, ranks) for row in rows], [below[at] for at in columns], values, scale, hints,
                     row=ROW)  # fmt: skip
    # Numbers of very many columns would cover each other.
    title = (alike or "step") + means
    if len(columns) > FEW_COLUMNS:
        return replace(shown, x=Axis(title, ends=(-0.5, len(columns) - 0.5), ticks=tuple(
            (float(at), below[columns[at]]) for at in range(0, len(columns), math.ceil(len(columns) / 10))
        )))  # fmt: skip
    return replace(shown, x=replace(shown.x, title=title))


def _rank_name(job: ImportedJob, row: int, ranks: int) -> str:
    """`rank 4`; where neighbours stand in one row `ranks 4 to 7`."""
    last = min(row + ranks, len(job.ranks)) - 1
    first = job.ranks[row].rank
    return f"rank {first}" if last == row else f"ranks {first} to {job.ranks[last].rank}"


def rank_steps_table(job: ImportedJob) -> Table:
    """The table behind the heat map: a row for each rank and step; of many, means over neighbouring steps."""
    names = [f"{name} {number}".strip() for name, number in job.steps]
    together = max(1, math.ceil(len(names) / MOST_STEPS), math.ceil(len(names) * len(job.ranks) / MOST_ROWS))
    spans = [(at, min(at + together, len(names))) for at in range(0, len(names), together)]
    places = [(row, *span) for row in range(len(job.ranks)) for span in spans]
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (Column("rank"), [Cell(str(job.ranks[row].rank), float(job.ranks[row].rank)) for row, _, _ in places]),
        (Column("step", right=False), [
            Cell(names[first] if last - first == 1 else f"{names[first]} to {names[last - 1]}", float(first))
            for _, first, last in places
        ]),
    ]  # fmt: skip
    for name, times in (("own", job.own), ("step", job.durations), ("waits", job.wait), ("computes", job.compute)):
        unit, cells = numbers(_times([float(times[row, first:last].mean()) for row, first, last in places]))
        columns.append((Column(f"{name} {unit}", hint=HINTS[name]), cells))
    return build(columns, "ranks and steps")


def _hint(job: ImportedJob, row: int, at: int, name: str) -> str:
    own, whole, wait, compute = (
        f"{quantities.rounded(times[row, at] / 1e6, 3)} ms" for times in (job.own, job.durations, job.wait, job.compute)
    )
    parts = f"{own} without waiting for others, {compute} of it computing"
    parts += f"; the whole step {whole}, waiting {wait} (all derived)"
    return f"rank {job.ranks[row].rank}, {name}: {parts}"


def job_lines(job: ImportedJob) -> list[str]:
    """What stands below the table."""
    load = (
        ""
        if math.isnan(job.imbalance)
        else f"; the busiest rank computes {quantities.ratio(job.imbalance)} times the mean"
    )
    way = f", {matching_words(job)}" if job.collectives else ""
    lines = [f"{len(job.steps):,} steps that all ranks have, {job.collectives:,} collectives{way}{load}"]
    return lines + list(map(describe, job.notes))


def job_fields(job: ImportedJob) -> dict[str, Any]:
    """Everything as plain JSON values, times in ns."""
    return {
        "steps": [f"{name} {number}".strip() for name, number in job.steps],
        "collectives": job.collectives,
        "together": job.together,
        "groups": groups_fields(job),
        "imbalance": None if math.isnan(job.imbalance) else job.imbalance,
        "clocks": {"count": job.clocks, "doubt_ns": job.doubt},
        "late": {
            "ranks": [rank.rank for rank in job.late],
            "last": job.late_last,
            "of": job.late_of,
            "held_ns": job.late_held,
        },
        "ranks": [_rank_fields(rank) for rank in job.ranks],
        "durations_ns": job.durations.tolist(),
        "compute_ns": job.compute.tolist(),
        "wait_ns": job.wait.tolist(),
        "notes": list(map(describe, job.notes)),
    }


def _rank_fields(rank: RankTime) -> dict[str, Any]:
    return {
        "rank": rank.rank, "host": rank.host, "step_ns": rank.step, "wait_ns": rank.wait, "transfer_ns": rank.transfer,
        "collectives": rank.collectives, "last": rank.last, "held_ns": rank.held, "clock_offset_ns": rank.offset,
        "parts_ns": {name: rank.parts[name] for name in PARTS},
    }  # fmt: skip


def _times(values: Sequence[float]) -> list[Value]:
    return [Value(float(value), "ns", "derived") for value in values]
