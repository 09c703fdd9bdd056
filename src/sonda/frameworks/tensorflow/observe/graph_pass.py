"""What a graph of TensorFlow does inside: its own profiler around a few calls of a function that learns.

While the calls of one function are profiled, those of others that learn are too, so that whole steps are profiled. On a
processor, facts name the profile and the scopes of the graphs that are layers of Keras, its loss and its optimizer.
Operations in the profile have the names of their scopes, which tells how long each layer took. On a GPU the host only
launches operations: there the profile is of kernels, and its calls are of the pass `kernels`.

A profiler outside that replays kernels is told of one step: from a call of a function that learns until its next call,
or until a function is called that was not called between its last two calls.
"""

from __future__ import annotations

import glob
import os
from contextlib import suppress
from time import perf_counter_ns as now
from typing import Any

from ...collector.cuda_profiler import find_profiler_marks
from ...collector.piece_pass import CallHistory, PiecePass
from . import devices
from .learners import LearningFunctions


class GraphPass(PiecePass):
    """`note_scope` is called for scopes of the graph; on a processor nothing is profiled before there is one."""

    PREFIX = "graph"
    SPOILT = "something was traced in the calls that were profiled, or they failed"

    def __init__(self, recorder: Any, tf: Any, wanted: bool, replay: bool = False) -> None:
        super().__init__(recorder, wanted)
        self.tf = tf
        self.replay = replay
        self.graphs: dict = {}
        """Names of the graphs of each profiled function, by the function's number."""
        self.calls: list = []
        """Profiled calls: thread, begin and end (ns), and whether it failed or something was traced in it."""
        self.scopes: dict = {}
        """By scope: what it is (layer, loss, optimizer), its name, its class, and the number of the layer."""
        self._on_gpu: bool | None = None
        """Whether the program uses a GPU; None before that is known."""
        self._thread = 0
        """The thread that calls the function."""
        self._profile = ""
        self._kernels = ""
        self._turns = CallHistory()
        self._step: set = set()
        """Numbers of the functions that a step calls, where one is replayed."""
        self._learning = LearningFunctions(tf)
        """The functions whose FLOPs are counted."""

    def comes(self, number: int) -> None:
        """Note that the function of this number is about to be called, in the replayed step or after it."""
        if self.replay:
            again = number == self.function and self.done
            if self.running and (again or number not in self._step):
                self.end()
            self._turns.add(number)

    def end_if_late(self) -> None:
        if not self.replay:  # a replay has no time limit
            super().end_if_late()

    def begin_call(self, number: int, function: Any = None, args: tuple = (), kwargs: dict | None = None) -> bool:
        """Whether the coming call of the function of this number is profiled."""
        was_running = self.running
        profiled = super().begin_call(number) or self.running
        if self.wanted:
            waited = self._learning.note_call(number, function, args, kwargs or {}, not self.left)
            self._settling = self._settling or waited
        calls = self._learning.calls_of(number)
        if profiled and calls is not None:
            calls.read_before()
        if profiled and not was_running:
            self._thread = self.recorder.stream().native
            self._step = self._turns.step_functions() if self.replay else set()
        return profiled

    def is_ready(self) -> bool:
        if self._on_gpu is None:
            self._on_gpu = bool(devices.gpus(self.tf))
            if self._on_gpu:
                self.code = self.recorder.define(kind="pass", name="kernels")
        return self._on_gpu or bool(self.scopes and not self.replay)

    def note_scope(self, scope: str, kind: str, name: str, class_name: str, number: int = 0) -> None:
        """Note a scope of the graph that is being made; `number`: that of a layer, which no other has."""
        if scope and self.left and not self.running:
            self.scopes[scope] = (kind, name, class_name, number)

    def note_call(self, number: int, function: Any, begin: int, traced: bool) -> None:
        """Note that a profiled call, which began at `begin` (ns), is over; `traced`: it traced something, or failed."""
        if not self.running:
            return
        self.calls.append([self.recorder.stream().native, begin, now(), traced])
        # Keras gives functions of training and of evaluation the same name; their graphs have names of their own.
        with suppress(Exception):  # a function of another kind
            names = [concrete.name for concrete in function._list_all_concrete_functions()]
            self.graphs[number] = [name.decode() if isinstance(name, bytes) else str(name) for name in names]
        calls = self._learning.calls_of(number)
        if calls is not None and not traced:
            calls.read_after()
        if number == self.function:
            self.end_call(traced)

    def start_profile(self, folder: str) -> None:
        from tensorflow.python.profiler import profiler_v2

        self.graphs, self.calls = {}, []
        if self._on_gpu:
            devices.wait(self.tf)
        if self.replay:
            find_profiler_marks()[0]()
            return
        # Frames of Python would fill the profile and tell nothing of operations or kernels.
        profiler_v2.start(folder, profiler_v2.ProfilerOptions(1 if self._on_gpu else 2, 0, 1))
        if self._on_gpu:
            devices.mark_clock(self.tf)

    def stop_profile(self, save: bool) -> None:
        from tensorflow.python.profiler import profiler_v2

        if self._on_gpu:
            devices.wait(self.tf)
        if self.replay:
            find_profiler_marks()[1]()
            return
        if self._on_gpu:
            devices.mark_clock(self.tf)
        profiler_v2.stop(save=save)

    def keep_profile(self) -> None:
        if not self._on_gpu:
            self._profile = os.path.basename(self.folder)
        elif not self.replay:
            profiles = sorted(glob.glob(os.path.join(glob.escape(self.folder), "**", "*.xplane.pb"), recursive=True))
            self._kernels = os.path.relpath(profiles[-1], self.recorder.directory) if profiles else ""
            self.why = "" if profiles else "TensorFlow's profiler wrote no profile"

    def facts(self) -> dict:
        """Facts that are stated at the end."""
        if self._on_gpu is None and self._seen:  # a program of few steps
            self.is_ready()
        stated = self._learning.facts() if not self.replay else {}
        if self.why and not self._on_gpu:
            stated["why"] = self.why
        if self._profile or stated:
            stated["scopes"] = {scope: list(described) for scope, described in self.scopes.items()}
        if self._profile:
            names = [name for graphs in self.graphs.values() for name in graphs]
            stated.update(profile=self._profile, functions=names, calls=self.calls, spent_s=self.spent / 1e9)
            stated.update(profiled=len(self.graphs), others=self._learning.count - len(self.graphs))
        return {**({"graphs": [stated]} if stated else {}), **(self._gpu_facts() if self._on_gpu else {})}

    def _gpu_facts(self) -> dict:
        gpus = {str(number): devices.describe_gpu(self.tf, number) for number in range(len(devices.gpus(self.tf)))}
        stated = {"devices": {number: description for number, description in gpus.items() if description}}
        if self._kernels:
            return {**stated, "kernels": self._kernels, "launching": self._thread}
        return {**stated, **({"no_kernels": self.why} if self.why else {})}
