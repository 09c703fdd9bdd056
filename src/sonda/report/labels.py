"""Labels: names that came from outside, made harmless for the place where they are shown.

Module names, commands and file names are data. On a terminal they must not move the cursor or change colours, in a page
they must not become elements or scripts.
"""

from __future__ import annotations

import html
import json
import math
import re
import unicodedata
from typing import Any

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


def held(text: str) -> str:
    """The text with numbers held to their units, for who breaks it into lines; `let_go` gives the blanks back."""
    return _BOUND.sub(_KEPT, text)


def let_go(text: str) -> str:
    """The text as it was before it was `held`."""
    return text.replace(_KEPT, " ")


def plain(text: str) -> str:
    """The text on one line, with every character that would act instead of being drawn shown as `�`."""
    if text.isprintable():  # which none of the hidden categories is
        return text
    spaced = text.replace("\r\n", " ").replace("\n", " ").replace("\t", " ")
    return "".join("\ufffd" if unicodedata.category(char) in _HIDDEN else char for char in spaced)


def markup(text: str) -> str:
    """The text for HTML, in elements, in quoted attributes and in Plotly's labels, which read tags too."""
    return html.escape(plain(text), quote=True)


def script_data(value: Any) -> str:
    """JSON that may stand inside a `<script>` element: nothing in it can end the element or open a comment.

    NaN and infinity become null, because JSON has no word for them.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(_finite(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def shortened(text: str, width: int) -> str:
    """At most `width` characters, cut in front, because the end of a module path tells more than its beginning."""
    return text if len(text) <= width else "…" + text[len(text) - width + 1 :]


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
