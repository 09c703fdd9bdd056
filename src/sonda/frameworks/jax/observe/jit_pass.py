"""What compiled functions of JAX do inside: JAX's own profiler around a few calls of each.

While the calls of one function are profiled, those of others are too, so that whole steps are profiled. A function
whose calls later have other shapes (larger images, another part of the data) is profiled again. Beside each profile lie
the texts of the functions as XLA compiled them, one for each shape of their arguments. The instructions in a text know
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
    MOST = 6  # functions that learn and that evaluate, and some more
    TRIES = 3

    def __init__(self, recorder: Any, profiler: Any, wanted: bool) -> None:
        super().__init__(recorder, wanted)
        self.profiler = profiler
        self.kept: list = []
        """Of each profile its folder, the texts by number (function, its name, phase and shapes) and all calls."""
        self._text_numbers: dict = {}
        """Numbers of texts in the present profile, by the numbers of a function and of its shapes."""
        self._lowered: list = []
        self._profile: dict = {}
        self._shapes_with_text: dict = {}
        """By the number of a function: numbers of the shapes for which there is a text."""
        self._last_shapes: dict = {}
        """By the number of a function: number of the shapes of its last call."""

    def start_profile(self, folder: str) -> None:
        os.makedirs(folder, exist_ok=True)
        self._text_numbers, self._lowered, self._profile = {}, [], {"texts": [], "calls": []}
        start_trace(self.profiler, folder)

    def stop_profile(self, save: bool) -> None:
        if save:
            self.profiler.stop_trace()
        else:
            drop_trace()

    def keep_profile(self) -> None:
        for number, lowered in enumerate(self._lowered):
            function, *_, shapes = self._profile["texts"][number]
            self._tried[function] = self.TRIES
            self._shapes_with_text.setdefault(function, set()).add(shapes)
            try:
                with open(os.path.join(self.folder, f"{number}.txt"), "w", encoding="utf-8") as file:
                    file.write(lowered.compile().as_text())
            except Exception as error:  # of a function that cannot be asked
                self._profile["failed"] = first_line(error)
        self._lowered = []
        self.kept.append({**self._profile, "profile": os.path.basename(self.folder)})

    def begin_call(self, number: Any, shapes: int = 0) -> bool:
        """Whether the coming call is profiled, of the function and with the shapes of these numbers."""
        key = self._profiled_key(number, shapes)
        if key != number and self._last_shapes.get(number) != shapes:
            self._seen[key] = 0  # shapes that come now and then, as the last batch of an epoch, do not count
        self._last_shapes[number] = shapes
        return super().begin_call(key) or self.running

    def _profiled_key(self, number: int, shapes: int) -> Any:
        """What is profiled by itself: a function, or later shapes of it that have no text yet."""
        with_text = self._shapes_with_text.get(number, ())
        return (number, shapes) if with_text and shapes not in with_text else number

    def note_call(
        self, number: int, name: str, phase: str, begin: int, done: bool, compiled: bool, shapes: int, lower: Any
    ) -> None:  # fmt: skip
        """Note that a profiled call, which began at `begin` (ns), is over, or failed if not `done`.

        `compiled`: whether JAX compiled in it. `shapes` is the number of its shapes, `lower` lowers it for XLA.
        """
        if not self.running:
            return
        end = now()
        if done:
            text = self._text(number, name, phase, shapes, lower)
            self._profile["calls"].append([text, self.recorder.stream().native, begin, end, compiled])
            self.spent += now() - end
        if self.function in (number, (number, shapes)):
            self.end_call(compiled or not done)

    def _text(self, number: int, name: str, phase: str, shapes: int, lower: Any) -> int:
        """The number of the text for a call; -1 where there will be none."""
        try:
            key = (number, shapes)
            number_of_text = self._text_numbers.get(key)
            if number_of_text is None:
                self._lowered.append(lower())  # holds no arrays, and JAX has it already
                number_of_text = self._text_numbers[key] = len(self._profile["texts"])
                self._profile["texts"].append([number, name, phase, shapes])
        except Exception as error:
            self._profile["failed"] = first_line(error)
            return -1
        return int(number_of_text)

    def facts(self, stepped: bool, callers: dict) -> dict:
        """Facts that are stated at the end; `callers`: by phase the numbers of functions that were called often."""
        if self.kept:
            return {"jitted": self.kept, "jitted_s": self.spent / 1e9, "callers": callers}
        if stepped and self.wanted:
            few = f"no function was called more than {AFTER + 1} times"
            return {
                "jitted": [],
                "why": self.why or ("the program ended while it was profiled" if self._tried else few),
            }
        return {}
