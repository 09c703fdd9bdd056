"""How accuracy grew over the epochs, with its spread over repetitions of the same training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sonda.analysis.spread import Spread, spread
from sonda.analysis.training import Training


@dataclass(frozen=True)
class CurvePoint:
    """One epoch of all repetitions."""

    epoch: int
    """From 1."""
    accuracy: Spread
    """Of the validation, 0 to 1."""
    passed: float
    """s of training and validation until then, mean."""
    n: int


def accuracy_curve(trainings: Sequence[Training]) -> tuple[CurvePoint, ...]:
    """One point for every epoch that some repetition validated."""
    found: dict[int, list[tuple[float, float]]] = {}
    for training in trainings:
        for epoch in training.epochs:
            if epoch.accuracy is not None:
                found.setdefault(epoch.number, []).append((epoch.accuracy, epoch.passed / 1e9))
    return tuple(
        CurvePoint(number, spread([one for one, _ in seen]), sum(seconds for _, seconds in seen) / len(seen), len(seen))
        for number, seen in sorted(found.items())
    )
