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
from sonda.probes.cache_partition.partition import left_checks
from sonda.probes.callgrind.valgrind import valgrind_version
from sonda.probes.ceilings.gpu import load_or_measure_gpu
from sonda.probes.ceilings.processor import load_or_measure
from sonda.probes.counters.papi import Papi
from sonda.probes.counters.perf_events import PerfEvent, explain_refusal, paranoid_level
from sonda.probes.counters.perf_stat import PerfStat
from sonda.probes.counters.pmu_events import GENERIC
from sonda.probes.machine.contamination import read_conditions
from sonda.probes.machine.environment import package_version, thread_variables, wait_policy
from sonda.probes.machine.gpu import nvml_device
from sonda.probes.machine.record import machine_record
from sonda.probes.ncu.command import ncu_state
from sonda.probes.sensors import State, graphics, rapl_perf, rapl_powercap, resctrl
from sonda.record.errors import SondaError, named_line
from sonda.record.plugins import NOUNS, import_entry, plugin_entries
from sonda.record.store import default_root

STATES = ("ok", "missing", "dead", "off", "warning")
FRAMEWORKS = {"torch": ("torch",), "tensorflow": ("tensorflow", "tensorflow-cpu"), "jax": ("jax",),
              "pytensor": ("pytensor",)}  # fmt: skip
LEAST_SPACE = 1 << 30
NOISE_LIMIT = 0.1


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    group: str
    """machine, frameworks, probes, tools, parts (of other packages) or store."""
    name: str
    state: str
    """ok, missing, dead (there, but does not move), off (there, but switched off) or warning."""
    detail: str
    remedy: str = ""
    """What would change it; empty where nothing needs to."""


def examine(
    root: Path = Path("/"), store: Path | None = None, load: Callable[[str], Any] = importlib.import_module
) -> list[Check]:
    """Look at everything; takes under two seconds and never raises.

    It changes nothing, but for a cache partition that an experiment left when it was killed: that is restored.

    `root` stands in for `/`, `store` for the store's directory, `load` imports the NVML binding.
    """
    machine = machine_record(root)
    virtual = machine.get("virtual_machine")
    groups: tuple[Callable[[], Iterable[Check]], ...] = (
        lambda: _machine(machine),
        lambda: _gpus(load),
        _frameworks,
        lambda: _clocks(root),
        lambda: _counters(root, virtual),
        lambda: [_check("probes", "RAPL (powercap)", rapl_powercap(root)),
                 _check("probes", "RAPL (perf)", rapl_perf(root, virtual)),
                 _check("probes", "cache partitions (resctrl)", resctrl(root))],
        lambda: [Check("probes", *left) for left in left_checks(store or default_root())],
        _tools,
        _added,
        lambda: _store(store or default_root()),
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
        device = nvml_device(index)
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


def _check(group: str, name: str, state: State) -> Check:
    return Check(group, name, state.state, state.detail, state.remedy)


def _added() -> Iterable[Check]:
    """Parts that other packages add, each imported: one that fails would fail when it is asked for."""
    for group, noun in NOUNS.items():
        for entry in plugin_entries(group).values():
            try:
                import_entry(entry)
            except SondaError as error:
                yield Check("parts", f"{noun} {entry.name}", "dead", error.cause, error.remedy)
            else:
                yield Check("parts", f"{noun} {entry.name}", "ok", f"added by {entry.value}")


def _machine(machine: dict[str, Any]) -> Iterable[Check]:
    missing = machine["missing"]
    flags = ", ".join(machine["instruction_sets"]) or "no known vector instructions"
    name = machine.get("processor")
    yield Check("machine", "processor", "ok", f"{name} ({machine['architecture']}; {flags})") if name else Check(
        "machine", "processor", "missing", missing["processor"], "nothing: Sonda works without its name")  # fmt: skip
    effective, logical = machine.get("effective_cores"), machine.get("logical_cores")
    if effective is None:
        yield Check("machine", "cores", "missing", missing["effective_cores"], "use Linux")
    else:
        physical = f", {machine['physical_cores']} physical" if "physical_cores" in machine else ""
        sockets = f", {machine['sockets']} socket{'s' * (machine['sockets'] > 1)}" if "sockets" in machine else ""
        nodes = (
            f", {machine['numa_nodes']} NUMA node{'s' * (machine['numa_nodes'] > 1)}" if "numa_nodes" in machine else ""
        )
        detail = f"{effective} usable of {logical}{physical}{sockets}{nodes}"
        if logical and effective < logical:
            reason = f"a quota of {machine['cpu_quota']:g} CPUs" if "cpu_quota" in machine else "the CPU affinity"
            yield Check("machine", "cores", "warning", f"{detail}: limited by {reason}",
                        f"use at most {effective} threads, or lift the limit")  # fmt: skip
        else:
            yield Check("machine", "cores", "ok", detail)
    caches = machine.get("caches")
    if caches:
        text = ", ".join(f"L{c['level']} {_size(c['bytes'])}{_kind(c['type'])} x {c['instances']}" for c in caches)
        yield Check("machine", "caches", "ok", text)
    else:
        yield Check("machine", "caches", "missing", missing["caches"], "nothing: cache bandwidth is then not measured")
    if "memory_bytes" in machine:
        limit = machine.get("memory_limit_bytes")
        text = _size(machine["memory_bytes"]) + (f", limited to {_size(limit)} by a cgroup" if limit else "")
        yield Check("machine", "memory", "ok", text)
    else:
        yield Check("machine", "memory", "missing", missing["memory_bytes"], "use Linux")
    virtual = machine.get("virtual_machine")
    where = "container" if machine["container"] else "no container"
    if virtual:
        yield Check("machine", "virtual machine", "warning",
                    f"yes, {where}: counters and energy are often hidden, and two cores may be one of the host's",
                    "for counters and energy, use a bare-metal machine")  # fmt: skip
    else:
        yield Check("machine", "virtual machine", "ok", f"{'no' if virtual is False else 'not known'}, {where}")
    governor, turbo = machine.get("governor"), machine.get("turbo")
    if governor is None:
        yield Check("machine", "clock control", "missing", missing["governor"], "use a bare-metal machine")
    elif governor in ("performance", "schedutil", "ondemand"):
        yield Check("machine", "clock control", "ok", f"governor {governor}, turbo {_on(turbo)}")
    else:
        yield Check("machine", "clock control", "warning", f"governor {governor}, turbo {_on(turbo)}: slow to speed up",
                    "as root: cpupower frequency-set -g performance")  # fmt: skip


def _gpus(load: Callable[[str], Any]) -> Iterable[Check]:
    devices, energy = graphics(load)
    yield _check("machine", "GPUs", devices)
    yield _check("probes", "GPU energy (NVML)", energy)


def _frameworks() -> Iterable[Check]:
    for name, distributions in FRAMEWORKS.items():
        found = [(one, version) for one in distributions if (version := package_version(one))]
        if not found:
            yield Check("frameworks", name, "missing", "not installed", f"install it with: pip install 'sonda[{name}]'")
            continue
        distribution, version = found[0]
        yield Check("frameworks", name, "ok", f"{version}{_build(distribution, version)}")
    variables = thread_variables()
    text = ", ".join(f"{key}={value}" for key, value in variables.items()) or "none set"
    yield Check("frameworks", "thread variables", "ok", f"{text}; waiting threads {_waiting()}")


def _build(distribution: str, version: str) -> str:
    """Whether it is a build for CPU or for a GPU, from version and installed companions."""
    local = version.partition("+")[2]
    if distribution == "torch":
        if local.startswith(("cu", "rocm", "xpu", "cpu")):
            return {"cu": ", CUDA build", "ro": ", ROCm build", "xp": ", XPU build", "cp": ", CPU build"}[local[:2]]
        # Wheels of the package index carry no local part; the CUDA ones bring NVIDIA's libraries along.
        cuda = any(package_version(name) for name in ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12",
                                                      "nvidia-cuda-runtime-cu11"))  # fmt: skip
        return ", CUDA build" if cuda else ", build not known"
    return ", CPU build" if distribution.endswith("-cpu") else ""


