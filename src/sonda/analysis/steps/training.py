"""A whole training: what every epoch took and reached, and when a given accuracy was reached first.

Times are those of the walks through training, validation and test shares; loading, initialisation and what lies between
two walks (a checkpoint) are not in them. Of several ranks the first speaks: all walk together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sonda.analysis import reasons
from sonda.analysis.energy.training import Moments, Spent, Window, spent_by_nodes
from sonda.analysis.span_tree import nearest
from sonda.analysis.statistics import proportion
from sonda.analysis.summary import SAMPLES, Value
from sonda.record.run import Run
from sonda.record.target import RanksTarget, Target

TRAIN, VALIDATE, TEST = "train", "validate", "test"
AT_ONCE = 1e6
"""ns. A walk that begins so soon after the one before follows it at once: nothing was written in between."""


@dataclass(frozen=True)
class Epoch:
    """One epoch. Times are ns; what was not done or not kept is None."""

    number: int
    """From 1."""
    train: float
    validate: float | None
    train_loss: float | None
    """NaN where it was no finite number, as the other losses."""
    validate_loss: float | None
    accuracy: float | None
    """Share of the validation's samples that were told right, 0 to 1."""
    passed: float
    """ns of training and validation from the first epoch to the end of this one."""
    validated: int | None = None
    """Samples of the validation."""

    @property
    def right(self) -> Value:
        """`accuracy` with the interval that so many samples leave open."""
        return right_share(self.accuracy, self.validated, reasons.NOTHING_VALIDATED)


@dataclass(frozen=True)
class Training:
    """A whole training. Times are ns."""

    epochs: tuple[Epoch, ...]
    test: float | None
    accuracy: float | None
    """Of the test, 0 to 1."""
    loss: float | None
    loading: float | None
    initialisation: float | None
    devices: int
    """That trained together."""
    energy: Spent | None
    """Of the walks, where it was read; of what lies between them apart."""
    between_steps: float | None = None
    """ns of all walks that lie in none of their steps: what the loop itself does. None where not all were recorded."""
    tested: int | None = None
    """Samples of the test."""

    @property
    def right(self) -> Value:
        """`accuracy` with the interval that so many samples leave open."""
        return right_share(self.accuracy, self.tested, reasons.NOTHING_TESTED)

    @property
    def train(self) -> float:
        return sum(epoch.train for epoch in self.epochs)

    @property
    def validate(self) -> float | None:
        """None where nothing was validated."""
        times = [epoch.validate for epoch in self.epochs if epoch.validate is not None]
        return sum(times) if times else None

    @property
    def whole(self) -> float:
        """Training, validation and test."""
        return self.train + (self.validate or 0.0) + (self.test or 0.0)

    def reached(self, accuracy: float) -> Epoch | None:
        """The first epoch whose validation told as many right; None where none did."""
        return next((epoch for epoch in self.epochs if epoch.accuracy is not None and epoch.accuracy >= accuracy), None)


def right_share(accuracy: float | None, samples: int | None, reason: str) -> Value:
    """The share of samples that were told right, with its 95 % interval where their number is known; missing for
    `reason`."""
    if accuracy is None or not samples:
        return Value(accuracy, "1", "measured", reason=reason if accuracy is None else reasons.SAMPLES_UNKNOWN)
    low, high = proportion(min(max(round(accuracy * samples), 0), samples), samples)
    return Value(accuracy, "1", "measured", min(low, accuracy), max(high, accuracy), bounds=SAMPLES)


