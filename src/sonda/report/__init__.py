"""How it is shown: terminal, HTML page, traces for other viewers."""

DOORS = (
    "display", "labels", "output", "page", "screen", "trace.chrome", "trace.tracks", "trace.xplane", "values",
    "views.compare.kernels", "views.data_set", "views.exploration", "views.kinds", "views.listing",
    "views.steps.document", "views.steps.screen", "views.study.operations", "views.study.page",
    "views.study.screen", "views.validation", "views.verification",
)  # fmt: skip
"""Modules that other rooms may import; all else is this room's own."""
