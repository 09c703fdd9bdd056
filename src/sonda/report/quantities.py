"""Quantities as words: the one place where a number gets its unit, its scale and its digits."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from sonda.analysis.summary import TABLES, Value
from sonda.record.quantities import SOURCES

MISSING = "–"
INTERVAL = "95 % interval"

_TIMES = (("ns", 1.0), ("µs", 1e3), ("ms", 1e6), ("s", 1e9))
_PREFIXES = (("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12), ("P", 1e15))
_PREFIXED = ("B", "B/s", "FLOP", "FLOP/s", "cycle")
_SMALL = (("pJ", 1e-12), ("nJ", 1e-9), ("µJ", 1e-6), ("mJ", 1e-3), ("J", 1.0), ("kJ", 1e3), ("MJ", 1e6))


@dataclass(frozen=True)
class UnitScale:
    """A unit as shown, and how many of the kept unit it stands for."""

    unit: str
    factor: float


@cache
def scales(unit: str) -> tuple[UnitScale, ...]:
    """The scales in which a unit may be shown, smallest first."""
    if unit == "ns":
        return tuple(UnitScale(name, factor) for name, factor in _TIMES)
    if unit == "J":
        return tuple(UnitScale(name, factor) for name, factor in _SMALL)
    if unit in _PREFIXED:
        return tuple(UnitScale(prefix + unit, factor) for prefix, factor in _PREFIXES)
    return (UnitScale("" if unit == "1" else unit, 1.0),)


def common_scale(values: Iterable[float | None], unit: str) -> UnitScale:
    """One scale for a whole column.

    The largest in which the smallest number still has a visible digit, as long as the largest stays below 10,000.
    """
    sizes = [abs(value) for value in values if value is not None and math.isfinite(value) and value != 0]
    choice = scales(unit)
    if not sizes or len(choice) == 1:
        return next((scale for scale in choice if scale.factor == 1.0), choice[0])
    top, bottom = max(sizes), min(sizes)
    # 999.5 ms would be written 1,000 ms, so the step to the next scale is taken half a digit early.
    fitting = [scale for scale in choice if 0.9995 <= top / scale.factor < 10_000]
    if not fitting:
        return choice[0] if top < choice[0].factor else choice[-1]
    return next((scale for scale in reversed(fitting) if bottom / scale.factor >= 0.1), fitting[-1])


def decimals_for(sizes: Sequence[float]) -> int:
    """Decimals that a column of these scaled sizes needs: three digits for the largest, one digit for small ones."""
    top = max(sizes, default=0.0)
    if top >= 99.95:
        return 1 if any(0 < size < 9.95 for size in sizes) else 0
    return 1 if top >= 9.995 else 2


def fixed(value: float, decimals: int) -> str:
    """`1,204.5`; a number too small for these decimals is `<0.1`, never 0."""
    text = f"{value:,.{decimals}f}"
    if value != 0 and float(text.replace(",", "")) == 0:
        least = f"{10.0**-decimals:.{decimals}f}"
        return f"<{least}" if value > 0 else f">-{least}"
    return text


def whole(value: float) -> str:
    """`1,204`: all digits before the point, as exact counts and cycles have them."""
    return f"{value:,.0f}"


def rounded(value: float, decimals: int) -> str:
    """`1,204.5`; unlike `fixed`, a number too small for these decimals is `0.0`."""
    return f"{value:,.{decimals}f}"


def significant(value: float, digits: int = 3) -> str:
    """`0.0312`, `1.2e+06`: so many digits, zeros behind them left out."""
    return f"{value:.{digits}g}"


def as_given(value: float) -> str:
    """`0.9`, `24,576`: a number that somebody chose or printed, with all its digits."""
    return f"{value:,.10g}"


def brief(value: float) -> str:
    """Three significant digits without zeros behind them, `0.5`, or all before the point: `1,204`."""
    return whole(value) if abs(value) >= 100 else significant(value)


def count(value: float) -> str:
    """`25` for a whole number, else `25.3`: a mean need not be whole."""
    return whole(value) if value == round(value) else number(value)


def ratio(value: float, least: float = -math.inf, most: float = math.inf) -> str:
    """`1.42`; beyond `least` and `most`, of which nobody needs the digits, `<0.1` and `>10`."""
    if value < least:
        return f"<{least:g}"
    return f">{most:g}" if value > most else f"{value:.2f}"


def times(value: float) -> str:
    """`1.63x`: as many times as fast, or as slow."""
    return f"{ratio(value)}x"


def signed_percent(share: float) -> str:
    """0.318 as `+32 %`, 0.0318 as `+3.2 %`; `0` is without a sign."""
    hundreds = 100 * share
    if not hundreds:
        return "0"
    return f"{hundreds:+.0f} %" if abs(hundreds) >= 10 else f"{hundreds:+.2g} %"


def number(value: float) -> str:
    """Three significant digits without exponent: `1,204`, `40.2`, `0.0312`. Large whole numbers keep all digits;
    what is no number, or infinite, is `–`."""
    if not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0"
    shown = float(significant(value))
    if abs(shown) >= 100:
        return whole(value)
    if abs(shown) < 1e-6:
        return f"{value:.2e}"
    decimals = 2 - math.floor(math.log10(abs(shown)))
    return f"{value:.{decimals}f}"


def amount(value: float | None, unit: str) -> str:
    """A number on its own with its unit: `402 ms`, `1.90 GB`, `1,204`; missing is `–`."""
    if value is None or not math.isfinite(value):
        return MISSING
    if unit == "1" and value == round(value):
        return whole(value)
    scale = common_scale((), unit) if value == 0 else own_scale(value, unit)
    return f"{number(value / scale.factor)} {scale.unit}".rstrip()


def column(values: Sequence[Value]) -> tuple[UnitScale, list[str]]:
    """A column's scale and its texts, all with the same unit and decimals."""
    unit = next((value.unit for value in values if known(value)), values[0].unit if values else "1")
    scale = common_scale((value.value for value in values), unit)
    scaled = [value.value / scale.factor if value.value is not None and known(value) else None for value in values]
    whole = unit == "1" and all(size is None or size == round(size) for size in scaled)
    decimals = 0 if whole else decimals_for([abs(size) for size in scaled if size is not None])
    return scale, [MISSING if size is None else fixed(size, decimals) for size in scaled]


