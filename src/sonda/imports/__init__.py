"""Files of other tools become runs: traces, counters of kernels, timelines, counts of programs."""

DOORS = (
    "importer", "kineto.reader", "ncu.metrics", "ncu.spans", "ncu.tables", "rank_workers", "trace.ranks", "xplane.file",
    "xplane.hlo", "xplane.instruction_ends", "xplane.planes", "xplane.reader",
)  # fmt: skip
"""Modules that other rooms may import; all else is this room's own."""
