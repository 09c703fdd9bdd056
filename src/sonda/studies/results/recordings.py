"""Recorded results: what a study of operations found on one machine, kept as a dated file.

Files in `recorded/` ship with Sonda: the docs show them, and tests hold what is said of them against them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any

import msgspec

from sonda.record.errors import SondaError, nearest
from sonda.record.run import Run

FORMAT = 1
LIBRARIES = {"torch": ("torch",), "tensorflow": ("tensorflow", "keras"), "jax": ("jax", "jaxlib"),
             "pytensor": ("pytensor", "numba")}  # fmt: skip
"""Whose versions matter to runs of a framework."""
FOLDER = "recorded"


def provenance(runs: Iterable[Run]) -> dict[str, Any]:
    """When and with what these runs were made: days, versions, devices, how kernels were counted."""
    dates, devices, counted = set[str](), set[str](), set[str]()
    versions: dict[str, str] = {}
    for run in runs:
        info = run.info
        dates.add(info.created[:10])
        used = ("sonda", "python", *LIBRARIES.get(info.workload.framework or "torch", ()))
        versions |= {name: info.versions[name] for name in used if name in info.versions}
        named = [device.name or "" for device in (info.target.devices or {}).values()]
        devices.update(named or [info.machine.processor or ""])
        counted.update(probe.reason for probe in info.probes if probe.name == "ncu" and probe.state == "ok")
    return {
        "recorded": sorted(dates),
        "devices": sorted(devices),
        "versions": dict(sorted(versions.items())),
        "counted": sorted(counted),
    }


def recording(document: Mapping[str, Any]) -> dict[str, Any]:
    """What a recorded file holds of a study's document. Raises SondaError where there is nothing to keep."""
    if not document.get("operations"):
        raise SondaError(
            f"study {document['study']} has no operation that was measured", "measure it first, without --show"
        )
    keys = ("study", "scale", "provenance", "operations", "verdicts")
    return {"format": FORMAT, **{name: document[name] for name in keys}}


def recorded_names() -> list[str]:
    """Names of the files that ship with Sonda."""
    folder = files("sonda.studies") / FOLDER
    return sorted(entry.name.removesuffix(".json") for entry in folder.iterdir() if entry.name.endswith(".json"))


def load_recorded(name: str) -> dict[str, Any]:
    """A recorded file by name. Raises SondaError where there is none."""
    if name not in recorded_names():
        raise SondaError(f"there is no recorded result {name!r}", nearest(name, recorded_names()))
    text = (files("sonda.studies") / FOLDER / f"{name}.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, Any])
