"""A run in MLflow, by its own client: in a folder's database, or at the address of a tracking server.

Folders of files, which MLflow had before, are refused by its present versions: a folder has a database here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sonda.record.errors import SondaError, named_line
from sonda.report.trackers.metrics import TrackedRun, require_package

EXPERIMENT = "sonda"
DATABASE, ARTIFACTS = "mlflow.db", "mlartifacts"
"""Under the names that MLflow gives them itself."""
MOST_METRICS, MOST_SETTINGS, LONGEST_SETTING = 1000, 100, 500
"""Of one request to a server: what every version of MLflow takes."""
FORBIDDEN = re.compile(r"[^\w\-. /:]")
"""What a name may not have."""
RUN_TAG = "sonda.run"


def log_to_mlflow(place: str, tracked: TrackedRun) -> str:
    """Log a run to the experiment `sonda`; returns MLflow's id of it.

    `place` is a folder, whose `mlflow.db` it goes to, or an address. Raises SondaError where MLflow is not installed,
    where the run is there already, and where MLflow fails.
    """
    require_package("mlflow")
    from mlflow.entities import Metric, Param
    from mlflow.tracking import MlflowClient

    try:
        if "://" in place:
            return _log(MlflowClient(place), tracked, Metric, Param)
        folder = Path(place).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        files = (folder / ARTIFACTS).as_uri()
        return _log(MlflowClient(f"sqlite:///{folder / DATABASE}"), tracked, Metric, Param, files)
    except SondaError:
        raise
    except Exception as error:
        raise SondaError(f"MLflow did not take the run: {named_line(error)}", f"look at {place}") from None


def _log(client: Any, tracked: TrackedRun, metric: Any, param: Any, files: str | None = None) -> str:
    known = client.get_experiment_by_name(EXPERIMENT)
    experiment = client.create_experiment(EXPERIMENT, files) if known is None else known.experiment_id
    if client.search_runs([experiment], f"tags.`{RUN_TAG}` = '{tracked.id}'"):
        raise SondaError(f"{tracked.id} is in MLflow already", "delete it there first: mlflow runs delete")
    began = int(tracked.began * 1000)
    run = client.create_run(experiment, began, {RUN_TAG: tracked.id}, tracked.title).info.run_id
    settings = [param(_name(name), str(value)[:LONGEST_SETTING]) for name, value in tracked.settings.items()]
    for some in _batches(settings, MOST_SETTINGS):
        client.log_batch(run, params=some)
    for points in _batches(list(_points(tracked)), MOST_METRICS):
        client.log_batch(run, metrics=[metric(name, value, began, step) for name, value, step in points])
    client.log_text(run, tracked.text, "sonda.txt")
    client.set_terminated(run, "FINISHED", began)
    return str(run)


def _points(tracked: TrackedRun) -> Iterator[tuple[str, float, int]]:
    """Every number with its name and step: what is there step by step is not there as a single point too."""
    drawn = {series.name for series in tracked.series}
    yield from ((_name(name), value, 0) for name, value in tracked.totals.items() if name not in drawn)
    for series in tracked.series:
        yield from ((_name(series.name), value, step) for step, value in series.points)


def _batches(values: Sequence[Any], most: int) -> Iterator[list[Any]]:
    yield from (list(values[at : at + most]) for at in range(0, len(values), most))


def _name(name: str) -> str:
    return FORBIDDEN.sub("_", name)
