"""Tables of what devices did: devices, streams, kernels, the critical path, counts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from sonda.analysis import wording
from sonda.analysis.device.critical_path import CriticalPath
from sonda.analysis.device.kernels import KernelTotals
from sonda.analysis.device.timeline import DeviceTime
from sonda.analysis.summary import Value
from sonda.analysis.traces.summary import DeviceWork
from sonda.record.quantities import Metric
from sonda.report import quantities
from sonda.report.blocks import Bar
from sonda.report.table import LAST, Cell, Column, Table, build, numbers, shares, words
from sonda.report.values import value_document

LONGEST_NAME = 60
"""Characters of a kernel's name on a screen; a page has all of them in the hint."""
SAID_BY_ALL = re.compile(r"^void |\bat::native::|\(anonymous namespace\)::|\bat::cuda::detail::")
"""Parts of the names of PyTorch's kernels that tell none from another; long names are shown without them."""
OF_ACTIVITIES = "kernels and copies, % of the time of all of them, each counted for itself"
"""What the shares of `kernel_bars` are of: those of a bar above them are of something else."""
COUNTS = {"flops:counted": 5, "dram_read_bytes:counted": 4, "dram_write_bytes:counted": 4, "l2_bytes:counted": 2,
          "bytes:counted": 3}  # fmt: skip
"""Metrics of kernels that have a column of their own, per launch, and how long it is kept in a narrow window."""
HEADS = {"flops": "FLOP", "dram_read_bytes": "DRAM read", "dram_write_bytes": "DRAM written", "l2_bytes": "L2",
         "bytes": "copied"}  # fmt: skip
PATH_PARTS = ("device", "queue", "launch", "host", "returning")


def _times(values: Sequence[float]) -> list[Value]:
    return [Value(float(value), "ns", "measured") for value in values]


def kernel_bars(work: DeviceWork, rows: int) -> list[Bar]:
    """The kernels that take most time, as parts of that of all."""
    total = work.total or 1
    return [
        Bar(kernel_name(kernel.name).text, kernel.total / total, wording.percent(kernel.total / total),
            note=f"{quantities.amount(kernel.total, 'ns')} in all, launched {_times_words(kernel.launches)}")
        for kernel in work.kernels[:rows]
    ]  # fmt: skip


def _times_words(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def devices_table(devices: Sequence[DeviceTime]) -> Table:
    """How each device spent its window."""
    windows = numbers(_times([device.window for device in devices]), suffix=True)[1]
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (Column("device", right=False), words([_place(device) for device in devices])),
        (Column("window", hint="from its first activity to the end of its last"), windows),
    ]
    for name, hint, part in (
        ("busy %", "the union of all its activities", [device.busy for device in devices]),
        ("compute %", "at least one kernel that computes", [device.compute for device in devices]),
        ("communication %", "at least one collective", [device.communication for device in devices]),
        ("of it hidden %", "communication while something is computed", None),
        ("copies %", "at least one copy or filling", [device.copying for device in devices]),
        ("idle %", "nothing runs", [device.idle for device in devices]),
        ("several at once %", "two or more activities", [device.several for device in devices]),
    ):
        if part is None:
            cells = shares(
                [_share(device.hidden_communication, device.communication) for device in devices], "communication"
            )
        else:
            cells = shares(
                [_share(time, device.window) for time, device in zip(part, devices, strict=True)], "the window"
            )
        if name.startswith(("communication", "of it")) and not any(device.communication for device in devices):
            continue
        columns.append((Column(name, hint=hint, keep=5), cells))
    return build(columns, "devices")


def streams_table(devices: Sequence[DeviceTime]) -> Table:
    """What the gaps of every stream wait for."""
    pairs = [(device, stream) for device in devices for stream in device.streams]
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (
            Column("stream", right=False),
            words([f"{_place(device)} stream {stream.stream}" for device, stream in pairs]),
        ),
        (Column("activities", keep=2), numbers([Value(stream.activities, "1", "counted") for _, stream in pairs])[1]),
    ]
    for name, values, keep in (
        ("busy", [stream.busy for _, stream in pairs], 5),
        ("waits for the host", [stream.host_wait for _, stream in pairs], LAST),
        ("between kernels", [stream.kernel_wait for _, stream in pairs], LAST),
        ("other gaps", [stream.other_wait for _, stream in pairs], 4),
    ):
        columns.append((Column(name, keep=keep), numbers(_times(values), suffix=True)[1]))
    return build(columns, "streams")


