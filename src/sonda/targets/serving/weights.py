"""Weights of a served model: those that a training left in its run, or a file of arrays by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from sonda.record.errors import SondaError
from sonda.record.run import Run
from sonda.record.store import Store
from sonda.record.training import WEIGHTS
from sonda.targets.job import Job, option_text
from sonda.workloads.catalogue import describe

NOT_OF_THE_MODEL = ("batch", "learning_rate")
"""Options of a workload that do not change its tensors."""


def with_weights(job: Job, reference: str, store: Store) -> tuple[Job, str]:
    """The job that builds the model of these weights, and the file that holds them.

    `reference` is the path of a `weights.npz`, or names a run that trained. Options of the model (image, channels,
    classes) are those of that run where the job does not give them. Raises SondaError where there are no such weights.
    """
    if reference.endswith(".npz"):
        path = Path(reference)
        if not path.is_file():
            raise SondaError(f"--weights {reference}: there is no such file", "name a run that trained, or a .npz file")
        return job, str(path.resolve())
    run = store.one(reference)
    path = run.directory / WEIGHTS
    if not path.is_file():
        raise SondaError(f"run {reference} keeps no weights", "train one: sonda run resnet34 --train --epochs 10")
    name = run.info.workload.name
    if name != job.workload:
        raise SondaError(f"run {reference} trained {name}, not {job.workload}", f"write: sonda serve {name}")
    return msgspec.structs.replace(job, options={**_model_options(run, name), **job.options}), str(path.resolve())


def _model_options(run: Run, name: str) -> dict[str, str]:
    keys = [key for key in describe(name, {}).parameters() if key not in NOT_OF_THE_MODEL]
    parameters = run.info.workload.parameters
    return {key: option_text(parameters[key]) for key in keys if key in parameters}


def load_weights(path: str, model: Any) -> None:
    """Load the tensors of a file into a model. Raises SondaError where they do not fit or cannot be read."""
    import zipfile

    import numpy as np

    from sonda.frameworks.torch.drive.state import load_model

    try:
        with np.load(path, allow_pickle=False) as arrays:
            load_model(dict(arrays), model)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise SondaError(f"the weights in {path} do not fit: {error}", "name the run that trained this model") from None
