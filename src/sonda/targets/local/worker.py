"""The child process that runs a workload: `python -m sonda.targets.local.worker DIRECTORY`, the job as JSON on stdin.

It leaves the collector's events and an `outcome.json` in the directory. What the model prints goes to stderr.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from sonda.frameworks.torch.drive.determinism import explain_refusal
from sonda.record.errors import MissingExtraError, SondaError, named_line
from sonda.record.files.partial import write_whole
from sonda.targets.adapters.registry import run_in_framework
from sonda.targets.job import JOB, OUTCOME, Job
from sonda.targets.local.binding import confine_process
from sonda.targets.progress import progress_writer
from sonda.targets.quota import limit_this_process
from sonda.targets.signals import end_with_parent
from sonda.targets.target import parse_target

if TYPE_CHECKING:
    from sonda.frameworks.collector.sampling.schedule import Schedule

TRAFFIC = "traffic.json"
"""In the directory where the workload is to be served: the queries to come."""
REPLAY_VARIABLE = "SONDA_REPLAY"
"""Environment variable: drive the workload for a profiler that replays kernels."""


class SimulationOutcome(msgspec.Struct, kw_only=True):
    """What the run should say of a simulated accelerator."""

    target: dict[str, Any] = {}
    """Fields of `SimulatedTarget` besides the description."""
    notes: list[str] = []
    versions: dict[str, str] = {}


class Outcome(msgspec.Struct, kw_only=True):
    """What the child leaves at its end: the workload as it was built, or why it could not run."""

    workload: dict[str, Any] = {}
    simulation: SimulationOutcome | None = None
    """Of a job on a simulated accelerator."""
    cause: str = ""
    remedy: str = ""


def main() -> int:
    end_with_parent()
    confine_process()
    directory = Path(sys.argv[1])
    # A profiler between this process and its parent may not pass on its standard input.
    job = msgspec.json.decode(sys.stdin.buffer.read() or (directory / JOB).read_bytes(), type=Job)
    os.dup2(2, 1)
    share = parse_target(job.on).devices[0].share
    if share is not None:
        limit_this_process(share)
    try:
        outcome = _run_job(job, directory)
    except SondaError as error:
        outcome = Outcome(cause=error.cause, remedy=error.remedy)
    except MemoryError:
        outcome = Outcome(cause="not enough memory for this workload", remedy="use a smaller --batch")
    except Exception as error:
        refused = explain_refusal(error)
        outcome = Outcome(cause=describe_failure(error), remedy="check --input and the workload's options")
        if refused is not None:
            outcome = Outcome(cause=refused.cause, remedy=refused.remedy)
        if type(error).__name__ == "OutOfMemoryError":
            outcome = Outcome(cause=f"not enough memory on {job.on} for this workload", remedy="use a smaller --batch")
    try:
        write_whole(directory / OUTCOME, msgspec.json.encode(outcome))
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        (directory / "outcome.full").touch()  # an empty file needs no room
        return 1
    return 0 if not outcome.cause else 1


def _run_job(job: Job, directory: Path) -> Outcome:
    if parse_target(job.on).devices[0].kind == "sim":
        from sonda.targets.simulated.launcher import simulate_job

        return simulate_job(job, directory)
    if (directory / TRAFFIC).exists():
        from sonda.targets.serving.worker import serve_job

        return Outcome(workload=serve_job(job, directory))
    return Outcome(workload=run_in_framework(job.framework, job, directory, bool(os.environ.get(REPLAY_VARIABLE))))


def run_in_torch(job: Job, directory: Path, replay: bool) -> dict[str, Any]:
    """Build and drive the workload in this process, observed; returns what the run should say of the workload.

    Raises SondaError where PyTorch is missing or has no such device.
    """
    if job.epochs:
        from sonda.targets.training.trainer import train_in_torch

        return train_in_torch(job, directory)
    from sonda.frameworks.collector.counters.process import Counting

    # Before numpy and PyTorch start threads, which then inherit the counters.
    counting = Counting(str(directory))
    from sonda.workloads.catalogue import describe

    workload = describe(job.workload, job.options)
    try:
        import torch
    except ImportError:
        raise MissingExtraError("PyTorch", "torch") from None
    from sonda.frameworks.collector.sampling.schedule import Schedule
    from sonda.frameworks.harness.settings import Driving
    from sonda.frameworks.torch.drive.steps import drive_task
    from sonda.targets.training.trainer import describe_task

    if job.threads:
        torch.set_num_threads(job.threads)
    if job.inter_op_threads:
        torch.set_num_interop_threads(job.inter_op_threads)
    device = torch_device(job, torch)
    task = workload.build(job.framework, job.train, job.seed)
    schedule = Schedule(count=False, replay=replay)
    if job.data:
        from sonda.workloads.data.image_stream import image_stream
        from sonda.workloads.in_torch.streamed_images import train_on_stream

        stream = image_stream(workload, job.data, job.seed, job.cache)
        task = train_on_stream(task, stream)
        schedule.notes += [stream.note] if stream.note else []
    settings = Driving(
        job.train, job.steps, job.warmup, job.seconds, job.precision, job.compile, job.channels_last, job.workers,
        device, replay, job.prefetch, job.pin, job.deterministic,
        tell=progress_writer(directory, job.steps, job.warmup),
    )  # fmt: skip
    with _observe_torch(directory, torch, schedule, counting) as observer:
        drive_task(task, observer, settings)
    return describe_task(workload, task)


@contextmanager
def _observe_torch(directory: Path, torch: Any, schedule: Schedule, counting: Any) -> Iterator[Any]:
    """Observe PyTorch in this process until the block ends; gives the observer, which writes to the directory.

    It also joins a callgrind pass where the environment asks for one.
    """
    from sonda.frameworks.collector.callgrind import begin_modelling
    from sonda.frameworks.collector.recorder import Recorder
    from sonda.frameworks.torch.observe.observer import TorchObserver
    from sonda.frameworks.torch.observe.process import finish, state_versions

    recorder = Recorder(str(directory))
    observer = TorchObserver(recorder, torch, schedule, counting)
    state_versions(recorder, torch)
    observer.install()
    begin_modelling(observer, announced=True)
    try:
        yield observer
    finally:
        finish(observer)
        recorder.close()


def torch_device(job: Job, torch: Any) -> str:
    """The device as PyTorch writes it. Raises SondaError where PyTorch cannot use it."""
    device = parse_target(job.on).devices[0]
    if device.kind != "cuda":
        return "cpu"
    if not torch.cuda.is_available():
        raise SondaError(
            f"target {job.on!r}: PyTorch {torch.__version__} finds no GPU that it can use",
            "install a build of PyTorch for this machine's driver, or use --on cpu",
        )
    if device.index >= torch.cuda.device_count():
        names = ", ".join(f"cuda:{number}" for number in range(torch.cuda.device_count()))
        raise SondaError(f"target {job.on!r}: there is no such GPU", f"this machine has {names}")
    torch.cuda.set_device(device.index)
    return f"cuda:{device.index}"


def describe_failure(error: Exception) -> str:
    """A failure of the model itself in one line, with the place where it happened."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"the workload failed: {named_line(error)}{place}"


if __name__ == "__main__":
    sys.exit(main())
