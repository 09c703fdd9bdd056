"""What remedies brought that were tried on a program, and whether losses stayed where they were.

Every remedy is held against the program as it is, within rounds, as options of a study are
(`comparison/optimisations.py`): intervals of all remedies hold at once with 95 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sonda.analysis.comparison.rounds import LEAST_FREEDOM, blocked_sides, freedom_of
from sonda.analysis.statistics import Side, effective_size, pooled, ratio, side
from sonda.analysis.summary import Value
from sonda.record.trials import RemedyTrial, SourcePatch, TrialProcess, Trials, UntriedRemedy

TOLERANCE = 0.05
"""Of the loss, beyond what processes of the program as it is differ by."""
WITHIN, DIFFER, NOT_SEEN, NOT_COMPARED = "within tolerance", "differ", "not seen", "not compared"
"""What is said of losses. Those of another batch are not compared."""


@dataclass(frozen=True)
class TriedRemedy:
    """A remedy and what it brought."""

    name: str
    value: int | None
    speedup: Value
    """How many times as many samples a second as the program as it is; missing with a reason."""
    losses: str
    loss_change: float | None
    """Of the mean loss, relative; None where it is not known."""
    patch: SourcePatch | None

    @property
    def helps(self) -> bool:
        return self.speedup.low is not None and self.speedup.low > 1


@dataclass(frozen=True)
class TrialsSummary:
    """All that was tried, what brought most first."""

    remedies: tuple[TriedRemedy, ...]
    untried: tuple[UntriedRemedy, ...]
    refused: str
    rounds: int
    warmup: int
    steps: int
    seconds: float
    directory: str
    """Where the files of patches are."""


def summarise_trials(trials: Trials, directory: str = "") -> TrialsSummary:
    """What trials mean; `directory` is that of their run."""
    rounds = len(trials.bare)
    measured = [
        remedy for remedy in trials.remedies if rounds and not remedy.failure and len(remedy.processes) == rounds
    ]
    sides = _sides([trials.bare, *(remedy.processes for remedy in measured)]) if measured else []
    by_name = {_key(remedy): own for remedy, own in zip(measured, sides[1:], strict=True)} if measured else {}
    tried = []
    for remedy in trials.remedies:
        own = by_name.get(_key(remedy))
        speedup = (
            Value(None, "1", "measured", reason=remedy.failure or "no round was complete")
            if own is None
            else _speedup(sides[0], own, len(measured))
        )
        losses, change = ("", None) if own is None else judge_losses(remedy, trials.bare)
        tried.append(TriedRemedy(remedy.name, remedy.value, speedup, losses, change, remedy.patch))
    tried.sort(key=lambda remedy: -(remedy.speedup.value or 0.0))
    return TrialsSummary(
        tuple(tried), tuple(trials.untried), trials.refused, rounds, trials.warmup, trials.steps,
        float(trials.seconds), directory,
    )  # fmt: skip


def _key(remedy: RemedyTrial) -> tuple[str, int | None]:
    return remedy.name, remedy.value


def _sides(variants: Sequence[Sequence[TrialProcess]]) -> list[Side]:
    """Time of a sample of every variant, the bare program first."""
    by_sample = all(process.samples for processes in variants for process in processes)
    tables = [
        [np.array(process.ns, float)[:, None] / (process.samples if by_sample else 1) for process in processes]
        for processes in variants
    ]
    rounds = len(variants[0])
    if freedom_of(len(variants), rounds) >= LEAST_FREEDOM:
        return blocked_sides(np.array([[math.log(np.median(table)) for table in of] for of in tables]))
    sides = [side(of, [effective_size(table[:, 0]) for table in of]) for of in tables]
    return pooled(sides) if rounds > 1 else sides


def _speedup(bare: Side, own: Side, comparisons: int) -> Value:
    middle, low, high = (float(end[0]) for end in ratio(own, bare, comparisons))
    return Value(middle, "1", "measured", low, high)


def judge_losses(remedy: RemedyTrial, bare: Sequence[TrialProcess]) -> tuple[str, float | None]:
    """Whether the losses of a remedy stayed within tolerance of those of the bare program.

    Each process has one number, the mean loss of the later half of the steps that all processes made. Allowed is what
    bare processes differ by, and `TOLERANCE` of their mean.
    """
    if remedy.name == "batch":
        return NOT_COMPARED, None
    common = min(len(process.losses) for process in (*bare, *remedy.processes))
    plain, changed = ([_late_loss(process, common) for process in processes] for processes in (bare, remedy.processes))
    if not common or any(level is None for level in plain):
        return NOT_SEEN, None
    known = [level for level in plain if level is not None]
    own = [level for level in changed if level is not None and math.isfinite(level)]
    if len(own) < len(changed):
        return DIFFER, None
    middle = sum(known) / len(known)
    apart = sum(own) / len(own) - middle
    allowed = max(known) - min(known) + TOLERANCE * abs(middle)
    return (WITHIN if abs(apart) <= allowed else DIFFER), apart / abs(middle) if middle else None


def _late_loss(process: TrialProcess, steps: int) -> float | None:
    late = process.losses[steps // 2 : steps]
    seen = [loss for loss in late if loss is not None]
    return sum(seen) / len(seen) if seen else None
