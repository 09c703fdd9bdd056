"""Figures: what a study's table shows, named with their unit, as `step_ms`, `mflops` or `energy_J`.

A figure may be that of one phase or module: `ipc@forward`, `cycles@embeddings`, `modelled_share_percent@layer1.0`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sonda.analysis import reasons
from sonda.analysis.bounds import CEILINGS, BoundedRatio
from sonda.analysis.figure_names import figure_words
from sonda.analysis.summary import TABLES, Summary, Value, arithmetic_intensity
from sonda.record.spans import PHASES
from sonda.record.target import SimulatedTarget
from sonda.studies.figures.breakdown import BREAKDOWN, breakdown_value
from sonda.studies.figures.callgrind import MODELLED, modelled_value
from sonda.studies.figures.corun import CORUN, corun_value
from sonda.studies.figures.counters import CATEGORIES, COUNTED, counted_value
from sonda.studies.figures.device import DEVICE, device_value
from sonda.studies.figures.ranks import PARALLEL, parallel_value
from sonda.studies.figures.serving import SERVING, serving_value
from sonda.studies.figures.serving import WHOLE_NAMES as SERVING_NAMES
from sonda.studies.figures.simulated import SIMULATED, simulated_value
from sonda.studies.figures.speedup import RELATIVE, RELATIVE_OF_ENERGY
from sonda.studies.figures.training import ENERGY, FROM_ENERGY_RUNS, TRAINED, energy_value, trained_value

UNITS = {
    "ns": ("ns", "ns", 1.0),
    "us": ("µs", "ns", 1e3),
    "ms": ("ms", "ns", 1e6),
    "s": ("s", "ns", 1e9),
    "min": ("min", "ns", 60e9),
    "h": ("h", "ns", 3600e9),
    "nJ": ("nJ", "J", 1e-9),
    "uJ": ("µJ", "J", 1e-6),
    "mJ": ("mJ", "J", 1e-3),
    "J": ("J", "J", 1.0),
    "kJ": ("kJ", "J", 1e3),
    "MJ": ("MJ", "J", 1e6),
    "W": ("W", "W", 1.0),
    "Js": ("J·s", "J·s", 1.0),
    "kJs": ("kJ·s", "J·s", 1e3),
    "MJs": ("MJ·s", "J·s", 1e6),
    "B": ("B", "B", 1.0),
    "kB": ("kB", "B", 1e3),
    "MB": ("MB", "B", 1e6),
    "GB": ("GB", "B", 1e9),
    "GBps": ("GB/s", "B/s", 1e9),
    "MFLOP": ("MFLOP", "FLOP", 1e6),
    "GFLOP": ("GFLOP", "FLOP", 1e9),
    "percent": ("%", "1", 0.01),
    "cycles": ("cycles", "cycle", 1.0),
    "mm2": ("mm²", "mm2", 1.0),
}
"""Last word of a figure's name: its unit as shown, the unit in which Sonda keeps the quantity, how many it is."""

WHOLE_NAMES = {
    "mflops": ("achieved", "MFLOP/s", "FLOP/s", 1e6),
    "gflops": ("achieved", "GFLOP/s", "FLOP/s", 1e9),
    "tflops": ("achieved", "TFLOP/s", "FLOP/s", 1e12),
    "counted_mflops": ("counted_rate", "MFLOP/s", "FLOP/s", 1e6),
    "counted_gflops": ("counted_rate", "GFLOP/s", "FLOP/s", 1e9),
    "samples_per_second": ("samples_per_second", "1/s", "1/s", 1.0),
    "tokens_per_second": ("tokens_per_second", "1/s", "1/s", 1.0),
    "intensity": ("intensity", "FLOP/B", "FLOP/B", 1.0),
    "cycles": ("cycles", "cycles", "cycle", 1.0),
    **SERVING_NAMES,
}
"""Figures whose name does not end in a unit."""

