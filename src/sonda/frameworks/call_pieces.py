"""Phases and layers of a compiled call, as the framework's own profile of that call has them.

The compiler mixes the operations of different layers, so that a layer is no stretch of the call's time. Its operations
are added up, and layers are laid out one after the other in the order of the network: their durations are measured,
their places within the call are not. Time that the profile gives to no layer (launching, waiting, what the compiler
added) belongs to no phase.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from sonda.frameworks.announced import AnnouncedObserver


@dataclass(frozen=True)
class Piece:
    """A layer's part of a call: its phase, its path ('' for the network itself), its class ('' for no layer), ns."""

    phase: str
    path: str
    class_name: str
    lasted: int

    @property
    def direction(self) -> str:
        return "backward" if self.phase == "backward" else "forward"


def write_call(
    observer: AnnouncedObserver, begin: int, end: int, pieces: Sequence[Piece], classes: Mapping[str, str]
) -> None:
    """Write the phases and layers of a call that lasted from `begin` to `end`, ns. Pieces are in the order of time.

    `classes` are those of layers that hold others, by path. A call of one phase is this phase from begin to end.
    """
    writer = _Writer(observer, classes, begin)
    phases = [(phase, list(group)) for phase, group in groupby(pieces, key=lambda piece: piece.phase)]
    for phase, inside in phases:
        code = observer.phase_code(phase)
        writer.push(code)
        writer.layers(inside)
        if len(phases) == 1:
            writer.at = max(end, writer.at)
        writer.push(code + 1)
    observer.recorder.stream().push(writer.events)


class _Writer:
    def __init__(self, observer: AnnouncedObserver, classes: Mapping[str, str], at: int) -> None:
        self.observer = observer
        self.classes = classes
        self.at = at
        self.events: list[int] = []
        self.opened: list[tuple[str, int]] = []
        """Layers that hold the next one, outermost first, with what began them."""

    def push(self, code: int) -> None:
        self.events += (code, self.at)

    def layers(self, pieces: Sequence[Piece]) -> None:
        """In a forward, layers stand inside those that hold them; a backward goes through layers one by one."""
        for piece in pieces:
            if not piece.class_name:
                self.at += piece.lasted
                continue
            holders = self._holders(piece) if piece.direction == "forward" else []
            self._open(holders)
            if piece.path in holders:
                self.at += piece.lasted
                continue
            code = self.observer.layer_code(piece.path, piece.class_name, piece.direction)
            self.push(code)
            self.at += piece.lasted
            self.push(code + 1)
        self._open([])

    def _holders(self, piece: Piece) -> list[str]:
        """`a.b.c` is held by '', `a` and `a.b`; what holds others may have time of its own."""
        if piece.class_name.endswith("Loss"):
            return []
        parts = piece.path.split(".") if piece.path else []
        above = [".".join(parts[:count]) for count in range(len(parts) + 1)]
        return [path for path in above if path in self.classes]

    def _open(self, holders: list[str]) -> None:
        """Close layers and open others, until exactly these are open."""
        same = 0
        while same < min(len(self.opened), len(holders)) and self.opened[same][0] == holders[same]:
            same += 1
        while len(self.opened) > same:
            self.push(self.opened.pop()[1] + 1)
        for path in holders[same:]:
            code = self.observer.layer_code(path, self.classes[path])
            self.push(code)
            self.opened.append((path, code))