def _waiting() -> str:
    return "sleep (passive)" if wait_policy() == "passive" else "spin (active)"


def _clocks(root: Path) -> Iterable[Check]:
    steps = sorted(_clock_step() for _ in range(200))
    yield Check(
        "probes", "clock", "ok", f"two readings of perf_counter are {steps[len(steps) // 2]} ns apart (median of 200)"
    )
    noise = _noise()
    now = read_conditions(root)
    detail = f"the same work varies by {noise:.1%}" + (
        f", load average {now.load:g} on {now.cores} CPUs" if now.load is not None else ""
    )
    if noise > NOISE_LIMIT:
        yield Check("probes", "timer noise", "warning", detail, "stop other programs before you measure")
    else:
        yield Check("probes", "timer noise", "ok", detail)


def _clock_step() -> int:
    begin = now = time.perf_counter_ns()
    while now == begin:
        now = time.perf_counter_ns()
    return now - begin


def _noise() -> float:
    """How much longer the same work takes at the third quartile than at the median; 40 pieces of about 2 ms."""
    durations = []
    for _ in range(40):
        begin = time.perf_counter_ns()
        sum(range(100_000))
        durations.append(time.perf_counter_ns() - begin)
    quartiles = statistics.quantiles(durations, n=4)
    return quartiles[2] / quartiles[1] - 1


def _counters(root: Path, virtual: bool | None) -> Iterable[Check]:
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


def _tools() -> Iterable[Check]:
    try:
        yield Check("tools", "valgrind", "ok", valgrind_version())
    except SondaError as error:
        yield Check("tools", "valgrind", "missing", error.cause, error.remedy)
    purpose = "a second source for CPU counters"
    for name, found in (("perf", PerfStat().state()), ("libpapi", Papi().state())):
        yield Check("tools", name, found.state, f"{found.reason}: {purpose}", found.remedy)
    found = ncu_state()
    yield Check("tools", "ncu", found.state, f"{found.reason}: counters of GPU kernels", found.remedy)


def _store(store: Path) -> Iterable[Check]:
    existing = store.absolute()
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    # An attempt, not a look at the permission bits: root passes those even on a read-only file system.
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        yield Check("store", "writable", "warning", f"{store} cannot be written: {error.strerror}",
                    "point $SONDA_HOME at a directory that can be written")  # fmt: skip
    else:
        yield Check("store", "writable", "ok", f"{store}{'' if existing == store.absolute() else ' (will be made)'}")
    free = shutil.disk_usage(existing).free
    if free < LEAST_SPACE:
        yield Check("store", "space", "warning", f"{_size(free)} free", "free some, or point $SONDA_HOME elsewhere")
    else:
        yield Check("store", "space", "ok", f"{_size(free)} free")


def _size(count: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"


def _kind(cache: str) -> str:
    return {"Data": " data", "Instruction": " instructions"}.get(cache, "")


def _on(turbo: bool | None) -> str:
    return {True: "on", False: "off", None: "not known"}[turbo]
