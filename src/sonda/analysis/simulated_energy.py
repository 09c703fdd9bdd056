"""What a reader of a simulated run's energy and area must know: the table, what it lacks, and what nobody verified."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sonda.analysis import wording

SECTIONS = {
    "DSNetwork": "distribution network",
    "MSNetwork": "multiplier network",
    "ReduceNetwork": "reduction network",
    "GlobalBuffer": "global buffer",
    "CollectionBus": "collection bus",
    "DRAM": "memory",
}
"""Sections of the machine in words."""
STATIC = "STATIC"
BOUNDED = ("value", "low", "high")
"""What a figure of energy or area has."""
OTHER_VERSION = "another version of Sonda kept the run, without it"


def energy_notes(target: Mapping[str, Any]) -> tuple[str, ...]:
    """Where the energy went and where its numbers come from, then the areas; nothing for a run without energy."""
    energy = target.get("energy") or {}
    if not energy:
        return ()
    return (*_where(energy), *_table(energy), *_areas(target.get("area") or {}))


def energy_warnings(target: Mapping[str, Any]) -> tuple[str, ...]:
    """Why a table is not to be believed, where it is not."""
    energy = target.get("energy") or {}
    if not energy.get("implausible"):
        return ()
    return (f"energy table {energy.get('table', '')} is implausible: {energy['implausible']}; set energy_table=45nm",)


def bounded(figure: Mapping[str, float], unit: str) -> str:
    """`3.2 µJ (1.6–6.4)`; a number without a unit that anybody knows keeps its six digits."""
    value, low, high = (float(figure[key]) for key in ("value", "low", "high"))
    if unit != "J":
        return f"{value:.6g} ({_digits(low)}–{_digits(high)}){f' {unit}' if unit else ''}"
    for factor, name in ((1.0, "J"), (1e-3, "mJ"), (1e-6, "µJ"), (1e-9, "nJ"), (1e-12, "pJ")):
        if value >= 0.9995 * factor or name == "pJ":
            break
    return f"{_digits(value / factor)} {name} ({_digits(low / factor)}–{_digits(high / factor)})"


def _digits(value: float) -> str:
    """Three digits, `1,950` and not `1.95e+03`."""
    return f"{float(f'{value:.3g}'):,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.3g}"


def _where(energy: Mapping[str, Any]) -> list[str]:
    total, parts = energy.get("total"), energy.get("parts") or {}
    if not total or any(key not in total for key in BOUNDED):
        return [f"no energy: {energy.get('reason') or OTHER_VERSION}"]
    if energy.get("unit") != "J":
        return [
            f"no energy in joules: {energy.get('reason')}; in the table's own numbers {bounded(total, '')}, bounds in "
            "brackets"
        ]
    shares = sorted(
        ((one["value"] / (total["value"] or 1.0), name) for name, one in parts.items() if one.get("value")),
        reverse=True,
    )
    spent = ", ".join(f"{SECTIONS.get(name, name)} {wording.percent(share)}" for share, name in shares if share >= 5e-4)
    return [f"energy {bounded(total, 'J')}, bounds of its table in brackets: {spent}"]


def _table(energy: Mapping[str, Any]) -> list[str]:
    nodes = ", ".join(node for node in energy.get("nodes") or () if node != "not stated")
    said = [f"energy table {energy.get('table') or 'unknown'} ({nodes or 'no node stated'})"]
    if energy.get("buffer_assumed") and energy.get("buffer_bytes"):
        said.append(f"as if the global buffer had {energy['buffer_bytes'] / 1024:g} KiB")
    if energy.get("dram"):
        said.append(f"memory {energy['dram']}")
    lacking = [name for name in energy.get("missing") or () if STATIC not in name.split()]
    static = [name for name in energy.get("missing") or () if STATIC in name.split()]
    if lacking:
        said.append(f"no entry for {', '.join(lacking)}")
    if static:
        components = dict.fromkeys(name.split()[0] for name in static)
        clock = " (without a clock)" if any("clock" in name for name in static) else ""
        said.append(f"no static energy{clock} of {', '.join(components)}")
    if energy.get("recalled"):
        said.append(f"recalled, not verified: {', '.join(energy['recalled'])}")
    return ["; ".join(said)]


def _areas(areas: Mapping[str, Any]) -> list[str]:
    """`area perceptrons 4.3, embeddings 2.3, global buffer 0.4, together 7 mm² (1.9–27)`."""
    if not areas:
        return []
    together, parts = areas.get("together") or {}, dict(areas.get("engines") or {})
    if not parts or "value" not in together:
        return [f"no area: {OTHER_VERSION}"]
    if areas.get("global_buffer"):
        parts["global buffer"] = areas["global_buffer"]
    known = {name: one for name, one in parts.items() if one.get("value") is not None}
    said = []
    if together["value"] is not None and not {"low", "high"} <= together.keys():
        return [f"no area: {OTHER_VERSION}"]
    if known and together["value"] is not None:
        listed = "".join(f"{name} {_digits(one['value'])}, " for name, one in known.items())
        lacking = dict.fromkeys(part for one in known.values() for part in one.get("missing") or ())
        recalled = dict.fromkeys(part for one in known.values() for part in one.get("recalled") or ())
        said.append(
            f"area {listed}together {_digits(together['value'])} mm² "
            f"({_digits(together['low'])}–{_digits(together['high'])}), "
            "bounds of its table in brackets"
            + (f"; no entry for {', '.join(lacking)}" if lacking else "")
            + (f"; recalled, not verified: {', '.join(recalled)}" if recalled else "")
        )
    reasons: dict[str, list[str]] = {}
    for name, one in parts.items():
        if one.get("value") is None:
            reasons.setdefault(str(one.get("reason") or OTHER_VERSION), []).append(name)
    return [*said, *(f"no area of {', '.join(names)}: {reason}" for reason, names in reasons.items())]
