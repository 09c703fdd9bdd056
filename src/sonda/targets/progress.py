"""How far a run is: a small file that the process of a workload rewrites and its parent reads for the screen."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic

import msgspec

from sonda.record.files.partial import write_whole
from sonda.record.progress import Reached, Say

FILE = "progress.json"
EVERY_S = 0.5


class ProgressRecord(msgspec.Struct, kw_only=True):
    """Where a training stands, or, without epochs, how many steps are done."""

    part: str = ""
    epoch: int = 0
    """From 0."""
    epochs: int = 0
    step: int
    steps: int
    warmup: int = 0
    """How many of the steps warm up."""
    accuracy: float | None = None
    """Of the last validation."""
    left_s: float | None = None

    def describe(self, lead: str = "") -> Reached:
        """For the screen, after `lead`."""
        share = self.step / max(1, self.steps)
        if not self.epochs:
            words = f"step {self.step:,} of {self.steps:,}" + (", warm-up included" if self.warmup else "")
            return Reached(lead + words, "", share)
        doing = {"train": "training", "validate": "validating", "test": "testing"}.get(self.part, self.part)
        where = "" if self.part == "test" else f"epoch {self.epoch + 1} of {self.epochs}, "
        words = f"{lead}{where}{doing} {100 * self.step // max(1, self.steps)} %"
        if self.accuracy is not None:
            words += f", accuracy {100 * self.accuracy:.3g} %"
        behind = min(self.epochs, self.epoch + (share if self.part == "train" else 1)) / self.epochs
        return Reached(words, where or self.part, behind, self.left_s)


class ProgressFile:
    """The file as the training process writes it; `is_due` says whether it is time to write again."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE
        self._next = 0.0

    def is_due(self) -> bool:
        return monotonic() >= self._next

    def write(self, progress: ProgressRecord) -> None:
        self._next = monotonic() + EVERY_S
        with suppress(OSError):  # the training goes on without it
            write_whole(self.path, msgspec.json.encode(progress))


def progress_writer(directory: Path, steps: int | None, warmup: int) -> Callable[[int], None]:
    """A function for a driver to call between steps with the number of timed steps done; -`warmup` before the first.

    It writes the progress to the directory. It does nothing where `steps`, the number of timed steps, is not known.
    """
    if not steps:
        return lambda done: None
    file = ProgressFile(directory)

    def tell(done: int) -> None:
        if file.is_due():
            file.write(ProgressRecord(step=warmup + done, steps=warmup + steps, warmup=warmup))

    return tell


@contextmanager
def report_progress(directory: Path, say: Say, lead: str = "") -> Iterator[None]:
    """Pass the progress of the run in a directory to `say`, after `lead`, whenever it changes, until the block ends."""
    ended = threading.Event()

    def listen() -> None:
        last = b""
        while not ended.wait(EVERY_S):
            try:
                text = (directory / FILE).read_bytes()
            except OSError:
                continue
            if text != last:
                last = text
                say(msgspec.json.decode(text, type=ProgressRecord).describe(lead))

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        yield
    finally:
        ended.set()
        listener.join()
