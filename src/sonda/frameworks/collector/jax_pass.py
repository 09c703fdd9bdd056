"""What compiled functions of JAX do inside: JAX's own profiler around a few calls of each.

Beside each profile lies the text of what XLA made of the function, whose instructions know the scopes and the lines of
the program that they came from.
"""

from __future__ import annotations

import os
from time import perf_counter_ns as now
from typing import Any

from .piece_pass import PiecePass

TEXT = "compiled.txt"


class JaxPass(PiecePass):
    PREFIX = "jitted"
    MOST = 6  # those that learn, update and evaluate, and some more
    TRIES = 3

    def __init__(self, recorder: Any, profiler: Any, wanted: bool) -> None:
        super().__init__(recorder, wanted)
        self.profiler = profiler
        self.about: dict = {}
        """Of the present profile: name and phase of the function, begin and end of the profile, why it says nothing."""
        self.kept: list = []

    def start_profile(self, folder: str) -> None:
        options = self.profiler.ProfileOptions()
        # Frames of Python would fill the profile and say nothing of operations.
        options.python_tracer_level = 0
        os.makedirs(folder, exist_ok=True)
        self.profiler.start_trace(folder, profiler_options=options)
        self.about = {"begin": now()}

    def stop_profile(self, save: bool) -> None:
        if save:
            self.about["end"] = now()
            self.profiler.stop_trace()

    def complete(self) -> None:
        self.kept.append({**self.about, "profile": os.path.basename(self.folder)})

    def told(self, name: str, phase: str, text: Any) -> None:
        """Of the function whose call was just profiled: its name, the phase that it is, and what gives XLA's text."""
        if "function" in self.about:
            return
        begin = now()
        self.about |= {"function": name, "phase": phase, "thread": self.recorder.stream().native}
        try:
            with open(os.path.join(self.folder, TEXT), "w", encoding="utf-8") as file:
                file.write(text())
        except Exception as error:  # of a function that cannot be asked
            self.about["failed"] = (str(error).strip().splitlines() or [type(error).__name__])[0]
        self.spent += now() - begin

    def facts(self) -> dict:
        """What is to be stated at the end."""
        return {"jitted": self.kept, "jitted_s": self.spent / 1e9} if self.kept else {}
