"""The GPU's side of a part: how long the device worked for each phase and layer, and what it waited for.

Times of steps and phases come from marks in the device's queue in timed steps: they hold the gaps in which the device
waited for the host. How long it worked, and which layer it worked for, is known from the kernels of a few steps of
their own (the pass `kernels`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sonda.analysis import reasons
from sonda.analysis.device.kernels import LATENCY, on_device
from sonda.analysis.span_tree import nearest, subtotals
from sonda.analysis.steps.layers import LayerSpans, LayerTimes
from sonda.analysis.summary import DeviceSide, Value
from sonda.record.spans import Spans


def spent(spans: Spans) -> np.ndarray:
    """ns of every span: on the device's clock where it was marked there, on the host's otherwise."""
    marked = spans.metric("device_time", "measured")
    return np.where(np.isnan(marked), spans.number("duration").astype(np.float64), marked)


def device_layer_times(spans: Spans, layers: LayerSpans) -> LayerTimes:
    """ns that kernels and copies took by the layer that launched them; overlapping ones each count for themselves."""
    is_layer = np.zeros(len(spans), dtype=bool)
    is_layer[layers.rows] = True
    rows = on_device(spans)
    holder = nearest(spans.number("parent"), is_layer)[rows]
    duration = spans.number("duration")[rows].astype(np.float64)
    own = np.bincount(holder[holder >= 0], weights=duration[holder >= 0], minlength=len(spans))[layers.rows]
    number = np.full(len(spans), -1, dtype=np.int64)
    number[layers.rows] = np.arange(len(layers.rows))
    around = spans.number("parent")[layers.rows]
    outer = np.where(around >= 0, number[np.maximum(around, 0)], -1)
    return LayerTimes(layers, *layers.fold(subtotals(outer, own[:, None])[:, 0], own), own)


def union(start: np.ndarray, end: np.ndarray) -> float:
    """Length of what these intervals cover together."""
    if not len(start):
        return 0.0
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    reached = np.maximum.accumulate(end)
    begin = np.maximum(start[1:], reached[:-1])
    return float(end[0] - start[0] + np.maximum(end[1:] - begin, 0).sum())


@dataclass(frozen=True)
class Activities:
    """Activities of devices in the kernel steps of one part."""

    spans: Spans
    rows: np.ndarray
    steps: np.ndarray
    """Rows of the steps."""

    @classmethod
    def of(cls, spans: Spans, step_of: np.ndarray, steps: np.ndarray) -> Activities:
        rows = on_device(spans)
        return cls(spans, rows[np.isin(step_of[rows], steps)], steps)

    def _places(self, rows: np.ndarray) -> np.ndarray:
        """A number for the device of each; ranks may call different ones by the same name."""
        device = self.spans.words("device")
        places: np.ndarray = self.spans.number("rank")[rows].astype(np.int64) * len(device.words) + device.codes[rows]
        return places

    @property
    def devices(self) -> float:
        """How many devices a rank works on, on average."""
        ranks = np.unique(self.spans.number("rank")[self.rows])
        return len(np.unique(self._places(self.rows))) / max(len(ranks), 1)

    def busy(self, rows: np.ndarray) -> float:
        """ns per step that a device worked on these; the mean of several."""
        start = self.spans.number("start")[rows]
        end = start + self.spans.number("duration")[rows]
        place = self._places(rows)
        whole = sum(
            union(start[place == device_place], end[place == device_place]) for device_place in np.unique(place)
        )
        return whole / len(self.steps) / max(self.devices, 1.0)


def _launches(spans: Spans, rows: np.ndarray) -> tuple[int, np.ndarray]:
    """How many calls launched these activities, and the ns from each to the first of its activities, where known.

    A CUDA graph is one call with many kernels: what was launched at the same ns of one rank was launched together.
    """
    latency = spans.metrics.get(LATENCY, np.full(len(spans), np.nan))[rows]
    known = ~np.isnan(latency)
    moment = spans.number("start")[rows][known] - latency[known].astype(np.int64)
    order = np.lexsort((latency[known], moment, spans.number("rank")[rows][known]))
    keys = np.stack((spans.number("rank")[rows][known], moment), axis=1)[order]
    first = np.ones(len(keys), dtype=bool)
    first[1:] = (np.diff(keys, axis=0) != 0).any(axis=1)
    return int(first.sum() + (~known).sum()), latency[known][order][first]


def device_side(activities: Activities, step: Value, host: Value, phase_of: np.ndarray) -> DeviceSide | None:
    """What the device did in a step; None where no kernel was recorded. `step` and `host` are ns of timed steps."""
    spans, rows, steps = activities.spans, activities.rows, len(activities.steps)
    if not len(rows):
        return None
    kind, name = spans.words("kind"), spans.words("name")
    duration = spans.number("duration")[rows]
    busy = activities.busy(rows)
    per_phase: dict[str, Value] = {}
    phases = phase_of[rows]
    for word in dict.fromkeys(name.words[code] for code in name.codes[phases[phases >= 0]].tolist()):
        mine = rows[(phases >= 0) & name.equal(word)[np.maximum(phases, 0)]]
        per_phase[word] = Value(activities.busy(mine), "ns", "measured")
    launches, latency = _launches(spans, rows)
    idle = Value(None, "ns", "derived", reason=reasons.NO_STEP_TIMED)
    if step.value is not None:
        idle = Value(max(step.value - busy, 0.0), "ns", "derived")

    def together(word: str) -> Value:
        return Value(float(duration[kind.equal(word)[rows]].sum()) / steps, "ns", "measured")

    return DeviceSide(
        busy=Value(busy, "ns", "measured"),
        idle=idle,
        share=busy / step.value if step.value else float("nan"),
        host=host,
        overlapped=Value(max(float(duration.sum()) / steps / activities.devices - busy, 0.0), "ns", "measured"),
        launches=Value(launches / steps, "1", "counted"),
        latency=Value(float(np.median(latency)), "ns", "measured")
        if len(latency)
        else Value(None, "ns", "measured", reason=reasons.NO_LAUNCHES),
        copies=together("copy"),
        collectives=together("collective"),
        phases=per_phase,
        steps=steps,
        devices=activities.devices,
    )
