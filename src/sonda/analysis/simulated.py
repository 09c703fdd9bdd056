"""The summary of a simulated run: cycles in place of times, and what the cycles were spent on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sonda.analysis import wording
from sonda.analysis.costs import missing
from sonda.analysis.simulated_energy import energy_notes, energy_warnings
from sonda.analysis.simulated_roofs import NO_ROOF, simulated_roofs
from sonda.analysis.simulated_verdict import verdict_of, what_if_notes
from sonda.analysis.summary import TABLES, Cost, LayerRow, PartSummary, PhaseRow, Simulated, Summary, Traffic, Value
from sonda.analysis.tree import PathTree
from sonda.record.quantity import CYCLE_STACK, Metric
from sonda.record.run import Run
from sonda.record.span import Spans, phase_order

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
NO_BYTES = "the global buffer is unlimited, so no memory is behind it"
NO_ACTIVATIONS = "memory of activations is not simulated"
NO_ENERGY = "the run holds no energy"
ON_HOST = "it runs on the host"
ENGINES_ONLY = "some operations run on the host, whose time is not simulated"


@dataclass
class _Layer:
    """Sums over the calls of one module."""

    name: str
    calls: int = 0
    total: np.ndarray = field(default_factory=lambda: np.zeros(len(COLUMNS)))
    own: np.ndarray = field(default_factory=lambda: np.zeros(len(COLUMNS)))


def summarise_simulated(run: Run, title: str) -> Summary:
    """What a simulated run means, as plain data."""
    info = run.info
    mappings: dict[str, list[str]] = {}
    for entry in info.target.get("mapping") or ():
        words = mappings.setdefault(str(entry.get("path", "")), [])
        if entry.get("words") and entry["words"] not in words:
            words.append(str(entry["words"]))
    part = _part(run.spans, info.target, mappings, info.workload)
    cycles = (part.simulated.cycles.value or 0.0) if part.simulated else 0.0
    return Summary(
        run=info.id,
        title=title,
        subtitle=_subtitle(info.target, part),
        status=info.status,
        parts=(part,),
        verdicts=(verdict_of(part, info.target),),
        warnings=(*info.disturbed, *energy_warnings(info.target)),
        ceilings=simulated_roofs(info.target.get("description") or {}),
        notes=(*info.notes, *what_if_notes(info.target, cycles), *energy_notes(info.target)),
        workload=dict(info.workload),
        target=dict(info.target),
        machine=dict(info.machine),
    )


def _part(spans: Spans, target: Mapping[str, Any], mappings: dict[str, list[str]], workload: Any) -> PartSummary:
    description = target.get("description") or {}
    table = _sums(spans)
    kind, name = spans.words("kind").decoded(), spans.words("name").decoded()
    steps = np.flatnonzero(kind == "step")
    whole = table[steps].sum(axis=0) if len(steps) else np.zeros(len(COLUMNS))
    scale = _Scale(
        cycles=whole[CYCLES],
        clock_hz=description.get("clock_hz"),
        accelerator=str(description.get("name", "the accelerator")),
        finite=f"{MEMORY}_cycles:simulated" in spans.metrics,
        no_energy=str((target.get("energy") or {}).get("reason") or NO_ENERGY),
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
        absent = missing("B", "simulated", NO_ACTIVATIONS)
        phases.append(PhaseRow(str(name[row]), scale.cost(table[row]), absent, counters, simulated))
    step = scale.time(whole[CYCLES])
    return PartSummary(
        name="test",
        step=step,
        steps=1,
        warmup=0,
        durations=(step.value,) if step.value is not None else (),
        noise=math.nan,
        samples_per_second=_rate(workload.get("samples"), step, "samples/s", target),
        tokens_per_second=_rate(workload.get("tokens"), step, "tokens/s", target),
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


def _rate(amount: Any, step: Value, unit: str, target: Mapping[str, Any]) -> Value:
    if target.get("host"):
        return missing(unit, "derived", ENGINES_ONLY)
    if not amount:
        return missing(unit, "derived", f"it is not known how many {unit.removesuffix('/s')} a step processes")
    if not step.value:
        return missing(unit, "derived", step.reason)
    return Value(float(amount) / step.value * 1e9, unit, "derived")


def _layers(
    spans: Spans, table: np.ndarray, kind: np.ndarray, name: np.ndarray, scale: _Scale, mappings: dict[str, list[str]]
) -> tuple[LayerRow, ...]:
    path, parent = spans.words("path").decoded(), spans.number("parent")
    found: dict[str, _Layer] = {}
    for row in np.flatnonzero(kind == "layer"):
        layer = found.setdefault(str(path[row]), _Layer(str(name[row])))
        layer.calls += 1
        outer = parent[row]
        if not (outer >= 0 and kind[outer] == "layer" and path[outer] == path[row]):
            layer.total += table[row]
    for row in np.flatnonzero(kind == "op"):
        outer = parent[row]
        if outer >= 0 and kind[outer] == "layer":
            found[str(path[outer])].own += table[row]
    tree = PathTree(tuple(found))
    return tuple(
        LayerRow(
            path=where,
            name=layer.name,
            depth=int(tree.depth[index]),
            leaf=bool(tree.leaf[index]),
            calls=layer.calls,
            forward=scale.time(layer.total[CYCLES]),
            backward=missing("ns", "simulated", "only inference is simulated"),
            own=scale.time(layer.own[CYCLES]),
            cost=scale.cost(layer.total),
            activations=missing("B", "simulated", NO_ACTIVATIONS),
            own_cost=scale.cost(layer.own),
            simulated=scale.simulated(layer.total),
            own_simulated=scale.simulated(layer.own, tuple(mappings.get(where, ()))),
        )
        for index, (where, layer) in enumerate(found.items())
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
            return missing("ns", "simulated", ON_HOST)
        if not self.clock_hz:
            return missing("ns", "simulated", f"the description of {self.accelerator} gives no clock")
        return Value(float(cycles) / self.clock_hz * 1e9, "ns", "simulated")

    def cost(self, sums: np.ndarray) -> Cost:
        time = self.time(sums[CYCLES])
        share = float(sums[CYCLES] / self.cycles) if self.cycles and sums[CYCLES] else math.nan
        absent = missing("1", "derived", NO_ROOF)
        flops = Value(float(sums[FLOPS]), "FLOP", "nominal") if sums[FLOPS] else missing("FLOP", "nominal", ON_HOST)
        achieved = missing("FLOP/s", "derived", time.reason)
        if time.value:
            achieved = Value(float(sums[FLOPS]) / time.value * 1e9, "FLOP/s", "derived")
        simulated = self.simulated(sums)
        moved = missing("B", "simulated", NO_BYTES)
        bandwidth = missing("B/s", "derived", NO_BYTES)
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
            operations=missing("1", "counted", "operations of the host are listed by name"),
        )

    def simulated(self, sums: np.ndarray, mapping: tuple[str, ...] = ()) -> Simulated | None:
        """None where nothing ran on an engine."""
        if not sums[CYCLES]:
            return None
        values = dict(zip(COLUMNS, (float(one) for one in sums), strict=True))
        parts = (*CYCLE_STACK, MEMORY) if self.finite else CYCLE_STACK
        stack = {part: Value(values[f"{part}_cycles:simulated"], "cycle", "simulated") for part in parts}
        return Simulated(
            cycles=Value(values["cycles:simulated"], "cycle", "simulated"),
            share=float(sums[CYCLES] / self.cycles),
            utilisation=Value(
                values["multiplications:simulated"] / values["multiplier_cycles:simulated"], "1", "derived"
            ),
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
    share = Value(hits / accesses, "1", "derived") if accesses else missing("1", "derived", "it did not access memory")
    return Traffic(
        reads=Value(reads, "B", "simulated"),
        writes=Value(writes, "B", "simulated"),
        row_hits=share,
        cold_misses=Value(cold, "1", "simulated"),
        capacity_misses=Value(again, "1", "simulated"),
    )


def engine_words(engine: Mapping[str, Any]) -> str:
    """`flexible dense, 256 multipliers`, `mesh, 16x16`, of an engine of a description."""
    hardware = engine.get("hardware") or {}
    rows, columns = hardware.get("rows", 0), hardware.get("columns", 0)
    size = f"{rows}x{columns}" if rows else f"{hardware.get('multipliers', 0)} multipliers"
    return f"{str(engine.get('kind', '')).replace('_', ' ')}, {size}"


def _subtitle(target: Mapping[str, Any], part: PartSummary) -> str:
    description = target.get("description") or {}
    engines = [engine_words(engine) for engine in (description.get("engines") or {}).values()]
    clock = description.get("clock_hz")
    speed = f" at {clock / 1e9:g} GHz" if clock else ""
    sections = [f"simulated {description.get('name', 'accelerator')}: {'; '.join(engines)}{speed}"]
    memory = description.get("memory")
    if memory:
        buffer = memory.get("buffer_bytes", 0) / 1024
        sections.append(f"buffer of {buffer:g} KiB, memory of {memory.get('bytes_per_cycle', 0):g} B/cycle")
    options = target.get("options") or {}
    if options.get("set"):
        sections.append(f"set {options['set']}")
    if options.get("mapping"):
        sections.append(f"mapping {options['mapping']}")
    if part.simulated is not None and part.simulated.cycles.value is not None:
        sections.append(wording.plural(part.simulated.cycles.value, "cycle"))
    return " · ".join(sections)
