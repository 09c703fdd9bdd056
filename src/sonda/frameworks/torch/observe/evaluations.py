"""Evaluation loops of Lightning and of Hugging Face's Trainer: they know whether a forward validates or tests.

Either library may be imported after PyTorch, at any time. Every forward inside of its evaluations carries the part that
it belongs to. Lightning's sanity check, which tries the first batches of the validation before anything is trained, is
warm-up. Where a version of a library has no such loop, parts are derived as for any other program.
"""

from __future__ import annotations

from time import perf_counter_ns as now
from typing import Any

from ...collector.loops import PART
from ...collector.recorder import Recorder
from ...collector.watch import watch_process

SANITY = "sanity check"
"""A validation that only tries whether validating works."""


class RunningEvaluations:
    """The parts of the evaluations that are running, the innermost last."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.running: list = []
        self._warmup = recorder.define(kind="pass", name="warmup")
        self._value = recorder.define(kind="value", quantity="of_part", source="counted")

    def forward_values(self) -> tuple:
        """The value pairs that a forward carries inside of an evaluation; none outside."""
        return (self._value, PART[self.running[-1]]) if self.running else ()

    def wrap(self, part_of: Any) -> Any:
        """A wrapper for a method that evaluates; `part_of(*arguments)` gives its part, or SANITY."""
        running = self.running

        def wrap(original: Any) -> Any:
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                depth = len(running)
                part = _find_part(part_of, args, kwargs)
                running.append("validate" if part == SANITY else part)
                stream = self.recorder.stream() if part == SANITY else None
                if stream is not None:
                    stream.push((self._warmup, now()))
                try:
                    return original(*args, **kwargs)
                finally:
                    del running[depth:]
                    if stream is not None:
                        stream.push((self._warmup + 1, now()))

            return wrapper

        return wrap


def _find_part(part_of: Any, args: tuple, kwargs: dict) -> str:
    try:
        return str(part_of(*args, **kwargs))
    except Exception:  # another version of the library
        return "validate"


def observe_evaluations(module: Any, settings: dict, counting: Any = None) -> None:
    """Wrap the evaluation loops of this module, which was just imported; PyTorch was imported before it."""
    observer = watch_process(settings, counting).torch
    for owner, name, part_of in LOOPS:
        if observer is not None and hasattr(getattr(module, owner, None), name):
            observer.replace(getattr(module, owner), name, observer.evaluations.wrap(part_of))


def _trainer_part(
    trainer: Any, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval", **more: Any
) -> str:
    """`transformers.Trainer.evaluate`: validation, unless the program prefixes its metrics with `test`."""
    return "test" if metric_key_prefix.startswith("test") else "validate"


def _loop_part(loop: Any) -> str:
    """Lightning's loop of validation, sanity checks and tests."""
    if loop.trainer.sanity_checking:
        return SANITY
    return "test" if loop.trainer.testing else "validate"


def _test_part(*args: Any, **kwargs: Any) -> str:
    return "test"


LOOPS: tuple = (
    ("Trainer", "evaluate", _trainer_part),
    ("Trainer", "predict", _test_part),
    ("_EvaluationLoop", "run", _loop_part),
    ("_PredictionLoop", "run", _test_part),
)
"""Classes, their methods that evaluate, and the function that gives the part."""
