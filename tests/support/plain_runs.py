"""Parts of `run.json` from plain values: tests write down what matters to them, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sonda.record.machine import Machine
from sonda.record.run import Run, RunInfo, convert_info
from sonda.record.stored import without_unknown
from sonda.record.target import AnyTarget
from sonda.record.workload import Workload


def run_info(**fields: Any) -> RunInfo:
    """What `run.json` says, from plain values by the names of schema 1; the kind of the run is guessed as there."""
    fields = {"id": "7f3a", "created": "2026-11-15T03:30:12+00:00", "status": "complete", **fields}
    return convert_info(without_unknown({"schema": 1, **fields}))


def load_plain(directory: Path, **fields: Any) -> Run:
    """The same read back from a `run.json` that says so, whatever it says."""
    fields = {"id": "7f3a", "created": "2026-11-15T03:30:12+00:00", "status": "complete", **fields}
    (directory / "run.json").write_text(json.dumps({"schema": 1, **fields}))
    return Run.load(directory)


def target_of(facts: dict[str, Any], workload: dict[str, Any] | None = None) -> AnyTarget:
    """A target from plain values; its kind is what these, and the workload, look like."""
    return run_info(target=facts, workload=workload or {}).target


def workload_of(facts: dict[str, Any]) -> Workload:
    return run_info(workload=facts).workload


def machine_of(facts: dict[str, Any]) -> Machine:
    return run_info(machine=facts).machine


def change_target(run: Run, **facts: Any) -> None:
    """Give a run's target other facts, as plain values."""
    plain = {**run.info.target.plain(), **facts}
    run.info.target = target_of(plain, run.info.workload.plain())


def change_workload(run: Run, **facts: Any) -> None:
    """The same for its workload."""
    run.info.workload = workload_of({**run.info.workload.plain(), **facts})


def typed(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields of a summary whose `workload`, `target` and `machine` are plain values, as the structs they are."""
    makers = {
        "workload": workload_of,
        "target": lambda facts: target_of(facts, fields.get("workload") if isinstance(facts, dict) else None),
        "machine": machine_of,
    }
    return {
        name: makers[name](value) if name in makers and isinstance(value, dict) else value
        for name, value in fields.items()
    }
