"""Tables of what was counted in kernels: FLOPs and bytes by kernel, counted beside nominal FLOPs by layer, stalls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import fsum

from sonda.analysis.device.kernel_counters import CountedKernel, CountedPlace, KernelCounters
from sonda.analysis.device.stalls import NVPROF, StallRow, nvprof_shares
from sonda.analysis.summary import Value
from sonda.report import quantities
from sonda.report.blocks import Block, Gap, TableBlock, paragraphs
from sonda.report.charts.chart import Axis, BarPart, Chart, stacked_bars
from sonda.report.palette import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, YELLOW
from sonda.report.table import Cell, Column, Table, build, numbers, percents, shares, words
from sonda.report.values import Document, finite, plain_data, value_document
from sonda.report.words import describe
from sonda.report.words.device import WAITS, explain_stalls, kernel_label
from sonda.report.words.names import short_path

REASONS_SHOWN = 3
"""Reasons of a kernel in a row of the screen's table; the page has nvprof's names, the document all."""
ROOFS = {"dram": "memory", "l2": "L2", "flops": "arithmetic"}
"""What the device was nearest to the peak of, in words."""
PRECISIONS = {"single": "fp32", "double": "fp64", "half": "fp16"}


def counted_blocks(counters: KernelCounters, limit: int) -> list[Block]:
    """Below the tables of what was timed; `limit` is how many rows each has."""
    blocks: list[Block] = []
    for table in (
        counted_kernels_table(counters.kernels[:limit]),
        counted_places_table(_most_counted(counters.places, limit)),
        stalls_table(counters.stalls[:limit]),
    ):
        if table.rows:
            blocks += [Gap(), TableBlock(table)]
    blocks += paragraphs((*stall_sentences(counters.stalls[:limit]), *map(describe, counters.unlike)))
    return blocks


def stall_sentences(rows: Sequence[StallRow]) -> list[str]:
    """What the first reason of each kernel means and what to try."""
    return explain_stalls(row.top for row in rows if row.top)


def titled_tables(counters: KernelCounters) -> list[tuple[str, Table]]:
    """All of it, for the page."""
    tables = [
        ("Counted kernels", counted_kernels_table(counters.kernels)),
        ("Counted and nominal FLOPs", counted_places_table(counters.places)),
        ("What kernels wait for", stalls_table(counters.stalls)),
        ("The same under nvprof's names", nvprof_table(counters.stalls)),
    ]
    return [(title, table) for title, table in tables if table.rows]


def counted_kernels_table(kernels: Sequence[CountedKernel]) -> Table:
    """Sums over the launches of each kernel."""
    return build(
        [
            (Column("counted kernel", right=False), _labels([kernel.name for kernel in kernels])),
            (Column("launches", keep=5), numbers([Value(kernel.launches, "1", "counted") for kernel in kernels])[1]),
            (Column("FLOP", hint="counted, all precisions"), _amounts([kernel.flops for kernel in kernels])),
            (
                Column("in", right=False, keep=6, hint="precision of most FLOPs"),
                words([_precision(kernel) for kernel in kernels]),
            ),
            (
                Column("special", keep=1, hint="instructions of special functions: exp, reciprocal, root"),
                numbers([kernel.special for kernel in kernels])[1],
            ),
            (
                Column("DRAM", hint="read and written"),
                _amounts([kernel.dram for kernel in kernels]),
            ),
            (Column("L2", keep=3, hint="bytes that pass it"), _amounts([kernel.l2 for kernel in kernels])),
            (Column("FLOP/B", keep=4, hint="of memory"), numbers([kernel.intensity for kernel in kernels])[1]),
            (
                Column("of peak", hint="of the device's own, while it ran"),
                percents([kernel.roof for kernel in kernels]),
            ),
            (Column("of", right=False), words([ROOFS.get(kernel.nearest, "") for kernel in kernels])),
        ],
        "counted kernels",
    )


def counted_places_table(places: Sequence[CountedPlace]) -> Table:
    """Layers without the layers inside, and phases outside them."""
    names = [(short_path(place.path) or place.name) if place.layer else place.name for place in places]
    return build(
        [
            (Column("counted layer", right=False, path=True), [Cell(name, name, tone="name") for name in names]),
            (
                Column("class", right=False, keep=2),
                words([place.name if place.layer else "" for place in places]),
            ),
            (Column("kernels", keep=3), numbers([Value(place.kernels, "1", "counted") for place in places])[1]),
            (Column("counted"), _amounts([place.counted for place in places])),
            (Column("nominal"), _amounts([place.nominal for place in places])),
            (Column("ratio", hint="counted over nominal"), numbers([place.ratio for place in places])[1]),
        ],
        "counted layers",
    )


def stalls_table(rows: Sequence[StallRow]) -> Table:
    """The largest reasons of each kernel."""
    texts = [
        ", ".join(
            f"{reason} {quantities.rounded(100 * share, 0)} %"
            for reason, share in list(row.shares.items())[:REASONS_SHOWN]
        )
        for row in rows
    ]
    return build(
        [
            (Column("stalled kernel", right=False), _labels([row.name for row in rows])),
            (Column("share %", keep=6), shares([row.share for row in rows], "the counted kernels' time")),
            (Column("cycles of its warps", right=False, wrap=True), words(texts)),
        ],
        "stalls",
    )


def nvprof_table(rows: Sequence[StallRow]) -> Table:
    """Shares under the names of nvprof, %."""
    by_row = [nvprof_shares(row.shares) for row in rows]
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (Column("stalled kernel", right=False), _labels([row.name for row in rows]))
    ]
    for name in NVPROF:
        cells = shares([shares_of_row.get(name, float("nan")) for shares_of_row in by_row], "the cycles of its warps")
        columns.append((Column(f"{name.removeprefix('stall_')} %"), cells))
    return build(columns, "stalls of nvprof")


def counted_fields(counters: KernelCounters) -> Document:
    """Everything as plain JSON values, times in ns."""
    return {
        "kernels": [
            {"name": kernel.name, "launches": kernel.launches, "time_ns": kernel.time,
             "flops": value_document(kernel.flops), "flops_by_precision": plain_data(kernel.precisions),
             "dram_bytes": value_document(kernel.dram), "l2_bytes": value_document(kernel.l2),
             "special_functions": value_document(kernel.special), "intensity": value_document(kernel.intensity),
             "roof": value_document(kernel.roof), "nearest": kernel.nearest}
            for kernel in counters.kernels
        ],
        "places": [
            {"path": place.path, "name": place.name, "layer": place.layer, "kernels": place.kernels,
             "time_ns": place.time, "counted": value_document(place.counted), "nominal": value_document(place.nominal),
             "ratio": value_document(place.ratio)}
            for place in counters.places
        ],
        "stalls": [
            {"name": row.name, "launches": row.launches, "time_ns": row.time, "share": finite(row.share),
             "shares": plain_data(row.shares), "nvprof": plain_data(nvprof_shares(row.shares)), "top": row.top,
             "sentence": describe(row.wait) if row.wait is not None else "",
             "remedy": describe(row.remedy) if row.remedy is not None else ""}
            for row in counters.stalls
        ],
        "sentences": list(map(describe, counters.unlike)),
    }  # fmt: skip


def _labels(names: Sequence[str]) -> list[Cell]:
    return [Cell(kernel_label(name) or "(no name)", name, name, tone="name") for name in names]


def _amounts(values: Sequence[Value]) -> list[Cell]:
    """Each in a scale of its own: kernels of one step lie many powers of ten apart."""
    return [numbers([value], suffix=True)[1][0] for value in values]


def _precision(kernel: CountedKernel) -> str:
    """`fp32`, `tensor bf16`; '' without FLOPs."""
    if not kernel.precisions:
        return ""
    most = max(kernel.precisions, key=lambda kind: kernel.precisions[kind])
    return PRECISIONS.get(most, most.replace("_", " "))


def _most_counted(places: Sequence[CountedPlace], limit: int) -> list[CountedPlace]:
    """Those with the most counted FLOPs, in their order."""
    chosen = sorted(places, key=lambda place: -(place.counted.value or 0.0))[:limit]
    return [place for place in places if place in chosen]


# ---- What kernels of a GPU wait for, as a picture: a bar for each kernel, divided by the reasons of its stalls ------

MOST_KERNELS = 20
COLORS = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, YELLOW)
"""Of the reasons that cost most; all others are one grey field."""
OTHERS = "other reasons"


def stall_figure(rows: Sequence[StallRow]) -> Chart | None:
    """The kernels with the most time, most first: shares of the cycles of their warps by reason; None without any."""
    shown = [row for row in sorted(rows, key=lambda row: -row.share) if row.shares][:MOST_KERNELS]
    if not shown:
        return None
    weight: dict[str, float] = defaultdict(float)
    for row in shown:
        for reason, share in row.shares.items():
            weight[reason] += share * row.share
    named = [
        reason for reason, _ in sorted(weight.items(), key=lambda weighed: (-weighed[1], weighed[0]))[: len(COLORS)]
    ]
    labels = [kernel_label(row.name) or "(no name)" for row in shown]
    stacked = []
    for reason, color in [*zip(named, COLORS, strict=False), (OTHERS, GREY)]:
        shares = [_part(row, reason, named) for row in shown]
        hints = [f"{label}\n{reason}: {quantities.percent(share, 1)} % of the cycles of its warps, counted"
                 f"{_meaning_line(reason)}" for label, share in zip(labels, shares, strict=True)]  # fmt: skip
        if any(shares):
            stacked.append(BarPart(reason, color, [100 * share for share in shares], hints))
    return stacked_bars(labels, stacked, Axis("% of the cycles of its warps"), row=24)


def reason_meanings(rows: Sequence[StallRow]) -> dict[str, str]:
    """What warps wait for, of every reason that a row has, in words."""
    names = dict.fromkeys(reason for row in rows for reason in row.shares)
    return {name: f"warps wait {WAITS[name]}" for name in names if name in WAITS}


def _meaning_line(reason: str) -> str:
    """What the warps do in these cycles, in a line below."""
    return f"\nthey wait {WAITS[reason]}" if reason in WAITS else ""


def _part(row: StallRow, reason: str, named: Sequence[str]) -> float:
    """The share of one reason, or of all that are not named."""
    if reason != OTHERS:
        return row.shares.get(reason, 0.0)
    return fsum(share for name, share in row.shares.items() if name not in named)  # alike on every Python
