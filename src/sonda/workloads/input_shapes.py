"""Shapes of inputs as text: `8x3x224x224`, `8x128:int64<1000`, several separated by commas."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from sonda.record.errors import SondaError, nearest

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8")
KINDS = (*FLOATS, *INTEGERS, "bool")
DEFAULT_BOUND = 2
"""Whole numbers without a bound are 0 or 1, which every embedding of two rows or more has."""
MOST_ELEMENTS = 1 << 60
"""Of one input: what 64 bits can count the bytes of."""

PATTERN = re.compile(r"(\d+(?:[x×]\d+)*)(?::([a-z]+\d*))?(?:<(\d+))?")


@dataclass(frozen=True)
class InputShape:
    """One input: floats are drawn from the normal distribution, whole numbers uniformly from 0 to `bound` - 1."""

    shape: tuple[int, ...]
    kind: str = "float32"
    bound: int = DEFAULT_BOUND

    def __str__(self) -> str:
        text = "x".join(map(str, self.shape))
        if self.kind != "float32":
            text += f":{self.kind}"
        return f"{text}<{self.bound}" if self.kind in INTEGERS else text


def parse_shapes(text: str) -> tuple[InputShape, ...]:
    """Read shapes from text; raises SondaError that names the wrong piece."""
    return tuple(_parse_shape(piece.strip()) for piece in text.split(","))


def _parse_shape(piece: str) -> InputShape:
    match = PATTERN.fullmatch(piece)
    if not match:
        raise SondaError(f"{piece!r} is not an input shape", "write 8x3x224x224 or 8x128:int64<1000")
    shape = tuple(int(side) for side in re.split("[x×]", match[1]))
    kind = match[2] or "float32"
    if kind not in KINDS:
        raise SondaError(f"{piece!r} has an unknown type {kind!r}", nearest(kind, KINDS))
    if 0 in shape:
        raise SondaError(f"{piece!r} is empty", "every side must be 1 or more")
    if math.prod(shape) > MOST_ELEMENTS:
        raise SondaError(f"{piece!r:.80} has more than {MOST_ELEMENTS:,} elements", "give a smaller shape")
    if match[3] is None:
        return InputShape(shape, kind)
    if kind not in INTEGERS:
        raise SondaError(f"{piece!r} gives a bound to {kind}", "only whole numbers have one, such as 8x128:int64<1000")
    bound = int(match[3])
    largest = 2 ** (int(re.sub(r"\D", "", kind)) - (kind != "uint8"))
    if not 1 <= bound <= largest:
        raise SondaError(f"{piece!r} has an impossible bound", f"use 1 to {largest} for {kind}")
    return InputShape(shape, kind, bound)
