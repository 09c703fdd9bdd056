"""What a graph of TensorFlow does inside: its own profiler around a few calls of a function that learns.

Facts name the profile, and say which scopes of the graph are layers of Keras, its loss and its optimizer. Operations of
the profile have the names of their scopes, so that who reads both finds how long each layer took.
"""

from __future__ import annotations

import os
from typing import Any

from .piece_pass import PiecePass


class GraphPass(PiecePass):
    """`scoped` hears of the graph's scopes; nothing is profiled before there is one."""

    PREFIX = "graph"

    def __init__(self, recorder: Any, wanted: bool) -> None:
        super().__init__(recorder, wanted)
        self.graphs: list = []
        """Names of the function's graphs."""
        self.scopes: dict = {}
        """By scope: what it is (layer, loss, optimizer), its name and its class."""
        self._profile = ""

    def begins(self, number: int, function: Any = None) -> bool:
        """Whether the call that comes, of a function with this number, is profiled."""
        was = self.running
        profiled = super().begins(number)
        if profiled and not was:
            # Keras calls the functions of training and of evaluation alike; their graphs have names of their own.
            names = [one.name for one in function._list_all_concrete_functions()]
            self.graphs = [name.decode() if isinstance(name, bytes) else str(name) for name in names]
        return profiled

    def ready(self) -> bool:
        return bool(self.scopes)

    def scoped(self, scope: str, kind: str, name: str, class_name: str) -> None:
        """A graph is being made, and what comes is inside this scope."""
        if scope and self.left and not self.running:
            self.scopes[scope] = (kind, name, class_name)

    def start_profile(self, folder: str) -> None:
        from tensorflow.python.profiler import profiler_v2

        # Frames of Python would fill the profile and say nothing of operations.
        profiler_v2.start(folder, profiler_v2.ProfilerOptions(2, 0, 1))

    def stop_profile(self, save: bool) -> None:
        from tensorflow.python.profiler import profiler_v2

        profiler_v2.stop(save=save)

    def complete(self) -> None:
        self._profile = os.path.basename(self.folder)

    def facts(self) -> dict:
        """What is to be stated at the end."""
        if not self._profile:
            return {}
        scopes = {scope: list(about) for scope, about in self.scopes.items()}
        about = {"profile": self._profile, "functions": self.graphs, "scopes": scopes}
        return {"graphs": [{**about, "spent_s": self.spent / 1e9}]}
