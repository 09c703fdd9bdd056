"""The GPU's side of a run: one line on what it did in a step, its timeline and its kernels."""

from __future__ import annotations

from sonda.analysis.bounds import BoundedRatio
from sonda.analysis.device.kernel_counters import KernelCounters
from sonda.analysis.summary import DeviceSide, PartSummary, Summary, Value
from sonda.record.conventions.throttle_reasons import throttling
from sonda.record.readings import DeviceStand
from sonda.report import quantities
from sonda.report.blocks import Aside, Block, FigureBlock, Gap, Items, Legend, Panel, TableBlock
from sonda.report.figures import largest_of
from sonda.report.table import Table
from sonda.report.values import Document, value_document
from sonda.report.views.device.counted import MOST_KERNELS as STALLED
from sonda.report.views.device.counted import (
    counted_blocks,
    counted_fields,
    reason_meanings,
    stall_figure,
    stall_sentences,
    titled_tables,
)
from sonda.report.views.device.kernels import device_work_fields, devices_table, kernels_table, streams_table
from sonda.report.views.device.roofline import kernel_caption, kernel_roof_fields, kernel_roof_table, kernel_roofline
from sonda.report.words import describe


def device_blocks(summary: Summary, rows: int) -> list[Block]:
    """Below the layers: the device's step in words, and up to `rows` kernels."""
    blocks: list[Block] = []
    side = summary.parts[0].device if summary.parts else None
    if side is None or summary.device_work is None:
        return blocks
    blocks += [Gap(), Items(side_phrases(side) + memory_phrases(summary), "GPU  ", " · ")]
    for table in device_tables(summary, rows):
        blocks += [Gap(), TableBlock(table)]
    if summary.kernel_counters is not None and rows:
        blocks.append(Aside(counted_blocks(summary.kernel_counters, rows)))
    return blocks


def device_tables(summary: Summary, rows: int) -> list[Table]:
    """The timeline where several streams or devices were used, and the kernels."""
    work = summary.device_work
    if work is None:
        return []
    tables = [devices_table(work.devices)] if work.devices else []
    if sum(len(device.streams) for device in work.devices) > 1:
        tables.append(streams_table(work.devices))
    if rows and work.kernels:
        tables.append(kernels_table(work, work.kernels[:rows]))
    if rows and summary.kernel_roofline is not None:
        tables.append(kernel_roof_table(summary.kernel_roofline.rows[:rows]))
    return tables


def side_phrases(side: DeviceSide) -> list[str]:
    """`busy 28.9 ms of a step (97 %)`, launches, their latency, the host's time, copies, overlap."""
    part = BoundedRatio(Value(side.share, "1", "derived")).value("")
    share = f" ({quantities.percent(part.value, 0)} %)" if quantities.known(part) else ""
    share = share or (OTHER_STEPS if side.share > 1 else "")
    phrases = [
        f"busy {quantities.amount(side.busy.value, 'ns')} a step{share}",
        f"host {quantities.amount(side.host.value, 'ns')} a step",
        f"{quantities.count(side.launches.value or 0.0)} launches",
    ]
    if side.latency.value is not None:
        phrases.append(f"{quantities.amount(side.latency.value, 'ns')} from launch to begin")
    for name, value in (("copies", side.copies), ("collectives", side.collectives), ("overlapped", side.overlapped)):
        if value.value:
            phrases.append(f"{name} {quantities.amount(value.value, 'ns')}")
    phrases.append(f"from {side.steps} step{'' if side.steps == 1 else 's'} whose kernels were recorded")
    return phrases


