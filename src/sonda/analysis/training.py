"""A whole training: what every epoch took and reached, and when a given accuracy was reached first.

Times are those of the walks through training, validation and test shares; loading, initialisation and what lies between
two walks (a checkpoint) are not in them. Of several ranks the first speaks: all walk together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sonda.analysis.training_energy import Moments, Spent, Window, spent_by_nodes
from sonda.record.run import Run

TRAIN, VALIDATE, TEST = "train", "validate", "test"
AT_ONCE = 1e6
"""ns. A walk that begins so soon after the one before follows it at once: nothing was written in between."""
DIVERGED = "the loss was no finite number"


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
        return next((one for one in self.epochs if one.accuracy is not None and one.accuracy >= accuracy), None)


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
    kept = ~np.isnan(spans.metric("samples", "counted"))
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
                _known(loss, row, kept),
                _known(loss, after, kept),
                _known(accuracy, after),
                float(passed),
            )
        )
    test = next(iter(by_part[TEST].values()), None)
    root = int(np.flatnonzero(spans.where(kind="run"))[0]) if spans.where(kind="run").any() else None
    return Training(
        tuple(epochs),
        None if test is None else float(duration[test]),
        _known(accuracy, test),
        _known(loss, test, kept),
        _known(spans.metric("loading", "measured"), root),
        _known(spans.metric("initialisation", "measured"), root),
        devices_of(run.info.target),
        spent_by_nodes(run, _moments),
    )


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


def devices_of(target: Mapping[str, Any]) -> int:
    """Devices that worked together: of ranks that were not left out, one where there is no word of ranks.

    A rank has one device; PyTorch's DataParallel has several in one process.
    """
    ranks = [one for one in target.get("ranks", ()) if not one.get("left_out")]
    return max(1, sum(len(one.get("devices", ())) or 1 for one in ranks))


def _known(column: np.ndarray, row: int | None, kept: np.ndarray | None = None) -> float | None:
    """What a column has in a row; None where it has nothing. Of a walk that was `kept` nothing means NaN."""
    if row is None or (np.isnan(column[row]) and not (kept is not None and kept[row])):
        return None
    return float(column[row])
