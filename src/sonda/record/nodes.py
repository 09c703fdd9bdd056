"""Runs of several nodes: how the parts of each become one run, and how that is taken apart again.

Every node has a clock of its own. A span's `start` counts from the beginning of the run on its own node: spans of one
node can be compared, those of two cannot, and nothing here subtracts one from another. `target.nodes` of `run.json`
says for every node its name, ranks, machine, versions, probes, what was read of its energy, and how long the run took
by its own clock (`duration_ns`). `target.lost_nodes` are the names of those of which nothing came;
`target.same_machine` says of nodes that are processes of one machine, by name, which is the first of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from sonda.record.run import Run, RunInfo
from sonda.record.sample import Sample
from sonda.record.span import NUMBER_COLUMNS, TEXT_COLUMNS, Spans, Words, joined

NODES, LOST, RANKS, METERED, SAME = "nodes", "lost_nodes", "ranks", "metered", "same_machine"
OF_A_NODE = ("devices", METERED)
"""What a run's target says of one machine, and so of each node."""


@dataclass(frozen=True)
class NodePart:
    """What one node saw."""

    node: str
    info: RunInfo
    spans: Spans
    samples: list[Sample]


def nodes_of(target: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The nodes of a run's target; none where one machine did everything."""
    found = target.get(NODES)
    return list(found) if isinstance(found, list) and all(isinstance(one, Mapping) for one in found) else []


def lost_of(target: Mapping[str, Any]) -> list[str]:
    """The names of nodes that took part and of which nothing came."""
    found = target.get(LOST)
    return [str(one) for one in found] if isinstance(found, list) else []


def machines_of(target: Mapping[str, Any]) -> dict[str, list[str]]:
    """The names of all nodes of a run's target by the first one of their machine, which most have for themselves."""
    found: dict[str, list[str]] = {}
    same = target.get(SAME)
    for node in [*(str(one.get("node", "")) for one in nodes_of(target)), *lost_of(target)]:
        found.setdefault(str(same.get(node, node)) if isinstance(same, Mapping) else node, []).append(node)
    return found


def brought_together(
    parts: Sequence[NodePart], lost: Sequence[str] = (), same: Mapping[str, str] | None = None
) -> NodePart:
    """One run of all parts, the first node's being what it says of the whole; nothing came from those `lost`.

    `same` says of nodes that are processes of one machine which is the first of them.
    """
    first = parts[0]
    spans = _named(first.spans, first.node)
    for part in parts[1:]:
        parent = part.spans.number("parent")
        spans = joined(spans, _named(part.spans, part.node), np.where(parent >= 0, parent + len(spans), -1))
    samples = [msgspec.structs.replace(one, node=part.node) for part in parts for one in part.samples]
    names = [*(part.node for part in parts), *lost]
    notes = [
        *first.info.notes,
        f"{len(names)} nodes ({', '.join(names)}): times count from each node's own beginning, on its own clock",
        *(f"nothing came from node {node}: its ranks are missing" for node in lost),
        *(f"nodes {', '.join(some)} are processes of one machine and share what it has" for some in _together(same)),
    ]
    disturbed = list(first.info.disturbed)
    for part in parts[1:]:
        notes += [f"node {part.node}: {note}" for note in part.info.notes if note not in first.info.notes]
        notes += _other_versions(first, part)
        disturbed += [f"node {part.node}: {one}" for one in part.info.disturbed]
    target = {key: value for key, value in first.info.target.items() if key != METERED}
    ranks = [{**rank, "node": part.node} for part in parts for rank in part.info.target.get(RANKS, ())]
    info = msgspec.structs.replace(
        first.info,
        status="incomplete" if lost else first.info.status,
        notes=notes,
        disturbed=disturbed,
        target={
            **target,
            RANKS: sorted(ranks, key=lambda one: one["rank"]),
            NODES: [_about(part) for part in parts],
            **({LOST: list(lost)} if lost else {}),
            **({SAME: dict(same)} if same else {}),
        },
    )
    return NodePart(first.node, info, spans, samples)


def by_node(run: Run) -> list[tuple[str, Run]]:
    """The parts of a run of several nodes by their names, each as a run with its own spans, samples and target; the
    run itself, without a name, where there are none."""
    nodes = nodes_of(run.info.target)
    if not nodes:
        return [("", run)]
    found = []
    for about in nodes:
        name = str(about.get("node", ""))
        target = {key: value for key, value in run.info.target.items() if key not in (*OF_A_NODE, NODES, SAME)}
        target |= {key: about[key] for key in OF_A_NODE if key in about}
        part = Run(run.directory, msgspec.structs.replace(run.info, target=target))
        part.spans = _only(run.spans, name)
        part.samples = [one for one in run.samples if one.node == name]
        found.append((name, part))
    return found


def by_machine(run: Run) -> tuple[list[tuple[str, Run]], list[str]]:
    """The parts of a run for what sensors say of a whole machine: one of each machine, of nodes that share one the
    first that read any, as having used what all of them used. Then the names of nodes of whose machine nothing came."""
    parts = dict(by_node(run))
    if "" in parts:
        return [("", run)], []
    found, silent = [], []
    for names in machines_of(run.info.target).values():
        there = [name for name in names if name in parts]
        if not there:
            silent += names
            continue
        read = [name for name in there if isinstance(parts[name].info.target.get(METERED), Mapping)]
        first = (read or there)[0]
        used = dict.fromkeys(one for name in read for one in parts[name].info.target[METERED].get("used", ()))
        if len(read) > 1:
            target = parts[first].info.target
            target[METERED] = {**target[METERED], "used": list(used)}
        found.append((first, parts[first]))
    return found, silent


def _together(same: Mapping[str, str] | None) -> list[list[str]]:
    """The nodes of every machine that has several."""
    found: dict[str, list[str]] = {}
    for node, first in (same or {}).items():
        found.setdefault(first, []).append(node)
    return [names for names in found.values() if len(names) > 1]


def _about(part: NodePart) -> dict[str, Any]:
    """What `target.nodes` says of a node."""
    info = part.info
    return {
        "node": part.node,
        RANKS: [rank["rank"] for rank in info.target.get(RANKS, ())],
        "duration_ns": int(part.spans.number("duration")[0]),
        "machine": info.machine,
        "versions": info.versions,
        "probes": msgspec.to_builtins(info.probes),
        **{key: info.target[key] for key in OF_A_NODE if key in info.target},
    }


def _other_versions(first: NodePart, part: NodePart) -> list[str]:
    """A note where a node's libraries are not those of the first."""
    ours, theirs = first.info.versions, part.info.versions
    different = [
        f"{name} {theirs.get(name, 'nothing')} (not {ours.get(name, 'nothing')})"
        for name in dict.fromkeys((*ours, *theirs))
        if ours.get(name) != theirs.get(name)
    ]
    return [f"node {part.node} has other versions: {', '.join(different)}"] if different else []


def _named(spans: Spans, node: str) -> Spans:
    numbers = {name: spans.number(name) for name in NUMBER_COLUMNS}
    words = {name: spans.words(name) for name in TEXT_COLUMNS if name != "node"}
    return Spans(numbers, {**words, "node": Words.constant(node, len(spans))}, spans.metrics)


def _only(spans: Spans, node: str) -> Spans:
    """The spans of one node, whose parents are all among them."""
    mine = spans.words("node").equal(node)
    place = np.cumsum(mine) - 1
    parent = spans.number("parent")[mine]
    numbers = {name: spans.number(name)[mine] for name in NUMBER_COLUMNS if name not in ("id", "parent")}
    numbers["parent"] = np.where(parent >= 0, place[parent], -1)
    words = {name: Words(spans.words(name).codes[mine], spans.words(name).words) for name in TEXT_COLUMNS}
    return Spans(numbers, words, {column: values[mine] for column, values in spans.metrics.items()})