def summarise_training(run: Run) -> Training | None:
    """What a run says of its epochs; None where it has none."""
    spans = run.spans
    rank = spans.number("rank")
    first = rank == (rank.min() if len(rank) else 0)
    rows = np.flatnonzero(first & spans.where(kind="epoch"))
    if not len(rows):
        return None
    names, call = spans.words("name").decoded(), spans.number("call")
    by_part = {
        part: {int(call[row]): int(row) for row in rows if names[row] == part} for part in (TRAIN, VALIDATE, TEST)
    }
    if not by_part[TRAIN]:
        return None
    duration = spans.number("duration").astype(np.float64)
    loss, accuracy = spans.metric("loss", "measured"), spans.metric("accuracy", "measured")
    counted = spans.metric("samples", "counted")
    complete = ~np.isnan(counted)
    epochs: list[Epoch] = []
    passed = 0.0
    for number, row in sorted(by_part[TRAIN].items()):
        after = by_part[VALIDATE].get(number)
        passed += duration[row] + (duration[after] if after is not None else 0.0)
        epochs.append(
            Epoch(
                number + 1,
                float(duration[row]),
                None if after is None else float(duration[after]),
                _known(loss, row, complete),
                _known(loss, after, complete),
                _known(accuracy, after),
                float(passed),
                _samples(counted, after),
            )
        )
    test = next(iter(by_part[TEST].values()), None)
    root = int(np.flatnonzero(spans.where(kind="run"))[0]) if spans.where(kind="run").any() else None
    return Training(
        tuple(epochs),
        None if test is None else float(duration[test]),
        _known(accuracy, test),
        _known(loss, test, complete),
        _known(spans.metric("loading", "measured"), root),
        _known(spans.metric("initialisation", "measured"), root),
        devices_of(run.info.target),
        spent_by_nodes(run, _moments),
        _between_steps(run, rows),
        _samples(counted, test),
    )


def _between_steps(run: Run, walks: np.ndarray) -> float | None:
    """ns of these walks that no step covers; None where one of them has fewer steps than batches."""
    spans = run.spans
    is_walk = np.zeros(len(spans), dtype=bool)
    is_walk[walks] = True
    steps = np.flatnonzero(spans.where(kind="step") & ~spans.words("pass").equal("count"))
    walk = nearest(spans.number("parent"), is_walk)[steps]
    steps, walk = steps[walk >= 0], walk[walk >= 0]
    count = np.bincount(walk, minlength=len(spans))[walks]
    facts = run.info.workload.training
    images = (facts.images if facts is not None else None) or {}
    batches = (facts.batches if facts is not None else None) or {}
    batch = run.info.workload.batch or np.inf
    names = spans.words("name").decoded()
    # The last of Sonda's own batches in a walk may be small, or joined to the one before.
    fewest = np.array([max(1.0, batches.get(names[row], images.get(names[row], 0) // batch)) for row in walks])
    if (count < fewest).any():
        return None
    duration = spans.number("duration").astype(np.float64)
    return float(duration[walks].sum() - duration[steps].sum())


def _moments(run: Run) -> Moments:
    """The walks, and when every epoch ends with its validation, by the first rank."""
    spans = run.spans
    rank = spans.number("rank")
    rows = np.flatnonzero(spans.where(kind="epoch") & (rank == rank.min()))
    start = spans.number("start").astype(np.float64)
    end = start + spans.number("duration")
    names, call = spans.words("name").decoded(), spans.number("call")
    ends: dict[int, float] = {}
    for part in (TRAIN, VALIDATE):
        ends |= {int(call[row]): float(end[row]) for row in rows if names[row] == part}
    walks: list[Window] = []
    for row in rows[np.argsort(start[rows], kind="stable")].tolist():
        if walks and start[row] - walks[-1][1] < AT_ONCE:
            walks[-1] = walks[-1][0], float(end[row])
        else:
            walks.append((float(start[row]), float(end[row])))
    return walks, [ends[number] for number in sorted(ends)]


def devices_of(target: Target) -> int:
    """Devices that worked together: of ranks that were not left out, one where there is no word of ranks.

    A rank has one device; PyTorch's DataParallel has several in one process.
    """
    ranks = [rank for rank in target.ranks if not rank.left_out] if isinstance(target, RanksTarget) else []
    return max(1, sum(len(rank.devices or ()) or 1 for rank in ranks))


def _samples(counted: np.ndarray, row: int | None) -> int | None:
    return None if row is None or np.isnan(counted[row]) else int(counted[row])


def _known(column: np.ndarray, row: int | None, complete: np.ndarray | None = None) -> float | None:
    """What a column has in a row; None where it has nothing. Of a walk that is `complete` nothing means NaN."""
    if row is None or (np.isnan(column[row]) and not (complete is not None and complete[row])):
        return None
    return float(column[row])
