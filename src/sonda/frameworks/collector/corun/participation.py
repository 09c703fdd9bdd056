"""Lets an observed program take part in an experiment with several: after a step it waits for the next order.

The environment names the board, a pipe with orders and a pipe for answers, which hold JSON lines. The first process of
the program that has warmed up takes part. Its other processes (data loaders, other ranks) do not.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Generator
from typing import Any

from ..descriptors import move_aside
from .board import Board
from .counters import WindowCounters
from .window import measure_window

VARIABLE = "SONDA_CORUN"
CLAIMED = "joined"
"""File in the collector's directory. The process that creates it takes part."""
WARM_STEPS = 3
LAYER_STEPS = 40
"""Steps of a window whose layers are recorded, evenly spread."""


def join_windows(observer: Any) -> None:
    """Let the program take part after its first steps, where the environment asks for it."""
    text = os.environ.get(VARIABLE, "")
    if text:
        participant = _Participant(json.loads(text), observer)
        observer.schedule.end_step = participant.end_step


class _Participant:
    """Stands before the schedule's `end_step`: lets the program wait there, and measures its steps."""

    def __init__(self, settings: dict, observer: Any) -> None:
        self.settings = settings
        self.schedule = observer.schedule
        self.directory = observer.recorder.directory
        self._end_step = observer.schedule.end_step
        self._steps = 0
        self._board: Board | None = None
        self._orders: Any = None
        self._answers = -1
        self._counters: WindowCounters | None = None
        self._going: Generator[None, None, dict] | None = None
        self._began = 0
        """When the last of the warm-up steps began, ns."""
        self._stride = 1

    def end_step(self, now: int, written: int) -> None:
        """A step of the program is over, at `now` ns; so many bytes are `written`."""
        self._end_step(now, written)
        self.schedule.detail = False
        self._steps += 1
        if self._board is None:
            if self._steps < WARM_STEPS:
                self._began = now
                return
            if not self._join(now):
                self.schedule.end_step = self._end_step
                return
        self._step()

    def _join(self, now: int) -> bool:
        try:
            os.close(os.open(os.path.join(self.directory, CLAIMED), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return False
        settings = self.settings
        self._board = Board(move_aside(os.open(settings["board"], os.O_RDWR | os.O_CLOEXEC)), settings["slots"])
        self._counters = WindowCounters(settings["groups"])
        self._answers = move_aside(os.open(settings["answers"], os.O_WRONLY | os.O_CLOEXEC))
        self._orders = io.FileIO(move_aside(os.open(settings["orders"], os.O_RDONLY | os.O_CLOEXEC)))
        steps = settings["seconds"] * 1e9 / max(1, now - self._began)
        self._stride = max(1, round(steps / LAYER_STEPS))
        self._answer({"process": os.getpid(), "stride": 1, "pmu": self._counters.reason})
        return True

    def _step(self) -> None:
        assert self._board is not None
        self._board.add_step(self.settings["slot"])
        try:
            os.kill(self.settings["parent"], 0)
        except ProcessLookupError:
            os._exit(1)  # the parent has ended: this program must not go on disturbing others
        while True:
            if self._going is None:
                self._going = self._begin_window()
            try:
                next(self._going)
            except StopIteration as ended:
                self._answer(ended.value)
                self._going = None
            except TimeoutError as error:
                self._answer({"window": 0, "cause": str(error), "remedy": "give a longer --timeout"})
                os._exit(1)
            else:
                self.schedule.detail = self._steps % self._stride == 0
                return

    def _begin_window(self) -> Generator[None, None, dict]:
        """Wait for the next order and begin its window; end the program where no window follows."""
        line = self._orders.readline()
        order = json.loads(line) if line else {}
        if not order.get("window"):
            os._exit(0)  # the watch writes all events before
        settings = self.settings
        assert self._board is not None and self._counters is not None
        return measure_window(self._board, settings["slot"], order["window"], order["members"], settings["seconds"],
                      60 + 2 * settings["timeout"], self._counters)  # fmt: skip

    def _answer(self, message: dict) -> None:
        rest = memoryview(json.dumps(message).encode() + b"\n")
        while rest:
            rest = rest[os.write(self._answers, rest) :]
