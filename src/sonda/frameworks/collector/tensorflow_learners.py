"""The functions of a TensorFlow program that learn: which there are, and what each of their graphs costs."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from .piece_pass import AFTER
from .tensorflow_called import Called

MOST = 4
"""Functions that are remembered. They keep the weights of a model that the program has dropped."""
READINGS = 4
"""Calls of a function that is not profiled, before which Keras is asked for the samples that it has counted."""


class Learners:
    """`called` is told of every call of a function that learns."""

    def __init__(self, tf: Any) -> None:
        self.tf = tf
        self._calls: dict = {}
        """By the number of a function."""
        self._known: dict = {}
        """By the number of a function: its calls."""

    def of(self, number: int) -> Called | None:
        return self._known.get(number)

    @property
    def many(self) -> int:
        return len(self._calls)

    def called(self, number: int, function: Any, args: tuple, kwargs: dict, alone: bool) -> bool:
        """Remember a call; whether that has made the step wait. `alone`: this function will not be profiled."""
        count = self._calls[number] = self._calls.get(number, 0) + 1
        if len(self._calls) > MOST:
            self._known.clear()
            return False
        with suppress(Exception):  # of a function that is another's
            known = self._known[number] if count > 1 else Called(self.tf, function)
            known.came(args, kwargs)
            self._known[number] = known
        one = self.of(number)
        return one is not None and alone and AFTER <= count <= AFTER + READINGS and one.between()

    def facts(self) -> dict:
        """What is stated: rows of every function's graph; or why there are none. Nothing of a program of few steps."""
        if max(self._calls.values(), default=0) < AFTER:
            return {}
        if len(self._calls) > MOST:
            return {"uncounted": f"{len(self._calls)} functions learn, and no more than {MOST} are counted"}
        if not self._known:
            return {}
        if set(self._known) != set(self._calls):
            return {"uncounted": "nothing is known of a function that learns"}
        found = [one.costs() for one in self._known.values()]
        refused = next((one for one in found if "uncounted" in one), None)
        return refused or {"costs": [one["costs"] for one in found]}
