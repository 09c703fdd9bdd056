"""Figures of studies in plain words: what each is called where it is shown, and what it means.

A study's file names a figure by metric and unit (`edp_Js`); this is the one table from which tables, pictures and notes
take its name. Metrics that are not in it are called by their own words.
"""

from __future__ import annotations

NAMES: dict[str, tuple[str, str]] = {
    "achieved": ("{}", "floating-point operations a second, of the whole step"),
    "counted_rate": ("counted {}", "operations that the hardware counted, over the time of the kernels"),
    "counted": ("counted {}", "operations that the hardware counted in a step"),
    "intensity": ("intensity {}", "operations for each byte that must be moved at least"),
    "efficiency": ("{} of peak", "operations a second over the most that was measured on this machine"),
    "peak": ("{} of peak, kernels", "the same of the kernels alone, without the framework's own time"),
    "theory": ("{} of maker's peak, kernels", "the same against what the maker of the device names"),
    "roof": ("{} of roof", "speed over the most that the device allows for this many operations a byte"),
    "stall": ("{} stalled, first reason", "part of their cycles that warps wait for their most frequent reason"),
    "kernel": ("kernels {}", "time that the GPU works in a step"),
    "dram_bytes": ("DRAM traffic {}", "bytes between the chip and its memory"),
    "dram": ("DRAM traffic {}", "bytes between the chip and its memory"),
    "dram_read": ("read from DRAM {}", ""),
    "dram_write": ("written to DRAM {}", ""),
    "task_clock": ("CPU time {}", "time that cores worked, added up over threads"),
    "ipc": ("instructions per cycle", "of a core; how many are possible depends on the core, four to eight are usual"),
    "mpki": ("cache misses per 1000 instructions", "of the last-level cache"),
    "modelled_mpki": ("modelled last-level misses per 1000 instructions", "of a cache that a program emulates"),
    "modelled_l1_mpki": ("modelled L1 misses per 1000 instructions", "of a first cache that a program emulates"),
    "modelled_branch_mpki": ("modelled wrong branches per 1000 instructions", "of an emulated predictor"),
    "modelled_share": ("share of modelled instructions {}", "instructions of one module over those of the step"),
    "modelled_misses": ("modelled cache misses", "of one step, by the size of an emulated last cache"),
    "changes": ("changes over time", "how often the figure took another level while the program ran"),
    "slowdown": ("slowdown", "time per step beside another program over time per step alone"),
    "cpu_slowdown": ("slowdown of CPU time", "the same of the time that cores worked"),
    "weighted_speedup": ("weighted speed-up", "speeds beside others, each over its speed alone, added up"),
    "harmonic_mean": ("harmonic mean of speeds", "of the same speeds; it is low where one program suffers most"),
    "fairness": ("fairness", "the smallest slowdown over the largest; 1 is fair"),
    "alone_step": ("step alone {}", ""),
    "together_step": ("step together {}", ""),
    "alone_ipc": ("instructions per cycle alone", ""),
    "together_ipc": ("instructions per cycle together", ""),
    "accuracy": ("test accuracy {}", "images of the test that the trained network tells right"),
    "best_accuracy": ("best validation accuracy {}", "the highest of all epochs"),
    "whole": ("whole {}", "training, validation and test; not loading and initialisation"),
    "training_epoch": ("training epoch {}", "training in one walk through the data, median of all epochs"),
    "validation_epoch": ("validation epoch {}", "validation after one of them, median of all epochs"),
    "speedup": ("speed-up", "how many times as fast"),
    "training_speedup": ("speed-up of training", "without validation and test"),
    "scaling": ("{} of ideal speed-up", "speed-up over how many times as many devices worked"),
    "training_scaling": ("{} of ideal speed-up, training", "the same without validation and test"),
    "amdahl_speedup": ("Amdahl's bound", "the most that so many devices bring if validation and test are not shared"),
    "serial": ("serial part {}", "what part of the work was not shared, as the speed-up shows (Karp and Flatt)"),
    "edp": ("energy-delay product {}", "energy times time: what is both slow and hungry is large"),
    "edp_with_idle": ("energy-delay product with idle {}", "devices that had nothing to do included"),
    "energy_with_idle": ("energy with idle {}", "devices that had nothing to do included"),
    "relative_edp": ("energy-delay product, times base's", "energy times time, over that of the base"),
    "relative_edp_with_idle": ("energy-delay product with idle, times base's", ""),
    "relative_energy": ("energy, times base's", ""),
    "relative_energy_with_idle": ("energy with idle, times base's", ""),
    "largest_batch_ratio": ("largest batch, times base's", "the largest batch that fits into the device's memory"),
    "load_factor": ("load factor", "how many times as long the slowest device takes for a batch as the fastest"),
    "bound_speedup": ("most possible, times its fastest device", "if sharing a batch cost nothing"),
    "predicted_speedup": ("foreseen, times its fastest device", "with what sharing was measured to cost beforehand"),
    "samples_share": ("share of samples {}", "part of a batch that a device is given"),
    "share": ("share {}", ""),
    "utilisation": ("multipliers used {}", "part of the multipliers' cycles with useful work"),
    "memory": ("{} waiting for memory", "cycles in which engines wait for what is behind the global buffer"),
    "launch": ("launch to start {}", "time from the launch of a kernel to its beginning"),
    "input": ("input {}", "waiting for data"),
    "host": ("rest of step {}", "on a processor what no phase covers; with a GPU, the processor's own time"),
    "on_host": ("{} on processor", "part of the working time"),
    "on_device": ("{} on GPU", "part of the working time"),
    "quotable_latency": ("latency that may be quoted {}", "what MLPerf's rules on how many queries suffice allow"),
    "queue_wait": ("wait in queue {}", ""),
    "late": ("{} late", "answers beyond the bound of latency"),
    "bound_held": ("bound held, 1 is yes", ""),
    "busy": ("{} busy", "part of the time that the model computes"),
    "loadgen_latency": ("LoadGen's latency {}", "MLPerf's own load generator, of the same queries"),
    "loadgen_valid": ("valid to LoadGen, 1 is yes", ""),
    "energy_per_query": ("energy of an answer {}", ""),
}
"""By metric: its name, where `{}` is the unit, and its meaning; '' where the name says it."""
WHOLE = {"mflops": "achieved", "gflops": "achieved", "tflops": "achieved", "counted_mflops": "counted_rate",
         "counted_gflops": "counted_rate", "intensity": "intensity"}  # fmt: skip
