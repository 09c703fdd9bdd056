"""What a modelled step means, as plain data. Every number is a model's: simulated caches and branch predictor."""

from __future__ import annotations

from dataclasses import dataclass, field

from sonda.analysis.summary import Value


@dataclass(frozen=True)
class Budget:
    """What the instructions may take, in cycles: from the floor, where every stall is hidden, to the sum of all stalls.

    It is no measurement and no Top-Down: it says what the counters allow, not where the cycles went.
    """

    issue: Value
    """Instructions over the processor's width: no processor of this width is faster."""
    mispredictions: Value
    instruction_misses: Value
    data_misses: Value
    """Each miss waited for, one after the other."""
    high: Value
    """All four together."""
    native: Value
    """What the same took natively: processor time of all threads (of a layer: time) times frequency."""


@dataclass(frozen=True)
class Modelled:
    """Counters of a step, phase or layer, and what follows from them."""

    counters: dict[str, Value]
    """By quantity: instructions, loads, stores, misses, branches."""
    share: float
    """Part of the step's instructions, 0 to 1."""
    loads: Value
    """Per instruction."""
    stores: Value
    branches: Value
    """Conditional and indirect, per instruction."""
    l1_misses: Value
    """Data accesses that miss the first level, per 1,000 instructions."""
    l1_instruction_misses: Value
    ll_misses: Value
    """Data and instructions, per 1,000 instructions."""
    mispredictions: Value
    """Per 1,000 instructions."""
    misprediction_rate: Value
    """Of all branches."""
    memory_bytes: Value
    """Lines that data accesses fetch from memory; write-backs are not simulated."""
    budget: Budget | None = None
    """None where the machine's penalties are not known."""


@dataclass(frozen=True)
class ModelledPhase:
    name: str
    modelled: Modelled


@dataclass(frozen=True)
class ModelledLayer:
    path: str
    name: str
    """Class of the module."""
    leaf: bool
    forward: Value
    """Instructions, modules inside included."""
    backward: Value
    own: Modelled
    """Forward and backward together, without the modules inside."""


@dataclass(frozen=True)
class MissPoint:
    """One size of the last-level cache, and the misses of each layer with it."""

    bytes: int
    geometry: str
    phases: dict[str, float]
    """Data misses of the last level by phase."""
    layers: dict[str, float]
    """By layer, forward and backward together, without the modules inside."""
    instructions: float
    """Of the whole step: the same at every size, but for what the program does differently by itself."""


@dataclass(frozen=True)
class ModelledSummary:
    """One modelled step."""

    tool: str
    caches: dict[str, str]
    """I1, D1 and LL in words: `48 MiB, 12-way, lines of 64 B`."""
    isa: str
    native_isa: str
    threads: int
    part: str
    complete: bool
    step: Modelled
    outside: Modelled
    """What belongs to no phase."""
    phases: tuple[ModelledPhase, ...]
    layers: tuple[ModelledLayer, ...]
    sentences: tuple[str, ...]
    """What a reader of the numbers must know."""
    curve: tuple[MissPoint, ...] = field(default=())
    """Misses over sizes of the last-level cache, smallest first; empty where no sizes were swept."""
