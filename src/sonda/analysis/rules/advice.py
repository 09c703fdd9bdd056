"""What can be tried, as findings: one kind for each remedy that a rule of Sonda's own can offer."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

from sonda.analysis.findings import Finding
from sonda.analysis.rules.places import StepPlace
from sonda.analysis.summary import CausePlace


class Change(Enum):
    """Changes that need no number and no name to be told."""

    CACHE_IMAGES = "cache_images"
    CHANNELS_LAST = "channels_last"
    CLOSE_PROGRAMS = "close_programs"
    COMPILE_ONCE = "compile_once"
    COPY_FROM_PINNED = "copy_from_pinned"
    COPY_MEANWHILE = "copy_meanwhile"
    CORE_PER_THREAD = "core_per_thread"
    IMPORT_LATE = "import_late"
    LARGER_BATCH = "larger_batch"
    LARGER_BATCH_EXCHANGES_LESS = "larger_batch_exchanges_less"
    LARGER_H = "larger_h"
    LEAVE_OUT_DEVICES = "leave_out_devices"
    LOCAL_SGD = "local_sgd"
    LOOK_AFTER_STEPS = "look_after_steps"
    LOOK_BEFORE_STEPS = "look_before_steps"
    LOOK_BETWEEN_STEPS = "look_between_steps"
    MEASURE_CEILINGS = "measure_ceilings"
    MORE_SAMPLES = "more_samples"
    MORE_SAMPLES_EXCHANGE_LESS = "more_samples_exchange_less"
    NEXT_BATCH_IN_THREAD = "next_batch_in_thread"
    PIN_AND_COPY = "pin_and_copy"
    READ_IN_WORKERS = "read_in_workers"
    RUN_AS_GRAPH = "run_as_graph"
    RUN_LONGER = "run_longer"
    SAVE_LESS_OFTEN = "save_less_often"
    START_ONCE = "start_once"
    TEST_LESS = "test_less"
    VALIDATE_LESS = "validate_less"


@dataclass(frozen=True)
class TryChange(Finding):
    kind: ClassVar[str] = "try_change"

    change: Change


class LineChange(Enum):
    """Changes of a line of the program."""

    COLLECT_LESS = "collect_less"
    COPY_LESS = "copy_less"
    FASTER_INPUT = "faster_input"
    FEWER_METRICS = "fewer_metrics"
    LOG_LESS = "log_less"
    REUSE_BUFFERS = "reuse_buffers"
    SAVE_LESS = "save_less"
    VECTORISE = "vectorise"
    WAIT_LESS = "wait_less"


@dataclass(frozen=True)
class ChangeLine(Finding):
    """A change of the code at a place."""

    kind: ClassVar[str] = "change_line"

    change: LineChange
    place: CausePlace


def advice_kind(advice: Finding) -> str:
    """The name of a piece of advice in documents."""
    return advice.change.value if isinstance(advice, TryChange | ChangeLine) else advice.kind


@dataclass(frozen=True)
class UseAllCores(Finding):
    kind: ClassVar[str] = "use_all_cores"

    cores: int
    framework: str
    processes: int
    """That compute at the same time."""


@dataclass(frozen=True)
class UseFewerThreads(Finding):
    """No more threads than cores."""

    kind: ClassVar[str] = "use_fewer_threads"

    cores: int
    framework: str
    threads: int
    """That an operation uses so far; where these are no more than the cores, the program's own threads are too many."""


@dataclass(frozen=True)
class UseFewerWorkers(Finding):
    """Processes that load, and the threads of each, share the cores with the training."""

    kind: ClassVar[str] = "use_fewer_workers"

    cores: int
    workers: int
    """That load; 0 where other processes compute."""


@dataclass(frozen=True)
class UseAllCoresInRanks(Finding):
    kind: ClassVar[str] = "use_all_cores_in_ranks"

    cores: int
    threads: int
    """For every rank."""


@dataclass(frozen=True)
class UseBfloat16(Finding):
    kind: ClassVar[str] = "use_bfloat16"

    framework: str
    on_gpu: bool


@dataclass(frozen=True)
class UseFloat32(Finding):
    kind: ClassVar[str] = "use_float32"

    instead_of: str
    """The precision in use."""
    times: float = field(compare=False)
    """How many times slower its products are."""


@dataclass(frozen=True)
class FuseOperations(Finding):
    kind: ClassVar[str] = "fuse_operations"

    framework: str
    partly: bool
    """Whether a part of the program is compiled already."""


@dataclass(frozen=True)
class LaunchAtOnce(Finding):
    """The whole step by one launch."""

    kind: ClassVar[str] = "launch_at_once"

    framework: str


