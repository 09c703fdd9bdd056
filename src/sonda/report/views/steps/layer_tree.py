"""The layer tree, folded so that a figure stays readable and quick however many layers there are."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sonda.analysis.summary import LayerRow

LIMIT = 2000
"""Nodes that one view draws at most."""

MAIN = ""


@dataclass(frozen=True)
class Node:
    """A layer, or several small ones folded into one: `row` is None then, and `view` names what unfolds them."""

    id: str
    parent: str
    label: str
    """A layer's path after that of the node above."""
    row: LayerRow | None
    own: float
    """What is outside of the nodes below it: ns per step, or what the tree is weighed by."""
    depth: int
    folded: int = 0
    """Layers that this node stands for, where it is not one itself."""
    view: str = ""
    index: int = -1
    """Of the layer in the sequence that was folded; -1 where it stands for several."""
    members: tuple[int, ...] = ()
    """Indices of the uppermost layers that it stands for."""


Weight = Callable[[LayerRow], float]
"""How much of something is in a layer without the layers inside."""


def own_time(row: LayerRow) -> float:
    """ns per step, forward and backward, without the layers inside."""
    return row.own.value or 0.0


def fold(layers: Sequence[LayerRow], limit: int = LIMIT, weight: Weight = own_time) -> dict[str, tuple[Node, ...]]:
    """Views of the tree by name; `MAIN` is the whole. Each view has at most `limit` nodes, parents before children.

    The layers of most weight stay; the others of each parent become one node, which another view unfolds. Every layer
    is a node of its own in exactly one view.
    """
    forest = _Forest(layers, weight)
    views: dict[str, tuple[Node, ...]] = {}
    waiting: list[tuple[str, list[int]]] = [(MAIN, forest.roots)]
    while waiting:
        name, tops = waiting.pop()
        nodes, rest = _view(forest, name, tops, max(1, (limit - 2) // 2))
        views[name] = tuple(nodes)
        waiting += rest
    return views


def whole(layers: Sequence[LayerRow]) -> tuple[Node, ...]:
    """Every layer as a node, parents before children: the tree with nothing folded."""
    forest = _Forest(layers, own_time)
    nodes: list[Node] = []
    stack = [(index, "", 0) for index in reversed(forest.roots)]
    while stack:
        index, parent, depth = stack.pop()
        nodes.append(forest.node(index, parent, depth))
        stack.extend((child, f"n{index}", depth + 1) for child in reversed(forest.children[index]))
    return tuple(nodes)


class _Forest:
    """Children and weights of the layers, found from their paths."""

    def __init__(self, layers: Sequence[LayerRow], weight: Weight) -> None:
        self.layers = layers
        first: dict[str, int] = {}
        for index, row in enumerate(layers):
            first.setdefault(row.path, index)
        self.children: list[list[int]] = [[] for _ in layers]
        self.roots: list[int] = []
        self.prefix = [0] * len(layers)
        """Characters of each path that the path above it already tells."""
        for index, row in enumerate(layers):
            above = self._above(row.path, first)
            if above is not None and layers[above].path:
                self.prefix[index] = len(layers[above].path) + 1
            (self.roots if above is None else self.children[above]).append(index)
        self.size = [1] * len(layers)
        self.own = [max(0.0, weight(row)) for row in layers]
        self.total = list(self.own)
        for index in reversed(self.walk(self.roots)):
            for child in self.children[index]:
                self.size[index] += self.size[child]
                self.total[index] += self.total[child]

    def node(self, index: int, parent: str, depth: int) -> Node:
        row = self.layers[index]
        label = row.path[self.prefix[index] :] or f"({row.name})"
        return Node(f"n{index}", parent, label, row, self.own[index], depth, index=index, members=(index,))

    def walk(self, tops: list[int]) -> list[int]:
        """Parents before children."""
        order: list[int] = []
        stack = list(reversed(tops))
        while stack:
            index = stack.pop()
            order.append(index)
            stack.extend(reversed(self.children[index]))
        return order

    @staticmethod
    def _above(path: str, first: dict[str, int]) -> int | None:
        # Modules that were never called have no row, so the parent is the nearest ancestor that has one.
        while path:
            path = path.rpartition(".")[0]
            if path in first:
                return first[path]
        return None


def _view(forest: _Forest, name: str, tops: list[int], most: int) -> tuple[list[Node], list[tuple[str, list[int]]]]:
    kept: set[int] = set()
    queue = [(-forest.total[index], index) for index in tops]
    heapq.heapify(queue)
    while queue and len(kept) < most:
        _, index = heapq.heappop(queue)
        kept.add(index)
        for child in forest.children[index]:
            heapq.heappush(queue, (-forest.total[child], child))
    nodes: list[Node] = []
    rest: list[tuple[str, list[int]]] = []

    def add_folded(parent: str, folded: list[int], depth: int) -> None:
        if not folded:
            return
        view = f"{name}o{len(rest)}"
        own = sum(forest.total[index] for index in folded)
        count = sum(forest.size[index] for index in folded)
        nodes.append(Node(view, parent, f"{count:,} smaller layers", None, own, depth, count, view, -1, tuple(folded)))
        rest.append((view, folded))

    top = ""
    if name != MAIN or len(tops) > 1:
        top = "all"
        count = sum(forest.size[index] for index in tops)
        nodes.append(Node(top, "", f"{count:,} layers", None, 0.0, 0, count, members=tuple(tops)))
    base = 1 if top else 0
    # A list on the stack is what was folded away among siblings; it comes after those that stay.
    stack: list[tuple[int | list[int], str, int]] = []

    def push(siblings: list[int], parent: str, depth: int) -> None:
        stack.append(([index for index in siblings if index not in kept], parent, depth))
        stack.extend((index, parent, depth) for index in reversed(siblings) if index in kept)

    push(tops, top, base)
    while stack:
        entry, parent, depth = stack.pop()
        if isinstance(entry, list):
            add_folded(parent, entry, depth)
            continue
        nodes.append(forest.node(entry, parent, depth))
        push(forest.children[entry], f"n{entry}", depth + 1)
    return nodes, rest
