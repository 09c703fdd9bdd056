"""What compiled functions of JAX do inside: JAX's own profiler around a few calls of each.

While the calls of one function are profiled, those of others are too, so that a step is told whole. A function whose
calls have other shapes from then on (larger images, another part of the data) is profiled again. Beside each profile
lie the texts of what XLA made of the functions, one for each shape of their arguments; the instructions in them know
the scopes and the lines of the program that they came from.
"""

from __future__ import annotations

import os
from time import perf_counter_ns as now
from typing import Any

from ...collector.failure import first_line
from ...collector.piece_pass import AFTER, PiecePass
from .profiler import drop_trace, start_trace


class JaxPass(PiecePass):
    PREFIX = "jitted"
    MOST = 6  # those that learn and evaluate, and some more
    TRIES = 3

    def __init__(self, recorder: Any, profiler: Any, wanted: bool) -> None:
        super().__init__(recorder, wanted)
        self.profiler = profiler
        self.kept: list = []
        """Profiles: their folders, the texts by number (function, its name, its phase, its shapes) and all calls."""
        self._texts: dict = {}
        """Of the present profile, by the number of a function and the shapes of its arguments: number of the text."""
        self._lowered: list = []
        self._about: dict = {}
        self._told: dict = {}
        """By the number of a function: shapes for which there is a text."""
        self._last: dict = {}
        """By the number of a function: shapes of its last call."""

    def start_profile(self, folder: str) -> None:
        os.makedirs(folder, exist_ok=True)
        self._texts, self._lowered, self._about = {}, [], {"texts": [], "calls": []}
        start_trace(self.profiler, folder)

    def stop_profile(self, save: bool) -> None:
        if save:
            self.profiler.stop_trace()
        else:
            drop_trace()

    def keep_profile(self) -> None:
        for number, lowered in enumerate(self._lowered):
            function, *_, shapes = self._about["texts"][number]
            self._tried[function] = self.TRIES
            self._told.setdefault(function, set()).add(shapes)
            try:
                with open(os.path.join(self.folder, f"{number}.txt"), "w", encoding="utf-8") as file:
                    file.write(lowered.compile().as_text())
            except Exception as error:  # of a function that cannot be asked
                self._about["failed"] = first_line(error)
        self._lowered = []
        self.kept.append({**self._about, "profile": os.path.basename(self.folder)})

    def begin_call(self, number: Any, shapes: int = 0) -> bool:
        """Whether the call that comes is profiled, of a function with this number and shapes with that one."""
        which = self._which(number, shapes)
        if which != number and self._last.get(number) != shapes:
            self._seen[which] = 0  # a shape that comes now and then, as the last batch of an epoch, would take for ever
        self._last[number] = shapes
        return super().begin_call(which) or self.running

    def _which(self, number: int, shapes: int) -> Any:
        """What is profiled by itself: a function, and later shapes of it of which nothing is told yet."""
        told = self._told.get(number, ())
        return (number, shapes) if told and shapes not in told else number

    def called(
        self, number: int, name: str, phase: str, begin: int, done: bool, compiled: bool, shapes: int, lower: Any
    ) -> None:  # fmt: skip
        """A call that was profiled is over, or failed: of which function, since when (ns), and whether something was
        compiled. `shapes` is the number of its shapes, `lower` gives what will tell what XLA made for these."""
        if not self.running:
            return
        end = now()
        if done:
            which = self._text(number, name, phase, shapes, lower)
            self._about["calls"].append([which, self.recorder.stream().native, begin, end, compiled])
            self.spent += now() - end
        if self.function in (number, (number, shapes)):
            self.end_call(compiled or not done)

    def _text(self, number: int, name: str, phase: str, shapes: int, lower: Any) -> int:
        """The number of the text of a call; -1 where there will be none."""
        try:
            key = (number, shapes)
            found = self._texts.get(key)
            if found is None:
                self._lowered.append(lower())  # holds no arrays, and JAX has it already
                found = self._texts[key] = len(self._about["texts"])
                self._about["texts"].append([number, name, phase, shapes])
        except Exception as error:
            self._about["failed"] = first_line(error)
            return -1
        return int(found)

    def facts(self, stepped: bool, callers: dict) -> dict:
        """What is to be stated at the end; `callers`: by phase the numbers of functions that were called often."""
        if self.kept:
            return {"jitted": self.kept, "jitted_s": self.spent / 1e9, "callers": callers}
        if stepped and self.wanted:
            few = f"no function was called more than {AFTER + 1} times"
            return {
                "jitted": [],
                "why": self.why or ("the program ended while it was profiled" if self._tried else few),
            }
        return {}
