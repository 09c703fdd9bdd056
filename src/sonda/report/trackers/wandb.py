"""A run in Weights & Biases, by its own package, offline: nothing leaves the machine before `wandb sync`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sonda.record.errors import SondaError, named_line
from sonda.report.trackers.metrics import TrackedRun, require_package

PROJECT = "sonda"


def log_to_wandb(folder: Path, tracked: TrackedRun) -> Path:
    """Log a run to `folder/wandb`, offline, in the project `sonda`; returns its folder there.

    Raises SondaError where wandb is not installed, or fails.
    """
    require_package("wandb")
    import wandb

    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Not a word on the screen, and nothing of this process: it is not the program that was measured.
        quiet = wandb.Settings(silent=True, console="off", x_disable_stats=True, x_disable_meta=True, disable_git=True)
        run = wandb.init(
            project=PROJECT, id=tracked.id, name=tracked.title, config=dict(tracked.settings), dir=str(folder),
            mode="offline", notes=tracked.text, settings=quiet,
        )  # fmt: skip
        _log(run, tracked)
        place = Path(run.dir).parent
        run.finish()
        return place
    except Exception as error:
        raise SondaError(f"wandb did not take the run: {named_line(error)}", f"look at {folder}") from None


def _log(run: Any, tracked: TrackedRun) -> None:
    """Rows by axis, which each have a column for their step; what is one number for the whole run is in the summary."""
    rows: dict[str, dict[int, dict[str, float]]] = {}
    for series in tracked.series:
        axis = _axis(series.axis)
        run.define_metric(series.name, step_metric=axis)
        for step, value in series.points:
            rows.setdefault(axis, {}).setdefault(step, {})[series.name] = value
    for axis, steps in rows.items():
        for step, values in sorted(steps.items()):
            run.log({axis: step, **values})
    _fill_summary(run.summary, tracked)


def _fill_summary(summary: Any, tracked: TrackedRun) -> None:
    totals: Mapping[str, float] = tracked.totals
    for name, value in totals.items():
        summary[name] = value


def _axis(name: str) -> str:
    return name if name == "epoch" else f"{name} step"
