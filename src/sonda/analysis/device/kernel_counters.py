"""What the counters of kernels say of a run: kernels, stalls, and counted FLOPs of layers beside their nominal ones.

Nominal FLOPs come from the counted step, counted ones from the step that ran under Nsight Compute; both are of one step
with the same shapes. Special functions of the device (exp, reciprocal, root) are no FLOPs in its counters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sonda.analysis import reasons, wording
from sonda.analysis.bounds import CEILINGS, BoundedRatio
from sonda.analysis.device.findings import CountedUnlikeNominal
from sonda.analysis.device.stalls import StallRow, counted_rows, stall_rows, stall_shares
from sonda.analysis.span_tree import nearest
from sonda.analysis.summary import Value, arithmetic_intensity
from sonda.record.quantities import ROOFS, TENSOR
from sonda.record.spans import Spans

PRECISIONS = ("single", "double", "half", *(f"tensor_{kind}" for kind in TENSOR))
TELLING = 1.1
"""Ratios nearer to 1 than this, either way, are not worth telling."""
MOST = 5
"""Findings."""


@dataclass(frozen=True)
class CountedKernel:
    """One kernel, all counted launches together."""

    name: str
    launches: int
    time: float
    """ns."""
    flops: Value
    precisions: dict[str, float]
    """FLOPs by precision, those above 0."""
    dram: Value
    """Bytes."""
    l2: Value
    special: Value
    """Instructions of special functions, by thread."""
    intensity: Value
    """FLOP per byte of memory."""
    roof: Value
    """Share of the device's own peak that it came nearest to, weighted by time; 1 is all of it."""
    nearest: str
    """Which peak: dram, l2 or flops; '' where none is known."""


@dataclass(frozen=True)
class CountedPlace:
    """A layer without the layers inside it, or a phase outside all layers; forward and backward together."""

    path: str
    """Of a layer; '' may be the model itself."""
    name: str
    """Class of the layer, or the phase."""
    layer: bool
    time: float
    """ns of its kernels in the step of the pass `kernels`."""
    kernels: int
    counted: Value
    nominal: Value
    ratio: Value
    """Counted over nominal."""
    dram: Value
    """Bytes of the device's memory."""
    precisions: dict[str, float]
    """FLOPs by precision, those above 0."""
    stalls: dict[str, float]
    """Share of the cycles of resident warps by reason, 0 to 1, largest first; empty where none was asked for."""


def counted_kernels(spans: Spans) -> tuple[CountedKernel, ...]:
    """Kernels that were counted, those that take longest first."""
    rows = counted_rows(spans)
    name = spans.words("name")
    counted = []
    for code in np.unique(name.codes[rows]).tolist():
        counted.append(_kernel(spans, name.words[code], rows[name.codes[rows] == code]))
    return tuple(sorted(counted, key=lambda kernel: (-kernel.time, kernel.name)))


def _kernel(spans: Spans, name: str, rows: np.ndarray) -> CountedKernel:
    def total(quantity: str, unit: str) -> Value:
        return _sum(spans.metric(quantity, "counted")[rows], unit, "counted", "launches")

    flops, dram = total("flops", "FLOP"), _dram(spans, rows)
    precisions = _precisions(spans, rows)
    time = spans.number("duration")[rows].astype(np.float64)
    weights = time if time.sum() else np.ones(len(rows))
    reached = {}
    for roof in ROOFS:
        shares = spans.metric(f"{roof}_roof", "derived")[rows]
        if not np.isnan(shares).any():
            reached[roof] = float(np.average(shares, weights=weights))
    nearest_roof = max(reached, key=lambda roof: reached[roof]) if reached else ""
    return CountedKernel(
        name=name, launches=len(rows), time=float(time.sum()), flops=flops, precisions=precisions, dram=dram,
        l2=total("l2_bytes", "B"), special=total("special_functions", "1"), intensity=arithmetic_intensity(flops, dram),
        roof=BoundedRatio(Value(reached[nearest_roof], "1", "derived"), doubt=CEILINGS).value(reasons.ABOVE_OWN_PEAK)
        if reached else Value(None, "1", "derived", reason=reasons.PEAKS_NOT_ASKED),
        nearest=nearest_roof,
    )  # fmt: skip


def _dram(spans: Spans, rows: np.ndarray) -> Value:
    """Bytes of memory; of chips that tell reads from writes, their sum."""
    whole, reads, writes = (
        _sum(spans.metric(quantity, "counted")[rows], "B", "counted", "launches")
        for quantity in ("dram_bytes", "dram_read_bytes", "dram_write_bytes")
    )
    if whole.value is None and reads.value is not None and writes.value is not None:
        return Value(reads.value + writes.value, "B", "counted")
    return whole


def _precisions(spans: Spans, rows: np.ndarray) -> dict[str, float]:
    precisions = {
        kind: _sum(spans.metric(f"flops_{kind}", "counted")[rows], "FLOP", "counted", "launches").value
        for kind in PRECISIONS
    }
    return {kind: value for kind, value in precisions.items() if value}


def _sum(values: np.ndarray, unit: str, source: str, what: str) -> Value:
    """The sum, or missing where one of the values is: a part of a sum is no sum."""
    lacking = int(np.isnan(values).sum())
    if lacking == len(values):
        return Value(None, unit, source, reason=reasons.NOT_COUNTED)
    if lacking:
        return Value(None, unit, source, reason=reasons.SOME_NOT_COUNTED.format(lacking, len(values), what))
    return Value(float(values.sum()), unit, source)


