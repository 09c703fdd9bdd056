"""Distribution network: per read port a binary tree of switches; a package crosses it within one cycle."""

from __future__ import annotations

from .links import Link, wire_counts


class Switch:
    """Copies a package to the children that lead to one of its targets."""

    def __init__(self, source: Link, left: Link, right: Link, first: int, size: int) -> None:
        self.source, self.left, self.right = source, left, right
        self.first, self.middle, self.end = first, first + size // 2, first + size
        self.unicasts = self.broadcasts = 0

    def cycle(self) -> None:
        for package in self.source.take():
            to_left = any(self.first <= target < self.middle for target in package.targets)
            to_right = any(self.middle <= target < self.end for target in package.targets)
            if to_left:
                self.left.send([package])
            if to_right:
                self.right.send([package])
            if to_left and to_right:
                self.broadcasts += 1
            else:
                self.unicasts += 1


class Distribution:
    """Trees from `ports` read ports to the leaf links. With one leaf per port the port drives the leaf itself."""

    def __init__(self, ports: int, leaves: list[Link]) -> None:
        self.width = len(leaves) // ports
        if self.width * ports != len(leaves) or self.width & (self.width - 1):
            raise ValueError(f"{len(leaves)} leaves cannot be shared by {ports} ports")
        self.switches: list[Switch] = []
        self.links: list[Link] = []
        self.inputs = [self._tree(port * self.width, self.width, leaves) for port in range(ports)]
        # A package crosses the whole tree in one cycle, so a switch is stepped before the ones below it.
        self.switches.sort(key=lambda switch: switch.first - switch.end)

    def _tree(self, first: int, size: int, leaves: list[Link]) -> Link:
        if size == 1:
            self.links.append(leaves[first])
            return leaves[first]
        source = Link()
        self.links.append(source)
        half = size // 2
        left, right = self._tree(first, half, leaves), self._tree(first + half, half, leaves)
        self.switches.append(Switch(source, left, right, first, size))
        return source

    def cycle(self) -> None:
        for switch in self.switches:
            if switch.source.held:
                switch.cycle()

    def counters(self) -> dict[str, dict[str, int]]:
        counters = {"DN_WIRE": wire_counts(self.links)}
        if self.switches:
            counters["SWITCH"] = {
                "entries": len(self.switches),
                "ROUTE_UNICAST": sum(switch.unicasts for switch in self.switches),
                "ROUTE_BROADCAST": sum(switch.broadcasts for switch in self.switches),
            }
        return counters
