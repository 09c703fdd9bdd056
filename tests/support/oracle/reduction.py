"""Reduction networks: augmented tree with or without accumulators, fold tree, accumulators alone, merge tree."""

from __future__ import annotations

from dataclasses import dataclass, field

from .links import Link, Package, Queue, queue_counts, wire_counts

LEFT, RIGHT, SIDE = "left", "right", "side"
UP, ACROSS, OUT = "up", "across", "out"
Node = tuple[int, int]
"""Level (0 = root) and index of an adder. (0, -1) is the extra fold node beside the root."""
EXTRA: Node = (0, -1)


@dataclass
class Plan:
    """How the tree serves a set of virtual neurons."""

    work: dict[Node, list[tuple[tuple[str, ...], str]]] = field(default_factory=dict)
    """Per adder, one entry per neuron it works for: the inputs it waits for, and where the sum goes."""
    roots: list[Node] = field(default_factory=list)
    configured: set[Node] = field(default_factory=set)
    """Adders that receive a configuration: those at work and every node above a root."""


def plan_tree(neurons: list[tuple[int, int]], levels: int) -> Plan:
    """The plan for neurons given as first and last multiplier, consecutive and in order.

    A node that owns children of two neurons cannot give both to its parent; the links between neighbours of different
    parents let a neuron pull in its ends, so that above the leaves each node works for one neuron only.
    """
    plan = Plan()
    for low, high in neurons:
        for level in range(levels - 1, -1, -1):
            first, last = low >> 1, high >> 1
            across: dict[int, int] = {}
            if first % 2 and last == first + 1:
                if 2 * first + 2 - low >= high - 2 * last + 1:
                    across[last] = first
                else:
                    across[first] = last
            else:
                if first % 2 and first < last:
                    across[first] = first + 1
                if last % 2 == 0 and last > first:
                    across[last] = last - 1
            kept = [index for index in range(first, last + 1) if index not in across]
            for index in range(first, last + 1):
                inputs = [side for side, child in ((LEFT, 2 * index), (RIGHT, 2 * index + 1)) if low <= child <= high]
                if index in across.values():
                    inputs.append(SIDE)
                goes = ACROSS if index in across else OUT if len(kept) == 1 else UP
                plan.work.setdefault((level, index), []).append((tuple(inputs), goes))
                plan.configured.add((level, index))
            low, high = kept[0], kept[-1]
            if low == high:
                plan.roots.append((level, low))
                plan.configured.update((above, low >> (level - above)) for above in range(level))
                break
    return plan


