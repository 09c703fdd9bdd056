"""Ranks that trained together: what each did, phase by phase, and how long it waited; terminal, page, JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sonda.analysis.summary import PartSummary, RankPhases, Value
from sonda.report.screen import Screen
from sonda.report.table import LAST, Cell, Column, Table, build, numbers, words
from sonda.report.values import Document, plain_data, value_document

LEFT_OUT = "left out, because it would not pay"
UNTIMED = "a GPU's steps are not waited for one by one"
NUMBERS = {"samples": ("1", "counted"), "worked_ns": ("ns", "measured"), "waited_ns": ("ns", "measured")}
"""What a rank says of itself in numbers, with unit and source."""
ALWAYS = ("step", "work", "communicate", "forward", "backward")
"""Columns of the phases that stay where a screen is narrow."""
PHASE_HINTS = {
    "work": "of the step, without exchanging with other ranks or waiting for them",
    "communicate": "exchanging with other ranks or waiting for them, wherever in the step",
}


def ranks_of(target: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The ranks of a run's target; none where one process trained."""
    found = target.get("ranks")
    return list(found) if isinstance(found, Sequence) and len(found) > 1 else []


def show_ranks(screen: Screen, target: Mapping[str, Any]) -> None:
    """A table of the ranks, where there are several."""
    ranks = ranks_of(target)
    if ranks:
        screen.line()
        screen.table(ranks_table(ranks))


def ranks_table(ranks: Sequence[Mapping[str, Any]]) -> Table:
    """A row for each rank: samples of its last step, medians of work and wait over its steps."""
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (Column("rank"), [Cell(str(one.get("rank", "")), float(one.get("rank", 0))) for one in ranks]),
        (Column("device", right=False), words([str(one.get("device", "")) for one in ranks])),
    ]
    if any("node" in one for one in ranks):
        columns.insert(0, (Column("node", right=False), words([str(one.get("node", "")) for one in ranks])))
    if any("modules" in one for one in ranks):
        first = [(one.get("modules") or [""])[0] for one in ranks]
        columns.append((Column("from module", right=False, path=True), words([str(name) for name in first])))
    if any("samples" in one for one in ranks):
        columns.append((Column("samples"), numbers([_value(one, "samples") for one in ranks])[1]))
    if any("worked_ns" in one for one in ranks):
        for name, key in (("work", "worked_ns"), ("wait", "waited_ns")):
            unit, cells = numbers([_value(one, key) for one in ranks])
            columns.append((Column(f"{name} {unit}", hint="median over its steps"), cells))
    return build(columns, "ranks")


def _value(rank: Mapping[str, Any], key: str) -> Value:
    unit, source = NUMBERS[key]
    value = rank.get(key)
    if isinstance(value, int | float):
        return Value(float(value), unit, source)
    return Value(None, unit, source, reason=LEFT_OUT if rank.get("left_out") else UNTIMED)


def ranks_document(target: Mapping[str, Any]) -> Document:
    """For `--json`."""
    ranks = ranks_of(target)
    if not ranks:
        return {}
    timed = [key for key in NUMBERS if any(key in one for one in ranks)]
    return {
        "ranks": [
            {
                **{key: plain_data(value) for key, value in one.items() if key not in NUMBERS},
                **{key.removesuffix("_ns"): value_document(_value(one, key)) for key in timed},
            }
            for one in ranks
        ]
    }


def rank_phases_table(part: PartSummary) -> Table:
    """A row for each rank: its step, its work in it, and every phase; the critical rank is marked."""
    ranks = part.ranks
    names = list(dict.fromkeys(name for one in ranks for name in one.phases))
    absent = Value(None, "ns", "measured", reason="this rank has no such phase")
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (Column("phases of", right=False), [_rank(one) for one in ranks]),
    ]
    if len({one.device for one in ranks}) > 1:
        columns.append((Column("device", right=False), words([one.device for one in ranks])))
    if len({one.node for one in ranks}) > 1:
        columns.append((Column("node", right=False, keep=1), words([one.node for one in ranks])))
    rows = {"step": [one.step for one in ranks], "work": [one.work for one in ranks]}
    rows |= {name: [one.phases.get(name, absent) for one in ranks] for name in names}
    # One unit for all, so that a row can be read across.
    unit, cells = numbers([value for values in rows.values() for value in values])
    for at, name in enumerate(rows):
        label = f"{name} {unit}" if name == "step" else name
        keep = LAST if name in ALWAYS else 4
        columns.append((Column(label, keep=keep, hint=PHASE_HINTS.get(name, "time per step, median over its steps")),
                        cells[at * len(ranks) : (at + 1) * len(ranks)]))  # fmt: skip
    return build(columns, "rank phases")


def _rank(one: RankPhases) -> Cell:
    name = f"rank {one.rank}"
    if one.critical:
        return Cell(f"{name} *", float(one.rank), "works longest in a step: the others wait for it", tone="name")
    return Cell(name, float(one.rank), f"{one.steps} steps")
