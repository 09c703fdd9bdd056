"""What a simulated run or an exploration has to tell: what bounds it, what changes would bring, energy and area."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from sonda.analysis.findings import Finding
from sonda.analysis.summary import Value

# ---- Cycles ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NothingOnEngines(Finding):
    """No operation ran on an engine of the accelerator."""

    kind: ClassVar[str] = "nothing on engines"

    accelerator: str


@dataclass(frozen=True)
class CycleBound(Finding):
    """The family of layers that takes most cycles, and what most of its cycles are spent on."""

    kind: ClassVar[str] = "cycle bound"

    bound: str
    """A part of the cycle stack."""
    family: str
    share: float
    """Of the family in all cycles, 0 to 1."""
    cycles: Value
    """Of the whole step."""
    spent: float
    """Share of the family's cycles that this part takes, 0 to 1."""
    utilisation: Value
    """Of the multipliers by the family, 0 to 1."""


@dataclass(frozen=True)
class WidenBound(Finding):
    """To try: what would widen the bottleneck, where the run does not say what it would bring."""

    kind: ClassVar[str] = "widen"

    bound: str


@dataclass(frozen=True)
class DesignChange(Finding):
    """To try: a change of the design or of its mapping that was simulated beside the run."""

    kind: ClassVar[str] = "design change"

    description: str
    """Of the change, as the run has it."""
    mapping: str = ""
    """Of `--mapping`, else the change is of `--set`."""
    settings: str = ""
    besides: bool = False
    """The run has settings of its own, which stay."""


@dataclass(frozen=True)
class UnknownGain(Finding):
    """A change that could not be simulated."""

    kind: ClassVar[str] = "unknown gain"

    change: DesignChange
    reason: str


@dataclass(frozen=True)
class NoGain(Finding):
    """A change that brings nothing, or makes it slower."""

    kind: ClassVar[str] = "no gain"

    change: DesignChange
    speedup: float


# ---- Energy and area ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NoSimulatedEnergy(Finding):
    """No energy; `in_table`, where the table has numbers of its own in place of joules."""

    kind: ClassVar[str] = "no simulated energy"

    reason: str
    in_table: Value | None = None


@dataclass(frozen=True)
class SimulatedEnergy(Finding):
    """The energy of a step and where it went."""

    kind: ClassVar[str] = "simulated energy"

    total: Value
    """J with the bounds of its table."""
    shares: tuple[tuple[str, float], ...]
    """By section of the machine, largest first, 0 to 1."""


@dataclass(frozen=True)
class UsedEnergyTable(Finding):
    """The table that energies come from, what it lacks and what nobody verified."""

    kind: ClassVar[str] = "energy table"

    table: str
    nodes: tuple[str, ...]
    """Technology nodes that its entries state."""
    assumed_buffer: float | None
    """Bytes that the global buffer was taken to have; None where it is described."""
    dram: str
    lacking: tuple[str, ...]
    static: tuple[str, ...]
    """Components without static energy."""
    no_clock: bool
    """There is none because there is no clock."""
    recalled: tuple[str, ...]


@dataclass(frozen=True)
class ImplausibleTable(Finding):
    """An energy table that is not to be believed."""

    kind: ClassVar[str] = "implausible table"

    table: str
    reason: str


@dataclass(frozen=True)
class NoArea(Finding):
    """No area of these parts; of the whole accelerator where none is named."""

    kind: ClassVar[str] = "no area"

    reason: str
    parts: tuple[str, ...] = ()


@dataclass(frozen=True)
class SimulatedArea(Finding):
    """The area of an accelerator, mm²."""

    kind: ClassVar[str] = "area"

    parts: tuple[tuple[str, float], ...]
    together: Value
    lacking: tuple[str, ...]
    recalled: tuple[str, ...]


# ---- Explorations ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NothingCompared(Finding):
    """Energy and area of no point are known."""

    kind: ClassVar[str] = "nothing compared"


@dataclass(frozen=True)
class BestDesign:
    """A point of an exploration, and the objectives in which it is the best."""

    number: int
    settings: tuple[tuple[str, Any], ...]
    values: tuple[tuple[str, Value], ...]
    """By objective."""


@dataclass(frozen=True)
class BestDesigns(Finding):
    """The fastest design, the one with the least energy, the smallest, and the best trade."""

    kind: ClassVar[str] = "best designs"

    best: tuple[BestDesign, ...]
    knee: BestDesign
    """With the values of all objectives."""
