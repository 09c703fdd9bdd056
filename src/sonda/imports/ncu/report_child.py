"""The program that reads an `.ncu-rep` file with NVIDIA's `ncu_report`: a line of JSON for every launch.

It is a process of its own because `ncu_report` 2025.3.1 ends the process with a segmentation fault where pyarrow was
loaded before it, and pyarrow is what writes runs.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

NOT_INSTALLED, NOT_READABLE = 3, 4
"""How it ends when there is no `ncu_report`, or when that cannot read the file; the reason is on stderr."""


def main(path: str) -> int:
    try:
        ncu_report = importlib.import_module("ncu_report")
    except ImportError:
        return NOT_INSTALLED
    try:
        report = ncu_report.load_report(path)
    except Exception as error:  # its exceptions have no common base
        print(error, file=sys.stderr)
        return NOT_READABLE
    for part in report:
        for action in part:
            print(json.dumps({"name": _name(action), "metrics": _metrics(action)}))
    return 0


def _name(action: Any) -> str:
    """With its arguments, as ncu prints it."""
    whole = getattr(action, "NameBase_DEMANGLED", None)
    return str(action.name() if whole is None else action.name(whole))


def _metrics(action: Any) -> list[tuple[str, str, str]]:
    """Name, value and unit; of what is no number the value is empty."""
    metrics = []
    for name in action.metric_names():
        metric = action.metric_by_name(name)
        value = metric.value() if metric is not None else None
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        metrics.append((name, str(value) if plain else "", (metric.unit() or "") if plain else ""))
    return metrics


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
