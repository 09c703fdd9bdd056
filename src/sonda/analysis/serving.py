"""What served traffic means: percentiles of latency and whether they may be quoted, throughput, energy per query."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from sonda.analysis import reasons
from sonda.analysis.bounds import BoundedRatio
from sonda.analysis.energy.run import summarise_energy
from sonda.analysis.energy.summary import EnergySummary
from sonda.analysis.findings import Finding, Remark
from sonda.analysis.statistics import effective_size
from sonda.analysis.summary import MODEL, READINGS, Summary, Value, list_experiment
from sonda.analysis.titles import describe_traffic
from sonda.record.conventions.percentiles import (
    at_percentile,
    early_estimate,
    full_count,
    interval,
    late_allowed,
    least_queries,
)
from sonda.record.errors import SondaError
from sonda.record.readings import SensorReadings
from sonda.record.run import Run
from sonda.record.stored import Number
from sonda.record.target import LoadgenFacts, RateTrial, ServingFacts, ServingTarget

SHOWN = (0.5, 0.9, 0.95, 0.99, 0.999)
"""Percentiles that a report lists, with the one that was asked for."""
BINS = 16
WIDE = 4.0
"""Where the longest latency is more than this times the shortest, the histogram's bins grow with it."""
OFFLINE_SAMPLES = 24_576
"""What MLPerf asks of an offline run."""


@dataclass(frozen=True)
class Percentile:
    """One percentile of latency."""

    percentile: float
    """0 to 1."""
    latency: Value
    """ns, as counted, with its interval from order statistics."""
    estimate: Value
    """ns: early stopping's estimate, which is above the true one with 99 %."""
    needed: int
    """Queries after which the counted one may be quoted."""
    quotable: str
    """`counted`, `estimate`, or '' where neither may be."""
    missing: int
    """Queries that an estimate still lacks; 0 where there is one."""


@dataclass(frozen=True)
class Bound:
    """A latency bound and what became of it."""

    bound: Value
    """ns."""
    late: int
    allowed: int
    """Late queries with which the percentile is still shown to be below; -1: too few queries to show anything."""
    held: bool
    missing: int
    """Queries that were lacking to show it, with none late."""


@dataclass(frozen=True)
class OfflineRate(Finding):
    """How fast samples were answered that were all there at once."""

    kind: ClassVar[str] = "offline rate"

    sample_rate: Value
    """Samples/s."""
    samples: int


@dataclass(frozen=True)
class QuotedPercentile(Finding):
    """The percentile of latency that was asked for, which may be quoted as counted or as an estimate, or not at all."""

    kind: ClassVar[str] = "percentile"

    asked: Percentile
    queries: int


@dataclass(frozen=True)
class JudgedBound(Finding):
    """Whether a latency bound is shown to hold."""

    kind: ClassVar[str] = "bound"

    bound: Bound
    percentile: float
    """0 to 1."""
    rate: Value
    """Queries/s."""
    queries: int
    searched: bool
    """The rate is the highest that a search found."""


@dataclass(frozen=True)
class Overloaded(Finding):
    """Queries came faster than the model answers them. Rates are queries/s."""

    kind: ClassVar[str] = "overloaded"

    arrived: float
    answered: float


@dataclass(frozen=True)
class DependentQueries(Finding):
    """Queries resemble their neighbours, so that for intervals they are worth fewer."""

    kind: ClassVar[str] = "dependent queries"

    queries: int
    worth: int


@dataclass(frozen=True)
class FewOfflineSamples(Finding):
    """Fewer samples than MLPerf asks of an offline run."""

    kind: ClassVar[str] = "few offline samples"

    samples: int
    asked: int = OFFLINE_SAMPLES


@dataclass(frozen=True)
class LoadgenError(Finding):
    """What LoadGen complained of."""

    kind: ClassVar[str] = "LoadGen error"

    error: str


@dataclass(frozen=True)
class NoMlperfResult(Finding):
    """Scenarios and counts are MLPerf's, the result is not."""

    kind: ClassVar[str] = "no MLPerf result"


@dataclass(frozen=True)
class SendMore(Finding):
    """To try: so many queries in all."""

    kind: ClassVar[str] = "send more"

    queries: int


@dataclass(frozen=True)
class LowerRate(Finding):
    """To try: the bound did not hold, and an inference alone is shorter than it."""

    kind: ClassVar[str] = "lower rate"


@dataclass(frozen=True)
class HigherRate(Finding):
    """To try: the bound held."""

    kind: ClassVar[str] = "higher rate"


@dataclass(frozen=True)
class LessWaiting(Finding):
    """To try: queries wait longer for an inference than it takes. Times are ns."""

    kind: ClassVar[str] = "less waiting"

    wait: float
    inference: float


@dataclass(frozen=True)
class LookInside(Finding):
    """To try: a run of the workload, which tells where the time of an inference is spent."""

    kind: ClassVar[str] = "look inside"

    workload: str
    inference: float | None
    """ns; None offline, where a latency only says how many samples came before."""


