"""The summary of a simulated run: cycles in place of times, and what the cycles were spent on."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sonda.analysis import wording
from sonda.analysis.costs import missing
from sonda.analysis.summary import Cost, LayerRow, PartSummary, PhaseRow, Simulated, Summary, Value, Verdict
from sonda.analysis.tree import PathTree
from sonda.record.quantity import Metric
from sonda.record.run import Run
from sonda.record.span import PHASES, Spans

STACK = ("distribution", "compute", "reduction", "writeback", "configuration")
"""What cycles are spent on, in the order in which an operation walks through it."""
COLUMNS = (
    "cycles:simulated", *(f"{part}_cycles:simulated" for part in STACK), "buffer_reads:simulated",
    "buffer_writes:simulated", "multiplications:simulated", "multiplier_cycles:simulated", "flops:nominal",
)  # fmt: skip
CYCLES, FLOPS = COLUMNS.index("cycles:simulated"), COLUMNS.index("flops:nominal")
NO_BYTES = "bytes of the memory behind the buffer are not simulated"
NO_ROOF = "a simulated accelerator has no measured ceilings"
ON_HOST = "it runs on the host"


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
    description = info.target.get("description") or {}
    mappings: dict[str, list[str]] = {}
    for entry in info.target.get("mapping") or ():
        words = mappings.setdefault(str(entry.get("path", "")), [])
        if entry.get("words") and entry["words"] not in words:
            words.append(str(entry["words"]))
    part = _part(run.spans, description, mappings, info.workload)
    return Summary(
        run=info.id,
        title=title,
        subtitle=_subtitle(description, part),
        status=info.status,
        parts=(part,),
        verdicts=(_verdict(part, str(description.get("name", ""))),),
        warnings=tuple(info.disturbed),
        ceilings={"reason": NO_ROOF},
        notes=tuple(info.notes),
        workload=dict(info.workload),
        target=dict(info.target),
        machine=dict(info.machine),
    )


def _part(spans: Spans, description: dict[str, Any], mappings: dict[str, list[str]], workload: Any) -> PartSummary:
    table = np.nan_to_num(np.column_stack([spans.metric(*column.split(":")) for column in COLUMNS]))
    kind, name = spans.words("kind").decoded(), spans.words("name").decoded()
    steps = np.flatnonzero(kind == "step")
    whole = table[steps].sum(axis=0) if len(steps) else np.zeros(len(COLUMNS))
    scale = _Scale(whole[CYCLES], description.get("clock_hz"), str(description.get("name", "the accelerator")))
    phases = []
    rows = [row for row in np.flatnonzero(kind == "phase") if table[row, CYCLES]]
    for row in sorted(rows, key=lambda row: PHASES.index(name[row]) if name[row] in PHASES else len(PHASES)):
        counters = {
            column: Value(float(table[row, at]), Metric.parse(column).unit, Metric.parse(column).source)
            for at, column in enumerate(COLUMNS)
            if at != FLOPS
        }
        absent = missing("B", "simulated", NO_BYTES)
        phases.append(PhaseRow(str(name[row]), scale.cost(table[row]), absent, counters, scale.simulated(table[row])))
    step = scale.time(whole[CYCLES])
    return PartSummary(
        name="test",
        step=step,
        steps=1,
        warmup=0,
        durations=(step.value,) if step.value is not None else (),
        noise=math.nan,
        samples_per_second=_rate(workload.get("samples"), step, "samples/s"),
        tokens_per_second=_rate(workload.get("tokens"), step, "tokens/s"),
        phases=tuple(phases),
        layers=_layers(spans, table, kind, name, scale, mappings),
        phase_steps={row.name: (row.cost.time.value,) for row in phases if row.cost.time.value is not None},
        simulated=scale.simulated(whole),
    )


def _rate(amount: Any, step: Value, unit: str) -> Value:
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
            activations=missing("B", "simulated", NO_BYTES),
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
        return Cost(
            time=time,
            share=share,
            flops=flops,
            bytes=missing("B", "simulated", NO_BYTES),
            achieved=achieved,
            bandwidth=missing("B/s", "derived", NO_BYTES),
            roof=absent,
            bound=simulated.bound if simulated else "",
            operations=missing("1", "counted", "operations of the host are listed by name"),
        )

    def simulated(self, sums: np.ndarray, mapping: tuple[str, ...] = ()) -> Simulated | None:
        """None where nothing ran on an engine."""
        if not sums[CYCLES]:
            return None
        values = dict(zip(COLUMNS, (float(one) for one in sums), strict=True))
        stack = {part: Value(values[f"{part}_cycles:simulated"], "cycle", "simulated") for part in STACK}
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
            mapping=mapping,
        )


def _subtitle(description: dict[str, Any], part: PartSummary) -> str:
    engines = []
    for engine in (description.get("engines") or {}).values():
        hardware = engine.get("hardware") or {}
        rows, columns = hardware.get("rows", 0), hardware.get("columns", 0)
        size = f"{rows}x{columns}" if rows else f"{hardware.get('multipliers', 0)} multipliers"
        engines.append(f"{str(engine.get('kind', '')).replace('_', ' ')}, {size}")
    clock = description.get("clock_hz")
    speed = f" at {clock / 1e9:g} GHz" if clock else ""
    sections = [f"simulated {description.get('name', 'accelerator')}: {'; '.join(engines)}{speed}"]
    if part.simulated is not None and part.simulated.cycles.value is not None:
        sections.append(wording.plural(part.simulated.cycles.value, "cycle"))
    return " · ".join(sections)


def _verdict(part: PartSummary, accelerator: str) -> Verdict:
    """The family of layers that takes most cycles, and what most of its cycles are spent on."""
    families: dict[str, list[Simulated]] = {}
    for row in part.layers:
        if row.own_simulated is not None:
            families.setdefault(wording.family(row.name), []).append(row.own_simulated)
    whole = part.simulated
    if whole is None or not families:
        return Verdict("none", f"Nothing to judge: no operation ran on an engine of {accelerator}.", {})
    name, members = max(families.items(), key=lambda item: sum(one.share for one in item[1]))
    share = sum(one.share for one in members)
    cycles = sum(one.cycles.value or 0.0 for one in members)
    stack = {part: sum(one.stack[part].value or 0.0 for one in members) for part in members[0].stack}
    bound = max(stack, key=lambda part: stack[part])
    busy = sum(one.multiplications.value or 0.0 for one in members)
    room = sum((one.multiplications.value or 0.0) / (one.utilisation.value or 1.0) for one in members)
    evidence = {
        "share": Value(share, "1", "derived"),
        "spent": Value(stack[bound] / cycles, "1", "derived"),
        "utilisation": Value(busy / room if room else 0.0, "1", "derived"),
        "cycles": whole.cycles,
    }
    sentence = (
        f"{bound.capitalize()}-bound in the {name}: {wording.percent(share)} of "
        f"{wording.plural(whole.cycles.value or 0.0, 'cycle')}, {wording.percent(stack[bound] / cycles)} of them "
        f"{SPENT[bound]}; the multipliers are busy {wording.percent(evidence['utilisation'].value or 0.0)} of the time."
    )
    return Verdict(bound, sentence, evidence, (), share)


SPENT = {
    "distribution": "spent bringing operands to the multipliers",
    "compute": "spent multiplying",
    "reduction": "spent adding up products",
    "writeback": "spent writing results back",
    "configuration": "spent setting the engine up",
}
