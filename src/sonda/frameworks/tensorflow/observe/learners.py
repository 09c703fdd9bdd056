"""Calls of `tf.function`s that learn, remembered so that the costs of their graphs can be counted at the end."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from ...collector.failure import first_line
from ...collector.piece_pass import AFTER
from .flops import count_graph
from .keras_batches import samples_of, trainer_of


class LearnerCalls:
    """Shapes of the calls of one function; `read_before` and `read_after` measure batches that Keras fetches itself."""

    def __init__(self, tf: Any, function: Any) -> None:
        self.tf = tf
        self._function = function
        self._trainer = trainer_of(function)
        self._counted: int | None = None
        self.batch = 0
        """Rows of the largest batch that was fetched; 0: unknown."""
        self._shape_counts: dict = {}
        """The number of calls by the shapes of their arguments, without those that are given an iterator alone."""
        self._iterator_calls = 0
        self._iterator_shapes: tuple = ()

    def count_shapes(self, args: tuple, kwargs: dict) -> None:
        """Count a call with these arguments. Keras gives an iterator, whose handle always has the same shape."""
        if len(args) == 1 and not kwargs and hasattr(args[0], "_iterator_resource"):
            if not self._iterator_calls:
                self._iterator_shapes = self._shapes_of(args, kwargs)
            self._iterator_calls += 1
            return
        shapes = self._shapes_of(args, kwargs)
        self._shape_counts[shapes] = self._shape_counts.get(shapes, 0) + 1

    def _shapes_of(self, args: tuple, kwargs: dict) -> tuple:
        leaves = self.tf.nest.flatten((args, kwargs), expand_composites=True)
        return tuple(leaf.shape for leaf in leaves if hasattr(leaf, "shape") and hasattr(leaf, "dtype"))

    def read_before(self) -> None:
        self._counted = samples_of(self._trainer, wait=True) if self._trainer is not None else None

    def read_after(self) -> None:
        counted = samples_of(self._trainer, wait=True) if self._trainer is not None else None
        # Older versions of Keras count steps, by one each.
        if counted is not None and self._counted is not None and counted - self._counted > 1:
            self.batch = max(self.batch, counted - self._counted)

    def read_between(self) -> bool:
        """Measure the batch between two calls; returns whether the program had to wait for it."""
        if self._trainer is None or self.batch:
            return False
        self.read_after()
        self.read_before()
        return True

    def costs(self) -> dict:
        """Costs of the graph with the shapes of most calls, as facts; or why there are none."""
        counts = dict(self._shape_counts)
        if self._iterator_calls:
            counts[self._iterator_shapes] = counts.get(self._iterator_shapes, 0) + self._iterator_calls
        shapes, count = max(counts.items(), key=lambda item: item[1])
        total = sum(counts.values())
        if 2 * count <= total:
            many = len(counts)
            return {"uncounted": f"calls have {many} shapes, the most frequent in {count} of {total} calls"}
        try:
            return {"costs": count_graph(self.tf, self._graph(shapes), list(shapes), self.batch)}
        except Exception as error:
            return {"uncounted": first_line(error)}

    def _graph(self, shapes: tuple) -> Any:
        """The function's last graph that takes arguments of these shapes."""
        graphs = [concrete.graph for concrete in self._function._list_all_concrete_functions()]
        for graph in reversed(graphs):
            own = [tensor.shape for tensor in graph.inputs[: len(shapes)]]
            if len(own) == len(shapes) and all(
                shape.is_compatible_with(called) for shape, called in zip(own, shapes, strict=True)
            ):
                return graph
        raise ValueError("none of the function's graphs takes the arguments of its calls")


# ---- All functions that learn ---------------------------------------------------------------------------------------

MOST_FUNCTIONS = 4
"""Functions that are remembered. Each keeps the weights of its model alive, also if the program drops it."""
READINGS = 4
"""Calls of a function that is not profiled before which the samples that Keras counted are read."""


class LearningFunctions:
    """Remembers the calls of all functions that learn."""

    def __init__(self, tf: Any) -> None:
        self.tf = tf
        self._call_counts: dict = {}
        """The number of calls, by the number of a function."""
        self._functions: dict = {}
        """The calls of a function by its number."""

    def calls_of(self, number: int) -> LearnerCalls | None:
        return self._functions.get(number)

    @property
    def count(self) -> int:
        return len(self._call_counts)

    def note_call(self, number: int, function: Any, args: tuple, kwargs: dict, alone: bool) -> bool:
        """Remember a call; returns whether the step had to wait. `alone`: this function will not be profiled."""
        count = self._call_counts[number] = self._call_counts.get(number, 0) + 1
        if len(self._call_counts) > MOST_FUNCTIONS:
            self._functions.clear()
            return False
        with suppress(Exception):  # a function of another kind
            calls = self._functions[number] if count > 1 else LearnerCalls(self.tf, function)
            calls.count_shapes(args, kwargs)
            self._functions[number] = calls
        noted = self.calls_of(number)
        return noted is not None and alone and AFTER <= count <= AFTER + READINGS and noted.read_between()

    def facts(self) -> dict:
        """Costs of every function's graph, as facts; or why there are none. {} for a program of few steps."""
        if max(self._call_counts.values(), default=0) < AFTER:
            return {}
        if len(self._call_counts) > MOST_FUNCTIONS:
            return {"uncounted": f"{self.count} functions learn, and no more than {MOST_FUNCTIONS} are counted"}
        if not self._functions:
            return {}
        if set(self._functions) != set(self._call_counts):
            return {"uncounted": "nothing is known of a function that learns"}
        costs = [calls.costs() for calls in self._functions.values()]
        refused = next((row for row in costs if "uncounted" in row), None)
        return refused or {"costs": [row["costs"] for row in costs]}