USUAL = ("step_ms", "samples_per_second", "gflops", "roof_percent", "peak_memory_MB")
"""What a study's table shows when its file does not say."""
USUAL_SIMULATED = ("cycles", "utilisation_percent", "energy_uJ")
"""The same where all is simulated: accelerators need not have a clock, and have no ceilings."""


@dataclass(frozen=True)
class TableFigure:
    """A column of a study's table. One `unit` is `factor` of the `base` unit in which the metric is kept."""

    key: str
    metric: str
    unit: str
    base: str
    factor: float
    path: str = ""
    """The module that it is of; empty for the whole step. Of a relative figure, the variant that it is held against."""

    @property
    def measurable(self) -> bool:
        return self.metric in PLACED or self.relative or (self.metric in METRICS and not self.path)

    @property
    def unmeasurable(self) -> str:
        """Why no run has it."""
        return f"Sonda does not measure {figure_words(self.key, self.unit)}"

    @property
    def relative(self) -> bool:
        """Whether it is of one configuration against another, so that no run has it by itself."""
        return self.metric in RELATIVE

    @property
    def of_energy(self) -> bool:
        """Whether energy runs tell it, where they are kept apart from timing runs."""
        return self.metric in FROM_ENERGY_RUNS or self.metric in RELATIVE_OF_ENERGY

    @property
    def mistake(self) -> str:
        """Why the figure cannot mean what it says; empty where it can."""
        if self.path and self.metric in METRICS and not self.measurable:
            return f"{self.metric} is kept of a whole step only; leave out @{self.path}"
        unit = _unit(self.metric) if self.measurable else self.base
        return "" if unit == self.base else f"{self.metric} is kept in {unit}, which {self.unit or '1'} is not"

    def value_of(self, summary: Summary) -> Value:
        """Its value in a run, in the figure's unit; missing with a reason where the run does not have it."""
        if not self.measurable:
            return Value(None, self.unit, "measured", reason=self.unmeasurable)
        if self.relative:
            return Value(None, self.unit, "derived", reason=reasons.NO_BASE)
        if not summary.parts and self.metric not in WITHOUT_STEPS:
            reason = reasons.NO_STEPS if summary.corun is None else reasons.NOT_SIDE_BY_SIDE
            return Value(None, self.unit, "measured", reason=reason)
        if self.metric in PLACED:
            raw = PLACED[self.metric][1](summary, self.metric, self.path)
        else:
            raw = METRICS[self.metric][1](summary)
        if raw.value is None:
            return Value(None, self.unit, raw.source, reason=raw.reason or reasons.NO_METRIC.format(self.metric))
        return self.to_unit(self._within_bounds(raw))

    def _within_bounds(self, raw: Value) -> Value:
        if self.metric in OF_CEILINGS:
            return BoundedRatio(raw, doubt=CEILINGS).value(OF_CEILINGS[self.metric])
        return BoundedRatio(raw).value(reasons.MORE_THAN_ALL) if self.metric in PARTS_OF_ALL else raw

    @property
    def most(self) -> float | None:
        """What it cannot be larger than, in its unit; None where nothing bounds it."""
        return 1.0 / self.factor if self.metric in OF_CEILINGS or self.metric in PARTS_OF_ALL else None

    def to_unit(self, raw: Value) -> Value:
        """A value that Sonda keeps, in the figure's unit."""
        if raw.value is None:
            return Value(None, self.unit, raw.source, reason=raw.reason)
        low, high = (None if end is None else end / self.factor for end in (raw.low, raw.high))
        return Value(raw.value / self.factor, self.unit, raw.source, low, high, raw.reason, bounds=raw.bounds)


def parse_figure(key: str) -> TableFigure:
    """The figure that a name with its unit stands for; a name without a known unit is a plain number."""
    whole, _, path = key.partition("@")
    if whole in WHOLE_NAMES:
        return TableFigure(key, *WHOLE_NAMES[whole], path)
    name, _, word = whole.rpartition("_")
    if name and word in UNITS:
        return TableFigure(key, name, *UNITS[word], path)
    return TableFigure(key, whole, "", "1", 1.0, path)


