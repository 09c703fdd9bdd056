"""Calls of a `tf.function` that are remembered, so that what its graph costs can be counted when the program ends."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from ...collector.failure import first_line
from ...collector.piece_pass import AFTER
from .flops import count_graph
from .keras_batches import samples_of, trainer_of


class Called:
    """The shapes of calls; `before` and `after` are told of calls of Keras that fetch their batches themselves."""

    def __init__(self, tf: Any, function: Any) -> None:
        self.tf = tf
        self._function = function
        self._trainer = trainer_of(function)
        self._counted: int | None = None
        self.batch = 0
        """Rows of the largest batch that was fetched; 0: not known."""
        self._often: dict = {}
        """Calls by the shapes of their arguments."""

    def came(self, args: tuple, kwargs: dict) -> None:
        """A call with these arguments."""
        leaves = self.tf.nest.flatten((args, kwargs), expand_composites=True)
        shapes = tuple(one.shape for one in leaves if hasattr(one, "shape") and hasattr(one, "dtype"))
        self._often[shapes] = self._often.get(shapes, 0) + 1

    def before(self) -> None:
        self._counted = samples_of(self._trainer, wait=True) if self._trainer is not None else None

    def after(self) -> None:
        counted = samples_of(self._trainer, wait=True) if self._trainer is not None else None
        # Older versions of Keras count steps: one each.
        if counted is not None and self._counted is not None and counted - self._counted > 1:
            self.batch = max(self.batch, counted - self._counted)

    def between(self) -> bool:
        """Between two calls: what was counted since the last time is a batch. Whether somebody was waited for."""
        if self._trainer is None or self.batch:
            return False
        self.after()
        self.before()
        return True

    def costs(self) -> dict:
        """What is stated: rows of the graph at the shapes that most calls had; or why there are none."""
        shapes, often = max(self._often.items(), key=lambda one: one[1])
        every = sum(self._often.values())
        if 2 * often <= every:
            return {"uncounted": f"calls have {len(self._often)} shapes, the most frequent in {often} of {every} calls"}
        try:
            return {"costs": count_graph(self.tf, self._graph(shapes), list(shapes), self.batch)}
        except Exception as error:
            return {"uncounted": first_line(error)}

    def _graph(self, shapes: tuple) -> Any:
        """The function's last that takes such arguments."""
        graphs = [one.graph for one in self._function._list_all_concrete_functions()]
        for graph in reversed(graphs):
            own = [one.shape for one in graph.inputs[: len(shapes)]]
            if len(own) == len(shapes) and all(
                mine.is_compatible_with(given) for mine, given in zip(own, shapes, strict=True)
            ):
                return graph
        raise ValueError("none of the function's graphs takes the arguments of its calls")


# ---- The functions of a TensorFlow program that learn: which there are, and what each of their graphs costs ---------

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
