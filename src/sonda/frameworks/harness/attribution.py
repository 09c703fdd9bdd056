"""Phases and layers of a compiled call, as the framework's own profile of that call has them.

The compiler mixes the operations of different layers, so that a layer is no stretch of the call's time. Its operations
are added up, and layers are laid out one after the other in the order of the network: their durations are measured,
their places within the call are not. Time that the profile gives to no layer (launching, waiting, what the compiler
added) belongs to no phase.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeVar

from sonda.frameworks.harness.announcer import AnnouncedObserver

LOSS = "loss"
"""The phase; also the path of its backward, which is in no layer of the network."""
COMMUNICATE = "communicate"
ORDER = ("forward", LOSS, "backward", COMMUNICATE, "optimizer")
"""Phases of a training step in the order of time."""
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Place:
    """Where an operation belongs: phase, and path of its layer ('' where it is in none)."""

    phase: str
    path: str


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


def split_time(stretches: Iterable[tuple[int, int, Key, bool]]) -> dict[Key, int]:
    """ns by key of stretches (begin, end, key, waits), every moment counted once: for the one that began last, and for
    one that `waits` only where no other runs."""
    known = [one for one in stretches if one[0] < one[1]]
    edges: list[tuple[int, int, int]] = []
    for number, (start, end, _, _) in enumerate(known):
        edges += ((start, 1, number), (end, 0, number))
    found: dict[Key, int] = {}
    computing: dict[int, None] = {}
    waiting: dict[int, None] = {}
    before = 0
    # At the same moment an end comes first.
    for time, begins, number in sorted(edges):
        if active := computing or waiting:
            key = known[next(reversed(active))][2]
            found[key] = found.get(key, 0) + time - before
        before = time
        group = waiting if known[number][3] else computing
        if begins:
            group[number] = None
        else:
            del group[number]
    return found


def order_pieces(
    times: Mapping[Place, int], loss: str, classes: Mapping[str, str], phases: Sequence[str] = ORDER
) -> list[Piece]:
    """What a call spent (ns) by phase and layer, in the order of time; `loss` is the loss's class."""
    found = []
    for phase in phases:
        if phase in (LOSS, COMMUNICATE, "optimizer"):
            name = loss if phase == LOSS else ""
            found.append(Piece(phase, name, name, sum(ns for place, ns in times.items() if place.phase == phase)))
            continue
        # A forward walks through layers as the network lists them, a backward the other way round.
        paths = list(classes)
        if phase == "backward":
            paths.reverse()
            found.append(Piece(phase, loss, loss, times.get(Place(phase, LOSS), 0)))
        found += [
            Piece(phase, path, classes[path], times[Place(phase, path)])
            for path in paths
            if Place(phase, path) in times
        ]
    return found


def find_containers(classes: Mapping[str, str]) -> dict[str, str]:
    """Of layers by path those that hold others: the network itself, and whatever has layers inside."""
    inner = {path[:at] for path in classes for at, letter in enumerate(path) if letter == "."}
    return {path: name for path, name in classes.items() if not path or path in inner}


@dataclass(frozen=True)
class PlacedSpan:
    """A phase or a layer of a call, from `start` to `end`, ns; `inside`: the number of what is around it, or -1."""

    kind: str
    name: str
    path: str
    direction: str
    start: int
    end: int
    inside: int


def lay_out(begin: int, end: int, pieces: Sequence[Piece], classes: Mapping[str, str]) -> list[PlacedSpan]:
    """The phases and layers of a call that lasted from `begin` to `end`, ns, what is around others before these.

    Pieces are in the order of time. `classes` are those of layers that hold others, by path. A call of one phase is
    this phase from begin to end.
    """
    laid = _CallLayout(classes, begin)
    phases = [(phase, list(group)) for phase, group in groupby(pieces, key=lambda piece: piece.phase)]
    for phase, inside in phases:
        number = laid.open("phase", phase)
        laid.layers(inside)
        if len(phases) == 1:
            laid.at = max(end, laid.at)
        laid.close(number)
    return laid.found


def write_call(
    observer: AnnouncedObserver, begin: int, end: int, pieces: Sequence[Piece], classes: Mapping[str, str]
) -> None:
    """Write the phases and layers of a call that lasted from `begin` to `end`, as `lay_out` has them."""
    events: list[int] = []
    opened: list[tuple[int, int, int]] = []
    """Number, code and end of what is open."""

    def close(inside: int) -> None:
        while opened and opened[-1][0] != inside:
            _, code, until = opened.pop()
            events.extend((code + 1, until))

    for number, one in enumerate(lay_out(begin, end, pieces, classes)):
        close(one.inside)
        phase = one.kind == "phase"
        code = observer.phase_code(one.name) if phase else observer.layer_code(one.path, one.name, one.direction)
        events += (code, one.start)
        opened.append((number, code, one.end))
    close(-1)
    observer.recorder.stream().push(events)


class _CallLayout:
    def __init__(self, classes: Mapping[str, str], at: int) -> None:
        self.classes = classes
        self.at = at
        self.found: list[PlacedSpan] = []
        self.around = -1
        """The number of what is open."""
        self.holding: list[tuple[str, int]] = []
        """Layers that hold the next one, outermost first, with their numbers."""

    def open(self, kind: str, name: str, path: str = "", direction: str = "") -> int:
        self.found.append(PlacedSpan(kind, name, path, direction, self.at, self.at, self.around))
        self.around = len(self.found) - 1
        return self.around

    def close(self, number: int) -> None:
        self.around = self.found[number].inside
        self.found[number] = replace(self.found[number], end=self.at)

    def layers(self, pieces: Sequence[Piece]) -> None:
        """In a forward, layers stand inside those that hold them; a backward goes through layers one by one."""
        for piece in pieces:
            if not piece.class_name:
                self.at += piece.lasted
                continue
            holders = self._holders(piece) if piece.direction == "forward" else []
            self._hold(holders)
            if piece.path in holders:
                self.at += piece.lasted
                continue
            number = self.open("layer", piece.class_name, piece.path, piece.direction)
            self.at += piece.lasted
            self.close(number)
        self._hold([])

    def _holders(self, piece: Piece) -> list[str]:
        """`a.b.c` is held by '', `a` and `a.b`; what holds others may have time of its own."""
        if piece.class_name.endswith("Loss"):
            return []
        parts = piece.path.split(".") if piece.path else []
        above = [".".join(parts[:count]) for count in range(len(parts) + 1)]
        return [path for path in above if path in self.classes]

    def _hold(self, holders: list[str]) -> None:
        """Close layers and open others, until exactly these are open."""
        same = 0
        while same < min(len(self.holding), len(holders)) and self.holding[same][0] == holders[same]:
            same += 1
        while len(self.holding) > same:
            self.close(self.holding.pop()[1])
        for path in holders[same:]:
            self.holding.append((path, self.open("layer", self.classes[path], path, "forward")))
