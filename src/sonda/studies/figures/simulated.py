"""What a study's table can show of a simulated run: of its whole step, or of the modules at and below a path."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sonda.analysis import reasons
from sonda.analysis.summary import PartSummary, SimulatedCost, Summary, Traffic, Value
from sonda.record.quantities import CYCLE_STACK


def simulated_value(summary: Summary, metric: str, path: str = "") -> Value:
    """A metric in the unit in which Sonda keeps it; missing with a reason where the run does not have it."""
    unit, read = SIMULATED[metric]
    part = summary.parts[0]
    if part.simulated is None:
        return Value(None, unit, "simulated", reason=reasons.NOT_SIMULATED)
    rows = [part.simulated] if not path else _at(part, path)
    if not rows:
        known = any(layer.path == path or layer.path.startswith(f"{path}.") for layer in part.layers)
        reason = reasons.NOTHING_ON_ENGINE.format(path) if known else reasons.NO_MODULE_NAMED.format(path)
        return Value(None, unit, "simulated", reason=reason)
    return read(rows)


def _at(part: PartSummary, path: str) -> list[SimulatedCost]:
    """The module at a path; where it is not called itself, such as a list of modules, those that are called below."""
    layers = [layer for layer in part.layers if layer.path == path]
    if not layers:
        below = [layer for layer in part.layers if layer.path.startswith(f"{path}.")]
        paths = {layer.path for layer in below}
        layers = [layer for layer in below if not any(layer.path.startswith(f"{parent}.") for parent in paths)]
    return [layer.simulated for layer in layers if layer.simulated is not None]


Read = Callable[[Sequence[SimulatedCost]], Value]


def _sum(values: Sequence[Value]) -> Value:
    """Their sum, with its bounds; missing where one of them is."""
    for value in values:
        if value.value is None:
            return value
    first = values[0]
    ends = [(value.low, value.high) for value in values]
    low = sum(low for low, _ in ends if low is not None) if all(low is not None for low, _ in ends) else None
    high = sum(high for _, high in ends if high is not None) if all(high is not None for _, high in ends) else None
    return Value(sum(value.value or 0.0 for value in values), first.unit, first.source, low, high, bounds=first.bounds)


def _sum_of(field: Callable[[SimulatedCost], Value]) -> Read:
    return lambda rows: _sum([field(row) for row in rows])


def _stack(name: str) -> Read:
    def read(rows: Sequence[SimulatedCost]) -> Value:
        reason = reasons.BUFFER_IS_UNLIMITED if name == "memory" else reasons.NO_CYCLES_ON.format(name)
        missing = Value(None, "cycle", "simulated", reason=reason)
        return _sum([row.stack.get(name, missing) for row in rows])

    return read


def _moved_bytes(unit: str, *fields: Callable[[Traffic], Value]) -> Read:
    """Between the buffer and the memory behind it."""

    def read(rows: Sequence[SimulatedCost]) -> Value:
        known = [row.traffic for row in rows if row.traffic is not None]
        if len(known) < len(rows):
            return Value(None, unit, "simulated", reason=reasons.BUFFER_IS_UNLIMITED)
        return _sum([field(traffic) for traffic in known for field in fields])

    return read


def _share(rows: Sequence[SimulatedCost]) -> Value:
    return Value(sum(row.share for row in rows), "1", "derived")


def _utilisation(rows: Sequence[SimulatedCost]) -> Value:
    """Products asked for over those that could have been computed, of several modules together."""
    done = _sum([row.multiplications for row in rows])
    possible = sum(row.possible for row in rows)
    if done.value is None or not possible:
        return Value(None, "1", "derived", reason=done.reason or reasons.NOTHING_MULTIPLIED)
    return Value(done.value / possible, "1", "derived")


SIMULATED: dict[str, tuple[str, Read]] = {
    "cycles": ("cycle", _sum_of(lambda row: row.cycles)),
    "share": ("1", _share),
    "utilisation": ("1", _utilisation),
    "reads": ("1", _sum_of(lambda row: row.reads)),
    "writes": ("1", _sum_of(lambda row: row.writes)),
    "multiplications": ("1", _sum_of(lambda row: row.multiplications)),
    **{name: ("cycle", _stack(name)) for name in (*CYCLE_STACK, "memory")},
    "energy": ("J", _sum_of(lambda row: row.energy)),
    "dram": ("B", _moved_bytes("B", lambda traffic: traffic.reads, lambda traffic: traffic.writes)),
    "dram_read": ("B", _moved_bytes("B", lambda traffic: traffic.reads)),
    "dram_write": ("B", _moved_bytes("B", lambda traffic: traffic.writes)),
    "cold_misses": ("1", _moved_bytes("1", lambda traffic: traffic.cold_misses)),
    "capacity_misses": ("1", _moved_bytes("1", lambda traffic: traffic.capacity_misses)),
}
"""Metrics of a simulated step: the unit in which each is kept, and how it is read off one or several modules."""
