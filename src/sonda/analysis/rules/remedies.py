"""Remedies: what can be tried, only where it makes sense: not what is already in use, not what the machine lacks."""

from __future__ import annotations

from collections.abc import Callable

from sonda.analysis.roofline import full_precision
from sonda.analysis.summary import Remedy, Summary

BATCH_FACTOR = 4
"""Four times the batch costs four times the memory and divides the overhead per sample by up to four."""
FASTER_PEAK = 1.2
"""A lower precision changes results, so its measured peak has to be clearly higher."""
MOST_WORKERS = 4
"""More loading processes than this rarely help, and each holds a copy of the data set's state."""


def remedies(summary: Summary, *candidates: Callable[[Summary], Remedy | None]) -> tuple[Remedy, ...]:
    """Those that apply, in order. A program chooses its own options, so it gets advice in words."""
    found = [remedy for remedy in (candidate(summary) for candidate in candidates) if remedy is not None]
    if not summary.target.get("spec"):
        return tuple(Remedy(remedy.text) for remedy in found)
    return tuple(found)


def threads(summary: Summary) -> Remedy | None:
    """All cores, where some are idle; a GPU's work does not get faster by that."""
    if str(summary.target.get("device")).startswith("cuda"):
        return None
    used, cores = summary.target.get("threads"), _cores(summary)
    if not used or not cores or used >= cores:
        return None
    how = "" if _in_jax(summary) else f": torch.set_num_threads({cores})"
    return Remedy(f"use all {cores} cores{how}", ("--threads", str(cores)))


def bfloat16(summary: Summary) -> Remedy | None:
    """A shorter precision, where this machine is measured to be faster in it."""
    used = full_precision(str(summary.workload.get("precision") or "float32"))
    peaks = summary.ceilings.get("peaks", {})
    if used != "float32" or "bfloat16" not in peaks or "float32" not in peaks:
        return None
    if peaks["bfloat16"].value < FASTER_PEAK * peaks["float32"].value:
        return None
    where = "cuda" if str(summary.target.get("device")).startswith("cuda") else "cpu"
    how = "operands as jnp.bfloat16" if _in_jax(summary) else f"torch.autocast('{where}', torch.bfloat16)"
    return Remedy(f"compute in bfloat16: {how}", ("--precision", "bf16"))


def compiled(summary: Summary) -> Remedy | None:
    """Fused operations, which move less memory and cost less overhead."""
    if summary.workload.get("compile") or _in_jax(summary):
        return None
    return Remedy("fuse operations: torch.compile(model)", ("--compile",))


def graphs(summary: Summary) -> Remedy | None:
    """One launch for many kernels."""
    if _in_jax(summary):
        return Remedy("compile the whole step as one function: jax.jit around it")
    return Remedy("launch the whole step at once: CUDA graphs, torch.compile(mode='reduce-overhead')")


def channels_last(summary: Summary) -> Remedy | None:
    """The memory layout that convolutions on CPUs prefer."""
    layers = [row for part in summary.parts[:1] for row in part.layers]
    if summary.workload.get("channels_last") or not any(row.name.startswith(("Conv2d", "Conv3d")) for row in layers):
        return None
    return Remedy("store images with channels last: model.to(memory_format=torch.channels_last)", ("--channels-last",))


def batch(summary: Summary) -> Remedy | None:
    """More work per operation."""
    if not summary.target.get("spec"):
        return Remedy("process more samples per step: a larger batch")
    size = summary.workload.get("batch")
    # The operations' work is fixed by their size: a larger batch is the same work in another shape.
    if not isinstance(size, int) or size < 1 or summary.workload.get("name") == "ops":
        return None
    return Remedy("process more samples per step", ("--batch", str(BATCH_FACTOR * size)))


def workers(summary: Summary) -> Remedy | None:
    """Load the next input while the network computes."""
    used = summary.workload.get("workers") or 0
    wanted = min(_cores(summary) or 1, MOST_WORKERS)
    if not any(row.name == "data" for part in summary.parts[:1] for row in part.phases) or used >= wanted:
        return None
    return Remedy(f"load data in parallel: DataLoader(num_workers={wanted})", ("--workers", str(wanted)))


def _in_jax(summary: Summary) -> bool:
    """What runs in JAX is compiled already."""
    return summary.workload.get("framework") == "jax"


def _cores(summary: Summary) -> int | None:
    cores = summary.machine.get("effective_cores") or summary.machine.get("logical_cores")
    return int(cores) if cores else None
