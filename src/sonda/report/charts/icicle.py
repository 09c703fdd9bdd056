"""A tree as an icicle: fields beneath the field that holds them, as wide as what they have of the whole.

It is drawn when it is written, as elements whose places are parts of the width: it fits any window, and a little script
enlarges a field, unfolds small ones and changes what the width stands for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sonda.report.charts.chart import ColorScale
from sonda.report.charts.hints import Hints
from sonda.report.labels import markup, script_data
from sonda.report.palette import ink_on

LEVEL = 38
"""px of height of a level."""
DEEPEST = 8
"""Levels that there is room for; a reader comes to deeper ones by enlarging a field."""
LEAST = 0.0004
"""Part of the width below which nothing would be seen."""

Span = tuple[float, float]
"""Left end and width, parts of the whole."""


@dataclass(frozen=True)
class Slab:
    """A field of the tree."""

    label: str
    texts: tuple[str, ...]
    """Its part of the whole, for each measure."""
    hint: str
    color: str
    depth: int
    spans: tuple[Span, ...]
    """Its place, for each measure."""
    view: str = ""
    """What unfolds it, where it stands for several."""


@dataclass(frozen=True)
class Icicle:
    """Views of a tree by name; the first is that of the whole."""

    views: Mapping[str, Sequence[Slab]]
    measures: tuple[str, ...]
    scale: ColorScale
    """Of the colours."""

    @property
    def slabs(self) -> Sequence[Slab]:
        """Of the whole."""
        return next(iter(self.views.values()))

    @property
    def levels(self) -> int:
        """Those that are shown at once."""
        return min(DEEPEST, 1 + max((slab.depth for slab in self.slabs), default=0))


def icicle_html(icicle: Icicle, place: str) -> str:
    """The tree with its views; `place` is its id."""
    hints = Hints()
    shown = "".join(_slab_html(slab, hints) for slab in icicle.slabs)
    folded = "".join(
        f'<template data-view="{name}">{"".join(_slab_html(slab, hints) for slab in slabs)}</template>'
        for name, slabs in list(icicle.views.items())[1:]
    )
    hint_data = script_data(list(hints.numbers))
    return (
        f'<div class="icicle" id="{place}" tabindex="0" role="group" aria-label="layers, as wide as their part" '
        f'style="height:{LEVEL * icicle.levels}px">{shown}</div>{folded}'
        f'<script type="application/json" class="hints">{hint_data}</script>'
    )


def _slab_html(slab: Slab, hints: Hints) -> str:
    left, width = slab.spans[0]
    places = ";".join(f"{left:.5g} {width:.5g}" for left, width in slab.spans)
    hidden = " hidden" if width < LEAST else ""
    texts = f' data-t="{markup(";".join(slab.texts))}"' if len(set(slab.texts)) > 1 else ""
    view = f' data-view="{slab.view}"' if slab.view else ""
    look = f"left:{100 * left:.4g}%;width:{100 * width:.4g}%;top:{LEVEL * slab.depth}px;background:{slab.color};"
    return (
        f'<div class="slab" data-d="{slab.depth}" data-p="{places}"{texts}{view}{hints.attribute(slab.hint)}{hidden} '
        f'style="{look}color:{ink_on(slab.color)}">{markup(slab.label)}<br>'
        f"<small>{markup(slab.texts[0])}</small></div>"
    )
