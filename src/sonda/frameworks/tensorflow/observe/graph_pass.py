"""What a graph of TensorFlow does inside: its own profiler around a few calls of a function that learns.

While the calls of one function are profiled, those of others that learn are too, so that a step is told whole. On a
processor facts name the profile, and say which scopes of the graphs are layers of Keras, its loss and its optimizer.
Operations of the profile have the names of their scopes, so that who reads both finds how long each layer took. On a
GPU the host only launches them: there the profile is of kernels, and its calls are of the pass `kernels`. A profiler
outside that replays kernels is told of one step: from a call of a function that learns until it is called again, or
something is called that was not called between its two calls before.
"""

from __future__ import annotations

import glob
import os
from contextlib import suppress
from time import perf_counter_ns as now
from typing import Any

from ...collector.cuda_profiler import profiler_marks
from ...collector.piece_pass import PiecePass, Turns
from . import devices
from .learners import Learners


class GraphPass(PiecePass):
    """`scoped` hears of the graph's scopes; on a processor nothing is profiled before there is one."""

    PREFIX = "graph"
    SPOILT = "something was traced in the calls that were profiled, or they failed"

    def __init__(self, recorder: Any, tf: Any, wanted: bool, replay: bool = False) -> None:
        super().__init__(recorder, wanted)
        self.tf = tf
        self.replay = replay
        self.graphs: dict = {}
        """Names of the graphs of each profiled function, by its number."""
        self.calls: list = []
        """Profiled calls: thread, begin and end (ns), and whether something was traced in it, or it failed."""
        self.scopes: dict = {}
        """By scope: what it is (layer, loss, optimizer), its name, its class, and the number of the layer."""
        self._on_gpu: bool | None = None
        """Whether the program uses a GPU; None before that was asked."""
        self._thread = 0
        """That calls the function."""
        self._profile = ""
        self._kernels = ""
        self._turns = Turns()
        self._step: set = set()
        """The functions that a step calls, where one is replayed."""
        self._learners = Learners(tf)
        """The functions whose FLOPs are counted."""

    def comes(self, number: int) -> None:
        """A function with this number is about to be called: of a step that is replayed, or of what follows it."""
        if self.replay:
            again = number == self.function and self.done
            if self.running and (again or number not in self._step):
                self.end()
            self._turns.comes(number)

    def meanwhile(self) -> None:
        if not self.replay:  # which takes as long as it takes
            super().meanwhile()

    def begins(self, number: int, function: Any = None, args: tuple = (), kwargs: dict | None = None) -> bool:
        """Whether the call that comes, of a function with this number, is profiled."""
        was = self.running
        profiled = super().begins(number) or self.running
        if self.wanted:
            waited = self._learners.called(number, function, args, kwargs or {}, not self.left)
            self._settling = self._settling or waited
        called = self._learners.of(number)
        if profiled and called is not None:
            called.before()
        if profiled and not was:
            self._thread = self.recorder.stream().native
            self._step = self._turns.step() if self.replay else set()
        return profiled

    def ready(self) -> bool:
        if self._on_gpu is None:
            self._on_gpu = bool(devices.gpus(self.tf))
            if self._on_gpu:
                self.code = self.recorder.define(kind="pass", name="kernels")
        return self._on_gpu or bool(self.scopes and not self.replay)

    def scoped(self, scope: str, kind: str, name: str, class_name: str, number: int = 0) -> None:
        """A graph is being made, and what comes is inside this scope; `number`: of a layer, which no other has."""
        if scope and self.left and not self.running:
            self.scopes[scope] = (kind, name, class_name, number)

    def called(self, number: int, function: Any, begin: int, traced: bool) -> None:
        """A call that was profiled, of a function with this number, is over: since when (ns), and whether something was
        traced in it, or it failed."""
        if not self.running:
            return
        self.calls.append([self.recorder.stream().native, begin, now(), traced])
        # Keras calls the functions of training and of evaluation alike; their graphs have names of their own.
        with suppress(Exception):  # of a function that is another's
            names = [one.name for one in function._list_all_concrete_functions()]
            self.graphs[number] = [name.decode() if isinstance(name, bytes) else str(name) for name in names]
        known = self._learners.of(number)
        if known is not None and not traced:
            known.after()
        if number == self.function:
            self.ended(traced)

    def start_profile(self, folder: str) -> None:
        from tensorflow.python.profiler import profiler_v2

        self.graphs, self.calls = {}, []
        if self._on_gpu:
            devices.wait(self.tf)
        if self.replay:
            profiler_marks()[0]()
            return
        # Frames of Python would fill the profile and say nothing of operations; nor do those of kernels.
        profiler_v2.start(folder, profiler_v2.ProfilerOptions(1 if self._on_gpu else 2, 0, 1))
        if self._on_gpu:
            devices.mark_clock(self.tf)

    def stop_profile(self, save: bool) -> None:
        from tensorflow.python.profiler import profiler_v2

        if self._on_gpu:
            devices.wait(self.tf)
        if self.replay:
            profiler_marks()[1]()
            return
        if self._on_gpu:
            devices.mark_clock(self.tf)
        profiler_v2.stop(save=save)

    def complete(self) -> None:
        if not self._on_gpu:
            self._profile = os.path.basename(self.folder)
        elif not self.replay:
            found = sorted(glob.glob(os.path.join(glob.escape(self.folder), "**", "*.xplane.pb"), recursive=True))
            self._kernels = os.path.relpath(found[-1], self.recorder.directory) if found else ""
            self.why = "" if found else "TensorFlow's profiler wrote no profile"

    def facts(self) -> dict:
        """What is to be stated at the end."""
        if self._on_gpu is None and self._seen:  # a program of few steps
            self.ready()
        about = self._learners.facts() if not self.replay else {}
        if self.why and not self._on_gpu:
            about["why"] = self.why
        if self._profile or about:
            about["scopes"] = {scope: list(about) for scope, about in self.scopes.items()}
        if self._profile:
            names = [name for known in self.graphs.values() for name in known]
            about.update(profile=self._profile, functions=names, calls=self.calls, spent_s=self.spent / 1e9)
            about.update(profiled=len(self.graphs), others=self._learners.many - len(self.graphs))
        return {**({"graphs": [about]} if about else {}), **(self._of_gpus() if self._on_gpu else {})}

    def _of_gpus(self) -> dict:
        known = {str(number): devices.describe_gpu(self.tf, number) for number in range(len(devices.gpus(self.tf)))}
        found = {"devices": {number: about for number, about in known.items() if about}}
        if self._kernels:
            return {**found, "kernels": self._kernels, "launching": self._thread}
        return {**found, **({"no_kernels": self.why} if self.why else {})}
