"""What is kept: spans, samples, metrics, runs, the store; errors; the protocols between the rooms."""

DOORS = (
    "conventions.counter_series", "conventions.expression", "conventions.percentiles", "conventions.profile_names",
    "conventions.rank_group", "conventions.throttle_reasons", "conventions.topdown", "errors", "evidence",
    "files.parquet_join", "files.partial", "files.rows", "files.tables", "files.user_cache", "index", "jit", "machine",
    "nodes", "plugins", "progress", "protocols", "quantities", "readings", "run", "samples", "simulated", "spans",
    "stacks", "store", "stored", "target", "training", "trials", "workload",
)  # fmt: skip
"""Modules that other rooms may import; all else is this room's own."""