def title_with_unit(name: str, unit: str) -> str:
    """A column's name with the kept unit in place of the scale that its texts have: `forward ms` is `forward ns`, and
    `instructions M`, which are written in millions, are `instructions`."""
    name = name.removesuffix(" M")
    if unit in ("", "1"):
        return name
    known_as = sorted((re.escape(scale.unit) for scale in scales(unit)), key=len, reverse=True)
    plural = "s?" if unit == "cycle" else ""
    said, count = re.subn(rf"(?<![\w/])(?:{'|'.join(known_as)}){plural}(?!\w)", lambda _: unit, name)
    return said if count else f"{name} {unit}".strip()


def percent(share: float | None, decimals: int = 0) -> str:
    """0.318 as `31.8`, without the sign."""
    return MISSING if share is None or not math.isfinite(share) else fixed(100 * share, decimals)


def known(value: Value | None) -> bool:
    """Whether there is a number at all."""
    return value is not None and value.value is not None and math.isfinite(value.value)


def half_width(value: Value) -> float | None:
    """Half of the interval relative to the value, or None where there is no interval."""
    if not value.value or value.low is None or value.high is None:
        return None
    return (value.high - value.low) / 2 / abs(value.value)


def factor(value: Value) -> str:
    """A ratio of times: `1.12x (measured, ±2 %)`, `not significant` where it may be 1; missing: its reason."""
    if not known(value) or value.value is None:
        return value.reason or MISSING
    if value.low is not None and value.high is not None and value.low <= 1 <= value.high:
        return f"not significant ({times(value.low)} to {times(value.high)})"
    spread = half_width(value)
    interval = f", ±{fixed(100 * spread, 0 if spread >= 0.0095 else 1)} %" if spread is not None else ""
    return f"{times(value.value)} ({value.source}{interval})"


def provenance(value: Value | None) -> str:
    """What a tooltip says: the number with its unit, its source and its interval, or why there is none."""
    if value is None:
        return ""
    if not known(value):
        return f"missing: {value.reason}" if value.reason else "missing"
    text = f"{amount(value.value, value.unit)}, {_source_words(value.source)}"
    if value.low is not None and value.high is not None:
        colon = "" if ends_words(value) == INTERVAL else ":"
        text += f"; {ends_words(value)}{colon} {amount(value.low, value.unit)} to {amount(value.high, value.unit)}"
    return text


def ends_words(value: Value) -> str:
    """What the ends of an interval are: `95 % interval`, `least to most of 4`, or what bounds."""
    return value.bounds or (f"least to most of {value.few}" if value.few else INTERVAL)


def spread(value: Value) -> str:
    """Half of the interval in percent of the value: `±4.1 %`. An interval of another kind says which: `±4.1 % (least to
    most of 4)`. Without an interval, ''."""
    half = half_width(value)
    if half is None:
        return ""
    words = ends_words(value)
    spread = f"±{percent(half, 1)} %" if half <= 1 else "±more than the median"
    return spread + (f" ({words})" if words != INTERVAL else "")


def is_guess(value: Value) -> bool:
    """Whether a number is a guess: an estimate, or a simulated amount that tables of energies or areas give, whose
    entries have bounds of their own."""
    bounded = value.low is not None and value.high is not None and value.bounds == TABLES
    return known(value) and (value.source == "estimated" or bounded)


@cache
def _source_words(source: str) -> str:
    meaning = SOURCES.get(source, "")
    return f"{source} ({meaning})" if meaning else source


def own_scale(value: float, unit: str) -> UnitScale:
    """The scale that suits one number: the largest in which it is at least 1."""
    choice = scales(unit)
    size = abs(value)
    return next((scale for scale in reversed(choice) if size / scale.factor >= 0.9995), choice[0])
