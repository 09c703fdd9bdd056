"""The documents of all shipped studies, filled with constructed figures: nothing in them was measured.

Plan, axes, columns and published figures are those of the study's own file; what a machine would add is made up by a
rule that a test can follow: the figure of row r in column c has the value (r + 1) + c / 100, from three repetitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sonda.record.store import Store
from sonda.report.words import word_findings
from sonda.studies.catalogue import show_study

REPETITIONS = 3


def value_of(row: int, column: int) -> float:
    return row + 1 + column / 100


def constructed(name: str, folder: Path, scale: str | None = "small") -> dict[str, Any]:
    """A shipped study at its small scale, or whole where `scale` is None, with a figure in every field that its file
    asks for."""
    study = word_findings(show_study(name, scale, None, Store(folder)))
    for at, row in enumerate(study["rows"]):
        row["failures"], row["runs"] = [], [f"constructed{at}"]
        for number, figure in enumerate(row["figures"].values()):
            value = value_of(at, number)
            figure |= {"value": value, "low": 0.9 * value, "high": 1.1 * value, "n": REPETITIONS, "reason": "",
                       "values": [0.9 * value, value, 1.1 * value], "source": "measured"}  # fmt: skip
            for one in figure.get("published", ()):
                if one["value"]["value"] is not None:
                    one["ratio"] = value / one["value"]["value"]
                else:
                    one["in_range"] = "above" if value > one["value"]["high"] else "inside"
    if "accuracy_percent" in {column["figure"] for column in study["columns"]}:
        for row in study["rows"]:
            row["curve"] = [_point(epoch) for epoch in (1, 2, 3)]
    study["compared"] = [
        {"figure": figure, "variant": variant, "ratio": 1.5 + number, "n": 2}
        for figure in study["compare"]
        for number, variant in enumerate(_variants(study)[1:])
    ]
    if study["base"]:
        study["optimisations"] = [_options(study)]
        study["scaling"] = _scaling(study)
    study["notes"] = ["constructed"]
    return study


def _variants(study: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(str(row["configuration"].get("variant", "")) for row in study["rows"]))


def _point(epoch: int) -> dict[str, Any]:
    share = 0.2 * epoch
    spread = {"mean": share, "low": None, "high": None, "minimum": share - 0.05, "maximum": share + 0.05}
    return {"epoch": epoch, "passed": 2.0 * epoch, "n": REPETITIONS, "accuracy": spread}


def _options(study: Mapping[str, Any]) -> dict[str, Any]:
    """Options in turn: twice as fast, half as fast, and nothing that could be told from noise."""
    rules = (("faster", 2.0, 1.8, 2.2, "2.00x faster"), ("slower", 0.5, 0.4, 0.6, "2.00x slower"),
             ("unknown", 1.1, 0.7, 1e30, "not significant"))  # fmt: skip
    options = []
    for number, name in enumerate(one for one in _variants(study) if one != study["base"]):
        effect, middle, low, high, text = rules[number % 3]
        speedup = {"value": middle, "unit": "1", "source": "derived", "low": low, "high": high, "reason": ""}
        options.append({"name": name, "speedup": speedup, "effect": effect, "text": text, "together": None,
                        "limit": _limit(0.9 - number / 100)})  # fmt: skip
    return {"place": "", "base": study["base"], "base_limit": _limit(0.95), "options": options,
            "sentence": f"{options[0]['name']} brings 2.00x."}  # fmt: skip


def _limit(share: float) -> dict[str, Any]:
    return {"kind": "compute", "share": share, "sentence": f"Compute-bound: {100 * share:.0f} % of the step.",
            "remedy": "fuse operations", "flags": "--compile"}  # fmt: skip


def _scaling(study: Mapping[str, Any]) -> dict[str, Any]:
    speed = {"value": 1.8, "unit": "1", "source": "derived", "low": 1.7, "high": 1.9, "reason": ""}
    points = [{"name": "two", "devices": 2, "whole": speed, "training": speed}]
    return {"base": study["base"], "devices": 1, "serial": 0.1, "bound": [[1, 1.0], [2, 1 / 0.55]], "points": points}
