"""A section of a page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sonda.report.blocks import Block, View
from sonda.report.markup import blocks_html


@dataclass(frozen=True)
class Section:
    name: str
    place: str
    """Element id."""
    html: str
    folded: bool = False
    """Whether a reader opens it by its name."""
    words: tuple[tuple[str, str], ...] = ()
    """What a reader may not know, with its meaning; a page says each once."""


def render_section(name: str, place: str, blocks: Sequence[Block], prefix: str = "", alone: bool = True) -> Section:
    """These blocks as a section. `prefix` goes before the ids of figures and tables; `alone` says that it has the
    page's first heading."""
    return Section(name, place, blocks_html(blocks, prefix, alone))


def section_of(view: View, index: int = 0, alone: bool = True) -> Section:
    """The section of a view, which is number `index` on its page; `alone` says that it is the only one."""
    place = view.place(index)
    section = render_section(view.label, place, view.full(), place, alone)
    return replace(section, words=view.words(re.sub(r"<[^>]*>", " ", section.html)))
