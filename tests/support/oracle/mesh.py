"""Output-stationary mesh: weights from above, activations from the left, one accumulator per cell."""

from __future__ import annotations

import numpy as np

from .bus import Bus
from .distribution import Distribution
from .links import Package
from .machine import Machine, Memory, Outcome
from .multipliers import MeshMultipliers
from .reduction import Accumulators


class MeshMemory(Memory):
    """Tile after tile: configure, stream K steps of operands, wait for the results."""

    def __init__(self, machine: Machine, a: np.ndarray, b: np.ndarray, tile: tuple[int, int], columns: int) -> None:
        lines = [line.out for line in machine.bus.lines]
        super().__init__(machine.distribution.inputs, machine.distribution.width, lines)
        self.machine, self.a, self.b, self.columns = machine, a, b, columns
        rows, width = tile
        self.tiles = [
            (i, min(i + rows, len(a)), j, min(j + width, b.shape[1]))
            for i in range(0, len(a), rows)
            for j in range(0, b.shape[1], width)
        ]
        self.values = np.full((len(a), b.shape[1]), np.nan)
        self.state, self.step, self.results = "configure", 0, 0

    def cycle(self) -> None:
        top, bottom, left, right = self.tiles[0]
        state = self.state
        if state == "configure":
            self.configure(bottom - top, right - left)
            self.state = "stream"
        elif state == "stream":
            for j in range(left, right):
                self.weight_reads += 1
                self.push(Package("weight", self.b[self.step, j], (j - left,)))
            for i in range(top, bottom):
                self.input_reads += 1
                self.push(Package("input", self.a[i, self.step], (self.columns + i - top,)))
            self.step += 1
            if self.step == len(self.b):
                self.state = "wait"
        self.receive()
        for result in self.consume():
            row, column = divmod(result.neuron, self.columns)
            self.values[top + row, left + column] = result.value
            self.writes += 1
            self.results += 1
        if state == "wait" and self.results == (bottom - top) * (right - left):
            self.tiles.pop(0)
            self.state, self.step, self.results = "configure", 0, 0
            self.finished = not self.tiles
        self.send()

    def configure(self, rows: int, columns: int) -> None:
        network = self.machine.multipliers
        assert isinstance(network, MeshMultipliers)
        for index, cell in enumerate(network.cells):
            row, column = divmod(index, self.columns)
            cell.configure(index, passes_right=column < columns - 1, passes_down=row < rows - 1)


def run(
    *,
    rows: int,
    columns: int,
    read_ports: int,
    write_ports: int,
    M: int,  # noqa: N803
    N: int,  # noqa: N803
    K: int,  # noqa: N803
    T_M: int,  # noqa: N803
    T_N: int,  # noqa: N803
    multipliers: int = 64,
    seed: int = 0,
) -> tuple[Outcome, np.ndarray]:
    """The run, and what the result must be. `multipliers` only says how many inputs each bus line has."""
    if rows != columns or rows < T_M or columns < T_N:
        raise ValueError("the mesh must be square and hold the tile")
    inputs = multipliers // write_ports + 1
    if (rows * columns - 1) // write_ports >= inputs:
        raise ValueError("too few bus inputs for the cells")
    random = np.random.default_rng(seed)
    a = random.integers(1, 10, (M, K)).astype(float)
    b = random.integers(1, 10, (K, N)).astype(float)
    cells = MeshMultipliers(rows, columns)
    bus = Bus(write_ports, inputs)
    network = Accumulators(cells.sinks, bus.for_accumulators(rows * columns))
    network.configure(K)
    machine = Machine(cells, Distribution(read_ports, cells.sources), network, bus)
    memory = MeshMemory(machine, a, b, (T_M, T_N), columns)
    cycles = machine.run(memory)
    return machine.outcome(memory, cycles, memory.values), a @ b
