"""Dense controller: convolutions and matrix products in tiles, with folding and forwarding links."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from .links import Package
from .machine import Machine, Memory, Outcome, linear_machine
from .multipliers import FOLD, MULTIPLY, LinearMultipliers


@dataclass(frozen=True)
class Layer:
    """A convolution; C and K are per group. X and Y are input rows and columns, padding included."""

    R: int
    S: int
    C: int
    K: int
    G: int
    N: int
    X: int
    Y: int
    stride: int = 1

    @property
    def rows(self) -> int:
        return (self.X - self.R + self.stride) // self.stride

    @property
    def columns(self) -> int:
        return (self.Y - self.S + self.stride) // self.stride


@dataclass(frozen=True)
class Tile:
    R: int
    S: int
    C: int
    K: int
    G: int = 1
    N: int = 1
    X: int = 1
    Y: int = 1
    """X and Y count output rows and columns."""

    @property
    def window(self) -> int:
        return self.R * self.S * self.C

    @property
    def neurons(self) -> int:
        return self.K * self.G * self.N * self.X * self.Y


def hands_on(layer: Layer, tile: Tile) -> bool:
    """Whether multipliers hand activations to their left neighbour from one window of a row to the next."""
    return tile.Y == 1 and tile.S > 1 and layer.stride == 1 and layer.S % tile.S == 0


def weights_overtake(layer: Layer, tile: Tile) -> bool:
    """Whether weights of a block can reach a multiplier before the activations handed to it for the block before.

    The gate counts results, padded ones and those of all samples; where it opens before a block is complete, only
    the order in the port keeps operands in step, and what neighbours hand over does not come through the port. The
    machine then computes wrong sums, in the same time.
    """
    early = layer.N > 1 or layer.rows % tile.X or (layer.G > tile.G and layer.K % tile.K)
    return hands_on(layer, tile) and layer.columns > 1 and bool(early)


class DenseMemory(Memory):
    """One tile of weights or inputs a cycle; the next filters wait for the results of the ones before."""

    def __init__(self, machine: Machine, layer: Layer, tile: Tile, folded: bool, links: bool, seed: int) -> None:
        lines = [line.out for line in machine.bus.lines]
        super().__init__(machine.distribution.inputs, machine.distribution.width, lines)
        self.layer, self.tile, self.folded, self.links = layer, tile, folded, links
        self.folds = [
            (c, r, s)
            for c in range(0, layer.C, tile.C)
            for r in range(0, layer.R, tile.R)
            for s in range(0, layer.S, tile.S)
        ]
        self.psum_leaf = 1 if folded else 0
        self.size = tile.window + self.psum_leaf
        random = np.random.default_rng(seed)
        self.weights = random.integers(1, 10, (layer.G, layer.K, layer.C, layer.R, layer.S)).astype(float)
        self.inputs = random.integers(1, 10, (layer.N, layer.G, layer.C, layer.X, layer.Y)).astype(float)
        self.outputs = np.full((layer.N, layer.G, layer.K, layer.rows, layer.columns), np.nan)
        self.blocks = [
            (n, g, k)
            for n in range(0, layer.N, tile.N)
            for g in range(0, layer.G, tile.G)
            for k in range(0, layer.K, tile.K)
        ]
        self.windows = [(x, y) for x in range(0, layer.rows, tile.X) for y in range(0, layer.columns, tile.Y)]
        self.order = list(itertools.product(self.blocks, self.windows))
        self.offsets = list(itertools.product(*(range(size) for size in (tile.N, tile.G, tile.K, tile.X, tile.Y))))
        self.steps = len(self.folds) if folded else 1
        self.seen = [0] * tile.neurons
        self.done = 0
        self.reference_bounds = False
        self.total = len(self.order) * self.steps * tile.neurons
        self.schedule = self._schedule()
        self.upcoming = next(self.schedule)

    def _schedule(self):  # type: ignore[no-untyped-def]
        for block in self.blocks:
            for fold in self.folds:
                yield block, None, fold
            for window in self.windows:
                for fold in self.folds:
                    yield block, window, fold
        yield None

    def leaf(self, n: int, g: int, k: int, x: int, y: int, place: int) -> int:
        tile = self.tile
        neuron = (((n * tile.G + g) * tile.K + k) * tile.X + x) * tile.Y + y
        return neuron * self.size + self.psum_leaf + place

    def cycle(self) -> None:
        if self.upcoming is not None:
            (n, g, k), window, fold = self.upcoming
            layer = self.layer
            allowed = self.done // (layer.rows * layer.columns * self.steps)
            if g * layer.K + k * self.tile.G <= allowed:
                if window is None:
                    self.push_weights(g, k, fold)
                else:
                    self.push_inputs(n, g, window, fold)
                self.upcoming = next(self.schedule)
        self.receive()
        for result in self.consume():
            self.store(result)
        self.send()

    def push_weights(self, g0: int, k0: int, fold: tuple[int, int, int]) -> None:
        layer, tile = self.layer, self.tile
        c0, r0, s0 = fold
        spans = (tile.G, tile.K, tile.C, tile.R, tile.S)
        for g, k, c, r, s in itertools.product(*(range(span) for span in spans)):
            place = (c * tile.R + r) * tile.S + s
            targets = tuple(
                self.leaf(n, g, k, x, y, place)
                for n, x, y in itertools.product(range(tile.N), range(tile.X), range(tile.Y))
            )
            value = 0.0
            if k0 + k < layer.K and c0 + c < layer.C and r0 + r < layer.R and s0 + s < layer.S:
                self.weight_reads += 1
                if g0 + g < layer.G:
                    value = self.weights[g0 + g, k0 + k, c0 + c, r0 + r, s0 + s]
            self.push(Package("weight", value, targets))

    def push_inputs(self, n0: int, g0: int, window: tuple[int, int], fold: tuple[int, int, int]) -> None:
        layer, tile = self.layer, self.tile
        (x0, y0), (c0, r0, s0) = window, fold
        rows = tile.R + (tile.X - 1) * layer.stride
        columns = tile.S + (tile.Y - 1) * layer.stride
        start = columns - 1 if self.links and y0 > 0 else 0
        for i, j in itertools.product(range(rows), range(start, columns)):
            covers = [
                (x, y, (i - x * layer.stride) * tile.S + j - y * layer.stride)
                for x in range(tile.X)
                for y in range(tile.Y)
                if 0 <= i - x * layer.stride < tile.R and 0 <= j - y * layer.stride < tile.S
            ]
            step = 1 if self.reference_bounds else layer.stride
            inside = r0 + i < (tile.X - 1) * step + layer.R and s0 + j < (tile.Y - 1) * step + layer.S
            for n, g, c in itertools.product(range(tile.N), range(tile.G), range(tile.C)):
                value = 0.0
                if inside and c0 + c < layer.C:
                    self.input_reads += 1
                    row, column = x0 * layer.stride + r0 + i, y0 * layer.stride + s0 + j
                    if n0 + n < layer.N and g0 + g < layer.G and row < layer.X and column < layer.Y:
                        value = self.inputs[n0 + n, g0 + g, c0 + c, row, column]
                targets = tuple(
                    self.leaf(n, g, k, x, y, c * tile.R * tile.S + place)
                    for k in range(tile.K)
                    for x, y, place in covers
                )
                if targets:
                    self.push(Package("input", value, targets))

    def store(self, result: Package) -> None:
        step, turn = divmod(self.seen[result.neuron], self.steps)
        self.seen[result.neuron] += 1
        self.done += 1
        ((n, g, k), (x, y)), offset = self.order[step], self.offsets[result.neuron]
        place = tuple(base + more for base, more in zip((n, g, k, x, y), offset, strict=True))
        if all(at < size for at, size in zip(place, self.outputs.shape, strict=True)):
            self.writes += 1
            self.outputs[place] = result.value
        if turn < self.steps - 1:
            self.psum_reads += 1
            self.push(Package("psum", result.value, (result.neuron * self.size,)))
        if self.done == self.total:
            self.finished = True


def run_layer(
    layer: Layer,
    tile: Tile,
    *,
    multipliers: int,
    read_ports: int,
    write_ports: int,
    reduction: str = "ASNETWORK",
    accumulators: bool = False,
    reference_bounds: bool = False,
    seed: int = 0,
) -> tuple[Outcome, np.ndarray]:
    """The run, and what the result must be: outputs indexed by sample, group, filter, row, column.

    `reference_bounds`: the reference forgets the stride where it bounds the inputs of a tile with several windows; it
    then takes zeros for inputs it does not read, and its results are wrong. Time does not depend on it.
    """
    machine = linear_machine(multipliers, read_ports, write_ports, reduction, accumulators)
    folds = -(-layer.R // tile.R) * -(-layer.S // tile.S) * -(-layer.C // tile.C)
    folded = folds > 1 and not accumulators and reduction != "FENETWORK"
    size = tile.window + folded
    if size * tile.neurons > multipliers:
        raise ValueError(f"{tile.neurons} neurons of {size} multipliers do not fit in {multipliers}")
    if reduction == "TEMPORALRN" and (tile.window > 1 or not accumulators):
        raise ValueError("TEMPORALRN needs accumulators and neurons of one multiplier")
    if size == 1 and tile.neurons > 1 and (reduction == "FENETWORK" or (reduction == "ASNETWORK" and folds > 1)):
        raise ValueError("neurons of one multiplier share an adder")
    links = hands_on(layer, tile)
    row = machine.multipliers
    assert isinstance(row, LinearMultipliers)
    for neuron in range(tile.neurons):
        for place in range(size):
            cell = row.cells[neuron * size + place]
            if folded and place == 0:
                cell.configure(FOLD, neuron, folds)
                continue
            cell.configure(MULTIPLY, neuron, folds, windows=-(-layer.columns // tile.Y))
            column = (place - folded) % tile.S
            cell.takes_side = links and column < tile.S - 1
            cell.gives_side = links and column > 0
    if reduction == "TEMPORALRN":
        machine.reduction.configure(folds)  # type: ignore[call-arg,arg-type]
    else:
        neurons = [(neuron * size, neuron * size + size - 1) for neuron in range(tile.neurons)]
        machine.reduction.configure(neurons, 1 if folded else folds)  # type: ignore[call-arg,arg-type]
    memory = DenseMemory(machine, layer, tile, folded, links, seed)
    memory.reference_bounds = reference_bounds
    cycles = machine.run(memory)
    expected = np.zeros_like(memory.outputs)
    for x, y in itertools.product(range(layer.rows), range(layer.columns)):
        i, j = x * layer.stride, y * layer.stride
        patch = memory.inputs[:, :, :, i : i + layer.R, j : j + layer.S]
        expected[:, :, :, x, y] = np.einsum("ngcrs,gkcrs->ngk", patch, memory.weights)
    return machine.outcome(memory, cycles, memory.outputs), expected


def run(
    *,
    M: int,  # noqa: N803
    N: int,  # noqa: N803
    K: int,  # noqa: N803
    T_M: int,  # noqa: N803
    T_N: int,  # noqa: N803
    T_K: int,  # noqa: N803
    **hardware: int | str | bool,
) -> tuple[Outcome, np.ndarray]:
    """A matrix product M x K by K x N as the layer that the controller makes of it."""
    layer = Layer(R=1, S=K, C=1, K=N, G=1, N=1, X=M, Y=K)
    return run_layer(layer, Tile(R=1, S=T_K, C=1, K=T_N, X=T_M), **hardware)  # type: ignore[arg-type]