def memory_phrases(summary: Summary) -> list[str]:
    """`cuda:0 NVIDIA H200: 1.2 GiB allocated, 1.5 GiB reserved at most`."""
    phrases = []
    for name, about in (summary.target.devices or {}).items():
        card = f"{name} {about.name or ''}"
        if about.peak_allocated is None:
            phrases.append(f"{card}: how much of its memory was allocated is not known")
        else:
            allocated = quantities.amount(about.peak_allocated, "B")
            reserved = quantities.amount(about.peak_reserved, "B")
            phrases.append(f"{card}: at most {allocated} allocated, {reserved} reserved")
        phrases += state_phrases(about.state or DeviceStand())
    return phrases


def state_phrases(state: DeviceStand) -> list[str]:
    """`after the timed steps 1.98 GHz, 61 °C, 690 W, held back: power limit`; nothing where it was not read."""
    ways = ((state.clock, 1e-9, "{:.2f} GHz"), (state.temperature, 1.0, "{:.0f} °C"), (state.power, 1.0, "{:.0f} W"))
    read = [text.format(value * scale) for value, scale, text in ways if value is not None]
    reasons = throttling(int(state.throttle_reasons or 0))
    if reasons:
        read.append(f"held back: {', '.join(reasons)}")
    return [f"after the timed steps {', '.join(read)}"] if read else []


def device_fields(summary: Summary) -> Document:
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
            **device_work_fields(summary.device_work),
            **({"counted": counted_fields(summary.kernel_counters)} if summary.kernel_counters is not None else {}),
            "kernel_roofline": kernel_roof_fields(summary.kernel_roofline.rows) if summary.kernel_roofline else [],
        }
    }


# ---- The GPU's side of a run on a page: what it did in a step, its kernels, what was counted in them, their ---------

OTHER_STEPS = " (more than a step takes: steps whose kernels are recorded are slower)"
MOST_KERNELS = 200
"""Kernels that a page lists."""
STALLS = (
    "A GPU runs threads in groups, its warps. Each bar is a kernel, those with the most time first: what its warps did "
    "with their cycles, or what they waited for."
)


def device_panels(part: PartSummary, summary: Summary, place: str) -> list[Block]:
    """Of the part that the kernels belong to; none for the others. `place` goes before those of the figures."""
    if part.device is None or part is not summary.parts[0]:
        return []
    tables = [table for table in device_tables(summary, MOST_KERNELS) if table.name != "roofline of kernels"]
    listed = [TableBlock(table, look=f"{table.name} sortable") for table in tables]
    phrases = Items(side_phrases(part.device) + memory_phrases(summary))
    caption = "A kernel is a program that runs on the GPU; the host launches it."
    blocks: list[Block] = [Panel("GPU and its kernels", [phrases, *listed], caption)]
    roofline = summary.kernel_roofline
    if roofline is not None and roofline.rows:
        figure = kernel_roofline(roofline.rows, roofline.roofs)
        table = kernel_roof_table(roofline.rows[:MOST_KERNELS])
        shown: list[Block] = [TableBlock(table) if figure is None else FigureBlock(figure, f"{place}kernels", table)]
        caption = kernel_caption(roofline.rows, figure) if figure is not None else ""
        blocks.append(Panel("Kernels against the roofline", shown, caption))
    counted = summary.kernel_counters
    return [*blocks, *_counted_panels(counted, place)] if counted is not None else blocks


def _counted_panels(counted: KernelCounters, place: str) -> list[Block]:
    blocks: list[Block] = []
    for title, table in titled_tables(counted):
        inside: list[Block] = [TableBlock(table, look=f"{table.name} sortable")]
        caption = ""
        if table.name == "stalls":
            figure = stall_figure(counted.stalls)
            if figure is not None:
                inside = [FigureBlock(figure, f"{place}stalls", table)]
                caption = STALLS + largest_of(STALLED, len(counted.stalls), "kernels", "time")
            inside.append(Legend(reason_meanings(counted.stalls)))
        blocks.append(Panel(title, inside, caption))
    sentences = [*stall_sentences(counted.stalls), *map(describe, counted.unlike)]
    return [*blocks, Panel("What the counts say", [Items(sentences)])] if sentences else blocks
