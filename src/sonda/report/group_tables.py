"""Groups of ranks of a job that was imported: how far apart their ranks come, and for whom they wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sonda.analysis.rank_verdict import group_sentence
from sonda.analysis.ranks import GroupTime, Job
from sonda.analysis.summary import Value
from sonda.report.table import LAST, Cell, Column, Table, build, numbers, words

MOST_RANKS = 8
"""Of a group that are named."""
MOST_SENTENCES = 4
NOBODY = "nobody comes last as far as clocks can tell"


def _slowest_first(job: Job) -> list[GroupTime]:
    return sorted(job.groups, key=lambda one: (-one.held, -one.skew, one.name, one.ranks))


def groups_table(job: Job, rows: int) -> Table:
    """A row for each group, that in which one rank keeps the others longest first; at most `rows`."""
    shown = _slowest_first(job)[:rows]
    hints = [group_sentence(one, job.step) for one in shown]
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (Column("group", right=False), [Cell(_name(one), None, hint)
                                        for one, hint in zip(shown, hints, strict=True)]),
        (Column("ranks", right=False, keep=8), words([_ranks(one) for one in shown])),
        (Column("collectives", keep=7), [Cell(f"{one.collectives:,}", float(one.collectives)) for one in shown]),
    ]  # fmt: skip
    for name, hint, values, keep in (
        ("skew", "from the first arrival to the last, mean over collectives", [one.skew for one in shown], 8),
        ("largest skew", "of one collective", [one.worst for one in shown], 4),
        ("waits", "a step: mean over its ranks, until the last has come", [one.wait for one in shown], 6),
    ):
        columns.append((Column(name, hint=hint, keep=keep), _cells(values)))
    columns.append((Column("last", hint="the rank that keeps the others waiting longest", keep=9),
                    [_last(one) for one in shown]))  # fmt: skip
    held = Column("keeps others waiting", hint="a step: from the last arrival but one to its own", keep=LAST)
    columns.append((held, _cells([one.held for one in shown])))
    return build(columns, "groups of ranks")


def group_lines(job: Job) -> list[str]:
    """A sentence for each of the groups that wait longest."""
    shown = _slowest_first(job)[:MOST_SENTENCES]
    said = [f"{_name(one)} of ranks {_ranks(one)}: {group_sentence(one, job.step)}" for one in shown]
    more = len(job.groups) - len(shown)
    return said + ([f"{more:,} more groups: sonda show --json"] if more else [])


def groups_document(job: Job) -> list[dict[str, Any]]:
    """Everything as plain JSON values, times in ns."""
    return [
        {
            "name": one.name, "description": one.description, "ranks": list(one.ranks), "missing": one.missing,
            "collectives": one.collectives, "together": one.together,
            "matched_by": "number" if one.numbered else "order", "skew_ns": one.skew, "largest_skew_ns": one.worst,
            "wait_ns": one.wait, "latest": one.latest if one.latest >= 0 else None, "last": one.last,
            "held_ns": one.held, "sentence": group_sentence(one, job.step),
        }
        for one in job.groups
    ]  # fmt: skip


def _name(one: GroupTime) -> str:
    if not one.name:
        return "not said"
    return f"{one.description} ({one.name})" if one.description and one.description != one.name else one.name


def _ranks(one: GroupTime) -> str:
    named = ", ".join(str(rank) for rank in one.ranks[:MOST_RANKS])
    more = len(one.ranks) - MOST_RANKS
    return f"{named}, … ({len(one.ranks):,})" if more > 0 else named


def _last(one: GroupTime) -> Cell:
    if one.latest < 0:
        return Cell("–", None, NOBODY)
    return Cell(f"rank {one.latest}, {one.last:,} times", float(one.latest))


def _cells(values: Sequence[float]) -> list[Cell]:
    return list(numbers([Value(float(value), "ns", "derived") for value in values], suffix=True)[1])