@dataclass(frozen=True)
class SeveralStepsAtOnce(Finding):
    kind: ClassVar[str] = "several_steps_at_once"

    framework: str


@dataclass(frozen=True)
class LoadAhead(Finding):
    kind: ClassVar[str] = "load_ahead"

    framework: str


@dataclass(frozen=True)
class LoadInParallel(Finding):
    kind: ClassVar[str] = "more_workers"

    loader: str
    """What loads, or the framework whose loader could."""
    workers: int
    """That are wanted."""
    used: int | None
    """That load already; None where nothing loads in a way that can be seen."""


@dataclass(frozen=True)
class SpeedUpStage(Finding):
    """Of a pipeline of tf.data."""

    kind: ClassVar[str] = "speed_up_stage"

    stage: str
    does: str
    """map, interleave, generator or record."""
    parallel: int
    """Calls that it makes at once already."""


@dataclass(frozen=True)
class CompileLess(Finding):
    kind: ClassVar[str] = "compile_less"

    framework: str


@dataclass(frozen=True)
class TraceOnce(Finding):
    """What keeps a function from being traced again."""

    kind: ClassVar[str] = "trace_once"

    function: str
    where: str
    cause: str
    """As in `Retraced`."""
    argument: str
    framework: str
    by_xla: bool


# ---- Lines to change -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ChangeCode(Finding):
    """Something to change at a place of the program."""

    place: StepPlace


@dataclass(frozen=True)
class NoGrad(ChangeCode):
    kind: ClassVar[str] = "no_grad"

    freezes: tuple[str, ...] = ()
    """Layers whose weights need no gradients; () to compute without gradients at all."""
    sometimes: bool = False
    """Whether their weights need gradients at other times."""


@dataclass(frozen=True)
class ReuseResult(ChangeCode):
    kind: ClassVar[str] = "reuse_result"


@dataclass(frozen=True)
class Vectorise(ChangeCode):
    kind: ClassVar[str] = "vectorise"


@dataclass(frozen=True)
class SparseUpdate(ChangeCode):
    kind: ClassVar[str] = "sparse_update"


@dataclass(frozen=True)
class FusedOptimizer(ChangeCode):
    kind: ClassVar[str] = "fused_optimizer"

    optimizer: str = ""
    own: bool = False
    """Whether it is none of the framework's."""


@dataclass(frozen=True)
class BalanceRanks(ChangeCode):
    kind: ClassVar[str] = "balance"

    stages: bool = False
    """Whether ranks are stages of a pipeline; else they share samples."""


@dataclass(frozen=True)
class OptimizerOnDevice(ChangeCode):
    kind: ClassVar[str] = "optimizer_on_device"


@dataclass(frozen=True)
class ComputeInFloat32(ChangeCode):
    kind: ClassVar[str] = "float32"


@dataclass(frozen=True)
class SmallerLayer(ChangeCode):
    kind: ClassVar[str] = "smaller_layer"

    kernel: int = 0


@dataclass(frozen=True)
class CopyLess(ChangeCode):
    kind: ClassVar[str] = "copy_less"


@dataclass(frozen=True)
class MakeContiguous(ChangeCode):
    kind: ClassVar[str] = "contiguous"


@dataclass(frozen=True)
class WorkInPlace(ChangeCode):
    kind: ClassVar[str] = "in_place"


@dataclass(frozen=True)
class FlushDenormals(ChangeCode):
    kind: ClassVar[str] = "flush_denormals"


@dataclass(frozen=True)
class ValidateLess(ChangeCode):
    kind: ClassVar[str] = "validate_less"


@dataclass(frozen=True)
class SaveLess(ChangeCode):
    kind: ClassVar[str] = "save_less"


@dataclass(frozen=True)
class ReuseBuffers(ChangeCode):
    kind: ClassVar[str] = "reuse_buffers"


@dataclass(frozen=True)
class KeepDeviceMemory(ChangeCode):
    kind: ClassVar[str] = "keep_device_memory"


@dataclass(frozen=True)
class SynchroniseLess(ChangeCode):
    kind: ClassVar[str] = "synchronise_less"


@dataclass(frozen=True)
class AllowTf32(ChangeCode):
    kind: ClassVar[str] = "allow_tf32"


@dataclass(frozen=True)
class StableShapes(ChangeCode):
    kind: ClassVar[str] = "stable_shapes"


@dataclass(frozen=True)
class RemoveBreaks(ChangeCode):
    kind: ClassVar[str] = "remove_breaks"


# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AtPlaces(Finding):
    """Advice that holds at some places of a study."""

    kind: ClassVar[str] = "at_places"

    advice: Finding
    places: str
    """Their names, or how many they are."""
