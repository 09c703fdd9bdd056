"""The process that trains: it opens the data, resumes from a checkpoint where there is one, and writes its progress.

One device (`train_in_torch`) and ranks share this module. Of several ranks the first keeps checkpoints for all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import numpy as np

from sonda.frameworks.harness.checkpoint import Checkpoints, write_arrays
from sonda.record.errors import MissingExtraError, SondaError
from sonda.record.training import FINAL, Trained, Walk, write_trained
from sonda.targets.job import Job
from sonda.targets.progress import ProgressFile, ProgressRecord
from sonda.targets.target import without_meeting_place
from sonda.workloads.catalogue import describe
from sonda.workloads.data.prepared import load
from sonda.workloads.data.training_set import PARTS, TrainingSet, divide
from sonda.workloads.networks.image_classifiers import ImageClassifier, require_classifier
from sonda.workloads.own_model import OwnModel, is_own, own_model

if TYPE_CHECKING:
    from sonda.frameworks.harness.batches import Criteria
    from sonda.frameworks.harness.course import Course
    from sonda.frameworks.harness.settings import Driving
    from sonda.frameworks.torch.drive.epochs import Learner
    from sonda.workloads.in_torch.own_training import OwnTraining

IDENTIFYING = (
    "workload", "framework", "on", "seed", "threads", "precision", "compile", "channels_last", "deterministic",
    "epochs", "split", "images", "transfer",
)  # fmt: skip
"""Settings of a job that make its training another one."""


class TrainingSource(Protocol):
    """The data of a training, as far as its keeper must know them."""

    @property
    def begun(self) -> int:
        """ns, when opening began."""

    @property
    def digest(self) -> str:
        """SHA-256 of what the data are known by."""

    def begin_result(self, job: Job) -> Trained:
        """The result of a training with what is known before the first epoch."""


@dataclass(frozen=True)
class OpenedSet:
    """A prepared data set and the network that fits its images."""

    workload: ImageClassifier
    data: TrainingSet
    begun: int
    loading_ns: int

    @property
    def digest(self) -> str:
        return self.data.digest

    def begin_result(self, job: Job) -> Trained:
        return Trained(
            loading_ns=self.loading_ns,
            images={part: len(numbers) for part, numbers in self.data.shares.items()},
            classes=list(self.data.prepared.classes),
            data=self.data.words,
            digest=self.digest,
            split=job.split,
            transfer=job.transfer,
        )


@dataclass(frozen=True)
class OpenedOwnModel:
    """A model of the user's with the data, optimizer and loss of its file."""

    workload: OwnModel
    training: OwnTraining
    begun: int

    @property
    def digest(self) -> str:
        """Of the file: what it reads is not known."""
        return self.workload.digest

    def begin_result(self, job: Job) -> Trained:
        return Trained(
            loading_ns=self.training.loading_ns,
            images={part: self.training.loaders.samples(part) for part in PARTS},
            batches={part: self.training.loaders.steps(part) for part in PARTS},
            data=f"data() of {self.workload.path.name}",
            digest=self.digest,
        )

    def criteria(self, how: Driving) -> Criteria:
        """How batches are adapted, the loss and the accuracy, for a model that is driven with these settings."""
        from sonda.frameworks.harness.batches import Criteria
        from sonda.frameworks.torch.drive.steps import adapt_batch

        return Criteria(lambda value: adapt_batch(value, how), self.training.task.loss, self.training.accuracy)


def open_training(job: Job) -> OpenedSet:
    """Open the prepared data set of a job. Raises SondaError where network and data do not fit."""
    begun = perf_counter_ns()
    prepared = load(job.data)
    data = divide(prepared, job.split, job.images, job.seed)
    workload = require_classifier(describe(job.workload, job.options))
    shape = prepared.manifest.shape
    network = workload.fit_images(
        job.options, (shape[1], shape[2], shape[3]), len(prepared.classes), prepared.directory.name
    )
    return OpenedSet(network, data, begun, perf_counter_ns() - begun)


def open_own_training(job: Job) -> OpenedOwnModel:
    """Import the file of the user's model and prepare its data. Raises SondaError where that fails."""
    from sonda.workloads.in_torch.own_training import build_training

    begun = perf_counter_ns()
    model = own_model(job.workload, job.options)
    return OpenedOwnModel(model, build_training(model, job.seed), begun)


def training_settings(job: Job, digest: str) -> dict[str, str]:
    """The settings that identify a training, as text. A checkpoint with other settings belongs to another training."""
    settings = {name: str(getattr(job, name)) for name in IDENTIFYING}
    settings["on"] = without_meeting_place(job.on)
    return {**settings, **{f"--{name}": text for name, text in sorted(job.options.items())}, "data": digest}


