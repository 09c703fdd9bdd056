"""How it is shown: terminal, HTML page, traces for other viewers."""

DOORS = (
    "annotations", "blocks", "display", "json", "labels", "output", "page", "quantities", "schemas", "screen",
    "trace.chrome", "trace.tracks", "trace.xplane", "trackers.metrics", "trackers.mlflow", "trackers.tensorboard",
    "trackers.wandb", "views.compare.document", "views.compare.kernels", "views.compare.screen", "views.compare.tables",
    "views.data_set", "views.explain", "views.exploration", "views.kinds", "views.listing", "views.study.operations",
    "views.study.screen", "views.study.view", "views.validation", "views.verification", "words",
)  # fmt: skip
"""Modules that other rooms may import; all else is this room's own."""
