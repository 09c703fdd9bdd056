"""Tables of an imported profile: steps, what they are spent on, operations and where they ran."""

from __future__ import annotations

from typing import Any

from sonda.analysis.operation_table import OperationTotals
from sonda.analysis.profile_summary import ProfileSummary, StepTimes
from sonda.analysis.step_breakdown import PARTS
from sonda.analysis.summary import Value
from sonda.report.kernel_tables import kernel_name
from sonda.report.table import Cell, Column, Table, build, numbers, shares, words
from sonda.report.values import value_document

HINTS = {
    "compute": "a device computes", "communication": "a device communicates, and none computes",
    "transfer": "data are moved to or from a device, and nothing is computed there",
    "compile": "a function is traced or compiled", "operations": "the host executes an operation of the model",
    "input": "the next batch is waited for", "launch": "work is being launched on a device",
    "host": "the framework is at work, and nothing that it called", "idle": "nothing was recorded",
}  # fmt: skip
MEANINGS = {"compute": "device compute", "operations": "operations on the host", "launch": "kernel launch",
            "host": "the framework itself"}  # fmt: skip
LONGEST = 60
"""Characters of an operation's path on a screen."""


def profile_tables(found: ProfileSummary, rows: int) -> list[Table]:
    """Everything there is to show; up to `rows` operations."""
    tables = [steps_table(found.steps), breakdown_table(found.steps[0])] if found.steps else []
    if found.operations and rows:
        tables.append(operations_table(found, found.operations[:rows]))
    return [*tables, placement_table(found)] if found.operations else tables


def steps_table(steps: tuple[StepTimes, ...]) -> Table:
    """How long steps took, by rank and name."""
    ranks = len({one.rank for one in steps}) > 1
    named = [f"rank {one.rank} {one.name}" if ranks else one.name for one in steps]
    columns: list[tuple[Column, list[Cell]]] = [
        (Column("steps of", right=False), words(named)),
        (Column("count"), numbers([Value(len(one.durations), "1", "counted") for one in steps])[1]),
    ]
    shown: dict[str, list[float]] = {
        "median": [one.median for one in steps],
        "shortest": [float(min(one.durations)) for one in steps],
        "longest": [float(max(one.durations)) for one in steps],
    }
    for name, times in shown.items():
        columns.append((Column(name), numbers([Value(time, "ns", "measured") for time in times], suffix=True)[1]))
    if any(one.device for one in steps):
        of_device = [Value(one.on_device, "ns", "measured") for one in steps]
        hint = "median, from the first activity launched in a step to the end of the last"
        columns.append((Column("on the device", hint=hint), numbers(of_device, suffix=True)[1]))
    return build(columns, "steps")


def breakdown_table(steps: StepTimes) -> Table:
    """What the steps of one name are spent on; the times of all rows add up to the mean step."""
    count = len(steps.durations)
    means = [_mean(steps.parts[part], count) for part in PARTS]
    share = [Value(None if one.value is None else steps.share(part), "1", one.source, reason=one.reason)
             for part, one in zip(PARTS, means, strict=True)]  # fmt: skip
    labels = [Cell(MEANINGS.get(part, part), part, HINTS[part]) for part in PARTS]
    cells = [shares([one.value], "the steps")[0] if one.value is not None
             else Cell("–", None, one.reason, one.reason, "quiet") for one in share]  # fmt: skip
    return build(
        [
            (Column(f"a step of {steps.name}", right=False), labels),
            (Column("mean"), numbers(means, suffix=True)[1]),
            (Column("share %"), cells),
        ],
        "breakdown",
    )


def operations_table(found: ProfileSummary, operations: tuple[OperationTotals, ...]) -> Table:
    """Operations, those with the longest time of their own first."""
    whole = sum(one.own for one in found.operations)
    placed = any(one.path for one in found.operations)
    where = [(Column("in", right=False, path=True, keep=6), [_path(one.path) for one in operations])] if placed else []
    return build(
        [
            (Column("operation", right=False), [kernel_name(one.name) for one in operations]),
            *where,
            (Column("on", right=False, keep=7), words([one.place for one in operations])),
            (Column("calls", keep=5), numbers([Value(one.calls, "1", "counted") for one in operations])[1]),
            (Column("own time", hint="without the operations inside"),
             numbers([Value(float(one.own), "ns", "measured") for one in operations], suffix=True)[1]),
            (Column("share %", keep=8), shares([one.own / whole if whole else 0.0 for one in operations],
                                               "all operations")),
        ],
        "operations",
    )  # fmt: skip


def placement_table(found: ProfileSummary) -> Table:
    """How much ran on the host and how much on devices."""
    places = found.placement
    whole = sum(own for _, _, own in places.values())
    return build(
        [
            (Column("operations on", right=False), words(list(places))),
            (Column("different"), numbers([Value(kinds, "1", "counted") for kinds, _, _ in places.values()])[1]),
            (Column("calls"), numbers([Value(calls, "1", "counted") for _, calls, _ in places.values()])[1]),
            (Column("own time"), numbers([Value(float(own), "ns", "measured") for _, _, own in places.values()],
                                         suffix=True)[1]),
            (Column("share %"), shares([own / whole if whole else 0.0 for _, _, own in places.values()],
                                       "all operations")),
        ],
        "placement",
    )  # fmt: skip


def profile_document(found: ProfileSummary) -> dict[str, Any]:
    """Everything as plain JSON values, times in ns."""
    return {
        "steps_are": found.how,
        "steps": [
            {"rank": one.rank, "name": one.name, "durations_ns": list(one.durations), "device_ns": list(one.device),
             "parts": {part: value_document(value) for part, value in one.parts.items()}}
            for one in found.steps
        ],
        "operations": [
            {"name": one.name, "path": one.path, "on": one.place, "calls": one.calls, "total_ns": one.total,
             "own_ns": one.own}
            for one in found.operations
        ],
        "placement": {place: {"operations": kinds, "calls": calls, "own_ns": own}
                      for place, (kinds, calls, own) in found.placement.items()},
        "traced": {name: {"calls": calls, "traced": traced} for name, (calls, traced) in found.traced.items()},
    }  # fmt: skip


def _mean(value: Value, count: int) -> Value:
    mean = None if value.value is None else value.value / count
    return Value(mean, value.unit, value.source, reason=value.reason)


def _path(path: str) -> Cell:
    return Cell(path if len(path) <= LONGEST else f"…{path[1 - LONGEST :]}", path, path)
