"""Counts how often each compiled function was traced again, and finds which of its arguments was the cause.

TensorFlow's `tf.function` and JAX's `jit` use it. The signature of a trace holds, by the name of each argument, its
kind and its value as text. Kinds are `tensor` (`float32[32, 10]`), `python` (a Python value, which becomes part of the
compiled program) and `object` (anything else, distinguished by its identity).
"""

from __future__ import annotations

from typing import Any

MOST_FUNCTIONS = 200
MOST_SIGNATURES = 50
"""Signatures of one function that are stored; later ones are compared with these."""
MOST_EXAMPLES = 4
LONGEST = 60
"""Letters of a value that are stored."""
CAUSES = ("shape", "type", "python", "object", "structure", "new", "other")
"""Why a function was traced again: another shape or type of a tensor, another Python value, another object, other
arguments, a function that was made anew, or something that its arguments do not show."""


class FunctionTraces:
    """One function of the program, however often the program made it."""

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
        """The fastest call without tracing; 0 before there was one."""
        self.xla = False
        """Whether TensorFlow gives it to XLA, which compiles in its first runs."""
        self.trace_ns = 0
        self.first_ns = 0
        """The first tracing, which cannot be avoided."""
        self.run_ns = 0
        """The first runs of traced graphs: optimising or compiling, and one run."""
        self.signatures: list = []
        self.identity = 0
        self.reasons: dict = {}
        """By cause and argument: the number of traces, and examples of values."""


class Traces:
    """All compiled functions of a process."""

    def __init__(self) -> None:
        self._functions: dict = {}

    def find_function(self, name: str, where: str) -> FunctionTraces:
        """The function of this name and place. All beyond the first two hundred share one entry."""
        key = (name, where)
        if key not in self._functions and len(self._functions) >= MOST_FUNCTIONS:
            key = ("other functions", "")
        function = self._functions.get(key)
        if function is None:
            function = self._functions[key] = FunctionTraces(*key)
        return function

    def add_trace(self, function: FunctionTraces, identity: int, signature: dict, lasted: int, run: int) -> None:
        """Add a call in which the function was traced: `lasted` ns for tracing, `run` ns for the rest of the call.

        `identity` distinguishes functions that are made anew at one place of the program.
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
        """For every function that was traced: its counts, its times in s, and the most frequent cause."""
        facts = []
        for function in self._functions.values():
            if not function.traces:
                continue
            (cause, argument), (count, examples) = max(
                function.reasons.items(), key=lambda item: item[1][0], default=(("", ""), (0, []))
            )
            facts.append({
                "function": function.name, "where": function.where, "calls": function.calls, "traces": function.traces,
                "call_s": function.call_ns / 1e9, "trace_s": function.trace_ns / 1e9,
                "first_s": function.first_ns / 1e9, "run_s": function.run_ns / 1e9, "cause": cause,
                "argument": argument, "times": count, "examples": examples, "xla": function.xla,
            })  # fmt: skip
        return facts


def _find_reasons(function: FunctionTraces, identity: int, signature: dict) -> list:
    """(cause, argument, values) of a repeated trace, compared with the most similar earlier signature."""
    if signature in function.signatures:
        if identity != function.identity:
            return [("new", "", [])]
        return [("other", "", [])]
    nearest: dict = min(function.signatures, key=lambda before: len(_differences(before, signature)), default={})
    reasons: list = []
    for argument in _differences(nearest, signature):
        before, after = nearest.get(argument), signature.get(argument)
        if before is None or after is None:
            reasons.append(("structure", argument, []))
        else:
            reasons.append((_name_cause(before, after), argument, [before[1][:LONGEST], after[1][:LONGEST]]))
    return reasons


def _differences(before: dict, after: dict) -> list:
    return [name for name in {**before, **after} if before.get(name) != after.get(name)]


def _name_cause(before: tuple, after: tuple) -> str:
    kinds = {before[0], after[0]}
    if kinds == {"tensor"}:
        return "shape" if before[1].partition("[")[0] == after[1].partition("[")[0] else "type"
    return "python" if "python" in kinds else "object"


def flatten_arguments(name: str, value: Any, parts_of: Any = None) -> list:
    """(name, value) of every leaf of a nested argument: `x[0]`, `batch['image']`.

    `parts_of` gives the parts of a value as a dict or a list, or None for a leaf. Without it, dicts, lists and tuples
    have parts.
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
    """File and line of a Python function inside its decorators, `train.py:12`; '' where it has no source."""
    for _ in range(100):
        inner = getattr(function, "__wrapped__", None)
        if inner is None:
            break
        function = inner
    code = getattr(function, "__code__", None)
    return f"{code.co_filename.rpartition('/')[2]}:{code.co_firstlineno}" if code is not None else ""
