"""What a tracker is given of a run: settings, medians by phase and layer, and what changes by step and epoch.

Names are paths, as trackers group them: `train/step ms`, `train/forward ms`, `train layers/features.3 ms`. What is not
known is not there: a tracker has no word for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Any

from sonda.analysis.steps.training import Training
from sonda.analysis.summary import PartSummary, Summary
from sonda.record.errors import SondaError
from sonda.record.run import Run
from sonda.report.screen import render
from sonda.report.views.explain import explain_blocks, summarise_kind

MS, NS = 1e6, 1e9
"""ns of a millisecond, and of a second."""
STEP_TIME = "step time"
"""How the series of step times is called among those over time."""
WIDTH = 100


@dataclass(frozen=True)
class TrackedSeries:
    """Numbers over steps of a part or over epochs."""

    axis: str
    """`train` or another part, whose steps they are of; `epoch`."""
    name: str
    points: tuple[tuple[int, float], ...]
    """Number of the step from 0, or of the epoch from 1, and the value."""


@dataclass(frozen=True)
class TrackedRun:
    """A run as trackers take it."""

    id: str
    title: str
    began: float
    """Seconds since 1970."""
    text: str
    """The explanation: verdicts, evidence, places, remedies."""
    settings: Mapping[str, str | int | float | bool]
    totals: Mapping[str, float]
    """By name, of the whole run: medians over its timed steps."""
    series: tuple[TrackedSeries, ...]


def track_run(run: Run) -> TrackedRun:
    """What trackers are given of a run: of one without steps its settings and its explanation."""
    summary = summarise_kind(run)
    totals = {name: value for part in summary.parts for name, value in _totals(part)}
    totals |= {} if summary.training is None else dict(_training_totals(summary.training))
    series = [steps for part in summary.parts for steps in _step_series(part)]
    series += [] if summary.training is None else _epoch_series(summary.training)
    text = render(explain_blocks(summary), WIDTH, color=False)
    return TrackedRun(
        run.id, summary.title, _began(run), text, _settings(run, summary),
        {name: value for name, value in totals.items() if math.isfinite(value)},
        tuple(known for known in series if known.points),
    )  # fmt: skip


def require_package(name: str) -> None:
    """Raise SondaError where the package of a tracker is not installed."""
    if find_spec(name) is None:
        raise SondaError(f"{name} is not installed", f"install it with: pip install {name}")


def _began(run: Run) -> float:
    try:
        created = datetime.fromisoformat(run.info.created)
    except ValueError:
        return 0.0
    return (created if created.tzinfo else created.replace(tzinfo=UTC)).timestamp()


def _settings(run: Run, summary: Summary) -> dict[str, str | int | float | bool]:
    """How the run was made, as single values."""
    info = run.info
    known: dict[str, Any] = {
        "sonda_run": run.id, "title": summary.title, "status": info.status, **info.workload.plain(),
        "device": info.target.device, "threads": info.target.threads, "processor": info.machine.processor,
        **{f"{library} version": version for library, version in info.versions.items()},
        **({"verdict": summary.verdicts[0].kind} if summary.verdicts else {}),
    }  # fmt: skip
    known["command"] = " ".join(known["command"]) if isinstance(known.get("command"), list) else known.get("command")
    return {name: value for name, value in known.items() if isinstance(value, str | int | float | bool)}


def _totals(part: PartSummary) -> Iterator[tuple[str, float]]:
    """Medians of a part's step, phases and layers; of a simulated one its cycles."""
    if part.simulated is not None:
        yield f"{part.name}/cycles", _known(part.simulated.cycles.value)
        yield from ((f"{part.name}/{name} cycles", _known(value.value)) for name, value in part.simulated.stack.items())
        for row in part.layers:
            if row.own_simulated is not None:
                yield f"{part.name} layers/{row.path or row.name} cycles", _known(row.own_simulated.cycles.value)
        return
    yield f"{part.name}/step ms", _known(part.step.value) / MS
    yield f"{part.name}/samples per second", _known(part.samples_per_second.value)
    yield f"{part.name}/tokens per second", _known(part.tokens_per_second.value)
    yield from ((f"{part.name}/{row.name} ms", _known(row.cost.time.value) / MS) for row in part.phases)
    for layer in part.layers:
        yield f"{part.name} layers/{layer.path or layer.name} ms", _known(layer.cost.time.value) / MS


def _training_totals(training: Training) -> Iterator[tuple[str, float]]:
    yield "test/accuracy", _known(training.accuracy)
    yield "test/loss", _known(training.loss)


def _step_series(part: PartSummary) -> Iterator[TrackedSeries]:
    """Times of steps and phases, and what was counted in each, without the warm-up."""
    apart = part.set_apart
    times = {"step ms": part.durations, **{f"{name} ms": values for name, values in part.phase_steps.items()}}
    for name, durations in times.items():
        values = ((at, duration / MS) for at, duration in enumerate(durations) if at not in apart)
        yield TrackedSeries(part.name, f"{part.name}/{name}", _finite(values))
    for series in part.over_time.series if part.over_time is not None else ():
        if series.name == STEP_TIME:
            continue
        scale = MS if series.unit == "ns" else 1.0
        unit = {"ns": " ms", "1": ""}.get(series.unit, f" {series.unit}")
        pairs = zip(series.steps[series.first :], series.values[series.first :], strict=True)
        points = ((step - 1, value / scale) for step, value in pairs)
        yield TrackedSeries(part.name, f"{part.name}/{series.name}{unit}", _finite(points))


def _epoch_series(training: Training) -> list[TrackedSeries]:
    """What every epoch took and reached."""
    columns = {
        "training s": [_known(epoch.train) / NS for epoch in training.epochs],
        "validation s": [_known(epoch.validate) / NS for epoch in training.epochs],
        "training loss": [_known(epoch.train_loss) for epoch in training.epochs],
        "validation loss": [_known(epoch.validate_loss) for epoch in training.epochs],
        "accuracy": [_known(epoch.accuracy) for epoch in training.epochs],
    }
    numbers = [epoch.number for epoch in training.epochs]
    return [
        TrackedSeries("epoch", f"epoch/{name}", _finite(zip(numbers, values, strict=True)))
        for name, values in columns.items()
    ]


def _known(value: float | None) -> float:
    return math.nan if value is None else value


def _finite(points: Iterable[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    return tuple((step, float(value)) for step, value in points if math.isfinite(value))
