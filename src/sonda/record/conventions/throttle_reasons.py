"""Why a GPU's clocks are not those that were asked for: the bits of NVML's clock event reasons, nvml.h."""

from __future__ import annotations

REASONS = {
    0x1: "idle", 0x2: "clocks set by the user", 0x4: "power limit", 0x8: "hardware slowdown", 0x10: "sync boost",
    0x20: "hot (software)", 0x40: "hot (hardware)", 0x80: "power brake", 0x100: "display", 0x200: "board limit",
    0x400: "reliability",
}  # fmt: skip
THROTTLING = 0x4 | 0x8 | 0x20 | 0x40 | 0x80 | 0x200 | 0x400
"""Those that make work slower; the others are a choice, or nothing to do."""


def throttling(reasons: int) -> list[str]:
    """The throttling among the reasons, in words."""
    return [word for bit, word in REASONS.items() if reasons & bit & THROTTLING]
