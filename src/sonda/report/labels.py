"""Labels: names that came from outside, made harmless for the place where they are shown.

Module names, commands and file names are data. On a terminal they must not move the cursor or change colours, in a page
they must not become elements or scripts.
"""

from __future__ import annotations

import html
import json
import re
import unicodedata
from typing import Any

from sonda.report.values import plain_data

_HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode categories that draw nothing and may act instead: control codes, direction overrides, line separators."""

UNITS = (
    "%|[nµm]?s|min|h|[pnµmkM]?J(?:·s)?|m?W|[kMGTP]?B(?:/s)?|[KMG]iB(?:/s)?|[kMGTP]?FLOP(?:/[sB])?|[kMGT]?cycles?|[MG]Hz|"
    "°C|mm²|times|(?:samples|tokens|queries|points)/s"
)
"""What stands behind a number and belongs to it, as a regular expression that Python and JavaScript read alike."""
_BOUND = re.compile(rf"(?<=\d) (?=(?:{UNITS})(?![\w/]))")
_KEPT = "\ue000"
"""Stands for a blank at which no line may end; private, so that no text has it."""


def bind_units(text: str) -> str:
    """The text with numbers bound to their units, so that no line ends between them; `release_units` undoes it."""
    return _BOUND.sub(_KEPT, text)


def release_units(text: str) -> str:
    """The text as it was before `bind_units`."""
    return text.replace(_KEPT, " ")


def plain(text: str) -> str:
    """The text on one line; characters that would act instead of being drawn become `�`."""
    if text.isprintable():  # which none of the hidden categories is
        return text
    spaced = text.replace("\r\n", " ").replace("\n", " ").replace("\t", " ")
    return "".join("\ufffd" if unicodedata.category(char) in _HIDDEN else char for char in spaced)


def markup(text: str) -> str:
    """The text for HTML, in elements and in quoted attributes."""
    return html.escape(plain(text), quote=True)


def script_data(value: Any) -> str:
    """JSON that may stand inside a `<script>` element: nothing in it can end the element or open a comment.

    NaN and infinity become null, because JSON has no word for them.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(plain_data(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def shorten(text: str, width: int, front: bool = True) -> str:
    """The text in at most `width` columns of a terminal. It loses its beginning where `front`: the end of a module path
    tells most."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= width:
        return text
    return "…" + set_cell_size(text[::-1], width - 1)[::-1] if front else set_cell_size(text, width - 1) + "…"
