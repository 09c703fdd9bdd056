"""Nodes that trained together: which, with what, and how long; terminal, page, JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sonda.analysis.summary import Value
from sonda.record.nodes import nodes_of
from sonda.report.screen import Screen
from sonda.report.table import Cell, Column, Table, build, numbers, words
from sonda.report.values import Document, value_document

UNTIMED = "the node did not say"


def show_nodes(screen: Screen, target: Mapping[str, Any]) -> None:
    """A table of the nodes, where there are several."""
    nodes = nodes_of(target)
    if nodes:
        screen.line()
        screen.table(nodes_table(nodes))


def nodes_table(nodes: Sequence[Mapping[str, Any]]) -> Table:
    """A row for each node; the time is that of its own clock, from the start of its ranks to the end of all."""
    unit, times = numbers([_time(one) for one in nodes])
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (Column("node", right=False), words([str(one.get("node", "")) for one in nodes])),
        (Column("ranks", right=False), words([", ".join(map(str, one.get("ranks") or ())) for one in nodes])),
        (Column("processor", right=False, path=True), words([_processor(one) for one in nodes])),
        (Column(f"time {unit}", hint="on its own clock"), times),
    ]
    return build(columns, "nodes")


def nodes_document(target: Mapping[str, Any]) -> Document:
    """For `--json`."""
    nodes = nodes_of(target)
    if not nodes:
        return {}
    return {
        "nodes": [
            {
                "node": one.get("node"),
                "ranks": one.get("ranks"),
                "processor": _processor(one),
                "time": value_document(_time(one)),
            }
            for one in nodes
        ]
    }


def _processor(node: Mapping[str, Any]) -> str:
    machine = node.get("machine")
    return str(machine.get("processor") or "") if isinstance(machine, Mapping) else ""


def _time(node: Mapping[str, Any]) -> Value:
    duration = node.get("duration_ns")
    if isinstance(duration, int | float):
        return Value(float(duration), "ns", "measured")
    return Value(None, "ns", "measured", reason=UNTIMED)
