"""A modelled step as plain JSON values: every number under its metric's name, with unit and source."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from sonda.analysis.modelled_summary import Modelled, ModelledSummary
from sonda.analysis.summary import Value


def modelled_document(summary: ModelledSummary | None) -> dict[str, Any]:
    """What a modelled step adds to a JSON document; nothing where there is none."""
    if summary is None:
        return {}
    return {
        "modelled": {
            "tool": summary.tool,
            "caches": dict(summary.caches),
            "isa": summary.isa,
            "native_isa": summary.native_isa,
            "threads": summary.threads,
            "part": summary.part,
            "complete": summary.complete,
            "step": _document(summary.step),
            "other": _document(summary.outside),
            "phases": [{"name": one.name, **_document(one.modelled)} for one in summary.phases],
            "layers": [
                {
                    "path": one.path,
                    "name": one.name,
                    "leaf": one.leaf,
                    "forward_instructions:modelled": _value(one.forward),
                    "backward_instructions:modelled": _value(one.backward),
                    **_document(one.own),
                }
                for one in summary.layers
            ],
            "miss_curve": [
                {
                    "bytes": point.bytes,
                    "geometry": point.geometry,
                    "unit": "1",
                    "source": "modelled",
                    "phases": dict(point.phases),
                    "layers": dict(point.layers),
                    "instructions": point.instructions,
                }
                for point in summary.curve
            ],
            "notes": list(summary.sentences),
        }
    }


def _document(modelled: Modelled) -> dict[str, Any]:
    values = dict(modelled.counters)
    for one in fields(modelled):
        value = getattr(modelled, one.name)
        if isinstance(value, Value):
            values[f"{one.name}_ratio" if one.name in modelled.counters else one.name] = value
    found = {f"{name}:{value.source}": _value(value) for name, value in values.items()}
    if modelled.budget is not None:
        for one in fields(modelled.budget):
            value = getattr(modelled.budget, one.name)
            found[f"budget_{one.name}:{value.source}"] = _value(value)
    return {"metrics": found}


def _value(value: Value) -> dict[str, Any]:
    plain_value = {"value": value.value, "unit": value.unit, "source": value.source}
    return plain_value if value.value is not None else {**plain_value, "reason": value.reason}
