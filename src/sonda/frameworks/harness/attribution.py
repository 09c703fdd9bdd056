"""Phases and layers of a compiled call, from the framework's own profile of that call.

The compiler mixes the operations of different layers, so a layer is no stretch of the call's time. The times of its
operations are added up, and layers are laid out one after the other in the order of the network. So their durations are
measured, but their positions within the call are not. Time that belongs to no layer in the profile (launching, waiting,
operations of the compiler) belongs to no phase.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeVar

from sonda.frameworks.harness.announcer import AnnouncedObserver

LOSS = "loss"
"""Name of the phase; also the path of the loss's backward, which is in no layer of the network."""
COMMUNICATE = "communicate"
ORDER = ("forward", LOSS, "backward", COMMUNICATE, "optimizer")
"""Phases of a training step in the order of time."""
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Place:
    """Where an operation belongs: its phase, and the path of its layer ('' where it is in no layer)."""

    phase: str
    path: str


@dataclass(frozen=True)
class Piece:
    """The time of a layer in a call, ns: with its phase, its path ('' for the network) and class ('' for no layer)."""

    phase: str
    path: str
    class_name: str
    lasted: int

    @property
    def direction(self) -> str:
        return "backward" if self.phase == "backward" else "forward"


def split_time(stretches: Iterable[tuple[int, int, Key, bool]]) -> dict[Key, int]:
    """Split time between stretches (begin, end, key, waits) that overlap; the result is ns by key.

    Every moment counts once: for the stretch that began last. A stretch that `waits` counts only where no other runs.
    """
    lasting = [stretch for stretch in stretches if stretch[0] < stretch[1]]
    edges: list[tuple[int, int, int]] = []
    for number, (start, end, _, _) in enumerate(lasting):
        edges += ((start, 1, number), (end, 0, number))
    times: dict[Key, int] = {}
    computing: dict[int, None] = {}
    waiting: dict[int, None] = {}
    before = 0
    # At the same moment an end comes first.
    for time, begins, number in sorted(edges):
        if active := computing or waiting:
            key = lasting[next(reversed(active))][2]
            times[key] = times.get(key, 0) + time - before
        before = time
        group = waiting if lasting[number][3] else computing
        if begins:
            group[number] = None
        else:
            del group[number]
    return times


def order_pieces(
    times: Mapping[Place, int], loss: str, classes: Mapping[str, str], phases: Sequence[str] = ORDER
) -> list[Piece]:
    """The pieces of a call in order of time, from its `times` (ns); `loss` is the class of the loss."""
    pieces = []
    for phase in phases:
        if phase in (LOSS, COMMUNICATE, "optimizer"):
            name = loss if phase == LOSS else ""
            pieces.append(Piece(phase, name, name, sum(ns for place, ns in times.items() if place.phase == phase)))
            continue
        # A forward goes through layers as the network lists them, a backward in the reverse order.
        paths = list(classes)
        if phase == "backward":
            paths.reverse()
            pieces.append(Piece(phase, loss, loss, times.get(Place(phase, LOSS), 0)))
        pieces += [
            Piece(phase, path, classes[path], times[Place(phase, path)])
            for path in paths
            if Place(phase, path) in times
        ]
    return pieces


def find_containers(classes: Mapping[str, str]) -> dict[str, str]:
    """The layers that contain others, by path, with their classes: the network itself, and all with layers inside."""
    inner = {path[:at] for path in classes for at, letter in enumerate(path) if letter == "."}
    return {path: name for path, name in classes.items() if not path or path in inner}


@dataclass(frozen=True)
class PlacedSpan:
    """A phase or a layer of a call, from `start` to `end`, ns; `inside`: index of the span around it, or -1."""

    kind: str
    name: str
    path: str
    direction: str
    start: int
    end: int
    inside: int


def lay_out(begin: int, end: int, pieces: Sequence[Piece], classes: Mapping[str, str]) -> list[PlacedSpan]:
    """The phases and layers of a call from `begin` to `end`, ns. A span stands before those inside it.

    Pieces are in order of time. `classes` are those of layers that contain others, by path. A call with one phase is
    this phase from begin to end.
    """
    layout = _CallLayout(classes, begin)
    phases = [(phase, list(group)) for phase, group in groupby(pieces, key=lambda piece: piece.phase)]
    for phase, own_pieces in phases:
        index = layout.open("phase", phase)
        layout.add_layers(own_pieces)
        if len(phases) == 1:
            layout.at = max(end, layout.at)
        layout.close(index)
    return layout.spans


def write_call(
    observer: AnnouncedObserver, begin: int, end: int, pieces: Sequence[Piece], classes: Mapping[str, str]
) -> None:
    """Write the phases and layers of a call from `begin` to `end`, ns, as `lay_out` gives them."""
    events: list[int] = []
    opened: list[tuple[int, int, int]] = []
    """Index, code and end of the open spans."""

    def close(inside: int) -> None:
        while opened and opened[-1][0] != inside:
            _, code, until = opened.pop()
            events.extend((code + 1, until))

    for index, span in enumerate(lay_out(begin, end, pieces, classes)):
        close(span.inside)
        if span.kind == "phase":
            code = observer.phase_code(span.name)
        else:
            code = observer.layer_code(span.path, span.name, span.direction)
        events += (code, span.start)
        opened.append((index, code, span.end))
    close(-1)
    observer.recorder.stream().push(events)


class _CallLayout:
    """Lays out the spans of a call one after the other, from the time `at` on, ns."""

    def __init__(self, classes: Mapping[str, str], at: int) -> None:
        self.classes = classes
        self.at = at
        self.spans: list[PlacedSpan] = []
        self.around = -1
        """Index of the innermost open span."""
        self.containers: list[tuple[str, int]] = []
        """Paths of the open layers that contain the next one, the outermost first, with their indices."""

    def open(self, kind: str, name: str, path: str = "", direction: str = "") -> int:
        self.spans.append(PlacedSpan(kind, name, path, direction, self.at, self.at, self.around))
        self.around = len(self.spans) - 1
        return self.around

    def close(self, index: int) -> None:
        self.around = self.spans[index].inside
        self.spans[index] = replace(self.spans[index], end=self.at)

    def add_layers(self, pieces: Sequence[Piece]) -> None:
        """Add the layers of a phase. In a forward they stand inside their containers, in a backward side by side."""
        for piece in pieces:
            if not piece.class_name:
                self.at += piece.lasted
                continue
            containers = self._find_containers(piece) if piece.direction == "forward" else []
            self._open_containers(containers)
            if piece.path in containers:
                self.at += piece.lasted
                continue
            index = self.open("layer", piece.class_name, piece.path, piece.direction)
            self.at += piece.lasted
            self.close(index)
        self._open_containers([])

    def _find_containers(self, piece: Piece) -> list[str]:
        """Paths of the layers around a piece: '', `a` and `a.b` for `a.b.c`. A container may have time of its own."""
        if piece.class_name.endswith("Loss"):
            return []
        parts = piece.path.split(".") if piece.path else []
        above = [".".join(parts[:count]) for count in range(len(parts) + 1)]
        return [path for path in above if path in self.classes]

    def _open_containers(self, paths: list[str]) -> None:
        """Close and open containers, until exactly these are open."""
        same = 0
        while same < min(len(self.containers), len(paths)) and self.containers[same][0] == paths[same]:
            same += 1
        while len(self.containers) > same:
            self.close(self.containers.pop()[1])
        for path in paths[same:]:
            self.containers.append((path, self.open("layer", self.classes[path], path, "forward")))
