"""What limits a run, as findings: one kind for each answer that a rule can give. Shares are parts of the step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sonda.analysis.bounds import BoundedRatio
from sonda.analysis.code.summary import CodeLead
from sonda.analysis.device.findings import WarpsWait
from sonda.analysis.findings import Finding
from sonda.analysis.summary import Value

UNNAMED = frozenset({"none", "unknown", "noisy", "nothing", "above_ceiling"})
"""Kinds of verdicts that name no limit of a step."""


@dataclass(frozen=True)
class Pieces:
    """Layers and phases that a limit is about."""

    layers: tuple[str, ...] = ()
    """The class of each layer."""
    phases: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.layers) + len(self.phases)


# ---- Limits of the machine -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ComputeBound(Finding):
    kind: ClassVar[str] = "compute_bound"

    pieces: Pieces
    share: Value
    of_peak: BoundedRatio
    """Time that the peak asks for, over the time taken."""
    on_gpu: bool


@dataclass(frozen=True)
class MemoryBound(Finding):
    kind: ClassVar[str] = "memory_bound"

    pieces: Pieces
    share: Value
    moved: Value
    """B a step."""
    of_bandwidth: BoundedRatio
    """Time that the bandwidth asks for, over the time taken."""
    cached: bool
    """Whether most of the bytes are found in the last-level cache; else in DRAM."""


@dataclass(frozen=True)
class OverheadBound(Finding):
    kind: ClassVar[str] = "overhead_bound"

    pieces: Pieces
    share: Value
    operations: Value
    """Per step."""
    operation_cost: Value
    """ns that a smallest operation was measured to cost."""
    operation_time: Value
    """ns that an operation took."""
    of_time: BoundedRatio
    """What the operations cost, over the time taken."""


@dataclass(frozen=True)
class AboveCeiling(Finding):
    """Work that was faster than a measured ceiling allows, so that its limit is not known."""

    kind: ClassVar[str] = "above_ceiling"

    ceiling: str
    """compute or memory."""
    pieces: Pieces
    share: Value
    achieved: Value
    """FLOP/s or B/s."""
    limit: Value
    """What was measured of the machine, in the same unit."""


@dataclass(frozen=True)
class MoreArithmetic(Finding):
    """Layers that count more FLOPs than their formulas have."""

    kind: ClassVar[str] = "more_arithmetic"

    layers: tuple[str, ...]
    """The class of each."""
    counted: Value
    nominal: Value
    share: Value


@dataclass(frozen=True)
class SlotsLost(Finding):
    """A category of Top-Down takes most of the slots that phases lose."""

    kind: ClassVar[str] = "slots_lost"

    phases: tuple[str, ...]
    category: str
    """As the microarchitecture's table names it, as the one below."""
    inside: str
    """The category of level 2 that leads in it; '' where none counts."""
    share: Value
    """Of what these phases have of `slots`."""
    slots: str
    """What the categories are shares of: `slots`, `cycles`."""


@dataclass(frozen=True)
class KernelStalled(Finding):
    """A kernel of a GPU waits for something that can be mended."""

    kind: ClassVar[str] = "kernel_stalled"

    kernel: str
    share: Value
    roof: Value | None
    """Part of what the device could do; None where that is not known."""
    wait: WarpsWait


# ---- The cores that the step runs on ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class HeldByOthers(Finding):
    """Other programs held the cores while threads of the step were ready to run."""

    kind: ClassVar[str] = "held_by_others"

    share: Value
    """Of the time in which threads ran or were ready to, that they waited for others."""
    step: Value
    alone: Value
    """ns that the step would take at most without the others, as far as processor time tells."""
    cores: int
    """That the program may use."""
    others: Value
    """CPUs that other programs used of these."""


@dataclass(frozen=True)
class Oversubscribed(Finding):
    """A program that has more threads to run than cores."""

    kind: ClassVar[str] = "oversubscribed"

    share: Value
    """Of the time in which threads ran or were ready to, that they waited for each other."""
    ready: Value
    """Threads that ran or were ready to at a moment, on average."""
    cores: int
    processes: bool
    """Whether other processes of the program held the cores, and not threads of this one."""
    chosen: bool = False
    """Whether the program has asked for more threads than there are cores."""


# ---- Limits outside of the work itself -------------------------------------------------------------------------------


@dataclass(frozen=True)
class InputBound(Finding):
    kind: ClassVar[str] = "input_bound"

    share: Value
    time: Value
    """ns a step."""
    workers: int
    """That load already."""
    leads: tuple[CodeLead, ...] = ()
    """Functions of the user's code that make the data, most time first."""
    in_workers: bool = False
    """Whether the leads are code of workers: their shares are of the workers' time."""


