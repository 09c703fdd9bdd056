"""Phases of one thread as steps are derived from them, and which forwards go on with the one before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sonda.frameworks.collector.generation import goes_on
from sonda.frameworks.paths import Place

FORWARDS = ("forward", "prefill", "decode")


@dataclass(frozen=True)
class Phase:
    """One phase of one thread. `optimizer` and `made` (ns) are set for an optimizer's own step, `loader` and `iterator`
    for data, `exhausted` where there was none left."""

    name: str
    start: int
    end: int
    optimizer: int | None = None
    loader: int | None = None
    iterator: int | None = None
    training: bool = False
    """For a forward: the module was in training mode; in frameworks without gradient modes, gradients were on too."""
    graph: bool | None = None
    """For a forward: whether a backward can follow; None where that is not known."""
    place: Place | None = None
    """For a forward: the module that was called."""
    single: bool = False
    """For a forward: that module is a layer without parts, of no model."""
    shape: int = 0
    sequence: int = 0
    """For a forward: the tokens that it was given (`collector/generation.py`)."""
    idle: int = 0
    """For a forward: ns since the forward before it in which the thread did not run."""
    gap: bool = False
    """For a forward: what lies between two modules that are called one by one."""
    continued: bool = False
    """Whether another piece of the same phase follows, behind a phase inside it."""
    made: int = 0
    exhausted: bool = False
    part: str = ""
    """Where the framework's own loop says so."""
    helper: bool = False
    """Of a function without weights, called before one with weights was: no part of a step where there are such."""

    @property
    def learns(self) -> bool:
        """Whether a forward is one of training, also where no backward follows because its loss was skipped."""
        return self.training and self.graph is not False

    @property
    def model(self) -> int | None:
        return self.place.root if self.place is not None else None


def name_generation(phases: Sequence[Phase]) -> dict[int, str]:
    """By position, `prefill` and `decode` for the forwards that generate a text: the prompt's, and the others."""
    names: dict[int, str] = {}
    for position in range(1, len(phases)):
        last, this = phases[position - 1], phases[position]
        alike = last.name == this.name == "forward" and last.place == this.place and not (last.graph or this.graph)
        running = (position - 1) in names
        if alike and goes_on(last.sequence, this.sequence, running):
            names.setdefault(position - 1, "prefill")
            names[position] = "decode"
    return names


def find_joined(forwards: Iterable[Phase | None]) -> set[int]:
    """Positions of forwards that go on with the one before: parts of a model that are called one by one.

    That is so where a program calls methods of its model. A forward goes on until its first part is called again. None
    stands for any other phase.
    """
    joined = set()
    first: Place | None = None
    last: Phase | None = None
    for position, phase in enumerate(forwards):
        if phase is None or phase.place is None:
            first = last = None
            continue
        if phase.gap:
            joined.add(position)
            continue
        together = last is not None and last.place is not None and phase.graph == last.graph and (
            (last.single and phase.single)
            or (last.place.root == phase.place.root and last.place.path != "" and phase.place.path != "")
        )  # fmt: skip
        if together and phase.place != first:
            joined.add(position)
        else:
            first = phase.place
        last = phase
    return joined
