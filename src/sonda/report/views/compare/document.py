"""B against A as plain JSON values."""

from __future__ import annotations

from sonda.analysis.comparison.limit import LimitCheck
from sonda.analysis.comparison.summary import ComparedRow, Comparison
from sonda.report.json import document
from sonda.report.values import Document, metrics, value_document
from sonda.report.words import describe


def comparison_document(comparison: Comparison, fail_above: float | None = None) -> Document:
    """B against A; with a limit also whether it is passed."""
    fields = {
        "a": list(comparison.a),
        "b": list(comparison.b),
        "exact": comparison.exact,
        "slowdown": value_document(comparison.slowdown),
        **({} if fail_above is None else limit_fields(comparison.check(fail_above))),
        "parts": [
            {
                "name": part.name,
                "step": _compared(part.step),
                "phases": [_compared(row) for row in part.phases],
                "layers": [_compared(row) for row in part.layers],
                "only_a": list(part.only_a),
                "only_b": list(part.only_b),
            }
            for part in comparison.parts
        ],
        "warnings": list(map(describe, comparison.warnings)),
        "notes": list(map(describe, comparison.notes)),
    }
    return document("comparison", fields)


def limit_fields(check: LimitCheck) -> Document:
    """What `--fail-above` asked, and what came of it."""
    limit = {
        "above": check.limit, "outcome": check.outcome, "exit_code": check.exit_code, "repetitions": check.repetitions,
        "at_least": check.at_least,
    }  # fmt: skip
    return {"limit": limit}


def _compared(row: ComparedRow) -> Document:
    what = "cycles" if row.a.unit == "cycle" else "time"
    return {
        "name": row.name,
        "path": row.path,
        "significant": bool(row.significant),
        "text": row.text,
        "metrics": metrics({f"{what}_a": row.a, f"{what}_b": row.b, "ratio": row.ratio}),
    }