@dataclass(frozen=True)
class ServingSummary:
    run: str
    title: str
    subtitle: str
    scenario: str
    finding: Finding
    remedy: Finding | None
    """What to try, or where to look next."""
    queries: int
    samples: int
    """Of one query."""
    time: Value
    """ns from the first arrival to the last answer."""
    rate: Value
    """Queries/s that were to arrive on average; server only."""
    throughput: Value
    """Queries/s answered."""
    sample_rate: Value
    """Samples/s."""
    busy: Value
    """Share of the time in which the model computed."""
    batch: Value
    """Queries of an inference, mean."""
    mean: Value
    """ns: mean latency."""
    wait: Value
    """ns: mean wait for an inference to begin."""
    asked: Percentile
    percentiles: tuple[Percentile, ...]
    bound: Bound | None
    edges: tuple[float, ...]
    """ns: the histogram's bins, one more than `counts`."""
    counts: tuple[int, ...]
    per_query: Value
    """J, machine's devices in use, idle power included."""
    trials: tuple[RateTrial, ...]
    loadgen: LoadgenFacts
    """What LoadGen said itself, where it made the traffic."""
    energy: EnergySummary | None
    warnings: tuple[Finding, ...]
    notes: tuple[Finding, ...]
    probed: tuple[SensorReadings, ...] = ()
    """What probes read meanwhile."""


def served(run: Run, title: str = "") -> ServingSummary:
    """The traffic that a run holds. Raises SondaError when it cannot be read."""
    try:
        return _summarise_served(run, serving_facts(run), title or run.info.workload.name or "model")
    except (ValueError, IndexError) as error:
        raise SondaError(
            f"{run.directory.name} holds no traffic that can be read ({error})", "serve it again"
        ) from None


def summarise_serving(run: Run, title: str) -> Summary:
    """Served traffic where summaries of runs are listed: what it found, no parts."""
    serving = served(run, f"{title}, {serving_facts(run).scenario}")
    return list_experiment(
        run, serving, serving.subtitle, reasons.SERVING_HAS_NO_ROOF, energy=serving.energy, serving=serving
    )


def serving_facts(run: Run) -> ServingFacts:
    """The traffic that a model was given. Raises SondaError for runs of other kinds."""
    if not isinstance(run.info.target, ServingTarget):
        raise SondaError(f"{run.directory.name} holds no traffic", "serve a model: sonda serve")
    return run.info.target.serving


def _summarise_served(run: Run, facts: ServingFacts, title: str) -> ServingSummary:
    spans, scenario = run.spans, facts.scenario
    rows = np.flatnonzero(spans.where(kind="query"))
    start, latency = spans.number("start")[rows], spans.number("duration")[rows]
    count, samples = len(rows), facts.samples
    if not count:
        raise ValueError("no queries")
    whole = int((start + latency).max() - start[0])
    wait = spans.metric("queue_wait", "measured")[rows]
    batch = spans.metric("inference_queries", "counted")[rows]
    inferences = float((1 / batch).sum())
    busy = float(((latency - wait) / batch).sum())
    ordered = np.sort(latency).astype(np.float64)
    worth = effective_size(latency)
    wanted = facts.percentile
    rows_shown = tuple(_percentile(ordered, worth, percentile) for percentile in sorted({*SHOWN, wanted}))
    asked = next(percentile for percentile in rows_shown if percentile.percentile == wanted)
    bound = _bound(facts.bound, latency, wanted)
    throughput = Value(1e9 * count / whole, "queries/s", "measured")
    rate = _rate(facts)
    edges, counts = _histogram(ordered)
    summary = ServingSummary(
        run=run.id,
        title=title,
        subtitle=describe_traffic(run.info, count, samples),
        scenario=scenario,
        finding=Finding(),
        remedy=None,
        queries=count,
        samples=samples,
        time=Value(whole, "ns", "measured"),
        rate=rate,
        throughput=throughput,
        sample_rate=Value(1e9 * count * samples / whole, "samples/s", "measured"),
        busy=BoundedRatio(Value(busy / whole, "1", "derived")).value(reasons.BUSY_LONGER),
        batch=Value(count / inferences, "1", "derived"),
        mean=Value(float(latency.mean()), "ns", "measured"),
        wait=Value(float(wait.mean()), "ns", "measured"),
        asked=asked,
        percentiles=rows_shown,
        bound=bound,
        edges=edges,
        counts=counts,
        per_query=_per_query(run, count),
        trials=tuple(facts.trials or ()),
        loadgen=facts.loadgen or {},
        energy=summarise_energy(run, title),
        warnings=(*_overload(scenario, start, count / busy * 1e9), *map(Remark, run.info.disturbed)),
        notes=(*_notes(facts, count, worth), *map(Remark, run.info.notes)),
        probed=tuple(run.info.target.probed or ()),
    )
    return replace(summary, finding=_finding(summary), remedy=_remedy(summary, run.info.workload.name))


