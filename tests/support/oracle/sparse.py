"""Sparse times dense: bitmap operands with packing and folding, and compressed rows with tiles."""

from __future__ import annotations

import numpy as np

from .links import Package
from .machine import Machine, Memory, Outcome, linear_machine
from .multipliers import FORWARD, MULTIPLY, LinearMultipliers
from .reduction import Tree


class SparseMemory(Memory):
    """Shared by both controllers: states, and the networks to configure."""

    def __init__(self, machine: Machine) -> None:
        lines = [line.out for line in machine.bus.lines]
        super().__init__(machine.distribution.inputs, machine.distribution.width, lines)
        assert isinstance(machine.multipliers, LinearMultipliers)
        assert isinstance(machine.reduction, Tree)
        self.row, self.tree = machine.multipliers, machine.reduction
        self.state = "configure"

    def configure(self, sizes: list[int], folds: int, psum_first: bool = False) -> None:
        """Neurons of the given sizes side by side; the first multiplier may pass psums on instead."""
        self.row.reset()
        self.tree.reset()
        neurons, at = [], 0
        for neuron, size in enumerate(sizes):
            for place in range(size):
                role = FORWARD if psum_first and place == 0 else MULTIPLY
                self.row.cells[at + place].configure(role, neuron, folds)
            neurons.append((at, at + size - 1))
            at += size
        self.tree.configure(neurons, folds)


class BitmapMemory(SparseMemory):
    """Packs whole stationary vectors side by side, or folds one that is too long, and streams the other operand."""

    def __init__(self, machine: Machine, stationary: np.ndarray, streaming: np.ndarray) -> None:
        super().__init__(machine)
        self.stationary, self.streaming = stationary, streaming
        self.ones = [np.flatnonzero(vector) for vector in stationary]
        self.values = np.full((len(stationary), len(streaming)), np.nan)
        self.vector = self.taken = 0
        """First vector of this iteration, and how many of its ones earlier iterations have mapped."""
        self.mapped: list[np.ndarray] = []
        self.streamed = self.results = 0
        self.seen: list[int] = []

    def plan(self) -> None:
        """Chooses what this iteration maps and sets [begin, end), the positions it streams."""
        capacity = len(self.row.cells)
        length = self.stationary.shape[1]
        ones = self.ones[self.vector]
        self.folding = self.taken > 0
        self.begin = 0 if not self.folding else int(ones[self.taken - 1]) + 1
        self.end = length
        if self.folding or len(ones) > capacity:
            piece = ones[self.taken : self.taken + capacity - self.folding]
            self.mapped = [piece]
            if self.taken + len(piece) < len(ones):
                self.end = int(piece[-1]) + 1
        else:
            self.mapped, used = [], 0
            for candidate in self.ones[self.vector :]:
                if used + len(candidate) > capacity:
                    break
                self.mapped.append(candidate)
                used += len(candidate)
        self.streamed = self.results = 0
        self.seen = [0] * len(self.mapped)

    def cycle(self) -> None:
        state = self.state
        if state == "configure":
            self.plan()
            self.configure([len(piece) + self.folding for piece in self.mapped], 1, psum_first=self.folding)
            self.state = "stationary"
        elif state == "stationary":
            leaf = int(self.folding)
            for index, piece in enumerate(self.mapped):
                for j in piece:
                    self.weight_reads += 1
                    self.push(Package("weight", self.stationary[self.vector + index, j], (leaf,)))
                    leaf += 1
            self.state = "stream"
        elif state == "stream":
            self.stream()
            self.streamed += 1
            if self.streamed == len(self.streaming):
                self.state = "wait"
        self.receive()
        for result in self.consume():
            self.values[self.vector + result.neuron, self.seen[result.neuron]] = result.value
            self.seen[result.neuron] += 1
            self.writes += 1
            self.results += 1
        if state == "wait" and self.results == len(self.mapped) * len(self.streaming):
            self.advance()
        self.send()

    def stream(self) -> None:
        """One streaming vector: a value goes to all that hold its position, also where it is zero."""
        vector = self.streaming[self.streamed]
        if self.folding:
            self.psum_reads += 1
            self.push(Package("psum", self.values[self.vector, self.streamed], (0,)))
        leaves: dict[int, list[int]] = {}
        leaf = int(self.folding)
        for piece in self.mapped:
            for j in piece:
                leaves.setdefault(int(j), []).append(leaf)
                leaf += 1
        for j in range(self.begin, self.end):
            self.input_reads += vector[j] != 0
            if j in leaves:
                self.push(Package("input", vector[j], tuple(leaves[j])))

    def advance(self) -> None:
        total = len(self.ones[self.vector])
        if len(self.mapped) == 1 and self.taken + len(self.mapped[0]) < total:
            self.taken += len(self.mapped[0])
        else:
            self.vector += len(self.mapped)
            self.taken = 0
        self.state = "configure"
        self.finished = self.vector == len(self.ones)


