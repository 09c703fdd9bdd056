"""Cells of a study's tables: a figure with its interval and what that interval is, a printed one, a place."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sonda.analysis.statistics import ENOUGH_STEPS
from sonda.analysis.summary import MODEL, TABLES
from sonda.record.quantities import SOURCES
from sonda.report import quantities
from sonda.report.table import Cell

Document = Mapping[str, Any]

SIZE = re.compile(r"(\d+(?:\.\d+)?) ?(B|KiB|MiB|GiB|KB|MB|GB|ms|s)?")
FACTORS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "KB": 1e3, "MB": 1e6, "GB": 1e9, "s": 1e3}
"""How many bytes, or milliseconds, a unit is."""
ROUNDS = "95 % interval of its rounds"
PROCESSES, STUDENT = "95 % interval of the processes of both", "95 % interval of the mean"
WIDE = 2.0
"""Ends of an interval that are further apart than so many times the figure are shown themselves."""
FEWER = f"fewer than {ENOUGH_STEPS} repetitions give no 95 % interval"
RATIOS = ("slowdown", "cpu_slowdown", "speedup", "training_speedup", "relative_energy", "relative_energy_with_idle",
          "relative_edp", "relative_edp_with_idle")  # fmt: skip
"""Figures of which 1 means that nothing changed."""


def is_ratio(key: str) -> bool:
    """Whether a figure is one of `RATIOS`, of whatever place."""
    return key.partition("@")[0] in RATIOS


def interval_holds(figure: Document, value: float) -> bool:
    """Whether the interval of a figure holds this value; not where it has none."""
    low, high = figure.get("low"), figure.get("high")
    return low is not None and high is not None and bool(low <= value <= high)


def interval_kind(figure: Document) -> str:
    """What the ends of a figure's interval are, '' where it has none.

    Only six repetitions or more have a range that covers the median with 95 %; what fewer give is called what it is.
    """
    if figure["value"] is None or figure.get("low") is None or figure.get("high") is None:
        return ""
    if figure["source"] == "simulated":
        return TABLES
    if figure["source"] == "estimated":
        return MODEL
    if figure.get("bounds"):  # of a single energy run
        return str(figure["bounds"])
    count = int(figure["n"])
    if not figure.get("values"):  # of two configurations, which are divided process by process
        return PROCESSES
    if count < 2:
        return ROUNDS
    return f"least to most of {count} repetitions" if count < ENOUGH_STEPS else f"95 % interval of {count} repetitions"


def interval_words(figures: Sequence[Document], subject: str = "± is half of an interval") -> str:
    """What ±, or whatever `subject` says, means for these figures, in a sentence; '' where none has an interval."""
    kinds = list(dict.fromkeys(kind for figure in figures if (kind := interval_kind(figure))))
    if not kinds:
        return ""
    counts = sorted({int(figure["n"]) for figure in figures if interval_kind(figure).startswith("least")})
    if len(counts) > 1:
        span = f"least to most of {counts[0]} to {counts[-1]} repetitions"
        kinds = [*dict.fromkeys(span if kind.startswith("least") else kind for kind in kinds)]
    few = f"; {FEWER}" if counts else ""
    return f"{subject}: {', or '.join(kinds)}{few}."


def study_cell(figure: Document, kind: str = "") -> Cell:
    """A figure with its interval; its source and what the interval is, `kind` where told, are in the tooltip."""
    value = figure["value"]
    if value is None:
        reason = str(figure["reason"])
        return Cell(quantities.MISSING, None, reason, reason, "quiet")
    low, high = figure["low"], figure["high"]
    if low is None or high is None or not value:
        spread = ""
    elif figure["source"] == "simulated" or high - low > WIDE * value:
        # Bounds of a table of energies, which are factors: they do not lie evenly around the value. Nor do ends that
        # are further apart than the value allows: nothing is known to ±5,000 %.
        spread = f" ({quantities.number(low)}–{quantities.number(high)})"
    else:
        spread = f" ±{quantities.rounded(50 * (high - low) / value, 0)} %"
    return _figure_cell(figure, quantities.number(value) + spread, kind)


def column_cell(key: str, figure: Document) -> Cell:
    """A figure in the column of its key: a ratio that may as well be 1 is greyed."""
    cell = study_cell(figure)
    if figure["value"] is None or not is_ratio(key) or not interval_holds(figure, 1.0):
        return cell
    return replace(cell, tone="quiet", hint=f"{cell.hint}; not significant: the interval holds 1")


def bare_cell(figure: Document | None) -> Cell:
    """A figure without its interval, which the tooltip has."""
    if figure is None:
        return Cell(quantities.MISSING)
    if figure["value"] is None:
        return study_cell(figure)
    return _figure_cell(figure, quantities.number(figure["value"]))


def _figure_cell(figure: Document, text: str, kind: str = "") -> Cell:
    unit, low, high = str(figure.get("unit") or "1"), figure.get("low"), figure.get("high")
    hint, guess = figure_hint(figure, kind), is_guessed(figure)
    return Cell(text, figure["value"], hint, unit=unit, low=low, high=high, estimated=guess)


def is_guessed(figure: Document) -> bool:
    """Whether a figure is estimated, or simulated with bounds that tables give."""
    return figure["source"] == "estimated" or interval_kind(figure) == TABLES


def figure_hint(figure: Document, kind: str = "") -> str:
    """`27.2 ms, measured (…); least to most of 3 repetitions: 24.1 to 30.0`."""
    unit, source = str(figure.get("unit", "")), str(figure["source"])
    unit = "" if unit == "1" else unit
    meaning = f" ({SOURCES[source]})" if source in SOURCES else ""
    text = f"{quantities.number(figure['value'])} {unit}".rstrip() + f", {source}{meaning}"
    kind = kind if kind and figure.get("low") is not None else interval_kind(figure)
    if kind:
        return f"{text}; {kind}: {quantities.number(figure['low'])} to {quantities.number(figure['high'])}"
    return f"{text}; {figure['reason']}" if figure.get("reason") else text


def printed_cell(printed: Document) -> Cell:
    """A published figure with the digits that were printed; where it was printed is in the tooltip."""
    value, low, high = (printed["value"].get(key) for key in ("value", "low", "high"))
    hint = "; ".join(str(printed[key]) for key in ("origin", "note", "deviation") if printed.get(key))
    if value is not None:
        return Cell(
            quantities.as_given(value), value, hint, tone="quiet", unit=str(printed["value"].get("unit") or "1")
        )
    # A range has no middle: its text and its ends are what can be copied.
    text = f"{quantities.as_given(low)}–{quantities.as_given(high)}" if low else f"up to {quantities.as_given(high)}"
    return Cell(text, high, hint, tone="quiet", low=low or None, high=high)


def axis_cell(value: object) -> Cell:
    """A value on an axis; sizes and times sort by what they are, not by their letters."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if not text:
        return Cell(quantities.MISSING)
    match = SIZE.fullmatch(text)
    return Cell(text, float(match[1]) * FACTORS.get(match[2] or "", 1) if match else text)
