"""Remedies: what can be tried, only where it makes sense: not what is already in use, not what the machine lacks."""

from __future__ import annotations

from collections.abc import Callable

from sonda.analysis.roofline import full_precision
from sonda.analysis.rules.advice import (
    Change,
    FuseOperations,
    LaunchAtOnce,
    LoadAhead,
    LoadInParallel,
    SeveralStepsAtOnce,
    SpeedUpStage,
    TryChange,
    UseAllCores,
    UseAllCoresInRanks,
    UseBfloat16,
    UseFloat32,
)
from sonda.analysis.steps.pipeline import EXPLAINS, PipelineStage
from sonda.analysis.summary import Remedy, Summary
from sonda.record.target import ProgramTarget, RanksTarget

BATCH_FACTOR = 4
"""Four times the batch costs four times the memory and divides the overhead per sample by up to four."""
FASTER_PEAK = 1.2
"""A lower precision changes results, so its measured peak has to be clearly higher."""
MOST_WORKERS = 4
"""More loading processes than this rarely help, and each holds a copy of the data set's state."""

HAVE_BFLOAT16 = ("torch", "tensorflow", "jax")
"""Frameworks that can be asked for this; one that is not there has no use for it, as below."""
COMPILE = ("torch", "tensorflow")
RUN_SEVERAL_STEPS = ("tensorflow", "jax")
LOAD_AHEAD = ("tensorflow", "jax")
LOADERS = ("torch", "tensorflow", "PyDataset", "generator")
"""What can load with several workers, or the framework that has such a loader."""
STAGES = ("map", "interleave", "generator", "record")
"""What can be made faster where this word is in the name of the slowest stage of tf.data."""
IN_MATMULS = "medium"
"""The precision of products (`torch.set_float32_matmul_precision`) with which they are computed in bfloat16."""
AHEAD_WITH_WORKERS = ("torch", "PyDataset")
"""What loads ahead where it has workers, and not otherwise: what it can do is said of workers."""


def remedies(summary: Summary, *candidates: Callable[[Summary], Remedy | None]) -> tuple[Remedy, ...]:
    """Those that apply, in order. A program chooses its own options, so it gets advice in words."""
    remedies = [remedy for remedy in (candidate(summary) for candidate in candidates) if remedy is not None]
    if not summary.target.spec:
        return tuple(Remedy(remedy.advice) for remedy in remedies)
    return tuple(remedies)


def threads(summary: Summary) -> Remedy | None:
    """All cores, where some are idle; a GPU's work does not get faster by that."""
    if summary.target.device.startswith("cuda"):
        return None
    used, cores = summary.target.threads, count_cores(summary)
    together = count_processes(summary)
    ranks = summary.target if isinstance(summary.target, RanksTarget) else None
    if not used or not cores or used >= cores // together or (ranks is not None and ranks.same_machine):
        return None  # nodes that are processes of one machine share its cores
    if ranks is not None:
        here = (ranks.nodes[0].ranks or []) if ranks.nodes else ranks.ranks
        each = cores // max(1, len(here))
        return Remedy(UseAllCoresInRanks(cores, each)) if each * len(here) > used else None
    return Remedy(UseAllCores(cores, _framework(summary), together), ("--threads", str(cores)))


def bfloat16(summary: Summary) -> Remedy | None:
    """A shorter precision, where this machine is measured to be faster in it."""
    used = full_precision(summary.workload.precision or "float32")
    peaks = summary.ceilings.get("peaks", {})
    if used != "float32" or "bfloat16" not in peaks or "float32" not in peaks:
        return None
    if summary.workload.autocast or summary.workload.matmul_precision == IN_MATMULS:
        return None
    if peaks["bfloat16"].value < FASTER_PEAK * peaks["float32"].value:
        return None
    framework = _framework(summary)
    if framework not in HAVE_BFLOAT16:
        return None
    # Operations have no weights that could stay float32.
    mixed = "bf16" if summary.workload.name == "ops" else "mixed_bfloat16"
    return Remedy(UseBfloat16(framework, summary.target.device.startswith("cuda")), ("--precision", mixed))


def float32(summary: Summary) -> Remedy | None:
    """The longer precision, where this machine is measured to be slower in the one that is used."""
    used = full_precision(summary.workload.precision or "float32").removeprefix("mixed_")
    peaks = summary.ceilings.get("peaks", {})
    # Ceilings are measured with PyTorch; another library may convert where it does not.
    if used == "float32" or used not in peaks or "float32" not in peaks or _framework(summary) != "torch":
        return None
    times = peaks["float32"].value / peaks[used].value
    if used == "float64" or times < FASTER_PEAK:
        return None
    return Remedy(UseFloat32(used, times), ("--precision", "float32"))


def compiled(summary: Summary) -> Remedy | None:
    """Fused operations, which move less memory and cost less overhead."""
    framework = _framework(summary)
    part = bool(summary.workload.compile_part)  # of a program that compiles other code
    if framework not in COMPILE or _mode(summary) not in ("", "ddp") or (summary.workload.compile and not part):
        return None  # devices that train together compile under ddp only
    if _by_xla(summary):
        return None
    if framework == "tensorflow" and any(row.name == "backward" for part in summary.parts for row in part.phases):
        return Remedy(TryChange(Change.RUN_AS_GRAPH))  # a graph's backward is a part of `fused`
    return Remedy(FuseOperations(framework, part), ("--compile",))