def counted_places(spans: Spans) -> tuple[CountedPlace, ...]:
    """Layers and phases in whose kernels anything was counted, in the order in which they first ran."""
    rows = counted_rows(spans)
    parent = spans.number("parent")
    step_of = nearest(parent, spans.where(kind="step"))
    holder = nearest(parent, spans.where(kind="layer") | spans.where(kind="phase"))
    rows = rows[step_of[rows] >= 0]
    if not len(rows):
        return ()
    step = step_of[rows[np.argmin(spans.number("start")[step_of[rows]])]]
    kinds = spans.words("kind")
    kernels = np.flatnonzero((kinds.equal("kernel") | kinds.equal("collective")) & (step_of == step))
    kernels = kernels[np.argsort(spans.number("start")[kernels], kind="stable")]
    nominal = _nominal(spans, step_of, holder)
    places: dict[tuple[bool, str], list[int]] = {}
    names: dict[tuple[bool, str], str] = {}
    for row in kernels.tolist():
        key, name = _place(spans, int(holder[row]))
        places.setdefault(key, []).append(row)
        names.setdefault(key, name)
    return tuple(_counted_place(spans, key, names[key], mine, nominal) for key, mine in places.items())


def _place(spans: Spans, holder: int) -> tuple[tuple[bool, str], str]:
    """What tells a place from others, and its name."""
    if holder < 0:
        return (False, "other"), "other"

    def word(column: str) -> str:
        words = spans.words(column)
        return str(words.words[words.codes[holder]])

    layer = word("kind") == "layer"
    return (layer, word("path") if layer else word("name")), word("name")


def _nominal(spans: Spans, step_of: np.ndarray, holder: np.ndarray) -> dict[tuple[bool, str], Value]:
    """FLOPs of the operations of the first counted step, by place."""
    steps = np.flatnonzero(spans.where(kind="step", pass_="count"))
    if not len(steps):
        return {}
    step = steps[np.argmin(spans.number("start")[steps])]
    parent, is_op = spans.number("parent"), spans.where(kind="op")
    inner = (parent >= 0) & is_op[np.maximum(parent, 0)]
    rows = np.flatnonzero(is_op & ~inner & (step_of == step))
    flops = spans.metric("flops", "nominal")
    places: dict[tuple[bool, str], list[int]] = {}
    for row in rows.tolist():
        places.setdefault(_place(spans, int(holder[row]))[0], []).append(row)
    nominal = {}
    for key, mine in places.items():
        unknown = int(np.isnan(flops[mine]).sum())
        reason = reasons.SOME_WITHOUT_FORMULA.format(unknown, wording.plural(len(mine), "operation")) if unknown else ""
        nominal[key] = Value(None if unknown else float(flops[mine].sum()), "FLOP", "nominal", reason=reason)
    return nominal


def _counted_place(
    spans: Spans, key: tuple[bool, str], name: str, rows: list[int], nominal: dict[tuple[bool, str], Value]
) -> CountedPlace:
    counted = _sum(spans.metric("flops", "counted")[rows], "FLOP", "counted", "kernels")
    formula = nominal.get(key, Value(None, "FLOP", "nominal", reason=reasons.NO_OPERATION_OF_IT))
    if counted.value is None or formula.value is None:
        ratio = Value(None, "1", "derived", reason=counted.reason or formula.reason)
    elif not formula.value:
        ratio = Value(None, "1", "derived", reason=reasons.NO_FLOPS_IN_FORMULAS)
    else:
        ratio = Value(counted.value / formula.value, "1", "derived")
    time = float(spans.number("duration")[rows].sum())
    return CountedPlace(
        path=key[1] if key[0] else "", name=name, layer=key[0], time=time, kernels=len(rows), counted=counted,
        nominal=formula, ratio=ratio, dram=_dram(spans, np.array(rows)), precisions=_precisions(spans, np.array(rows)),
        stalls=stall_shares(spans, np.array(rows)),
    )  # fmt: skip


def unlike_nominal(places: Sequence[CountedPlace]) -> tuple[CountedUnlikeNominal, ...]:
    """Where counted FLOPs differ from nominal ones, by class of layers, the largest difference first."""
    groups: dict[tuple[bool, str], list[CountedPlace]] = {}
    for place in places:
        if place.ratio.value is not None:
            groups.setdefault((place.layer, place.name), []).append(place)
    findings = []
    for (layer, name), mine in groups.items():
        counted = sum(place.counted.value or 0.0 for place in mine)
        nominal = sum(place.nominal.value or 0.0 for place in mine)
        if not 1 / TELLING < counted / nominal < TELLING:
            findings.append(CountedUnlikeNominal(name, layer, len(mine), counted, nominal))
    findings.sort(key=lambda finding: -abs(finding.counted - finding.nominal))
    return tuple(findings[:MOST])


# ---- The summary of a run's kernel counters -------------------------------------------------------------------------


@dataclass(frozen=True)
class KernelCounters:
    """Of one repetition."""

    kernels: tuple[CountedKernel, ...]
    """Those that take longest first."""
    places: tuple[CountedPlace, ...]
    """Layers, and phases outside them, in their order."""
    stalls: tuple[StallRow, ...]
    """Of the kernels that were asked, those that take longest first."""
    unlike: tuple[CountedUnlikeNominal, ...]
    """Where counted and nominal FLOPs differ."""


def summarise_kernel_counters(spans: Spans) -> KernelCounters | None:
    """None where nothing was counted."""
    if not len(counted_rows(spans)):
        return None
    places = counted_places(spans)
    return KernelCounters(counted_kernels(spans), places, stall_rows(spans), unlike_nominal(places))
