"""What a simulated accelerator could reach by its description, as ceilings of a roofline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sonda.analysis.summary import Value

NO_ROOF = "a simulated accelerator has no measured ceilings"


def simulated_roofs(description: Mapping[str, Any]) -> dict[str, Any]:
    """For `Summary.ceilings`: peak FLOP/s and bandwidth in theory, where the description gives a clock and a memory.

    Engines take turns, so the peak is that of the largest: two FLOP for each multiplier in each cycle.
    """
    found: dict[str, Any] = {"reason": NO_ROOF}
    clock = description.get("clock_hz")
    if not clock:
        return found
    hardware = [engine.get("hardware") or {} for engine in (description.get("engines") or {}).values()]
    most = max((_multipliers(one) for one in hardware), default=0)
    if most:
        found["theoretical_flops"] = Value(2.0 * most * clock, "FLOP/s", "derived")
        found["theoretical_peak_is"] = f"2 FLOP x {most:,} multipliers x {clock / 1e9:g} GHz"
    memory = description.get("memory") or {}
    if memory.get("bytes_per_cycle"):
        found["theoretical_dram_bandwidth"] = Value(float(memory["bytes_per_cycle"]) * clock, "B/s", "derived")
    return found


def _multipliers(hardware: Mapping[str, Any]) -> int:
    """Of one engine: a mesh has rows and columns of them."""
    return int(hardware.get("rows") or 0) * int(hardware.get("columns") or 0) or int(hardware.get("multipliers") or 0)
