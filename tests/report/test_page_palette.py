"""Colours of figures: told apart by every kind of colour vision, and text on them is readable."""

from __future__ import annotations

import re
from importlib import resources
from itertools import combinations

import numpy as np
import pytest

from sonda.report import palette
from sonda.report.blocks import MOST_PARTS, Bar
from sonda.report.markup import stacked_bar_html
from sonda.report.table import BOUNDS

SIGHT = {
    "all cones": np.eye(3),
    "no red cones": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "no green cones": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "no blue cones": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
"""Machado, Oliveira and Fernandes, IEEE TVCG 15 (2009), severity 1.0, on linear RGB."""
NOTICED = 2.3
"""CIE 1976 distance that half of all readers just notice (Mahy and others, 1994); fields that touch need several."""
TRAINING = ("data", "transfer", "forward", "loss", "backward", "optimizer", "communicate", "other")
GROUPS = {
    "limits": tuple(palette.BOUND_COLORS.values()),
    "phases of training": tuple(palette.PHASE_COLORS[name] for name in TRAINING),
    "phases of generating": tuple(palette.PHASE_COLORS[name] for name in ("data", "prefill", "decode", "other")),
    "cycles": tuple(palette.STACK_COLORS.values()),
    "slots": (*palette.SLOT_COLORS.values(), palette.GREY),
}
"""Colours that stand side by side in one figure."""


def seen(color: str, sight: np.ndarray) -> np.ndarray:
    """L*a*b* of a colour as somebody sees it (sRGB, D65)."""
    coded = np.array([int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    linear = np.where(coded <= 0.04045, coded / 12.92, ((coded + 0.055) / 1.055) ** 2.4)
    linear = np.clip(sight @ linear, 0, 1)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ linear
    part = xyz / np.array([0.9505, 1.0, 1.089])
    root = np.where(part > 0.008856, np.cbrt(part), 7.787 * part + 16 / 116)
    return np.array([116 * root[1] - 16, 500 * (root[0] - root[1]), 200 * (root[1] - root[2])])


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("group", GROUPS)
def test_colours_of_one_figure_are_told_apart(group: str, sight: str) -> None:
    for one, other in combinations(GROUPS[group], 2):
        distance = float(np.linalg.norm(seen(one, SIGHT[sight]) - seen(other, SIGHT[sight])))
        assert distance > 4 * NOTICED, (one, other, round(distance, 1))


BARS = {
    "a program": ("imports", "compilation", "training", "between steps", "after the last step", palette.REST),
    "ranks": ("forward", "backward", "communicate", "optimizer", "loss", palette.REST),
    "a trace": ("device compute", "communication", "transfer", "compile", "kernel launch", palette.REST),
    "cycles": ("memory", "distribution", "compute", "reduction", "writeback", palette.REST),
    "no phase alike": ("forward", "prefill", "decode", "backward", "fused", "other"),
}


@pytest.mark.parametrize("bar", BARS)
def test_no_two_parts_of_a_bar_have_one_colour(bar: str) -> None:
    colors = palette.part_colors(BARS[bar])
    assert len(set(colors)) == len(BARS[bar]) <= MOST_PARTS
    assert [color for color in colors if color == palette.OUTSIDE] == [palette.OUTSIDE] * (palette.REST in BARS[bar])


@pytest.mark.parametrize("sight", SIGHT)
def test_the_rest_is_told_from_every_part(sight: str) -> None:
    for color in {*palette.SPARE_COLORS, *palette.PHASE_COLORS.values(), *palette.STACK_COLORS.values()}:
        distance = float(np.linalg.norm(seen(color, SIGHT[sight]) - seen(palette.OUTSIDE, SIGHT[sight])))
        assert distance > 4 * NOTICED, (color, round(distance, 1))


def test_a_page_draws_a_bar_in_these_colours() -> None:
    names = BARS["a program"]
    html = stacked_bar_html("60 s", [Bar(name, 1 / 6, "17 %") for name in names])
    assert re.findall(r"background:(#\w{6})", html) == palette.part_colors(names)


def test_text_on_a_field_is_readable() -> None:
    """At least 4.5 to 1, which WCAG 2.2 asks of small text."""
    for color in {*palette.BOUND_COLORS.values(), *palette.STACK_COLORS.values(), *palette.SLOT_COLORS.values()}:
        bright, dim = sorted((palette.luminance(color), palette.luminance(palette.ink_on(color))), reverse=True)
        assert (bright + 0.05) / (dim + 0.05) >= 4.5, color


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_bound_has_a_readable_tone_in_tables_and_beside_verdicts(scheme: str) -> None:
    """At least 4.5 to 1 on the panel, which WCAG 2.2 asks of small text, and no two tones are one."""
    css = resources.files("sonda.report").joinpath("assets", "page.css").read_text(encoding="utf-8")
    light, dark = (
        dict(re.findall(r"--(\w+): (#\w{6});", block))
        for block in re.findall(r":root[^{]*\{([^}]*--ground[^}]*)\}", css)
    )
    colors = light if scheme == "light" else dark
    tones = [colors[bound] for bound in BOUNDS]
    assert len(set(tones)) == len(BOUNDS)
    for bound, tone in zip(BOUNDS, tones, strict=True):
        bright, dim = sorted((palette.luminance(tone), palette.luminance(colors["panel"])), reverse=True)
        assert (bright + 0.05) / (dim + 0.05) >= 4.5, bound
        assert f"td.{bound} {{ color: var(--{bound}); }}" in css
        assert f".verdict.{bound} {{ border-left-color: var(--{bound}); }}" in css


def test_luminance_is_that_of_the_definition() -> None:
    assert palette.luminance("#ffffff") == pytest.approx(1.0)
    assert palette.luminance("#000000") == 0.0
    assert palette.luminance("#808080") == pytest.approx(0.2159, abs=1e-4)  # ((128/255 + 0.055) / 1.055) ** 2.4


def test_every_limit_has_a_shape_of_its_own() -> None:
    assert palette.SYMBOLS.keys() == {**palette.BOUND_COLORS, **palette.STACK_COLORS}.keys()
    assert len(set(palette.SYMBOLS.values())) == len(palette.SYMBOLS)
