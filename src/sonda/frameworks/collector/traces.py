"""Traces: how often each compiled function was traced anew, and what about its arguments made it so.

For TensorFlow's `tf.function` and JAX's `jit` alike. A signature says what a trace is for: by the argument's name its
kind and its value as text. Kinds: `tensor` (`float32[32, 10]`), `python` (a value of Python's, which is part of the
program that is compiled), `object` (anything else, told apart by its identity).
"""

from __future__ import annotations

from typing import Any

MOST_FUNCTIONS = 200
MOST_SIGNATURES = 50
"""Of one function; later ones are compared with these."""
MOST_EXAMPLES = 4
LONGEST = 60
"""Letters of a value."""
CAUSES = ("shape", "type", "python", "object", "structure", "new", "other")
"""What made a function be traced again: another shape or type of a tensor, another value of Python's, another object,
other arguments, a function that is made anew, or something that the arguments do not tell."""


class TracedFunction:
    """One function of the program, however often it was made."""

    def __init__(self, name: str, where: str) -> None:
        self.name = name
        self.where = where
        """`train.py:12`"""
        self.calls = 0
        self.call_ns = 0
        """All calls, tracing included."""
        self.traces = 0
        """Calls in which it was traced, or compiled for other shapes."""
        self.fastest_ns = 0
        """The fastest call in which it was not; 0 before there was one."""
        self.xla = False
        """TensorFlow gives it to XLA, which compiles in its first runs."""
        self.trace_ns = 0
        self.first_ns = 0
        """Tracing it the first time, which cannot be avoided."""
        self.run_ns = 0
        """The first runs of traced graphs: optimising or compiling them, and one run."""
        self.signatures: list = []
        self.identity = 0
        self.reasons: dict = {}
        """By cause and argument: how often, and examples."""


class Traces:
    """All functions of a process. `facts` is what the run keeps of them."""

    def __init__(self) -> None:
        self._functions: dict = {}

    def find_function(self, name: str, where: str) -> TracedFunction:
        """The function of this name and place; those beyond the first two hundred are one."""
        key = (name, where)
        if key not in self._functions and len(self._functions) >= MOST_FUNCTIONS:
            key = ("other functions", "")
        found = self._functions.get(key)
        if found is None:
            found = self._functions[key] = TracedFunction(*key)
        return found

    def add_trace(self, function: TracedFunction, identity: int, signature: dict, lasted: int, run: int) -> None:
        """A call in which the function was traced: `lasted` ns for tracing, `run` ns for the rest of the call.

        `identity` tells apart functions that are made anew at one place of the program.
        """
        function.traces += 1
        function.trace_ns += lasted
        function.run_ns += run
        if function.traces == 1:
            function.first_ns = lasted
        else:
            for cause, argument, values in _find_reasons(function, identity, signature):
                count, examples = function.reasons.get((cause, argument), (0, []))
                fresh = [value for value in values if value not in examples]
                function.reasons[cause, argument] = (count + 1, [*examples, *fresh][:MOST_EXAMPLES])
        function.identity = identity
        if len(function.signatures) < MOST_SIGNATURES:
            function.signatures.append(dict(signature))

    def facts(self) -> list:
        """Of every function that was traced: what a rule needs to judge it, times in s."""
        found = []
        for one in self._functions.values():
            if not one.traces:
                continue
            (cause, argument), (count, examples) = max(
                one.reasons.items(), key=lambda item: item[1][0], default=(("", ""), (0, []))
            )
            found.append({
                "function": one.name, "where": one.where, "calls": one.calls, "traces": one.traces,
                "call_s": one.call_ns / 1e9, "trace_s": one.trace_ns / 1e9, "first_s": one.first_ns / 1e9,
                "run_s": one.run_ns / 1e9, "cause": cause, "argument": argument, "times": count,
                "examples": examples, "xla": one.xla,
            })  # fmt: skip
        return found


def _find_reasons(function: TracedFunction, identity: int, signature: dict) -> list:
    """(cause, argument, values) of a trace after the first: against the most similar signature before it."""
    if signature in function.signatures:
        if identity != function.identity:
            return [("new", "", [])]
        return [("other", "", [])]
    nearest: dict = min(function.signatures, key=lambda before: len(_differences(before, signature)), default={})
    found: list = []
    for argument in _differences(nearest, signature):
        before, after = nearest.get(argument), signature.get(argument)
        if before is None or after is None:
            found.append(("structure", argument, []))
        else:
            found.append((_name_cause(before, after), argument, [before[1][:LONGEST], after[1][:LONGEST]]))
    return found


def _differences(before: dict, after: dict) -> list:
    return [name for name in {**before, **after} if before.get(name) != after.get(name)]


def _name_cause(before: tuple, after: tuple) -> str:
    kinds = {before[0], after[0]}
    if kinds == {"tensor"}:
        return "shape" if before[1].partition("[")[0] == after[1].partition("[")[0] else "type"
    return "python" if "python" in kinds else "object"


def flatten_arguments(name: str, value: Any, parts_of: Any = None) -> list:
    """The names and values of nested arguments one by one: `x[0]`, `batch['image']`.

    `parts_of` gives the parts of a value as a dict or a list, None of one that has none; of containers, unless given.
    """
    parts = value if parts_of is None else parts_of(value)
    if isinstance(parts, dict):
        keyed: Any = parts.items()
    elif isinstance(parts, (tuple, list)):
        keyed = enumerate(parts)
    else:
        return [(name, value)]
    return [leaf for key, part in keyed for leaf in flatten_arguments(f"{name}[{key!r}]", part, parts_of)]


def code_place(function: Any) -> str:
    """`train.py:12` of a function of Python's, without what decorators put around it; '' where it has no source."""
    for _ in range(100):
        inner = getattr(function, "__wrapped__", None)
        if inner is None:
            break
        function = inner
    code = getattr(function, "__code__", None)
    return f"{code.co_filename.rpartition('/')[2]}:{code.co_firstlineno}" if code is not None else ""
