"""Loops of Lightning and of Hugging Face's Trainer that evaluate: they know what a forward cannot tell by itself.

Either library is imported on top of PyTorch, at any time or never. What its evaluations are is said with every forward
inside of them; where a version of it has no such loop, parts are derived as of any other program.
"""

from __future__ import annotations

from typing import Any

from ...collector.loops import PART
from ...collector.recorder import Recorder
from ...collector.watch import watch_process


class Evaluating:
    """The evaluations that are running, the innermost last."""

    def __init__(self, recorder: Recorder) -> None:
        self.running: list = []
        self._value = recorder.define(kind="value", quantity="of_part", source="counted")

    def said(self) -> tuple:
        """What the innermost says of a forward, as values; nothing without one."""
        return (self._value, PART[self.running[-1]]) if self.running else ()

    def wrap(self, part_of: Any) -> Any:
        """What wraps a method that evaluates; `part_of(*arguments)` says whether it does so for validation or test."""
        running = self.running

        def wrap(original: Any) -> Any:
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                depth = len(running)
                running.append(_part(part_of, args, kwargs))
                try:
                    return original(*args, **kwargs)
                finally:
                    del running[depth:]

            return wrapper

        return wrap


def _part(part_of: Any, args: tuple, kwargs: dict) -> str:
    try:
        return str(part_of(*args, **kwargs))
    except Exception:  # another version of the library
        return "validate"


def observe_evaluations(module: Any, settings: dict, counting: Any = None) -> None:
    """Have the loops of this module say what they evaluate for; it was imported just now, and PyTorch before it."""
    observer = watch_process(settings, counting).torch
    for owner, name, part_of in LOOPS:
        if observer is not None and hasattr(getattr(module, owner, None), name):
            observer.replace(getattr(module, owner), name, observer.evaluating.wrap(part_of))


def _evaluated(
    trainer: Any, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval", **more: Any
) -> str:
    """`transformers.Trainer.evaluate`: validation, unless the program has its numbers called those of a test."""
    return "test" if metric_key_prefix.startswith("test") else "validate"


def _looped(loop: Any) -> str:
    """Lightning's loop of validation, also of the one before all training, and of tests."""
    return "test" if loop.trainer.testing else "validate"


def _tested(*args: Any, **kwargs: Any) -> str:
    return "test"


LOOPS: tuple = (
    ("Trainer", "evaluate", _evaluated),
    ("Trainer", "predict", _tested),
    ("_EvaluationLoop", "run", _looped),
    ("_PredictionLoop", "run", _tested),
)
"""Classes, their methods that evaluate, and what says for which part."""
