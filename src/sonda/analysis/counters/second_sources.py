"""Second sources: what others counted of the same program, beside what Sonda counted of it from outside."""

from __future__ import annotations

from collections.abc import Mapping

from sonda.analysis import reasons
from sonda.analysis.counters.findings import OnlyOursObserved, PapiCountsKernel, RunsOfTheirOwn
from sonda.analysis.counters.hardware import CYCLES, INSTRUCTIONS
from sonda.analysis.counters.summary import SecondSources, SourceRow
from sonda.analysis.findings import Finding
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
    return SecondSources(tuple(sources), tuple(rows), tuple(_findings(run, sources)))


def _value(source: CommandCounts, name: str) -> Value:
    unit = Metric(name, "counted").unit
    count = source.counts.get(name)
    if count is None:
        return Value(None, unit, "counted", reason=source.missing.get(name, reasons.NOT_ASKED_FOR))
    return Value(count.value, unit, "estimated" if count.scaled else "counted")


def _apart(ours: Value, theirs: Value) -> Value:
    if ours.value is None or theirs.value is None:
        return Value(None, "1", "derived", reason=theirs.reason or ours.reason)
    if not ours.value:
        return Value(
            None if theirs.value else 0.0, "1", "derived", reason="" if not theirs.value else reasons.OURS_IS_ZERO
        )
    return Value(theirs.value / ours.value - 1, "1", "derived")


def _findings(run: Run, sources: Mapping[str, CommandCounts]) -> list[Finding]:
    findings: list[Finding] = [RunsOfTheirOwn()]
    if run.info.workload.command is not None:
        findings.append(OnlyOursObserved())
    if PAPI in sources and {CYCLES, INSTRUCTIONS} & set(sources[PAPI].counts):
        findings.append(PapiCountsKernel())
    return findings
