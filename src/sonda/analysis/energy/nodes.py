"""The energy of several nodes as one: each node's over its own time, on its own clock, then added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sonda.analysis import reasons, wording
from sonda.analysis.energy.coverage import counted_on, covered_on, lacking_on
from sonda.analysis.energy.findings import NodeFindings, NodesEnergy, OnNode, SharedMachine, SourceEnergy
from sonda.analysis.energy.meters import DERIVED, add_values, scaled
from sonda.analysis.energy.summary import Cost, EnergySummary, Window
from sonda.analysis.findings import Finding
from sonda.analysis.summary import Value

Parts = Sequence[tuple[str, EnergySummary]]


def energy_of_nodes(
    parts: Parts, silent: Sequence[str] = (), machines: Mapping[str, Sequence[str]] | None = None
) -> EnergySummary:
    """The summaries of nodes by name as one; of `silent` ones no energy was read.

    `machines` are the names of nodes by those of the machines that they are processes of: a part is of all of these.
    """
    first = parts[0][1]
    counts = [(node, part.parts) for node, part in parts]
    covers = covered_on(counts)
    lacking = lacking_on([(node, part.not_covered) for node, part in parts])
    everything = _sums([(node, part.all) for node, part in parts], silent, first.time)
    return EnergySummary(
        run=first.run,
        title=first.title,
        time=first.time,
        devices=tuple(replace(device, name=f"{node} {device.name}") for node, part in parts for device in part.devices),
        all=everything,
        used=_sums([(node, part.used) for node, part in parts], silent, first.time),
        covers=covers,
        not_covered=lacking,
        finding=_finding(parts, silent, machines or {}, everything, covers, lacking),
        regions=tuple(_renamed(node, region) for node, part in parts for region in part.regions),
        windows=tuple(_windows(parts, silent)),
        power={f"{node} {name}": points for node, part in parts for name, points in part.power.items()},
        estimated=frozenset(f"{node} {name}" for node, part in parts for name in part.estimated),
        notes=tuple(dict.fromkeys(OnNode(node, note) for node, part in parts for note in part.notes)),
        warnings=tuple(OnNode(node, warning) for node, part in parts for warning in part.warnings),
        parts=counted_on(counts),
        modelled=_modelled(parts),
    )


def once(machines: Mapping[str, Sequence[str]]) -> list[Finding]:
    """Machines that several nodes share: they read the same sensors."""
    return [SharedMachine(tuple(nodes)) for nodes in machines.values() if len(nodes) > 1]


def sum_of_nodes(values: Sequence[tuple[str, Value | None]], unit: str, source: str, reason: str) -> Value:
    """The sum over nodes, missing where it is for one of them: that node is named, as is one whose value is marked."""
    for node, value in values:
        if value is None or value.value is None:
            why = value.reason if value is not None else reason
            return Value(None, unit, source, reason=reasons.ON_NODE.format(node, why))
    marks = [reasons.ON_NODE.format(node, value.reason) for node, value in values if value is not None and value.reason]
    return replace(add_values([value for _, value in values if value is not None], source), reason="; ".join(marks))


def _sums(parts: Sequence[tuple[str, dict[str, Cost]]], silent: Sequence[str], time: Value) -> dict[str, Cost]:
    sums = {}
    for source in dict.fromkeys(source for _, costs in parts for source in costs):
        # A node all of whose devices have counters adds what it measured to what others derived.
        otherwise = "measured" if source == DERIVED else source
        mine = [*((node, costs.get(source, costs.get(otherwise))) for node, costs in parts),
                *((node, None) for node in silent)]  # fmt: skip
        reason = reasons.NOTHING_OF_SOURCE.format(source)

        def total(name: str, unit: str, mine: Sequence[tuple[str, Cost | None]] = mine, reason: str = reason) -> Value:
            values = [(node, getattr(cost, name) if cost is not None else None) for node, cost in mine]
            known = next((value for _, value in values if value is not None), None)
            return sum_of_nodes(values, unit, known.source if known is not None else "derived", reason)

        energy = total("energy", "J")
        product = scaled(energy, (time.value or 0.0) / 1e9, "J·s")
        sums[source] = Cost(energy, total("power", "W"), total("idle", "W"), total("above", "J"), product)
    return sums


def _windows(parts: Parts, silent: Sequence[str]) -> list[Window]:
    """Windows of the first node with the energy of all: every node's own epochs, steps and phases of that name."""
    by_node = [(node, {(window.kind, window.name): window for window in part.windows}) for node, part in parts]
    windows = []
    for key, window in by_node[0][1].items():
        same = [*((node, windows.get(key)) for node, windows in by_node), *((node, None) for node in silent)]
        devices = {
            f"{node} {name}": value
            for node, window in same
            if window is not None
            for name, value in window.devices.items()
        }
        windows.append(replace(window, devices=devices, total=_total(same, "total"), used=_total(same, "used")))
    return windows


def _total(same: Sequence[tuple[str, Window | None]], name: str) -> Value:
    values: list[tuple[str, Value | None]] = [
        (node, getattr(window, name) if window is not None else None) for node, window in same
    ]
    sources = {value.source for _, value in values if value is not None}
    source = sources.pop() if len(sources) == 1 else "derived"
    return sum_of_nodes(values, "J", source, reasons.NOTHING_READ)


def _renamed(node: str, window: Window) -> Window:
    devices = {f"{node} {name}": value for name, value in window.devices.items()}
    return replace(window, name=f"{node}: {window.name}", devices=devices)


def _modelled(parts: Parts) -> str:
    """What the model speaks for, and on which nodes where that is not the same on all."""
    nodes: dict[str, list[str]] = {}
    for node, part in parts:
        if part.modelled:
            nodes.setdefault(part.modelled, []).append(node)
    if len(nodes) == 1 and len(next(iter(nodes.values()))) == len(parts):
        return next(iter(nodes))
    return "; ".join(f"{what} (on {wording.join(where)})" for what, where in nodes.items())


def _finding(
    parts: Parts,
    silent: Sequence[str],
    machines: Mapping[str, Sequence[str]],
    everything: Mapping[str, Cost],
    covers: tuple[str, ...],
    lacking: tuple[str, ...],
) -> Finding:
    if not everything:
        return NodeFindings(tuple((node, part.finding) for node, part in parts))
    count = len(parts) + len(silent)
    shared = sum(len(nodes) - 1 for nodes in machines.values())
    totals = tuple(SourceEnergy(replace(cost.energy, source=source)) for source, cost in everything.items())
    return NodesEnergy(totals, parts[0][1].time.value or 0.0, count + shared, count, covers, lacking, _modelled(parts))
