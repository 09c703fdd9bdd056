"""Multiplier networks: a row of multiplier switches with links to the left, and the output-stationary mesh."""

from __future__ import annotations

from .links import Link, Package, Queue, queue_counts, wire_counts

IDLE, MULTIPLY, FOLD, FORWARD, PRODUCE = "idle", "multiply", "fold", "forward", "produce"
"""Roles: multiply; feed partial sums of a fold from memory; pass every psum on; multiply straight to the memory."""


class Multiplier:
    """One multiplier switch."""

    def __init__(self, source: Link, sink: Link, memory: Link | None) -> None:
        self.source, self.sink, self.memory = source, sink, memory
        self.received: Link | None = None
        self.forwarded: Link | None = None
        self.weights, self.inputs, self.products = Queue(), Queue(), Queue()
        self.side_in, self.side_out = Queue(), Queue()
        self.multiplications = self.psums = self.configurations = 0
        self.reset()

    def reset(self) -> None:
        for queue in self.queues():
            queue.clear()
        self.role, self.neuron, self.folds, self.windows = IDLE, 0, 1, 1
        self.takes_side = self.gives_side = False
        self.window = self.fold = 0

    def queues(self) -> list[Queue]:
        return [self.inputs, self.side_in, self.side_out, self.weights, self.products]

    def configure(self, role: str, neuron: int, folds: int = 1, windows: int = 1) -> None:
        self.role, self.neuron, self.folds, self.windows = role, neuron, folds, windows
        self.configurations += 1

    def receive(self) -> None:
        for package in self.source.take():
            if package.kind == "weight":
                if len(self.weights) == self.folds:
                    self.weights.clear()
                self.weights.push(package)
            else:
                self.inputs.push(package)
                self.psums += package.kind == "psum"

    def emit(self, package: Package) -> None:
        self.products.push(package)
        link = self.memory if self.role == PRODUCE and self.memory is not None else self.sink
        link.send(self.products.drain())

    def psum(self, package: Package) -> Package:
        return Package(
            "psum", package.value, neuron=self.neuron, row=package.row, column=package.column, group=package.group
        )

    def next_fold(self) -> None:
        self.fold = (self.fold + 1) % self.folds

    def busy(self) -> bool:
        """Whether a step can change anything."""
        if self.source.held or self.inputs.items or self.side_in.items:
            return True
        if self.role == FOLD:
            return self.fold == 0
        return self.takes_side and self.received is not None and bool(self.received.held)

    def cycle(self) -> None:
        if self.role == FOLD and self.fold == 0:
            self.emit(Package("psum", 0.0, neuron=self.neuron))
            self.next_fold()
        elif self.role in (FOLD, FORWARD):
            self.receive()
            if self.inputs:
                self.emit(self.psum(self.inputs.pop()))
                self.next_fold()
        else:
            self.multiply()

    def multiply(self) -> None:
        if self.source.held:
            self.receive()
        if self.takes_side and self.received is not None:
            for package in self.received.take():
                self.side_in.push(package)
        operands = self.side_in if self.takes_side and self.window > 0 else self.inputs
        if not operands or len(self.weights) < self.folds:
            return
        operand, weight = operands.pop(), self.weights.pop()
        self.weights.push(weight)
        self.multiplications += 1
        self.emit(
            Package(
                "psum",
                operand.value * weight.value,
                neuron=self.neuron,
                row=weight.row,
                column=operand.column,
                group=weight.group,
            )
        )
        if self.gives_side and self.forwarded is not None and self.window < self.windows - 1:
            self.side_out.push(operand)
            self.forwarded.send(self.side_out.drain())
        self.next_fold()
        if self.fold == 0:
            self.window = (self.window + 1) % self.windows


