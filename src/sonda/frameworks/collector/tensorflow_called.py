"""A call of a `tf.function` that is remembered, so that what its graph costs can be counted when the program ends."""

from __future__ import annotations

from typing import Any

from .keras_batches import samples_of, trainer_of
from .tensorflow_flops import count_graph


class Called:
    """The shapes of one call; `before` and `after` are told of calls of Keras that fetch their batches themselves."""

    def __init__(self, tf: Any, function: Any, args: tuple, kwargs: dict) -> None:
        self.tf = tf
        self._graphs = [one.graph for one in function._list_all_concrete_functions()]
        self._trainer = trainer_of(function)
        self._counted: int | None = None
        self.batch = 0
        """Rows of the largest batch that was fetched; 0: not known."""
        leaves = tf.nest.flatten((args, kwargs), expand_composites=True)
        self._shapes = [one.shape for one in leaves if hasattr(one, "shape") and hasattr(one, "dtype")]

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
        """What is stated: rows of the graph; or why there are none."""
        try:
            return {"costs": count_graph(self.tf, self._graph(), self._shapes, self.batch)}
        except Exception as error:
            return {"uncounted": (str(error).strip().splitlines() or [type(error).__name__])[0]}

    def _graph(self) -> Any:
        """The last that takes such arguments."""
        for graph in reversed(self._graphs):
            own = [one.shape for one in graph.inputs[: len(self._shapes)]]
            if len(own) == len(self._shapes) and all(
                mine.is_compatible_with(given) for mine, given in zip(own, self._shapes, strict=True)
            ):
                return graph
        raise ValueError("none of the function's graphs takes the arguments of its calls")
