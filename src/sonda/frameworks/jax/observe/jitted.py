"""Jitted functions of a JAX program: the wrapper that observes their calls, and which functions there are."""

from __future__ import annotations

import gc
import inspect
import os
import types
from typing import Any

KERAS_TRAINER = "keras/src/backend/jax/trainer.py"
STANDARD_LIBRARY = os.path.dirname(os.__file__)


class Jitted:
    """A wrapper around a jitted function of JAX: calls are observed, everything else is JAX's own."""

    def __init__(self, function: Any, observer: Any, state: Any) -> None:
        self.__dict__.update(getattr(function, "__dict__", {}))
        self.__wrapped__ = getattr(function, "__wrapped__", function)
        self._sonda = (function, observer, state)
        for name in ("__name__", "__qualname__", "__doc__", "__module__"):
            value = getattr(function, name, None)
            if value is not None:
                setattr(self, name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        function, observer, state = self._sonda
        return observer.call(function, state, args, kwargs)

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self if owner is None else types.MethodType(self, owner)

    def __getattr__(self, name: str) -> Any:
        if name == "_sonda":  # a copy that is not complete yet
            raise AttributeError(name)
        return getattr(self._sonda[0], name)

    def __repr__(self) -> str:
        return repr(self._sonda[0])

    def __reduce__(self) -> Any:
        return self._sonda[0].__reduce__()


def unseen_functions(jax: Any) -> list:
    """Names of the program's jitted functions without a wrapper: they were made before JAX was observed."""
    jitted_type = type(getattr(jax.jit, "__wrapped__", jax.jit)(len))
    wrapped, names = set(), {}
    for candidate in gc.get_objects():
        if type(candidate) is Jitted:
            wrapped.add(id(candidate._sonda[0]))
        elif type(candidate) is jitted_type and is_of_program(candidate):
            names[id(candidate)] = str(getattr(candidate, "__name__", "function"))
    return sorted({name for number, name in names.items() if number not in wrapped})


def takes_gradients(function: Any, args: tuple, kwargs: dict) -> bool:
    """Whether a function that JAX has traced already takes gradients: JAX names operations of a backward so."""
    try:
        return any("transpose(" in stack for stack in _name_stacks(function.trace(*args, **kwargs).jaxpr.jaxpr))
    except Exception:  # JAX says in the call itself what is wrong with these arguments
        return False


def _name_stacks(jaxpr: Any) -> Any:
    """The name stacks of all operations of a function, those of inner functions too."""
    for operation in jaxpr.eqns:
        yield str(operation.source_info.name_stack)
        for value in operation.params.values():
            for inner in value if isinstance(value, (list, tuple)) else (value,):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    yield from _name_stacks(inner)


def is_of_program(function: Any) -> bool:
    """Whether it is a function of the program, or one with which Keras trains; helpers of libraries are not."""
    file = getattr(getattr(inspect.unwrap(function), "__code__", None), "co_filename", "").replace(os.sep, "/")
    installed = any(f"/{folder}/" in file for folder in ("site-packages", "dist-packages"))
    return bool(file) and (not installed or file.endswith(KERAS_TRAINER)) and not file.startswith(STANDARD_LIBRARY)
