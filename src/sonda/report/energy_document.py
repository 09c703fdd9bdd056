"""Energy as plain JSON values: every number with unit and source, a missing one with its reason."""

from __future__ import annotations

from sonda.analysis.energy_summary import Cost, Device, EnergySummary, Window
from sonda.report.values import SCHEMA, Document, value_document


def energy_document(found: EnergySummary) -> Document:
    """As a JSON object."""
    return {"schema": SCHEMA, "kind": "energy", "run": found.run, "title": found.title, **energy_fields(found)}


def energy_fields(found: EnergySummary) -> Document:
    """What a document of any run says of energy."""
    return {
        "sentence": found.sentence,
        "remedy": found.remedy or None,
        "duration": value_document(found.time),
        "covers": list(found.covers),
        "not_covered": list(found.not_covered),
        "devices": [_device(one) for one in found.devices],
        "all_devices": {source: _cost(cost) for source, cost in found.all.items()},
        "devices_in_use": {source: _cost(cost) for source, cost in found.used.items()},
        "regions": [_window(one) for one in found.regions],
        "windows": [_window(one) for one in found.windows],
        "warnings": list(found.warnings),
        "notes": list(found.notes),
    }


def _device(one: Device) -> Document:
    return {
        "device": one.name,
        "model": one.model or None,
        "used": one.used,
        **_cost(one.cost),
        "counters": {name: value_document(value) for name, value in one.counters.items()},
        "power_integral": value_document(one.integral) if one.integral is not None else None,
        "disagreement": value_document(one.disagreement) if one.disagreement is not None else None,
        "throttled": dict(one.throttled),
        "states": {name: value_document(value) for name, value in one.states.items()},
    }


def _cost(cost: Cost) -> Document:
    return {
        "energy": value_document(cost.energy),
        "mean_power": value_document(cost.power),
        "idle_power": value_document(cost.idle),
        "above_idle": value_document(cost.above),
        "energy_delay_product": value_document(cost.product),
    }


def _window(one: Window) -> Document:
    return {
        "kind": one.kind,
        "name": one.name,
        "count": one.count,
        "time": value_document(one.time),
        "devices": {name: value_document(value) for name, value in one.devices.items()},
        "energy": value_document(one.total),
        "energy_in_use": value_document(one.used),
    }
