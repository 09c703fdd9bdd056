"""How it is shown: terminal, HTML page, traces for other viewers."""

DOORS = (
    "blocks", "display", "labels", "output", "page", "screen", "trace.chrome", "trace.tracks", "trace.xplane", "values",
    "views.compare.document", "views.compare.kernels", "views.compare.screen", "views.data_set", "views.exploration",
    "views.kinds", "views.listing", "views.steps.document", "views.study.operations", "views.study.page",
    "views.study.screen", "views.validation", "views.verification", "words",
)  # fmt: skip
"""Modules that other rooms may import; all else is this room's own."""
