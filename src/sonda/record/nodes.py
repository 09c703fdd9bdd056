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

import numpy as np
from msgspec import structs

from sonda.record.run import Run, RunInfo
from sonda.record.samples import Sample
from sonda.record.spans import NUMBER_COLUMNS, TEXT_COLUMNS, Spans, Words, join_spans
from sonda.record.target import NodeFacts, RanksTarget, Target


@dataclass(frozen=True)
class NodePart:
    """What one node saw."""

    node: str
    info: RunInfo
    spans: Spans
    samples: list[Sample]


def nodes_of(target: Target) -> list[NodeFacts]:
    """The nodes of a run's target; none where one machine did everything."""
    return (target.nodes or []) if isinstance(target, RanksTarget) else []


def machines_of(target: Target) -> dict[str, list[str]]:
    """The names of all nodes of a run's target by the first one of their machine, which most have for themselves."""
    machines: dict[str, list[str]] = {}
    if isinstance(target, RanksTarget):
        same = target.same_machine or {}
        for node in [*(facts.node for facts in target.nodes or ()), *(target.lost_nodes or ())]:
            machines.setdefault(same.get(node, node), []).append(node)
    return machines


def merge_nodes(parts: Sequence[NodePart], lost: Sequence[str] = (), same: Mapping[str, str] | None = None) -> NodePart:
    """One run of all parts, the first node's being what it says of the whole; nothing came from those `lost`.

    `same` says of nodes that are processes of one machine which is the first of them.
    """
    first = parts[0]
    spans = _named(first.spans, first.node)
    for part in parts[1:]:
        parent = part.spans.number("parent")
        spans = join_spans(spans, _named(part.spans, part.node), np.where(parent >= 0, parent + len(spans), -1))
    samples = [structs.replace(sample, node=part.node) for part in parts for sample in part.samples]
    names = [*(part.node for part in parts), *lost]
    notes = [
        *first.info.notes,
        f"{len(names)} nodes ({', '.join(names)}): times count from each node's own beginning, on its own clock",
        *(f"nothing came from node {node}: its ranks are missing" for node in lost),
        *(
            f"nodes {', '.join(some)} are processes of one machine and share what it has"
            for some in _shared_machines(same)
        ),
    ]
    disturbed = list(first.info.disturbed)
    for part in parts[1:]:
        notes += [f"node {part.node}: {note}" for note in part.info.notes if note not in first.info.notes]
        notes += _other_versions(first, part)
        disturbed += [f"node {part.node}: {text}" for text in part.info.disturbed]
    ranks = [structs.replace(rank, node=part.node) for part in parts for rank in _target(part.info).ranks]
    probed = [structs.replace(row, node=part.node) for part in parts for row in part.info.target.probed or ()]
    info = structs.replace(
        first.info,
        status="incomplete" if lost else first.info.status,
        notes=notes,
        disturbed=disturbed,
        target=structs.replace(
            _target(first.info),
            metered=None,
            ranks=sorted(ranks, key=lambda rank: rank.rank),
            probed=probed or None,
            nodes=[_about(part) for part in parts],
            lost_nodes=list(lost) or None,
            same_machine=dict(same) if same else None,
        ),
    )
    return NodePart(first.node, info, spans, samples)


def by_node(run: Run) -> list[tuple[str, Run]]:
    """The parts of a run of several nodes by their names, each as a run with its own spans, samples and target; the
    run itself, without a name, where there are none."""
    target = run.info.target
    if not isinstance(target, RanksTarget) or not target.nodes:
        return [("", run)]
    parts = []
    for facts in target.nodes:
        own = structs.replace(target, devices=facts.devices, metered=facts.metered, nodes=None, same_machine=None)
        part = Run(run.directory, structs.replace(run.info, target=own))
        part.spans = _spans_of_node(run.spans, facts.node)
        part.samples = [sample for sample in run.samples if sample.node == facts.node]
        parts.append((facts.node, part))
    return parts


def by_machine(run: Run) -> tuple[list[tuple[str, Run]], list[str]]:
    """The parts of a run for what sensors say of a whole machine: one of each machine, of nodes that share one the
    first that read any, as having used what all of them used. Then the names of nodes of whose machine nothing came."""
    parts = dict(by_node(run))
    if "" in parts:
        return [("", run)], []
    machine_parts, silent = [], []
    for names in machines_of(run.info.target).values():
        there = [name for name in names if name in parts]
        if not there:
            silent += names
            continue
        read = {name: energy for name in there if (energy := parts[name].info.target.metered) is not None}
        first = next(iter(read), there[0])
        if len(read) > 1:
            used = dict.fromkeys(device for energy in read.values() for device in energy.used)
            info = parts[first].info
            info.target = structs.replace(info.target, metered=structs.replace(read[first], used=list(used)))
        machine_parts.append((first, parts[first]))
    return machine_parts, silent


def _shared_machines(same: Mapping[str, str] | None) -> list[list[str]]:
    """The nodes of every machine that has several."""
    machines: dict[str, list[str]] = {}
    for node, first in (same or {}).items():
        machines.setdefault(first, []).append(node)
    return [names for names in machines.values() if len(names) > 1]


def _target(info: RunInfo) -> RanksTarget:
    """Only ranks run on several nodes."""
    assert isinstance(info.target, RanksTarget)
    return info.target


def _about(part: NodePart) -> NodeFacts:
    """What the run of all says of a node."""
    info, target = part.info, _target(part.info)
    return NodeFacts(
        node=part.node,
        ranks=[rank.rank for rank in target.ranks],
        duration_ns=int(part.spans.number("duration")[0]),
        machine=info.machine,
        versions=info.versions,
        probes=info.probes,
        devices=target.devices,
        metered=target.metered,
    )


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


def _spans_of_node(spans: Spans, node: str) -> Spans:
    """The spans of one node, whose parents are all among them."""
    mine = spans.words("node").equal(node)
    place = np.cumsum(mine) - 1
    parent = spans.number("parent")[mine]
    numbers = {name: spans.number(name)[mine] for name in NUMBER_COLUMNS if name not in ("id", "parent")}
    numbers["parent"] = np.where(parent >= 0, place[parent], -1)
    words = {name: Words(spans.words(name).codes[mine], spans.words(name).words) for name in TEXT_COLUMNS}
    return Spans(numbers, words, {column: values[mine] for column, values in spans.metrics.items()})
