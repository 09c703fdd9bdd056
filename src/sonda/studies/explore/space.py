"""The space of an exploration: which fields vary over which values, as a command line or Python gives them.

multipliers=64,128,256        a list
multipliers=64..1024*2        64, 128, ... as long as it is at most 1024
clock_GHz=0.5..2+0.5          0.5, 1, 1.5, 2
read_ports=1,16..256*4        both
rows,columns=8..128*2         two fields in step: 8 and 8, 16 and 16, ...
rows,columns=8:16,16:32       two fields in step: 8 and 16, then 16 and 32
rows,columns=8..64*2:16..128*2    the same over ranges of equal length
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from sonda.record.errors import SondaError
from sonda.targets.job import option_text
from sonda.targets.simulated.design_space import AND, APART, MAPPING

ON = "on"
"""The field of targets."""
MOST_POINTS = 100_000_000
MOST_VALUES = 2_000_000
"""Of one field."""
MOST_DIGITS = 20
FORM = "write a list (64,128), multiples (64..1024*2) or steps (0..100+10)"
NUMBER = r"[+-]?\d+(?:\.\d+)?"
RANGE = re.compile(rf"({NUMBER})\.\.({NUMBER})(?:([*+])({NUMBER}))?")
TIMES = re.compile(r"\d+(?:x\d+)+")

Space = dict[str, tuple[str, ...]]
"""Values by key. A key is a field, or several that vary in step: `rows,columns`, whose values are `8:16`."""


def parse_space(texts: Sequence[str]) -> Space:
    """The space of `field=values` texts, in their order. Raises SondaError naming the field that is wrong, or too many
    points."""
    space: Space = {}
    seen: set[str] = set()
    for text in texts:
        named, equals, values = (part.strip() for part in text.partition("="))
        fields = [field.strip() for field in named.split(AND)]
        if not equals or not all(fields):
            raise SondaError(f"--vary {text!r:.80} has no field and values", "write it as field=64,128,256")
        for field in fields:
            if field in seen:
                raise SondaError(f"--vary {field} is given twice", "give all its values at once")
            if field in (ON, MAPPING) and len(fields) > 1:
                raise SondaError(f"--vary {named:.60}: {field} varies alone", f"give it a --vary {field}=… of its own")
            seen.add(field)
        key = AND.join(fields)
        space[key] = _values(key, len(fields), values)
    count_points(space)
    return space


def read_space(vary: Any) -> Space:
    """The space as Python gives it: a mapping of fields (a tuple of them varies in step) to a value, a list of values
    or the text of a command line; or such texts themselves, as one text or a list. Raises SondaError."""
    if isinstance(vary, str):
        try:
            return parse_space(shlex.split(vary))
        except ValueError as error:
            raise SondaError(f"vary {vary!r:.80} cannot be read ({str(error).lower()})", "close the quotes") from None
    if isinstance(vary, Mapping):
        return parse_space([f"{_join_values(key, AND)}={_list_values(values)}" for key, values in vary.items()])
    if isinstance(vary, Sequence) and all(isinstance(text, str) for text in vary):
        return parse_space(vary)
    raise SondaError(f"vary cannot be {vary!r:.80}", 'give {"multipliers": [64, 128]} or "multipliers=64..1024*2"')


def count_points(space: Mapping[str, Sequence[str]]) -> int:
    """How many points the space has. Raises SondaError where they are too many."""
    count = math.prod(len(values) for values in space.values())
    if count > MOST_POINTS:
        raise SondaError(
            f"{count:,} points are more than {MOST_POINTS:,}", "vary fewer fields, or give fewer values of each"
        )
    return count


def _list_values(values: Any) -> str:
    if isinstance(values, str | int | float | bool):
        return option_text(values)
    if not isinstance(values, Sequence) and not hasattr(values, "__iter__"):
        raise SondaError(f"vary: {values!r:.60} is no value and no list of values", FORM)
    return ",".join(_join_values(value, APART) for value in values)


def _join_values(parts: Any, sign: str) -> str:
    return sign.join(map(option_text, parts)) if isinstance(parts, tuple | list) else option_text(parts)


def _values(key: str, fields: int, text: str) -> tuple[str, ...]:
    values: dict[str, None] = {}
    for item in text.split(","):
        word = item.strip()
        if not word:
            raise SondaError(f"--vary {key}: a value is empty", FORM)
        for value in _values_in_step(key, fields, word) if fields > 1 else _expand(key, word):
            if value in values:
                raise SondaError(f"--vary {key}: {value} is given twice", "give every value once")
            values[value] = None
    return tuple(values)


def _values_in_step(key: str, fields: int, word: str) -> list[str]:
    """Values of several fields: the same for all of them, or one for each, or a range for each."""
    parts = [part.strip() for part in word.split(APART)]
    if TIMES.fullmatch(word):
        raise SondaError(f"--vary {key}: {word:.60} is not a value", f"write {word.replace('x', APART):.60}")
    if len(parts) not in (1, fields) or not all(parts):
        raise SondaError(
            f"--vary {key}: {word:.60} is not a value for each of {fields} fields",
            f"write one for all of them, or {APART.join(['…'] * fields)}",
        )
    ranges = [_expand(key, part) for part in parts] * (fields if len(parts) == 1 else 1)
    lengths = [len(values) for values in ranges]
    if len(set(lengths)) > 1:
        raise SondaError(
            f"--vary {key}: {word:.60} has {', '.join(map(str, lengths[:-1]))} and {lengths[-1]} values",
            "give as many of each field",
        )
    return [APART.join(row) for row in zip(*ranges, strict=True)]


def _expand(key: str, word: str) -> list[str]:
    return _range(key, word) if ".." in word and "/" not in word else [word]


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
    if count >= MOST_VALUES:
        raise SondaError(f"{where} has more than {MOST_VALUES:,} values", "take bigger steps")
    values = []
    value = first
    while value <= last:
        values.append(_words(value))
        value = value * step if match[3] == "*" else value + step
    return values


def _words(value: Decimal) -> str:
    """A number as a description writes it: 64, not 64.0 or 6.4E+1."""
    return str(int(value)) if value == value.to_integral_value() else format(value.normalize(), "f")


# ---- Batches: a grid cut into smaller grids of consecutive rows -----------------------------------------------------

Axes = dict[str, tuple[str, ...]]


def cut_grid(axes: Mapping[str, Sequence[str]], most: int) -> Iterator[Axes]:
    """The grid in pieces of at most `most` points, in the order of its rows, the last axis fastest.

    The first axes have one value in a piece, the next some of its values, those behind it all of theirs.
    """
    keys = list(axes)
    sizes = [len(axes[key]) for key in keys]
    place = 0
    while place < len(keys) and math.prod(sizes[place:]) > most:
        place += 1
    if not place:
        yield {key: tuple(values) for key, values in axes.items()}
        return
    key, behind = keys[place - 1], math.prod(sizes[place:])
    together = max(1, most // behind)
    for number in range(math.prod(sizes[: place - 1])):
        fixed: Axes = {}
        for at in reversed(range(place - 1)):
            number, choice = divmod(number, sizes[at])
            fixed[keys[at]] = (axes[keys[at]][choice],)
        for begin in range(0, sizes[place - 1], together):
            some = {key: tuple(axes[key][begin : begin + together])}
            piece = {**fixed, **some, **{key: tuple(axes[key]) for key in keys[place:]}}
            yield {key: piece[key] for key in keys}
