"""Kernels of a few calls of a JAX program on a GPU: JAX's own profiler around them, with the collector's clock in it.

They come after the calls that tell what functions do inside (`jit_pass`), and are of the pass `kernels`.
"""

from __future__ import annotations

import glob
import os
from typing import Any

from ...collector.cuda_profiler import find_profiler_marks
from ...collector.piece_pass import AFTER, CALLS, CallHistory, PiecePass
from . import devices as jax_devices
from .profiler import drop_trace, mark_clock, start_trace

FIRST = AFTER + CALLS + 5
"""The first call of a function that is recorded, after those that tell what it does inside."""
STEPS = 3
COMPILED = "JAX compiled in the calls that were to be recorded"


class JaxKernelPass(PiecePass):
    """`comes` and `begins` are called before every call that is a phase, `note_call` after those that are recorded.

    Whole steps are recorded: from a call of a function that learns until its next call, or until a function is called
    that was not called between its last two calls.
    """

    PASS = "kernels"
    PREFIX = "jax-kernels"
    TRIES = 3

    def __init__(self, recorder: Any, jax: Any, wanted: bool, replay: bool) -> None:
        """`replay`: mark one step for a profiler outside, which replays kernels; nothing is recorded."""
        super().__init__(recorder, wanted)
        self.jax, self.replay = jax, replay
        self._kernels = ""
        self._thread = 0
        """The thread that calls the function."""
        self._turns = CallHistory()
        self._step: set = set()
        """Numbers of the functions that a step calls."""

    def is_ready(self) -> bool:
        return bool(jax_devices.gpus(self.jax))

    def comes(self, number: int) -> None:
        """Note that the function of this number is about to be called, in the recorded step or after it."""
        again = number == self.function and self.done >= (1 if self.replay else STEPS)
        if self.running and (again or number not in self._step):
            self.end()
        self._turns.add(number)

    def begin_call(self, number: int, calls: int = 0, learns: bool = False) -> bool:
        """Whether the coming call is recorded: number `calls` of its function; `learns`: the function learns."""
        if self.running or not self.left or not learns or calls < FIRST:
            return self.running
        if self._tried.get(number, 0) >= self.TRIES or not self.is_ready():
            return False
        self._step = self._turns.step_functions()
        self._tried[number] = self._tried.get(number, 0) + 1
        self.function, self.done, self._thread = number, 0, self.recorder.stream().native
        self._start()
        return self.running

    def note_call(
        self, number: int, name: str, phase: str, begin: int, done: bool, compiled: bool, shapes: int, lower: Any
    ) -> None:  # fmt: skip
        """Note that a recorded call is over, or failed (`JaxPass.note_call`)."""
        if self.running and (compiled or not done):
            self.end(keep=False)
            self.why = COMPILED if self._tried[self.function] >= self.TRIES else ""
        elif number == self.function:
            self.done += 1

    def start_profile(self, folder: str) -> None:
        if self.replay:
            find_profiler_marks()[0]()
            return
        start_trace(self.jax.profiler, folder)
        mark_clock(self.jax.profiler)

    def stop_profile(self, save: bool) -> None:
        if self.replay:
            find_profiler_marks()[1]()
        elif save:
            mark_clock(self.jax.profiler)
            self.jax.profiler.stop_trace()
        else:
            drop_trace()

    def keep_profile(self) -> None:
        if not self.replay:
            profiles = sorted(glob.glob(os.path.join(glob.escape(self.folder), "**", "*.xplane.pb"), recursive=True))
            self._kernels = os.path.relpath(profiles[-1], self.recorder.directory) if profiles else ""
            self.why = "" if profiles else "JAX's profiler wrote no profile"

    def facts(self) -> dict:
        """Facts that are stated at the end."""
        if self._kernels:
            return {"kernels": self._kernels, "launching": self._thread}
        return {"no_kernels": self.why} if self.why else {}
