"""Values as plain JSON: the one place where a number of a document gets its unit, its source and its ends."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from sonda.analysis.summary import Value
from sonda.record.stored import Stored, plain

NOT_FINITE = "not a finite number"

Document = dict[str, Any]


def value_document(value: Value) -> Document:
    """One number with unit and source; its value is null where it is missing. Ends and reason only where it has them.

    Ends are those of a 95 % interval. `few` says that they are the least and the most of so many values instead, and
    `bounds` names any other kind of ends.
    """
    document: Document = {"value": finite(value.value), "unit": value.unit, "source": value.source}
    if value.low is not None and value.high is not None:
        document |= {"low": finite(value.low), "high": finite(value.high)}
        document |= {"few": value.few} if value.few else {}
        document |= {"bounds": value.bounds} if value.bounds else {}
    reason = value.reason or (NOT_FINITE if value.value is not None and document["value"] is None else "")
    return document | ({"reason": reason} if reason else {})


def number_document(number: float | None, unit: str, source: str, reason: str = "") -> Document:
    """The same for a bare number; `reason` says why it is None."""
    return value_document(Value(number, unit, source, reason=reason if number is None else ""))


def metrics(values: Mapping[str, Value]) -> Document:
    """Values by metric name: `{"flops:nominal": {"value": 14.1e9, "unit": "FLOP", "source": "nominal"}}`."""
    return {f"{name}:{value.source}": value_document(value) for name, value in values.items()}


def plain_data(value: Any) -> Any:
    """The same data in JSON's own types: dataclasses as objects, tuples as arrays, numbers without NaN."""
    if isinstance(value, Value):
        return value_document(value)
    if isinstance(value, Stored):
        return plain(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain_data(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain_data(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain_data(item) for item in value]
    if value is None or isinstance(value, str | bool | int):
        return value
    if hasattr(value, "item"):  # numpy's scalars
        return plain_data(value.item())
    return finite(value) if isinstance(value, float) else str(value)


def finite(number: float | None) -> float | None:
    """The number, None for what JSON has no word for: NaN and infinity."""
    return number if number is not None and math.isfinite(number) else None
