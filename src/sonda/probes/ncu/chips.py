"""Chips by compute capability: which metrics Nsight Compute is asked for on each, and how many passes that takes.

The names are data (`metrics.toml`); tests compare every one of them with the database of NVIDIA's own package.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from sonda.probes.ncu.metric_database import MetricDatabase
from sonda.record.errors import SondaError

MEMORY = "dram__bytes.sum"
TABLE = Path(__file__).parent / "metrics.toml"


class _ChipEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    title: str
    capability: str
    memory: Literal["split", "whole", "none"]
    tensor: list[str]
    core_passes: int
    stall_passes: int
    more_stalls: list[str] = []


class _ChipTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    core: list[str]
    memory: list[str]
    split: list[str]
    tensor: str
    stall: str
    stalls: list[str]
    chips: dict[str, _ChipEntry]


@dataclass(frozen=True)
class MetricSet:
    """Metrics that are asked for together, and the least number of passes that they take."""

    name: str
    """core or stalls."""
    metrics: tuple[str, ...]
    passes: int


@dataclass(frozen=True)
class Chip:
    """A chip by NVIDIA's name (`GH100`), and what can be counted on it."""

    name: str
    title: str
    capability: str
    core: MetricSet
    stalls: MetricSet
    exact: bool = True
    """False where this chip stands in for one that the table does not have."""


@cache
def known_chips() -> dict[str, Chip]:
    """The chips of the table, by compute capability (`9.0`)."""
    table = msgspec.convert(tomllib.loads(TABLE.read_text(encoding="utf-8")), _ChipTable)
    return {entry.capability: _make_chip(name, entry, table) for name, entry in table.chips.items()}


def _make_chip(name: str, entry: _ChipEntry, table: _ChipTable) -> Chip:
    core = [*table.core, *(table.memory if entry.memory != "none" else [])]
    core += table.split if entry.memory == "split" else []
    for kind in entry.tensor:
        core.append(table.tensor.format(kind))
        if not kind.startswith("int"):
            core.append(f"{table.tensor.format(kind)}.peak_sustained")
    # The stalls have the time too, so that both counts of a launch can be compared.
    reasons = sorted([*table.stalls, *entry.more_stalls])
    stalls = ["gpu__time_duration.sum", *(table.stall.format(reason) for reason in reasons)]
    return Chip(
        name, entry.title, entry.capability, MetricSet("core", tuple(core), entry.core_passes),
        MetricSet("stalls", tuple(stalls), entry.stall_passes),
    )  # fmt: skip


def find_chip(major: int, minor: int) -> Chip:
    """The chip of a compute capability. One that is not in the table has the metrics of the nearest lower one.

    Raises SondaError below 7.0, which Nsight Compute does not count.
    """
    known = {tuple(map(int, name.split("."))): chip for name, chip in known_chips().items()}
    if (major, minor) in known:
        return known[major, minor]
    # An integrated chip does not count bytes of its memory; a later chip may count them.
    lower = [version for version, chip in known.items() if version < (major, minor) and MEMORY in chip.core.metrics]
    if not lower:
        raise SondaError(
            f"Nsight Compute does not count on compute capability {major}.{minor}", "use a GPU of 7.0 or later (Volta)"
        )
    near = known[max(lower)]
    return Chip(near.name, near.title, f"{major}.{minor}", near.core, near.stalls, exact=False)


def count_passes(chip: Chip, metrics: tuple[str, ...]) -> int:
    """The least number of passes for some metrics of a set.

    NVIDIA's package gives it where it is installed. Elsewhere it is that of the whole set, which is never smaller.
    """
    whole = chip.core if set(metrics) <= set(chip.core.metrics) else chip.stalls
    try:
        with MetricDatabase(chip.name) as database:
            return database.passes([metric for metric in metrics if database.knows(metric)])
    except SondaError:
        return whole.passes
