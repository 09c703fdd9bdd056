"""Sizes of the batches that graphs of Keras fetch by themselves, for which XLA compiles anew.

`fit` and `evaluate` give an iterator to one graph, so that no batch can be seen outside. But Keras counts samples in
the `count` of its mean loss. It is read after every call of a model that XLA compiles.
"""

from __future__ import annotations

from typing import Any

EXACT = 2**24
"""Counts are float32, which is exact for whole numbers up to this one."""
MOST_DECORATORS = 10
"""Decorators around a function that are unwrapped."""


class KerasBatches:
    """`batch_of_call` is called after each call in a loop of Keras, `forget` when the mean loss begins anew."""

    def __init__(self) -> None:
        self._trainers: dict = {}
        """By the number of a function: the model whose steps it runs if XLA compiles them, else None."""
        self._sizes: dict = {}
        """By the number of a function: sizes of batches so far."""
        self._counts: dict = {}
        """By the identity of a model: samples that its mean loss had counted."""

    def batch_of_call(self, number: int, function: Any, done: bool) -> tuple:
        """Whether XLA compiles this function of Keras, and the signature of the batch of its last call.

        The signature is None where there was a batch of this size before, or the call failed (not `done`).
        """
        if number not in self._trainers:
            trainer = trainer_of(function)
            self._trainers[number] = trainer if getattr(trainer, "jit_compile", False) else None
        trainer = self._trainers[number]
        return trainer is not None, self._new_size(number, trainer) if done and trainer is not None else None

    def forget(self, trainer: Any) -> None:
        """Begin the count of samples anew, as the mean loss does."""
        self._counts[id(trainer)] = 0

    def _new_size(self, number: int, trainer: Any) -> dict | None:
        """The signature of the last batch if the function had none of this size before, else None.

        It is also None where the size is unknown: a GPU is not waited for.
        """
        counted = samples_of(trainer, wait=False)
        if counted is None:
            return None
        size = counted - self._counts.get(id(trainer), 0)
        self._counts[id(trainer)] = counted
        known = self._sizes.setdefault(number, set())
        if size <= 0 or counted >= EXACT or size in known:
            return None
        known.add(size)
        return {"data": ("tensor", f"batch[{size}]")}


def trainer_of(function: Any) -> Any:
    """The model whose steps a `tf.function` of Keras runs one by one; None for any other function."""
    inner: Any = getattr(function, "_python_function", None)
    for _ in range(MOST_DECORATORS):
        if getattr(inner, "__wrapped__", None) is None:
            break
        inner = inner.__wrapped__
    for cell in getattr(inner, "__closure__", None) or ():
        try:
            content = cell.cell_contents
            if content.steps_per_execution == 1 and hasattr(content, "_loss_tracker"):
                return content
        except (AttributeError, ValueError):  # something else, or nothing yet
            continue
    return None


def samples_of(trainer: Any, wait: bool) -> int | None:
    """Samples that a model's mean loss has counted; None where that is unknown, or without `wait` needs a GPU."""
    try:
        variable = trainer._loss_tracker.count.value
        if not wait and "GPU" in variable.device:
            return None
        return int(variable.numpy())
    except Exception:  # a model of somebody's own, or one that is spread over devices
        return None
