"""Runs of schema 1 as schema 2 has them. Only here is the kind of a run guessed."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, get_args

from sonda.record.target import AnyTarget, Kind
from sonda.record.workload import workload_document

TARGETS: dict[str, frozenset[str]] = {
    target.kind: frozenset(target.__struct_fields__) for target in get_args(AnyTarget)
}
"""The fields of each kind's target."""
PARTICIPANT = frozenset({
    "name", "workload", "cores", "threads", "region", "observed", "train", "precision", "compile", "channels_last",
    "workers", "command", "options",
})  # fmt: skip


def upgrade(document: Mapping[str, Any]) -> dict[str, Any]:
    """A document of schema 1 in the words of schema 2; nothing of it is checked yet."""
    workload, target = document.get("workload"), document.get("target")
    upgraded = {**document, "schema": 2}
    if isinstance(workload, Mapping):
        if isinstance(command := workload.get("command"), str):
            workload = {**workload, "command": shlex.split(command)}
        upgraded["workload"] = workload_document(workload)
    if target is None or isinstance(target, Mapping):
        kind = guess_kind(workload if isinstance(workload, Mapping) else {}, target or {})
        upgraded["target"] = target_document(kind, target or {})
    if isinstance(point := document.get("point"), Mapping) and "cool_down" in point:
        upgraded["point"] = {key: value for key, value in point.items() if key != "cool_down"}
        upgraded["cool_down"] = point["cool_down"] or None
    return upgraded


def guess_kind(workload: Mapping[str, Any], target: Mapping[str, Any]) -> Kind:
    """What kind of run schema 1 means, which does not say it."""
    if isinstance(target.get("exploration"), Mapping):
        return "exploration"
    if isinstance(target.get("corun"), Mapping):
        return "corun"
    if isinstance(target.get("serving"), Mapping):
        return "serving"
    if "imported" in workload:
        return "imported"
    if target.get("device") == "sim":
        return "simulated"
    if target.get("alone") == "energy" and isinstance(target.get("metered"), Mapping):
        return "energy"
    if any(key in target for key in ("mode", "ranks", "nodes")):
        return "ranks"
    if "command" in workload:
        return "program"
    return "block" if workload.get("block") else "workload"


def target_document(kind: Kind, facts: Mapping[str, Any]) -> dict[str, Any]:
    """A target's facts as schema 2 has them: with its kind, and with what has no field of its own under `added`."""
    known = TARGETS[kind]
    target = {key: value for key, value in facts.items() if key in known and value is not None}
    added = {key: value for key, value in facts.items() if key not in known}
    if added:
        target["added"] = {**target.get("added", {}), **added}
    if not target.get("topdown"):
        target.pop("topdown", None)
    if isinstance(corun := target.get("corun"), Mapping) and isinstance(corun.get("participants"), list):
        target["corun"] = {**corun, "participants": [_participant(one) for one in corun["participants"]]}
    return {"spec": "", "device": "", **target, "kind": kind}


def _participant(facts: Any) -> Any:
    """A program side by side with others: its workload, and settings of its job that have no field."""
    if not isinstance(facts, Mapping):
        return facts
    participant = {key: value for key, value in facts.items() if key in PARTICIPANT}
    options = {key: value for key, value in facts.items() if key not in PARTICIPANT}
    if isinstance(workload := facts.get("workload"), Mapping):
        participant["workload"] = workload_document(workload)
    return {**participant, **({"options": options} if options else {})}
