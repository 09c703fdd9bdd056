"""The summary of one part: its step, its phases and its layers as rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from sonda.analysis import reasons
from sonda.analysis.bounds import ROUNDING
from sonda.analysis.counters.hardware import COVERED, NOT_COUNTERS, SYSTEM
from sonda.analysis.doubts import InsideFused, LayersApart
from sonda.analysis.findings import Finding
from sonda.analysis.roofline import Ceilings
from sonda.analysis.statistics import median
from sonda.analysis.steps.costs import Scale, missing, times
from sonda.analysis.steps.device_time import device_side
from sonda.analysis.steps.layer_shares import OTHER, LayerShares, share_layers
from sonda.analysis.steps.operation_counts import Counts
from sonda.analysis.steps.parts import Part
from sonda.analysis.steps.shape_counts import PartCounts, count_part
from sonda.analysis.summary import CoreTimes, DeviceSide, LayerRow, PartSummary, PhaseRow, Value
from sonda.record.quantities import LEVELS, Metric

RAN, WAITED = "task_clock:counted", "run_queue_wait:counted"
OFTEN = 0.5
"""A phase's figure stands for it where the system's counters were read in this part of its steps. Only the longest of
a short phase are read: the median of these few says nothing of the others."""
ON_HOST = ("data",)
"""Phases whose operations run on the host: they are not held against a GPU."""


@dataclass(frozen=True)
class Rates:
    """What one step processes, where the steps themselves do not say."""

    samples: float | None
    tokens: float | None
    phase_tokens: dict[str, int] = field(default_factory=dict)
    """Tokens that a phase processes, where phases differ in that."""


def summarise_part(
    part: Part, roofs: Ceilings | None, no_roofs: str, rates: Rates
) -> tuple[PartSummary, list[Finding]]:
    """The rows of one part, and notes on how they came about."""
    measured = part.durations[part.measured]
    effective = part.effective
    step = times(measured[None, :], effective, reasons.ONLY_COUNTED)[0]
    work = count_part(part, roofs)
    counts = work.counts
    training = "backward" in part.phases or (counts is not None and "backward" in counts.phases)
    scale = Scale(step, roofs, no_roofs, work.reason, _operation_ns(part, roofs, training))
    noise = math.nan
    if step.value and step.low is not None and step.high is not None:
        noise = (step.high - step.low) / 2 / step.value
    host = times(part.host[part.measured][None, :], effective, reasons.ONLY_COUNTED)[0]
    device = device_side(part.activities, step, host, part.index.phase_of)
    phases = _phases(part, work, scale, effective, device)
    notes: list[Finding] = [work.note] if work.note is not None else []
    spent = {row.name: row.cost.time for row in phases}
    shares = share_layers(part, spent, effective, reasons.ONLY_COUNTED, _layer_steps(part))
    if len(part.pieces):
        longer = float(np.median(part.pieces)) / (step.value or math.nan)
        notes.append(LayersApart(part.name, len(part.pieces), longer))
        notes += _inside_fused(part, shares)
    summary = PartSummary(
        name=part.name,
        step=step,
        steps=len(measured),
        warmup=part.warmup,
        durations=tuple(part.durations.tolist()),
        noise=noise,
        samples_per_second=_per_second(part, "samples", rates.samples, effective),
        tokens_per_second=_per_second(part, "tokens", rates.tokens, effective),
        phases=phases,
        layers=_layers(part, work, scale, effective, shares),
        phase_steps={name: tuple(values.tolist()) for name, values in part.phases.items()},
        total=Value(float(part.durations.sum()), "ns", "measured") if len(part.durations) else None,
        counters=_whole_step(part),
        core_times=_core_times(part),
        backwards=_count_backwards(part),
        phase_tokens=_phase_tokens(phases, rates.phase_tokens),
        device=device,
        inside={name: (value.value or 0.0) / (step.value or math.nan) for name, value in shares.inside.items()},
        outside=shares.outside,
        walks=part.walks,
        apart=tuple(np.flatnonzero(~part.measured).tolist()),
    )
    return summary, notes


def _per_second(part: Part, quantity: str, constant: float | None, effective: int) -> Value:
    unit = f"{quantity}/s"
    durations = part.durations[part.measured]
    if len(durations) == 0:
        return missing(unit, "derived", reasons.ONLY_COUNTED)
    processed = part.index.spans.metric(quantity, "counted")[part.rows[part.measured]]
    if np.isnan(processed).any():
        if not constant:
            return missing(unit, "derived", reasons.AMOUNT_UNKNOWN.format(quantity))
        processed = np.full(len(durations), float(constant))
    rates = processed / np.maximum(durations, 1) * 1e9
    estimate = median(rates, effective)
    return Value(estimate.value, unit, "derived", estimate.low, estimate.high, few=estimate.few)


def _covered_times(
    table: np.ndarray, work: PartCounts, covered: np.ndarray, effective: int
) -> list[Value] | list[None]:
    """ns of the steps that the counts stand for, where these are not all: what rates are made of; None for all."""
    if work.covered is None or not covered.any() or (covered.all() and not work.means):
        return [None] * len(table)
    if work.means:
        return [Value(float(mean), "ns", "derived") for mean in table[:, covered].mean(axis=1)]
    return times(table[:, covered], effective, reasons.ONLY_COUNTED)


def _phases(
    part: Part, work: PartCounts, scale: Scale, effective: int, device: DeviceSide | None
) -> tuple[PhaseRow, ...]:
    counts = work.counts
    names = list(part.phases) if part.measured.any() else list(counts.phase_names if counts else ())
    shape = len(names), int(part.measured.sum())
    table = np.array([part.phases[name][part.measured] for name in names if name in part.phases]).reshape(shape)
    spent = times(table, effective, reasons.ONLY_COUNTED)
    covered = work.covered if work.covered is not None else np.ones(shape[1], dtype=bool)
    alike = _covered_times(table, work, covered, effective)
    counters = _counters(part, effective)
    hosts: list[Value] | list[None] = [None] * len(names)
    if device is not None:
        host = np.array([part.host_phases[name][part.measured] for name in names if name in part.host_phases])
        hosts = times(host.reshape(shape), effective, reasons.ONLY_COUNTED)
    rows = []
    for name, time, same, launching in zip(names, spent, alike, hosts, strict=True):
        tally = counts.phase(name) if counts and not (device and name in ON_HOST) else None
        peak = counts.peak_memory.get(name) if counts else None
        no_peak = scale.no_counts or reasons.NO_MEMORY_IN_PHASE
        rows.append(
            PhaseRow(
                name=name,
                cost=scale.cost(time, tally, same),
                peak_memory=missing("B", "counted", no_peak) if peak is None else Value(peak, "B", "counted"),
                counters=counters.get(name, {}),
                host=launching,
                busy=device.phases.get(name) if device is not None else None,
            )
        )
    return tuple(rows)


def _operation_ns(part: Part, roofs: Ceilings | None, training: bool) -> float:
    """What one operation costs, however small, ns; 0 where that bounds nothing.

    What launching costs a GPU's program shows in the GPU's idle time, not in its kernels'. A compiled function has
    backward's operations among its own, without a graph that is made step by step, and launches a GPU's all at once.
    """
    compiled = "fused" in part.phases or bool(len(part.pieces))
    if roofs is None or len(part.activities.rows) or (compiled and roofs.device):
        return 0.0
    return roofs.training_operation_ns if training and not compiled else roofs.operation_ns


def _inside_fused(part: Part, shares: LayerShares) -> list[Finding]:
    """What the steps in pieces tell of the phases of a training step that is one function."""
    inside = {name: value.value or 0.0 for name, value in shares.inside.items() if name != OTHER}
    whole = sum(value.value or 0.0 for value in shares.inside.values())
    if not sum(inside.values()):
        return []
    rest = 1 - sum(inside.values()) / whole
    of_it = tuple((name, spent / whole) for name, spent in inside.items())
    return [InsideFused(part.name, of_it, rest if rest > ROUNDING else 0.0)]


def _phase_tokens(phases: tuple[PhaseRow, ...], tokens: dict[str, int]) -> dict[str, Value]:
    """Tokens a second of each phase that processes tokens of its own."""
    times = {row.name: row.cost.time.value for row in phases}
    return {
        name: Value(1e9 * count / spent, "tokens/s", "derived")
        for name, count in tokens.items()
        if (spent := times.get(name))
    }


def _whole_step(part: Part) -> dict[str, Value]:
    """The counters of all phases together, median over the steps that their readings cover, by column.

    Left out where these are too few. Medians of phases are not added: under noise they do not add up to the step.
    """
    steps = int(part.measured.sum())
    rows, step = _phase_spans(part)
    duration = part.index.spans.number("duration")[rows].astype(np.float64)
    costs: dict[str, Value] = {}
    for column in _columns(part):
        metric = Metric.parse(column)
        values = part.index.spans.metrics[column][rows]
        known = ~np.isnan(values)
        lasted = np.bincount(step[known], weights=duration[known], minlength=steps)
        covered = (lasted > 0) & (lasted >= COVERED * part.host[part.measured])
        fewest = OFTEN * steps if metric.quantity in SYSTEM else 1
        if covered.any() and covered.sum() >= fewest:
            together = _per_step(metric, values[known], step[known], steps)[covered]
            costs[column] = Value(float(np.median(together)), metric.unit, metric.source)
    return costs


def _count_backwards(part: Part) -> int:
    rows, step = _phase_spans(part)
    back = part.index.spans.words("name").equal("backward")[rows]
    counts = np.bincount(step[back], minlength=int(part.measured.sum()))
    return int(np.median(counts)) if len(counts) else 0


def _core_times(part: Part) -> CoreTimes | None:
    """Time that threads ran and waited, each over the time of the phases in which both were read.

    Waits are read in long phases only, so a median of waits is not of the same steps as that of the steps' times.
    """
    steps = int(part.measured.sum())
    rows, step = _phase_spans(part)
    metrics = part.index.spans.metrics
    if not steps or RAN not in metrics or WAITED not in metrics:
        return None
    ran, waited = metrics[RAN][rows], metrics[WAITED][rows]
    known = ~np.isnan(ran) & ~np.isnan(waited)
    duration = part.index.spans.number("duration")[rows].astype(np.float64)
    lasted, of_ran, of_waited = (
        np.bincount(step[known], weights=values[known], minlength=steps) for values in (duration, ran, waited)
    )
    covered = (lasted > 0) & (lasted >= COVERED * part.host[part.measured])
    if covered.sum() < max(OFTEN * steps, 1):
        return None
    ratios = (float(np.median(times[covered] / lasted[covered])) for times in (of_ran, of_waited))
    return CoreTimes(*ratios)


def _counters(part: Part, effective: int) -> dict[str, dict[str, Value]]:
    """Every other metric of the phases: per step, median over the measured steps, by phase and column."""
    spans = part.index.spans
    steps = int(part.measured.sum())
    rows, step = _phase_spans(part)
    name = spans.words("name")
    duration = spans.number("duration")[rows].astype(np.float64)
    counters: dict[str, dict[str, Value]] = {}
    for column in _columns(part):
        metric = Metric.parse(column)
        values = spans.metrics[column][rows]
        known = ~np.isnan(values)
        for code in np.unique(name.codes[rows[known]]):
            here = name.codes[rows] == code
            mask = known & here
            # A step without a reading has no value: it is not 0.
            read = np.bincount(step[mask], minlength=steps) > 0
            if metric.quantity in SYSTEM:
                lasted = np.bincount(step[here], weights=duration[here], minlength=steps)
                read &= np.bincount(step[mask], weights=duration[mask], minlength=steps) >= COVERED * lasted
                seen_in = len(np.unique(step[here]))
                if not read.any() or read.sum() < OFTEN * seen_in:
                    reason = reasons.SELDOM_READ.format(read.sum(), seen_in)
                    counters.setdefault(name.words[code], {})[column] = missing(metric.unit, metric.source, reason)
                    continue
            seen = _per_step(metric, values[mask], step[mask], steps)[read]
            estimate = median(seen, min(effective, len(seen)))
            counters.setdefault(name.words[code], {})[column] = Value(
                estimate.value, metric.unit, metric.source, estimate.low, estimate.high, few=estimate.few
            )
    return counters


def _columns(part: Part) -> list[str]:
    columns = part.index.spans.metrics if part.measured.any() else ()
    return [column for column in columns if Metric.parse(column).quantity not in NOT_COUNTERS]


def _phase_spans(part: Part) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the phases of measured steps, and the number of each one's step among these."""
    spans = part.index.spans
    number = np.full(len(spans), -1, dtype=np.int64)
    number[part.rows[part.measured]] = np.arange(int(part.measured.sum()))
    rows = np.flatnonzero(spans.where(kind="phase") & (part.index.step_of >= 0))
    step = number[part.index.step_of[rows]]
    return rows[step >= 0], step[step >= 0]