@dataclass(frozen=True)
class UnevenInput(Finding):
    """Some steps wait long for data and others do not: only all of them together show it."""

    kind: ClassVar[str] = "uneven_input"

    share: Value
    """Of the time of all steps."""
    time: Value
    """ns a step, on average."""
    leads: tuple[CodeLead, ...] = ()
    """As in `InputBound`."""
    in_workers: bool = False


@dataclass(frozen=True)
class WaitsOutside(Finding):
    """A training waits before its forward, outside of a loader."""

    kind: ClassVar[str] = "waits_outside"

    share: Value
    """Of the time of all steps."""
    time: Value
    """ns a step, on average."""


@dataclass(frozen=True)
class CommunicationBound(Finding):
    kind: ClassVar[str] = "communication_bound"

    share: Value
    time: Value
    """ns a step."""


@dataclass(frozen=True)
class TransferBound(Finding):
    kind: ClassVar[str] = "transfer_bound"

    share: Value
    time: Value
    """ns a step."""
    pageable: bool
    """Whether memory is copied that is not pinned."""


@dataclass(frozen=True)
class HostBound(Finding):
    kind: ClassVar[str] = "host_bound"

    share: Value
    launches: Value
    """Per step."""
    launching: Value
    """ns a step in which the program launches."""
    busy: Value
    """ns a step in which GPUs work, all added up."""


@dataclass(frozen=True)
class Retraced(Finding):
    """A function that a framework compiles is traced again and again."""

    kind: ClassVar[str] = "retraced"

    function: str
    where: str
    """File and line; '' where they are not known."""
    by_xla: bool
    traces: int
    calls: int
    share: Value
    """Of the time of its calls; missing where that is not known."""
    at_most: bool
    """Whether the share is only known to be no larger."""
    cause: str
    """What changed: shape, type, python, object, structure, new; another word where nothing tells."""
    argument: str
    examples: tuple[str, ...]
    """Values of the argument."""


# ---- The whole program -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StageShare:
    """What a stage of a program takes of it."""

    stage: str
    share: Value
    time: Value
    package: str = ""
    """The one that takes most of the imports, where one does."""


@dataclass(frozen=True)
class OfProgram(Finding):
    """Something about the whole program; what follows it is about one of its steps."""

    whole: Value
    """ns that the program took."""
    largest: StageShare


@dataclass(frozen=True)
class MinorSteps(OfProgram):
    """The steps that all other rules speak of are a minor part of the program."""

    kind: ClassVar[str] = "minor_steps"

    steps: int
    share: Value
    """That they take of the program."""
    part: str = ""
    """Whose steps these are, where another part takes more; '' for all steps."""


@dataclass(frozen=True)
class NoSteps(OfProgram):
    kind: ClassVar[str] = "no_steps"


# ---- No limit --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NothingNeedless(Finding):
    """No cause was found, and the work runs near to what the machine can do."""

    kind: ClassVar[str] = "nothing_needless"

    of_roof: Value
    """Least time of the work on this machine over the time of the step, 0 to 1."""
    pieces: Pieces


@dataclass(frozen=True)
class TooNoisy(Finding):
    kind: ClassVar[str] = "too_noisy"

    noise: Value
    """Half of the interval of a step, over its median."""
    step: Value


@dataclass(frozen=True)
class NothingToJudge(Finding):
    kind: ClassVar[str] = "nothing_to_judge"

    reason: str


@dataclass(frozen=True)
class PieceOfStep(Finding):
    """Something that takes a part of the step which no limit explains."""

    share: Value


@dataclass(frozen=True)
class UnexplainedWork(PieceOfStep):
    """A family of layers, or a phase."""

    kind: ClassVar[str] = "unexplained_work"

    pieces: Pieces
    of_roof: BoundedRatio | None
    """None where no roof is known."""
    at_least: bool
    """Whether some of the work has no formula, so that it may reach more."""


@dataclass(frozen=True)
class OutsideLayers(PieceOfStep):
    """Code in phases that belongs to no layer that was seen."""

    kind: ClassVar[str] = "outside_layers"

    phases: tuple[str, ...]


@dataclass(frozen=True)
class BetweenPhases(PieceOfStep):
    """Code between the phases, and the observing itself."""

    kind: ClassVar[str] = "between_phases"

    saves_files: bool
    """Whether most steps save files of weights."""


@dataclass(frozen=True)
class LongestPhase(PieceOfStep):
    kind: ClassVar[str] = "longest_phase"

    phase: str


@dataclass(frozen=True)
class NoLimitNamed(Finding):
    """Nothing to hold the step against."""

    kind: ClassVar[str] = "no_limit_named"

    reason: str
    longest: PieceOfStep | None


@dataclass(frozen=True)
class NoClearLimit(Finding):
    """No limit explains half of the step."""

    kind: ClassVar[str] = "no_clear_limit"

    largest: PieceOfStep | None
    """What takes most of it; None where no phase was timed."""
