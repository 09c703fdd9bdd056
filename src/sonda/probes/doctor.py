"""Doctor: what this machine can measure, what it cannot, why, and what would change that."""

from __future__ import annotations

import importlib
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count as count_from
from pathlib import Path
from typing import Any

from sonda.frameworks.collector.counters.perf_event import SOFTWARE, TYPE_HARDWARE, TYPE_SOFTWARE, PerfEventError
from sonda.probes.cache_partition.partition import check_left_partition
from sonda.probes.callgrind.valgrind import valgrind_version
from sonda.probes.ceilings.gpu import load_or_measure_gpu
from sonda.probes.ceilings.processor import load_or_measure
from sonda.probes.counters.papi import Papi
from sonda.probes.counters.perf_events import PerfEvent, explain_refusal, paranoid_level
from sonda.probes.counters.perf_stat import PerfStat
from sonda.probes.counters.pmu_events import GENERIC
from sonda.probes.machine.contamination import read_conditions
from sonda.probes.machine.environment import package_version, thread_variables, wait_policy
from sonda.probes.machine.gpu import read_nvml_device
from sonda.probes.machine.record import machine_record
from sonda.probes.ncu.command import ncu_state
from sonda.probes.sensors import SensorState, check_gpus, check_powercap, check_rapl_perf, check_resctrl
from sonda.record.errors import SondaError, install_command, named_line
from sonda.record.machine import Machine
from sonda.record.plugins import NOUNS, import_entry, plugin_entries
from sonda.record.store import default_root

STATES = ("ok", "missing", "dead", "off", "warning")
FRAMEWORKS = {"torch": ("torch",), "tensorflow": ("tensorflow", "tensorflow-cpu"), "jax": ("jax",),
              "pytensor": ("pytensor",)}  # fmt: skip
LEAST_SPACE = 1 << 30
NOISE_LIMIT = 0.1


@dataclass(frozen=True)
class Check:
    """One thing that was examined."""

    group: str
    """machine, frameworks, probes, tools, parts (of other packages) or store."""
    name: str
    state: str
    """ok, missing, dead (a sensor that does not move), off (switched off) or warning."""
    detail: str
    remedy: str = ""
    """What would change it; empty where nothing needs to."""


def examine_machine(
    root: Path = Path("/"), store: Path | None = None, load: Callable[[str], Any] = importlib.import_module
) -> list[Check]:
    """Examine everything; takes under two seconds and never raises.

    It restores a cache partition that an experiment left when it was killed, and changes nothing else.

    `root` stands in for `/`, `store` for the store's directory, `load` imports the NVML binding.
    """
    machine = Machine.of(machine_record(root))
    virtual = machine.virtual_machine
    groups: tuple[Callable[[], Iterable[Check]], ...] = (
        lambda: _machine_checks(machine),
        lambda: _gpu_checks(load),
        _framework_checks,
        lambda: _clock_checks(root),
        lambda: _counter_checks(root, virtual),
        lambda: [_sensor_check("probes", "RAPL (powercap)", check_powercap(root)),
                 _sensor_check("probes", "RAPL (perf)", check_rapl_perf(root, virtual)),
                 _sensor_check("probes", "cache partitions (resctrl)", check_resctrl(root))],
        lambda: [Check("probes", *check) for check in check_left_partition(store or default_root())],
        _tool_checks,
        _plugin_checks,
        lambda: _store_checks(store or default_root()),
    )  # fmt: skip
    checks: list[Check] = []
    for group in groups:
        try:
            checks += group()
        except Exception as error:
            # A machine stranger than foreseen must still get the rest of its examination.
            checks.append(Check("probes", "examination", "warning", named_line(error),
                                "please report this, with the output of: sonda doctor --json"))  # fmt: skip
    return checks


def measure_ceilings(store: Path, say: Callable[[str], None]) -> list[Check]:
    """Measure the ceilings of the processor and of every GPU again, and keep the better of each figure.

    Raises SondaError where the processor's cannot be measured.
    """
    say("measuring what this machine can do: about 6 s; nothing else should run")
    record = load_or_measure(store, [], again=True)
    entries = {f"processor, {count} thread{'' if count == '1' else 's'}": entry
               for count, entry in record["threads"].items()}  # fmt: skip
    for index in count_from(0):
        device = read_nvml_device(index)
        if device is None:
            break
        entries |= load_or_measure_gpu(store, index, say, known=device, again=True).record()["devices"]
    return [_ceilings_check(name, entry) for name, entry in entries.items()]


def _ceilings_check(name: str, entry: dict[str, Any]) -> Check:
    figures = [
        f"float32 {entry['flops'].get('float32', 0.0) / 1e9:.3g} GFLOP/s",
        f"memory {entry['dram_bandwidth'] / 1e9:.3g} GB/s",
        f"cache {entry.get('cache_bandwidth', 0.0) / 1e9:.3g} GB/s",
        f"operation {entry.get('operation_ns', 0.0) / 1e3:.3g} µs",
    ]
    quiet = "stop other programs, and measure again" if entry.get("disturbed") else ""
    return Check("machine", name, "warning" if quiet else "ok", ", ".join(figures), quiet)


