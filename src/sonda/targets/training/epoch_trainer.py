"""A whole training in TensorFlow, JAX or PyTensor, in the process that trains.

It keeps no checkpoints: a training that was interrupted begins anew. It leaves the same result files as PyTorch's.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np

from sonda.frameworks.harness.announcer import AnnouncedObserver
from sonda.frameworks.harness.counted_step import count_step
from sonda.frameworks.harness.epochs import EpochLearner, Together, compile_shapes, drive_epochs
from sonda.targets.job import Job
from sonda.targets.training.trainer import Keeper, OpenedSet
from sonda.workloads.data.epoch_batches import EpochBatches
from sonda.workloads.networks.cost import network_costs


def train_epochs(
    job: Job, directory: Path, opened: OpenedSet, learner: Any, observer: AnnouncedObserver, dtype: str = "float32",
    batches: EpochBatches | None = None, together: Together = lambda numbers: numbers,
) -> None:  # fmt: skip
    """Train through a job's epochs and leave the result in the directory. The observer is open already.

    `learner` is an `EpochLearner` with `arrays()`, which gives its weights by PyTorch's names and in PyTorch's layout.
    With several ranks each has its own `batches`, `together` adds up their numbers, and the first leaves the result.
    """
    first = observer.rank == 0
    keeper = Keeper(job, opened, directory, observer.rank, first)
    batches = batches or EpochBatches(opened.data, opened.workload, job.seed, dtype)
    trains: EpochLearner = learner
    compile_shapes(trains, batches, observer)
    keeper.trained.initialisation_ns = perf_counter_ns() - opened.begun - opened.loading_ns
    keeper.trained.notes.append("layers are not recorded: a step is one compiled function")
    course = replace(keeper.course(), done=0, keep=lambda *_: None, end=lambda _: None)
    walks = drive_epochs(trains, batches, observer, course, together)
    arrays = learner.arrays()
    if first:
        keeper.keep_weights(arrays)
    costs = network_costs(opened.workload, True, np.dtype(dtype).itemsize)
    count_step(observer, "train", costs, job.framework, dtype)
    keeper.finish(walks)
