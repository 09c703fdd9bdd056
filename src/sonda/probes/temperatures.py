"""How warm the machine is: packages of processors and GPUs, in °C."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sonda.probes.energy_processor import open_processor
from sonda.probes.nvml import open_nvml

CELSIUS = "°C"


def read_temperatures(
    root: Path = Path("/"), gpus: bool = True, load: Callable[[str], Any] = importlib.import_module
) -> dict[str, float]:
    """°C by device and sensor (`cpu package-0 temperature`, `cuda:0 temperature`); empty where nothing shows any.

    Sensors are opened and closed again, so that nothing keeps a driver awake between two readings.
    """
    found: dict[str, float] = {}
    for sources in (open_processor(root), open_nvml(load) if gpus else None):
        if sources is None:
            continue
        for reader in sources.readers:
            _, values = reader.read()
            for channel, value in zip(reader.channels, values, strict=True):
                if channel.unit == CELSIUS and value is not None:
                    found[f"{channel.device} {channel.sensor}"] = value
        sources.close()
    return found
