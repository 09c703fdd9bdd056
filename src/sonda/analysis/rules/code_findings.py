"""What the user's own code does that takes time, as findings: one kind for each purpose that its lines have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sonda.analysis.code.summary import CodeLead
from sonda.analysis.findings import Finding
from sonda.analysis.summary import Value


@dataclass(frozen=True)
class CodeTakes(Finding):
    """Functions of the user's own code take a worthwhile share, outside of layers."""

    kind: ClassVar[str] = "code_takes"

    leads: tuple[CodeLead, ...]
    """Most time first; never empty."""


@dataclass(frozen=True)
class CodeCause(Finding):
    """Something that the user's own code does in a step, at lines that are known."""

    leads: tuple[CodeLead, ...]
    """Most time first; never empty."""


@dataclass(frozen=True)
class CodeBetween(CodeCause):
    """Code in no step, for one thing, between the first step and the last, or in a program without steps."""

    kind: ClassVar[str] = "code_between"

    steps: bool
    """Whether there are steps; else shares are of the program without its imports."""


@dataclass(frozen=True)
class ProgramWaits(CodeCause):
    kind: ClassVar[str] = "program_waits"


@dataclass(frozen=True)
class HeldByThread(CodeCause):
    """Other threads of the program run Python code, and the one that steps waits for the interpreter's lock; the leads
    are theirs."""

    kind: ClassVar[str] = "held_by_thread"

    share: Value
    """Of the step, that it waits."""


@dataclass(frozen=True)
class CollectsGarbage(CodeCause):
    kind: ClassVar[str] = "collects_garbage"

    asked: bool
    """Whether the program calls the collector; else its objects drive it."""
    count: Value
    """Collections of a step."""
    share: Value


@dataclass(frozen=True)
class WritesRecords(CodeCause):
    """Printing, logging, writing of records."""

    kind: ClassVar[str] = "writes_records"


@dataclass(frozen=True)
class SavesState(CodeCause):
    """Weights and the like are written, or copied to be kept."""

    kind: ClassVar[str] = "saves_state"


@dataclass(frozen=True)
class CopiesData(CodeCause):
    kind: ClassVar[str] = "copies_data"


@dataclass(frozen=True)
class AsksForMemory(CodeCause):
    kind: ClassVar[str] = "asks_for_memory"


@dataclass(frozen=True)
class ComputesMetrics(CodeCause):
    """What is computed from what the step has made, and reaches no backward."""

    kind: ClassVar[str] = "computes_metrics"


@dataclass(frozen=True)
class LoopsInPython(CodeCause):
    kind: ClassVar[str] = "loops_in_python"


@dataclass(frozen=True)
class PreparesInput(CodeCause):
    """The program makes its batches in the step, without a loader."""

    kind: ClassVar[str] = "prepares_input"
