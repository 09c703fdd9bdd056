"""What a study can show of where a step goes, in the words of profiles: input, operations, compute, host, idle.

On a processor `operations` are the phases that compute, `input` is waiting for data, `host` what no phase covers. On a
GPU `device_compute` is what its kernels take that neither copy nor communicate, `idle` what it does not work, `host`
the step on the clock of the processor, which may run ahead. `launch` is the time from a launch to the beginning of its
kernel. `on_device` is the part of the GPU in the time in which something is worked on, beside the input pipeline,
which works on the processor. A device that is not there has no figure, rather than 0.
"""

from __future__ import annotations

from collections.abc import Callable

from sonda.analysis.summary import DeviceSide, PartSummary, Summary, Value

COMPUTING = ("forward", "prefill", "decode", "loss", "backward", "optimizer", "fused")
ONLY_PROCESSOR = "the processor is the only device"
ONLY_GPU = "on a GPU its kernels are shown"


def breakdown_value(summary: Summary, metric: str, path: str = "") -> Value:
    """A metric in the unit in which Sonda keeps it; missing with a reason where the run does not have it."""
    unit, read = BREAKDOWN[metric]
    if path:
        return Value(None, unit, "measured", reason="it is of the whole step")
    return read(summary.parts[0])


def _phases(part: PartSummary, names: tuple[str, ...], lacking: str) -> Value:
    found = [row.host or row.cost.time for row in part.phases if row.name in names]
    known = [one.value for one in found if one.value is not None]
    if not known:
        return Value(None, "ns", "measured", reason=lacking)
    return Value(sum(known), "ns", "measured")


def _input(part: PartSummary) -> Value:
    return _phases(part, ("data",), "its steps have no data")


def _operations(part: PartSummary) -> Value:
    if part.device is not None:
        return Value(None, "ns", "measured", reason=ONLY_GPU)
    return _phases(part, COMPUTING, "its steps have no phases")


def _host(part: PartSummary) -> Value:
    return part.device.host if part.device is not None else _phases(part, ("other",), "phases cover the whole step")


def _on_gpu(read: Callable[[DeviceSide], Value], unit: str = "ns") -> Callable[[PartSummary], Value]:
    def value(part: PartSummary) -> Value:
        return Value(None, unit, "measured", reason=ONLY_PROCESSOR) if part.device is None else read(part.device)

    return value


def _compute(device: DeviceSide) -> Value:
    """Union of all activities less copies and collectives, each for itself: what overlaps with them is theirs."""
    other = (device.copies.value or 0.0) + (device.collectives.value or 0.0)
    return Value(max((device.busy.value or 0.0) - other, 0.0), "ns", "measured")


def _placed(on_device: bool) -> Callable[[PartSummary], Value]:
    def value(part: PartSummary) -> Value:
        if part.device is None:
            return Value(0.0 if on_device else 1.0, "1", "derived")
        busy, waiting = part.device.busy.value or 0.0, _input(part).value or 0.0
        if not busy + waiting:
            return Value(None, "1", "derived", reason="nothing was worked on")
        share = busy / (busy + waiting)
        return Value(share if on_device else 1.0 - share, "1", "derived")

    return value


BREAKDOWN: dict[str, tuple[str, Callable[[PartSummary], Value]]] = {
    "input": ("ns", _input),
    "operations": ("ns", _operations),
    "device_compute": ("ns", _on_gpu(_compute)),
    "device_transfer": ("ns", _on_gpu(lambda device: device.copies)),
    "launch": ("ns", _on_gpu(lambda device: device.latency)),
    "idle": ("ns", _on_gpu(lambda device: device.idle)),
    "host": ("ns", _host),
    "on_device": ("1", _placed(True)),
    "on_host": ("1", _placed(False)),
}
"""Metrics of the breakdown: the unit in which each is kept, and how it is read off a part."""
