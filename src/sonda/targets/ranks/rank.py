"""One rank: `python -m sonda.targets.ranks.rank DIRECTORY AGENT`, with `RANK` in its environment.

The agent, whose process number is AGENT, starts it. It takes part in calibration and training, observed like any
workload, and leaves `rank-N.json` beside its events.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from sonda.frameworks.torch.drive.determinism import explain_refusal
from sonda.record.errors import MissingExtraError, SondaError
from sonda.targets.job import JOB, Job, split_probes
from sonda.targets.local.worker import REPLAY_VARIABLE, describe_failure
from sonda.targets.quota import limit_this_process
from sonda.targets.ranks.absence import Absence, answer_signals, find_absences
from sonda.targets.ranks.elastic_agent import PLAN
from sonda.targets.ranks.outcomes import BEGUN, Forecast, RankOutcome, RankParts, write_forecast, write_outcome
from sonda.targets.ranks.plan import Plan, check_batch
from sonda.targets.signals import end_with_parent
from sonda.targets.target import parse_target

if TYPE_CHECKING:
    from sonda.targets.training.trainer import OpenedOwnModel

TIMED_OUT = "timed out"
LOST_WORDS = ("connection", "broken pipe", "socket", "peer", TIMED_OUT, "gloo", "nccl")
"""Words in PyTorch's errors when another rank is gone."""
EXCHANGE_WORDS = ("gloo", "nccl", "waiting for rank", "clients", "tcpstore", "wait timeout")
"""Words in the errors of an exchange that timed out; a workload may time out elsewhere too."""


