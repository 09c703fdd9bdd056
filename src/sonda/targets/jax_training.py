"""A whole training in JAX, in the process that trains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sonda.targets.jax_worker import import_jax, jax_device, jax_versions
from sonda.targets.job import Job


def train_in_jax(job: Job, directory: Path) -> dict[str, Any]:
    """Train a job's workload through its epochs on one device; returns what the run says of the workload."""
    from sonda.frameworks.collector.counting import Counting

    # Before numpy and JAX start threads, which then inherit the counters.
    counting = Counting(str(directory))
    jax = import_jax(job)
    from sonda.frameworks.announced import announcing
    from sonda.targets.announced_training import train_announced
    from sonda.targets.training_worker import described, open_training
    from sonda.workloads.in_jax.learning import JaxLearner

    opened = open_training(job)
    learner = JaxLearner(opened.workload, job.seed, job.precision, jax_device(job, jax))
    root = learner.network.network.class_name
    with announcing(directory, counting, root, jax_versions(), job.threads or 1) as observer:
        train_announced(job, directory, opened, learner, observer)
    return described(opened.workload, learner.network)