def kernels_table(work: DeviceWork, kernels: Sequence[KernelTotals]) -> Table:
    """Kernels, those that took longest first."""
    total = work.total
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (Column("kernel", right=False), [kernel_name(kernel.name) for kernel in kernels]),
        (Column("kind", right=False, keep=2), words([kernel.kind for kernel in kernels])),
        (Column("launches", keep=7), numbers([Value(kernel.launches, "1", "counted") for kernel in kernels])[1]),
        (Column("total"), numbers(_times([kernel.total for kernel in kernels]), suffix=True)[1]),
        (Column("share %", keep=8), shares([_share(kernel.total, total) for kernel in kernels], "all activities")),
        (Column("mean", keep=6), numbers(_times([kernel.mean for kernel in kernels]), suffix=True)[1]),
        (Column("longest", keep=1), numbers(_times([kernel.longest for kernel in kernels]), suffix=True)[1]),
    ]
    if any(kernel.latencies for kernel in kernels):
        columns.append((Column("launch latency", keep=3, hint="mean, from the call to the beginning"),
                        numbers([_latency(kernel) for kernel in kernels], suffix=True)[1]))  # fmt: skip
    for column, keep in COUNTS.items():
        if any(column in kernel.metrics for kernel in kernels):
            head = f"{HEADS[Metric.parse(column).quantity]}/launch"
            columns.append(
                (Column(head, keep=keep), numbers([_metric(kernel, column) for kernel in kernels], suffix=True)[1])
            )
    return build(columns, "kernels")


def path_table(paths: Sequence[CriticalPath]) -> Table:
    """What the critical path of every rank was spent on."""
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (Column("critical path", right=False), words([f"rank {path.rank}" for path in paths])),
        (Column("length"), numbers(_times([path.total for path in paths]), suffix=True)[1]),
    ]
    hints = ("activities of the device", "between activities that were already launched", "from launches to beginnings",
             "the host", "until calls that waited had ended")  # fmt: skip
    for name, hint in zip(PATH_PARTS, hints, strict=True):
        cells = shares([_share(getattr(path, name), path.total) for path in paths], "the path")
        columns.append((Column(f"{name} %", hint=hint), cells))
    return build(columns, "critical path")


def counters_table(work: DeviceWork) -> Table:
    """Counts of a whole program."""
    return build(
        [
            (Column("count", right=False), words([name for name, _ in work.counters])),
            (Column("value"), [numbers([value], suffix=True)[1][0] for _, value in work.counters]),
            (Column("source", right=False), words([value.source for _, value in work.counters])),
        ],
        "counts",
    )


def device_work_fields(work: DeviceWork) -> dict[str, Any]:
    """Timelines and kernels, times in ns."""
    return {
        "devices": [_device_fields(device) for device in work.devices],
        "kernels": [_kernel_fields(kernel) for kernel in work.kernels],
    }


def _device_fields(device: DeviceTime) -> dict[str, Any]:
    names = ("window", "busy", "idle", "compute", "non_compute", "communication", "hidden_communication", "copying",
             "hidden_copying", "several")  # fmt: skip
    return {
        "rank": device.rank, "device": device.device, "activities": device.activities,
        **{f"{name}_ns": getattr(device, name) for name in names},
        "streams": [{"stream": stream.stream, "activities": stream.activities, "busy_ns": stream.busy,
                     "host_wait_ns": stream.host_wait, "kernel_wait_ns": stream.kernel_wait,
                     "other_wait_ns": stream.other_wait} for stream in device.streams],
    }  # fmt: skip


def _kernel_fields(kernel: KernelTotals) -> dict[str, Any]:
    return {
        "name": kernel.name, "kind": kernel.kind, "launches": kernel.launches, "total_ns": kernel.total,
        "mean_ns": kernel.mean, "shortest_ns": kernel.shortest, "longest_ns": kernel.longest,
        "launch_latency": value_document(_latency(kernel)),
        "metrics": {column: {"sum": value, "launches": kernel.counted[column], "unit": Metric.parse(column).unit}
                    for column, value in kernel.metrics.items()},
    }  # fmt: skip


def _place(device: DeviceTime) -> str:
    return f"rank {device.rank} {device.device}"


def kernel_name(name: str) -> Cell:
    """A kernel's name, shortened where it is long; the hint has all of it."""
    shown = name if len(name) <= LONGEST_NAME else SAID_BY_ALL.sub("", name)
    shown = shown if len(shown) <= LONGEST_NAME else shown[: LONGEST_NAME - 1] + "…"
    return Cell(shown or "(no name)", name, name, tone="name")


def _latency(kernel: KernelTotals) -> Value:
    if not kernel.latencies:
        return Value(None, "ns", "measured", reason="its launch is not in the trace")
    return Value(kernel.latency / kernel.latencies, "ns", "measured")


def _metric(kernel: KernelTotals, column: str) -> Value:
    metric = Metric.parse(column)
    if column not in kernel.metrics:
        return Value(None, metric.unit, metric.source)
    return Value(kernel.metrics[column] / kernel.counted[column], metric.unit, metric.source)


def _share(part: float, whole: float) -> float:
    return part / whole if whole else float("nan")
