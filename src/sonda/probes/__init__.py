"""What is read meanwhile, and what the machine can do: processor, ceilings, environment."""

DOORS = (
    "availability", "cache_partition.partition", "cache_partition.resctrl", "cache_partition.resctrl_files",
    "callgrind.penalties", "callgrind.valgrind", "ceilings.gpu", "ceilings.processor", "counters.command_counter",
    "counters.papi", "counters.perf_stat", "counters.pmu", "counters.pmu_events", "doctor", "energy.attribution",
    "energy.meter", "energy.model", "energy.regions", "energy.thermal", "kernel_files", "machine.contamination",
    "machine.environment", "machine.gpu", "machine.record", "ncu.chips", "ncu.command", "ncu.join", "ncu.outliers",
    "ncu.replay", "sensors", "validation.trust",
)  # fmt: skip
"""Modules that other rooms may import; all else is this room's own."""
