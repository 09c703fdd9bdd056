"""A whole training in TensorFlow, JAX or PyTensor, in the process that trains.

It keeps no checkpoints: a training that was interrupted begins anew. What it leaves is what PyTorch's leaves.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np

from sonda.frameworks.announced import AnnouncedObserver
from sonda.frameworks.announced_epochs import EpochLearner, drive_epochs, make_ready
from sonda.frameworks.checkpoint import write_arrays
from sonda.frameworks.counted_step import count_step
from sonda.record.errors import SondaError
from sonda.record.training import FINAL
from sonda.targets.job import Job
from sonda.targets.training_worker import Keeper, Opened
from sonda.workloads.data.epoch_batches import EpochBatches
from sonda.workloads.network_cost import network_costs


def train_announced(
    job: Job, directory: Path, opened: Opened, learner: Any, observer: AnnouncedObserver, dtype: str = "float32"
) -> None:
    """Train through a job's epochs and leave the result in the directory; the observer is open already.

    `learner` is an `EpochLearner` with `arrays()`, its weights by PyTorch's names and in its layout.
    """
    keeper = Keeper(job, opened, directory)
    batches = EpochBatches(opened.data, opened.workload, job.seed, dtype)
    trains: EpochLearner = learner
    make_ready(trains, batches, observer)
    keeper.trained.initialisation_ns = perf_counter_ns() - opened.begun - opened.loading_ns
    keeper.trained.notes.append("layers are not recorded: a step is one compiled function")
    course = replace(keeper.course(), done=0, keep=lambda *_: None, end=lambda _: None)
    walks = drive_epochs(trains, batches, observer, course)
    _keep_weights(keeper.place / FINAL, learner.arrays())
    costs = network_costs(opened.workload, True, np.dtype(dtype).itemsize)
    count_step(observer, "train", costs, job.framework, dtype)
    keeper.finish(walks)


def _keep_weights(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    partial = path.with_name(f".{path.name}")
    try:
        write_arrays(partial, arrays)
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise SondaError(
            f"cannot keep the trained weights in {path.parent}: {error.strerror or error}", "free some space"
        ) from None
