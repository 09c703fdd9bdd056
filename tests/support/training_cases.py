"""Whole trainings on a small data set, for tests; what takes a group runs on all ranks at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from sonda.frameworks.collector.sampling.schedule import Schedule
from sonda.frameworks.harness.course import Course
from sonda.frameworks.harness.settings import Driving
from sonda.frameworks.torch.drive.epochs import drive_epochs
from sonda.frameworks.torch.drive.learner import SingleLearner
from sonda.frameworks.torch.drive.state import restore_training, training_arrays
from sonda.frameworks.torch.parallel.balance import Balance
from sonda.frameworks.torch.parallel.batchnorm import share_batch_norms
from sonda.frameworks.torch.parallel.gradients import distribute
from sonda.frameworks.torch.parallel.group import Communicator, make_group
from sonda.frameworks.torch.parallel.local_sgd import WeightAverager
from sonda.frameworks.torch.parallel.pipeline import Neighbours, Stage, StagedLearner, StageTask
from sonda.frameworks.torch.parallel.shared_task import RankLearner, SharedTask
from sonda.frameworks.torch.parallel.shares import Line
from sonda.record.training import Walk
from sonda.targets.job import Job
from sonda.targets.training.trainer import Keeper, train_in_torch
from sonda.workloads.catalogue import describe
from sonda.workloads.data.preparation import prepare_source
from sonda.workloads.data.prepared import load
from sonda.workloads.data.source import ArraySource
from sonda.workloads.data.training_set import TrainingSet, divide
from sonda.workloads.in_torch.training_images import TrainingImages
from sonda.workloads.networks.image_classifiers import require_classifier

CLASSES, EACH, WIDTH, HEIGHT = 3, 20, 22, 18
SPLIT = "0.73/0.135/0.135"
BATCH = 8
OPTIONS = {"batch": str(BATCH), "filters": "8-8-8", "hidden": "8", "learning-rate": "0.3"}


def small_set(place: Path) -> Path:
    """Sixty noisy images of three classes, bright in different thirds."""
    random = np.random.default_rng(0)
    images = random.integers(0, 120, (CLASSES * EACH, HEIGHT, WIDTH, 1), dtype=np.uint8)
    labels = np.repeat(np.arange(CLASSES), EACH)
    for image, kind in zip(images, labels, strict=True):
        image[:, kind * 7 : kind * 7 + 7] += 100
    source = ArraySource(
        layout="folder", name="thirds", classes=("left", "middle", "right"), labels=labels,
        parts=(("all", len(labels)),), images=[images],
    )  # fmt: skip
    prepare_source(source, place, None, "grey", 0)
    return place


class Unobserved:
    """An observer that sees nothing."""

    def __init__(self) -> None:
        self.schedule = Schedule(count=False)
        self.recorder = SimpleNamespace(set_detail=lambda detail: None)
        self.kernel_pass = None

    def span(self, kind: str, name: str) -> Any:
        return nullcontext()

    @contextmanager
    def count_operations(self, tensors: Any) -> Iterator[None]:
        yield

    def announce_phase(self, name: str) -> Any:
        return nullcontext()


def opened(place: str, transfer: str = "batch", workers: int = 0) -> tuple[Any, TrainingImages, TrainingSet]:
    """The task of a small network, in double precision, and its images."""
    data = divide(load(place), SPLIT)
    shape = data.prepared.manifest.shape
    network = require_classifier(describe("cnn", OPTIONS)).fit_images(
        OPTIONS, (shape[1], shape[2], shape[3]), CLASSES, "thirds"
    )
    return network.build("torch", True, 0), TrainingImages(data, network, 0, "cpu", transfer, workers), data


def killed_training(job: Job, directory: Path, epochs: int) -> None:
    """The process of a training on one device, which is killed when so many epochs are kept."""
    keep = Keeper._save_checkpoint

    def keep_and_die(keeper: Keeper, done: int, *state: Any) -> None:
        keep(keeper, done, *state)
        if done == epochs:
            os.kill(os.getpid(), signal.SIGKILL)

    Keeper._save_checkpoint = keep_and_die  # type: ignore[assignment]
    train_in_torch(job, directory)


def go(
    make: Any, data: TrainingSet, epochs: int, done: int = 0, state: Any = None, precision: str = "float64"
) -> dict[str, Any]:
    """Train to an epoch, from a state where one is given; weights as they were tested, walks, states by epoch."""
    sizes = {name: len(numbers) for name, numbers in data.shares.items()}
    states: dict[int, Any] = {}
    tested: dict[str, Any] = {}

    def keep(count: int, learner: Any, loop: Any, walks: list[Walk]) -> None:
        found = training_arrays(learner.plain, loop.optimizer, loop.scaler)
        states[count] = {name: value.copy() for name, value in found.items()}

    def end(learner: Any) -> None:
        tested.update({name: value.copy() for name, value in training_arrays(learner.plain).items()})

    def put_back(model: Any, loop: Any) -> None:
        if state is not None:
            restore_training(state, model, loop.optimizer, loop.scaler)

    how = Driving(train=True, steps=None, warmup=0, seconds=1.0, precision=precision)
    course = Course(epochs, sizes, done, keep, end)
    walks, _ = drive_epochs(make, Unobserved(), how, course, put_back)  # type: ignore[arg-type]
    return {"weights": tested, "walks": walks, "states": states}


def alone(place: str, epochs: int = 2, **how: Any) -> dict[str, Any]:
    torch.set_num_threads(1)
    task, images, data = opened(place, how.pop("transfer", "batch"), how.pop("workers", 0))
    return go(lambda: SingleLearner(task, images, BATCH), data, epochs, **how)


def shared(group: Communicator, place: str, shares: tuple[int, ...], mode: str, epochs: int = 2) -> dict[str, Any]:
    """ddp with unequal shares; `memory`: the same through shared memory; `first`: only the first rank evaluates;
    `localsgd`: averages after every step."""
    task, images, data = opened(place)
    plain = task.model
    if mode == "memory":
        group.use_shared_memory(plain.double(), dist.group.WORLD.get_group_store(), 60)  # type: ignore[union-attr]
    balance = Balance([Line(0.0, 1.0)] * group.size, sum(shares), shares)
    averager = WeightAverager(plain, group, 1)

    def make() -> RankLearner:
        plain.double()
        local = mode == "localsgd"
        model = plain if local else distribute(share_batch_norms(plain, group), group, "cpu")
        after: Any = averager.end_step if local else lambda step, samples: None
        ranked = SharedTask(task, model, group, balance, moving=False, weighted=not local, after=after)
        return RankLearner(ranked, plain, images, 0, mode != "first", averager.average_now if local else lambda: None)

    return go(make, data, epochs)


def staged(group: Communicator, place: str, replicas: int, parts: int, epochs: int = 2) -> dict[str, Any]:
    """A pipeline of two stages, or several side by side."""
    task, images, data = opened(place)
    plain = task.model.double()
    chain = [
        (f"{name}.{at}", module) for name, child in plain.named_children() for at, module in child.named_children()
    ]
    lines = [range(number * 2, number * 2 + 2) for number in range(replicas)]
    groups = [make_group(list(ranks), group.meter, 60) for ranks in (*lines, *zip(*lines, strict=True))]
    line, peers = (one for one in groups if one.me >= 0)
    cut = [0, 4, len(chain)]
    with torch.no_grad():
        like = torch.zeros(1, 1, HEIGHT, WIDTH, dtype=torch.float64)
        for _, module in chain[:4]:
            like = module(like)
    begin, end = cut[line.me], cut[line.me + 1]
    shares = (BATCH // replicas,) * replicas
    stage = Stage(chain[begin:end], Neighbours(line, parts), shares[0], like if line.me else None)
    tensors = [[tensor for _, module in chain[low:high] for tensor in module.parameters()] for low, high in
               pairwise(cut)]  # fmt: skip

    def make() -> StagedLearner:
        model = distribute(stage, peers, "cpu") if replicas > 1 else stage
        return StagedLearner(StageTask(task, stage, model, shares, peers.me), images, group, peers, tensors)

    return go(make, data, epochs)