def main() -> int:
    end_with_parent(parent=int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    directory = Path(sys.argv[1])
    (directory / BEGUN).touch()
    answer_signals(directory, int(os.environ["RANK"]))
    job = msgspec.json.decode((directory / JOB).read_bytes(), type=Job)
    plan = msgspec.json.decode((directory / PLAN).read_bytes(), type=Plan)
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    threads = plan.threads[local]
    if threads:  # before PyTorch starts its threads
        os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(threads)
    outcome = RankOutcome(rank=rank, device=plan.devices[local], threads=threads)
    try:
        Rank(job, plan, directory, outcome).run()
    except SondaError as error:
        outcome.cause, outcome.remedy = error.cause, error.remedy
    except MemoryError:
        outcome.cause, outcome.remedy = "not enough memory for this workload", "use a smaller --batch"
    except Exception as error:
        refused = explain_refusal(error) or SondaError(describe_failure(error), "check the workload's options")
        if type(error).__name__ == "OutOfMemoryError":
            refused = SondaError("not enough memory for this workload", "use a smaller --batch")
        outcome.cause, outcome.remedy = refused.cause, refused.remedy
        message = str(error).lower()
        outcome.lost = type(error).__name__ == "DistBackendError" or any(word in message for word in LOST_WORDS)
        outcome.late = TIMED_OUT in message and any(word in message for word in EXCHANGE_WORDS)
        if outcome.late:
            ranks_here = range(rank - local, rank - local + len(plan.devices))
            absent = find_absences(directory, [number for number in ranks_here if number != rank])
            outcome.absent = bool(absent)
            outcome.cause, outcome.remedy = _explain_timeout(error, plan, absent)
    try:
        write_outcome(directory, outcome)
    except OSError:
        os._exit(1)  # the disk is full, which the parent of the agent finds too
    if outcome.cause:
        # Threads of the communication may wait for a rank that is gone: leave without joining them.
        os._exit(1)
    return 0


def _explain_timeout(error: Exception, plan: Plan, absent: list[Absence]) -> tuple[str, str]:
    """Cause and remedy of a wait that took too long: the ranks that did not come, as far as they are known."""
    if absent:
        named = [
            f"{plan.name(absence.rank)} did not come within {plan.timeout:g} s: it {absence.doing}"
            for absence in absent
        ]
        return "; ".join(named), absent[0].remedy
    where = " of another node" if plan.nodes > 1 else ""
    waited = f"timed out after {plan.timeout:g} s waiting for another rank{where}"
    cause = str(error) if isinstance(error, TimeoutError) else waited
    return cause, "see whether it hangs, or give it longer with @timeout="


class Rank:
    """One process of several that train together."""

    def __init__(self, job: Job, plan: Plan, directory: Path, outcome: RankOutcome) -> None:
        self.job, self.plan, self.directory, self.outcome = job, plan, directory, outcome

    def run(self) -> None:
        from sonda.frameworks.collector.counters.process import Counting

        # Before numpy and PyTorch start threads, which then inherit the counters.
        self.counting = Counting(str(self.directory))
        from sonda.workloads.catalogue import describe

        workload: Any = describe(self.job.workload, self.job.options)
        try:
            import torch
        except ImportError:
            raise MissingExtraError("PyTorch", "torch") from None
        from sonda.frameworks.torch.parallel.group import ExchangeMeter, join_ranks, leave_ranks
        from sonda.targets.training.trainer import describe_own_task, describe_task
        from sonda.workloads.own_model import is_own

        self.torch = torch
        if self.outcome.threads:
            torch.set_num_threads(self.outcome.threads)
        share = parse_target(self.outcome.device).devices[0].share
        if share is not None:
            limit_this_process(share)
        self.device = torch_device(self.outcome.device, torch)
        self.meter = ExchangeMeter()
        backend = "gloo" if self.plan.backend == "shared" else self.plan.backend
        self.group = join_ranks(backend, self.meter, self.plan.timeout)
        self.own_model: OpenedOwnModel | None = None
        if self.job.epochs and is_own(self.job.workload):
            self.own_model = self._open_own()
            self.task = self.own_model.training.task
            description = describe_own_task(self.own_model)
        else:
            if self.job.epochs:
                workload = self._open_data()
            self.task = workload.build(self.job.framework, True, self.job.seed)
            description = describe_task(workload, self.task)
        self._train()
        self.outcome.workload = description
        leave_ranks()

    def _open_data(self) -> Any:
        """The data of a whole training, and its network."""
        from sonda.targets.training.trainer import load_images, open_training

        opened = open_training(self.job)
        self._make_keeper(opened)
        self.data = load_images(self.job, opened, self.device, self.keeper)
        return opened.workload

    def _open_own(self) -> OpenedOwnModel:
        """The user's model and the loaders of its file."""
        from sonda.targets.training.trainer import open_own_training

        opened = open_own_training(self.job)
        self._make_keeper(opened)
        self.data = opened.training.loaders
        return opened

    def _make_keeper(self, opened: Any) -> None:
        from sonda.targets.training.trainer import Keeper

        local = int(os.environ["LOCAL_RANK"]) == 0
        self.keeper = Keeper(
            self.job,
            opened,
            self.directory,
            self.outcome.rank,
            local,
            lambda value: self.group.gather_numbers([value])[0][0],
        )

    # ---- the modes --------------------------------------------------------------------------------------------

    def _train(self) -> None:
        if self.plan.mode == "pipeline":
            from sonda.targets.ranks.stages import train_stages

            train_stages(self)
        elif self.plan.mode == "dp":
            self._data_parallel()
        else:
            from sonda.targets.ranks.shares import train_shares

            train_shares(self)

    def _data_parallel(self) -> None:
        """PyTorch's DataParallel: one process, a copy of the model on every GPU for each forward."""
        self.outcome.about = RankParts(devices=list(self.plan.devices))
        indices = [int(device.partition(":")[2]) for device in self.plan.devices]
        plain = self.task.model
        self.task.model = self.torch.nn.DataParallel(plain.to(self.device), device_ids=indices)
        if not self.job.epochs:
            self.drive(lambda _waiting: self.task, self.job.steps)
            return
        from sonda.frameworks.torch.drive.learner import SingleLearner, SingleLoaderLearner

        if self.own_model is not None:
            criteria = self.own_model.criteria(self.driving(None))
            self.drive_epochs(lambda _waiting: SingleLoaderLearner(self.task, self.data, criteria, plain))
        else:
            self.drive_epochs(lambda _waiting: SingleLearner(self.task, self.data, self.task.samples, plain))

    # ---- what all modes need ----------------------------------------------------------------------------------

    def driving(self, steps: int | None) -> Any:
        """How the task is driven, with so many timed steps."""
        from sonda.frameworks.harness.settings import Driving

        job = self.job
        replay = bool(os.environ.get(REPLAY_VARIABLE))
        # Steps for the kernels of a GPU are taken by all ranks or by none.
        kernels = any(device.startswith("cuda") for device in self.plan.devices) and (
            replay or any(word.name == "ncu" for word in split_probes(job.probe))
        )
        return Driving(
            True, steps, job.warmup, job.seconds, job.precision, job.compile, job.channels_last, job.workers,
            self.device, replay, deterministic=job.deterministic, kernels=kernels,
        )  # fmt: skip

    def key_store(self) -> Any:
        """A store that all ranks see."""
        import torch.distributed as dist

        world: Any = dist.group.WORLD
        return world.get_group_store()

    def synchronize(self) -> None:
        """Wait until the device has finished its work."""
        if self.device != "cpu":
            self.torch.cuda.synchronize(self.device)

    def show_forecast(self, sentences: list[str], numbers: dict[str, Any]) -> None:
        """Leave the forecast for the agent's parent to show; the first rank does so for all."""
        if self.outcome.rank == 0:
            write_forecast(self.directory, Forecast(sentences=sentences, numbers=numbers))

    def drive(self, make: Callable[[Any], Any], steps: int | None) -> None:
        """Drive the task that `make(waiting)` gives, observed."""
        from sonda.frameworks.collector.callgrind import begin_modelling
        from sonda.frameworks.collector.recorder import Recorder
        from sonda.frameworks.collector.sampling.schedule import Schedule
        from sonda.frameworks.torch.drive.steps import drive_task
        from sonda.frameworks.torch.observe.observer import TorchObserver
        from sonda.frameworks.torch.observe.process import finish, state_versions

        how = self.driving(steps)
        recorder = Recorder(str(self.directory))
        observer = TorchObserver(recorder, self.torch, Schedule(count=False, replay=how.replay), self.counting)
        if not how.kernels or self.device == "cpu":
            observer.kernel_pass = None
        observer.communication.observes_calls = False
        state_versions(recorder, self.torch)
        observer.install()
        # A rank that leaves early would be missed by the others, who may still need what it has sent.
        begin_modelling(observer, announced=True, leave=self.group.barrier)
        waiting = _observe_waiting(observer, self.meter)
        try:
            drive_task(make(waiting), observer, how)
        finally:
            finish(observer)
            recorder.close()

    def drive_epochs(self, make: Callable[[Any], Any]) -> None:
        """Train through the job's epochs with the learner that `make(waiting)` gives, observed."""
        from sonda.frameworks.torch.drive.epochs import drive_epochs
        from sonda.targets.training.trainer import ObservedTorch, announce_data

        # Steps for the kernels of a GPU are steps that ranks without one would not take.
        with ObservedTorch(self.directory, self.torch, self.counting, alone=False) as observer:
            announce_data(self.data, observer)
            waiting = _observe_waiting(observer, self.meter)
            walks, _ = drive_epochs(
                lambda: make(waiting), observer, self.driving(None), self.keeper.course(), self.keeper.restore
            )
        self.keeper.finish(walks)

    def check_batch(self) -> int:
        """The batch of all ranks together."""
        return check_batch(self.plan, self.task.samples)


def _observe_waiting(observer: Any, meter: Any) -> Callable[[], Any]:
    """Have the observer see what ranks exchange; returns a context for the time in which this rank waits for gradients.

    That time is a phase of its own, `communicate`. Exchanges of batch norms and of pipeline stages lie inside other
    phases; there they are a metric, the `communication` of a layer or phase.
    """
    recorder, communication = observer.recorder, observer.communication

    def told(seconds: float) -> None:
        stream = recorder.mine.stream
        if stream is not None:
            communication.record_exchange(stream, round(1e9 * seconds))

    @contextmanager
    def waiting() -> Iterator[None]:
        stream = recorder.mine.stream
        if stream is None or stream.engine:  # a GPU's backward runs in a thread without phases
            yield
            return
        with communication.waiting_phase(stream):
            yield

    meter.listener = told
    return waiting


def torch_device(written: str, torch: Any) -> str:
    """The device as PyTorch writes it. Raises SondaError where PyTorch cannot use it."""
    if not written.startswith("cuda"):
        return "cpu"
    if not torch.cuda.is_available():
        raise SondaError(
            f"{written}: PyTorch {torch.__version__} finds no GPU that it can use",
            "install a build of PyTorch for this machine's driver, or use cpu",
        )
    index = int(written.partition(":")[2])
    if index >= torch.cuda.device_count():
        names = ", ".join(f"cuda:{number}" for number in range(torch.cuda.device_count()))
        raise SondaError(f"there is no {written}", f"this machine has {names}")
    torch.cuda.set_device(index)
    return written


if __name__ == "__main__":
    sys.exit(main())