class Adder:
    """One adder switch of a tree."""

    def __init__(self) -> None:
        self.inputs = {LEFT: Link(), RIGHT: Link()}
        self.side: Link | None = None
        self.parent: Link | None = None
        self.out: Link | None = None
        self.fold_in: list[Link] = []
        self.queues = {LEFT: Queue(), RIGHT: Queue(), SIDE: Queue()}
        self.up_queue, self.across_queue = Queue(), Queue()
        self.fold_queue = Queue()
        self.two_operands = self.three_operands = self.configurations = 0
        self.merges = False
        self.reset()

    def reset(self) -> None:
        for queue in self.all_queues():
            queue.clear()
        self.work: list[tuple[tuple[str, ...], str]] = []
        self.folds = 0
        self.held: Package | None = None
        self.results = 0

    def all_queues(self) -> list[Queue]:
        return [*self.queues.values(), self.across_queue, self.up_queue]

    def busy(self) -> bool:
        """Whether a step can change anything. A sum needs an arrival: each link brings one operand a cycle."""
        if self.inputs[LEFT].held or self.inputs[RIGHT].held or (self.side is not None and self.side.held):
            return True
        if self.merges:
            return bool(self.queues[LEFT].items or self.queues[RIGHT].items)
        return self.folds > 0 and any(link.held for link in self.fold_in)

    def cycle(self) -> None:
        for side, link in self.inputs.items():
            for package in link.take():
                self.queues[side].push(package)
        if self.side is not None and any(SIDE in inputs for inputs, _ in self.work):
            for package in self.side.take():
                self.queues[SIDE].push(package)
        if self.fold_in:
            self.fold()
        if self.merges:
            self.merge()
        else:
            for inputs, goes in self.work:
                if all(self.queues[side] for side in inputs):
                    self.add(inputs, goes)
        self.send()

    def add(self, inputs: tuple[str, ...], goes: str) -> None:
        operands = [self.queues[side].pop() for side in inputs]
        if len({operand.neuron for operand in operands}) > 1:
            raise RuntimeError("an adder met products of two virtual neurons")
        self.two_operands += len(operands) == 2
        self.three_operands += len(operands) == 3
        result = Package("psum", sum(operand.value for operand in operands), neuron=operands[0].neuron)
        (self.across_queue if goes == ACROSS else self.up_queue).push(result)

    def fold(self) -> None:
        """Work of a fold node: accumulates `folds` results that its neuron's root handed to it."""
        arrived = [package for link in self.fold_in for package in link.take()]
        if len(arrived) > 1:
            raise RuntimeError("two roots hand their results to one fold node")
        for package in arrived:
            self.fold_queue.push(package)
        if not self.folds or not self.fold_queue:
            return
        package = self.fold_queue.pop()
        if self.held is not None:
            self.two_operands += 1
            package = Package("psum", self.held.value + package.value, neuron=package.neuron)
        self.results += 1
        self.held = package
        if self.results == self.folds:
            self.up_queue.push(package)
            self.held, self.results = None, 0

    def merge(self) -> None:
        """One step of a merge by column: the smaller column goes on, equal columns are added."""
        left, right = self.queues[LEFT], self.queues[RIGHT]
        if left and right:
            first, second = left.front(), right.front()
            if first.column < second.column:
                self.up_queue.push(left.pop())
            elif first.column > second.column:
                self.up_queue.push(right.pop())
            else:
                self.two_operands += 1
                left.pop()
                right.pop()
                self.up_queue.push(
                    Package("psum", first.value + second.value, row=first.row, column=first.column, group=first.group)
                )
        elif left:
            self.up_queue.push(left.pop())
        elif right:
            self.up_queue.push(right.pop())

    def send(self) -> None:
        if self.across_queue and self.side is not None:
            self.side.send(self.across_queue.drain())
        if self.up_queue:
            leaves = self.folds or any(goes == OUT for _, goes in self.work)
            link = self.out if leaves and self.out is not None else self.parent
            if link is None:
                raise RuntimeError("a result has nowhere to go")
            link.send(self.up_queue.drain())


class Accumulator:
    """Adds `folds` consecutive arrivals, one a cycle, and passes the sum on."""

    def __init__(self, source: Link, out: Link) -> None:
        self.source, self.out = source, out
        self.arrived, self.leaving = Queue(), Queue()
        self.held = 0.0
        self.count = 0
        self.folds = 1
        self.reads = self.writes = self.adds = 0

    def busy(self) -> bool:
        return bool(self.source.held or self.arrived.items)

    def cycle(self) -> None:
        for package in self.source.take():
            self.arrived.push(package)
        if self.arrived:
            package = self.arrived.pop()
            if self.count:
                self.reads += 1
                self.adds += 1
                self.held += package.value
            else:
                self.held = package.value
            self.writes += 1
            self.count += 1
            if self.count == self.folds:
                self.leaving.push(Package("psum", self.held, neuron=package.neuron))
                self.count = 0
        if self.leaving:
            self.out.send(self.leaving.drain())


def accumulator_counts(accumulators: list[Accumulator]) -> dict[str, int]:
    return {
        "entries": len(accumulators),
        "READ": sum(accumulator.reads for accumulator in accumulators),
        "WRITE": sum(accumulator.writes for accumulator in accumulators),
        "ADD": sum(accumulator.adds for accumulator in accumulators),
    }


class Accumulators:
    """No adders: product i goes to accumulator i (TEMPORALRN; also the mesh)."""

    def __init__(self, sinks: list[Link], outs: list[Link]) -> None:
        self.links = sinks
        self.accumulators = [Accumulator(sink, out) for sink, out in zip(sinks, outs, strict=True)]

    def configure(self, folds: int) -> None:
        for accumulator in self.accumulators:
            accumulator.folds = folds

    def cycle(self) -> None:
        for accumulator in self.accumulators:
            if accumulator.busy():
                accumulator.cycle()

    def counters(self) -> dict[str, dict[str, int]]:
        queues = [queue for one in self.accumulators for queue in (one.arrived, one.leaving)]
        return {
            "RN_WIRE": wire_counts(self.links),
            "ACCUMULATOR": accumulator_counts(self.accumulators),
            "FIFO": queue_counts(queues),
        }


