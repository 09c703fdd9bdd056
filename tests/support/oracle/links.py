"""What moves through the machine and what it moves over: packages, queues, one-slot links."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple


class Package(NamedTuple):
    """One value on its way: a weight, an input or a psum, with the leaves it is meant for."""

    kind: str
    value: float
    targets: tuple[int, ...] = ()
    """Leaves of the distribution network (multipliers; in the mesh its edge inputs)."""
    neuron: int = 0
    """Virtual neuron that a psum belongs to."""
    row: int = 0
    column: int = 0
    """Position in the result matrix: where products are merged by column."""
    group: int = 0
    """Fibre that a product belongs to."""


class Queue:
    """Unbounded first-in first-out queue that counts its accesses."""

    __slots__ = ("items", "looks", "pops", "pushes")

    def __init__(self) -> None:
        self.items: deque[Package] = deque()
        self.pushes = self.pops = self.looks = 0

    def __len__(self) -> int:
        return len(self.items)

    def push(self, package: Package) -> None:
        self.pushes += 1
        self.items.append(package)

    def pop(self) -> Package:
        self.pops += 1
        return self.items.popleft()

    def front(self) -> Package:
        self.looks += 1
        return self.items[0]

    def clear(self) -> None:
        """Empties the queue one pop at a time, as a reconfiguration does."""
        while self.items:
            self.pop()

    def drain(self) -> list[Package]:
        return [self.pop() for _ in range(len(self.items))]


class Link:
    """A register between two blocks: holds what was sent until the receiver takes it."""

    __slots__ = ("held", "sends")

    def __init__(self) -> None:
        self.held: list[Package] = []
        self.sends = 0

    def send(self, packages: list[Package]) -> None:
        if self.held:
            raise RuntimeError("a link was written before it was read")
        self.held = packages
        self.sends += 1

    def take(self) -> list[Package]:
        held, self.held = self.held, []
        return held


def wire_counts(links: Iterable[Link]) -> dict[str, int]:
    """Counters of a set of wires; the reference never counts reads."""
    links = list(links)
    return {"entries": len(links), "WRITE": sum(link.sends for link in links), "READ": 0}


def queue_counts(queues: Iterable[Queue]) -> dict[str, int]:
    queues = list(queues)
    return {
        "entries": len(queues),
        "PUSH": sum(queue.pushes for queue in queues),
        "POP": sum(queue.pops for queue in queues),
        "FRONT": sum(queue.looks for queue in queues),
    }
