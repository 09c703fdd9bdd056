"""Sparse times sparse, products merged by column: outer product and Gustavson's rows, with ideal memory."""

from __future__ import annotations

from collections import deque

import numpy as np

from .bus import Bus
from .distribution import Distribution
from .links import Package
from .machine import Machine, Memory, Outcome, power_of_two
from .multipliers import FORWARD, MULTIPLY, PRODUCE, LinearMultipliers
from .reduction import Tree
from .sparse import values_of

Fibre = deque[Package]


def merge_machine(multipliers: int, read_ports: int, write_ports: int) -> Machine:
    """Multipliers that can also send straight to a bus of their own, under a tree that merges."""
    power_of_two(multipliers=multipliers, read_ports=read_ports, write_ports=write_ports)
    bus = Bus(write_ports, multipliers // write_ports + 1)
    share = multipliers // write_ports
    product_bus = Bus(write_ports, share)
    row = LinearMultipliers(multipliers, [product_bus.lines[i // share].inputs[i % share] for i in range(multipliers)])
    outs = bus.for_tree((multipliers - 1).bit_length(), extra=False)
    tree = Tree(row.sinks, outs, accumulators=False, fold_nodes=False)
    return Machine(row, Distribution(read_ports, row.sources), tree, bus, product_bus)


class MergeMemory(Memory):
    """Shared by both controllers. A request of one cycle is answered at the start of the next."""

    def __init__(self, machine: Machine, a: np.ndarray, b: np.ndarray) -> None:
        assert machine.product_bus is not None
        lines = [line.out for bus in (machine.bus, machine.product_bus) for line in bus.lines]
        super().__init__(machine.distribution.inputs, machine.distribution.width, lines)
        assert isinstance(machine.multipliers, LinearMultipliers)
        assert isinstance(machine.reduction, Tree)
        self.row, self.tree = machine.multipliers, machine.reduction
        self.a, self.b = a, b
        self.streams = [np.flatnonzero(row) for row in b]
        self.values = np.zeros((len(a), b.shape[1]))
        self.requested: list[Package] = []
        self.state = "configure"
        self.held: list[tuple[int, int]] = []
        """Row and column of A in multipliers 0, 1, …"""
        self.element = 0
        self.fibres: list[Fibre] = []
        self.merged: list[Fibre] = []
        self.part = self.parts = 0
        """Which block of fibres is merged in this pass, of how many."""
        self.received_one = False

    def set_role(self, role: str) -> None:
        self.row.reset()
        for cell in self.row.cells:
            cell.role = role

    def set_merge(self) -> None:
        self.tree.reset()
        self.tree.configure_merge()

    def request_weights(self, entries: list[tuple[int, int]], groups: list[int]) -> None:
        self.held, self.element = entries, 0
        for leaf, ((row, column), group) in enumerate(zip(entries, groups, strict=True)):
            self.weight_reads += 1
            self.requested.append(Package("weight", self.a[row, column], (leaf,), row=row, column=column, group=group))

    def request_elements(self) -> bool:
        """The next element of the row of B that each multiplier needs; False when no row has one left."""
        found = False
        for leaf, (_, row) in enumerate(self.held):
            if self.element < len(self.streams[row]):
                found = True
                column = int(self.streams[row][self.element])
                self.input_reads += 1
                self.requested.append(Package("input", self.b[row, column], (leaf,), row=row, column=column))
        self.element += 1
        return found

    def send_fibres(self) -> bool:
        """One element of each fibre of the current block; False when they are empty."""
        width = len(self.row.cells)
        found = False
        for leaf, fibre in enumerate(self.fibres[self.part * width : (self.part + 1) * width]):
            if fibre:
                found = True
                package = fibre.popleft()
                self.psum_reads += 1
                self.push(
                    Package("psum", package.value, (leaf,), row=package.row, column=package.column, group=self.part)
                )
        return found

    def keep(self, fibres: list[Fibre], package: Package) -> None:
        while len(fibres) <= package.group:
            fibres.append(deque())
        fibres[package.group].append(package)
        self.writes += 1

    def store(self, package: Package) -> None:
        self.values[package.row, package.column] += package.value
        self.dram_writes += 1


def check_patterns(a: np.ndarray, b: np.ndarray) -> None:
    """The controllers wait for something to arrive from every row and never leave one from which nothing comes."""
    if not (a.any(axis=0).all() and a.any(axis=1).all() and b.any(axis=1).all()):
        raise ValueError("empty rows and columns are not served")


class OuterMemory(MergeMemory):
    """All products first, chunk by chunk in column order of A; then row by row the merging of their fibres."""

    def __init__(self, machine: Machine, a: np.ndarray, b: np.ndarray) -> None:
        super().__init__(machine, a, b)
        self.entries = [(int(row), int(column)) for column, row in zip(*np.nonzero(a.T), strict=True)]
        self.products: list[list[Fibre]] = [[] for _ in a]
        self.fibre_of: dict[int, int] = {}
        self.sent = self.arrived = 0
        self.merged_row = 0
        self.starts_row = True

    def cycle(self) -> None:
        state = self.state
        for package in self.requested:
            self.push(package)
        self.requested = []
        advance = getattr(self, "in_" + state)()
        self.receive()
        idle = not self.write_queue
        for package in self.consume():
            self.received_one = True
            if state in ("stationary", "stream", "wait", "configure"):
                self.arrived += 1
                fibres = self.products[package.row]
                if package.group not in self.fibre_of:
                    self.fibre_of[package.group] = len(fibres)
                    fibres.append(deque())
                fibres[self.fibre_of[package.group]].append(package)
                self.writes += 1
            elif self.parts > 1:
                self.keep(self.merged, package)
            else:
                self.store(package)
        if state == "wait" and self.arrived == self.sent:
            self.state = "configure" if self.entries else "configure_merge"
        elif state == "collect" and idle and self.received_one:
            self.end_block()
        elif advance is not None:
            self.state = advance
        self.send()

    def in_configure(self) -> str:
        self.set_role(PRODUCE)
        self.sent = self.arrived = 0
        self.fibre_of = {}
        return "stationary"

    def in_stationary(self) -> str:
        chunk, self.entries = self.entries[: len(self.row.cells)], self.entries[len(self.row.cells) :]
        self.request_weights(chunk, list(range(len(chunk))))
        return "stream"

    def in_stream(self) -> str | None:
        before = self.input_reads
        found = self.request_elements()
        self.sent += self.input_reads - before
        return None if found else "wait"

    def in_wait(self) -> None:
        return None

    def in_configure_merge(self) -> str:
        self.set_merge()
        self.set_role(FORWARD)
        if self.starts_row:
            self.fibres, self.merged, self.starts_row = self.products[self.merged_row], [], False
        self.parts = -(-len(self.fibres) // len(self.row.cells))
        return "send_down"

    def in_send_down(self) -> str | None:
        if self.send_fibres():
            return None
        self.part += 1
        self.received_one = False
        return "collect"

    def in_collect(self) -> None:
        return None

    def end_block(self) -> None:
        """Nothing arrives any more: the block is merged."""
        self.state = "configure_merge"
        if self.part < self.parts:
            return
        self.part = 0
        if self.parts > 1:
            self.fibres, self.merged = self.merged, []
            return
        self.merged_row += 1
        self.starts_row = True
        self.finished = self.merged_row == len(self.a)


class RowsMemory(MergeMemory):
    """Row by row of A: products are merged as they appear; rows that need several chunks are merged again."""

    def __init__(self, machine: Machine, a: np.ndarray, b: np.ndarray) -> None:
        super().__init__(machine, a, b)
        self.rows = [(row, list(np.flatnonzero(line))) for row, line in enumerate(a)]
        self.ready: list[Fibre] = []
        self.starts_row = True

    def cycle(self) -> None:
        state = self.state
        # Held back until every element of the chunk is here, so that the merger sees the fibres in step.
        for package in self.requested:
            self.ready[package.targets[0]].append(package)
        self.requested = []
        advance = getattr(self, "in_" + state)()
        self.receive()
        idle = not self.write_queue
        for package in self.consume():
            self.received_one = True
            if self.parts > 1:
                self.keep(self.merged, package)
            else:
                self.store(package)
        if idle and self.received_one and state in ("wait", "collect"):
            self.received_one = False
            self.end_block(state)
        elif advance is not None:
            self.state = advance
            if state == "send_down":
                self.received_one = False
        self.send()

    def in_configure(self) -> str:
        self.set_role(MULTIPLY)
        self.set_merge()
        if self.starts_row:
            self.parts = -(-len(self.rows[0][1]) // len(self.row.cells))
            self.part, self.merged, self.fibres, self.starts_row = 0, [], [], False
        return "stationary"

    def in_stationary(self) -> str:
        row, columns = self.rows[0]
        width = len(self.row.cells)
        chunk = columns[self.part * width : (self.part + 1) * width]
        self.request_weights([(row, int(column)) for column in chunk], [self.part] * len(chunk))
        self.ready = [deque() for _ in chunk]
        return "stream"

    def in_stream(self) -> str | None:
        if self.request_elements():
            return None
        self.part += 1
        return "wait"

    def in_wait(self) -> None:
        for fibre in self.ready:
            if fibre:
                self.push(fibre.popleft())

    def in_configure_merge(self) -> str:
        self.set_merge()
        self.set_role(FORWARD)
        self.parts = -(-len(self.fibres) // len(self.row.cells))
        return "send_down"

    def in_send_down(self) -> str | None:
        if self.send_fibres():
            return None
        self.part += 1
        return "collect"

    def in_collect(self) -> None:
        return None

    def end_block(self, state: str) -> None:
        if self.part < self.parts:
            self.state = "configure" if state == "wait" else "configure_merge"
            return
        if self.parts == 1:
            self.rows.pop(0)
            self.starts_row = True
            self.state = "configure"
            self.finished = not self.rows
            return
        self.part = 0
        self.fibres, self.merged = self.merged, []
        self.state = "configure_merge"


def run_outer(
    a_pattern: np.ndarray,
    b_pattern: np.ndarray,
    *,
    multipliers: int,
    read_ports: int,
    write_ports: int,
    seed: int = 0,
) -> tuple[Outcome, np.ndarray]:
    """Outer product of sparse matrices with the given non-zeros."""
    check_patterns(a_pattern, b_pattern)
    a, b = values_of(a_pattern, seed), values_of(b_pattern, seed + 1)
    machine = merge_machine(multipliers, read_ports, write_ports)
    memory = OuterMemory(machine, a, b)
    cycles = machine.run(memory)
    return machine.outcome(memory, cycles, memory.values), a @ b


def run_gustavson(
    a_pattern: np.ndarray,
    b_pattern: np.ndarray,
    *,
    multipliers: int,
    read_ports: int,
    write_ports: int,
    seed: int = 0,
) -> tuple[Outcome, np.ndarray]:
    """Gustavson's row-wise product of sparse matrices with the given non-zeros."""
    check_patterns(a_pattern, b_pattern)
    a, b = values_of(a_pattern, seed), values_of(b_pattern, seed + 1)
    machine = merge_machine(multipliers, read_ports, write_ports)
    memory = RowsMemory(machine, a, b)
    cycles = machine.run(memory)
    return machine.outcome(memory, cycles, memory.values), a @ b
