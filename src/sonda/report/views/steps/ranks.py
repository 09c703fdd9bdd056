"""Ranks that trained together: what each did, phase by phase, and how long it waited; terminal, page, JSON."""

from __future__ import annotations

from collections.abc import Sequence

from sonda.analysis.summary import PartSummary, RankPhases, Value
from sonda.record.nodes import nodes_of
from sonda.record.stored import plain
from sonda.record.target import NodeFacts, RankFacts, RanksTarget, Target
from sonda.report.blocks import Block, Gap, Panel, TableBlock
from sonda.report.table import LAST, Cell, Column, Table, build, numbers, words
from sonda.report.values import Document, value_document

# ---- Nodes that trained together: which, with what, and how long; terminal, page, JSON ------------------------------

UNTIMED_NODE = "the node did not say"


def node_blocks(target: Target) -> list[Block]:
    """A table of the nodes, where there are several."""
    blocks: list[Block] = []
    nodes = nodes_of(target)
    if nodes:
        blocks += [Gap(), TableBlock(nodes_table(nodes))]
    return blocks


def nodes_table(nodes: Sequence[NodeFacts]) -> Table:
    """A row for each node; the time is that of its own clock, from the start of its ranks to the end of all."""
    unit, times = numbers([_time(node) for node in nodes])
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (Column("node", right=False), words([node.node for node in nodes])),
        (Column("ranks", right=False), words([", ".join(map(str, node.ranks or ())) for node in nodes])),
        (Column("processor", right=False, path=True), words([_processor(node) for node in nodes])),
        (Column(f"time {unit}", hint="on its own clock"), times),
    ]
    return build(columns, "nodes")


def nodes_fields(target: Target) -> Document:
    """For `--json`."""
    nodes = nodes_of(target)
    if not nodes:
        return {}
    return {
        "nodes": [
            {
                "node": node.node,
                "ranks": node.ranks,
                "processor": _processor(node),
                "time": value_document(_time(node)),
            }
            for node in nodes
        ]
    }


def _processor(node: NodeFacts) -> str:
    return (node.machine.processor or "") if node.machine is not None else ""


def _time(node: NodeFacts) -> Value:
    if node.duration_ns is not None:
        return Value(float(node.duration_ns), "ns", "measured")
    return Value(None, "ns", "measured", reason=UNTIMED_NODE)


# ----------------------------------------------------------------------------------------------------------------------

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


def ranks_of(target: Target) -> list[RankFacts]:
    """The ranks of a run's target; none where one process trained."""
    return target.ranks if isinstance(target, RanksTarget) and len(target.ranks) > 1 else []


def rank_blocks(target: Target) -> list[Block]:
    """A table of the ranks, where there are several."""
    blocks: list[Block] = []
    ranks = ranks_of(target)
    if ranks:
        blocks += [Gap(), TableBlock(ranks_table(ranks))]
    return blocks


def ranks_table(ranks: Sequence[RankFacts]) -> Table:
    """A row for each rank: samples of its last step, medians of work and wait over its steps."""
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (Column("rank"), [Cell(str(rank.rank), float(rank.rank)) for rank in ranks]),
        (Column("device", right=False), words([rank.device for rank in ranks])),
    ]
    if any(rank.node is not None for rank in ranks):
        columns.insert(0, (Column("node", right=False), words([rank.node or "" for rank in ranks])))
    if any(rank.modules is not None for rank in ranks):
        first = [(rank.modules or [""])[0] for rank in ranks]
        columns.append((Column("from module", right=False, path=True), words(first)))
    if any(rank.samples is not None for rank in ranks):
        columns.append((Column("samples"), numbers([_value(rank, "samples") for rank in ranks])[1]))
    if any(rank.worked_ns is not None for rank in ranks):
        for name, key in (("work", "worked_ns"), ("wait", "waited_ns")):
            unit, cells = numbers([_value(rank, key) for rank in ranks])
            columns.append((Column(f"{name} {unit}", hint="median over its steps"), cells))
    return build(columns, "ranks")


def _value(rank: RankFacts, key: str) -> Value:
    unit, source = NUMBERS[key]
    value: float | None = getattr(rank, key)
    if value is not None:
        return Value(float(value), unit, source)
    return Value(None, unit, source, reason=LEFT_OUT if rank.left_out else UNTIMED)


def ranks_fields(target: Target) -> Document:
    """For `--json`."""
    ranks = ranks_of(target)
    if not ranks:
        return {}
    timed = [key for key in NUMBERS if any(getattr(rank, key) is not None for rank in ranks)]
    return {
        "ranks": [
            {
                **{key: value for key, value in plain(rank).items() if key not in NUMBERS},
                **{key.removesuffix("_ns"): value_document(_value(rank, key)) for key in timed},
            }
            for rank in ranks
        ]
    }


def rank_panels(target: Target) -> list[Block]:
    """For a page: a table of the nodes, and of the ranks, where there are several."""
    nodes, ranks = nodes_of(target), ranks_of(target)
    blocks: list[Block] = [Panel("Nodes", [TableBlock(nodes_table(nodes))])] if nodes else []
    return [*blocks, Panel("Ranks", [TableBlock(ranks_table(ranks))])] if ranks else blocks


def rank_phases_table(part: PartSummary) -> Table:
    """A row for each rank: its step, its work in it, and every phase; the critical rank is marked."""
    ranks = part.ranks
    names = list(dict.fromkeys(name for rank in ranks for name in rank.phases))
    absent = Value(None, "ns", "measured", reason="this rank has no such phase")
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (Column("phases of", right=False), [_rank(rank) for rank in ranks]),
    ]
    if len({rank.device for rank in ranks}) > 1:
        columns.append((Column("device", right=False), words([rank.device for rank in ranks])))
    if len({rank.node for rank in ranks}) > 1:
        columns.append((Column("node", right=False, keep=1), words([rank.node for rank in ranks])))
    rows = {"step": [rank.step for rank in ranks], "work": [rank.work for rank in ranks]}
    rows |= {name: [rank.phases.get(name, absent) for rank in ranks] for name in names}
    # One unit for all, so that a row can be read across.
    unit, cells = numbers([value for values in rows.values() for value in values])
    for at, name in enumerate(rows):
        label = f"{name} {unit}" if name == "step" else name
        keep = LAST if name in ALWAYS else 4
        columns.append((Column(label, keep=keep, hint=PHASE_HINTS.get(name, "time per step, median over its steps")),
                        cells[at * len(ranks) : (at + 1) * len(ranks)]))  # fmt: skip
    return build(columns, "rank phases")


def _rank(rank: RankPhases) -> Cell:
    name = f"rank {rank.rank}"
    if rank.critical:
        return Cell(f"{name} *", float(rank.rank), "works longest in a step: the others wait for it", tone="name")
    return Cell(name, float(rank.rank), f"{rank.steps} steps")
