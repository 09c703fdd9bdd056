"""Values as a sentence says them: a share in percent, a duration, an amount with its unit."""

from __future__ import annotations

from sonda.analysis import wording
from sonda.analysis.summary import Value


def number(value: Value) -> float:
    """The bare number; 0 where it is missing."""
    return value.value or 0.0


def share(value: Value) -> str:
    """`71 %`."""
    return wording.percent(number(value))


def duration(value: Value) -> str:
    """`1.3 ms`, of ns."""
    return wording.duration(number(value))


def amount(value: Value) -> str:
    """`3.1 GB`."""
    return wording.amount(number(value), value.unit)
