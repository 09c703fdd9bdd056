"""Where it runs: launchers that start something, instruments that read it, and the pipeline that makes the run."""

DOORS = (
    "adapters.registry", "applicability", "cooling", "corun.cache_partition", "corun.launcher", "corun.plan",
    "imported.launcher", "instrument", "instruments.energy", "instruments.miss_curve", "instruments.registry", "job",
    "node", "pipeline", "program.block", "program.energy", "program.launcher", "program.source_patch",
    "program.trial", "ranks.agent", "ranks.plan",
    "serving.launcher", "serving.traffic", "serving.weights", "serving.worker", "simulated.design_space",
    "simulated.exploration", "simulated.launcher", "simulated.scalesim", "target", "training.supervisor",
)  # fmt: skip
"""Modules that other rooms may import; all else is this room's own."""