def _per_step(metric: Metric, values: np.ndarray, step: np.ndarray, steps: int) -> np.ndarray:
    """The sum of every step; of a level the highest."""
    sums = np.zeros(steps)
    if metric.quantity in LEVELS:
        np.maximum.at(sums, step, values)
    else:
        np.add.at(sums, step, values)
    return sums


def _layers(
    part: Part, work: PartCounts, scale: Scale, effective: int, shares: LayerShares
) -> tuple[LayerRow, ...]:  # fmt: skip
    counts = work.counts
    if not part.measured.any():
        return _counted_layers(counts, scale) if counts else ()
    layers = part.layers
    spans = layers.spans
    both = layers.forward + layers.backward
    forward, backward, own, total = shares.forward, shares.backward, shares.own, shares.total
    alike_own: list[Value] | list[None] = [None] * len(own)
    alike_total: list[Value] | list[None] = [None] * len(own)
    if work.covered is not None and not part.on_device and not len(part.pieces):
        covered = work.covered[part.detailed]
        alike_own = _covered_times(layers.own, work, covered, effective)
        alike_total = _covered_times(both, work, covered, effective)
    has_backward = layers.backward.max(axis=1, initial=0) > 0
    calls = spans.calls()
    hosts = _host_times(part, effective) if part.on_device else {}
    rows = []
    for i, path in enumerate(spans.paths):
        tally = counts.layers.get(path) if counts else None
        mine = counts.own.get(path) if counts else None
        unseen = "" if tally is not None else reasons.LAYER_NOT_CALLED
        rows.append(
            LayerRow(
                path=path,
                name=spans.names[i],
                depth=int(spans.tree.depth[i]),
                leaf=bool(spans.tree.leaf[i]),
                calls=int(calls[i]),
                forward=forward[i],
                backward=backward[i] if has_backward[i] else missing("ns", "measured", reasons.NO_BACKWARD),
                own=own[i],
                cost=scale.cost(total[i], tally, alike_total[i], unseen),
                activations=_activations(counts, path, scale),
                own_cost=scale.cost(own[i], mine, alike_own[i], unseen),
                host=hosts.get(path),
            )
        )
    return tuple(rows)


