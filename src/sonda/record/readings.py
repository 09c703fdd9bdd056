"""What instruments leave in a run: whether they worked, counts, energy, kernels' counters, a modelled step."""

from __future__ import annotations

from typing import Literal

import msgspec

from sonda.record.conventions.topdown import TopDownDefinition
from sonda.record.stored import Number, Stored


class ProbeState(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether a probe worked during the run, and if not, why and what would change that."""

    name: str
    state: Literal["ok", "missing", "dead", "off"]
    reason: str = ""
    remedy: str = ""


class Count(Stored, frozen=True, kw_only=True):
    """How often something happened; `scaled` where it was counted for a part of the time only."""

    value: float
    scaled: bool = False


class CommandCounts(Stored, frozen=True, kw_only=True):
    """A command as it was counted from outside, by quantity; what was not counted is `missing` with the reason."""

    counts: dict[str, Count] = {}
    missing: dict[str, str] = {}
    interval: float = 0.0
    """ns between two readings; 0 where there are totals only."""


class EnergyCounter(Stored, frozen=True, kw_only=True):
    """A counter of energy."""

    sensor: str
    device: str
    origin: str = ""
    source: str = "measured"
    covers: str = ""
    total: bool = False
    update: Number = 0.0
    """s between two updates."""
    state: str = "ok"
    reason: str = ""
    highest: Number = 0.0
    uncertain: Number = 0.0
    """The share by which it may be wrong."""


class EnergyLack(Stored, frozen=True, kw_only=True):
    """A source of energy that could not be read."""

    what: str = ""
    reason: str = ""
    remedy: str = ""
    covers: str = ""
    """Of a counter that belongs into sums: what these lack without it."""
    device: str = ""
    sensor: str = ""


class StoredEnergy(Stored, frozen=True, kw_only=True):
    """What was read of the energy; times in ns since the program began."""

    interval: Number = 0.0
    """s between two readings."""
    readings: int = 0
    largest_gap: Number = 0.0
    idle: list[int] = []
    """Beginning and end of the time before the program, where idle power was measured."""
    counters: list[EnergyCounter] = []
    missing: list[EnergyLack] = []
    devices: dict[str, str] = {}
    model: str = ""
    """The processor's watts as the user gave them."""
    cpu: Number = 0.0
    """s of processor time that reading took."""
    used: list[str] = []
    """Devices that the program used."""
    regions: list[tuple[str, int, int]] = []
    """Name, beginning and end of what the program announced."""


class NcuFacts(Stored, frozen=True, kw_only=True):
    """How Nsight Compute counted kernels."""

    version: str = ""
    chip: str = ""
    capability: str = ""
    cache: str = ""
    passes: dict[str, int] = {}
    metrics: list[str] = []
    peaks: dict[str, Number] = {}


class CacheShape(Stored, frozen=True, kw_only=True):
    """A cache: its size, ways and the bytes of a line."""

    bytes: int
    ways: int
    line: int


class StallCosts(Stored, frozen=True, kw_only=True):
    """Cycles of stalls, at the frequency that was measured with them."""

    core: str = ""
    width: int = 1
    """Instructions that can start in a cycle."""
    hertz: float
    mispredicted: float
    """Of a mispredicted branch."""
    last_level: float
    """Of a load that finds its line in the last-level cache."""
    memory: float
    """Of a load that goes to memory, the walk of the page table included."""
    source: str = ""
    """Where the width comes from."""
    published: tuple[int, int] | None = None
    """Printed range of `mispredicted`, where there is one."""


class MissCurvePoint(Stored, frozen=True, kw_only=True):
    """Data misses of a step with a last-level cache of one size, by phase and by layer."""

    bytes: int
    LL: str = ""
    """As `bytes,ways,line`."""
    phases: dict[str, float] = {}
    layers: dict[str, float] = {}
    instructions: float = 0.0


class ModelledFacts(Stored, frozen=True, kw_only=True):
    """How a step was modelled by callgrind. Caches are written as `bytes,ways,line`."""

    I1: str = ""
    D1: str = ""
    LL: str = ""
    asked: dict[str, CacheShape] = {}
    """The machine's own caches."""
    tool: str = ""
    isa: str = ""
    native_isa: str = ""
    threads: int
    marker_instructions: float | None = None
    phase_marker_instructions: float | None = None
    markers: dict[str, float] = {}
    step: int = 0
    start: int = 0
    part: str = ""
    complete: bool
    seconds: float = 0.0
    penalties: StallCosts | None = None
    ranks: list[int] | None = None
    """Those whose steps were modelled, where there are several."""
    miss_curve: list[MissCurvePoint] = []


class CountedTopDown(TopDownDefinition, frozen=True, omit_defaults=True):
    """The definition of Top-Down that a run was counted with, the table it is of, and its events with their codes."""

    table: str = ""
    events: dict[str, str] = {}


class SensorReadings(Stored, frozen=True, kw_only=True):
    """A sensor that a probe read meanwhile: `mean`, `least` and `most` of its values, or `growth` of a counter."""

    probe: str
    sensor: str
    device: str = ""
    unit: str = "1"
    source: str = "measured"
    readings: int = 0
    growth: float | None = None
    mean: float | None = None
    least: float | None = None
    most: float | None = None
    node: str | None = None
    """Of several nodes, the one that read it."""


class DeviceStand(Stored, frozen=True, kw_only=True):
    """How a GPU stood when the timed steps ended; what its driver refused is left out."""

    clock: Number | None = None
    """Hz, of its multiprocessors, as is `memory_clock` of its memory."""
    memory_clock: Number | None = None
    temperature: Number | None = None
    """°C."""
    power: Number | None = None
    """W."""
    throttle_reasons: Number | None = None
    """The bits of NVML's reasons."""
    missing: str | None = None
    """Why nothing was read."""


class UsedDevice(Stored, frozen=True, kw_only=True):
    """A GPU that the program used."""

    name: str | None = None
    state: DeviceStand | None = None
    peak_allocated: int | None = None
    """B that the framework's tensors took at most."""
    peak_reserved: int | None = None
    capability: str | None = None
    total_memory: int | None = None