class Keeper:
    """Checkpoints, progress and result of a training, in one of its processes; checkpoints are the first rank's."""

    def __init__(
        self,
        job: Job,
        opened: TrainingSource,
        directory: Path,
        rank: int = 0,
        reports: bool = True,
        agree: Callable[[float], float] = lambda value: value,
    ) -> None:
        """`reports` is True for the first rank of its node. `agree(number)` returns the number of the first rank."""
        self.job, self.directory, self.first, self.reports = job, directory, rank == 0, reports
        self.checkpoint_directory = Path(job.checkpoint)
        self.checkpoints = Checkpoints(self.checkpoint_directory, training_settings(job, opened.digest))
        self.progress = ProgressFile(directory)
        self._begun = opened.begun
        self._arrays: Mapping[str, np.ndarray] | None = None
        self._earlier: list[Walk] = []
        self.trained = opened.begin_result(job)
        self._load_checkpoint(agree)

    def _load_checkpoint(self, agree: Callable[[float], float]) -> None:
        """Read the newest checkpoint; all ranks read the one that the first has found.

        Raises SondaError where this rank, on another node, has other data than the first.
        """
        fingerprint = float(int(self.trained.digest[:12], 16))  # 48 bits, which a double holds
        if agree(fingerprint) != fingerprint:
            raise SondaError(
                f"the data in {self.job.data} are not those of the first node", "give the same set to every node"
            )
        checkpoint = self.checkpoints.read_newest() if self.first else None
        self.trained.notes += self.checkpoints.notes
        self.trained.resumed = int(agree(float(checkpoint[0].epochs if checkpoint else 0)))
        if not self.first and self.trained.resumed:
            checkpoint = self.checkpoints.read_epoch(self.trained.resumed)
        if checkpoint is not None:
            self._earlier = msgspec.convert(checkpoint[0].facts["walks"], list[Walk])
            self._arrays = checkpoint[1]

    def set_duties(self, first: bool, reports: bool) -> None:
        """Decide anew whether this rank keeps checkpoints (`first`) and writes progress and result (`reports`).

        Ranks before it may have been left out of the training.
        """
        self.first, self.reports = first, reports

    def course(self) -> Course:
        """The course of the training, which calls this keeper after epochs, at the end and between steps."""
        from sonda.frameworks.harness.course import Course

        return Course(
            self.job.epochs,
            self.trained.images,
            self.trained.resumed,
            keep=self._save_checkpoint,
            end=self._save_weights,
            tell=self._write_progress,
        )

    def restore(self, model: Any, loop: Any) -> None:
        """Restore the state of the checkpoint, if there is one. Initialisation ends with this.

        Raises SondaError where the checkpoint does not fit the model.
        """
        if self._arrays is not None:
            from sonda.frameworks.torch.drive.state import restore_training

            try:
                restore_training(self._arrays, model, loop.optimizer, loop.scaler)
            except ValueError as error:
                raise SondaError(
                    f"the checkpoint in {self.checkpoint_directory} does not fit: {error}",
                    "remove it, or give another --checkpoint",
                ) from None
            self._arrays = None
        self.trained.initialisation_ns = perf_counter_ns() - self._begun - self.trained.loading_ns

    def _save_checkpoint(self, done: int, learner: Learner, loop: Any, walks: list[Walk]) -> None:
        if self.first:
            from sonda.frameworks.torch.drive.state import training_arrays

            facts = {"walks": msgspec.to_builtins([*self._earlier, *walks])}
            self.checkpoints.save(done, training_arrays(learner.plain, loop.optimizer, loop.scaler), facts)

    def _save_weights(self, learner: Learner) -> None:
        if self.first:
            from sonda.frameworks.torch.drive.state import training_arrays

            self.keep_weights(training_arrays(learner.plain))

    def keep_weights(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Write the final weights, by name, beside the checkpoints. Raises SondaError where the disk is full."""
        partial = self.checkpoint_directory / f"{FINAL}.part"
        try:
            write_arrays(partial, arrays)
            os.replace(partial, self.checkpoint_directory / FINAL)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise SondaError(
                f"cannot keep the trained weights in {self.checkpoint_directory}: {error.strerror or error}",
                "free some space",
            ) from None

    def _write_progress(self, part: str, epoch: int, step: int, steps: int, walks: list[Walk]) -> None:
        if self.reports and self.progress.is_due():
            validated = [walk for walk in (*self._earlier, *walks) if walk.accuracy is not None]
            self.progress.write(
                ProgressRecord(
                    part=part,
                    epoch=epoch,
                    epochs=self.job.epochs,
                    step=step,
                    steps=steps,
                    accuracy=validated[-1].accuracy if validated else None,
                    left_s=_seconds_left(part, epoch, step / steps, self.job.epochs, walks),
                )
            )

    def finish(self, walks: list[Walk]) -> None:
        """Write the result for the parent process."""
        if self.reports:
            self.trained.walks = [*self._earlier, *walks]
            if is_own(self.job.workload):  # a loader may leave out some of its data set, or know of none
                self.trained.images |= {walk.part: walk.samples for walk in self.trained.walks}
            write_trained(self.directory, self.trained)


def _seconds_left(part: str, epoch: int, done: float, epochs: int, walks: list[Walk]) -> float | None:
    """s until the last epoch ends, from the epochs that this process has trained; None before the first is done."""
    own_walks = [walk for walk in walks if walk.part != "test"]
    if not own_walks or part == "test":
        return None
    first = own_walks[0].epoch
    whole = sum(walk.end - walk.begin for walk in own_walks if walk.epoch < epoch)
    if epoch == first or not whole:
        return None
    share = done if part == "train" else 1.0
    return max(0.0, whole / (epoch - first) * (epochs - epoch - share)) / 1e9


def train_in_torch(job: Job, directory: Path) -> dict[str, Any]:
    """Train a job's workload through its epochs on one device, observed; returns what the run says of the workload."""
    from sonda.frameworks.collector.counters.process import Counting

    # Before numpy and PyTorch start threads, which then inherit the counters.
    counting = Counting(str(directory))
    try:
        import torch
    except ImportError:
        raise MissingExtraError("PyTorch", "torch") from None
    from sonda.frameworks.harness.settings import Driving
    from sonda.frameworks.torch.drive.epochs import drive_epochs
    from sonda.frameworks.torch.drive.learner import SingleLearner, SingleLoaderLearner
    from sonda.targets.local.worker import torch_device

    if job.threads:
        torch.set_num_threads(job.threads)
    device = torch_device(job, torch)
    how = Driving(
        train=True, steps=None, warmup=0, seconds=job.seconds, precision=job.precision, compile=job.compile,
        channels_last=job.channels_last, workers=job.workers, device=device,
        deterministic=job.deterministic,
    )  # fmt: skip
    task: Any
    data: Any
    learner: Learner
    if is_own(job.workload):
        opened_model = open_own_training(job)
        keeper = Keeper(job, opened_model, directory)
        task, data = opened_model.training.task, opened_model.training.loaders
        learner = SingleLoaderLearner(task, data, opened_model.criteria(how))
        description = describe_own_task(opened_model)
    else:
        opened = open_training(job)
        keeper = Keeper(job, opened, directory)
        task = opened.workload.build("torch", True, job.seed)
        data = load_images(job, opened, device, keeper)
        learner = SingleLearner(task, data, task.samples)
        description = describe_task(opened.workload, task)
    with ObservedTorch(directory, torch, counting) as observer:
        announce_data(data, observer)
        walks, _ = drive_epochs(lambda: learner, observer, how, keeper.course(), keeper.restore)
    keeper.finish(walks)
    return description


def describe_task(workload: Any, task: Any) -> dict[str, Any]:
    """What a run says of its workload."""
    return {
        "parameters": workload.parameters(),
        "name": workload.name,
        "samples": task.samples,
        "tokens": task.tokens,
        "phase_tokens": task.phase_tokens,
    }


def describe_own_task(opened: OpenedOwnModel) -> dict[str, Any]:
    """What a run says of a model of the user's that was trained by epochs."""
    return {**describe_task(opened.workload, opened.training.task), "loss": opened.training.loss}


def load_images(job: Job, opened: OpenedSet, device: str, keeper: Keeper) -> Any:
    """The images of a training for a device. The time of moving them up front counts as loading."""
    from sonda.workloads.in_torch.training_images import TrainingImages

    begin = perf_counter_ns()
    images = TrainingImages(
        opened.data, opened.workload, job.seed, device, job.transfer, job.workers, job.channels_last, job.prefetch,
        job.pin,
    )  # fmt: skip
    keeper.trained.loading_ns += perf_counter_ns() - begin
    return images


def announce_data(data: Any, observer: Any) -> None:
    """Have the observer see the phases of data that are loaded without a loader of PyTorch's."""
    data.mark = lambda name: nullcontext() if observer.current_stream() is None else observer.announce_phase(name)


class ObservedTorch:
    """A context in which PyTorch is observed. Only the first steps have layers, so that a run's size stays bounded."""

    def __init__(self, directory: Path, torch: Any, counting: Any, alone: bool = True) -> None:
        """`alone` is False for one rank of several. Such a rank takes no extra steps for kernels, and its exchanges are
        announced by the rank itself."""
        from sonda.frameworks.collector.recorder import Recorder
        from sonda.frameworks.collector.sampling.schedule import Schedule
        from sonda.frameworks.torch.drive.epochs import DETAILED
        from sonda.frameworks.torch.observe.observer import TorchObserver
        from sonda.frameworks.torch.observe.process import state_versions

        self.recorder = Recorder(str(directory))
        self.observer = TorchObserver(self.recorder, torch, Schedule(count=False, last=DETAILED), counting)
        self.observer.schedule.notes.append(f"layers recorded in the first {DETAILED} steps of training only")
        if not alone:
            self.observer.kernel_pass = None
            self.observer.communication.observes_calls = False
        state_versions(self.recorder, torch)

    def __enter__(self) -> Any:
        self.observer.install()
        return self.observer

    def __exit__(self, *_failure: object) -> None:
        from sonda.frameworks.torch.observe.process import finish

        finish(self.observer)
        self.recorder.close()