def _percentile(ordered: np.ndarray, worth: int, percentile: float) -> Percentile:
    count = len(ordered)
    ends = interval(ordered, percentile, worth)
    low, high = ends if ends is not None else (None, None)
    estimate = early_estimate(ordered, percentile)
    missing = 0 if estimate is not None else least_queries(1, percentile) - count
    needed = full_count(percentile)
    return Percentile(
        percentile,
        Value(at_percentile(ordered, percentile), "ns", "measured", low, high),
        Value(estimate, "ns", "derived", reason="" if estimate is not None else reasons.QUERIES_NEEDED.format(missing)),
        needed,
        "counted" if count >= needed else "estimate" if estimate is not None else "",
        missing,
    )


def _bound(bound: Number | None, latency: np.ndarray, percentile: float) -> Bound | None:
    if bound is None:
        return None
    late, allowed = int((latency > bound).sum()), late_allowed(len(latency), percentile)
    missing = max(0, least_queries(0, percentile) - len(latency)) if allowed < 0 else 0
    return Bound(Value(float(bound), "ns", "nominal"), late, allowed, 0 <= late <= allowed, missing)


def _rate(facts: ServingFacts) -> Value:
    if facts.rate is None:
        return Value(None, "queries/s", "nominal", reason=reasons.ONLY_SERVER_HAS_RATE)
    return Value(facts.rate, "queries/s", "nominal")


def _histogram(ordered: np.ndarray) -> tuple[tuple[float, ...], tuple[int, ...]]:
    low, high = max(1.0, float(ordered[0])), float(ordered[-1])
    if high <= low:
        return (low, low + 1), (len(ordered),)
    edges = np.geomspace(low, high, BINS + 1) if high > WIDE * low else np.linspace(low, high, BINS + 1)
    edges[0], edges[-1] = ordered[0], high  # rounding must not leave an end outside
    counts, _ = np.histogram(ordered, edges)
    return tuple(float(edge) for edge in edges), tuple(int(count) for count in counts)


def _per_query(run: Run, count: int) -> Value:
    """Energy of the part that counts, over its queries; measured where it was, else estimated."""
    part = run.spans.where(kind="part")
    for source in ("measured", "estimated"):
        value, low, high = (
            float(run.spans.metric(name, source)[part][0]) for name in ("energy", "energy_low", "energy_high")
        )
        if value == value:
            bounds = READINGS if source == "measured" else MODEL
            return Value(value / count, "J", source, low / count, high / count, bounds=bounds)
    states = [probe for probe in run.info.probes if probe.name.startswith("energy")]
    if run.info.target.metered is not None and all(state.state == "ok" for state in states):
        return Value(None, "J", "measured", reason=reasons.TRAFFIC_TOO_SHORT)
    reason = next((state.reason or state.state for state in states if state.state != "ok"), reasons.ENERGY_NOT_ASKED)
    return Value(None, "J", "measured", reason=reason)


def _overload(scenario: str, start: np.ndarray, capacity: float) -> list[Finding]:
    """A warning where queries came faster than the model answered them while it did nothing else."""
    if scenario != "server" or len(start) < 2:
        return []
    came = 1e9 * (len(start) - 1) / max(1, int(start[-1] - start[0]))
    return [Overloaded(came, capacity)] if came > capacity else []


def _notes(facts: ServingFacts, count: int, worth: int) -> list[Finding]:
    notes: list[Finding] = []
    if worth <= count // 2 and facts.scenario != "offline":
        notes.append(DependentQueries(count, worth))
    if facts.scenario == "offline" and count * facts.samples < OFFLINE_SAMPLES:
        notes.append(FewOfflineSamples(count * facts.samples))
    errors = (facts.loadgen or {}).get("errors")
    notes += [LoadgenError(str(error)) for error in errors] if isinstance(errors, list) else []
    return [*notes, NoMlperfResult()]


def _finding(serving: ServingSummary) -> Finding:
    if serving.scenario == "offline":
        return OfflineRate(serving.sample_rate, serving.queries * serving.samples)
    if serving.bound is not None:
        percentile, searched = serving.asked.percentile, bool(serving.trials)
        return JudgedBound(serving.bound, percentile, serving.rate, serving.queries, searched)
    return QuotedPercentile(serving.asked, serving.queries)


def _remedy(serving: ServingSummary, workload: str) -> Finding | None:
    bound, asked = serving.bound, serving.asked
    missing = bound.missing if bound is not None and bound.allowed < 0 else 0 if asked.quotable else asked.missing
    if missing and serving.scenario != "offline":
        return SendMore(serving.queries + missing)
    wait = serving.wait.value or 0.0
    inference = (serving.mean.value or 0.0) - wait
    if bound is not None and not bound.held and inference < (bound.bound.value or 0.0):
        return LowerRate()
    if bound is not None and bound.held:
        return None if serving.trials else HigherRate()
    if serving.scenario == "server" and bound is None and wait > inference:
        return LessWaiting(wait, inference)
    return LookInside(workload, None if serving.scenario == "offline" else inference)
