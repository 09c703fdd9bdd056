"""Counters and Top-Down of a part as plain JSON values: every number with its unit and source."""

from __future__ import annotations

from sonda.analysis.counted_summary import Counted, CounterSummary, Slots, TopDown
from sonda.report.values import Document, finite, metrics, value_document


def counters_document(summary: CounterSummary | None) -> Document:
    """What hardware counters add to a JSON document; nothing where there are none."""
    if summary is None:
        return {}
    return {
        "counters": {
            "step": _counted(summary.step),
            "phases": {name: _counted(one) for name, one in summary.phases.items()},
            "layers": {path: _counted(one) for path, one in summary.layers.items()},
            "groups": [list(group) for group in summary.groups],
            "stationary": summary.stationary,
            "notes": list(summary.sentences),
        }
    }


def topdown_document(topdown: TopDown | None) -> Document:
    """What Top-Down adds to a JSON document; nothing where it was not counted."""
    if topdown is None:
        return {}
    definition = topdown.definition
    return {
        "topdown": {
            "name": definition.name,
            "of": definition.of,
            "approximate": definition.approximate,
            "categories": [
                {"name": one.name, "title": one.words, "parent": one.parent or None, "threshold": one.threshold,
                 "bound": one.bound or None} for one in definition.categories
            ],
            "step": _slots(topdown.step),
            "phases": {name: _slots(one) for name, one in topdown.phases.items()},
            "layers": {path: _slots(one) for path, one in topdown.layers.items()},
            "over_steps": {
                "stretches": [list(ends) for ends in topdown.stretches],
                "unit": "1",
                "source": "derived",
                "shares": {name: [finite(one) for one in values] for name, values in topdown.over_steps.items()},
            },
            "notes": list(topdown.sentences),
        }
    }  # fmt: skip


def _counted(counted: Counted) -> Document:
    thousand = {f"{name}_per_thousand_instructions": value for name, value in counted.per_thousand.items()}
    return {"metrics": metrics({**counted.counters, "ipc": counted.ipc, **thousand})}


def _slots(slots: Slots) -> Document:
    return {
        "shares": {
            name: {**value_document(share.value), "counts": share.counts, "across_groups": share.across}
            for name, share in slots.shares.items()
        },
        "residual": value_document(slots.residual),
        "residuals": {name: value_document(value) for name, value in slots.residuals.items()},
        "leading": list(slots.leading),
    }
