"""Sensors: energy and cache-partition interfaces of the machine, and in which state each of them is.

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


class State(NamedTuple):
    """`ok`, `missing` or `dead`, what was found, and what would change it."""

    state: str
    detail: str
    remedy: str = ""


def busy_wait(seconds: float) -> None:
    """Keep a CPU busy, so that a live energy counter must move."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def rapl_powercap(root: Path = Path("/"), work: Callable[[float], None] = busy_wait) -> State:
    """Energy counters under `/sys/class/powercap`; told apart: no folder, no permission, not moving, moving.

    The zones are those that the energy probe reads.
    """
    zones = {zone.name: zone.path / "energy_uj" for zone in read_zones(root)}
    if not zones:
        return State("missing", "no RAPL zones under /sys/class/powercap",
                     "use a bare-metal machine with the intel_rapl_msr module loaded")  # fmt: skip
    packages = {name: path for name, path in zones.items() if name.startswith("package") and "/" not in name} or zones
    try:
        before = {name: int(path.read_text()) for name, path in packages.items()}
    except PermissionError:
        return State("missing", f"{', '.join(packages)}: only root may read energy_uj",
                     OPEN_TO_ALL)  # fmt: skip
    except (OSError, ValueError) as error:
        return State("missing", f"energy_uj cannot be read: {error}", "load the intel_rapl_msr module again")
    work(MOVES_WITHIN_S)
    moved = [name for name, path in packages.items() if read_int(path) != before[name]]
    if not moved:
        return State("dead", f"{', '.join(packages)}: the counter does not move",
                     "use a bare-metal machine: this hypervisor shows counters without a sensor")  # fmt: skip
    return State("ok", f"zones {', '.join(sorted(zones))}")


def rapl_perf(root: Path = Path("/"), virtual: bool | None = None, work: Callable[[float], None] = busy_wait,
              open_event: Callable[..., Any] = PerfEvent) -> State:  # fmt: skip
    """Energy through the `power` PMU: 64 bits, no wrap, one CPU per package, all programs together."""
    pmu = root / "sys/bus/event_source/devices/power"
    kind = read_int(pmu / "type")
    if kind is None:
        return State("missing", "no power PMU", "use a bare-metal machine; Intel, or AMD with kernel 5.8 or later")
    event = read_text(pmu / "events/energy-pkg") or ""
    if not event.startswith("event="):
        return State("missing", "the power PMU has no energy-pkg event", "use a bare-metal machine")
    try:
        config = int(event.removeprefix("event="), 0)
        cpu = (parse_cpu_list(read_text(pmu / "cpumask") or "") or [0])[0]
    except ValueError:
        return State("missing", f"the power PMU describes its event as {event!r}", "use a newer Sonda")
    try:
        with open_event(kind, config, -1, cpu, user=False) as counter:
            before = counter.read()
            work(MOVES_WITHIN_S)
            moved = counter.read() != before
    except PerfEventError as error:
        level = paranoid_level(root)
        if error.errno in (errno.EACCES, errno.EPERM):
            return State("missing", f"refused: kernel.perf_event_paranoid is {level}",
                         "set it to 0 or lower, or give CAP_PERFMON")  # fmt: skip
        return State("missing", *explain_refusal(error.errno or 0, level, True, virtual))
    except OSError as error:
        return State("missing", f"energy-pkg cannot be read: {error}", "use a bare-metal machine")
    if not moved:
        return State("dead", "energy-pkg does not move",
                     "use a bare-metal machine: this hypervisor shows a counter without a sensor")  # fmt: skip
    return State("ok", "energy-pkg moves")


def resctrl(root: Path = Path("/")) -> State:
    """Cache and bandwidth partitioning under `/sys/fs/resctrl`."""
    mounted = root / "sys/fs/resctrl"
    if (mounted / "schemata").exists():
        resources = sorted(path.name for path in (mounted / "info").glob("*") if path.is_dir())
        if os.access(mounted / "schemata", os.W_OK):
            return State("ok", f"mounted: {', '.join(resources) or 'no resources'}")
        return State("missing", "mounted, but only root may change it", "run as root")
    if (mounted / "info/L3_MON").is_dir():
        # A processor that counts and divides nothing has no schemata.
        return State("missing", "mounted, but this CPU only counts (L3_MON) and divides nothing",
                     "use a CPU with CAT (Intel RDT, AMD QoS)")  # fmt: skip
    if "resctrl" in (read_text(root / "proc/filesystems") or "").split():
        return State("missing", "the kernel has it, but it is not mounted",
                     "as root: mount -t resctrl resctrl /sys/fs/resctrl")  # fmt: skip
    return State("missing", "not in this kernel or not on this CPU",
                 "use a bare-metal machine with Intel RDT or AMD QoS and CONFIG_X86_CPU_RESCTRL")  # fmt: skip


def graphics(load: Callable[[str], Any] = importlib.import_module) -> tuple[State, State]:
    """NVIDIA devices, and their energy counters. `load` imports the binding, `pynvml` of nvidia-ml-py."""
    nothing = State("missing", "no NVIDIA device", "use a machine with an NVIDIA GPU of the Volta generation or later")
    try:
        nvml = load("pynvml")
    except ImportError:
        unbound = State("missing", "nvidia-ml-py is not installed", "install it with: pip install nvidia-ml-py")
        return unbound, unbound
    try:
        nvml.nvmlInit()
    except Exception as error:
        return State("missing", f"no NVIDIA driver ({error_line(error)})",
                     "on a machine with an NVIDIA GPU, install its driver"), nothing  # fmt: skip
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        if not handles:
            return State(
                "missing", "the driver shows no device", "check CUDA_VISIBLE_DEVICES and the container"
            ), nothing
        names = ", ".join(decode_text(nvml.nvmlDeviceGetName(handle)) for handle in handles)
        driver = decode_text(nvml.nvmlSystemGetDriverVersion())
        return State("ok", f"{names}; driver {driver}"), _gpu_energy(nvml, handles)
    except Exception as error:
        broken = State("missing", f"the driver answers: {error_line(error)}", "check it with: nvidia-smi")
        return broken, broken
    finally:
        _quietly(nvml.nvmlShutdown)


def _gpu_energy(nvml: Any, handles: list[Any]) -> State:
    try:
        values = [nvml.nvmlDeviceGetTotalEnergyConsumption(handle) for handle in handles]
    except Exception as error:
        return State(
            "missing", f"no energy counter ({error_line(error)})", "use a GPU of the Volta generation or later"
        )
    # A counter since the driver was loaded; that it moves shows only over some 100 ms, so zero is what tells.
    if not all(values):
        return State("dead", "the energy counter stands at 0 mJ", "use another driver, or power times time")
    return State("ok", "total energy, updated every 20 to 100 ms: windows of seconds only")


def _quietly(action: Callable[[], Any]) -> None:
    try:
        action()
    except Exception:
        return
