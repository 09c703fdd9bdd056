"""The part of the child process that runs a workload in TensorFlow."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sonda.record.errors import SondaError
from sonda.targets.adapters.registry import OPERATION_LIST, import_framework, version_of
from sonda.targets.job import Job
from sonda.targets.progress import progress_writer
from sonda.targets.target import parse_target

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}
"""Variables that TensorFlow reads at import, unless the user has set them: only errors."""


def run_in_tensorflow(job: Job, directory: Path, replay: bool) -> dict[str, Any]:
    """Build and drive the workload in this process, observed; returns what the run should say of the workload.

    Raises SondaError where TensorFlow is missing, has no such device, or lacks the workload.
    """
    from sonda.frameworks.collector.counters.process import Counting

    # Before numpy and TensorFlow start threads, which then inherit the counters.
    counting = Counting(str(directory))
    tf = import_tensorflow(job)
    with tf.device(tensorflow_device(job, tf)):
        return _train(job, directory, counting) if job.epochs else _time_steps(job, directory, counting, replay)


def _time_steps(job: Job, directory: Path, counting: Any, replay: bool) -> dict[str, Any]:
    """Timed steps; with `replay`, one step for a profiler outside."""
    from sonda.frameworks.harness.settings import Driving
    from sonda.frameworks.tensorflow.drive.steps import drive_network, drive_operations
    from sonda.targets.training.trainer import describe_task
    from sonda.workloads.catalogue import describe
    from sonda.workloads.model_garden import ModelGarden
    from sonda.workloads.operations.ops import Operations

    workload: Any = describe(job.workload, job.options)
    number = parse_target(job.on).devices[0]
    on = f"cuda:{number.index}" if number.kind == "cuda" else "cpu"
    how = Driving(
        job.train, job.steps, job.warmup, job.seconds, job.precision, job.compile, device=on, replay=replay,
        tell=progress_writer(directory, job.steps, job.warmup),
    )  # fmt: skip
    notes: list[str] = []
    if isinstance(workload, ModelGarden):
        from sonda.frameworks.tensorflow.drive.steps import drive_opaque
        from sonda.workloads.in_tensorflow.model_garden import build as build_garden

        task: Any = build_garden(workload, job.train, job.seed, job.compile)
        with observe_tensorflow(job, directory, counting, task.root, notes) as observer:
            drive_opaque(task, observer, how)
        return describe_task(workload, task)
    if isinstance(workload, Operations):
        from sonda.workloads.in_tensorflow.operations import build as build_operations

        task = build_operations(workload, job.seed, job.precision, job.compile)
        with observe_tensorflow(job, directory, counting, OPERATION_LIST, notes) as observer:
            drive_operations(task, observer, how)
        return describe_task(workload, task)
    from sonda.targets.profiles.tensorflow_events import read_profile_events
    from sonda.workloads.in_tensorflow.input_pipeline import make_batches
    from sonda.workloads.in_tensorflow.layerwise import LayerwiseNetwork
    from sonda.workloads.in_tensorflow.network import build as build_network

    task = build_network(workload, job.train, job.seed, job.precision, job.compile)
    stream = None
    if job.data:
        from sonda.workloads.data.image_stream import image_stream

        stream = image_stream(workload, job.data, job.seed, job.cache)
        notes += [stream.note] if stream.note else []
    with observe_tensorflow(job, directory, counting, task.root, notes) as observer:
        drive_network(
            task, lambda announcer: LayerwiseNetwork(task, announcer),
            lambda: make_batches(task, job.seed, job.workers, job.prefetch, stream), observer, how, read_profile_events,
        )  # fmt: skip
    return describe_task(workload, task)


def observe_tensorflow(
    job: Job, directory: Path, counting: Any, root: str, notes: Sequence[str] = (), rank: int = 0
) -> AbstractContextManager[Any]:
    """An observer of this process, which runs TensorFlow."""
    from sonda.frameworks.harness.announcer import open_observer

    versions = {"tensorflow": version_of("tensorflow"), "keras": version("keras")}
    return open_observer(directory, counting, root, versions, job.threads or 1, notes, rank)


def _train(job: Job, directory: Path, counting: Any) -> dict[str, Any]:
    """Train through epochs; what the run should say of the workload."""
    from sonda.targets.training.epoch_trainer import train_epochs
    from sonda.targets.training.trainer import describe_task, open_training
    from sonda.workloads.in_tensorflow.learner import TensorflowLearner

    opened = open_training(job)
    learner = TensorflowLearner(opened.workload, job.seed, job.precision, job.compile)
    with observe_tensorflow(job, directory, counting, learner.network.root) as observer:
        train_epochs(job, directory, opened, learner, observer, learner.network.dtype)
    return describe_task(opened.workload, learner.network)


def import_tensorflow(job: Job) -> Any:
    """Import TensorFlow with the threads, the kind of device and the precision of a job."""
    on_gpu = parse_target(job.on).devices[0].kind == "cuda"
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    if not on_gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if job.gpu_private_threads:
        os.environ["TF_GPU_THREAD_MODE"] = "gpu_private"
        os.environ["TF_GPU_THREAD_COUNT"] = str(job.gpu_private_threads)
    with _silence_stderr():
        tf = import_framework("tensorflow")
    if job.threads:
        tf.config.threading.set_intra_op_parallelism_threads(job.threads)
    if job.inter_op_threads:
        tf.config.threading.set_inter_op_parallelism_threads(job.inter_op_threads)
    # float32 means float32: TensorFlow lets a GPU use TF32 by default.
    tf.config.experimental.enable_tensor_float_32_execution(job.precision == "tf32")
    if job.deterministic:
        tf.random.set_seed(job.seed)  # without one, random operations are refused
        tf.config.experimental.enable_op_determinism()
    return tf


@contextmanager
def _silence_stderr() -> Iterator[None]:
    """Drop what is written to stderr in the block; write it after all where the block fails.

    TensorFlow's libraries print while they are loaded, before they can be configured.
    """
    with tempfile.TemporaryFile() as written:
        sys.stderr.flush()
        stderr = os.dup(2)
        os.dup2(written.fileno(), 2)
        try:
            yield
        except BaseException:
            written.seek(0)
            os.write(stderr, written.read())
            raise
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)


def tensorflow_device(job: Job, tf: Any) -> str:
    """TensorFlow's name of a job's device. Raises SondaError where TensorFlow cannot use it."""
    device = parse_target(job.on).devices[0]
    if device.kind != "cuda":
        return "/CPU:0"
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        raise SondaError(
            f"target {job.on!r}: TensorFlow {tf.__version__} finds no GPU that it can use",
            "install TensorFlow for this machine's driver (pip install 'tensorflow[and-cuda]'), or use --on cpu",
        )
    if device.index >= len(gpus):
        names = ", ".join(f"cuda:{number}" for number in range(len(gpus)))
        raise SondaError(f"target {job.on!r}: there is no such GPU", f"TensorFlow has {names}")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    return f"/GPU:{device.index}"
