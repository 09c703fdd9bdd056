"""Colours of categories: those of Okabe and Ito, which readers of every kind of colour vision tell apart.

Okabe M., Ito K.: Color Universal Design, 2008 (jfly.uni-koeln.de/color), as reprinted by Wong B., Nature Methods 8, 441
(2011). One thing has one colour in every figure; colours are never alone: shapes or words tell the same.
"""

from __future__ import annotations

from collections.abc import Iterable

BLUE, ORANGE, VERMILION, GREEN = "#0072b2", "#e69f00", "#d55e00", "#009e73"
SKY, PURPLE, YELLOW, GREY = "#56b4e9", "#cc79a7", "#f0e442", "#666d75"
"""Grey is ours, for what has no name: a lighter one looks like purple to readers without green cones."""

BOUND_COLORS = {
    "compute": BLUE, "memory": ORANGE, "overhead": VERMILION, "input": PURPLE, "transfer": SKY, "host": YELLOW,
    "": GREY,
}  # fmt: skip
"""What limits a layer or a run; '' is nothing clear."""
PHASE_COLORS = {
    "data": PURPLE, "transfer": YELLOW, "forward": SKY, "prefill": SKY, "decode": BLUE, "loss": GREEN, "backward": BLUE,
    "optimizer": ORANGE, "fused": BLUE, "communicate": VERMILION, "other": GREY,
}  # fmt: skip
SPARE_COLORS = (GREEN, VERMILION, YELLOW, PURPLE, ORANGE, SKY, BLUE, GREY)
"""For names that have no colour of their own, in this order."""
RUN_COLORS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
"""Of runs side by side, A and B before others."""
STACK_COLORS = {
    "distribution": PURPLE, "compute": BLUE, "reduction": GREEN, "writeback": SKY, "configuration": GREY,
    "memory": ORANGE,
}  # fmt: skip
"""What the cycles of an accelerator are spent on."""
SLOT_COLORS = {
    "retiring": GREEN, "frontend_bound": PURPLE, "bad_speculation": VERMILION, "backend_bound": ORANGE,
    "smt_contention": SKY,
}  # fmt: skip
"""Level 1 of Top-Down."""
SYMBOLS = {
    "compute": "circle", "memory": "square", "overhead": "triangle-up", "input": "diamond", "transfer": "hexagon",
    "host": "star", "": "pentagon", "distribution": "cross", "reduction": "triangle-down", "writeback": "x",
    "configuration": "hourglass",
}  # fmt: skip
"""Marks of what limits a layer, for those to whom two colours look alike."""
HEAT = ("#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838")
"""Amounts on a map, from little to much: Cividis, made to look the same with and without red-green vision (Nunez and
others, PLOS ONE 13, 2018)."""
TIME = ("#f4efe4", "#f3cf8a", "#e69f00", "#d55e00", "#8f2d00")
"""Time of fields of a tree, from none to most."""
OUTSIDE = "#c9cdd2"
"""What is in no layer, and the rest of a bar."""
REST = "the rest"
"""What the small parts of a bar are called together."""
DARK_INK, LIGHT_INK = "#101418", "#ffffff"


def part_colors(names: Iterable[str]) -> list[str]:
    """The colours of the parts of one bar: a part's own, else one that no other part has, as far as there are any."""
    parts = list(dict.fromkeys(names))
    known = PHASE_COLORS | STACK_COLORS | {REST: OUTSIDE}
    own: dict[str, str] = {}
    for name in parts:
        if name in known and known[name] not in own.values():
            own[name] = known[name]
    left = [color for color in SPARE_COLORS if color not in own.values()]
    others = [name for name in parts if name not in own]
    spare = left or SPARE_COLORS
    own |= {name: spare[at % len(spare)] for at, name in enumerate(others)}
    return [own[name] for name in parts]


def ink_on(color: str) -> str:
    """Black or white, whichever is easier to read on this colour (contrast as WCAG 2.2 defines it)."""
    light = luminance(color)
    dark = luminance(DARK_INK)
    return DARK_INK if (light + 0.05) / (dark + 0.05) >= 1.05 / (light + 0.05) else LIGHT_INK


def luminance(color: str) -> float:
    """Relative luminance of `#rrggbb`, 0 to 1 (WCAG 2.2)."""
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
