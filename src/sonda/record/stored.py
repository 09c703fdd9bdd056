"""What all structs of `run.json` share: they are frozen, read strictly, and say nothing of what is not known."""

from __future__ import annotations

import math
from typing import Any

import msgspec

Scalar = bool | int | float | str | None
"""A value that a user gave, or that a workload names: nothing is known of it but that it is a single one."""
Number = int | float
"""A number that is shown as it was written: a whole one without a decimal point."""


class Stored(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of `run.json`. A field that holds its default is not written; one that is not known here is not read."""


def plain(stored: msgspec.Struct) -> dict[str, Any]:
    """A part of `run.json` as JSON has it, for documents: without what tells kinds apart."""
    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(stored))
    tag = type(stored).__struct_config__.tag_field
    if tag is not None:
        del document[tag]
    return document


def without_unknown(value: Any) -> Any:
    """Plain values as JSON can hold them: numbers that are none (NaN, infinity) are left out, in a list null."""
    if isinstance(value, dict):
        return {key: without_unknown(item) for key, item in value.items() if not _is_unknown(item)}
    if isinstance(value, list | tuple):
        return [None if _is_unknown(item) else without_unknown(item) for item in value]
    return value


def _is_unknown(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