"""Metrics of figures whose key does not end in a unit."""
SPELT = {"cpu": "CPU", "l1": "L1", "dram": "DRAM", "speedup": "speed-up"}
"""Words of metrics as people write them."""


def metric_of(key: str, unit: str) -> str:
    """`edp` of `edp_Js@processor`, whose unit is J·s."""
    bare = key.partition("@")[0]
    if bare in WHOLE:
        return WHOLE[bare]
    return bare.rpartition("_")[0] or bare if unit and not bare.endswith("_per_second") else bare


def figure_words(key: str, unit: str) -> str:
    """What a figure is called, with its unit: `energy-delay product J·s`, `% of roof`, `samples/s`."""
    metric = metric_of(key, unit)
    if metric in NAMES:
        return NAMES[metric][0].format(unit).strip()
    if metric.endswith("_per_second"):
        return f"{_spelt(metric.removesuffix('_per_second'))}/s" if unit == "1/s" else unit
    return f"{_spelt(metric)} {unit}".rstrip() if metric != unit else unit


def meaning(key: str, unit: str) -> str:
    """What a figure says, in a few words; '' where its name does."""
    return NAMES.get(metric_of(key, unit), ("", ""))[1]


def _spelt(metric: str) -> str:
    return " ".join(SPELT.get(word, word) for word in metric.split("_"))
