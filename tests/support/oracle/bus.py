"""Collection bus: lines that each deliver one result a cycle, their inputs served in turn."""

from __future__ import annotations

from .links import Link, Queue, queue_counts, wire_counts
from .reduction import EXTRA, Node


class Line:
    """Accepts everything offered, forwards one item a cycle, beginning after the input served last."""

    def __init__(self, inputs: int) -> None:
        self.inputs = [Link() for _ in range(inputs)]
        self.queues = [Queue() for _ in range(inputs)]
        self.out = Link()
        self.next = 0
        self.waiting = 0

    def cycle(self) -> None:
        for index, link in enumerate(self.inputs):
            if link.held:
                for package in link.take():
                    self.queues[index].push(package)
                    self.waiting += 1
        if not self.waiting:
            return
        for step in range(len(self.queues)):
            turn = (self.next + step) % len(self.queues)
            if self.queues[turn]:
                self.out.send([self.queues[turn].pop()])
                self.waiting -= 1
                self.next = (turn + 1) % len(self.queues)
                return


class Bus:
    """`lines` lines with `inputs` inputs each."""

    def __init__(self, lines: int, inputs: int) -> None:
        self.lines = [Line(inputs) for _ in range(lines)]

    def cycle(self) -> None:
        for line in self.lines:
            line.cycle()

    def counters(self) -> dict[str, dict[str, int]]:
        wires = [wire for line in self.lines for wire in (*line.inputs, line.out)]
        return {"CB_WIRE": wire_counts(wires), "FIFO": queue_counts(q for line in self.lines for q in line.queues)}

    def for_accumulators(self, count: int) -> list[Link]:
        """Input links of accumulators 0 to count-1: line by line in turn."""
        width = len(self.lines)
        return [self.lines[i % width].inputs[i // width] for i in range(count)]

    def for_tree(self, levels: int, extra: bool) -> dict[Node, Link]:
        """Input links of the adders: neighbours that share a sideways link sit on one line, the others follow."""
        width = len(self.lines)
        pairs = [(level, index) for level in range(2, levels) for index in range(2, 1 << level, 2)]
        singles: list[Node] = [(0, 0), EXTRA] if extra else [(0, 0)]
        singles += [node for level in range(1, levels) for node in ((level, 0), (level, (1 << level) - 1))]
        links: dict[Node, Link] = {}
        for x, (level, index) in enumerate(pairs):
            line = self.lines[x % width]
            links[level, index - 1] = line.inputs[2 * (x // width)]
            links[level, index] = line.inputs[2 * (x // width) + 1]
        offset = 2 * len(pairs)
        for y, node in enumerate(singles):
            links[node] = self.lines[(offset + y) % width].inputs[offset // width + 1 + y // width]
        return links
