"""A modelled step as plain JSON values: every number under its metric's name, with unit and source."""

from __future__ import annotations

from dataclasses import fields

from sonda.analysis.modelled_summary import Modelled, ModelledSummary
from sonda.analysis.summary import Value
from sonda.report.values import Document, finite, metrics, value_document


def modelled_document(summary: ModelledSummary | None) -> Document:
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
                    "forward_instructions:modelled": value_document(one.forward),
                    "backward_instructions:modelled": value_document(one.backward),
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


def _document(modelled: Modelled) -> Document:
    values = dict(modelled.counters)
    for one in fields(modelled):
        value = getattr(modelled, one.name)
        if isinstance(value, Value):
            values[f"{one.name}_ratio" if one.name in modelled.counters else one.name] = value
    if modelled.budget is not None:
        values |= {f"budget_{one.name}": getattr(modelled.budget, one.name) for one in fields(modelled.budget)}
    return {"share": finite(modelled.share), "metrics": metrics(values)}
