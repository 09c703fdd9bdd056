"""Files of ranks: one outcome each, and the forecast that the first writes before training begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from sonda.record.files.partial import write_whole

OUTLOOK = "outlook.json"
BEGUN = "begun"
"""Left by the ranks of a node once they have met those of others."""


class Forecast(msgspec.Struct, kw_only=True):
    """The forecast before the run: sentences for the user, numbers for the record."""

    sentences: list[str]
    numbers: dict[str, Any]


class RankParts(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a rank has of the model or of the machine, where that is not all of the model on one device."""

    devices: list[str] = []
    """Of a rank that trains on several GPUs."""
    modules: list[str] = []
    """Of a stage of a pipeline, by path."""


class RankOutcome(msgspec.Struct, kw_only=True):
    """How one rank ended: what it trained, or why it failed."""

    rank: int
    device: str
    threads: int = 0
    left_out: bool = False
    workload: dict[str, Any] = {}
    samples: list[int] = []
    """Of every timed step."""
    worked_ns: list[int] = []
    waited_ns: list[int] = []
    changes: list[dict[str, Any]] = []
    """Shares and the step from which on they were in force."""
    about: RankParts = msgspec.field(default_factory=RankParts)
    cause: str = ""
    remedy: str = ""
    lost: bool = False
    """It failed because another rank was gone."""
    late: bool = False
    """It has waited for another rank for as long as the plan allows."""
    absent: bool = False
    """Its cause names the rank that did not come."""


class AgentReport(msgspec.Struct, kw_only=True):
    """How all ranks of a node ended."""

    ranks: list[RankOutcome] = []
    cause: str = ""
    remedy: str = ""
    lost: bool = False
    """A rank was killed or lost, which may go well another time."""
    cpu_s: float = 0.0
    """Processor time of the agent and its ranks, s; the parent sees it only after the agent's end."""
    heard: bool = False
    """The only cause known here is that others were gone; another node may know why."""
    node: str = ""
    """This node's name, and those of all by number, where there are several."""
    nodes: list[str] = []
    same: dict[str, str] = {}
    """Of nodes that are processes of one machine, the first of them."""


def write_outcome(directory: Path, outcome: RankOutcome) -> None:
    write_whole(directory / f"rank-{outcome.rank}.json", msgspec.json.encode(outcome))


def read_outcome(directory: Path, rank: int) -> RankOutcome | None:
    """None where the rank did not live to write it."""
    try:
        return msgspec.json.decode((directory / f"rank-{rank}.json").read_bytes(), type=RankOutcome)
    except FileNotFoundError:
        return None


def write_forecast(directory: Path, forecast: Forecast) -> None:
    write_whole(directory / OUTLOOK, msgspec.json.encode(forecast))


def read_forecast(directory: Path) -> Forecast | None:
    """None as long as it is not there."""
    try:
        return msgspec.json.decode((directory / OUTLOOK).read_bytes(), type=Forecast)
    except FileNotFoundError:
        return None
