"""Remedies that were tried on a program: what every process measured, round by round."""

from __future__ import annotations

from sonda.record.stored import Number, Stored


class TrialProcess(Stored, frozen=True, kw_only=True):
    """Some steps of the program in a process of its own."""

    ns: list[Number] = []
    """ns of a step, block by block: a block is a step, on a GPU several."""
    samples: Number = 0
    """Of a step on average; 0 where they were not seen."""
    losses: list[Number | None] = []
    """Of every step from the first on, warm-up included; None where a step had none."""


class SourcePatch(Stored, frozen=True, kw_only=True):
    """A change of the program's source that applies a remedy for good."""

    text: str = ""
    """A unified diff for `patch -p1`; '' where no line was found."""
    folder: str = ""
    """Where to apply it."""
    file: str = ""
    """Name of the file beside `run.json`."""
    runs: bool | None = None
    """Whether the program ran with it; None where that was not tried."""
    change: str = ""
    """What to change, in code."""
    place: str = ""
    """`train.py:41`."""


class RemedyTrial(Stored, frozen=True, kw_only=True):
    """A remedy that was tried."""

    name: str
    """threads, tf32, channels_last, autocast, compile, workers, pin, fused, foreach or batch."""
    value: int | None = None
    """Threads, workers, or how many times as large the batch."""
    processes: list[TrialProcess] = []
    """One for each round."""
    failure: str = ""
    """Why it could not be measured: what the program said as it ended."""
    patch: SourcePatch | None = None


class UntriedRemedy(Stored, frozen=True, kw_only=True):
    """A remedy that was not tried."""

    name: str
    reason: str


class Trials(Stored, frozen=True, kw_only=True):
    """What was tried on a program, each time beside the program as it is."""

    bare: list[TrialProcess] = []
    """The program as it is, one process for each round."""
    remedies: list[RemedyTrial] = []
    untried: list[UntriedRemedy] = []
    refused: str = ""
    """Why nothing was tried."""
    seconds: Number = 0
    """That all of it took."""
    warmup: int = 0
    steps: int = 0
    """Timed in every process."""
