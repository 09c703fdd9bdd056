"""The summary of a simulated run: cycles in place of times, and what the cycles were spent on."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sonda.analysis import reasons
from sonda.analysis.bounds import BoundedRatio
from sonda.analysis.findings import Remark
from sonda.analysis.simulated.energy import energy_notes, energy_warnings
from sonda.analysis.simulated.verdict import verdict_of, what_if_notes
from sonda.analysis.span_tree import PathTree
from sonda.analysis.steps.costs import missing
from sonda.analysis.summary import TABLES, Cost, LayerRow, PartSummary, PhaseRow, SimulatedCost, Summary, Traffic, Value
from sonda.analysis.titles import describe_simulated
from sonda.record.quantities import CYCLE_STACK, Metric
from sonda.record.run import Run
from sonda.record.simulated import DescribedAccelerator
from sonda.record.spans import Spans, phase_order
from sonda.record.stored import Number
from sonda.record.target import SimulatedTarget
from sonda.record.workload import Workload

# ---- Ceilings of a simulated accelerator, from its description ------------------------------------------------------


def simulated_roofs(description: DescribedAccelerator | None) -> dict[str, Any]:
    """For `Summary.ceilings`: peak FLOP/s and bandwidth in theory, where the description gives a clock and a memory.

    Engines take turns, so the peak is that of the largest: two FLOP for each multiplier in each cycle.
    """
    roofs: dict[str, Any] = {"reason": reasons.SIMULATED_HAS_NO_ROOF}
    if description is None or not description.clock_hz:
        return roofs
    clock = description.clock_hz
    most = max((engine.hardware.elements for engine in description.engines.values()), default=0)
    if most:
        roofs["theoretical_flops"] = Value(2.0 * most * clock, "FLOP/s", "derived")
        roofs["theoretical_peak_is"] = f"2 FLOP x {most:,} multipliers x {clock / 1e9:g} GHz"
    memory = description.memory
    if memory is not None and memory.bytes_per_cycle:
        roofs["theoretical_dram_bandwidth"] = Value(float(memory.bytes_per_cycle) * clock, "B/s", "derived")
    return roofs


# ----------------------------------------------------------------------------------------------------------------------

MEMORY = "memory"
"""The further part of the stack where the global buffer is finite."""
ENERGY = ("energy:simulated", "energy_low:simulated", "energy_high:simulated")
TRAFFIC = (
    "dram_read_bytes:simulated", "dram_write_bytes:simulated", "row_hits:simulated", "row_misses:simulated",
    "cold_misses:simulated", "capacity_misses:simulated",
)  # fmt: skip
WANTED = "dram_wanted_bytes:simulated"
COLUMNS = (
    "cycles:simulated", *(f"{part}_cycles:simulated" for part in (*CYCLE_STACK, MEMORY)), "buffer_reads:simulated",
    "buffer_writes:simulated", "multiplications:simulated", "multiplier_cycles:simulated", *TRAFFIC, WANTED, *ENERGY,
    "flops:nominal",
)  # fmt: skip
FINITE_ONLY = frozenset({f"{MEMORY}_cycles:simulated", *TRAFFIC, WANTED})
"""Columns of runs whose global buffer is finite."""
CYCLES, FLOPS = COLUMNS.index("cycles:simulated"), COLUMNS.index("flops:nominal")


@dataclass
class _Layer:
    """Sums over the calls of one module."""

    name: str
    calls: int = 0
    total: np.ndarray = field(default_factory=lambda: np.zeros(len(COLUMNS)))
    own: np.ndarray = field(default_factory=lambda: np.zeros(len(COLUMNS)))


def summarise_simulated(run: Run, target: SimulatedTarget, title: str) -> Summary:
    """What a simulated run means, as plain data."""
    info = run.info
    mappings: dict[str, list[str]] = {}
    for operation in target.mapping or ():
        words = mappings.setdefault(operation.path, [])
        if operation.words and operation.words not in words:
            words.append(operation.words)
    part = _part(run.spans, target, mappings, info.workload)
    cycles = (part.simulated.cycles.value or 0.0) if part.simulated else 0.0
    return Summary(
        run=info.id,
        title=title,
        subtitle=describe_simulated(target, part),
        status=info.status,
        parts=(part,),
        verdicts=(verdict_of(part, target),),
        warnings=(*map(Remark, info.disturbed), *energy_warnings(target)),
        ceilings=simulated_roofs(target.description),
        notes=(*map(Remark, info.notes), *what_if_notes(target, cycles), *energy_notes(target)),
        workload=info.workload,
        target=info.target,
        machine=info.machine,
    )


def _part(spans: Spans, target: SimulatedTarget, mappings: dict[str, list[str]], workload: Workload) -> PartSummary:
    description = target.description
    table = _sums(spans)
    kind, name = spans.words("kind").decoded(), spans.words("name").decoded()
    steps = np.flatnonzero(kind == "step")
    whole = table[steps].sum(axis=0) if len(steps) else np.zeros(len(COLUMNS))
    scale = _Scale(
        cycles=whole[CYCLES],
        clock_hz=description.clock_hz if description is not None else None,
        accelerator=description.name if description is not None else "the accelerator",
        finite=f"{MEMORY}_cycles:simulated" in spans.metrics,
        no_energy=(target.energy.reason if target.energy is not None else "") or reasons.NO_ENERGY_HELD,
    )
    phases = []
    rows = [row for row in np.flatnonzero(kind == "phase") if table[row, CYCLES]]
    for row in sorted(rows, key=lambda row: phase_order(str(name[row]))):
        simulated = scale.simulated(table[row])
        counters = {
            column: Value(float(table[row, at]), Metric.parse(column).unit, Metric.parse(column).source)
            for at, column in enumerate(COLUMNS)
            if at != FLOPS and column not in ENERGY and (scale.finite or column not in FINITE_ONLY)
        }
        absent = missing("B", "simulated", reasons.ACTIVATIONS_NOT_SIMULATED)
        phases.append(PhaseRow(str(name[row]), scale.cost(table[row]), absent, counters, simulated))
    step = scale.time(whole[CYCLES])
    return PartSummary(
        name="test",
        step=step,
        steps=1,
        warmup=0,
        durations=(step.value,) if step.value is not None else (),
        noise=math.nan,
        samples_per_second=_rate(workload.samples, step, "samples/s", target),
        tokens_per_second=_rate(workload.tokens, step, "tokens/s", target),
        phases=tuple(phases),
        layers=_layers(spans, table, kind, name, scale, mappings),
        phase_steps={row.name: (row.cost.time.value,) for row in phases if row.cost.time.value is not None},
        simulated=scale.simulated(whole),
    )


def _sums(spans: Spans) -> np.ndarray:
    """The columns of every span: 0 where nothing ran on an engine, but an energy that is missing stays so."""
    table = np.column_stack([spans.metric(*column.split(":")) for column in COLUMNS])
    unknown = np.isnan(table)
    ran = ~unknown[:, [CYCLES]]
    unknown[:, [COLUMNS.index(column) for column in ENERGY]] &= ~ran
    table[unknown] = 0.0
    return table


def _rate(amount: Number | None, step: Value, unit: str, target: SimulatedTarget) -> Value:
    if target.host:
        return missing(unit, "derived", reasons.PARTLY_ON_HOST)
    if not amount:
        return missing(unit, "derived", reasons.AMOUNT_UNKNOWN.format(unit.removesuffix("/s")))
    if not step.value:
        return missing(unit, "derived", step.reason)
    return Value(float(amount) / step.value * 1e9, unit, "derived")


def _layers(
    spans: Spans, table: np.ndarray, kind: np.ndarray, name: np.ndarray, scale: _Scale, mappings: dict[str, list[str]]
) -> tuple[LayerRow, ...]:
    path, parent = spans.words("path").decoded(), spans.number("parent")
    layers: dict[str, _Layer] = {}
    for row in np.flatnonzero(kind == "layer"):
        layer = layers.setdefault(str(path[row]), _Layer(str(name[row])))
        layer.calls += 1
        outer = parent[row]
        if not (outer >= 0 and kind[outer] == "layer" and path[outer] == path[row]):
            layer.total += table[row]
    for row in np.flatnonzero(kind == "op"):
        outer = parent[row]
        if outer >= 0 and kind[outer] == "layer":
            layers[str(path[outer])].own += table[row]
    tree = PathTree(tuple(layers))
    return tuple(
        LayerRow(
            path=where,
            name=layer.name,
            depth=int(tree.depth[index]),
            leaf=bool(tree.leaf[index]),
            calls=layer.calls,
            forward=scale.time(layer.total[CYCLES]),
            backward=missing("ns", "simulated", reasons.ONLY_INFERENCE),
            own=scale.time(layer.own[CYCLES]),
            cost=scale.cost(layer.total),
            activations=missing("B", "simulated", reasons.ACTIVATIONS_NOT_SIMULATED),
            own_cost=scale.cost(layer.own),
            simulated=scale.simulated(layer.total),
            own_simulated=scale.simulated(layer.own, tuple(mappings.get(where, ()))),
        )
        for index, (where, layer) in enumerate(layers.items())
    )


@dataclass(frozen=True)
class _Scale:
    """What the sums of a part are held against."""

    cycles: float
    """Of the whole step."""
    clock_hz: float | None
    accelerator: str
    finite: bool
    """Whether a memory stands behind the global buffer."""
    no_energy: str
    """Why there is none, where there is none."""

    def time(self, cycles: float) -> Value:
        """Cycles at the described clock."""
        if not cycles:
            return missing("ns", "simulated", reasons.ON_HOST)
        if not self.clock_hz:
            return missing("ns", "simulated", reasons.NO_CLOCK.format(self.accelerator))
        return Value(float(cycles) / self.clock_hz * 1e9, "ns", "simulated")

    def cost(self, sums: np.ndarray) -> Cost:
        time = self.time(sums[CYCLES])
        share = float(sums[CYCLES] / self.cycles) if self.cycles and sums[CYCLES] else math.nan
        absent = missing("1", "derived", reasons.SIMULATED_HAS_NO_ROOF)
        flops = (
            Value(float(sums[FLOPS]), "FLOP", "nominal") if sums[FLOPS] else missing("FLOP", "nominal", reasons.ON_HOST)
        )
        achieved = missing("FLOP/s", "derived", time.reason)
        if time.value:
            achieved = Value(float(sums[FLOPS]) / time.value * 1e9, "FLOP/s", "derived")
        simulated = self.simulated(sums)
        moved = missing("B", "simulated", reasons.BUFFER_UNLIMITED)
        bandwidth = missing("B/s", "derived", reasons.BUFFER_UNLIMITED)
        if simulated is not None and simulated.traffic is not None:
            traffic = simulated.traffic
            moved = Value((traffic.reads.value or 0.0) + (traffic.writes.value or 0.0), "B", "simulated")
            bandwidth = missing("B/s", "derived", time.reason)
            if time.value:
                bandwidth = Value((moved.value or 0.0) / time.value * 1e9, "B/s", "derived")
        return Cost(
            time=time,
            share=share,
            flops=flops,
            bytes=moved,
            achieved=achieved,
            bandwidth=bandwidth,
            roof=absent,
            bound=simulated.bound if simulated else "",
            operations=missing("1", "counted", reasons.HOST_LISTED_BY_NAME),
        )

    def simulated(self, sums: np.ndarray, mapping: tuple[str, ...] = ()) -> SimulatedCost | None:
        """None where nothing ran on an engine."""
        if not sums[CYCLES]:
            return None
        values = dict(zip(COLUMNS, (float(total) for total in sums), strict=True))
        parts = (*CYCLE_STACK, MEMORY) if self.finite else CYCLE_STACK
        stack = {part: Value(values[f"{part}_cycles:simulated"], "cycle", "simulated") for part in parts}
        return SimulatedCost(
            cycles=Value(values["cycles:simulated"], "cycle", "simulated"),
            share=float(sums[CYCLES] / self.cycles),
            utilisation=BoundedRatio(
                Value(values["multiplications:simulated"] / values["multiplier_cycles:simulated"], "1", "derived")
            ).value(reasons.MORE_PRODUCTS),
            reads=Value(values["buffer_reads:simulated"], "1", "simulated"),
            writes=Value(values["buffer_writes:simulated"], "1", "simulated"),
            multiplications=Value(values["multiplications:simulated"], "1", "simulated"),
            stack=stack,
            bound=max(stack, key=lambda part: stack[part].value or 0.0),
            energy=self._energy(values),
            traffic=_traffic(values) if self.finite else None,
            mapping=mapping,
            possible=values["multiplier_cycles:simulated"],
        )

    def _energy(self, values: dict[str, float]) -> Value:
        value, low, high = (values[column] for column in ENERGY)
        if math.isnan(value):
            return missing("J", "simulated", self.no_energy)
        return Value(value, "J", "simulated", low, high, bounds=TABLES)


def _traffic(values: dict[str, float]) -> Traffic:
    reads, writes, hits, misses, cold, again = (values[column] for column in TRAFFIC)
    accesses = hits + misses
    share = Value(hits / accesses, "1", "derived") if accesses else missing("1", "derived", reasons.MEMORY_NOT_ACCESSED)
    return Traffic(
        reads=Value(reads, "B", "simulated"),
        writes=Value(writes, "B", "simulated"),
        row_hits=share,
        cold_misses=Value(cold, "1", "simulated"),
        capacity_misses=Value(again, "1", "simulated"),
    )
