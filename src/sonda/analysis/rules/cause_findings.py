"""Causes of slow steps, as findings: what a program does and need not do, one kind for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sonda.analysis.findings import Finding
from sonda.analysis.rules.places import StepPlace
from sonda.analysis.summary import Value


@dataclass(frozen=True)
class Cause(Finding):
    """Something that a program does and need not do."""

    share: Value
    """Of the step, that is saved without it."""
    time: Value
    """ns of a step that are saved."""
    place: StepPlace


@dataclass(frozen=True)
class UnusedGradients(Cause):
    kind: ClassVar[str] = "unused_gradients"

    layers: tuple[str, ...]
    """The outermost layers whose gradients nobody uses, by path."""
    sometimes: bool
    """Whether only some of the backwards of a step are for nothing."""


@dataclass(frozen=True)
class UnusedGraph(Cause):
    """A forward makes a graph that no backward reaches."""

    kind: ClassVar[str] = "unused_graph"

    forward: Value
    """Part of the step that these forwards take."""
    evaluates: bool
    """Whether it evaluates, in a part without any backward."""


@dataclass(frozen=True)
class RepeatedForward(Cause):
    kind: ClassVar[str] = "repeated_forward"

    calls: int
    repeated: int
    backward: bool
    """Whether the backward runs as often."""


@dataclass(frozen=True)
class ForwardsAgain(Cause):
    """Evaluating forwards, each a step of its own, compute what one before has computed."""

    kind: ClassVar[str] = "forwards_again"

    looked: int
    times: int


@dataclass(frozen=True)
class TinyOperations(Cause):
    kind: ClassVar[str] = "tiny_operations"

    operations: Value
    """Per step."""
    here: int
    """Operations of a step that the place calls."""
    operation_time: Value
    """ns that one takes."""
    batch: int
    """0 where it is not known."""


@dataclass(frozen=True)
class MicroBatch(Cause):
    kind: ClassVar[str] = "micro_batch"

    operations: Value
    operation_time: Value
    batch: int


@dataclass(frozen=True)
class TableUpdated(Cause):
    """Whole tables are updated although a batch touches few of their rows."""

    kind: ClassVar[str] = "table_updated"

    rows: int
    untouched: Value
    """Part of the rows, 0 to 1."""


@dataclass(frozen=True)
class UnfusedUpdate(Cause):
    """An optimizer walks through the weights one by one, or several times."""

    kind: ClassVar[str] = "unfused_update"

    optimizer: str
    """Its class; '' of an update that the program computes itself."""
    tensors: int
    operations: Value
    whole: Value
    """Part of the step that updating takes."""


@dataclass(frozen=True)
class UnevenRanks(Cause):
    """One rank works longer than the others, which wait for it."""

    kind: ClassVar[str] = "uneven_ranks"

    rank: int
    work: Value
    """ns a step of that rank."""
    least: Value
    """Of the rank that works least."""


@dataclass(frozen=True)
class UpdateElsewhere(Cause):
    """An optimizer's weights lie on another device than the model's."""

    kind: ClassVar[str] = "update_elsewhere"

    optimizer: str


@dataclass(frozen=True)
class AsksDevice(Cause):
    """The host waits for a GPU, which has nothing to do after it has answered."""

    kind: ClassVar[str] = "asks_device"

    times: Value
    """A step."""
    waited: Value
    """ns of a step in calls that wait; 0 where that was not recorded."""


@dataclass(frozen=True)
class DeviceMemoryReturned(Cause):
    """Memory of a GPU is given back to its driver and asked for again."""

    kind: ClassVar[str] = "device_memory_returned"

    calls: Value
    """Of the driver, a step."""


@dataclass(frozen=True)
class SlowProducts(Cause):
    """Products in float32 where TF32 is not allowed."""

    kind: ClassVar[str] = "slow_products"

    whole: Value
    """Part of the step that these products take."""
    times: Value
    """How many times as fast the GPU multiplies in TF32."""


@dataclass(frozen=True)
class FewThreads(Cause):
    """Operations run on fewer threads than there are cores, which nobody else uses."""

    kind: ClassVar[str] = "few_threads"

    threads: int
    cores: int


@dataclass(frozen=True)
class DoublePrecision(Cause):
    kind: ClassVar[str] = "double_precision"

    chosen: bool
    """Whether the place is where the program chose 64 bits; else most of the time goes there."""

    whole: Value
    """Part of the step that operations on 64-bit numbers take."""


@dataclass(frozen=True)
class DominatingLayer(Cause):
    kind: ClassVar[str] = "dominating_layer"

    name: str
    """The layer's class."""
    weights: Value
    """Part of all weights that are its own, 0 to 1."""
    kernel: int
    """Of a convolution; 0 for others."""


@dataclass(frozen=True)
class PointwiseChain(Cause):
    """Operations on each element alone follow each other, and each reads and writes a whole tensor."""

    kind: ClassVar[str] = "pointwise_chain"

    operations: int
    """Of a step, in such chains."""
    moved: Value
    """B a step."""
    whole: Value
    """Part of the step that they take."""


@dataclass(frozen=True)
class NeedlessCopies(Cause):
    kind: ClassVar[str] = "needless_copies"

    copies: int
    moved: Value


@dataclass(frozen=True)
class StridedOperands(Cause):
    """Operations on tensors that lie in memory with gaps or in another order."""

    kind: ClassVar[str] = "strided_operands"

    moved: Value


@dataclass(frozen=True)
class ChannelsFirst(Cause):
    """Operations on images that are faster with channels last."""

    kind: ClassVar[str] = "channels_first"

    times: Value
    """How many times longer the place's take than with channels last, as tried."""
    crawls: bool
    """Whether kernels that are not made for channels first take the time; else these are a default that costs some."""


@dataclass(frozen=True)
class SubnormalNumbers(Cause):
    kind: ClassVar[str] = "subnormal_numbers"

    what: str
    """weights, gradients, result or state; else the name of an operation that reads such numbers."""
    part: Value
    """Of its elements that are subnormal, 0 to 1."""
    times: Value
    """How many times longer an operation takes with them here."""


@dataclass(frozen=True)
class ValidatesOften(Cause):
    """Shares are of the time of all steps."""

    kind: ClassVar[str] = "validates_often"

    times: int
    """Validations."""
    steps: Value
    """Training steps between two."""


@dataclass(frozen=True)
class SavesOften(Cause):
    """Shares are of the time from the first step on."""

    kind: ClassVar[str] = "saves_often"

    files: int
    steps: Value
    """Training steps for each file."""


@dataclass(frozen=True)
class AllocatesAnew(Cause):
    kind: ClassVar[str] = "allocates_anew"

    faults: Value
    """Page faults a step."""
    fault_time: Value
    """ns of one."""


@dataclass(frozen=True)
class CompiledAgain(Cause):
    """Shares are of the time from the first step on."""

    kind: ClassVar[str] = "compiled_again"

    function: str
    times: int
    reason: str
    """In the compiler's words."""


@dataclass(frozen=True)
class GraphBreaks(Cause):
    kind: ClassVar[str] = "graph_breaks"

    breaks: int
    reason: str
