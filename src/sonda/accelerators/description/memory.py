"""The `[memory]` table of a description: a finite global buffer and the memory behind it.

With `dram = "hbm2"` bandwidth, latency, row, row miss, burst and banks are those of `memories.toml`, turned into cycles
with the description's clock; a field that is given beside it wins. Without a preset they must be given. `hbm2-random`
and `hbm2-stream` are the same memory; only their energies per bit differ.
"""

from __future__ import annotations

import dataclasses
import math
import tomllib
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from sonda.accelerators.description.fields import MISSING, Fields
from sonda.accelerators.energy.table import PATTERNS, dram_presets
from sonda.accelerators.memory.hierarchy import Memory

FIELDS = ("buffer_KiB", *(field.name for field in dataclasses.fields(Memory) if field.name != "buffer_bytes"))
KIB = 1024
MOST_KIB = 1 << 30
MOST_CYCLES = 1 << 30
WHOLE = {
    "latency_cycles": (0, MOST_CYCLES),
    "row_bytes": (1, 1 << 30),
    "row_miss_cycles": (0, MOST_CYCLES),
    "burst_bytes": (1, 1 << 16),
    "banks": (1, 1 << 16),
}
"""Smallest and largest of the fields that a preset gives; bytes per cycle are no whole number."""
USUAL = {"burst_bytes": Memory.burst_bytes, "banks": Memory.banks}
WIDEST_ELEMENT = 16


class Preset(NamedTuple):
    """One memory of `memories.toml`."""

    GB_per_s: float
    latency_ns: float
    row_bytes: int
    row_miss_ns: float
    burst_bytes: int
    banks: int
    source: str
    status: str

    def fields(self, clock_hz: float) -> dict[str, float]:
        """Fields of a Memory at this clock; parts of a cycle are waited for."""
        per_ns = clock_hz / 1e9
        return {
            "bytes_per_cycle": self.GB_per_s / per_ns,
            "latency_cycles": math.ceil(self.latency_ns * per_ns),
            "row_bytes": self.row_bytes,
            "row_miss_cycles": math.ceil(self.row_miss_ns * per_ns),
            "burst_bytes": self.burst_bytes,
            "banks": self.banks,
        }


@cache
def memory_presets() -> dict[str, Preset]:
    """The memories that Sonda knows, by name."""
    text = (resources.files("sonda.accelerators.description") / "memories.toml").read_text(encoding="utf-8")
    return {name: Preset(**table) for name, table in tomllib.loads(text).items()}


def read_memory(given: Fields, clock_hz: float | None) -> Memory | None:
    """The memory that a table describes; nothing where it has mistakes, which are noted."""
    given.note_unknown(FIELDS)
    dram = given.one_of("dram", dram_presets(), "")
    usual = _usual(given, dram, clock_hz)
    if "bytes_per_cycle" not in given and usual is USUAL:
        presets = ", ".join(memory_presets())
        given.note_mistake("bytes_per_cycle", f"missing; give it, or dram (one of {presets}) and clock_GHz")
        usual = {**usual, "bytes_per_cycle": None}
    values: dict[str, Any] = {
        "buffer_KiB": given.number("buffer_KiB", 1, MOST_KIB),
        "bytes_per_cycle": given.number("bytes_per_cycle", 1e-6, 1e9, usual.get("bytes_per_cycle", MISSING)),
    }
    for key, (low, high) in WHOLE.items():
        values[key] = given.count(key, low, high, usual.get(key, MISSING))
    values["element_bytes"] = given.count("element_bytes", 1, WIDEST_ELEMENT, Memory.element_bytes)
    values["double_buffering"] = given.switch("double_buffering", Memory.double_buffering)
    if dram is None or None in values.values():
        return None
    if values["row_bytes"] % values["burst_bytes"]:
        given.note_mistake(
            "row_bytes", f"{values['row_bytes']} is not a multiple of burst_bytes = {values['burst_bytes']}"
        )
        return None
    size = int(values.pop("buffer_KiB") * KIB)
    return Memory(buffer_bytes=size, dram=dram, **values)


def memory_table(memory: Memory, clock_hz: float | None) -> dict[str, Any]:
    """The `[memory]` table that reads back as this memory, without what its preset gives at this clock."""
    preset = _preset(memory.dram)
    known: dict[str, Any] = preset.fields(clock_hz) if preset is not None and clock_hz is not None else {}
    table = {name: value for name, value in dataclasses.asdict(memory).items() if known.get(name, MISSING) != value}
    size = table.pop("buffer_bytes")
    table["buffer_KiB"] = size // KIB if size % KIB == 0 else size / KIB
    return {name: table[name] for name in FIELDS if name in table and table[name] != ""}


def _usual(given: Fields, dram: str | None, clock_hz: float | None) -> dict[str, Any]:
    """What need not be given: what the preset gives; None for what follows from a mistake noted here."""
    preset = _preset(dram or "")
    if preset is not None and clock_hz is not None:
        return preset.fields(clock_hz)
    if preset is None and dram is not None:
        return USUAL
    if preset is not None:
        timed = ("bytes_per_cycle", "latency_cycles", "row_miss_cycles")
        if all(key in given for key in timed):
            return preset.fields(1e9)
        given.note_mistake("dram", f"{dram!r} is in GB/s and ns; give clock_GHz, or {', '.join(timed)}")
    return dict.fromkeys(("bytes_per_cycle", *WHOLE))


def _preset(dram: str) -> Preset | None:
    """Nothing where only the energy of a memory is known."""
    for pattern in PATTERNS:
        dram = dram.removesuffix(pattern)
    return memory_presets().get(dram)
