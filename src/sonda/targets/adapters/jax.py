"""The part of the child process that runs a workload in JAX."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sonda.record.errors import SondaError
from sonda.targets.adapters.registry import OPERATION_LIST, import_framework
from sonda.targets.job import Job
from sonda.targets.progress import progress_writer
from sonda.targets.target import parse_target

if TYPE_CHECKING:
    from sonda.frameworks.harness.announcer import AnnouncedObserver
    from sonda.frameworks.jax.profile.operations import XlaOperation
    from sonda.imports.xplane.planes import XSpace


DEFAULTS = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_CPP_MIN_LOG_LEVEL": "2"}
"""Variables that JAX reads at import, unless the user has set them: GPU memory as needed, only warnings."""
DETERMINISTIC = "--xla_gpu_deterministic_ops=true"
"""For `XLA_FLAGS`; on a processor XLA has nothing to choose between."""

WAITED = "JAX runs ahead of its device: each step was waited for, so loading the next batch did not overlap with it"

GPU = re.compile(r"^/device:GPU:(\d+)")
"""The plane of a GPU in a profile."""


def run_in_jax(job: Job, directory: Path, replay: bool) -> dict[str, Any]:
    """Build and drive the workload in this process, observed; returns what the run should say of the workload.

    Raises SondaError where JAX is missing, has no such device, or lacks the operation.
    """
    if job.epochs:
        return train_in_jax(job, directory)
    from sonda.frameworks.collector.counters.process import Counting

    # Before numpy and JAX start threads, which then inherit the counters.
    counting = Counting(str(directory))
    from sonda.targets.training.trainer import describe_task
    from sonda.workloads.catalogue import describe
    from sonda.workloads.operations.ops import Operations

    workload: Any = describe(job.workload, job.options)
    jax = import_jax(job)
    device = jax_device(job, jax)
    from sonda.frameworks.harness.announcer import open_observer

    notes: list[str] = []
    if isinstance(workload, Operations):
        task: Any = workload.in_jax(job.seed, job.precision, device)
        root = OPERATION_LIST
    else:
        task, notes = build_network(job, workload, device)
        root = task.network.class_name
    with open_observer(directory, counting, root, jax_versions(), job.threads or 1, notes) as observer:
        _drive(job, task, observer, jax, replay, directory)
    return describe_task(workload, task)


def build_network(job: Job, workload: Any, device: Any) -> tuple[Any, list[str]]:
    """Build the network with the data that it is trained on; returns it and notes on the data."""
    from sonda.workloads.in_jax.network import build

    batches, notes = None, []
    if job.data:
        from sonda.workloads.data.image_stream import image_stream, prefetch

        stream = image_stream(workload, job.data, job.seed, job.cache)
        batches = stream.batches(workload.batch)
        if job.prefetch:
            batches = prefetch(batches, job.prefetch)
        notes += [stream.note] if stream.note else []
    return build(workload, job.train, job.seed, job.precision, device, batches), notes


def _drive(job: Job, task: Any, observer: AnnouncedObserver, jax: Any, replay: bool, directory: Path) -> None:
    from sonda.frameworks.harness.settings import Driving
    from sonda.frameworks.jax.drive.steps import drive_network, drive_operations

    number = parse_target(job.on).devices[0]
    on = f"cuda:{number.index}" if number.kind == "cuda" else "cpu"
    tell = progress_writer(directory, job.steps, job.warmup)
    how = Driving(job.train, job.steps, job.warmup, job.seconds, job.precision, device=on, replay=replay, tell=tell)
    if not hasattr(task, "network"):
        drive_operations(task, observer, jax, how)
        return
    drive_network(task, observer, jax, how, task.classes, xla_operations)


def xla_operations(folder: Path) -> Iterator[XlaOperation]:
    """Executions of XLA's instructions in the profile that JAX left in a folder.

    On a GPU the moment of the launch tells the number of the run. Under a CUDA graph the name is that of the kernel.
    """
    from sonda.imports.xplane.file import open_space

    for path in sorted(folder.glob("**/*.xplane.pb")):
        with open_space(path) as space:
            yield from _profiled_operations(space)


def _profiled_operations(space: XSpace) -> Iterator[XlaOperation]:
    from sonda.frameworks.jax.profile.operations import BEGINS, GRAPH, XlaOperation, number_runs
    from sonda.imports.xplane.instruction_ends import InstructionEnds

    ends = InstructionEnds(space)
    on_gpus: list[tuple[XlaOperation, int, int]] = []
    begins: dict[tuple[str, int], list[int]] = {}
    launched: dict[int, int] = {}
    for plane in space.planes:
        gpu = GPU.search(plane.name)
        for event in (event for line in plane.lines for event in line.events()):
            stats, start = event.stats, int(event.start_ns)
            if "hlo_op" in stats:
                name = str(stats["hlo_op"])
                operation = XlaOperation(
                    str(stats.get("hlo_module", "")), int(stats.get("run_id", 0)), name, start,
                    ends.of(event), int(stats.get("program_id", 0)),
                )  # fmt: skip
                if gpu is None or "run_id" in stats:
                    yield operation
                    continue
                operation = replace(operation, name=event.name, graph=True) if GRAPH.match(name) else operation
                on_gpus.append((operation, int(gpu[1]), int(stats.get("correlation_id", 0))))
            elif "correlation_id" in stats:
                launched[int(stats["correlation_id"])] = start
            elif match := BEGINS.match(event.name):
                begins.setdefault((str(stats.get("module_name", "")), int(match[1])), []).append(start)
    yield from number_runs(
        ((operation, gpu, launched.get(correlation, operation.start)) for operation, gpu, correlation in on_gpus),
        begins,
    )


def compilation_cache(folder: Path) -> dict[str, str]:
    """Variables that make the processes of one run share what JAX compiles, in a folder.

    On a GPU JAX chooses kernels by trying them. Without sharing, a process that counts could run other kernels.
    """
    return {
        "JAX_COMPILATION_CACHE_DIR": str(folder),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def import_jax(job: Job) -> Any:
    """Import JAX with the threads, the kind of device and the precision of a job."""
    on_gpu = parse_target(job.on).devices[0].kind == "cuda"
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    os.environ["JAX_PLATFORMS"] = "cuda" if on_gpu else "cpu"
    if job.threads:
        os.environ["PJRT_NPROC"] = str(job.threads)
    if job.deterministic:
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {DETERMINISTIC}".lstrip()
    jax = import_framework("jax")
    if job.precision == "float64":
        jax.config.update("jax_enable_x64", True)
    return jax


def jax_versions() -> dict[str, str]:
    return {name: version(name) for name in ("jax", "jaxlib")}


def jax_device(job: Job, jax: Any) -> Any:
    """JAX's own device of a target. Raises SondaError where JAX cannot use it."""
    device = parse_target(job.on).devices[0]
    try:
        devices = jax.devices()
    except RuntimeError:
        raise SondaError(
            f"target {job.on!r}: JAX {jax.__version__} finds no GPU that it can use",
            "install JAX for this machine's driver (pip install 'jax[cuda13]'), or use --on cpu",
        ) from None
    if device.kind == "cuda" and device.index >= len(devices):
        names = ", ".join(f"cuda:{number}" for number in range(len(devices)))
        raise SondaError(f"target {job.on!r}: there is no such GPU", f"JAX has {names}")
    return devices[device.index if device.kind == "cuda" else 0]


# ---- A whole training in JAX, in the process that trains ------------------------------------------------------------


def train_in_jax(job: Job, directory: Path) -> dict[str, Any]:
    """Train a job's workload through its epochs on one device; returns what the run says of the workload."""
    from sonda.frameworks.collector.counters.process import Counting

    # Before numpy and JAX start threads, which then inherit the counters.
    counting = Counting(str(directory))
    jax = import_jax(job)
    from sonda.frameworks.harness.announcer import open_observer
    from sonda.targets.training.epoch_trainer import train_epochs
    from sonda.targets.training.trainer import describe_task, open_training
    from sonda.workloads.in_jax.learner import JaxLearner

    opened = open_training(job)
    learner = JaxLearner(opened.workload, job.seed, job.precision, jax_device(job, jax))
    root = learner.network.network.class_name
    with open_observer(directory, counting, root, jax_versions(), job.threads or 1, [WAITED]) as observer:
        train_epochs(job, directory, opened, learner, observer)
    return describe_task(opened.workload, learner.network)
