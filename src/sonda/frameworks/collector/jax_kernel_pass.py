"""Kernels of a few calls of a JAX program on a GPU: JAX's own profiler around them, with the collector's clock in it.

They come after the calls that tell what functions do inside (`jax_pass`), and are of the pass `kernels`.
"""

from __future__ import annotations

import glob
import os
from typing import Any

from . import jax_devices
from .cuda_marks import profiler_marks
from .jax_profiler import mark_clock, start_trace
from .piece_pass import AFTER, CALLS, PiecePass


class JaxKernelPass(PiecePass):
    PASS = "kernels"
    PREFIX = "jax-kernels"
    TRIES = 3
    AFTER = AFTER + CALLS + 3
    CALLS = 3

    def __init__(self, recorder: Any, jax: Any, wanted: bool, replay: bool) -> None:
        """`replay`: a profiler outside, which replays kernels, is told of one call; nothing is recorded."""
        super().__init__(recorder, wanted)
        self.jax, self.replay = jax, replay
        self._kernels = ""
        self._thread = 0
        """That calls the function."""

    def ready(self) -> bool:
        return bool(jax_devices.gpus(self.jax))

    def begins(self, number: int) -> bool:
        """Whether the call that comes, of a function with this number, is recorded. Steps are, whole: until the
        function is called again."""
        if self.running and number == self.function and self.done >= (1 if self.replay else self.CALLS):
            self.end()
        was = self.running
        profiled = super().begins(number) or self.running
        if profiled and not was:
            self._thread = self.recorder.stream().native
        return profiled

    def called(
        self, number: int, name: str, phase: str, begin: int, done: bool, compiled: bool, shapes: int, lower: Any
    ) -> None:  # fmt: skip
        """A call that was profiled is over, or failed (`JaxPass.called`)."""
        if self.running and (compiled or not done):
            self._seen[self.function] = 0
            self.end(keep=False)
        elif number == self.function:
            self.done += 1

    def start_profile(self, folder: str) -> None:
        if self.replay:
            profiler_marks()[0]()
            return
        start_trace(self.jax.profiler, folder)
        mark_clock(self.jax.profiler)

    def stop_profile(self, save: bool) -> None:
        if self.replay:
            profiler_marks()[1]()
        elif save:
            mark_clock(self.jax.profiler)
            self.jax.profiler.stop_trace()

    def complete(self) -> None:
        if not self.replay:
            found = sorted(glob.glob(os.path.join(glob.escape(self.folder), "**", "*.xplane.pb"), recursive=True))
            self._kernels = os.path.relpath(found[-1], self.recorder.directory) if found else ""

    def facts(self) -> dict:
        """What is to be stated at the end."""
        if self._kernels:
            return {"kernels": self._kernels, "launching": self._thread}
        return {"no_kernels": self.why} if self.why else {}
