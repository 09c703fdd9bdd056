"""Second sources: what others counted of the same program, beside what Sonda counted of it from outside."""

from __future__ import annotations

from collections.abc import Mapping

from sonda.analysis.counters.hardware import CYCLES, INSTRUCTIONS
from sonda.analysis.counters.summary import SecondSources, SourceRow
from sonda.analysis.summary import Value
from sonda.record.quantities import Metric
from sonda.record.readings import CommandCounts
from sonda.record.run import Run

OWN = "sonda"
"""What Sonda counted, in a run of its own; of a command, that is the observed run itself."""
PAPI = "papi"


def summarise_second(run: Run) -> SecondSources | None:
    """What second sources counted, with the difference from ours; None where none was asked."""
    if not run.info.target.second:
        return None
    sources = dict(run.info.target.second)
    own = sources.pop(OWN, None) or run.info.target.outside or CommandCounts()
    names = dict.fromkeys(name for counts in (own, *sources.values()) for name in counts.counts)
    rows = []
    for name in names:
        ours = _value(own, name)
        values = {source: _value(counts, name) for source, counts in sources.items()}
        rows.append(SourceRow(name, ours, values, {source: _apart(ours, value) for source, value in values.items()}))
    if not rows:
        return None
    return SecondSources(tuple(sources), tuple(rows), tuple(_sentences(run, sources)))


def _value(source: CommandCounts, name: str) -> Value:
    unit = Metric(name, "counted").unit
    count = source.counts.get(name)
    if count is None:
        return Value(None, unit, "counted", reason=source.missing.get(name, "not asked for"))
    return Value(count.value, unit, "estimated" if count.scaled else "counted")


def _apart(ours: Value, theirs: Value) -> Value:
    if ours.value is None or theirs.value is None:
        return Value(None, "1", "derived", reason=theirs.reason or ours.reason)
    if not ours.value:
        return Value(None if theirs.value else 0.0, "1", "derived", reason="" if not theirs.value else "ours is 0")
    return Value(theirs.value / ours.value - 1, "1", "derived")


def _sentences(run: Run, sources: Mapping[str, CommandCounts]) -> list[str]:
    sentences = ["each source counted a run of its own, from start to end: runs differ, and so do their counts"]
    if run.info.workload.command is not None:
        sentences.append("the others' runs were not observed, ours was: what observing costs is in the difference")
    if PAPI in sources and {CYCLES, INSTRUCTIONS} & set(sources[PAPI].counts):
        sentences.append("papi counts the kernel's cycles and instructions too, the others those of the program only")
    return sentences
