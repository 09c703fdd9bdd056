"""Files of pytest-benchmark: written of steps, read as a baseline. Times are seconds there, and ns here."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from sonda.record.errors import SondaError
from sonda.report.output import whole_file

NS = 1e9
FORMAT = "5.3.1"
"""The version of pytest-benchmark whose files these are like."""
FENCE = 1.5
"""Interquartile ranges beyond which Tukey's box has outliers."""


def write_benchmarks(path: Path, tests: Mapping[str, Sequence[float]], about: Mapping[str, dict[str, Any]]) -> None:
    """Write the times of steps in ns by test, with what else there is to say of each. Raises SondaError."""
    document = {
        "machine_info": {
            "node": platform.node(),
            "processor": platform.processor(),
            "machine": platform.machine(),
            "system": platform.system(),
            "release": platform.release(),
            "python_version": platform.python_version(),
            "python_implementation": platform.python_implementation(),
            "python_implementation_version": platform.python_version(),
        },
        "commit_info": {"id": "unversioned", "time": None, "author_time": None, "dirty": False, "project": None,
                        "branch": "(unknown)"},
        "benchmarks": [_benchmark(name, times, about.get(name, {})) for name, times in tests.items() if len(times)],
        "datetime": datetime.now(UTC).isoformat(),
        "version": FORMAT,
    }  # fmt: skip
    with whole_file(path) as stream:
        stream.write(json.dumps(document, indent=1).encode() + b"\n")


def read_benchmarks(path: Path) -> dict[str, list[float]]:
    """Times of rounds in ns by test. Raises SondaError for a file that is none of pytest-benchmark, or has no times."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        data = {each["fullname"]: each["stats"].get("data") or () for each in document["benchmarks"]}
        times = {name: [float(value) * NS for value in values] for name, values in data.items() if values}
    except OSError as error:
        raise SondaError(f"cannot read {path}: {error.strerror or error}", "name a file that can be read") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise SondaError(
            f"{path} is no file of pytest-benchmark", "write one with: pytest --sonda --sonda-json"
        ) from None
    if not all(0 < value < math.inf for values in times.values() for value in values):
        raise SondaError(f"{path} has a time that is not above 0", "write it again with: pytest --sonda --sonda-json")
    if data and not times:
        raise SondaError(f"{path} has no times of single rounds", "write it with --benchmark-save-data or --sonda-json")
    return times


def _benchmark(name: str, times: Sequence[float], about: dict[str, Any]) -> dict[str, Any]:
    seconds = np.asarray(times, dtype=np.float64) / NS
    options = {"disable_gc": False, "timer": "perf_counter", "min_rounds": len(seconds), "max_time": None,
               "min_time": None, "warmup": True}  # fmt: skip
    shown = name.rpartition("::")[2]
    param = shown[shown.index("[") + 1 : -1] if shown.endswith("]") and "[" in shown else None
    return {
        "group": None, "name": shown, "fullname": name, "params": None, "param": param, "extra_info": about,
        "options": options, "stats": {**describe_times(seconds), "data": seconds.tolist(), "iterations": 1},
    }  # fmt: skip


def describe_times(seconds: np.ndarray) -> dict[str, Any]:
    """The numbers that pytest-benchmark keeps of rounds, under its names.

    Quartiles are Hazen's (1914): the value at (n + 2) / 4, which is the definition that it has.
    """
    ordered = np.sort(seconds)
    first, middle, third = (float(value) for value in np.quantile(ordered, (0.25, 0.5, 0.75), method="hazen"))
    mean, deviation = float(ordered.mean()), float(ordered.std(ddof=1)) if len(ordered) > 1 else 0.0
    low, high = first - FENCE * (third - first), third + FENCE * (third - first)
    inside = ordered[(ordered >= low) & (ordered <= high)]
    beyond = int(((ordered < mean - deviation) | (ordered > mean + deviation)).sum())
    outliers = len(ordered) - len(inside)
    total = float(ordered.sum())
    return {
        "min": float(ordered[0]), "max": float(ordered[-1]), "mean": mean, "stddev": deviation, "rounds": len(ordered),
        "median": middle, "iqr": third - first, "q1": first, "q3": third, "iqr_outliers": outliers,
        "stddev_outliers": beyond, "outliers": f"{beyond};{outliers}", "ld15iqr": float(inside[0]),
        "hd15iqr": float(inside[-1]), "ops": len(ordered) / total if total else 0, "total": total,
    }  # fmt: skip
