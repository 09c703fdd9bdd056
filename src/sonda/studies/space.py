"""The space of an exploration: which fields vary over which values, as a command line gives them.

multipliers=64,128,256        a list
multipliers=64..1024*2        64, 128, ... as long as it is at most 1024
clock_GHz=0.5..2+0.5          0.5, 1, 1.5, 2
read_ports=1,16..256*4        both
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal

from sonda.record.errors import SondaError

MOST_POINTS = 2_000_000
MOST_DIGITS = 20
FORM = "write a list (64,128), multiples (64..1024*2) or steps (0..100+10)"
NUMBER = r"[+-]?\d+(?:\.\d+)?"
RANGE = re.compile(rf"({NUMBER})\.\.({NUMBER})(?:([*+])({NUMBER}))?")


def parse_space(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Values by field, in the order given. Raises SondaError naming the field that is wrong, or too many points."""
    space: dict[str, tuple[str, ...]] = {}
    for text in texts:
        key, equals, values = (part.strip() for part in text.partition("="))
        if not key or not equals:
            raise SondaError(f"--vary {text!r:.80} has no field and values", "write it as field=64,128,256")
        if key in space:
            raise SondaError(f"--vary {key} is given twice", "give all its values at once")
        space[key] = _values(key, values)
    points(space)
    return space


def points(space: Mapping[str, Sequence[str]]) -> int:
    """How many points the space has. Raises SondaError where they are too many."""
    count = math.prod(len(values) for values in space.values())
    if count > MOST_POINTS:
        raise SondaError(
            f"{count:,} points are more than {MOST_POINTS:,}", "vary fewer fields, or give fewer values of each"
        )
    return count


def _values(key: str, text: str) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for item in text.split(","):
        word = item.strip()
        if not word:
            raise SondaError(f"--vary {key}: a value is empty", FORM)
        for value in _range(key, word) if ".." in word and "/" not in word else (word,):
            if value in found:
                raise SondaError(f"--vary {key}: {value} is given twice", "give every value once")
            found[value] = None
    return tuple(found)


def _range(key: str, word: str) -> list[str]:
    where = f"--vary {key}: {word:.60}"
    match = RANGE.fullmatch(word)
    if not match or max(map(len, word.replace("..", " ").split())) > 2 * MOST_DIGITS:
        raise SondaError(f"{where} is not a range of numbers", FORM)
    first, last = Decimal(match[1]), Decimal(match[2])
    if match[3] is None:
        raise SondaError(f"{where} has no step", f"write {match[1]}..{match[2]}*2 or {match[1]}..{match[2]}+1")
    step = Decimal(match[4])
    if last < first:
        raise SondaError(f"{where} ends before it begins", f"write {match[2]}..{match[1]}{match[3]}{match[4]}")
    if match[3] == "*" and (first <= 0 or step <= 1):
        raise SondaError(f"{where} does not grow", "begin above 0 and multiply by more than 1")
    if match[3] == "+" and step <= 0:
        raise SondaError(f"{where} does not grow", "add more than 0")
    count = (last / first).ln() / step.ln() if match[3] == "*" else (last - first) / step
    if count >= MOST_POINTS:
        raise SondaError(f"{where} has more than {MOST_POINTS:,} values", "take bigger steps")
    found = []
    value = first
    while value <= last:
        found.append(_words(value))
        value = value * step if match[3] == "*" else value + step
    return found


def _words(value: Decimal) -> str:
    """A number as a description writes it: 64, not 64.0 or 6.4E+1."""
    return str(int(value)) if value == value.to_integral_value() else format(value.normalize(), "f")
