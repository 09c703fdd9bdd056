"""Settings that mean nothing where a job runs, each with its reason.

Every framework accepts every setting. A run without use for one goes on without it and keeps the reason among its
notes. A study shows the reason in place of figures, because that point would be the same as another.
"""

from __future__ import annotations

import msgspec

from sonda.targets.job import DEFAULTS, Job
from sonda.targets.target import parse_target
from sonda.workloads.model_garden import PREFIX as GARDEN
from sonda.workloads.operations.ops import STUDIED
from sonda.workloads.own_model import is_own

ONE_DEVICE_SETTINGS = ("inter_op_threads", "bind", "prefetch", "cache", "pin")
"""Settings of a workload on one device."""
INPUT_SETTINGS = ("data", "workers", "prefetch", "cache", "pin")
"""Settings of the input pipeline."""
WITHOUT_IMAGES = ("ops", "mlp", "lstm", "transformer", "dlrm", "stress-cache", "stress-bandwidth", "stress-compute")
"""Built-in workloads whose data are no images."""
INAPPLICABLE_IN: dict[str, dict[str, str]] = {
    "torch": {},
    "tensorflow": {
        "channels_last": "TensorFlow keeps images with channels last anyway",
        "pin": "TensorFlow has no switch for pinned memory",
    },
    "jax": {
        "inter_op_threads": "JAX has one pool of threads",
        "compile": "JAX compiles anyway",
        "channels_last": "XLA chooses the layout itself",
        "workers": "JAX has no loader of its own",
        "pin": "JAX has no switch for pinned memory",
    },
    "pytensor": {
        "inter_op_threads": "PyTensor runs one operation after another",
        "compile": "PyTensor compiles anyway",
        "channels_last": "PyTensor has no such layout",
        "workers": "PyTensor has no loader of its own",
        "pin": "PyTensor runs on the processor",
        "precision": "PyTensor computes in float32 or float64",
        "deterministic": "PyTensor has no switch for it",
    },
}
"""Settings that a framework has no use for on any device, with the reasons."""
IN_MEMORY = "its data are in memory already; give --data"
WITHOUT_LOADER = ("jax", "pytensor")
"""Frameworks for which Sonda loads the images of `--data` itself."""
PRECISIONS_OF = {"pytensor": ("float32", "float64")}
"""Where a framework has few precisions: those."""


def inapplicable_settings(job: Job) -> dict[str, str]:
    """Settings that were asked for and mean nothing to this job, with the reasons; in the order of `Job`'s fields."""
    reasons = {**INAPPLICABLE_IN.get(job.framework, {}), **_refused_by_target(job), **_refused_by_workload(job)}
    if job.precision in PRECISIONS_OF.get(job.framework, ()):
        reasons.pop("precision", None)
    return {name: reasons[name] for name in DEFAULTS if name in reasons and _is_asked(job, name)}


def drop_inapplicable(job: Job) -> tuple[Job, list[str]]:
    """The job without the settings that mean nothing to it, and a note for each of these."""
    reasons = inapplicable_settings(job)
    plain = msgspec.structs.replace(job, **{name: DEFAULTS[name] for name in reasons})
    if job.workload != "ops" or job.framework == "torch" or "op" in job.options:
        return plain, describe_inapplicable(reasons)
    # `ops` by itself is all operations, and only PyTorch has more than those of the study.
    plain = msgspec.structs.replace(plain, options={**job.options, "op": ",".join(STUDIED)})
    return plain, [*describe_inapplicable(reasons), f"--op: {', '.join(STUDIED)} are all that every framework has"]


def describe_inapplicable(reasons: dict[str, str]) -> list[str]:
    """`--gpu-private-threads: TensorFlow on a GPU only`."""
    return [f"--{name.replace('_', '-')}: {reason}" for name, reason in reasons.items()]


def _is_asked(job: Job, name: str) -> bool:
    value = getattr(job, name)
    return bool(value != DEFAULTS[name] and not (name == "pin" and value is False))


def _refused_by_target(job: Job) -> dict[str, str]:
    """Settings that the target has no use for, with the reasons."""
    spec = parse_target(job.on)
    on_gpu = any(device.kind == "cuda" for device in spec.devices)
    reasons = {}
    if not (on_gpu and job.framework == "tensorflow"):
        reasons["gpu_private_threads"] = "TensorFlow on a GPU only"
    if not on_gpu:
        reasons["pin"] = "only a GPU fetches from memory"
        if job.precision == "tf32":
            reasons["precision"] = f"TF32 is for a GPU, not for {job.on}"
    if spec.mode:
        reasons |= dict.fromkeys(ONE_DEVICE_SETTINGS, f"on one device only, not on {spec.mode}=")
    return reasons


def _refused_by_workload(job: Job) -> dict[str, str]:
    """Settings that the workload has no use for, with the reasons."""
    reasons: dict[str, str] = {}
    if job.workload.startswith(GARDEN):
        reasons |= dict.fromkeys(INPUT_SETTINGS, "an experiment's steps are given one drawn batch, which is in memory")
        # TF32 is a switch of the GPU, for whatever runs there.
        return reasons | ({"precision": "the experiment chooses its own"} if job.precision != "tf32" else {})
    if job.workload in WITHOUT_IMAGES:
        reasons["channels_last"] = f"{job.workload} has no images"
        reasons |= {} if job.epochs else {"data": f"{job.workload} has no images"}
    if not job.train:
        return reasons | dict.fromkeys(INPUT_SETTINGS, "inference is given one batch, which is in memory")
    if job.epochs and is_own(job.workload):
        return reasons | dict.fromkeys(
            (*INPUT_SETTINGS, "split", "images", "transfer"), "data() of a file says that itself"
        )
    if job.epochs:
        # A whole training reads a prepared set, whose images are decoded and mapped into memory.
        return reasons | dict.fromkeys(("prefetch", "cache", "pin"), "of timed steps, not of a training by epochs")
    if not job.data or "data" in reasons:
        reasons["cache"] = IN_MEMORY
        if job.framework in WITHOUT_LOADER:
            reasons["prefetch"] = IN_MEMORY
    if job.framework == "torch" and bool(job.prefetch) != bool(job.workers):
        reasons["prefetch"] = "PyTorch loads ahead in processes that load, and these always do; see --workers"
    return reasons
