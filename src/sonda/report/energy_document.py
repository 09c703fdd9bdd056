"""Energy as plain JSON values: every number with unit and source, a missing one with its reason."""

from __future__ import annotations

from typing import Any

from sonda.analysis.energy_summary import Cost, Device, EnergySummary, Window
from sonda.analysis.summary import Value

SCHEMA = 1


def energy_document(found: EnergySummary) -> dict[str, Any]:
    """As a JSON object."""
    return {"schema": SCHEMA, "kind": "energy", "run": found.run, "title": found.title, **energy_fields(found)}


def energy_fields(found: EnergySummary) -> dict[str, Any]:
    """What a document of any run says of energy."""
    return {
        "sentence": found.sentence,
        "duration": _value(found.time),
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


def _device(one: Device) -> dict[str, Any]:
    return {
        "device": one.name,
        "model": one.model or None,
        "used": one.used,
        **_cost(one.cost),
        "counters": {name: _value(value) for name, value in one.counters.items()},
        "power_integral": _value(one.integral) if one.integral is not None else None,
        "disagreement": _value(one.disagreement) if one.disagreement is not None else None,
        "throttled": dict(one.throttled),
        "states": {name: _value(value) for name, value in one.states.items()},
    }


def _cost(cost: Cost) -> dict[str, Any]:
    return {
        "energy": _value(cost.energy),
        "mean_power": _value(cost.power),
        "idle_power": _value(cost.idle),
        "above_idle": _value(cost.above),
        "energy_delay_product": _value(cost.product),
    }


def _window(one: Window) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "name": one.name,
        "count": one.count,
        "time": _value(one.time),
        "devices": {name: _value(value) for name, value in one.devices.items()},
        "energy": _value(one.total),
        "energy_in_use": _value(one.used),
    }


def _value(value: Value) -> dict[str, Any]:
    document: dict[str, Any] = {"value": value.value, "unit": value.unit, "source": value.source}
    if value.low is not None and value.high is not None:
        document |= {"low": value.low, "high": value.high}
    return document | ({"reason": value.reason} if value.reason else {})
