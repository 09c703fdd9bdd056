"""The counts of Nsight Compute's launches are joined to the kernel spans of a run, beside their layers and times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from sonda.probes.ncu.kernel_names import align_names, name_outline
from sonda.probes.ncu.replay import CountedKernels, CountedLaunch
from sonda.record.spans import NUMBER_COLUMNS, TEXT_COLUMNS, Spans

EXACT = 1 << 53
"""Whole numbers up to this are kept exactly."""
KINDS = ("kernel", "collective")
"""Kinds of spans that are launches of kernels."""


def join_counts(
    spans: Spans, counted: CountedKernels, ranks: Mapping[str, int] | None = None
) -> tuple[Spans, list[str]]:
    """The same spans with counts on the kernels of the first step of the pass `kernels`, and notes.

    Kernels and counted launches are matched by order and name. A kernel without a match has no metrics. `ranks` are the
    ranks of the counted processes: launches of a rank go onto its own kernels. Where the ranks are not known, the
    launches of one process go onto the kernels of the first rank.
    """
    notes: list[str] = []
    if ranks is None:
        launches, notes = _busiest_process(counted)
        groups = [(kernel_rows(spans), launches)]
    else:
        groups = [
            (kernel_rows(spans, rank), [launch for launch in counted.launches if ranks.get(launch.process) == rank])
            for rank in sorted(set(ranks.values()))
        ]
    name = spans.words("name")
    columns = {column: values.copy() for column, values in spans.metrics.items()}
    kernels = met = launched = 0
    for rows, launches in groups:
        called = [name.words[code] for code in name.codes[rows].tolist()]
        pairs = _match_launches(called, [launch.name for launch in launches])
        for column in dict.fromkeys(column for launch in launches for column in launch.metrics):
            columns.setdefault(column, np.full(len(spans), np.nan))
        for place, index in pairs:
            for column, value in launches[index].metrics.items():
                columns[column][rows[place]] = value
        kernels, met, launched = kernels + len(rows), met + len(pairs), launched + len(launches)
    values = [value for _, launches in groups for launch in launches for value in launch.metrics.values()]
    if any(isinstance(value, int) and value > EXACT for value in values):
        notes.append("counts above 2^53 are rounded")
    if not kernels:
        notes.append("the run has no kernel that counts could be put on")
    elif met < max(kernels, launched):
        notes.append(
            f"counted launches and kernels were matched by order and name: {met:,} are, {kernels - met:,} of "
            f"{kernels:,} kernels and {launched - met:,} of {launched:,} counted launches are not"
        )
    numbers = {column: spans.number(column) for column in NUMBER_COLUMNS}
    words = {column: spans.words(column) for column in TEXT_COLUMNS}
    return Spans(numbers, words, columns), notes


def kernel_rows(spans: Spans, wanted_rank: int | None = None) -> np.ndarray:
    """Kernels of the first step of the pass `kernels`, in the order in which they were launched.

    Of several ranks it gives those of the wanted one, or of the first. Where no step holds kernels, it gives all
    kernels of the pass.
    """
    in_pass = spans.words("pass").equal("kernels")
    wanted = np.zeros(len(spans), dtype=bool)
    for kind in KINDS:
        wanted |= spans.words("kind").equal(kind)
    rows = np.flatnonzero(wanted & in_pass)
    rank = spans.number("rank")
    if len(rows):
        rows = rows[rank[rows] == (rank[rows].min() if wanted_rank is None else wanted_rank)]
    step = _enclosing_steps(spans, rows)
    inside = step >= 0
    if inside.any():
        begins = spans.number("start")[step[inside]]
        rows = rows[inside][step[inside] == step[inside][np.argmin(begins)]]
    start = spans.number("start")[rows]
    # A kernel of another stream may begin before one that was launched earlier; ncu has them in order of launch.
    latency = np.nan_to_num(spans.metric("launch_latency", "measured")[rows]).astype(np.int64)
    return rows[np.lexsort((start, start - latency))]


def _enclosing_steps(spans: Spans, rows: np.ndarray) -> np.ndarray:
    """The row of the step around each of these rows, or -1."""
    parent, is_step = spans.number("parent"), spans.words("kind").equal("step")
    above = parent[rows]
    for _ in range(len(spans)):
        moving = (above >= 0) & ~is_step[np.maximum(above, 0)]
        if not moving.any():
            break
        above = np.where(moving, parent[np.maximum(above, 0)], above)
    return above


def _busiest_process(counted: CountedKernels) -> tuple[list[CountedLaunch], list[str]]:
    """The launches of the process that has most of them, and a note on the others."""
    processes = Counter(launch.process for launch in counted.launches)
    if len(processes) < 2:
        return list(counted.launches), []
    (first, most), *_ = processes.most_common()
    others = len(counted.launches) - most
    note = f"launches of other processes were counted too, and belong to no span of this one: {others:,}"
    return [launch for launch in counted.launches if launch.process == first], [note]


def _match_launches(called: list[str], launched: list[str]) -> list[tuple[int, int]]:
    """Pairs of positions with equal names, or with equal outlines where two demanglers wrote the names.

    Two demanglers are at work where no C++ name is in both lists.
    """
    common = set(called) & set(launched)
    if any("<" in name or "(" in name for name in common) or common >= set(called):
        return align_names(called, launched)
    return align_names([name_outline(name) for name in called], [name_outline(name) for name in launched])
