"""Sensors: the state of the machine's interfaces for energy, cache partitions and GPUs.

A sensor that does not move is dead: virtual machines show energy counters that stay at zero.
"""

from __future__ import annotations

import errno
import importlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from sonda.frameworks.collector.counters.perf_event import PerfEventError
from sonda.probes.counters.perf_events import PerfEvent, explain_refusal, paranoid_level
from sonda.probes.energy.nvml import decode_text, error_line
from sonda.probes.energy.rapl_powercap import OPEN_TO_ALL, read_zones
from sonda.probes.kernel_files import parse_cpu_list, read_int, read_text

MOVES_WITHIN_S = 0.02
"""RAPL counters are updated about every millisecond; a CPU that runs this code draws power."""


class SensorState(NamedTuple):
    """`ok`, `missing` or `dead`, with the details and what would change it."""

    state: str
    detail: str
    remedy: str = ""


def busy_wait(seconds: float) -> None:
    """Keep a CPU busy, so that a live energy counter must move."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def check_powercap(root: Path = Path("/"), work: Callable[[float], None] = busy_wait) -> SensorState:
    """Energy counters under `/sys/class/powercap`: no folder, no permission, not moving, or moving.

    The zones are those that the energy probe reads. `work` keeps the CPU busy for some seconds.
    """
    zones = {zone.name: zone.path / "energy_uj" for zone in read_zones(root)}
    if not zones:
        return SensorState(
            "missing",
            "no RAPL zones under /sys/class/powercap",
            "use a bare-metal machine with the intel_rapl_msr module loaded",
        )
    packages = {name: path for name, path in zones.items() if name.startswith("package") and "/" not in name} or zones
    try:
        before = {name: int(path.read_text()) for name, path in packages.items()}
    except PermissionError:
        return SensorState("missing", f"{', '.join(packages)}: only root may read energy_uj", OPEN_TO_ALL)
    except (OSError, ValueError) as error:
        return SensorState("missing", f"energy_uj cannot be read: {error}", "load the intel_rapl_msr module again")
    work(MOVES_WITHIN_S)
    moved = [name for name, path in packages.items() if read_int(path) != before[name]]
    if not moved:
        return SensorState(
            "dead",
            f"{', '.join(packages)}: the counter does not move",
            "use a bare-metal machine: this hypervisor shows counters without a sensor",
        )
    return SensorState("ok", f"zones {', '.join(sorted(zones))}")


def check_rapl_perf(
    root: Path = Path("/"),
    virtual: bool | None = None,
    work: Callable[[float], None] = busy_wait,
    open_event: Callable[..., Any] = PerfEvent,
) -> SensorState:
    """Energy through the `power` PMU: 64 bits, no wrap, one CPU per package, all programs together."""
    pmu = root / "sys/bus/event_source/devices/power"
    kind = read_int(pmu / "type")
    if kind is None:
        remedy = "use a bare-metal machine; Intel, or AMD with kernel 5.8 or later"
        return SensorState("missing", "no power PMU", remedy)
    event = read_text(pmu / "events/energy-pkg") or ""
    if not event.startswith("event="):
        return SensorState("missing", "the power PMU has no energy-pkg event", "use a bare-metal machine")
    try:
        config = int(event.removeprefix("event="), 0)
        cpu = (parse_cpu_list(read_text(pmu / "cpumask") or "") or [0])[0]
    except ValueError:
        return SensorState("missing", f"the power PMU describes its event as {event!r}", "use a newer Sonda")
    try:
        with open_event(kind, config, -1, cpu, user=False) as counter:
            before = counter.read()
            work(MOVES_WITHIN_S)
            moved = counter.read() != before
    except PerfEventError as error:
        level = paranoid_level(root)
        if error.errno in (errno.EACCES, errno.EPERM):
            return SensorState(
                "missing",
                f"refused: kernel.perf_event_paranoid is {level}",
                "set it to 0 or lower, or give CAP_PERFMON",
            )
        return SensorState("missing", *explain_refusal(error.errno or 0, level, True, virtual))
    except OSError as error:
        return SensorState("missing", f"energy-pkg cannot be read: {error}", "use a bare-metal machine")
    if not moved:
        return SensorState(
            "dead",
            "energy-pkg does not move",
            "use a bare-metal machine: this hypervisor shows a counter without a sensor",
        )
    return SensorState("ok", "energy-pkg moves")


def check_resctrl(root: Path = Path("/")) -> SensorState:
    """Cache and bandwidth partitioning under `/sys/fs/resctrl`."""
    mounted = root / "sys/fs/resctrl"
    if (mounted / "schemata").exists():
        resources = sorted(path.name for path in (mounted / "info").glob("*") if path.is_dir())
        if os.access(mounted / "schemata", os.W_OK):
            return SensorState("ok", f"mounted: {', '.join(resources) or 'no resources'}")
        return SensorState("missing", "mounted, but only root may change it", "run as root")
    if (mounted / "info/L3_MON").is_dir():
        # A processor that counts and divides nothing has no schemata.
        return SensorState(
            "missing",
            "mounted, but this CPU only counts (L3_MON) and divides nothing",
            "use a CPU with CAT (Intel RDT, AMD QoS)",
        )
    if "resctrl" in (read_text(root / "proc/filesystems") or "").split():
        return SensorState(
            "missing", "the kernel has it, but it is not mounted", "as root: mount -t resctrl resctrl /sys/fs/resctrl"
        )
    return SensorState(
        "missing",
        "not in this kernel or not on this CPU",
        "use a bare-metal machine with Intel RDT or AMD QoS and CONFIG_X86_CPU_RESCTRL",
    )


def check_gpus(load: Callable[[str], Any] = importlib.import_module) -> tuple[SensorState, SensorState]:
    """NVIDIA devices, and their energy counters. `load` imports the binding, `pynvml` of nvidia-ml-py."""
    no_device = SensorState(
        "missing", "no NVIDIA device", "use a machine with an NVIDIA GPU of the Volta generation or later"
    )
    try:
        nvml = load("pynvml")
    except ImportError:
        unbound = SensorState("missing", "nvidia-ml-py is not installed", "install it with: pip install nvidia-ml-py")
        return unbound, unbound
    try:
        nvml.nvmlInit()
    except Exception as error:
        return SensorState(
            "missing", f"no NVIDIA driver ({error_line(error)})", "on a machine with an NVIDIA GPU, install its driver"
        ), no_device
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        if not handles:
            return SensorState(
                "missing", "the driver shows no device", "check CUDA_VISIBLE_DEVICES and the container"
            ), no_device
        names = ", ".join(decode_text(nvml.nvmlDeviceGetName(handle)) for handle in handles)
        driver = decode_text(nvml.nvmlSystemGetDriverVersion())
        return SensorState("ok", f"{names}; driver {driver}"), _check_gpu_energy(nvml, handles)
    except Exception as error:
        broken = SensorState("missing", f"the driver answers: {error_line(error)}", "check it with: nvidia-smi")
        return broken, broken
    finally:
        _call_quietly(nvml.nvmlShutdown)


def _check_gpu_energy(nvml: Any, handles: list[Any]) -> SensorState:
    try:
        values = [nvml.nvmlDeviceGetTotalEnergyConsumption(handle) for handle in handles]
    except Exception as error:
        return SensorState(
            "missing", f"no energy counter ({error_line(error)})", "use a GPU of the Volta generation or later"
        )
    # The counter runs since the driver was loaded and takes some 100 ms to move, so a dead one is known by its zero.
    if not all(values):
        return SensorState("dead", "the energy counter stands at 0 mJ", "use another driver, or power times time")
    return SensorState("ok", "total energy, updated every 20 to 100 ms: windows of seconds only")


def _call_quietly(action: Callable[[], Any]) -> None:
    try:
        action()
    except Exception:
        return
