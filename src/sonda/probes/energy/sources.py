"""Every energy source of a machine, each joule in one of them only."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from sonda.probes.counters.perf_events import PerfEvent
from sonda.probes.energy.channels import PACKAGES, EnergySources
from sonda.probes.energy.model import open_model, parse_model
from sonda.probes.energy.nvml import GpuReader, open_nvml
from sonda.probes.energy.rapl_perf import open_perf_power
from sonda.probes.energy.rapl_powercap import open_powercap
from sonda.probes.energy.thermal import open_processor_states

PLATFORM = "the platform (psys)"


def open_sources(
    root: Path = Path("/"),
    gpus: bool = True,
    model: str = "",
    load: Callable[[str], Any] = importlib.import_module,
    open_event: Callable[..., Any] = PerfEvent,
    environment: Mapping[str, str] | None = None,
) -> EnergySources:
    """Open the sources: the processor by powercap, else by perf; GPUs by NVML; the power model where it is asked for.

    `load` imports the NVML binding, `open_event` opens an event of perf. Raises SondaError for a text that is no model.
    """
    sources = EnergySources()
    if model:
        parse_model(model)  # before anything is opened
    powercap = open_powercap(root)
    sources.add(powercap)
    if not _counts_packages(powercap):
        # Both show the same counters: one is read, so that nothing can be added twice.
        perf = open_perf_power(root, open_event)
        if _counts_packages(perf):
            powercap.close()
            sources = EnergySources(list(perf.readers), list(perf.lacks))
        elif perf.readers and not powercap.readers:
            sources = EnergySources(list(perf.readers), [*powercap.lacks, *perf.lacks])
        else:
            perf.close()
            sources.lacks += perf.lacks
    if not _counts_packages(sources):
        _count_platform(sources)
    sources.add(open_processor_states(root))
    if gpus:
        sources.add(open_nvml(load, environment))
    if model:
        loads = {reader.device: reader.load for reader in sources.readers if isinstance(reader, GpuReader)}
        sources.add(open_model(model, root, loads))
    return sources


def _counts_packages(sources: EnergySources) -> bool:
    return any(channel.covers == PACKAGES for reader in sources.readers for channel in reader.channels)


def _count_platform(sources: EnergySources) -> None:
    """Count the platform's joules where no package has a counter: no other counter holds a part of them then."""
    for reader in sources.readers:
        reader.channels = [
            msgspec.structs.replace(channel, covers=PLATFORM, total=True)
            if channel.sensor == "psys energy"
            else msgspec.structs.replace(channel, total=False)
            for channel in reader.channels
        ]