def figure_names() -> list[str]:
    """The names of all figures of a whole step, in every unit that they may have."""
    names = [*METRICS, *PLACED, *RELATIVE]
    plain = [name for name in names if _unit(name) == "1"]
    return [
        *WHOLE_NAMES,
        *plain,
        *(f"{name}_{word}" for name in names for word in UNITS if UNITS[word][1] == _unit(name)),
    ]


def _flops(summary: Summary) -> Value:
    return _total("FLOP", "FLOPs", [phase.cost.flops for phase in summary.parts[0].phases])


def _bytes(summary: Summary) -> Value:
    return _total("B", "bytes", [phase.cost.bytes for phase in summary.parts[0].phases])


def _achieved(summary: Summary) -> Value:
    return _quotient("FLOP/s", _flops(summary), summary.parts[0].step, 1e9)


def _bandwidth(summary: Summary) -> Value:
    return _quotient("B/s", _bytes(summary), summary.parts[0].step, 1e9)


def _intensity(summary: Summary) -> Value:
    return arithmetic_intensity(_flops(summary), _bytes(summary))


def _efficiency(summary: Summary) -> Value:
    """FLOP/s achieved over the peak that this machine reached when its ceilings were measured."""
    peak = summary.ceilings.get("flops")
    if not isinstance(peak, Value):
        return Value(None, "1", "derived", reason=str(summary.ceilings.get("reason", reasons.NO_PEAK_AT_ALL)))
    return _quotient("1", _achieved(summary), peak, 1.0)


def _roof(summary: Summary) -> Value:
    """Time that the ceilings allow for all phases that have a roof, over the time these took."""
    pairs = [
        (phase.cost.roof.value, phase.cost.time.value)
        for phase in summary.parts[0].phases
        if phase.cost.roof.value is not None and phase.cost.time.value
    ]
    if not pairs:
        known_reasons = (phase.cost.roof.reason for phase in summary.parts[0].phases if phase.cost.roof.reason)
        return Value(None, "1", "derived", reason=next(known_reasons, reasons.NO_PHASE_HAS_ROOF))
    return Value(sum(roof * time for roof, time in pairs) / sum(time for _, time in pairs), "1", "derived")


def _peak_memory(summary: Summary) -> Value:
    known = [phase.peak_memory for phase in summary.parts[0].phases if phase.peak_memory.value is not None]
    if not known:
        known_reasons = (phase.peak_memory.reason for phase in summary.parts[0].phases if phase.peak_memory.reason)
        return Value(None, "B", "counted", reason=next(known_reasons, reasons.NO_MEMORY))
    return max(known, key=lambda value: value.value or 0.0)


def _phase_time(name: str) -> Callable[[Summary], Value]:
    def time(summary: Summary) -> Value:
        for phase in summary.parts[0].phases:
            if phase.name == name:
                return phase.cost.time
        return Value(None, "ns", "measured", reason=reasons.NO_PHASE.format(name))

    return time


def _area(summary: Summary) -> Value:
    """Of the simulated engines that worked and of the global buffer that they share."""
    area = summary.target.area if isinstance(summary.target, SimulatedTarget) else None
    if area is None or area.together is None:
        return Value(None, "mm2", "simulated", reason=reasons.NOT_SIMULATED)
    together = area.together
    if together.value is None:
        return Value(None, "mm2", "simulated", reason=together.reason or "")
    return Value(together.value, "mm2", "simulated", together.low, together.high, bounds=TABLES)


