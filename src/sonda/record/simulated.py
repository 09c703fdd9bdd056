"""What a run on a simulated accelerator holds: the accelerator, where each operation went, its energy and area."""

from __future__ import annotations

from sonda.record.stored import Number, Stored


class EngineParts(Stored, frozen=True, kw_only=True):
    """What an engine is made of; bandwidths in elements per cycle."""

    multipliers: int
    rows: int | None = None
    """Of a mesh, as are `columns`; 0 for a linear network."""
    columns: int | None = None
    read_ports: int | None = None
    write_ports: int | None = None
    reduction: str | None = None
    accumulators: bool | None = None
    controller: str | None = None

    @property
    def elements(self) -> int:
        """Multipliers that can work at the same time."""
        return (self.rows or 0) * (self.columns or 0) or self.multipliers


class DescribedEngine(Stored, frozen=True, kw_only=True):
    """An engine of an accelerator."""

    name: str
    kind: str
    hardware: EngineParts
    dataflow: dict[str, str] | None = None
    tile: dict[str, int] | None = None
    convolution_tile: dict[str, int] | None = None


class DescribedMemory(Stored, frozen=True, kw_only=True):
    """A finite global buffer and the memory behind it, in bytes and in cycles of the accelerator."""

    buffer_bytes: int
    bytes_per_cycle: Number
    latency_cycles: int | None = None
    row_bytes: int | None = None
    row_miss_cycles: int | None = None
    element_bytes: int | None = None
    double_buffering: bool | None = None
    dram: str | None = None
    burst_bytes: int | None = None
    banks: int | None = None


class DescribedAccelerator(Stored, frozen=True, kw_only=True):
    """An accelerator as it was simulated."""

    name: str
    clock_hz: Number | None
    """None where no source gives a clock: then there are cycles and no times."""
    engines: dict[str, DescribedEngine]
    route: dict[str, str] | None = None
    """The engine that takes each kind of operation."""
    energy_table: str | None = None
    notes: list[str] | None = None
    memory: DescribedMemory | None
    """None where the global buffer is unlimited."""


class SimulationOptions(Stored, frozen=True, kw_only=True):
    """`--mapping` and `--set`, as they were given."""

    mapping: str
    set: str


class MappedOperation(Stored, frozen=True, kw_only=True):
    """An operation on an engine, or several that are alike."""

    path: str
    """Of the layer that calls it."""
    operation: str
    kind: str
    shape: str
    engine: str
    mapping: dict[str, int | str]
    """Sizes of its tile by letter, and its dataflow."""
    words: str
    """The mapping in words."""
    cycles: int
    stall_cycles: int
    reads: dict[str, int]
    """Of the global buffer: `weight`, `input` and `psum`."""
    counters: dict[str, dict[str, dict[str, int]]]
    """By section of the machine, component and event."""
    count: int
    """How many are alike."""


class BoundedAmount(Stored, frozen=True, kw_only=True):
    """A figure with the bounds of its table."""

    value: Number | None
    low: Number | None = None
    high: Number | None = None
    unit: str | None = None
    missing: list[str] | None = None
    """What the table has no entry for."""
    recalled: list[str] | None = None
    """Entries that nobody has verified."""
    reason: str | None = None
    """Why there is no value."""


class EnergySpent(Stored, frozen=True, kw_only=True):
    """The energy of a simulated step by section of the machine."""

    table: str | None = None
    nodes: list[str] | None = None
    notes: list[str] | None = None
    parts: dict[str, BoundedAmount] | None = None
    total: BoundedAmount | None = None
    unit: str | None = None
    missing: list[str] | None = None
    recalled: list[str] | None = None
    reason: str | None = None
    """Why there is none, or none in joules."""
    implausible: str | None = None
    buffer_bytes: int | None = None
    buffer_assumed: bool | None = None
    dram: str | None = None


class AreaTaken(Stored, frozen=True, kw_only=True):
    """The area of an accelerator by engine, mm2."""

    engines: dict[str, BoundedAmount] | None = None
    global_buffer: BoundedAmount | None = None
    together: BoundedAmount | None = None


class WhatIf(Stored, frozen=True, kw_only=True):
    """A change that was simulated beside the run, and what it brings."""

    set: str | None = None
    mapping: str | None = None
    words: str | None = None
    cycles: int | None
    reason: str | None = None
    """Why the cycles are not known."""


class PointReason(Stored, frozen=True, kw_only=True):
    """Why points of an exploration are not possible or not compared, and how many."""

    reason: str
    points: int
    example: str | None = None


class ExplorationFacts(Stored, frozen=True, kw_only=True):
    """What an exploration found. A point is named by its row of `points.parquet`."""

    axes: dict[str, list[str]]
    together: list[list[str]] | None = None
    """Fields that vary in step."""
    points: int
    possible: int
    impossible: list[PointReason]
    unpriced: list[PointReason]
    front: int | None = None
    """How many points are on the front."""
    objectives: list[str]
    by_time: bool | None = None
    """Whether clocks differ, so that times are compared and not cycles."""
    best: dict[str, int]
    """The best point of each objective; -1 where there is none."""
    knee: int
    on_host: list[str]
    simulations: int
    seconds: Number