def values_of(bitmap: np.ndarray, seed: int) -> np.ndarray:
    """A matrix with small non-zero numbers where the bitmap has ones."""
    return np.random.default_rng(seed).integers(1, 10, bitmap.shape) * (bitmap != 0).astype(float)


def run_bitmap(
    mk: np.ndarray,
    kn: np.ndarray,
    *,
    dataflow: str,
    multipliers: int,
    read_ports: int,
    write_ports: int,
    seed: int = 0,
) -> tuple[Outcome, np.ndarray]:
    """Bitmaps of both operands, as the hardware sees them. Dataflow MK_STA_KN_STR or MK_STR_KN_STA."""
    a, b = values_of(mk, seed), values_of(kn, seed + 1)
    machine = linear_machine(multipliers, read_ports, write_ports, "ASNETWORK", accumulators=False)
    stationary, streaming = (a, b.T) if dataflow == "MK_STA_KN_STR" else (b.T, a)
    if min(np.count_nonzero(stationary, axis=1)) < 3:
        raise ValueError("a stationary vector with fewer than three ones breaks the reduction tree")
    memory = BitmapMemory(machine, stationary, streaming)
    cycles = machine.run(memory)
    values = memory.values if dataflow == "MK_STA_KN_STR" else memory.values.T
    return machine.outcome(memory, cycles, values), a @ b


class RowMemory(SparseMemory):
    """One compressed row at a time: its values stay, T_N columns of the dense operand stream past T_K values each."""

    def __init__(self, machine: Machine, a: np.ndarray, b: np.ndarray, neurons: int, depth: int) -> None:
        super().__init__(machine)
        self.a, self.b, self.neurons, self.depth = a, b, neurons, depth
        # An empty row is kept as one explicit zero.
        self.rows = [columns if len(columns) else np.zeros(1, int) for columns in map(np.flatnonzero, a)]
        self.values = np.full((len(a), b.shape[1]), np.nan)
        self.row_index = self.fold = self.block = self.results = 0
        self.seen: list[int] = []

    def cycle(self) -> None:
        state, columns = self.state, self.rows[self.row_index]
        folds = -(-len(columns) // self.depth)
        blocks = -(-self.b.shape[1] // self.neurons)
        if state == "configure":
            self.configure([self.depth] * self.neurons, folds)
            self.fold = self.block = self.results = 0
            self.seen = [0] * self.neurons
            self.state = "stationary"
        elif state == "stationary":
            for place in range(self.depth):
                at, value = self.fold * self.depth + place, 0.0
                if at < len(columns):
                    value = self.a[self.row_index, columns[at]]
                    self.weight_reads += 1
                targets = tuple(neuron * self.depth + place for neuron in range(self.neurons))
                self.push(Package("weight", value, targets))
            self.fold += 1
            if self.fold == folds:
                self.fold, self.state = 0, "stream"
        elif state == "stream":
            for leaf in range(self.neurons * self.depth):
                neuron, place = divmod(leaf, self.depth)
                at, column, value = self.fold * self.depth + place, self.block * self.neurons + neuron, 0.0
                if at < len(columns) and column < self.b.shape[1]:
                    value = self.b[columns[at], column]
                    self.input_reads += 1
                self.push(Package("input", value, (leaf,)))
            self.fold += 1
            if self.fold == folds:
                self.fold, self.block = 0, self.block + 1
                if self.block == blocks:
                    self.state = "wait"
        self.receive()
        for result in self.consume():
            column = self.seen[result.neuron] * self.neurons + result.neuron
            self.seen[result.neuron] += 1
            self.results += 1
            if column < self.b.shape[1]:
                self.values[self.row_index, column] = result.value
                self.writes += 1
        if state == "wait" and self.results == blocks * self.neurons:
            self.row_index += 1
            self.state = "configure"
            self.finished = self.row_index == len(self.rows)
        self.send()


def run_rows(
    mk: np.ndarray,
    N: int,  # noqa: N803
    *,
    T_N: int,  # noqa: N803
    T_K: int,  # noqa: N803
    multipliers: int,
    read_ports: int,
    write_ports: int,
    seed: int = 0,
) -> tuple[Outcome, np.ndarray]:
    """Compressed rows (non-zeros of `mk`) times a dense matrix of N columns."""
    if T_K < 2 or multipliers < T_N * T_K:
        raise ValueError("neurons must have two multipliers or more, and fit")
    a = values_of(mk, seed)
    b = np.random.default_rng(seed + 1).integers(1, 10, (mk.shape[1], N)).astype(float)
    machine = linear_machine(multipliers, read_ports, write_ports, "ASNETWORK", accumulators=True)
    memory = RowMemory(machine, a, b, T_N, T_K)
    cycles = machine.run(memory)
    return machine.outcome(memory, cycles, memory.values), a @ b
