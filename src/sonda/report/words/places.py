"""Words for places in a program: layers and lines."""

from __future__ import annotations

from sonda.analysis.rules.places import StepPlace


def name_layer(path: str) -> str:
    """`backbone.0`; the model itself has no path."""
    return path or "the model"


def at_place(place: StepPlace, layer: bool = True) -> str:
    """` at train.py:41, in encoder.2`; '' where nothing is known."""
    line = f" at {place.line}" if place.line else ""
    inside = f" in {place.layer}" if layer and place.layer else ""
    return f"{line},{inside}" if line and inside else f"{line}{inside}"
