"""What traces say about the job that their ranks belong to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from sonda.record import rank_group


class Headed(Protocol):
    """A rank and what its file says about itself."""

    rank: int | None
    head: dict[str, Any]


def profile_facts(ranks: Sequence[Headed]) -> dict[str, Any]:
    """`profile` of XSpace files: what they say about steps and traced functions, all ranks together.

    Calls and traces of a function are added up; where it was not traced on all of several ranks, `ranks` names those.
    """
    said = [(one.rank or 0, one.head["profile"]) for one in ranks]
    traced: dict[str, dict[str, Any]] = {}
    for rank, profile in said:
        for name, counts in profile["traced"].items():
            one = traced.setdefault(name, {"calls": 0, "traced": 0, "ranks": []})
            one["calls"] += counts["calls"]
            one["traced"] += counts["traced"]
            one["ranks"].append(rank)
    for one in traced.values():
        if len(one["ranks"]) == len(ranks):
            del one["ranks"]
    return {"profile": {"steps": next((one["steps"] for _, one in said if one["steps"]), ""), "traced": traced}}


def job_facts(ranks: Sequence[Headed]) -> dict[str, Any]:
    """Of several ranks: `hosts`, the name of each one's machine in order; `world`, how many ranks the job had;
    `smallest_group`, how many take part in the smallest group that communicates; `groups`, all of these with their
    ranks. What no file says is left out.
    """
    if len(ranks) < 2:
        return {}
    hosts = [one.head.get("host_name") for one in ranks]
    found: dict[str, Any] = {}
    if all(isinstance(host, str) and host for host in hosts):
        found["hosts"] = hosts
    about = [one.head.get("distributedInfo") for one in ranks]
    said = [one for one in about if isinstance(one, dict)]
    worlds = [size for one in said if isinstance(size := one.get("world_size"), int) and 0 < size < 1 << 31]
    if worlds:
        found["world"] = max(worlds)
    groups = [
        (group, size) for one in said if isinstance(config := one.get("pg_config"), list) for group in config
        if isinstance(group, dict) and isinstance(size := group.get("pg_size"), int) and 1 < size < 1 << 31
    ]  # fmt: skip
    if groups:
        found["smallest_group"] = min(size for _, size in groups)
    named = [rank_group.said(one.get("pg_name"), one.get("pg_desc"), one.get("ranks"), "") for one, _ in groups]
    whole = [one for one in dict.fromkeys(named) if one is not None and one.ranks]
    if whole:
        found["groups"] = [
            {"name": one.group, "description": one.description, "ranks": list(one.ranks)} for one in whole
        ]
    return found