def _sensor_check(group: str, name: str, state: SensorState) -> Check:
    return Check(group, name, state.state, state.detail, state.remedy)


def _plugin_checks() -> Iterable[Check]:
    """Parts that other packages add. Each is imported, to find those that cannot be used."""
    for group, noun in NOUNS.items():
        for entry in plugin_entries(group).values():
            try:
                import_entry(entry)
            except SondaError as error:
                yield Check("parts", f"{noun} {entry.name}", "dead", error.cause, error.remedy)
            else:
                yield Check("parts", f"{noun} {entry.name}", "ok", f"added by {entry.value}")


def _machine_checks(machine: Machine) -> Iterable[Check]:
    missing = machine.missing or {}
    flags = ", ".join(machine.instruction_sets or ()) or "no known vector instructions"
    if machine.processor:
        yield Check("machine", "processor", "ok", f"{machine.processor} ({machine.architecture}; {flags})")
    else:
        yield Check("machine", "processor", "missing", missing["processor"], "nothing: Sonda works without its name")
    yield _core_check(machine)
    if machine.caches:
        sizes = [
            f"L{cache.level} {_size_words(cache.bytes)}{_cache_kind_words(cache.type)} x {cache.instances}"
            for cache in machine.caches
        ]
        yield Check("machine", "caches", "ok", ", ".join(sizes))
    else:
        yield Check("machine", "caches", "missing", missing["caches"], "nothing: cache bandwidth is then not measured")
    if machine.memory_bytes is not None:
        limit = machine.memory_limit_bytes
        limited = f", limited to {_size_words(limit)} by a cgroup" if limit else ""
        yield Check("machine", "memory", "ok", f"{_size_words(machine.memory_bytes)}{limited}")
    else:
        yield Check("machine", "memory", "missing", missing["memory_bytes"], "use Linux")
    where = "container" if machine.container else "no container"
    if machine.virtual_machine:
        yield Check("machine", "virtual machine", "warning",
                    f"yes, {where}: counters and energy are often hidden, and two cores may be one of the host's",
                    "for counters and energy, use a bare-metal machine")  # fmt: skip
    else:
        known = "no" if machine.virtual_machine is False else "not known"
        yield Check("machine", "virtual machine", "ok", f"{known}, {where}")
    yield _clock_control_check(machine)


def _core_check(machine: Machine) -> Check:
    effective, logical = machine.effective_cores, machine.logical_cores
    if effective is None:
        return Check("machine", "cores", "missing", (machine.missing or {})["effective_cores"], "use Linux")
    detail = f"{effective} usable of {logical}"
    if machine.physical_cores is not None:
        detail += f", {machine.physical_cores} physical"
    if machine.sockets is not None:
        detail += f", {machine.sockets} socket{'s' * (machine.sockets > 1)}"
    if machine.numa_nodes is not None:
        detail += f", {machine.numa_nodes} NUMA node{'s' * (machine.numa_nodes > 1)}"
    if not logical or effective >= logical:
        return Check("machine", "cores", "ok", detail)
    quota = machine.cpu_quota
    reason = f"a quota of {quota:g} CPUs" if quota is not None else "the CPU affinity"
    remedy = f"use at most {effective} threads, or lift the limit"
    return Check("machine", "cores", "warning", f"{detail}: limited by {reason}", remedy)


def _clock_control_check(machine: Machine) -> Check:
    if machine.governor is None:
        reason = (machine.missing or {})["governor"]
        return Check("machine", "clock control", "missing", reason, "use a bare-metal machine")
    detail = f"governor {machine.governor}, turbo {_turbo_words(machine.turbo)}"
    if machine.governor in ("performance", "schedutil", "ondemand"):
        return Check("machine", "clock control", "ok", detail)
    remedy = "as root: cpupower frequency-set -g performance"
    return Check("machine", "clock control", "warning", f"{detail}: slow to speed up", remedy)


def _gpu_checks(load: Callable[[str], Any]) -> Iterable[Check]:
    devices, energy = check_gpus(load)
    yield _sensor_check("machine", "GPUs", devices)
    yield _sensor_check("probes", "GPU energy (NVML)", energy)


def _framework_checks() -> Iterable[Check]:
    for name, distributions in FRAMEWORKS.items():
        installed = [(package, version) for package in distributions if (version := package_version(package))]
        if not installed:
            yield Check("frameworks", name, "missing", "not installed", f"install it with: {install_command(name)}")
            continue
        distribution, version = installed[0]
        yield Check("frameworks", name, "ok", f"{version}{_build_words(distribution, version)}")
    variables = thread_variables()
    text = ", ".join(f"{key}={value}" for key, value in variables.items()) or "none set"
    yield Check("frameworks", "thread variables", "ok", f"{text}; waiting threads {_wait_words()}")


