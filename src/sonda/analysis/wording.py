"""Numbers and lists as text, alike in sentences, titles and reasons. `sonda.report.words` makes the sentences."""

from __future__ import annotations

import math

SCALES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
ROUNDED = 0.9995
"""Of a scale: what is more would be rounded to 1,000 of the one below."""


def percent(share: float) -> str:
    """`0.714` -> `71 %`; small shares keep a digit, and what is there is never 0."""
    value = 100 * share
    if value != value:
        return "an unknown share"
    if 0 < abs(value) < 0.05:
        return "less than 0.1 %"
    return f"{value:.1f} %" if 0 < abs(value) < 9.95 else f"{value:.0f} %"


def interval(low: float | None, high: float | None) -> str:
    """` (74 to 83 %)`, of shares; '' without an interval, or where its ends are one number."""
    if low is None or high is None or percent(low) == percent(high):
        return ""
    return f" ({percent(low).removesuffix(' %')} to {percent(high)})"


def amount(value: float, unit: str) -> str:
    """`3.1e9, "B"` -> `3.1 GB`."""
    for scale, letter in SCALES:
        if value >= ROUNDED * scale:
            return f"{_digits(value / scale)} {letter}{unit}"
    return f"{_digits(value)} {unit}"


def duration(ns: float) -> str:
    """`1.28e6` -> `1.3 ms`."""
    for scale, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if ns >= ROUNDED * scale:
            return f"{_digits(ns / scale)} {unit}"
    return "less than 0.1 ns" if 0 < ns < 0.1 else f"{_digits(ns)} ns"


def plural(count: float, noun: str) -> str:
    """`1 step`, `20 steps`, `1,204 steps`."""
    number = f"{count:,.0f}"
    return f"{number} {noun}{'' if number == '1' else 's'}"


def times(ratio: float) -> str:
    """`4.4 times`, `190 times`."""
    return f"{_digits(ratio)} times"


def at_most(bound: float) -> str:
    """`1.13x`: a bound in two digits, rounded up."""
    return f"{math.ceil(100 * bound - 1e-9) / 100:.2f}x"


def join(words: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _digits(value: float) -> str:
    return f"{value:.0f}" if value >= 99.5 else f"{value:.1f}" if value >= 0.995 else f"{value:.2g}"
