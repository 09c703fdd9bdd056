"""Expressions: the small formulas that data files hold, such as `(issued - retired + 4 * recovery) / (4 * cycles)`.

Numbers, names, `+ - * /`, parentheses, `max(...)` and `min(...)`; nothing else. A name stands for a number or for an
array of numbers, one per step. What cannot be known is NaN: a quotient by zero, and whatever is made of a NaN.
NumPy is imported where a formula is computed: whoever reads a run's description needs none of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sonda.record.errors import SondaError

TOKEN = re.compile(
    r"\s*(?:(?P<number>0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?![\w.])"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<sign>[-+*/(),]))"
)
DEEPEST = 50
"""Parentheses inside parentheses: no formula has more, and a file must not exhaust the stack."""
LONGEST = 400
"""Numbers, names and signs of one formula, for the same reason."""

Numbers = Any
"""A float or an array of floats."""
Node = Callable[[Mapping[str, Numbers]], Numbers]


@dataclass(frozen=True)
class Expression:
    """A formula, parsed once. `names` are those that it needs, in the order in which they first appear."""

    text: str
    names: tuple[str, ...]
    _node: Node

    def value(self, known: Mapping[str, Numbers]) -> Numbers:
        """Its value where the names have these values; raises KeyError for a name that has none."""
        import numpy as np

        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return self._node(known)


def parse(text: str) -> Expression:
    """Raises SondaError that quotes the formula and says where it goes wrong."""
    reader = _Reader(text)
    node = reader.sum(0)
    if reader.here is not None:
        raise reader.wrong(f"{reader.here!r} is not expected here")
    return Expression(text, tuple(dict.fromkeys(reader.names)), node)


def divide(left: Numbers, right: Numbers) -> Numbers:
    """A quotient by zero is not known: NaN, never infinity."""
    import numpy as np

    below = np.asarray(right, dtype=np.float64)
    return np.asarray(left, dtype=np.float64) / np.where(below == 0, np.nan, below)


def larger(left: Numbers, right: Numbers) -> Numbers:
    """NaN where either is."""
    import numpy as np

    return np.maximum(left, right)


def smaller(left: Numbers, right: Numbers) -> Numbers:
    """NaN where either is."""
    import numpy as np

    return np.minimum(left, right)


class _Reader:
    """Reads a formula from left to right; one method per strength of binding."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.names: list[str] = []
        self._tokens = self._split()
        self._at = 0

    def _split(self) -> list[tuple[str, str]]:
        tokens = []
        at = 0
        end = len(self.text.rstrip())
        while at < end:
            token = TOKEN.match(self.text, at)
            if token is None or token.lastgroup is None:
                raise self.wrong(f"{self.text[at:].strip()[:12]!r} is no number, name or sign")
            tokens.append((token.lastgroup, token[token.lastgroup]))
            at = token.end()
        if len(tokens) > LONGEST:
            raise self.wrong(f"it has more than {LONGEST} numbers, names and signs")
        return tokens

    @property
    def here(self) -> str | None:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else None

    def wrong(self, what: str) -> SondaError:
        return SondaError(
            f"formula {self.text[:80]!r}: {what}", "use numbers, names, + - * /, parentheses, max and min"
        )

    def take(self, *wanted: str) -> str | None:
        """The sign that stands here, where it is one of these."""
        if self.here is None or self.here not in wanted:
            return None
        self._at += 1
        return self._tokens[self._at - 1][1]

    def need(self, wanted: str) -> None:
        if self.take(wanted) is None:
            raise self.wrong(f"{wanted!r} is missing" + (f" before {self.here!r}" if self.here else " at the end"))

    def sum(self, depth: int) -> Node:
        node = self.product(depth)
        while sign := self.take("+", "-"):
            node = _add(node, self.product(depth)) if sign == "+" else _subtract(node, self.product(depth))
        return node

    def product(self, depth: int) -> Node:
        node = self.factor(depth)
        while sign := self.take("*", "/"):
            node = _multiply(node, self.factor(depth)) if sign == "*" else _divide(node, self.factor(depth))
        return node

    def factor(self, depth: int) -> Node:
        if depth > DEEPEST:
            raise self.wrong(f"more than {DEEPEST} parentheses inside each other")
        if self.take("-"):
            return _subtract(_constant(0.0), self.factor(depth + 1))
        if self.take("("):
            node = self.sum(depth + 1)
            self.need(")")
            return node
        if self.here is None:
            raise self.wrong("it ends too early")
        kind, text = self._tokens[self._at]
        if kind == "sign":
            raise self.wrong(f"{text!r} is not expected here")
        self._at += 1
        if kind == "number":
            return _constant(self._number(text))
        if self.take("("):
            return self._call(text, depth)
        self.names.append(text)
        return _look_up(text)

    def _number(self, text: str) -> float:
        try:
            return float(int(text, 16)) if text[:2] in ("0x", "0X") else float(text)
        except OverflowError:
            raise self.wrong(f"{text[:12]}… is too large a number") from None

    def _call(self, name: str, depth: int) -> Node:
        functions: dict[str, Callable[[Numbers, Numbers], Numbers]] = {"max": larger, "min": smaller}
        if name not in functions:
            raise self.wrong(f"there is no function {name!r}")
        node = self.sum(depth + 1)
        while self.take(","):
            node = _choose(functions[name], node, self.sum(depth + 1))
        self.need(")")
        return node


def _constant(number: float) -> Node:
    return lambda known: number


def _look_up(name: str) -> Node:
    return lambda known: known[name]


def _add(left: Node, right: Node) -> Node:
    return lambda known: left(known) + right(known)


def _subtract(left: Node, right: Node) -> Node:
    return lambda known: left(known) - right(known)


def _multiply(left: Node, right: Node) -> Node:
    return lambda known: left(known) * right(known)


def _divide(left: Node, right: Node) -> Node:
    return lambda known: divide(left(known), right(known))


def _choose(function: Callable[[Numbers, Numbers], Numbers], left: Node, right: Node) -> Node:
    return lambda known: function(left(known), right(known))
