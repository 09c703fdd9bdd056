"""The plan of a run under one of TensorFlow's own strategies, checked before anything is started.

mirrored=A+B          MirroredStrategy: one process, a copy of the weights on each device, gradients summed in each step
centralstorage=A+B    CentralStorageStrategy: one process, the weights on one device, which all others read
multiworker=A+B       MultiWorkerMirroredStrategy: a process for every device, which exchange gradients
parameterserver=A+B   ParameterServerStrategy: weights on servers, workers that do not wait for each other
"""

from __future__ import annotations

from sonda.record.errors import SondaError, nearest
from sonda.targets.job import Job
from sonda.targets.ranks.plan import (
    Plan,
    format_device,
    rank_threads,
    refuse_repeated_gpus,
    whole_option,
    word_option,
)
from sonda.targets.target import TargetSpec, has_gpu
from sonda.workloads.model_garden import is_garden

OPTIONS = {
    "mirrored": ("batch",),
    "centralstorage": ("batch",),
    "multiworker": ("batch", "timeout"),
    "parameterserver": ("batch", "servers", "timeout"),
}
"""What may stand after '@', by mode."""
ONE_PROCESS = ("mirrored", "centralstorage")
"""Modes whose replicas are devices of one process."""
SERVERS = 1


def make_strategy_plan(job: Job, spec: TargetSpec) -> Plan:
    """Check a job for a strategy and plan how it is shared. Raises SondaError for what cannot be."""
    text, mode = spec.text, spec.mode
    for option in spec.options:
        if option not in OPTIONS[mode]:
            raise SondaError(f"target {text!r}: {mode} has no option {option!r}", nearest(option, OPTIONS[mode]))
    kinds = {device.kind for device in spec.devices}
    if "sim" in kinds:
        raise SondaError(f"target {text!r}: a simulated accelerator cannot train with others", "use cpu or cuda:N")
    if len(kinds) > 1:
        raise SondaError(
            f"target {text!r}: TensorFlow's strategies take devices of one kind",
            "use cpu or cuda:N alone, or hybrid= with --framework torch",
        )
    if "cuda" in kinds and not has_gpu():
        raise SondaError(
            f"target {text!r}: no driver of a GPU is loaded on this machine", f"use cpu devices, as in {mode}=cpu+cpu"
        )
    if any(device.share is not None for device in spec.devices):
        raise SondaError(
            f"target {text!r}: TensorFlow's strategies hold no device to a part of a processor", "use cpu/N"
        )
    if not job.train:
        raise SondaError(f"target {text!r}: several devices train together", "add --train")
    if job.compile:
        raise SondaError(f"target {text!r}: --compile is for one device in TensorFlow", "leave out --compile")
    if is_garden(job.workload):
        raise SondaError(f"target {text!r}: {job.workload} runs on one device", "use --on cpu or cuda:N")
    refuse_repeated_gpus(spec)
    return Plan(
        mode=mode,
        devices=tuple(format_device(device) for device in spec.devices),
        threads=rank_threads(spec.devices, job),
        backend=_strategy_backend(mode, "cuda" in kinds),
        equal=True,
        each=word_option(spec, "batch", ("all", "each")) == "each",
        shared_norms=False,
        servers=whole_option(spec, "servers", SERVERS) if mode == "parameterserver" else 0,
        timeout=float(whole_option(spec, "timeout", 300)),
    )


def _strategy_backend(mode: str, on_gpu: bool) -> str:
    """What carries gradients and weights."""
    if mode in ("mirrored", "multiworker"):
        return "nccl" if on_gpu else "ring"
    return "grpc" if mode == "parameterserver" else "copies"
