"""The distribution network: one switch tree per read port of the global buffer, from the port to its multipliers.

Port p serves the multipliers p*span ... p*span+span-1. A package for several multipliers takes one entry in the queue
of every port that serves one of them; a port sends one entry per cycle, and the tree copies it to all its destinations
within that cycle. The multiplier reads it one cycle later, or in the same cycle where there is no tree (span 1).
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.engines.fabric.instances import doublings
from sonda.accelerators.engines.result import Count, largest
from sonda.record.jit import compiled

Whole = NDArray[np.int64]


class Routing(NamedTuple):
    """What sending a set of packages once costs in the distribution network, summed over the ports."""

    entries: Count
    """Entries in the queues of the ports."""
    wires: Count
    """DN_WIRE WRITE: one per entry for the link out of the port, one per edge of the tree on the way."""
    unicast: Count
    """Switches passed with one child used."""
    broadcast: Count
    """Switches passed with both children used."""

    def times(self, count: int) -> Routing:
        """The same packages sent `count` times."""
        return Routing(*(count * value for value in self))

    def plus(self, other: Routing) -> Routing:
        """Both sets of packages."""
        return Routing(*(mine + its for mine, its in zip(self, other, strict=True)))


def span(hardware: Hardware) -> Count:
    """Multipliers per read port; of many machines at once (see `machines`) an array, as all that follows from it."""
    return hardware.multipliers // hardware.read_ports


def arrival_delay(hardware: Hardware) -> Count:
    """Cycles from the port's sending to the multiplier's reading."""
    return 1 * (span(hardware) > 1)


def route(hardware: Hardware, package: NDArray[np.int64], multiplier: NDArray[np.int64]) -> Routing:
    """The cost of the packages that are given as pairs (number of the package, one of its destinations).

    Pairs may come in any order; a pair given twice counts once. Numbers of packages are not negative.
    """
    depth = span(hardware).bit_length() - 1
    used = compiled(_count_passed_nodes)(np.sort(package * hardware.multipliers + multiplier), depth).tolist()
    broadcast = sum(below - here for below, here in pairwise(used))
    return Routing(
        entries=used[-1],
        wires=used[-1] + sum(used[:-1]),
        unicast=sum(used[1:]) - broadcast,
        broadcast=broadcast,
    )


def _count_passed_nodes(nodes: Whole, depth: int) -> Whole:
    """Different nodes of the ports' trees that packages pass, level by level from the multipliers up.

    `nodes` ascend. A package's number fills whole subtrees.
    """
    used = np.zeros(depth + 1, np.int64)
    for level in range(depth + 1):
        last = -1
        for node in nodes:
            if node >> level != last:
                last = node >> level
                used[level] += 1
    return used


def unicast(hardware: Hardware, packages: Count) -> Routing:
    """The cost of `packages` packages with one destination each."""
    depth = doublings(span(hardware))
    return Routing(packages, packages * (1 + depth), packages * depth, 0)


def activity(hardware: Hardware, routing: Routing) -> dict[str, dict[str, int]]:
    """The counters of the section DSNetwork. Without a tree there are no switches to count."""
    reach = span(hardware)
    section = {
        "DN_WIRE": {"entries": hardware.read_ports * (2 * reach - 1), "WRITE": routing.wires, "READ": 0},
    }
    if largest(reach) > 1:
        section["SWITCH"] = {
            "entries": hardware.read_ports * (reach - 1),
            "ROUTE_UNICAST": routing.unicast,
            "ROUTE_BROADCAST": routing.broadcast,
        }
    return section
