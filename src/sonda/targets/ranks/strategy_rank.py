"""One process of a strategy: `python -m sonda.targets.ranks.strategy_rank DIRECTORY ROLE NUMBER AGENT`.

The agent, whose process number is AGENT, starts it. A rank or a coordinator trains, observed like any workload, and
leaves `rank-N.json` for every replica that it reports for. A server or a worker of parameter servers does what the
coordinator asks until it is stopped.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from sonda.frameworks.torch.parallel.shares import equal_shares
from sonda.record.errors import SondaError
from sonda.targets.job import JOB, Job
from sonda.targets.local.worker import describe_failure
from sonda.targets.ranks.elastic_agent import PLAN
from sonda.targets.ranks.outcomes import BEGUN, RankOutcome, write_outcome
from sonda.targets.ranks.plan import Plan, check_batch
from sonda.targets.ranks.strategy_agent import COORDINATOR, RANK, SERVER
from sonda.targets.ranks.strategy_plan import ONE_PROCESS
from sonda.targets.signals import end_with_parent

SERVER_THREADS = 1
"""Threads of one operation on a parameter server and in the coordinator, which move weights and compute little."""


def main() -> int:
    end_with_parent(parent=int(sys.argv[4]))
    directory, role, number = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    job = msgspec.json.decode((directory / JOB).read_bytes(), type=Job)
    plan = msgspec.json.decode((directory / PLAN).read_bytes(), type=Plan)
    member = StrategyMember(job, plan, directory, role, number)
    if role not in (RANK, COORDINATOR):
        member.serve()
    outcomes = member.outcomes()
    try:
        member.train(outcomes)
    except SondaError as error:
        outcomes[0].cause, outcomes[0].remedy = error.cause, error.remedy
    except MemoryError:
        outcomes[0].cause, outcomes[0].remedy = "not enough memory for this workload", "use a smaller --batch"
    except Exception as error:
        outcomes[0].cause, outcomes[0].remedy = describe_failure(error), "check the workload's options"
    for outcome in outcomes:
        write_outcome(directory, outcome)
    if not outcomes[0].cause:
        member.wait_for_others()
    # Threads of the communication may wait for a process that is gone: nothing is left to be cleaned up.
    sys.stderr.flush()
    os._exit(1 if outcomes[0].cause else 0)


class StrategyMember:
    """One process of several that train together, or the only one."""

    def __init__(self, job: Job, plan: Plan, directory: Path, role: str, number: int) -> None:
        self.plan, self.directory, self.role, self.number = plan, directory, role, number
        self.threads = self._threads()
        os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(self.threads)
        self.job = msgspec.structs.replace(job, threads=self.threads)
        self.shared: Any = None

    def _threads(self) -> int:
        """Threads of this process. Replicas of one process share a pool of all their threads."""
        if self.role in (SERVER, COORDINATOR):
            return SERVER_THREADS
        if self.plan.mode in ONE_PROCESS:
            return max(1, sum(self.plan.threads))
        return max(1, self.plan.threads[self.number])

    def outcomes(self) -> list[RankOutcome]:
        """Empty outcomes of the replicas that this process reports for."""
        own_ranks = [self.number] if self.plan.mode == "multiworker" else range(self.plan.ranks)
        return [
            RankOutcome(rank=rank, device=self.plan.devices[rank], threads=self.plan.threads[rank])
            for rank in own_ranks
        ]

    def import_tensorflow(self) -> Any:
        """Import TensorFlow; where each process has a device of its own, only that one is visible."""
        from sonda.targets.adapters.tensorflow import import_tensorflow

        device = self.plan.devices[self.number]
        if self.plan.mode not in ONE_PROCESS and device.startswith("cuda"):
            of_worker = self.role not in (SERVER, COORDINATOR)
            os.environ["CUDA_VISIBLE_DEVICES"] = device.partition(":")[2] if of_worker else ""
        return import_tensorflow(self.job)

    def serve(self) -> None:
        """Do what the coordinator asks until this process is killed."""
        tf = self.import_tensorflow()
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        settings = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=self.threads)
        server = tf.distribute.Server(
            resolver.cluster_spec(),
            job_name=resolver.task_type,
            task_index=resolver.task_id,
            protocol="grpc",
            config=settings,
        )
        server.join()

    # ---- training ---------------------------------------------------------------------------------------------

    def train(self, outcomes: Sequence[RankOutcome]) -> None:
        """Train timed steps or epochs, observed, and complete the outcomes."""
        from sonda.frameworks.collector.counters.process import Counting

        # Before numpy and TensorFlow start threads, which then inherit the counters.
        counting = Counting(str(self.directory))
        from sonda.targets.training.trainer import describe_task, open_training
        from sonda.workloads.catalogue import describe

        opened = open_training(self.job) if self.job.epochs else None
        workload: Any = opened.workload if opened else describe(self.job.workload, self.job.options)
        batch = check_batch(self.plan, workload.batch)
        workload = replace(workload, batch=batch)
        shares = equal_shares(self.plan.ranks, batch)
        tf = self.import_tensorflow()
        strategy = self._strategy(tf)
        (self.directory / BEGUN).touch()
        self.shared = self._network(strategy, workload)
        log = None
        if opened:
            self._epochs(replace(opened, workload=workload), counting)
        else:
            log = self._steps(tf, workload, shares, counting)
        description = {**describe_task(workload, self.shared.network), "batch": batch}
        for outcome in outcomes:
            outcome.workload = description
            outcome.samples = [shares[outcome.rank]]
            if log and self.plan.mode == "multiworker":
                outcome.worked_ns, outcome.waited_ns = log.work_ns, log.communication_ns

    def wait_for_others(self) -> None:
        """Wait for the other ranks: one that ends first would make the others fail."""
        if self.plan.mode == "multiworker":
            self.shared.mean(0.0)

    def _network(self, strategy: Any, workload: Any) -> Any:
        from sonda.workloads.in_tensorflow.strategies import MirroredNetwork, ParameterServerNetwork

        if self.plan.mode == "parameterserver":
            return ParameterServerNetwork(strategy, workload, self.job.seed, self.job.precision, self.plan.ranks)
        return MirroredNetwork(strategy, workload, self.job.seed, self.job.precision)

    def _strategy(self, tf: Any) -> Any:
        """The strategy of TensorFlow's for this mode. Raises SondaError where TensorFlow has no such device."""
        plan = self.plan
        if plan.mode == "parameterserver":
            resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
            return tf.distribute.ParameterServerStrategy(resolver)
        if plan.mode == "multiworker":
            return tf.distribute.MultiWorkerMirroredStrategy()
        devices = self._devices(tf)
        if plan.mode == "mirrored":
            return tf.distribute.MirroredStrategy(devices)
        return tf.distribute.experimental.CentralStorageStrategy(devices, parameter_device="/CPU:0")

    def _devices(self, tf: Any) -> list[str]:
        """Devices of this process as TensorFlow writes them; a processor is divided into as many as were asked for."""
        devices = self.plan.devices
        if devices[0].startswith("cuda"):
            gpus = tf.config.list_physical_devices("GPU")
            indices = [int(device.partition(":")[2]) for device in devices]
            if max(indices) >= len(gpus):
                raise SondaError(
                    f"target {self.job.on!r}: TensorFlow {tf.__version__} finds {len(gpus)} GPUs that it can use",
                    "install TensorFlow for this machine's driver (pip install 'tensorflow[and-cuda]'), or use cpu",
                )
            return [f"/GPU:{index}" for index in indices]
        processor = tf.config.list_physical_devices("CPU")[0]
        part = tf.config.LogicalDeviceConfiguration()
        tf.config.set_logical_device_configuration(processor, [part] * len(devices))
        return [f"/CPU:{index}" for index in range(len(devices))]

    def _epochs(self, opened: Any, counting: Any) -> None:
        """Train through epochs; the first rank leaves the result."""
        from sonda.targets.adapters.tensorflow import observe_tensorflow
        from sonda.targets.training.epoch_trainer import train_epochs
        from sonda.workloads.in_tensorflow.strategy_learner import StrategyBatches, StrategyLearner

        shared, ranks = self.shared, self.plan.ranks
        alone = self.plan.mode != "multiworker"
        own_ranks = slice(0, ranks) if alone else slice(self.number, self.number + 1)
        dtype = shared.network.dtype
        batches = StrategyBatches(
            opened.data, opened.workload, self.job.seed, dtype, lambda size: split_evenly(ranks, size), own_ranks
        )
        learner = StrategyLearner(shared, batches)

        def together(numbers: list[float]) -> list[float]:
            return numbers if alone else [ranks * shared.mean(number) for number in numbers]

        notes = self._notes(opened.workload)
        with observe_tensorflow(
            self.job, self.directory, counting, shared.network.root, notes, self.number
        ) as observer:
            train_epochs(self.job, self.directory, opened, learner, observer, dtype, batches, together)

    # ---- timed steps ------------------------------------------------------------------------------------------

    def _steps(self, tf: Any, workload: Any, shares: Sequence[int], counting: Any) -> Any:
        from sonda.frameworks.harness.settings import Driving
        from sonda.frameworks.tensorflow.drive.strategies import drive_strategy
        from sonda.targets.adapters.tensorflow import observe_tensorflow
        from sonda.targets.profiles.tensorflow_events import read_profile_events
        from sonda.workloads.networks.cost import network_costs

        job, network = self.job, self.shared.network
        alone = self.plan.mode == "multiworker"
        computed = replace(workload, batch=shares[self.number]) if alone else workload
        costs = network_costs(computed, True, network.kind.size)
        device = "cpu" if not self.plan.devices[0].startswith("cuda") else "cuda"
        how = Driving(True, job.steps, job.warmup, job.seconds, job.precision, device=device)
        batches, notes = self._batches(workload, shares)
        with observe_tensorflow(job, self.directory, counting, network.root, notes, self.number) as observer:
            return drive_strategy(
                self.shared, batches, sum(shares), costs, network.classes, observer, tf, how, read_profile_events
            )

    def _batches(self, workload: Any, shares: Sequence[int]) -> tuple[Callable[[], Iterator[Any]], list[str]]:
        """A function that gives this process' shares of batches, endlessly, and notes on the data."""
        from sonda.workloads.in_tensorflow.input_pipeline import make_batches
        from sonda.workloads.in_tensorflow.strategies import split_batch

        job, network, notes = self.job, self.shared.network, self._notes(workload)
        stream = None
        if job.data:
            from sonda.workloads.data.image_stream import image_stream

            stream = image_stream(workload, job.data, job.seed, job.cache)
            notes += [stream.note] if stream.note else []
        rows, own_shares = slice(0, sum(shares)), list(shares)
        if self.plan.mode == "multiworker":
            first = sum(shares[: self.number])
            rows, own_shares = slice(first, first + shares[self.number]), [shares[self.number]]

        def shared_batches() -> Iterator[Any]:
            for inputs, targets in make_batches(network, job.seed, job.workers, job.prefetch, stream, rows):
                yield split_batch(inputs, targets, own_shares)

        return shared_batches, notes

    def _notes(self, workload: Any) -> list[str]:
        """Notes on a strategy; only the first rank or the coordinator has them."""
        if self.number or self.role not in (RANK, COORDINATOR):
            return []
        notes = []
        if workload.name.startswith("resnet"):
            notes.append("batch norms see the samples of their own replica: TensorFlow's default, unlike one device")
        if self.plan.mode in ONE_PROCESS and len(self.plan.devices) > 1:
            notes.append(f"{len(self.plan.devices)} replicas share one process and a pool of {self.threads} threads")
        if self.plan.mode == "parameterserver" and self.plan.ranks > 1:
            notes.append(
                "workers do not wait for each other within a step: weights that one reads another may have moved"
            )
        return notes


def split_evenly(ranks: int, size: int) -> tuple[int, ...]:
    """Samples of every rank for a batch of this size, as equal as possible. The first have more; some may have 0."""
    return tuple(size // ranks + (rank < size % ranks) for rank in range(ranks))


if __name__ == "__main__":
    sys.exit(main())
