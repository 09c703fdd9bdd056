"""Designed experiments: file format, plan, the engine that runs them."""

DOORS = (
    "catalogue", "engine.program_trials", "engine.repetition", "engine.trial", "executors.choice",
    "executors.training_jobs", "explore.exploration", "explore.search", "explore.space", "file.loader",
    "results.recordings",
)  # fmt: skip
"""Modules that other rooms may import; all else is this room's own."""
