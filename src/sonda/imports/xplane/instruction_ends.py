"""When instructions of XLA end that run on behind their events, as convolutions do on a processor.

XLA's event of such an instruction covers what its own thread did; other threads go on with the rest. The one that
finishes it runs the instructions behind it, up to the next that others go on with, and only then writes `end: NAME`,
which refers to the event by its number. So the instruction was over when the first of those began, in the thread that
wrote its end.
"""

from __future__ import annotations

from bisect import bisect_left

from sonda.imports.xplane.planes import XEvent, XSpace

END = "end: "
INSTRUCTION, NUMBER, OF = "hlo_op", "_p", "_c"
"""Stats: the name of an instruction, the number of its event, and of which event something is the end."""


class InstructionEnds:
    """The ends of the instructions of a profile."""

    def __init__(self, space: XSpace) -> None:
        self._late: dict[int, int] = {}
        """By the number of an event: when its instruction was over, ns."""
        ended: dict[int, int] = {}
        begins: dict[tuple[int, int], list[int]] = {}
        """By thread: when instructions began, ns."""
        endings: list[tuple[int, tuple[int, int], int]] = []
        for plane_number, plane in enumerate(space.planes):
            for line_number, line in enumerate(plane.lines):
                thread = (plane_number, line_number)
                for event in line.events():
                    about = event.stats
                    if INSTRUCTION in about and NUMBER in about:
                        begins.setdefault(thread, []).append(int(event.start_ns))
                        ended[int(about[NUMBER])] = _end(event)
                    elif OF in about and event.name.startswith(END):
                        endings.append((int(about[OF]), thread, int(event.start_ns)))
        for known in begins.values():
            known.sort()
        for number, thread, at in endings:
            if at > ended.get(number, at):
                known = begins.get(thread, [])
                place = bisect_left(known, ended[number])
                self._late[number] = min([at, *known[place : place + 1]])

    def of(self, event: XEvent) -> int:
        """When what an event stands for was over, ns."""
        return max(self._late.get(int(event.stats.get(NUMBER, -1)), 0), _end(event)) if self._late else _end(event)


def _end(event: XEvent) -> int:
    return int(event.start_ns) + int(event.duration_ns)
