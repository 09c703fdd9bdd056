"""The functions of a TensorFlow program that learn: which there are, and what each of their graphs costs."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from .piece_pass import AFTER
from .tensorflow_called import Called

MOST = 4
"""Functions that are remembered. Their graphs keep the weights of a model that the program has dropped."""
READINGS = 4
"""Calls of a function that is not profiled, before which Keras is asked for the samples that it has counted."""


class Learners:
    """`called` is told of every call of a function that learns."""

    def __init__(self, tf: Any) -> None:
        self.tf = tf
        self._calls: dict = {}
        """By the number of a function."""
        self._known: dict = {}
        """By the number of a function: one of its calls."""

    def of(self, number: int) -> Called | None:
        return self._known.get(number)

    @property
    def many(self) -> int:
        return len(self._calls)

    def called(self, number: int, function: Any, args: tuple, kwargs: dict, profile: int) -> bool:
        """Remember a call, if it is the one to remember; whether that has made the step wait.

        `profile` says what becomes of this function: -1 it is never profiled, 1 its profile begins with this call.
        """
        count = self._calls[number] = self._calls.get(number, 0) + 1
        if len(self._calls) > MOST:
            self._known.clear()
            return False
        if count == AFTER or profile == 1:
            with suppress(Exception):  # of a function that is another's
                self._known[number] = Called(self.tf, function, args, kwargs)
        one = self.of(number)
        if one is None or profile != -1 or count > AFTER + READINGS:
            return False
        return one.between()

    def facts(self) -> dict:
        """What is stated: rows of every function's graph; or why there are none."""
        if len(self._calls) > MOST:
            return {"uncounted": f"{len(self._calls)} functions learn, and no more than {MOST} are counted"}
        if not self._known:
            return {}
        if set(self._known) != set(self._calls):
            return {"uncounted": "its steps do not all call the same function"}
        found = [one.costs() for one in self._known.values()]
        refused = next((one for one in found if "uncounted" in one), None)
        return refused or {"costs": [one["costs"] for one in found]}
