"""Doubts and notes of a measured run, as findings: what a reader of its numbers must know.

`part` is the part of the run that a finding is about: train, validate or test.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from sonda.analysis.findings import Finding
from sonda.analysis.summary import Value

# ---- What makes numbers doubtful ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunFailed(Finding):
    kind: ClassVar[str] = "run_failed"

    exit_code: int | None


@dataclass(frozen=True)
class EndedEarly(Finding):
    kind: ClassVar[str] = "ended_early"

    exit_code: int | None


@dataclass(frozen=True)
class NoStepSeen(Finding):
    kind: ClassVar[str] = "no_step_seen"

    of_block: bool
    """Whether a block of a program was observed, and not the whole of it."""


@dataclass(frozen=True)
class OnlyWarmup(Finding):
    kind: ClassVar[str] = "only_warmup"

    part: str


@dataclass(frozen=True)
class OnlyCounted(Finding):
    """Only steps were seen in which operations were counted, which have no times."""

    kind: ClassVar[str] = "only_counted"

    part: str


@dataclass(frozen=True)
class FewSteps(Finding):
    kind: ClassVar[str] = "few_steps"

    part: str
    steps: int
    wanted: int
    by_option: bool
    """Whether an option of `sonda run` sets their number."""


@dataclass(frozen=True)
class Drifted(Finding):
    """The second half of the steps differs from the first."""

    kind: ClassVar[str] = "drifted"

    part: str
    change: Value
    """Of the median, relative to the first half."""


@dataclass(frozen=True)
class NoisySteps(Finding):
    kind: ClassVar[str] = "noisy_steps"

    part: str
    noise: Value
    """Half of the interval of a step, over its median."""
    wanted: int
    """Steps that would suffice; 0 where their number would not help."""
    by_option: bool
    """As in `FewSteps`."""


@dataclass(frozen=True)
class AboveRoof(Finding):
    """Phases were faster than the measured ceilings allow."""

    kind: ClassVar[str] = "above_roof"

    part: str
    phases: tuple[str, ...]


@dataclass(frozen=True)
class NoTopDown(Finding):
    """The Top-Down definition that the run was counted with cannot be read."""

    kind: ClassVar[str] = "no_topdown"

    cause: str
    remedy: str


@dataclass(frozen=True)
class WrongVerdict(Finding):
    """A rule of another package gives something that is no verdict."""

    kind: ClassVar[str] = "wrong_verdict"

    rule: str
    origin: str
    """`package.module:function`."""
    given: str
    """The type of what it gives."""


# ---- How the numbers came about -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProbeSilent(Finding):
    """A probe gave nothing. Reason and remedy are the probe's own words."""

    kind: ClassVar[str] = "probe_silent"

    probe: str
    reason: str
    remedy: str

    @property
    def why(self) -> str:
        """Reason and remedy together."""
        return f"{self.reason}; {self.remedy}" if self.remedy else self.reason


def why_silent(notes: Iterable[Finding], probe: str) -> str:
    """Why a probe gave nothing, with what would change that; '' where it gave something or was not asked."""
    return next((note.why for note in notes if isinstance(note, ProbeSilent) and note.probe == probe), "")


@dataclass(frozen=True)
class UnevenPhases(Finding):
    """Medians of phases that do not add up to the median step."""

    kind: ClassVar[str] = "uneven_phases"

    part: str
    total: Value
    """Of the median step."""


@dataclass(frozen=True)
class NoRoof(Finding):
    kind: ClassVar[str] = "no_roof"

    reason: str


@dataclass(frozen=True)
class ThreadsAssumed(Finding):
    """The run does not say its threads, so it is held against the ceilings of some number."""

    kind: ClassVar[str] = "threads_assumed"

    threads: int


@dataclass(frozen=True)
class HeldAgainstTf32(Finding):
    """float32 is held against the peak of TF32."""

    kind: ClassVar[str] = "held_against_tf32"

    products: bool
    convolutions: bool
    assumed: bool
    """The program does not say whether it computes so."""


@dataclass(frozen=True)
class PaddingSkipped(Finding):
    """Products of convolutions with padding, which are counted and not executed."""

    kind: ClassVar[str] = "padding_skipped"

    part: str
    share: Value
    """Of the FLOPs of a step."""


@dataclass(frozen=True)
class ObservingCost(Finding):
    kind: ClassVar[str] = "observing_cost"

    share: Value
    """Least part of the step."""


@dataclass(frozen=True)
class ObservingCostUnknown(Finding):
    kind: ClassVar[str] = "observing_cost_unknown"


@dataclass(frozen=True)
class StolenTime(Finding):
    """What the hypervisor gave to others."""

    kind: ClassVar[str] = "stolen_time"

    share: Value


@dataclass(frozen=True)
class LayersApart(Finding):
    """Layers are known from steps of their own."""

    kind: ClassVar[str] = "layers_apart"

    part: str
    steps: int
    times: float
    """How many times as long these took."""


@dataclass(frozen=True)
class InsideFused(Finding):
    """What a step that is one function consists of."""

    kind: ClassVar[str] = "inside_fused"

    part: str
    shares: tuple[tuple[str, float], ...]
    """By phase, of the function."""
    rest: float
    """In none of them; 0 where they are all of it."""


@dataclass(frozen=True)
class OtherLayers(Finding):
    """Steps called other layers than the counted one."""

    kind: ClassVar[str] = "other_layers"

    part: str
    share: Value
    """Of the steps."""


@dataclass(frozen=True)
class Covered:
    """How many steps numbers stand for."""

    steps: int
    of: int


@dataclass(frozen=True)
class OneShapeCounted(Finding):
    """Inputs differ in shape, and the counts are those of one shape."""

    kind: ClassVar[str] = "one_shape_counted"

    part: str
    covered: Covered


@dataclass(frozen=True)
class ShapesNotForetold(Finding):
    """Inputs differ in shape, and nothing tells what steps did that were not counted."""

    kind: ClassVar[str] = "shapes_not_foretold"

    part: str
    shapes: int
    """That were not counted."""
    covered: Covered


@dataclass(frozen=True)
class ShapesAveraged(Finding):
    """Inputs differ in shape, and the counts are means over them."""

    kind: ClassVar[str] = "shapes_averaged"

    part: str
    shapes: int
    counted: int
    foretold: bool
    """Whether those that were not counted follow from their sizes."""
    covered: Covered


@dataclass(frozen=True)
class SeveralProcesses(Finding):
    """One of several processes is shown."""

    kind: ClassVar[str] = "several_processes"

    processes: int
    step: Value
    """ns, median over processes."""
