"""Programs side by side in detail: phases and layers that company slows, and counters alone and together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sonda.analysis.corun_layers import LayerSlowdown, order
from sonda.analysis.interference import Interference
from sonda.analysis.summary import Value
from sonda.report import quantities
from sonda.report.table import Cell, Column, Table, build, numbers, quantity, words
from sonda.report.values import value_document

LEAST, MOST = 0.1, 10
"""Ends of an interval beyond these are not printed: nothing is known then."""
SHOWN_LAYERS = 8
PAGE_LAYERS = 100
TITLES = {
    "ipc": "IPC",
    "cache_misses": "cache misses /1000",
    "cores_used": "cores used",
    "page_faults": "faults a step",
    "context_switches": "switches a step",
    "occupancy": "cache held",
    "memory_traffic": "memory traffic",
}
HINTS = {
    "ipc": "instructions per cycle",
    "cache_misses": "misses of the last-level cache per 1000 instructions; on AMD those of a level before it",
    "cores_used": "CPU time over time",
    "page_faults": "page faults per step",
    "context_switches": "context switches per step",
    "occupancy": "of the last-level cache, at the end of a window",
    "memory_traffic": "to and from memory",
}
LEVELS = ("occupancy", "memory_traffic")
"""Shown with all together only."""
ALONE = "a program alone has no neighbour"


def counters_table(found: Interference) -> Table:
    """What was counted of each program alone and with all others; what nobody has is left out, see `not_counted`."""
    names = found.participants
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (Column("program", right=False), [Cell(name, name, tone="name") for name in names])
    ]
    for place, counter in enumerate(_counters(found)):
        alone, together = _of(found, counter)
        if not any(map(quantities.known, [*alone, *together])):
            continue
        keep, hint = max(2, 8 - place), HINTS.get(counter, "per 1000 instructions")
        if counter in LEVELS:
            unit, cells = numbers(together)
            columns.append((Column(f"{_title(counter)}, {unit}", keep=keep, hint=hint), cells))
            continue
        columns.append((Column(f"{_title(counter)} alone", keep=keep, hint=hint), plain_cells(alone)))
        short = _title(counter).partition(" /")[0].removesuffix(" a step")
        columns.append((Column(f"{short} together", keep=keep, hint=hint), plain_cells(together)))
    return build(columns, "counters")


def not_counted(found: Interference) -> list[str]:
    """`IPC, cache misses /1000: no PMU in this virtual machine`, for what no program has."""
    reasons: dict[str, list[str]] = {}
    for counter in _counters(found):
        values = [value for when in _of(found, counter) for value in when]
        if not any(map(quantities.known, values)):
            reasons.setdefault(values[0].reason, []).append(_title(counter))
    return [f"{', '.join(titles)}: {reason}" for reason, titles in reasons.items()]


def _counters(found: Interference) -> list[str]:
    """All but what stands in the table of programs; what the processor says comes first."""
    known = dict.fromkeys(name for one in found.participants for name in found.together.counters[one])
    last = ["cores_used", "page_faults", "context_switches", *LEVELS]
    return [*(name for name in known if name not in (*last, "waiting")), *(name for name in last if name in known)]


def _title(counter: str) -> str:
    return TITLES.get(counter) or f"{counter} /1000"


def _of(found: Interference, counter: str) -> tuple[list[Value], list[Value]]:
    missing = Value(None, "1", "counted", reason="not counted")
    alone = [found.alone[one].counters[one].get(counter, missing) for one in found.participants]
    return alone, [found.together.counters[one].get(counter, missing) for one in found.participants]


def phases_table(found: Interference) -> Table | None:
    """Slowdown of every phase with all together; None where no participant has phases."""
    phases = list(dict.fromkeys(phase for by in found.together.phases.values() for phase in by))
    if not phases:
        return None
    names = [name for name in found.participants if found.together.phases.get(name)]
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (Column("program", right=False), [Cell(name, name, tone="name") for name in names])
    ]
    for phase in phases:
        cells = [
            slowdown_cell(by[phase]) if phase in by else Cell("")
            for by in (found.together.phases[name] for name in names)
        ]
        columns.append((Column(phase), cells))
    return build(columns, "phases")


def layers_table(found: Interference, most: int = SHOWN_LAYERS) -> Table | None:
    """The layers that lose most time per step to company, of all programs; None where none loses any."""
    seen = [(name, one) for name, layers in found.together.layers.items() for one in layers if _loses(one)]
    rows = sorted(seen, key=lambda row: order(row[1]))[:most]
    if not rows:
        return None
    layers = [one for _, one in rows]
    unit, times = numbers([*(one.alone for one in layers), *(one.together for one in layers)])
    lost_unit, lost = numbers([one.lost for one in layers])
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (Column("program", right=False), [Cell(name, name, tone="name") for name, _ in rows]),
        (Column("layer", right=False, path=True), words([one.layer or "(model)" for one in layers])),
        (Column("type", right=False, keep=4), words([one.kind for one in layers])),
        (Column("direction", right=False, keep=7), words([one.direction for one in layers])),
        (Column(f"alone, {unit}", hint="a step"), times[: len(layers)]),
        (Column(f"together, {unit}", hint="a step"), times[len(layers) :]),
        (Column("slowdown"), [slowdown_cell(one.slowdown) for one in layers]),
        (Column(f"lost, {lost_unit}", keep=6, hint="a step"), lost),
    ]
    return build(columns, "layers")


def _loses(layer: LayerSlowdown) -> bool:
    return layer.lost.value is not None and layer.lost.value > 0


def layer_document(layer: LayerSlowdown) -> dict[str, Any]:
    """As a JSON object."""
    return {
        "layer": layer.layer,
        "type": layer.kind,
        "direction": layer.direction,
        "alone": value_document(layer.alone),
        "together": value_document(layer.together),
        "slowdown": value_document(layer.slowdown),
        "lost": value_document(layer.lost),
    }


def slowdown_cell(value: Value) -> Cell:
    """A slowdown; quiet where its interval holds 1, so that nothing can be said for sure."""
    if value.value is None:
        return _missing(value)
    tone = "quiet"
    if value.low is not None and value.high is not None:
        tone = "bad" if value.low > 1 else "good" if value.high < 1 else "quiet"
    return quantity(value, _spread(value), tone)


def figure_cell(value: Value) -> Cell:
    if value.value is None:
        return _missing(value)
    return quantity(value, _spread(value))


def plain_cells(values: Sequence[Value]) -> list[Cell]:
    return [_missing(one) if one.value is None else quantity(one, _digits(one.value)) for one in values]


def _digits(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _missing(value: Value) -> Cell:
    # That a program has no slowdown by itself needs no word below the table.
    return Cell(quantities.MISSING, None, value.reason, "" if value.reason == ALONE else value.reason, "quiet")


def _spread(value: Value) -> str:
    """`1.42 (1.35–1.50)`."""
    if value.low is None or value.high is None:
        return f"{value.value:.2f}"
    low = f"{value.low:.2f}" if value.low >= LEAST else f"<{LEAST}"
    high = f"{value.high:.2f}" if value.high <= MOST else f">{MOST}"
    return f"{value.value:.2f} ({low}–{high})"