class Tree:
    """Adders in levels 0 (root) to L-1 (leaves), with links between neighbours that have different parents.

    `fold_nodes` gives the fold tree, `accumulators` one accumulator behind every adder.
    """

    def __init__(self, sinks: list[Link], outs: dict[Node, Link], accumulators: bool, fold_nodes: bool) -> None:
        self.levels = (len(sinks) - 1).bit_length()
        self.nodes: dict[Node, Adder] = {(0, 0): Adder()}
        if fold_nodes:
            self.nodes[EXTRA] = Adder()
        for level in range(1, self.levels):
            self.nodes.update({(level, index): Adder() for index in range(1 << level)})
        # From the root down and receivers of sideways links first, so that what an adder sends is seen a cycle later.
        self.order = list(self.nodes.values())
        self.links: list[Link] = []
        self.fold_nodes = fold_nodes
        for multiplier, sink in enumerate(sinks):
            self.nodes[self.levels - 1, multiplier >> 1].inputs[RIGHT if multiplier % 2 else LEFT] = sink
        for (level, index), adder in self.nodes.items():
            self.links.extend(adder.inputs.values())
            if level:
                adder.parent = self.nodes[level - 1, index >> 1].inputs[RIGHT if index % 2 else LEFT]
            if index >= 2 and index % 2 == 0:
                adder.side = self.nodes[level, index - 1].side = Link()
                self.links.append(adder.side)
        self.accumulators: list[Accumulator] = []
        for node, adder in self.nodes.items():
            adder.out = outs[node]
            if accumulators:
                adder.out = Link()
                self.links.append(adder.out)
                self.accumulators.append(Accumulator(adder.out, outs[node]))
        if fold_nodes:
            self._fold_links()

    def _fold_links(self) -> None:
        self.fold_links: dict[Node, Link] = {}
        for node in self.nodes:
            if node != EXTRA:
                link = self.fold_links[node] = Link()
                self.nodes[self.fold_node(node)].fold_in.append(link)
                self.links.append(link)

    @staticmethod
    def fold_node(root: Node) -> Node:
        """The node that accumulates the results of a neuron whose root is `root`."""
        level, index = root
        if root == (0, 0):
            return EXTRA
        if index % 2 == 0:
            return level - 1, index // 2
        while index % 2:
            level, index = level - 1, index // 2
        return (level - 1, index // 2) if level >= 1 else EXTRA

    def reset(self) -> None:
        for adder in self.nodes.values():
            adder.reset()

    def configure(self, neurons: list[tuple[int, int]], folds: int) -> None:
        plan = plan_tree(neurons, self.levels)
        for node, work in plan.work.items():
            self.nodes[node].work = work
        receives = {node for node, work in plan.work.items() if any(SIDE in inputs for inputs, _ in work)}
        self.order = [self.nodes[node] for node in sorted(self.nodes, key=lambda node: (node[0], node not in receives))]
        for accumulator in self.accumulators:
            accumulator.folds = folds
        if not self.fold_nodes:
            for node in plan.configured:
                self.nodes[node].configurations += 1
            return
        for root in plan.roots:
            # The root hands over to its fold node instead of the bus.
            self.nodes[root].out = self.fold_links[root]
            self.nodes[self.fold_node(root)].folds = folds

    def configure_merge(self) -> None:
        for node, adder in self.nodes.items():
            adder.merges = True
            adder.work = [((LEFT, RIGHT), OUT if node == (0, 0) else UP)]
            adder.configurations += 1

    def cycle(self) -> None:
        for accumulator in self.accumulators:
            if accumulator.busy():
                accumulator.cycle()
        for adder in self.order:
            if adder.busy():
                adder.cycle()

    def counters(self) -> dict[str, dict[str, int]]:
        adders = list(self.nodes.values())
        queues = [queue for adder in adders for queue in adder.all_queues()]
        queues += [queue for one in self.accumulators for queue in (one.arrived, one.leaving)]
        counters = {
            "RN_WIRE": wire_counts(self.links),
            "ADDER": {
                "entries": len(adders),
                "ADD_2_1": sum(adder.two_operands for adder in adders),
                "ADD_3_1": sum(adder.three_operands for adder in adders),
                "CONFIGURATION": sum(adder.configurations for adder in adders),
            },
            "FIFO": queue_counts(queues),
        }
        if self.accumulators:
            counters["ACCUMULATOR"] = accumulator_counts(self.accumulators)
        return counters
