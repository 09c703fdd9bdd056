"""Every energy source of a machine, each joule in one of them only."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from sonda.probes.counters.perf_events import PerfEvent
from sonda.probes.energy.channels import PACKAGES, Sources
from sonda.probes.energy.model import open_model, parse_model
from sonda.probes.energy.nvml import GpuReader, open_nvml
from sonda.probes.energy.rapl_perf import open_perf_power
from sonda.probes.energy.rapl_powercap import open_powercap
from sonda.probes.energy.thermal import open_processor

PLATFORM = "the platform (psys)"


def open_sources(
    root: Path = Path("/"),
    gpus: bool = True,
    model: str = "",
    load: Callable[[str], Any] = importlib.import_module,
    open_event: Callable[..., Any] = PerfEvent,
    environment: Mapping[str, str] | None = None,
) -> Sources:
    """What can be read: the processor by powercap, else by perf; GPUs by NVML; the power model where it is asked for.

    `load` imports the NVML binding, `open_event` opens an event of perf. Raises SondaError where `model` is none.
    """
    found = Sources()
    if model:
        parse_model(model)  # before anything is opened
    powercap = open_powercap(root)
    found.add(powercap)
    if not _counts_packages(powercap):
        # Both show the same counters: one is read, so that nothing can be added twice.
        perf = open_perf_power(root, open_event)
        if _counts_packages(perf):
            powercap.close()
            found = Sources(list(perf.readers), list(perf.lacks))
        elif perf.readers and not powercap.readers:
            found = Sources(list(perf.readers), [*powercap.lacks, *perf.lacks])
        else:
            perf.close()
            found.lacks += perf.lacks
    if not _counts_packages(found):
        _take_platform(found)
    found.add(open_processor(root))
    if gpus:
        found.add(open_nvml(load, environment))
    if model:
        loads = {reader.device: reader.load for reader in found.readers if isinstance(reader, GpuReader)}
        found.add(open_model(model, root, loads))
    return found


def _counts_packages(found: Sources) -> bool:
    return any(channel.covers == PACKAGES for reader in found.readers for channel in reader.channels)


def _take_platform(found: Sources) -> None:
    """Without a counter of packages that of the platform is a total: it then holds nothing that is counted already."""
    for reader in found.readers:
        reader.channels = [
            msgspec.structs.replace(channel, covers=PLATFORM, total=True)
            if channel.sensor == "psys energy"
            else msgspec.structs.replace(channel, total=False)
            for channel in reader.channels
        ]
