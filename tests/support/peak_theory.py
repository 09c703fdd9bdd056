"""What a core can do at most, from its maker's description, to hold measured ceilings against."""

from __future__ import annotations

from typing import Any, NamedTuple


class Core(NamedTuple):
    """A microarchitecture's arithmetic."""

    name: str
    flop_per_cycle: int
    """float32, multiply-adds counted as two: FMA units x lanes x 2."""
    highest_mhz: int
    """Highest turbo clock of any processor sold with this core and model number."""
    source: str


CORES = {
    ("GenuineIntel", 6, 85): Core(
        "Skylake-SP, Cascade Lake", 64, 5100, "Intel ARK (i9-9990XE); 2 FMA units of 512 bits"
    ),
    ("GenuineIntel", 6, 106): Core("Ice Lake-SP", 64, 3700, "Intel ARK (Gold 6334); 2 FMA units of 512 bits"),
    ("GenuineIntel", 6, 143): Core("Sapphire Rapids", 64, 4800, "Intel ARK (w9-3495X); 2 FMA units of 512 bits"),
    ("AuthenticAMD", 23, 49): Core("Zen 2", 32, 3900, "AMD EPYC 7F52; 2 FMA units of 256 bits"),
    ("AuthenticAMD", 25, 1): Core("Zen 3", 32, 4100, "AMD EPYC 72F3; 2 FMA units of 256 bits"),
    ("AuthenticAMD", 25, 17): Core("Zen 4", 32, 4400, "AMD EPYC 9174F; 512-bit FMA in two halves"),
    ("ARM", 8, 0xD0C): Core("Neoverse N1", 16, 3300, "Arm N1 optimization guide; 2 FMA units of 128 bits"),
    ("ARM", 8, 0xD40): Core("Neoverse V1", 32, 2600, "Arm V1 optimization guide; 2 SVE FMA units of 256 bits"),
    ("ARM", 8, 0xD4F): Core("Neoverse V2", 32, 3500, "Arm V2 optimization guide; 4 FMA units of 128 bits"),
}
"""By vendor, family and model, as the machine record has them."""

SHARE = {"float32": 1.0, "float64": 0.5}


def theoretical_flops(machine: dict[str, Any], threads: int, precision: str = "float32") -> float | None:
    """FLOP/s that `threads` cores of this machine cannot exceed; None where the core is not in the table.

    The clock is the highest of the processor's line, an upper bound that turbo cannot break: a virtual machine tells
    no clock, and some drivers leave the boost out of the highest they tell. Wide vector units usually clock lower, so
    a good library reaches 50 to 90 % of this.
    """
    core = CORES.get((machine.get("vendor", ""), machine.get("family", 0), machine.get("model", 0)))
    if core is None or precision not in SHARE:
        return None
    cores = min(threads, machine.get("physical_cores", threads))
    return cores * core.highest_mhz * 1e6 * core.flop_per_cycle * SHARE[precision]
