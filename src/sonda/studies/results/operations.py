"""Points of a study of operations: one for each operation, size, framework and device, whatever ran in one process.

A run of `ops` may hold several operations, each a layer. On a GPU the time of an operation is that of its kernels, on a
processor that of its layer.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sonda.analysis import reasons
from sonda.analysis.bounds import CEILINGS, BoundedRatio
from sonda.analysis.device.stalls import top_stall
from sonda.analysis.summary import LayerRow, Summary, Value
from sonda.record.run import Run
from sonda.studies.figures.device import counted_places, why_not_counted
from sonda.studies.file.study import Published
from sonda.workloads.description import SIZE
from sonda.workloads.operations.ops import STUDIED

WORKLOAD = "ops"
MOST_STALLS = 3
BEYOND = {
    "of_peak": reasons.ABOVE_PEAK,
    "of_theory": reasons.ABOVE_THEORY,
    "of_memory": reasons.ABOVE_MEMORY,
}
"""Why a share of a ceiling is not shown."""


@dataclass(frozen=True)
class PrintedOperation:
    """What was printed for this operation and size."""

    hardware: str
    mflops: float
    percent: float | None


@dataclass(frozen=True)
class OperationPoint:
    """One operation, medians over repetitions. What is missing is None; `missing` says why."""

    op: str
    size: int
    """Bytes of all its matrices."""
    inner: int
    """Columns of A in dot, 0 where its matrices are square."""
    framework: str
    on: str
    device: str
    """Name of the GPU or processor."""
    precision: str
    runs: tuple[str, ...]
    time: float
    """ns: of its kernels on a GPU, of its layer on a processor."""
    nominal: float | None
    """FLOPs by formula."""
    bytes: float | None
    """Operands read once, the result written once."""
    working: float
    """Bytes of all operations that take turns in the process."""
    peak: float | None
    """FLOP/s that were measured on the device in this precision."""
    theory: float | None
    """FLOP/s of the maker's figures."""
    memory: float | None
    """B/s of memory that were measured."""
    cache: float | None
    """Bytes of the last-level cache."""
    counted: float | None = None
    """FLOPs that the device counted."""
    tensor: float | None = None
    """Those of them that tensor cores did."""
    dram: float | None = None
    """Bytes of memory that the device counted, caches emptied before."""
    stalls: Mapping[str, float] | None = None
    """The largest shares of the cycles of resident warps by reason, 0 to 1."""
    missing: str = ""
    disturbed: bool = False
    """Other programs ran meanwhile."""
    published: tuple[PrintedOperation, ...] = ()

    @property
    def flops(self) -> float | None:
        """Counted where they were, by formula otherwise."""
        return self.counted if self.counted is not None else self.nominal

    @property
    def rate(self) -> float | None:
        """FLOP/s."""
        return None if self.flops is None else 1e9 * self.flops / self.time

    @property
    def bandwidth(self) -> float | None:
        """B/s of operands and result."""
        return None if self.bytes is None else 1e9 * self.bytes / self.time

    def to_row(self) -> dict[str, Any]:
        """Plain values with the derived ones; rates in FLOP/s and B/s, shares 0 to 1."""
        row = asdict(self)
        rate, bandwidth = self.rate, self.bandwidth
        row["rate"], row["bandwidth"] = rate, bandwidth
        for key, amount, ceiling in (("of_peak", rate, self.peak), ("of_theory", rate, self.theory),
                                     ("of_memory", bandwidth, self.memory)):  # fmt: skip
            ratio = Value(amount / ceiling if amount is not None and ceiling else None, "1", "derived")
            share = BoundedRatio(ratio, doubt=CEILINGS).value(BEYOND[key])
            row[key] = share.value
            row |= {f"{key}_reason": share.reason} if share.reason else {}
        return row


def operation_points(
    results: Iterable[tuple[Run, Summary]], published: Sequence[Published] = ()
) -> tuple[OperationPoint, ...]:
    """The operations of these runs by operation, device, framework and size; none where the workload is another."""
    groups: dict[tuple[Any, ...], list[OperationPoint]] = {}
    for run, summary in results:
        if run.info.workload.name == WORKLOAD and summary.parts:
            for point in _points_of_run(run, summary):
                key = (STUDIED.index(point.op), point.on, point.framework, point.precision, point.size, point.inner,
                       point.working)  # fmt: skip
                groups.setdefault(key, []).append(point)
    beside = _printed_operations(published)
    return tuple(_together_with(groups[key], beside.get((groups[key][0].op, key[4]), ())) for key in sorted(groups))


