"""Second sources: what others counted of the same program, beside what Sonda counted of it from outside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from sonda.analysis.counted_summary import SecondSources, SourceRow
from sonda.analysis.counters import CYCLES, INSTRUCTIONS
from sonda.analysis.summary import Value
from sonda.record.quantity import Metric
from sonda.record.run import Run

OWN = "sonda"
"""What Sonda counted, in a run of its own; of a command, that is the observed run itself."""
PAPI = "papi"


class _Count(msgspec.Struct):
    value: float
    scaled: bool = False


class _Source(msgspec.Struct):
    counts: dict[str, _Count] = {}
    missing: dict[str, str] = {}


def summarise_second(run: Run) -> SecondSources | None:
    """What second sources counted, with the difference from ours; None where none was asked or can be read."""
    table: Any = run.info.target.get("second")
    if not isinstance(table, Mapping) or not table:
        return None
    try:
        sources = {str(name): msgspec.convert(one, _Source) for name, one in table.items()}
        if OWN not in sources:
            sources[OWN] = msgspec.convert(run.info.target.get("outside") or {}, _Source)
    except msgspec.ValidationError:
        return None
    own = sources.pop(OWN)
    names = dict.fromkeys(name for one in (own, *sources.values()) for name in one.counts)
    rows = []
    for name in names:
        ours = _value(own, name)
        others = {source: _value(one, name) for source, one in sources.items()}
        rows.append(SourceRow(name, ours, others, {source: _apart(ours, one) for source, one in others.items()}))
    if not rows:
        return None
    return SecondSources(tuple(sources), tuple(rows), tuple(_sentences(run, sources)))


def _value(source: _Source, name: str) -> Value:
    unit = Metric(name, "counted").unit
    count = source.counts.get(name)
    if count is None:
        return Value(None, unit, "counted", reason=source.missing.get(name, "not asked for"))
    return Value(count.value, unit, "estimated" if count.scaled else "counted")


def _apart(ours: Value, other: Value) -> Value:
    if ours.value is None or other.value is None:
        return Value(None, "1", "derived", reason=other.reason or ours.reason)
    if not ours.value:
        return Value(None if other.value else 0.0, "1", "derived", reason="" if not other.value else "ours is 0")
    return Value(other.value / ours.value - 1, "1", "derived")


def _sentences(run: Run, sources: Mapping[str, _Source]) -> list[str]:
    said = ["each source counted a run of its own, from start to end: runs differ, and so do their counts"]
    if "command" in run.info.workload:
        said.append("the others' runs were not observed, ours was: what observing costs is in the difference")
    if PAPI in sources and {CYCLES, INSTRUCTIONS} & set(sources[PAPI].counts):
        said.append("papi counts the kernel's cycles and instructions too, the others those of the program only")
    return said
