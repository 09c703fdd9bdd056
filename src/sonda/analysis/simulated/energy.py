"""What a reader of a simulated run's energy and area must know: the table, what it lacks, and what nobody verified."""

from __future__ import annotations

from sonda.analysis import wording
from sonda.record.simulated import AreaTaken, BoundedAmount, EnergySpent
from sonda.record.target import SimulatedTarget

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
OTHER_VERSION = "another version of Sonda kept the run, without it"


def energy_notes(target: SimulatedTarget) -> tuple[str, ...]:
    """Where the energy went and where its numbers come from, then the areas; nothing for a run without energy."""
    energy = target.energy
    if energy is None:
        return ()
    return (*_where(energy), *_table(energy), *_areas(target.area))


def energy_warnings(target: SimulatedTarget) -> tuple[str, ...]:
    """Why a table is not to be believed, where it is not."""
    energy = target.energy
    if energy is None or not energy.implausible:
        return ()
    return (f"energy table {energy.table or ''} is implausible: {energy.implausible}; set energy_table=45nm",)


def bounded(figure: BoundedAmount, unit: str) -> str:
    """`3.2 µJ (1.6–6.4)`; a number without a unit that anybody knows keeps its six digits."""
    value, low, high = (float(amount or 0.0) for amount in (figure.value, figure.low, figure.high))
    if unit != "J":
        return f"{value:.6g} ({_digits(low)}–{_digits(high)}){f' {unit}' if unit else ''}"
    for factor, name in ((1.0, "J"), (1e-3, "mJ"), (1e-6, "µJ"), (1e-9, "nJ"), (1e-12, "pJ")):
        if value >= 0.9995 * factor or name == "pJ":
            break
    return f"{_digits(value / factor)} {name} ({_digits(low / factor)}–{_digits(high / factor)})"


def _digits(value: float) -> str:
    """Three digits, `1,950` and not `1.95e+03`."""
    return f"{float(f'{value:.3g}'):,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.3g}"


def _where(energy: EnergySpent) -> list[str]:
    total, parts = energy.total, energy.parts or {}
    if total is None or total.value is None or total.low is None or total.high is None:
        return [f"no energy: {energy.reason or OTHER_VERSION}"]
    if energy.unit != "J":
        return [
            f"no energy in joules: {energy.reason}; in the table's own numbers {bounded(total, '')}, bounds in brackets"
        ]
    shares = sorted(
        ((part.value / (total.value or 1.0), name) for name, part in parts.items() if part.value),
        reverse=True,
    )
    spent = ", ".join(f"{SECTIONS.get(name, name)} {wording.percent(share)}" for share, name in shares if share >= 5e-4)
    return [f"energy {bounded(total, 'J')}, bounds of its table in brackets: {spent}"]


def _table(energy: EnergySpent) -> list[str]:
    nodes = ", ".join(node for node in energy.nodes or () if node != "not stated")
    sentences = [f"energy table {energy.table or 'unknown'} ({nodes or 'no node stated'})"]
    if energy.buffer_assumed and energy.buffer_bytes:
        sentences.append(f"as if the global buffer had {energy.buffer_bytes / 1024:g} KiB")
    if energy.dram:
        sentences.append(f"memory {energy.dram}")
    lacking = [name for name in energy.missing or () if STATIC not in name.split()]
    static = [name for name in energy.missing or () if STATIC in name.split()]
    if lacking:
        sentences.append(f"no entry for {', '.join(lacking)}")
    if static:
        components = dict.fromkeys(name.split()[0] for name in static)
        clock = " (without a clock)" if any("clock" in name for name in static) else ""
        sentences.append(f"no static energy{clock} of {', '.join(components)}")
    if energy.recalled:
        sentences.append(f"recalled, not verified: {', '.join(energy.recalled)}")
    return ["; ".join(sentences)]


def _areas(areas: AreaTaken | None) -> list[str]:
    """`area perceptrons 4.3, embeddings 2.3, global buffer 0.4, together 7 mm² (1.9–27)`."""
    if areas is None:
        return []
    together, parts = areas.together, dict(areas.engines or {})
    if not parts or together is None:
        return [f"no area: {OTHER_VERSION}"]
    if areas.global_buffer is not None:
        parts["global buffer"] = areas.global_buffer
    known = {name: part for name, part in parts.items() if part.value is not None}
    sentences = []
    if together.value is not None and (together.low is None or together.high is None):
        return [f"no area: {OTHER_VERSION}"]
    if known and together.value is not None:
        listed = "".join(f"{name} {_digits(area.value or 0.0)}, " for name, area in known.items())
        lacking = dict.fromkeys(part for area in known.values() for part in area.missing or ())
        recalled = dict.fromkeys(part for area in known.values() for part in area.recalled or ())
        sentences.append(
            f"area {listed}together {_digits(together.value)} mm² "
            f"({_digits(together.low or 0.0)}–{_digits(together.high or 0.0)}), "
            "bounds of its table in brackets"
            + (f"; no entry for {', '.join(lacking)}" if lacking else "")
            + (f"; recalled, not verified: {', '.join(recalled)}" if recalled else "")
        )
    reasons: dict[str, list[str]] = {}
    for name, part in parts.items():
        if part.value is None:
            reasons.setdefault(part.reason or OTHER_VERSION, []).append(name)
    return [*sentences, *(f"no area of {', '.join(names)}: {reason}" for reason, names in reasons.items())]