def _layer_steps(part: Part) -> np.ndarray | None:
    """ns of the steps whose layers were recorded; None where these are other steps than the measured ones."""
    if part.on_device or len(part.pieces):
        return None
    detailed: np.ndarray = part.durations[part.measured][part.detailed]
    return detailed


def _host_times(part: Part, effective: int) -> dict[str, Value]:
    """ns per step of every layer on the host's clock, by path."""
    layers = part.host_layers
    host_times = times(layers.forward + layers.backward, effective, reasons.ONLY_COUNTED)
    return dict(zip(layers.spans.paths, host_times, strict=True))


def _counted_layers(counts: Counts, scale: Scale) -> tuple[LayerRow, ...]:
    """Rows without times, for a part of which only the counted step was seen."""
    no_time = missing("ns", "measured", reasons.ONLY_COUNTED)
    return tuple(
        LayerRow(
            path=path,
            name=counts.names[path],
            depth=counts.depths[path],
            leaf=counts.leaves[path],
            calls=counts.calls[path],
            forward=no_time,
            backward=no_time,
            own=no_time,
            cost=scale.cost(no_time, tally),
            activations=_activations(counts, path, scale),
            own_cost=scale.cost(no_time, counts.own[path]),
        )
        for path, tally in counts.layers.items()
    )


def _activations(counts: Counts | None, path: str, scale: Scale) -> Value:
    activations = counts.activations.get(path) if counts else None
    if activations is None:
        return missing("B", "counted", scale.no_counts or reasons.NO_MEMORY_IN_LAYER)
    return Value(activations, "B", "counted")
