"""What a study can show of a whole training: times of its parts, accuracy, time and energy to an accuracy, EDP.

`time_to_accuracy_s@80` is the time until a validation told 80 % right. Energy is that of the devices that trained,
`with_idle` of all; of the walks through the data, or of a run without epochs, of the whole run. Checkpoints are in
neither time nor energy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from statistics import median

from sonda.analysis import reasons
from sonda.analysis.energy.findings import NodeFindings, NoEnergy
from sonda.analysis.findings import Finding
from sonda.analysis.steps.training import Epoch, Training
from sonda.analysis.summary import Summary, Value
from sonda.studies.figures.simulated import simulated_value


def trained_value(summary: Summary, metric: str, path: str = "") -> Value:
    """A metric in the unit in which Sonda keeps it; missing with a reason where the run does not have it."""
    unit, read = TRAINED[metric]
    if summary.training is None:
        return Value(None, unit, "measured", reason=reasons.NO_EPOCHS)
    value = read(summary.training, path)
    if isinstance(value, Value):
        return value
    if value is not None and not math.isfinite(value):
        return Value(None, unit, "measured", reason=reasons.LOSS_DIVERGED)
    return Value(value, unit, "measured", reason=_why(value, metric))


def energy_value(summary: Summary, metric: str, path: str = "") -> Value:
    """J, J·s or W of a run; `path` is a device, or of a simulated run a module."""
    unit = ENERGY[metric]
    if metric == "energy" and any(part.simulated is not None for part in summary.parts):
        return simulated_value(summary, metric, path)
    joules, time = _energy_spent(summary, metric.endswith("_with_idle"), path)
    if joules.value is None or metric.startswith("energy"):
        return replace(joules, unit=unit)
    seconds = time / 1e9
    factor = seconds if metric.startswith("edp") else 1.0 / seconds
    low, high = (None if end is None else end * factor for end in (joules.low, joules.high))
    source = "estimated" if joules.source == "estimated" else "derived"
    return Value(joules.value * factor, unit, source, low, high, bounds=joules.bounds)


def _energy_spent(summary: Summary, idle: bool, device: str) -> tuple[Value, float]:
    """Joules, and the ns in which they were spent."""
    energy = summary.energy
    if energy is None:
        return Value(None, "J", "measured", reason=reasons.ENERGY_NOT_READ), 0.0
    spent = summary.training.energy if summary.training is not None else None
    if device:
        devices = spent.devices if spent is not None else {device.name: device.cost.energy for device in energy.devices}
        missing = Value(None, "J", "measured", reason=reasons.NO_ENERGY_OF.format(device))
        return devices.get(device, missing), spent.time if spent is not None else energy.time.value or 0.0
    if spent is not None:
        return (spent.all if idle else spent.used), spent.time
    costs = energy.all if idle else energy.used
    cost = costs.get("derived") or costs.get("measured") or next(iter(costs.values()), None)
    if cost is None:
        reason = next(
            (device.cost.energy.reason for device in energy.devices if device.cost.energy.reason),
            _no_energy(energy.finding),
        )
        return Value(None, "J", "measured", reason=reason), 0.0
    return cost.energy, energy.time.value or 0.0


def _no_energy(finding: Finding) -> str:
    """Why no energy is known, of all nodes where there are several."""
    if isinstance(finding, NodeFindings):
        return " ".join(f"Node {node}: {_no_energy(found)}" for node, found in finding.nodes)
    return f"No energy is known: {finding.reason}." if isinstance(finding, NoEnergy) else ""


def _why(value: float | None, metric: str) -> str:
    return "" if value is not None else reasons.NO_TRAINED_FIGURE.format(metric.replace("_", " "))


def _at_accuracy(
    read: Callable[[Training, Epoch], Value | float | None],
) -> Callable[[Training, str], Value | float | None]:
    """Of the first epoch that reached the accuracy that the path says, in percent."""

    def value(training: Training, path: str) -> Value | float | None:
        try:
            wanted = float(path) / 100
        except ValueError:
            return Value(None, "", "measured", reason=reasons.NO_ACCURACY_NAMED)
        epoch = training.reached(wanted)
        if epoch is None:
            best = max((epoch.accuracy for epoch in training.epochs if epoch.accuracy is not None), default=None)
            reached = "" if best is None else reasons.ACCURACY_NOT_REACHED.format(100 * best, path)
            return Value(None, "", "measured", reason=reached or reasons.NOTHING_VALIDATED)
        return read(training, epoch)

    return value


def _energy_to(idle: bool) -> Callable[[Training, Epoch], Value]:
    def value(training: Training, epoch: Epoch) -> Value:
        if training.energy is None:
            return Value(None, "J", "measured", reason=reasons.ENERGY_NOT_READ)
        return (training.energy.all_to if idle else training.energy.used_to)[epoch.number - 1]

    return value


def _validation_accuracy(training: Training, path: str) -> Value | float | None:
    if not path:
        return training.epochs[-1].right
    accuracies = [epoch.right for epoch in training.epochs if str(epoch.number) == path]
    missing = Value(None, "1", "measured", reason=reasons.NO_EPOCH.format(path))
    return accuracies[0] if accuracies else missing


def _best(training: Training, path: str) -> Value | None:
    known = [epoch for epoch in training.epochs if epoch.accuracy is not None]
    return max(known, key=lambda epoch: epoch.accuracy or 0.0).right if known else None


def _validations(training: Training) -> list[float]:
    return [epoch.validate for epoch in training.epochs if epoch.validate is not None]


Read = Callable[[Training, str], Value | float | None]
TRAINED: dict[str, tuple[str, Read]] = {
    "whole": ("ns", lambda training, path: training.whole),
    "training": ("ns", lambda training, path: training.train),
    "validation": ("ns", lambda training, path: training.validate),
    "test": ("ns", lambda training, path: training.test),
    "training_epoch": ("ns", lambda training, path: median(one.train for one in training.epochs)),
    "validation_epoch": (
        "ns",
        lambda training, path: median(_validations(training)) if _validations(training) else None,
    ),
    "loading": ("ns", lambda training, path: training.loading),
    "initialisation": ("ns", lambda training, path: training.initialisation),
    "accuracy": ("1", lambda training, path: training.right),
    "validation_accuracy": ("1", _validation_accuracy),
    "best_accuracy": ("1", _best),
    "test_loss": ("1", lambda training, path: training.loss),
    "validation_loss": ("1", lambda training, path: training.epochs[-1].validate_loss),
    "training_loss": ("1", lambda training, path: training.epochs[-1].train_loss),
    "time_to_accuracy": ("ns", _at_accuracy(lambda training, epoch: epoch.passed)),
    "epochs_to_accuracy": ("1", _at_accuracy(lambda training, epoch: float(epoch.number))),
    "energy_to_accuracy": ("J", _at_accuracy(_energy_to(False))),
    "energy_to_accuracy_with_idle": ("J", _at_accuracy(_energy_to(True))),
    "devices": ("1", lambda training, path: float(training.devices)),
}
"""Metrics of a training: the unit in which each is kept, and how it is read. `accuracy` is of the test,
`validation_accuracy@3` of the third epoch, of the last without a number; losses are of the last epoch."""

ENERGY = {
    "energy": "J", "energy_with_idle": "J", "edp": "J·s", "edp_with_idle": "J·s", "power": "W", "power_with_idle": "W",
}  # fmt: skip
"""Metrics of energy, and their units."""
FROM_ENERGY_RUNS = {*ENERGY, "energy_to_accuracy", "energy_to_accuracy_with_idle"}
"""What energy runs tell, where they are kept apart from timing runs; those tell the rest."""
