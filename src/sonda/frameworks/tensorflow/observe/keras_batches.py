"""Sizes of the batches that graphs of Keras fetch by themselves, for which XLA compiles anew.

`fit` and `evaluate` hand an iterator to one graph: nothing outside it sees a batch. Keras itself counts samples, in the
`count` of its mean loss, which is read behind every call of a model that XLA compiles.
"""

from __future__ import annotations

from typing import Any

EXACT = 2**24
"""Counts are float32, which knows all whole numbers up to here."""
UNWRAPPED = 10
"""Decorators around a function that are looked behind."""


class KerasBatches:
    """`taken` is asked behind each call of a function in a loop of Keras, `forget` told when means begin anew."""

    def __init__(self) -> None:
        self._trainers: dict = {}
        """By the number of a function: the model whose steps it runs, where XLA compiles them, or None."""
        self._seen: dict = {}
        """By the number of a function: sizes so far."""
        self._counts: dict = {}
        """By the identity of a model: samples that its mean loss had counted."""

    def taken(self, number: int, function: Any, done: bool) -> tuple:
        """Whether XLA compiles this function of Keras; and the signature of the batch that its call took, where it had
        none of this size before, else None. `done`: the call did not fail."""
        if number not in self._trainers:
            trainer = trainer_of(function)
            self._trainers[number] = trainer if getattr(trainer, "jit_compile", False) else None
        trainer = self._trainers[number]
        return trainer is not None, self._anew(number, trainer) if done and trainer is not None else None

    def forget(self, trainer: Any) -> None:
        """The mean loss begins anew."""
        self._counts[id(trainer)] = 0

    def _anew(self, number: int, trainer: Any) -> dict | None:
        """The signature of the batch that a call took, where the function had none of this size before; else None.

        None also where nothing can be known: a GPU is not waited for.
        """
        counted = samples_of(trainer, wait=False)
        if counted is None:
            return None
        size = counted - self._counts.get(id(trainer), 0)
        self._counts[id(trainer)] = counted
        seen = self._seen.setdefault(number, set())
        if size <= 0 or counted >= EXACT or size in seen:
            return None
        seen.add(size)
        return {"data": ("tensor", f"batch[{size}]")}


def trainer_of(function: Any) -> Any:
    """The model whose steps a `tf.function` of Keras runs one by one; None of any other function."""
    inner: Any = getattr(function, "_python_function", None)
    for _ in range(UNWRAPPED):
        if getattr(inner, "__wrapped__", None) is None:
            break
        inner = inner.__wrapped__
    for cell in getattr(inner, "__closure__", None) or ():
        try:
            one = cell.cell_contents
            if one.steps_per_execution == 1 and hasattr(one, "_loss_tracker"):
                return one
        except (AttributeError, ValueError):  # something else, or nothing yet
            continue
    return None


def samples_of(trainer: Any, wait: bool) -> int | None:
    """Samples that a model's mean loss has counted; None where that is not known, or a GPU would have to be waited
    for."""
    try:
        variable = trainer._loss_tracker.count.value
        if not wait and "GPU" in variable.device:
            return None
        return int(variable.numpy())
    except Exception:  # a model of somebody's own, or one that is spread over devices
        return None