METRICS: dict[str, tuple[str, Callable[[Summary], Value]]] = {
    "step": ("ns", lambda summary: summary.parts[0].step),
    "samples_per_second": ("1/s", lambda summary: summary.parts[0].samples_per_second),
    "tokens_per_second": ("1/s", lambda summary: summary.parts[0].tokens_per_second),
    "flops": ("FLOP", _flops),
    "bytes": ("B", _bytes),
    "achieved": ("FLOP/s", _achieved),
    "bandwidth": ("B/s", _bandwidth),
    "intensity": ("FLOP/B", _intensity),
    "efficiency": ("1", _efficiency),
    "roof": ("1", _roof),
    "peak_memory": ("B", _peak_memory),
    "area": ("mm2", _area),
    **{name: ("ns", _phase_time(name)) for name in PHASES},
}
"""What can be read off a run's summary (its first part): the unit in which it is kept, and how. Areas apart, all are
per step."""

Placed = Callable[[Summary, str, str], Value]
PLACED: dict[str, tuple[str, Placed]] = {
    **{name: (unit, simulated_value) for name, (unit, _) in SIMULATED.items()},
    **{name: (unit, counted_value) for name, (unit, _) in COUNTED.items()},
    **{name: (unit, device_value) for name, (unit, _) in DEVICE.items()},
    **{name: (unit, breakdown_value) for name, (unit, _) in BREAKDOWN.items()},
    **{name: (unit, modelled_value) for name, (unit, _) in MODELLED.items()},
    **{name: (unit, corun_value) for name, (unit, _) in CORUN.items()},
    **{name: (unit, serving_value) for name, (unit, _) in SERVING.items()},
    **{name: (unit, trained_value) for name, (unit, _) in TRAINED.items()},
    **{name: (unit, parallel_value) for name, (unit, _) in PARALLEL.items()},
    **{name: (unit, energy_value) for name, unit in ENERGY.items()},
}
"""What may be read at a place: of a phase, a module, a size of cache. The unit in which it is kept, and how."""

OF_CEILINGS = {
    "roof": reasons.ABOVE_ROOF,
    "efficiency": reasons.ABOVE_PEAK,
    "peak": reasons.KERNELS_ABOVE_PEAK,
    "theory": reasons.KERNELS_ABOVE_THEORY,
}
"""Parts of a ceiling, and why one is not shown that is above it."""
PARTS_OF_ALL = {
    "share", "utilisation", "stall", "busy", "late", "on_device", "on_host", "samples_share", "modelled_share",
    "accuracy", "validation_accuracy", "best_accuracy", "fairness", *CATEGORIES,
}  # fmt: skip
"""Parts of a whole, 0 to 1."""

WITHOUT_STEPS = {*CORUN, *SERVING, *TRAINED, *PARALLEL, *ENERGY}
"""What a run may have in which no step was seen."""


def _unit(metric: str) -> str:
    if metric in RELATIVE:
        return RELATIVE[metric][0]
    return PLACED[metric][0] if metric in PLACED else METRICS[metric][0]


def _total(unit: str, what: str, values: Iterable[Value]) -> Value:
    values = list(values)
    known = [value for value in values if value.value is not None]
    if not known:
        known_reasons = (value.reason for value in values if value.reason)
        return Value(None, unit, "derived", reason=next(known_reasons, reasons.WERE_NOT_COUNTED.format(what)))
    sources = {value.source for value in known}
    return Value(sum(v.value or 0.0 for v in known), unit, sources.pop() if len(sources) == 1 else "derived")


def _quotient(unit: str, above: Value, below: Value, factor: float) -> Value:
    if above.value is None or not below.value:
        return Value(None, unit, "derived", reason=above.reason or below.reason or reasons.NOTHING_TO_DIVIDE_BY)
    low, high = (None if end is None else factor * end / below.value for end in (above.low, above.high))
    if low is None and below.low and below.high:  # what is divided by a time is as sure as the time
        low, high = factor * above.value / below.high, factor * above.value / below.low
    return Value(factor * above.value / below.value, unit, "derived", low, high)