class LinearMultipliers:
    """Multipliers 0 to n-1; each can hand an activation to its left neighbour, which sees it in the next cycle."""

    def __init__(self, count: int, memory: list[Link] | None = None) -> None:
        self.sources = [Link() for _ in range(count)]
        self.sinks = [Link() for _ in range(count)]
        self.cells = [Multiplier(self.sources[i], self.sinks[i], memory[i] if memory else None) for i in range(count)]
        self.side_links = [Link() for _ in range(count - 1)]
        for index, link in enumerate(self.side_links):
            self.cells[index].received = link
            self.cells[index + 1].forwarded = link

    def reset(self) -> None:
        for cell in self.cells:
            cell.reset()

    def cycle(self) -> None:
        for cell in self.cells:
            if cell.role != IDLE and cell.busy():
                cell.cycle()

    def counters(self) -> dict[str, dict[str, int]]:
        return {
            "MN_WIRE": wire_counts(self.side_links),
            "MULTIPLIER": {
                "entries": len(self.cells),
                "MULTIPLICATION": sum(cell.multiplications for cell in self.cells),
                "FORWARD_PSUM": sum(cell.psums for cell in self.cells),
                "CONFIGURATION": sum(cell.configurations for cell in self.cells),
            },
            "FIFO": queue_counts(queue for cell in self.cells for queue in cell.queues()),
        }


class MeshCell:
    """One processing element: multiplies when both operands are there, passes them right and down."""

    def __init__(self, left: Link, top: Link, right: Link | None, bottom: Link | None, sink: Link) -> None:
        self.left, self.top, self.right, self.bottom, self.sink = left, top, right, bottom, sink
        self.left_queue, self.top_queue = Queue(), Queue()
        self.right_queue, self.bottom_queue, self.products = Queue(), Queue(), Queue()
        self.passes_right = self.passes_down = False
        self.neuron = self.multiplications = self.configurations = 0

    def queues(self) -> list[Queue]:
        return [self.top_queue, self.left_queue, self.right_queue, self.bottom_queue, self.products]

    def configure(self, neuron: int, passes_right: bool, passes_down: bool) -> None:
        self.neuron, self.passes_right, self.passes_down = neuron, passes_right, passes_down
        self.configurations += 1

    def busy(self) -> bool:
        return bool(self.left.held or self.top.held or (self.left_queue.items and self.top_queue.items))

    def cycle(self) -> None:
        for package in self.left.take():
            self.left_queue.push(package)
        for package in self.top.take():
            self.top_queue.push(package)
        if not self.left_queue or not self.top_queue:
            return
        operand, weight = self.left_queue.pop(), self.top_queue.pop()
        self.multiplications += 1
        self.products.push(Package("psum", operand.value * weight.value, neuron=self.neuron))
        self.sink.send(self.products.drain())
        if self.passes_right and self.right is not None:
            self.right_queue.push(operand)
            self.right.send(self.right_queue.drain())
        if self.passes_down and self.bottom is not None:
            self.bottom_queue.push(weight)
            self.bottom.send(self.bottom_queue.drain())


class MeshMultipliers:
    """rows x columns cells, stepped from the bottom-right one so that what they pass on is seen a cycle later.

    The sources are the column inputs (weights from above), then the row inputs (activations from the left).
    """

    def __init__(self, rows: int, columns: int) -> None:
        self.sources = [Link() for _ in range(columns + rows)]
        self.sinks = [Link() for _ in range(rows * columns)]
        down = {(i, j): Link() for i in range(rows - 1) for j in range(columns)}
        across = {(i, j): Link() for i in range(rows) for j in range(columns - 1)}
        self.inner = [*down.values(), *across.values()]
        self.cells = [
            MeshCell(
                left=across[i, j - 1] if j else self.sources[columns + i],
                top=down[i - 1, j] if i else self.sources[j],
                right=across.get((i, j)),
                bottom=down.get((i, j)),
                sink=self.sinks[i * columns + j],
            )
            for i in range(rows)
            for j in range(columns)
        ]

    def cycle(self) -> None:
        for cell in reversed(self.cells):
            if cell.busy():
                cell.cycle()

    def counters(self) -> dict[str, dict[str, int]]:
        return {
            "MN_WIRE": wire_counts(self.inner),
            "MULTIPLIER": {
                "entries": len(self.cells),
                "MULTIPLICATION": sum(cell.multiplications for cell in self.cells),
                "CONFIGURATION": sum(cell.configurations for cell in self.cells),
            },
            "FIFO": queue_counts(queue for cell in self.cells for queue in cell.queues()),
        }