def _build_words(distribution: str, version: str) -> str:
    """Whether a framework is built for CPU or GPU, in words, by its version and the packages installed beside it."""
    local = version.partition("+")[2]
    if distribution == "torch":
        if local.startswith(("cu", "rocm", "xpu", "cpu")):
            return {"cu": ", CUDA build", "ro": ", ROCm build", "xp": ", XPU build", "cp": ", CPU build"}[local[:2]]
        # Wheels of the package index carry no local part; the CUDA ones bring NVIDIA's libraries along.
        cuda = any(package_version(name) for name in ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12",
                                                      "nvidia-cuda-runtime-cu11"))  # fmt: skip
        return ", CUDA build" if cuda else ", build not known"
    return ", CPU build" if distribution.endswith("-cpu") else ""


def _wait_words() -> str:
    return "sleep (passive)" if wait_policy() == "passive" else "spin (active)"


def _clock_checks(root: Path) -> Iterable[Check]:
    steps = sorted(_measure_clock_step() for _ in range(200))
    yield Check(
        "probes", "clock", "ok", f"two readings of perf_counter are {steps[len(steps) // 2]} ns apart (median of 200)"
    )
    noise = _measure_noise()
    now = read_conditions(root)
    detail = f"the same work varies by {noise:.1%}" + (
        f", load average {now.load:g} on {now.cores} CPUs" if now.load is not None else ""
    )
    if noise > NOISE_LIMIT:
        yield Check("probes", "timer noise", "warning", detail, "stop other programs before you measure")
    else:
        yield Check("probes", "timer noise", "ok", detail)


def _measure_clock_step() -> int:
    begin = now = time.perf_counter_ns()
    while now == begin:
        now = time.perf_counter_ns()
    return now - begin


def _measure_noise() -> float:
    """How much longer the same work takes at the third quartile than at the median; 40 pieces of about 2 ms."""
    durations = []
    for _ in range(40):
        begin = time.perf_counter_ns()
        sum(range(100_000))
        durations.append(time.perf_counter_ns() - begin)
    quartiles = statistics.quantiles(durations, n=4)
    return quartiles[2] / quartiles[1] - 1


def _counter_checks(root: Path, virtual: bool | None) -> Iterable[Check]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    yield Check("probes", "process counters", "ok",
                f"getrusage: {usage.ru_minflt} page faults, {usage.ru_nvcsw} context switches so far")  # fmt: skip
    for name, kind, config in (("kernel counters", TYPE_SOFTWARE, SOFTWARE["page-faults"]),
                               ("hardware counters", TYPE_HARDWARE, GENERIC["instructions"])):  # fmt: skip
        hardware = kind == TYPE_HARDWARE
        level = paranoid_level(root)
        try:
            with PerfEvent(kind, config) as event:
                before = event.read()
                # Fresh memory makes page faults, and counting anything makes instructions.
                bytearray(b"x") * (1 << 20)
                moved = event.read() - before
        except PerfEventError as error:
            cause, remedy = explain_refusal(error.errno or 0, level, hardware, virtual)
            yield Check("probes", name, "missing", cause, remedy)
            continue
        event_name = "instructions" if hardware else "page-faults"
        if moved > 0:
            yield Check("probes", name, "ok", f"perf_event_open: {event_name} count (perf_event_paranoid {level})")
        else:
            yield Check(
                "probes", name, "dead", f"perf_event_open: {event_name} does not move", "use a bare-metal machine"
            )


def _tool_checks() -> Iterable[Check]:
    try:
        yield Check("tools", "valgrind", "ok", valgrind_version())
    except SondaError as error:
        yield Check("tools", "valgrind", "missing", error.cause, error.remedy)
    purpose = "a second source for CPU counters"
    for name, tool in (("perf", PerfStat().state()), ("libpapi", Papi().state())):
        yield Check("tools", name, tool.state, f"{tool.reason}: {purpose}", tool.remedy)
    ncu = ncu_state()
    yield Check("tools", "ncu", ncu.state, f"{ncu.reason}: counters of GPU kernels", ncu.remedy)


def _store_checks(store: Path) -> Iterable[Check]:
    existing = store.absolute()
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    # A file is made, because permission bits do not suffice: root passes those even on a read-only file system.
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        yield Check("store", "writable", "warning", f"{store} cannot be written: {error.strerror}",
                    "point $SONDA_HOME at a directory that can be written")  # fmt: skip
    else:
        yield Check("store", "writable", "ok", f"{store}{'' if existing == store.absolute() else ' (will be made)'}")
    free = shutil.disk_usage(existing).free
    detail = f"{_size_words(free)} free"
    if free < LEAST_SPACE:
        yield Check("store", "space", "warning", detail, "free some, or point $SONDA_HOME elsewhere")
    else:
        yield Check("store", "space", "ok", detail)


def _size_words(count: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"


def _cache_kind_words(cache: str) -> str:
    return {"Data": " data", "Instruction": " instructions"}.get(cache, "")


def _turbo_words(turbo: bool | None) -> str:
    return {True: "on", False: "off", None: "not known"}[turbo]
