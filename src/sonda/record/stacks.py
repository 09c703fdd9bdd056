"""Stacks: where the threads of a program were when they were sampled. Old runs have none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sonda.record.errors import SondaError
from sonda.record.spans import Words, arrow_column, arrow_numbers, arrow_words

if TYPE_CHECKING:
    import pyarrow as pa

USER, LIBRARY, SONDA = "user", "library", "sonda"
"""Origins of a frame: the user's own code; the standard library and installed packages; Sonda at work."""
INTERPRETER = "interpreter"
"""In the place of a system call: the thread waited for the interpreter's lock, which it needs to run Python code."""
FRAME_NUMBERS = ("parent", "first_line", "line", "column", "end_line", "end_column", "statement")
FRAME_WORDS = ("origin", "module", "file", "function", "text", "loops", "feeds")
SAMPLE_NUMBERS = ("time", "process", "worker", "thread", "stack", "lasted", "ran", "late", "waits", "collected")
SAMPLE_WORDS = ("call",)
STRANGE = "the file was not written by Sonda"


@dataclass(frozen=True)
class Frames:
    """Frames as a tree, a row each: a stack is the row of its innermost frame.

    `parent`: the row of the frame that called it, -1 for none; it stands before it. `first_line` is that of the
    function. `line`, `column`, `end_line` and `end_column` (bytes, from 0; -1: unknown) bound the expression that was
    running, and `text` is its source, '' where that is not known. `origin` is user, library or sonda, `module` the
    dotted name of a library's module. Of the user's frames, `statement` is the first line of the statement, `loops` are
    the lines of the loops around it in its function, the outermost first, and `feeds` the lines of the statements of
    the function that its values reach: numbers with commas, 0 for the caller, '' for none or unknown. `file` is
    relative to the directory in which the program began, if below it.
    """

    numbers: Mapping[str, np.ndarray]
    words: Mapping[str, Words]

    def __len__(self) -> int:
        return len(self.numbers["parent"])


@dataclass(frozen=True)
class StackSamples:
    """Samples, a row each, in order of time.

    `time`: ns since the run began. `process` and `thread`: the system's numbers. `worker`: number among the workers of
    a DataLoader, -1 for other processes. `stack`: row of `Frames`, -1 without a frame. `lasted`: ns since the thread's
    sample before; `ran`: how many of them it ran. `late`: ns that the sampler came late. `waits`: how often it waited
    for the interpreter's lock: 0 where the lock was free, 1 where it was given up by itself, more where a thread was
    made to give it up.
    `collected`: ns of `lasted` in which the thread collected garbage. `call`: the system call that the thread was
    blocked in, '' where it was in none or that is not known.
    """

    numbers: Mapping[str, np.ndarray]
    words: Mapping[str, Words]

    def __len__(self) -> int:
        return len(self.numbers["time"])


@dataclass(frozen=True)
class Stacks:
    """All that was sampled of a program."""

    frames: Frames
    samples: StackSamples

    def __post_init__(self) -> None:
        """Raises ValueError where a row speaks of a frame that is not there."""
        parent, stack = self.frames.numbers["parent"], self.samples.numbers["stack"]
        if len(parent) and not ((parent >= -1) & (parent < np.arange(len(parent)))).all():
            raise ValueError("a frame's parent does not stand before it")
        if len(stack) and not ((stack >= -1) & (stack < len(parent))).all():
            raise ValueError("a sample's stack is not among the frames")


def frames_to_arrow(frames: Frames) -> pa.Table:
    return _to_arrow(frames.numbers, frames.words)


def stack_samples_to_arrow(samples: StackSamples) -> pa.Table:
    return _to_arrow(samples.numbers, samples.words)


def stacks_from_arrow(frames: pa.Table, samples: pa.Table) -> Stacks:
    """Columns that are not known are left alone; raises SondaError when the tables do not hold stacks."""
    try:
        return Stacks(
            Frames(*_from_arrow(frames, FRAME_NUMBERS, FRAME_WORDS)),
            StackSamples(*_from_arrow(samples, SAMPLE_NUMBERS, SAMPLE_WORDS)),
        )
    except ValueError as error:
        raise SondaError(f"not stacks: {error}", STRANGE) from None


def _to_arrow(numbers: Mapping[str, np.ndarray], words: Mapping[str, Words]) -> pa.Table:
    import pyarrow as pa

    columns = {name: pa.array(values) for name, values in numbers.items()}
    return pa.table({**columns, **{name: arrow_column(column) for name, column in words.items()}})


def _from_arrow(
    table: pa.Table, numbers: tuple[str, ...], words: tuple[str, ...]
) -> tuple[dict[str, np.ndarray], dict[str, Words]]:
    """Raises ValueError for a table without these columns."""
    for name in (*numbers, *words):
        if table.column_names.count(name) != 1:
            raise ValueError(f"the column {name!r} is not there once")
    return (
        {name: arrow_numbers(table.column(name)) for name in numbers},
        {name: arrow_words(table.column(name)) for name in words},
    )
