"""RAPL through perf: the events `power/energy-*` of the kernel, for users who may not read powercap.

The counters are system-wide and 64 bits wide, so that they do not wrap. `cpumask` says which processors to ask: one of
each package, or of each of its dies. Counters have the names that powercap gives them: `package-0`, `package-0-die-1`.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from sonda.frameworks.collector.counters.perf_event import PerfEventError
from sonda.probes.counters.perf_events import PerfEvent, explain_refusal, paranoid_level
from sonda.probes.energy.channels import (
    HIGHEST_PACKAGE,
    HIGHEST_PLATFORM,
    MEMORY,
    PACKAGES,
    Channel,
    EnergySources,
    Lack,
)
from sonda.probes.energy.rapl_powercap import UPDATE_S, memory_lack, package_of_die
from sonda.probes.kernel_files import read_cpu_list, read_int, read_text

FOLDER = "sys/bus/event_source/devices/power"
NAME = "RAPL (perf)"
DOMAINS = {"energy-pkg": "", "energy-ram": "/dram", "energy-cores": "/core", "energy-gpu": "/uncore"}
"""Events of a package, with the names that powercap has for them; `energy-psys` is the machine's."""
COVERS = {"energy-pkg": PACKAGES, "energy-ram": MEMORY}


class PerfPowerReader:
    """Reads the opened events, in J since they were opened."""

    def __init__(self, channels: list[Channel], events: list[Any], scales: list[float]) -> None:
        self.channels = channels
        self._events = events
        self._scales = scales

    def read(self) -> tuple[int, list[float | None]]:
        before = perf_counter_ns()
        values = [_read_joules(event, scale) for event, scale in zip(self._events, self._scales, strict=True)]
        return (before + perf_counter_ns()) // 2, values

    def close(self) -> None:
        for event in self._events:
            event.close()
        self._events = []


def open_perf_power(root: Path = Path("/"), open_event: Callable[..., Any] = PerfEvent) -> EnergySources:
    """The events that can be opened, and what cannot, with the reason."""
    sources = EnergySources()
    pmu = root / FOLDER
    kind = read_int(pmu / "type")
    if kind is None:
        remedy = "use a bare-metal machine; Intel, or AMD with kernel 5.8 or later"
        sources.lacks.append(Lack(NAME, "no power PMU", remedy))
        return sources
    packages = _name_packages(root, read_cpu_list(pmu / "cpumask") or [0])
    channels: list[Channel] = []
    events: list[Any] = []
    scales: list[float] = []
    for event in (*DOMAINS, "energy-psys"):
        described = _read_description(pmu, event)
        if described is None:
            continue
        config, scale = described
        for cpu, package in list(packages.items())[: None if event in DOMAINS else 1]:  # all show the same platform
            channel = _perf_channel(event, cpu, package, package_of_die(package, root))
            try:
                events.append(open_event(kind, config, -1, cpu, user=False))
            except PerfEventError as error:
                sources.lacks.append(_make_lack(channel, event, *_explain_refusal(error, root)))
                continue
            except OSError as error:
                sources.lacks.append(_make_lack(channel, event, str(error), "use a bare-metal machine"))
                continue
            scales.append(scale)
            channels.append(channel)
    if channels:
        sources.readers.append(PerfPowerReader(channels, events, scales))
    elif not sources.lacks:
        sources.lacks.append(Lack(NAME, "the power PMU has no energy event", "use a bare-metal machine"))
    if channels and not any(channel.covers == MEMORY for channel in channels):
        sources.lacks.append(memory_lack(root, "the power PMU has no energy-ram event"))
    return sources


def _read_description(pmu: Path, event: str) -> tuple[int, float] | None:
    """The event's code and the J of one count; None where the kernel does not have it, or describes it otherwise."""
    text = read_text(pmu / "events" / event) or ""
    unit = read_text(pmu / "events" / f"{event}.unit") or "Joules"
    with suppress(ValueError):
        scale = float(read_text(pmu / "events" / f"{event}.scale") or "")
        if text.startswith("event=") and unit == "Joules" and scale > 0:
            return int(text.removeprefix("event="), 0), scale
    return None


def _name_packages(root: Path, cpus: list[int]) -> dict[int, str]:
    """By processor, the name of what it counts: its package, with its die where a package has several."""
    topology = {cpu: root / f"sys/devices/system/cpu/cpu{cpu}/topology" for cpu in cpus}
    package = {cpu: read_int(topology[cpu] / "physical_package_id") or 0 for cpu in cpus}
    if len(set(package.values())) == len(cpus):
        return {cpu: f"package-{number}" for cpu, number in package.items()}
    names: dict[int, str] = {}
    for cpu, number in package.items():
        before = sum(package[named] == number for named in names)
        die = read_int(topology[cpu] / "die_id")
        names[cpu] = f"package-{number}-die-{before if die is None else die}"
    return names


def _perf_channel(event: str, cpu: int, counted: str, package: str) -> Channel:
    """`counted` is the package or die that the processor stands for, `package` the one around an AMD die."""
    domain = "psys" if event == "energy-psys" else f"{counted}{DOMAINS[event]}"
    return Channel(
        sensor=f"{domain} energy",
        device="cpu",
        unit="J",
        kind="counter",
        origin=f"power/{event}/ on processor {cpu}",
        covers=COVERS.get(event, ""),
        total=event in COVERS,
        update=UPDATE_S,
        highest=HIGHEST_PLATFORM if domain == "psys" else HIGHEST_PACKAGE,
        package=package if event in DOMAINS else "",
    )


def _make_lack(channel: Channel, event: str, reason: str, remedy: str) -> Lack:
    counter = (channel.covers, channel.device, channel.sensor) if channel.total else ()
    return Lack(f"{NAME} {event}", reason, remedy, *counter)


def _explain_refusal(error: PerfEventError, root: Path) -> tuple[str, str]:
    """Reason and remedy."""
    level = paranoid_level(root)
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"refused: kernel.perf_event_paranoid is {level}", "set it to 0 or lower, or give CAP_PERFMON"
    return explain_refusal(error.errno or 0, level, True, None)


def _read_joules(event: Any, scale: float) -> float | None:
    try:
        return float(event.read() * scale)
    except OSError:
        return None