def graphs(summary: Summary) -> Remedy | None:
    """One launch for many kernels; several steps in one call where the step is one function already."""
    framework = _framework(summary)
    fused = any(row.name == "fused" for part in summary.parts for row in part.phases)
    if _by_xla(summary) or (fused and (framework == "jax" or summary.workload.compile)):
        return Remedy(SeveralStepsAtOnce(framework)) if framework in RUN_SEVERAL_STEPS else None
    if summary.workload.cuda_graphs:
        return None
    return Remedy(LaunchAtOnce(framework))


def channels_last(summary: Summary) -> Remedy | None:
    """The memory layout that convolutions on CPUs prefer."""
    if _framework(summary) != "torch":
        return None
    layers = [row for part in summary.parts[:1] for row in part.layers]
    convolves = any(row.name.startswith(("Conv2d", "Conv3d")) for row in layers)
    tried = any(step.formats for step in summary.workload.evidence or ())
    if summary.workload.channels_last or not (convolves or tried):
        return None
    return Remedy(TryChange(Change.CHANNELS_LAST), ("--channels-last",))


def batch(summary: Summary) -> Remedy | None:
    """More work per operation."""
    if not summary.target.spec:
        return Remedy(TryChange(Change.LARGER_BATCH))
    size = summary.workload.batch
    # The operations' work is fixed by their size: a larger batch is the same work in another shape.
    if not size or size < 1 or summary.workload.name == "ops":
        return None
    return Remedy(TryChange(Change.MORE_SAMPLES), ("--batch", str(BATCH_FACTOR * size)))


def workers(summary: Summary) -> Remedy | None:
    """Load the next input while the network computes."""
    used = summary.workload.workers
    cores = count_cores(summary) or 1
    on_gpu = summary.target.device.startswith("cuda")
    wanted = min(cores // count_processes(summary), MOST_WORKERS)
    # A loader says how many it has, whichever framework it feeds.
    loader = summary.workload.loader or ""
    if loader == "arrays" or (loader == "tf.data" and _slowest(summary)):
        return None
    loads = next((name for name in (loader, "tensorflow" if loader == "tf.data" else _framework(summary))
                  if name in LOADERS), "")  # fmt: skip
    if not any(row.name == "data" for part in summary.parts[:1] for row in part.phases) or not loads:
        return None
    if (used or 0) >= wanted or (cores == 1 and not on_gpu):
        return None  # beside the only core there is none that could load
    if used is None and not summary.target.spec and _framework(summary) == "torch":
        return Remedy(LoadInParallel(loads, wanted, None))
    return Remedy(LoadInParallel(loads, wanted, used or 0), ("--workers", str(wanted)))


def slowest_stage(summary: Summary) -> Remedy | None:
    """What helps the slowest stage of the tf.data pipeline that feeds the part the verdict speaks of."""
    slowest = _slowest(summary) if summary.workload.loader == "tf.data" else None
    does = next((word for word in STAGES if slowest and word in slowest.name), "")
    if slowest is None or not does:
        return None
    return Remedy(SpeedUpStage(slowest.name, does, slowest.parallel))


def _slowest(summary: Summary) -> PipelineStage | None:
    """The stage that explains the wait for data; None where none takes half as long."""
    first = summary.parts[0] if summary.parts else None
    waited = sum(row.cost.time.value or 0.0 for row in first.phases if row.name == "data") if first else 0.0
    stages = [pipeline.slowest for pipeline in summary.pipelines if first and pipeline.part == first.name]
    return next((stage for stage in stages if (stage.pace.value or 0.0) >= EXPLAINS * waited), None)


def prefetch(summary: Summary) -> Remedy | None:
    """Load the next input while the network computes, where that needs no process of its own."""
    framework = _framework(summary)
    if framework not in LOAD_AHEAD or summary.workload.prefetch or summary.workload.loader in AHEAD_WITH_WORKERS:
        return None
    return Remedy(LoadAhead(framework), ("--prefetch", "2"))


def cache(summary: Summary) -> Remedy | None:
    """Decode every image once."""
    if not summary.workload.data or summary.workload.cache or summary.workload.epochs:
        return None
    return Remedy(TryChange(Change.CACHE_IMAGES), ("--cache",))


def _by_xla(summary: Summary) -> bool:
    """Whether XLA compiles the function that the program spends most of its time in."""
    traced = summary.workload.traced or ()
    return bool(traced and max(traced, key=lambda function: function.call_s).xla)


def count_processes(summary: Summary) -> int:
    """How many processes of a program compute at the same time."""
    return (summary.target.processes or 1) if isinstance(summary.target, ProgramTarget) else 1


def _mode(summary: Summary) -> str:
    """How devices train together; '' where one works alone."""
    return summary.target.mode if isinstance(summary.target, RanksTarget) else ""


def _framework(summary: Summary) -> str:
    """PyTorch unless the run says otherwise."""
    return summary.workload.framework or "torch"


def count_cores(summary: Summary) -> int | None:
    """Those of the machine, or fewer where the program is bound to some of them."""
    cores = summary.machine.cores
    return int(min(cores, summary.workload.cores or cores)) if cores else None
