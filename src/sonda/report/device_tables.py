"""The GPU's side of a run: one line on what it did in a step, its timeline and its kernels."""

from __future__ import annotations

from collections.abc import Mapping

from sonda.analysis.summary import DeviceSide, Summary
from sonda.record.throttle_reasons import throttling
from sonda.report import quantities
from sonda.report.counted_tables import counted_document, show_counted
from sonda.report.kernel_roofline import kernel_roof_document, kernel_roof_table
from sonda.report.kernel_tables import device_work_document, devices_table, kernels_table, streams_table
from sonda.report.screen import Screen
from sonda.report.table import Table
from sonda.report.values import Document, value_document


def show_device(screen: Screen, summary: Summary, rows: int) -> None:
    """Below the layers: the device's step in words, and up to `rows` kernels."""
    side = summary.parts[0].device if summary.parts else None
    if side is None or summary.device_work is None:
        return
    screen.line()
    screen.items("GPU  ", side_phrases(side) + memory_phrases(summary), " · ")
    for table in device_tables(summary, rows):
        screen.line()
        screen.table(table)
    if summary.kernel_counters is not None and rows:
        show_counted(screen, summary.kernel_counters, rows)


def device_tables(summary: Summary, rows: int) -> list[Table]:
    """The timeline where several streams or devices were used, and the kernels."""
    work = summary.device_work
    if work is None:
        return []
    found = [devices_table(work.devices)] if work.devices else []
    if sum(len(one.streams) for one in work.devices) > 1:
        found.append(streams_table(work.devices))
    if rows and work.kernels:
        found.append(kernels_table(work, work.kernels[:rows]))
    if rows and summary.kernel_roofline is not None:
        found.append(kernel_roof_table(summary.kernel_roofline.rows[:rows]))
    return found


def side_phrases(side: DeviceSide) -> list[str]:
    """`busy 28.9 ms of a step (97 %)`, launches, their latency, the host's time, copies, overlap."""
    share = f" ({quantities.percent(side.share, 0)} %)" if side.share == side.share else ""
    said = [
        f"busy {quantities.amount(side.busy.value, 'ns')} a step{share}",
        f"host {quantities.amount(side.host.value, 'ns')} a step",
        f"{_count(side.launches.value or 0.0)} launches",
    ]
    if side.latency.value is not None:
        said.append(f"{quantities.amount(side.latency.value, 'ns')} from launch to begin")
    for name, value in (("copies", side.copies), ("collectives", side.collectives), ("overlapped", side.overlapped)):
        if value.value:
            said.append(f"{name} {quantities.amount(value.value, 'ns')}")
    said.append(f"from {side.steps} step{'' if side.steps == 1 else 's'} whose kernels were recorded")
    return said


def _count(number: float) -> str:
    """`25`; of steps that differ, `25.3`."""
    return f"{number:,.0f}" if number == round(number) else quantities.number(number)


def memory_phrases(summary: Summary) -> list[str]:
    """`cuda:0 NVIDIA H200: 1.2 GiB allocated, 1.5 GiB reserved at most`."""
    said = []
    for name, about in (summary.target.get("devices") or {}).items():
        card = f"{name} {about.get('name', '')}"
        if about.get("peak_allocated") is None:
            said.append(f"{card}: how much of its memory was allocated is not known")
        else:
            held = quantities.amount(about["peak_allocated"], "B")
            kept = quantities.amount(about.get("peak_reserved"), "B")
            said.append(f"{card}: at most {held} allocated, {kept} reserved")
        said += state_phrases(about.get("state") or {})
    return said


def state_phrases(state: Mapping[str, float]) -> list[str]:
    """`after the timed steps 1.98 GHz, 61 °C, 690 W, held back: power limit`; nothing where it was not read."""
    ways = (("clock", 1e-9, "{:.2f} GHz"), ("temperature", 1.0, "{:.0f} °C"), ("power", 1.0, "{:.0f} W"))
    read = [text.format(state[name] * scale) for name, scale, text in ways if name in state]
    reasons = throttling(int(state.get("throttle_reasons", 0)))
    if reasons:
        read.append(f"held back: {', '.join(reasons)}")
    return [f"after the timed steps {', '.join(read)}"] if read else []


def device_document(summary: Summary) -> Document:
    """For `--json`: what the device did in a step of the first part, its timeline, its kernels as they were timed, and
    what was `counted` in them."""
    side = summary.parts[0].device if summary.parts else None
    if side is None or summary.device_work is None:
        return {}
    values = {name: getattr(side, name) for name in ("busy", "idle", "host", "overlapped", "launches", "latency",
                                                      "copies", "collectives")}  # fmt: skip
    return {
        "device": {
            **{name: value_document(value) for name, value in values.items()},
            "phases": {name: value_document(value) for name, value in side.phases.items()},
            "steps": side.steps,
            **device_work_document(summary.device_work),
            **({"counted": counted_document(summary.kernel_counters)} if summary.kernel_counters is not None else {}),
            "kernel_roofline": kernel_roof_document(summary.kernel_roofline.rows) if summary.kernel_roofline else [],
        }
    }
