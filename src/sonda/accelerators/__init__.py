"""The simulated machines: hardware, mappings, engines, energy; exact against STONNE, without stepping cycles."""

DOORS = (
    "description.accelerator", "description.engine", "description.fields", "description.settings", "designs.costs",
    "designs.work", "energy.area", "energy.charges", "energy.estimate", "energy.spending", "energy.table",
    "formats.scalesim", "formats.stonne.export", "formats.stonne.verification", "mapping.placement",
    "memory.hierarchy", "memory.traffic", "operations.capture", "operations.program",
)  # fmt: skip
"""Modules that other rooms may import; all else is this room's own."""
