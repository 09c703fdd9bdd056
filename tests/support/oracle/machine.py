"""The machine: a memory controller and the four networks around it, stepped in STONNE's order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .bus import Bus
from .distribution import Distribution
from .links import Link, Package
from .multipliers import LinearMultipliers, MeshMultipliers
from .reduction import Accumulators, Tree

Counters = dict[str, dict[str, dict[str, int]]]


@dataclass(frozen=True)
class Outcome:
    """What a run gives: cycles, accesses of the global buffer, activity counters, and the values computed."""

    cycles: int
    weight_reads: int
    input_reads: int
    psum_reads: int
    writes: int
    counters: Counters
    values: np.ndarray
    dram_writes: int = 0

    @property
    def reads(self) -> int:
        return self.weight_reads + self.input_reads + self.psum_reads


class Memory:
    """The part that all controllers share: read ports with their queues, and the write side."""

    def __init__(self, ports: list[Link], width: int, lines: list[Link]) -> None:
        self.ports, self.width, self.lines = ports, width, lines
        self.waiting: list[deque[Package]] = [deque() for _ in ports]
        self.psums_waiting: list[deque[Package]] = [deque() for _ in ports]
        self.write_queue: deque[Package] = deque()
        self.weight_reads = self.input_reads = self.psum_reads = self.writes = self.dram_writes = 0
        self.finished = False

    def cycle(self) -> None:
        raise NotImplementedError

    def push(self, package: Package) -> None:
        """Queues a package at every port that leads to one of its targets."""
        queues = self.psums_waiting if package.kind == "psum" else self.waiting
        ports: dict[int, list[int]] = {}
        for target in package.targets:
            ports.setdefault(target // self.width, []).append(target)
        for port, targets in ports.items():
            queues[port].append(package._replace(targets=tuple(targets)))

    def send(self) -> None:
        """Every port sends one package: a psum if one waits."""
        for port, link in enumerate(self.ports):
            queue = self.psums_waiting[port] or self.waiting[port]
            if queue:
                link.send([queue.popleft()])

    def receive(self) -> None:
        for line in self.lines:
            self.write_queue.extend(line.take())

    def consume(self) -> Iterator[Package]:
        """Results handled in this cycle. The queue shrinks under the loop that empties it, so half of it stays."""
        handled = 0
        while handled < len(self.write_queue):
            yield self.write_queue.popleft()
            handled += 1


class Machine:
    """Networks between a controller's read ports and its write ports. The controller is set by its owner."""

    def __init__(
        self,
        multipliers: LinearMultipliers | MeshMultipliers,
        distribution: Distribution,
        reduction: Tree | Accumulators,
        bus: Bus,
        product_bus: Bus | None = None,
    ) -> None:
        self.multipliers, self.distribution, self.reduction = multipliers, distribution, reduction
        self.bus, self.product_bus = bus, product_bus

    def run(self, memory: Memory, limit: int = 200_000) -> int:
        """Cycles until the controller says it has finished."""
        for cycle in range(1, limit + 1):
            memory.cycle()
            self.bus.cycle()
            if self.product_bus is not None:
                self.product_bus.cycle()
            self.reduction.cycle()
            self.multipliers.cycle()
            self.distribution.cycle()
            if memory.finished:
                return cycle
        raise RuntimeError(f"not finished after {limit} cycles")

    def outcome(self, memory: Memory, cycles: int, values: np.ndarray) -> Outcome:
        reads = memory.weight_reads + memory.input_reads + memory.psum_reads
        counters: dict[str, Any] = {
            "DSNetwork": self.distribution.counters(),
            "MSNetwork": self.multipliers.counters(),
            "ReduceNetwork": self.reduction.counters(),
            "GlobalBuffer": {"GLOBALBUFFER": {"entries": 1, "READ": reads, "WRITE": memory.writes}},
            "CollectionBus": self.bus.counters(),
        }
        return Outcome(
            cycles,
            memory.weight_reads,
            memory.input_reads,
            memory.psum_reads,
            memory.writes,
            counters,
            values,
            memory.dram_writes,
        )


def power_of_two(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 1 or number & (number - 1):
            raise ValueError(f"{name} = {number} is not a power of two")


def linear_machine(multipliers: int, read_ports: int, write_ports: int, reduction: str, accumulators: bool) -> Machine:
    """A row of multipliers under one of the three reduction networks."""
    power_of_two(multipliers=multipliers, read_ports=read_ports, write_ports=write_ports)
    if read_ports > multipliers or write_ports > multipliers:
        raise ValueError("more ports than multipliers")
    row = LinearMultipliers(multipliers)
    bus = Bus(write_ports, multipliers // write_ports + 1)
    network: Tree | Accumulators
    if reduction == "TEMPORALRN":
        network = Accumulators(row.sinks, bus.for_accumulators(multipliers))
    else:
        fold = reduction == "FENETWORK"
        outs = bus.for_tree((multipliers - 1).bit_length(), extra=fold)
        network = Tree(row.sinks, outs, accumulators=accumulators and not fold, fold_nodes=fold)
    return Machine(row, Distribution(read_ports, row.sources), network, bus)
