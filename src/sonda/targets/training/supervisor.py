"""A whole training (`--epochs`), in the process that starts it: its data, its checkpoints, and the run made of it.

`sonda.record.training` says what the run holds.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from sonda.record.errors import SondaError, nearest
from sonda.record.progress import Lasting, Say
from sonda.record.spans import Spans, Words, join_spans
from sonda.record.store import Store
from sonda.record.training import FINAL, TRAINING, WEIGHTS, Trained, Walk, read_trained
from sonda.targets.job import OUTCOME, Job
from sonda.targets.progress import FILE as PROGRESS
from sonda.targets.progress import report_progress
from sonda.targets.ranks.outcomes import BEGUN, OUTLOOK

# ---- Walks of a training on the spans of its run: losses, accuracies, and epochs that an earlier process trained ----


def with_walks(spans: Spans, trained: Trained, origin: int) -> Spans:
    """The spans with loss, accuracy and samples of every walk; `origin` is when the run began, ns.

    Walks without a span get one. Those of ranks that were lost and restarted get it where they ran, so that their
    energy is known too. Those of an earlier command get it before the beginning of this run, end to end.
    """
    earlier = sum(walk.epoch < trained.resumed and walk.part != "test" for walk in trained.walks)
    rank = spans.number("rank")
    rows = np.flatnonzero(spans.where(kind="epoch"))
    first = rows[rank[rows] == (rank[rows].min() if len(rows) else 0)]
    call, name = spans.number("call").copy(), spans.words("name").decoded()
    call[rows] = np.where(name[rows] == "test", trained.walks[-1].epoch, call[rows] + trained.resumed)
    spans.number("call")[:] = call
    own_walks = trained.walks[earlier:]
    if len(first) != len(own_walks):  # a framework that announces no epochs
        first, missing = np.zeros(0, np.int64), own_walks
    else:
        missing = []
    count = len(spans)
    earlier_here = _count_since(trained.walks[:earlier], own_walks, origin)
    spans = _append_walks(
        spans,
        trained.walks[: earlier - earlier_here],
        [*trained.walks[earlier - earlier_here : earlier], *missing],
        origin,
    )
    places = [*range(count + 1, count + 1 + 2 * earlier, 2), *first.tolist(),
              *range(count + 1 + 2 * earlier, len(spans), 2)]  # fmt: skip
    for column, values in {
        "loss:measured": [np.nan if walk.loss is None else walk.loss for walk in trained.walks],
        "accuracy:measured": [np.nan if walk.accuracy is None else walk.accuracy for walk in trained.walks],
        "samples:counted": [walk.samples for walk in trained.walks],
    }.items():
        metric = spans.metrics.setdefault(column, np.full(len(spans), np.nan))
        metric[places] = values
    for column, value in (
        ("loading:measured", trained.loading_ns),
        ("initialisation:measured", trained.initialisation_ns),
    ):
        spans.metrics[column] = np.full(len(spans), np.nan)
        spans.metrics[column][0] = value
    return spans


def _count_since(earlier: Sequence[Walk], own_walks: Sequence[Walk], origin: int) -> int:
    """How many of the earlier walks, counted from the last, were done since the run began at `origin`, ns.

    Their clock counts from the machine's boot. A walk that seems to end after the next one began is of another boot.
    """
    count = 0
    latest = own_walks[0].begin if own_walks else None
    for walk in reversed(earlier):
        if walk.begin < origin or (latest is not None and walk.end > latest):
            break
        count, latest = count + 1, walk.begin
    return count


def _append_walks(spans: Spans, earlier: Sequence[Walk], own_walks: Sequence[Walk], origin: int) -> Spans:
    """The spans with a part and an epoch for each of these walks behind them."""
    walks = [*earlier, *own_walks]
    if not walks:
        return spans
    durations = [walk.end - walk.begin for walk in walks]
    starts = [-sum(durations[at : len(earlier)]) for at in range(len(earlier))]
    starts += [walk.begin - origin for walk in own_walks]
    first = len(spans)
    rows = Spans(
        {
            "start": np.repeat(starts, 2),
            "duration": np.repeat(durations, 2),
            "call": np.array([number for walk in walks for number in (0, walk.epoch)]),
        },
        {
            "kind": Words.of([kind for _ in walks for kind in ("part", "epoch")]),
            "name": Words.of([walk.part for walk in walks for _ in range(2)]),
        },
    )
    parent = np.array([place for at in range(len(walks)) for place in (0, first + 2 * at)], dtype=np.int64)
    return join_spans(spans, rows, parent)


# ----------------------------------------------------------------------------------------------------------------------

RESTARTS = 3
"""How often ranks are started again after one of them was lost."""
TRANSFERS = ("batch", "up-front")

Result = TypeVar("Result")


class LostError(SondaError):
    """A rank was killed or lost; the training can go on from its last checkpoint."""


@dataclass
class SupervisedTraining:
    """A training that is to be started. `job` has its data and checkpoints as absolute paths.

    For a job without epochs it holds the job and adds nothing.
    """

    job: Job
    restarts: int = 0
    trained: Trained | None = None
    """The result, once `add_walks` was called."""
    skipped: str = ""
    """Which images could not be used; '' where all could."""

    @classmethod
    def prepare(cls, job: Job, store: Store, say: Say) -> SupervisedTraining:
        """Prepare the data of a job with epochs. Raises SondaError for what cannot be trained."""
        if not job.epochs:
            return cls(job)
        from sonda.frameworks.harness.checkpoint import Checkpoints
        from sonda.targets.training.trainer import open_training, training_settings
        from sonda.workloads.catalogue import describe
        from sonda.workloads.data.drawn_fish import DRAWN
        from sonda.workloads.data.training_set import make_ready
        from sonda.workloads.networks.image_classifiers import require_classifier
        from sonda.workloads.own_model import is_own, own_model

        skipped = ""
        if is_own(job.workload):  # its data are read by the process that trains
            model = own_model(job.workload, job.options)
            name, digest = model.name, model.digest
        else:
            workload = require_classifier(describe(job.workload, job.options))
            image, channels = workload.choose_images(job.options, job.data in ("", DRAWN))
            prepared = make_ready(job.data, store.root, image, channels, job.images, say)
            job = msgspec.structs.replace(job, data=str(prepared))
            data = open_training(job).data
            name, digest, skipped = job.workload, data.digest, data.skipped
        settings = training_settings(job, digest)
        key = hashlib.sha256(msgspec.json.encode(sorted(settings.items()))).hexdigest()[:16]
        where = Path(job.checkpoint) if job.checkpoint else store.root / "checkpoints" / f"{name}-{key}"
        checkpoint = Checkpoints(where, settings).read_newest() if where.is_dir() else None
        if checkpoint is not None:
            say(Lasting(f"going on after epoch {checkpoint[0].epochs} of {job.epochs}, from {where}"))
        return cls(msgspec.structs.replace(job, checkpoint=str(where.resolve())), skipped=skipped)

    @property
    def checkpoint_directory(self) -> Path:
        return Path(self.job.checkpoint)

    @contextmanager
    def lock_checkpoints(self, directory: Path, say: Say, nodes: int = 1) -> Iterator[None]:
        """Lock the checkpoints against other trainings and report the progress until the block ends.

        Several nodes may share one directory. Raises SondaError where it is locked or cannot be written.
        """
        if not self.job.epochs:
            with report_progress(directory, say, f"running {self.job.workload} on {self.job.on}, "):
                yield
            return
        try:
            self.checkpoint_directory.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.checkpoint_directory, os.O_RDONLY)
        except OSError as error:
            raise SondaError(
                f"cannot write checkpoints to {self.checkpoint_directory}: {error.strerror}",
                "choose another place with --checkpoint",
            ) from None
        try:
            try:
                fcntl.flock(descriptor, (fcntl.LOCK_EX if nodes == 1 else fcntl.LOCK_SH) | fcntl.LOCK_NB)
            except BlockingIOError:
                raise SondaError(
                    f"another process trains the same with checkpoints in {self.checkpoint_directory}",
                    "wait for it, or give another --checkpoint",
                ) from None
            with report_progress(directory, say):
                yield
        finally:
            os.close(descriptor)

    def run_with_restarts(self, start: Callable[[], Result], directory: Path, say: Say) -> Result:
        """Return what `start()` gives; call it again where a rank is lost, `RESTARTS` times at most."""
        while True:
            try:
                return start()
            except LostError as error:
                if not self.job.epochs:
                    raise
                if self.restarts == RESTARTS:
                    raise SondaError(
                        f"{error.cause}, for the {RESTARTS + 1}th time", "start the same command again to go on"
                    ) from None
                self.restarts += 1
                say(Lasting(f"{error.cause}; going on from the last checkpoint"))
                _remove_rank_files(directory)

    def add_walks(self, spans: Spans, directory: Path, begin: int) -> Spans:
        """The spans with the walks that the training process left in its directory; `begin` is the run's begin, ns.

        Raises SondaError where it left none.
        """
        if not self.job.epochs:
            return spans
        self.trained = read_trained(directory)
        if self.trained is None:
            raise SondaError(
                f"the training of {self.job.workload} left no result", "start the same command again to go on"
            )
        self.trained.restarts = self.restarts
        return with_walks(spans, self.trained, begin)

    def files(self) -> Mapping[str, Path]:
        """Files to keep in the run, by name."""
        path = self.checkpoint_directory / FINAL
        return {WEIGHTS: path} if self.trained is not None and path.is_file() else {}

    def describe(self) -> dict[str, Any]:
        """The field `training` of a run's `workload`; nothing without epochs."""
        if self.trained is None:
            return {}
        weights = {"weights": WEIGHTS} if self.files() else {}
        return {"training": {**self.trained.about(), **weights}}

    def notes(self) -> list[str]:
        """Notes on skipped images, resumed epochs and restarts."""
        if self.trained is None:
            return []
        notes = [*([self.skipped] if self.skipped else []), *self.trained.notes]
        if self.trained.resumed:
            earlier = "epoch 1 was" if self.trained.resumed == 1 else f"epochs 1 to {self.trained.resumed} were"
            notes.append(f"{earlier} trained by a process that was interrupted, with times of its own")
        if self.restarts:
            times = "once" if self.restarts == 1 else f"{self.restarts} times"
            notes.append(f"ranks were started again {times} after one was lost")
        return notes

    def discard_checkpoints(self) -> None:
        """Remove checkpoints and final weights, which are not needed once the run is kept."""
        if self.trained is None:
            return
        from sonda.frameworks.harness.checkpoint import Checkpoints

        (self.checkpoint_directory / FINAL).unlink(missing_ok=True)
        Checkpoints(self.checkpoint_directory, {}).clear()


def check_training(job: Job) -> None:
    """Raise SondaError for settings of a training that cannot be."""
    from sonda.workloads.data.training_set import parse_split

    parse_split(job.split)
    if job.transfer not in TRANSFERS:
        raise SondaError(f"--transfer cannot be {job.transfer!r}", nearest(job.transfer, TRANSFERS))
    if not job.train:
        raise SondaError("--epochs is for training", "add --train")
    if job.steps is not None:
        raise SondaError("--epochs and --steps do not go together", "give one of them")
    if job.cache:
        raise SondaError("--cache is for timed steps", "use --transfer up-front, which keeps all images in memory")


def _remove_rank_files(directory: Path) -> None:
    """Remove files of ranks that were stopped: their last epochs will be trained again."""
    for pattern in ("*.events", "*.failure", "*.full", "rank-*.json", OUTCOME, OUTLOOK, BEGUN, TRAINING, PROGRESS):
        for path in directory.glob(pattern):
            path.unlink()
