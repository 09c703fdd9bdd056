"""Helpers of `test_report_trace.py` that other tests use too."""

from __future__ import annotations

from typing import Any

import numpy as np

from sonda.record.spans import Spans, Words


def spans_of(rows: list[dict[str, Any]], metrics: dict[str, list[float]] | None = None) -> Spans:
    """Spans from rows of plain values."""
    numbers = {
        name: np.array([row.get(name, default) for row in rows])
        for name, default in (("start", 0), ("duration", 0), ("parent", -1), ("thread", 1), ("stream", 0), ("rank", 0))
    }
    words = {
        name: Words.of(row.get(name, default) for row in rows)
        for name, default in (
            ("kind", "layer"), ("name", ""), ("path", ""), ("pass", "timed"), ("clock", "host"), ("device", "cpu"),
            ("direction", ""), ("node", ""),
        )
    }  # fmt: skip
    return Spans(numbers, words, {name: np.array(values) for name, values in (metrics or {}).items()})
