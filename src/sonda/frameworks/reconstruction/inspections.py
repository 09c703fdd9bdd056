"""What the inspections of counted steps showed, with the names of phases and layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sonda.frameworks.reconstruction.events import ProcessEvents
from sonda.frameworks.reconstruction.steps import StepSection

MOST_STEPS = 4
"""Inspected steps of each part that are kept, the last ones."""
GROUP = ("operations", "ns", "flops", "bytes", "strided", "mapped")


def read_inspections(
    events: ProcessEvents, paths: dict[int, str], sections: Sequence[StepSection], origin: int
) -> list[dict[str, Any]]:
    """The evidence of a process's counted steps, as `record.evidence.StepEvidence` holds it. `origin`: ns at which the
    run began."""
    steps = [(step.start, step.end, section.part) for section in sections for step in section.steps]
    kept: dict[str, list[dict[str, Any]]] = {}
    for fact in events.facts:
        if "inspected" not in fact:
            continue
        begun = fact["inspected"]
        around = [part for start, end, part in steps if start <= fact["until"] and begun <= end]
        if around:
            kept.setdefault(around[0], []).append(_describe(fact, events.definitions, paths, around[0], begun - origin))
    return [evidence for part in kept.values() for evidence in part[-MOST_STEPS:]]


def read_denormals(events: ProcessEvents, paths: dict[int, str]) -> dict[str, Any]:
    """Where subnormal numbers were seen, and how many times longer operations take with them; {} for none."""
    found = events.fact("denormals", [])
    if not found:
        return {}
    product, element, root = events.fact("denormal_times", [1.0, 1.0, 1.0])
    places = [{"layer": paths.get(number, ""), "what": what, "part": part} for number, what, part in found]
    return {"places": places, "product_times": product, "element_times": element, "root_times": root}


def read_repeated_forwards(events: ProcessEvents, paths: dict[int, str]) -> dict[str, Any]:
    """Evaluating forwards that computed again what was there; {} for none."""
    looked, lasted, rows = events.fact("again", [0, 0, []])
    again = [{"layer": paths.get(number, ""), "times": times, "ns": ns, "line": line}
             for number, times, ns, line in rows]  # fmt: skip
    return {"looked": looked, "lasted": lasted, "forwards": again} if again else {}


def read_compilations(events: ProcessEvents) -> dict[str, Any]:
    """What a process compiled and where its graphs broke off; {} where it compiled nothing."""
    function = ("function", "line", "times", "seconds", "again", "reason")
    found = {
        "functions": [dict(zip(function, entry, strict=True)) for entry in events.fact("compiled", [])],
        "breaks": [dict(zip(("line", "reason", "times"), entry, strict=True)) for entry in events.fact("breaks", [])],
    }
    return found if found["functions"] or found["breaks"] else {}


def _describe(
    fact: dict[str, Any], definitions: list[dict[str, Any]], paths: dict[int, str], part: str, start: int
) -> dict[str, Any]:
    def layer(number: int) -> str:
        return paths.get(number, "")

    def place(phase: int, number: int, line: str) -> dict[str, Any]:
        name = definitions[phase].get("name", "") if 0 <= phase < len(definitions) else ""
        return {"phase": name, **({"layer": layer(number)} if number in paths else {}), "line": line}

    groups = [
        {**place(phase, number, line), "family": family, "bits": bits, **dict(zip(GROUP, sums, strict=True))}
        for phase, number, line, family, bits, *sums in fact["groups"]
    ]
    operation = ("name", "ns", "part", "times")
    tables = ("rows", "elements", "untouched")
    return {
        "part": part,
        "start": max(start, 0),
        "batch": fact.get("batch", 0),
        "line": fact.get("line", ""),
        "call_lines": {layer(number): line for number, line in reversed(fact.get("called", ()))},
        "functions": fact.get("functions", {}),
        "groups": groups,
        "subnormal": [
            {**place(phase, number, line), **dict(zip(operation, about, strict=True))}
            for phase, number, line, *about in fact.get("subnormal", ())
        ],
        "formats": [
            {**place(phase, number, line), "ns": ns, "times": times}
            for phase, number, line, ns, times in fact.get("formats", ())
        ],
        "repeated": [
            {"layer": layer(number), "calls": calls, "repeated": times, "line": line}
            for number, calls, times, line in fact["repeated"]
        ],
        "thrown": [
            {"layer": layer(number), "part": lost, "first": first} for number, lost, first in fact.get("thrown", ())
        ],
        "graphs": [
            {"layer": layer(number), "calls": calls, "unused": unused, "line": line}
            for number, calls, unused, line in fact.get("unreached", ())
        ],
        "sizes": [
            {"layer": layer(number), "weights": weights, "inputs": inputs, "outputs": outputs, "kernel": kernel}
            for number, weights, inputs, outputs, kernel in fact.get("sizes", ())
        ],
        "updates": [
            {**update, "tables": [{"layer": layer(table[3]), **dict(zip(tables, table, strict=False))}
                                  for table in update["tables"]]}
            for update in fact["updates"]
        ],
    }  # fmt: skip
