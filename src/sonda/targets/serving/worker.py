"""The served model, inside the child process: it is built in PyTorch for every size of inference, then served."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from sonda.record.errors import MissingExtraError, SondaError
from sonda.targets.job import Job
from sonda.targets.serving.loop import FailedQueryError, HostClock
from sonda.targets.serving.scenarios import Infer, run_traffic
from sonda.targets.serving.traffic import ServingTraffic

QUERIES = "queries.npy"
"""File for the parent: the moments of all queries."""


def serve_job(job: Job, directory: Path) -> dict[str, Any]:
    """Serve the job's workload under the traffic in `directory`; leaves the moments of the queries there.

    Returns what the run should say of the workload, and under `serving` of the traffic. Raises SondaError where the
    model fails or cannot do what the traffic asks.
    """
    from sonda.targets.local.worker import TRAFFIC, describe_failure

    traffic = msgspec.json.decode((directory / TRAFFIC).read_bytes(), type=ServingTraffic)
    infer, description = build_served_model(job, traffic)
    try:
        served, facts = run_traffic(traffic, job.seed, infer, HostClock(), job.warmup, directory)
    except FailedQueryError as failed:
        error = failed.__cause__
        assert isinstance(error, Exception)
        raise SondaError(f"{failed}: {describe_failure(error)}", "mend the model") from None
    np.save(directory / QUERIES, np.stack([served.arrived, served.begun, served.done, served.batch]))
    return {**description, "serving": msgspec.to_builtins(facts)}


def build_served_model(job: Job, traffic: ServingTraffic) -> tuple[Infer, dict[str, Any]]:
    """The model, ready for inferences of every size of the traffic, and what the run should say of the workload."""
    from sonda.workloads.catalogue import describe

    try:
        import torch
    except ImportError:
        raise MissingExtraError("PyTorch", "torch") from None
    from sonda.frameworks.harness.settings import Driving
    from sonda.frameworks.torch.drive.steps import NoListener, make_loop
    from sonda.targets.local.worker import torch_device
    from sonda.targets.serving.weights import load_weights

    if job.threads:
        torch.set_num_threads(job.threads)
    how = Driving(
        train=False, steps=None, warmup=job.warmup, seconds=job.seconds, precision=job.precision, compile=job.compile,
        channels_last=job.channels_last, device=torch_device(job, torch), deterministic=job.deterministic,
    )  # fmt: skip
    loops = {}
    model: Any = None
    for size in traffic.sizes:
        samples = size * traffic.samples
        task = describe(job.workload, options_with_batch(job, samples)).build(job.framework, False, job.seed)
        if task.samples != samples:
            raise SondaError(
                f"{job.workload} makes inferences of {task.samples} samples, not of {samples}",
                "give the shapes of its inputs with --input",
            )
        if model is None:
            model = task.model
            if traffic.weights:
                load_weights(traffic.weights, model)
        # The same seed gives the same weights; one model in memory is enough.
        task.model = model
        loops[size] = make_loop(task, NoListener(), how)

    def infer(queries: int) -> None:
        loops[queries].step()
        if how.on_gpu:
            torch.cuda.synchronize(how.device)

    workload = describe(job.workload, options_with_batch(job, traffic.samples))
    # `batch` would be read as the size of every inference; `samples` are those of a query.
    parameters = {name: value for name, value in workload.parameters().items() if name != "batch"}
    return infer, {**parameters, "name": workload.name, "samples": traffic.samples}


def options_with_batch(job: Job, samples: int) -> dict[str, str]:
    """The workload's options for inferences of so many samples. Raises SondaError where the user set their size."""
    from sonda.workloads.input_shapes import parse_shapes
    from sonda.workloads.own_model import is_own

    if {"batch", "mini-batch-size", "mini_batch_size"} & set(job.options):
        raise SondaError(
            "the size of an inference is set by the traffic", "use --samples for a query, --max-batch for an inference"
        )
    if not is_own(job.workload):
        return {**job.options, "batch": str(samples)}
    if "input" not in job.options:
        return dict(job.options)
    shapes = parse_shapes(job.options["input"])
    first = shapes[0].shape[0]
    # An input whose first side is another is no batch but something that all samples share.
    new = [
        replace(tensor, shape=(samples, *tensor.shape[1:])) if tensor.shape[0] == first else tensor for tensor in shapes
    ]
    return {**job.options, "input": ",".join(map(str, new))}