def _points_of_run(run: Run, summary: Summary) -> Iterable[OperationPoint]:
    info, part = run.info, summary.parts[0]
    on = info.target.spec
    if on.startswith("cuda") and part.device is None:
        return  # without its kernels a layer's time would be what launching took
    layers = [layer for layer in part.layers if layer.leaf and layer.path in STUDIED and layer.own.value]
    working = sum(layer.cost.bytes.value or 0.0 for layer in layers)
    for layer in layers:
        yield _point(run, summary, layer, on, working)


def _point(run: Run, summary: Summary, layer: LayerRow, on: str, working: float) -> OperationPoint:
    info, counted = run.info, counted_places(summary, layer.path)
    place = counted[0] if counted else None
    stalls = None
    if place is not None and place.stalls:
        top = top_stall(place.stalls)
        shown = [reason for reason in place.stalls if reason != "selected"][:MOST_STALLS] if top else []
        stalls = {reason: place.stalls[reason] for reason in shown}
    missing = "" if place is not None else why_not_counted(summary)
    return OperationPoint(
        op=layer.path,
        size=_parameter(run, "size"),
        inner=_parameter(run, "inner"),
        framework=info.workload.framework or "torch",
        on=on,
        device=_device(summary, on),
        precision=info.workload.precision or "float32",
        runs=(run.id,),
        time=float(layer.own.value or 0.0),
        nominal=layer.cost.flops.value,
        bytes=layer.cost.bytes.value,
        working=working,
        peak=_ceiling(summary, "flops"),
        theory=_ceiling(summary, "theoretical_flops"),
        memory=_ceiling(summary, "dram_bandwidth"),
        cache=_ceiling(summary, "cache_bytes"),
        counted=place.counted.value if place is not None else None,
        tensor=sum(value for kind, value in place.precisions.items() if kind.startswith("tensor"))
        if place is not None else None,
        dram=place.dram.value if place is not None else None,
        stalls=stalls,
        missing=missing,
        disturbed=bool(info.disturbed),
    )  # fmt: skip


def _parameter(run: Run, name: str) -> int:
    """A whole number among the workload's own parameters; 0 where it is none."""
    value = run.info.workload.parameters.get(name)
    return value if isinstance(value, int) else 0


def _ceiling(summary: Summary, name: str) -> float | None:
    ceiling = summary.ceilings.get(name)
    return ceiling.value if isinstance(ceiling, Value) else None


def _device(summary: Summary, on: str) -> str:
    gpu = (summary.target.devices or {}).get(on)
    return (gpu.name if gpu is not None else summary.machine.processor) or ""


def _together_with(points: list[OperationPoint], beside: tuple[PrintedOperation, ...]) -> OperationPoint:
    """Repetitions of one point: the median of their times; counts of the first that has them."""
    first = next((point for point in points if point.counted is not None), points[0])
    fields = {name: getattr(first, name) for name in first.__dataclass_fields__}
    fields["time"] = statistics.median(point.time for point in points)
    fields["disturbed"] = any(point.disturbed for point in points)
    fields["runs"] = tuple(run for point in points for run in point.runs)
    return OperationPoint(**{**fields, "published": beside})


def _printed_operations(published: Sequence[Published]) -> dict[tuple[str, int], tuple[PrintedOperation, ...]]:
    """Printed figures by operation and size in bytes."""
    printed: dict[tuple[str, int], list[PrintedOperation]] = {}
    for row in published:
        where, rate = row.where, row.figures.get("mflops")
        if isinstance(rate, float) and isinstance(where.get("op"), str) and isinstance(where.get("size"), str):
            percent = row.figures.get("efficiency_percent")
            beside = PrintedOperation(row.hardware, rate, percent if isinstance(percent, float) else None)
            printed.setdefault((where["op"], SIZE.parse(where["size"])), []).append(beside)
    return {key: tuple(rows) for key, rows in printed.items()}
