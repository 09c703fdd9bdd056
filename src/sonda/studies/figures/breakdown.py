"""What a study can show of where a step goes, in the words of profiles: input, operations, compute, host, idle.

On a processor `operations` are the phases that compute, `input` is waiting for data, `host` what no phase covers. On a
GPU `device_compute` is what its kernels take that neither copy nor communicate, `idle` what it does not work, `host`
the step on the clock of the processor, which may run ahead. `launch` is the time from a launch to the beginning of its
kernel. `on_device` is the part of the GPU in the time in which something is worked on, beside the input pipeline,
which works on the processor. A device that is not there has no figure, rather than 0, and neither has a GPU whose
kernels were not recorded: which of both it is, the run's target says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sonda.analysis import reasons
from sonda.analysis.summary import DeviceSide, PartSummary, Summary, Value

GPU = "cuda"
COMPUTING = ("forward", "prefill", "decode", "loss", "backward", "optimizer", "fused")


@dataclass(frozen=True)
class _PartOfRun:
    """The part that is asked, and where it ran."""

    part: PartSummary
    on_gpu: bool

    @property
    def device(self) -> DeviceSide | None:
        return self.part.device

    @property
    def lacking(self) -> str:
        """Why there is no device."""
        return reasons.KERNELS_NOT_RECORDED if self.on_gpu else reasons.ONLY_PROCESSOR


Read = Callable[[_PartOfRun], Value]


def breakdown_value(summary: Summary, metric: str, path: str = "") -> Value:
    """A metric in the unit in which Sonda keeps it; missing with a reason where the run does not have it."""
    unit, read = BREAKDOWN[metric]
    if path:
        return Value(None, unit, "measured", reason=reasons.WHOLE_STEP)
    part = summary.parts[0]
    return read(_PartOfRun(part, part.device is not None or summary.target.device.startswith(GPU)))


def _phases(seen: _PartOfRun, names: tuple[str, ...], lacking: str) -> Value:
    times = [row.host or row.cost.time for row in seen.part.phases if row.name in names]
    known = [time.value for time in times if time.value is not None]
    if not known:
        return Value(None, "ns", "measured", reason=lacking)
    return Value(sum(known), "ns", "measured")


def _input(seen: _PartOfRun) -> Value:
    return _phases(seen, ("data",), reasons.NO_DATA)


def _operations(seen: _PartOfRun) -> Value:
    if seen.on_gpu:
        reason = reasons.ONLY_GPU if seen.device is not None else reasons.KERNELS_NOT_RECORDED
        return Value(None, "ns", "measured", reason=reason)
    return _phases(seen, COMPUTING, reasons.NO_PHASES)


def _host(seen: _PartOfRun) -> Value:
    if seen.on_gpu:
        return (
            seen.device.host
            if seen.device is not None
            else Value(None, "ns", "measured", reason=reasons.KERNELS_NOT_RECORDED)
        )
    return _phases(seen, ("other",), reasons.ALL_IN_PHASES)


def _on_gpu(read: Callable[[DeviceSide], Value], unit: str = "ns") -> Read:
    def value(seen: _PartOfRun) -> Value:
        return Value(None, unit, "measured", reason=seen.lacking) if seen.device is None else read(seen.device)

    return value


def _compute(device: DeviceSide) -> Value:
    """Union of all activities less copies and collectives, each for itself: what overlaps with them is theirs."""
    not_kernels = (device.copies.value or 0.0) + (device.collectives.value or 0.0)
    return Value(max((device.busy.value or 0.0) - not_kernels, 0.0), "ns", "measured")


def _place_reader(on_device: bool) -> Read:
    def value(seen: _PartOfRun) -> Value:
        if not seen.on_gpu:
            return Value(0.0 if on_device else 1.0, "1", "derived")
        if seen.device is None:
            return Value(None, "1", "derived", reason=reasons.KERNELS_NOT_RECORDED)
        busy, waiting = seen.device.busy.value or 0.0, _input(seen).value or 0.0
        if not busy + waiting:
            return Value(None, "1", "derived", reason=reasons.NOTHING_WORKED_ON)
        share = busy / (busy + waiting)
        return Value(share if on_device else 1.0 - share, "1", "derived")

    return value


BREAKDOWN: dict[str, tuple[str, Read]] = {
    "input": ("ns", _input),
    "operations": ("ns", _operations),
    "device_compute": ("ns", _on_gpu(_compute)),
    "device_transfer": ("ns", _on_gpu(lambda device: device.copies)),
    "launch": ("ns", _on_gpu(lambda device: device.latency)),
    "idle": ("ns", _on_gpu(lambda device: device.idle)),
    "host": ("ns", _host),
    "on_device": ("1", _place_reader(True)),
    "on_host": ("1", _place_reader(False)),
}
"""Metrics of the breakdown: the unit in which each is kept, and how it is read off a part."""
