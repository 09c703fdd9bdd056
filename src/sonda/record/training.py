"""What a whole training leaves behind: one entry for every walk through a share of the data, and what went before.

The process that trains writes `training.json` (`Trained`) into its directory, whatever the framework; whoever started
it makes the run of it. In the run:

* Spans. Every walk is a span of kind `epoch`, named `train`, `validate` or `test`, under a span of kind `part` of the
  same name; its `call` is the number of the epoch from 0 (that of `test` is the number of epochs). Its duration is
  what the walk took, loading of batches included, loading of the data set and initialisation not. With several ranks
  each has its own. The collector makes them of what the program announces: `span("epoch", "train")`.
* Metrics, on epoch spans of the first rank only, so that every walk has one row: `loss:measured` (mean over the
  share's samples), `accuracy:measured` (share of right answers, 0 to 1; not on `train`), `samples:counted`.
* Metrics on the row of the run: `loading:measured` and `initialisation:measured`, ns.
* Steps, their phases and layers lie under the epochs of the first steps only; `run.json` notes how many.
* `run.json`: `workload.training` is `Trained` without its walks (`about`), with `weights`, the name of the file with
  the final weights beside it (`weights.npz`: the model's tensors by name).

Epochs that an earlier, interrupted command has trained lie before this one's, with their own durations; those of
ranks that were lost and started again lie where they were.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from sonda.record.files.partial import write_whole

TRAINING, WEIGHTS = "training.json", "weights.npz"
FINAL = ".final-weights.npz"
"""The final weights among the checkpoints, until the run holds them; no name that a file of the user's may have."""


class Walk(msgspec.Struct, kw_only=True):
    """One walk through a share of the data: an epoch of training, a validation, the test."""

    part: str
    """train, validate or test."""
    epoch: int
    """From 0; of the test, the number of epochs."""
    begin: int
    """ns, CLOCK_MONOTONIC."""
    end: int
    samples: int
    loss: float | None
    """Mean over the samples; None where it is no finite number, for which JSON has no word. Of training: of the batches
    as they were met, while weights changed."""
    accuracy: float | None = None
    """Share of right answers; None for training."""


class Trained(msgspec.Struct, kw_only=True):
    """A whole training, as the process says that trained."""

    walks: list[Walk] = []
    loading_ns: int = 0
    """Opening the data set and, with up-front transfer, moving it to the device."""
    initialisation_ns: int = 0
    """Making the model, moving it to its device, and calibration where there are several."""
    resumed: int = 0
    """Epochs that an earlier process has trained."""
    restarts: int = 0
    """How often ranks were started again after one was lost."""
    images: dict[str, int] = {}
    """Images of each share: train, validate, test."""
    batches: dict[str, int] = {}
    """Of a walk through each share, where somebody's own loaders make them."""
    classes: list[str] = []
    data: str = ""
    """The data set in a few words."""
    digest: str = ""
    """SHA-256 of its images and classes, as its manifest says."""
    split: str = ""
    transfer: str = "batch"
    notes: list[str] = []

    def about(self) -> dict[str, Any]:
        """For `run.json`: everything but the walks and notes, which are spans and notes there."""
        return {name: value for name, value in msgspec.to_builtins(self).items() if name not in ("walks", "notes")}


def write_trained(directory: Path, trained: Trained) -> None:
    write_whole(directory / TRAINING, msgspec.json.encode(trained))


def read_trained(directory: Path) -> Trained | None:
    """None where the process did not live to write it."""
    try:
        return msgspec.json.decode((directory / TRAINING).read_bytes(), type=Trained)
    except FileNotFoundError:
        return None
