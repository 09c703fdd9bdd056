"""What the doctor says about machines with and without sensors; trees and drivers are constructed."""

from __future__ import annotations

import errno
import json
import mmap
import platform
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from places import DATA
from sonda.frameworks.collector.counters.perf_event import SOFTWARE, TYPE_SOFTWARE, PerfEventError
from sonda.probes import doctor
from sonda.probes.counters.perf_events import PerfEvent, explain_refusal, paranoid_level
from sonda.probes.doctor import STATES, Check, examine_machine
from sonda.probes.sensors import check_gpus, check_powercap, check_rapl_perf, check_resctrl


def write_tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def idle(seconds: float) -> None:
    """Stands in for work during which a dead sensor does not move."""


def no_driver(name: str) -> Any:
    def init() -> None:
        raise RuntimeError("NVML Shared Library Not Found")

    return SimpleNamespace(nvmlInit=init)


def driver(energy: Any = 123_456, count: int = 1, **changes: Any) -> Any:
    """A constructed NVML with one device, in the calls that nvidia-ml-py offers."""

    def total(handle: int) -> int:
        if isinstance(energy, Exception):
            raise energy
        return int(energy)

    calls = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: count,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda handle: b"NVIDIA H100",
        "nvmlSystemGetDriverVersion": lambda: "560.35",
        "nvmlDeviceGetTotalEnergyConsumption": total,
    }
    return SimpleNamespace(**{**calls, **changes})


def named(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


def test_every_check_is_complete_on_this_machine(tmp_path: Path) -> None:
    checks = examine_machine(store=tmp_path)
    names = [check.name for check in checks]
    assert len(names) == len(set(names))
    assert {"processor", "cores", "caches", "memory", "virtual machine", "GPUs", "torch", "tensorflow", "jax",
            "pytensor", "clock", "timer noise", "process counters", "kernel counters", "hardware counters",
            "RAPL (powercap)", "RAPL (perf)", "GPU energy (NVML)", "cache partitions (resctrl)", "valgrind", "perf",
            "ncu", "writable", "space"} <= set(names)  # fmt: skip
    for check in checks:
        assert check.state in STATES
        assert check.detail
        if check.state in ("missing", "dead", "warning"):
            assert check.remedy, check
    json.dumps([asdict(check) for check in checks])


def test_an_empty_machine_is_examined_to_the_end(tmp_path: Path) -> None:
    checks = named(examine_machine(tmp_path, store=tmp_path, load=no_driver))
    assert checks["processor"].state == "missing"
    assert checks["caches"].state == "missing"
    assert checks["RAPL (powercap)"].state == "missing"
    assert checks["GPUs"].detail == "no NVIDIA driver (NVML Shared Library Not Found)"
    assert checks["writable"].state == "ok"
    assert "examination" not in checks


def test_a_part_that_fails_does_not_hide_the_rest(tmp_path: Path) -> None:
    def broken(name: str) -> Any:
        raise RuntimeError("a strange installation")

    checks = named(examine_machine(tmp_path, store=tmp_path, load=broken))
    assert checks["examination"].state == "warning"
    assert "a strange installation" in checks["examination"].detail
    assert checks["space"]


def test_a_quota_is_a_warning_with_a_remedy(tmp_path: Path) -> None:
    write_tree(tmp_path, {
        "proc/cpuinfo": "\n\n".join(f"processor: {cpu}\nmodel name: X\nflags: avx2" for cpu in range(8)),
        "proc/self/status": "Cpus_allowed_list: 0-7",
        "proc/self/cgroup": "0::/",
        "sys/fs/cgroup/cpu.max": "250000 100000",
    })  # fmt: skip
    cores = named(examine_machine(tmp_path, store=tmp_path, load=no_driver))["cores"]
    assert (cores.state, cores.remedy) == ("warning", "use at most 2 threads, or lift the limit")
    assert "a quota of 2.5 CPUs" in cores.detail


def test_a_store_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    writable = named(examine_machine(tmp_path, store=blocked / "runs", load=no_driver))["writable"]
    assert writable.state == "warning"
    assert "SONDA_HOME" in writable.remedy


def test_no_framework_is_imported() -> None:
    code = (
        "import sys; from sonda.probes.doctor import examine_machine; examine_machine();"
        "print([name for name in ('torch', 'pyarrow', 'numba', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert done.stderr == ""


@pytest.mark.parametrize(("version", "companions", "expected"), [
    ("2.13.0+cpu", {}, "2.13.0+cpu, CPU build"),
    ("2.13.0+cu129", {}, "2.13.0+cu129, CUDA build"),
    ("2.13.0+rocm6.4", {}, "2.13.0+rocm6.4, ROCm build"),
    ("2.15.0", {"nvidia-cuda-runtime": "13.0"}, "2.15.0, CUDA build"),
    ("2.15.0", {}, "2.15.0, build not known"),
])  # fmt: skip
def test_builds_of_torch_are_told_by_their_metadata(
    version: str, companions: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "package_version", {"torch": version, **companions}.get)
    found = named(list(doctor._framework_checks()))
    assert (found["torch"].state, found["torch"].detail) == ("ok", expected)
    assert found["jax"].remedy == "install it with: pip install 'sonda-profiler[jax]'"


@pytest.mark.parametrize(("said", "machine", "state"), [
    ("valgrind-3.19.0", "x86_64", "ok"), ("valgrind-3.24.0", "x86_64", "ok"), ("valgrind-3.18.1", "x86_64", "missing"),
    ("nothing", "x86_64", "missing"), ("valgrind-3.24.0", "aarch64", "missing"),
])  # fmt: skip
def test_valgrind_is_there_where_the_probe_callgrind_can_use_it(
    said: str, machine: str, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "valgrind"
    program.write_text(f"#!/bin/sh\necho {said}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert named(list(doctor._tool_checks()))["valgrind"].state == state


# RAPL: no folder, no permission, not moving, moving


def powercap(root: Path) -> Path:
    """Constructed: one package with memory, and the duplicate that some kernels show."""
    return write_tree(root, {
        "sys/class/powercap/intel-rapl:0/name": "package-0",
        "sys/class/powercap/intel-rapl:0/energy_uj": "1000",
        "sys/class/powercap/intel-rapl:0:0/name": "dram",
        "sys/class/powercap/intel-rapl:0:0/energy_uj": "5",
        "sys/class/powercap/intel-rapl-mmio:0/name": "package-0",
        "sys/class/powercap/intel-rapl-mmio:0/energy_uj": "1000",
    })  # fmt: skip


def test_no_powercap_folder(tmp_path: Path) -> None:
    assert check_powercap(tmp_path, idle).state == "missing"


def test_a_powercap_counter_that_stands_still_is_dead(tmp_path: Path) -> None:
    assert check_powercap(powercap(tmp_path), idle).state == "dead"


def test_a_powercap_counter_that_moves(tmp_path: Path) -> None:
    """The copy that some kernels show need not move: it is not what is read."""
    powercap(tmp_path)
    counters = sorted((tmp_path / "sys/class/powercap").glob("intel-rapl:*/energy_uj"))

    def work(seconds: float) -> None:
        for counter in counters:
            counter.write_text(str(int(counter.read_text()) + 7))

    state = check_powercap(tmp_path, work)
    assert (state.state, state.detail) == ("ok", "zones package-0, package-0/dram")


def test_memory_that_moves_does_not_make_a_package_live(tmp_path: Path) -> None:
    powercap(tmp_path)
    memory = tmp_path / "sys/class/powercap/intel-rapl:0:0/energy_uj"
    assert check_powercap(tmp_path, lambda seconds: memory.write_text("99") and None).state == "dead"


def test_powercap_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    powercap(tmp_path)
    read = Path.read_text

    def refused(self: Path, *arguments: Any, **options: Any) -> str:
        if self.name == "energy_uj":
            raise PermissionError(errno.EACCES, "Permission denied")
        return read(self, *arguments, **options)

    monkeypatch.setattr(Path, "read_text", refused)
    state = check_powercap(tmp_path, idle)
    assert state.state == "missing"
    assert "only root" in state.detail
    assert "chmod" in state.remedy


class Counter:
    """Stands in for an energy event: each reading is the next of the values."""

    def __init__(self, *values: int) -> None:
        self.values = list(values)
        self.opened: tuple[Any, ...] = ()

    def __call__(self, *arguments: Any, **options: Any) -> Counter:
        self.opened = arguments
        return self

    def __enter__(self) -> Counter:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def read(self) -> int:
        return self.values.pop(0)


def power_pmu(root: Path) -> Path:
    return write_tree(root, {
        "sys/bus/event_source/devices/power/type": "23",
        "sys/bus/event_source/devices/power/cpumask": "4,20",
        "sys/bus/event_source/devices/power/events/energy-pkg": "event=0x02",
        "proc/sys/kernel/perf_event_paranoid": "2",
    })  # fmt: skip


def test_energy_through_perf(tmp_path: Path) -> None:
    power_pmu(tmp_path)
    counter = Counter(10, 15)
    assert check_rapl_perf(tmp_path, False, idle, counter).state == "ok"
    assert counter.opened == (23, 2, -1, 4)
    assert check_rapl_perf(tmp_path, False, idle, Counter(10, 10)).state == "dead"


def test_energy_through_perf_that_is_refused_names_the_level(tmp_path: Path) -> None:
    def refused(*arguments: Any, **options: Any) -> Any:
        raise PerfEventError(errno.EACCES, "Permission denied")

    state = check_rapl_perf(power_pmu(tmp_path), False, idle, refused)
    assert (state.state, state.detail) == ("missing", "refused: kernel.perf_event_paranoid is 2")
    assert "0 or lower" in state.remedy


def test_a_power_pmu_without_energy_is_missing(tmp_path: Path) -> None:
    assert check_rapl_perf(tmp_path, True, idle).detail == "no power PMU"
    write_tree(tmp_path, {"sys/bus/event_source/devices/power/type": "23"})
    assert check_rapl_perf(tmp_path, True, idle).detail == "the power PMU has no energy-pkg event"


def test_resctrl_states(tmp_path: Path) -> None:
    assert "not in this kernel" in check_resctrl(tmp_path).detail
    write_tree(tmp_path, {"proc/filesystems": "nodev\tsysfs\nnodev\tresctrl\n\text4"})
    assert "mount -t resctrl" in check_resctrl(tmp_path).remedy
    write_tree(tmp_path, {"sys/fs/resctrl/schemata": "L3:0=ff", "sys/fs/resctrl/info/L3/cbm_mask": "ff"})
    assert check_resctrl(tmp_path) == ("ok", "mounted: L3", "")


def test_resctrl_that_only_counts_is_mounted_and_divides_nothing(tmp_path: Path) -> None:
    tree = DATA / "resctrl/monitor-only"
    (tmp_path / "sys/fs").mkdir(parents=True)
    (tmp_path / "sys/fs/resctrl").symlink_to(tree)
    write_tree(tmp_path, {"proc/filesystems": "nodev\tresctrl\n"})
    state = check_resctrl(tmp_path)
    assert state.state == "missing" and "only counts" in state.detail and "mount" not in state.remedy


# NVML


def test_a_gpu_with_an_energy_counter() -> None:
    devices, energy = check_gpus(lambda name: driver())
    assert (devices.state, devices.detail) == ("ok", "NVIDIA H100; driver 560.35")
    assert energy.state == "ok"


def test_a_gpu_counter_at_zero_is_dead() -> None:
    assert check_gpus(lambda name: driver(energy=0))[1].state == "dead"


def test_a_gpu_without_energy_counter_is_missing_with_the_reason() -> None:
    devices, energy = check_gpus(lambda name: driver(energy=RuntimeError("Not Supported")))
    assert devices.state == "ok"
    assert (energy.state, energy.detail) == ("missing", "no energy counter (Not Supported)")


def test_a_driver_without_devices() -> None:
    assert check_gpus(lambda name: driver(count=0))[0].detail == "the driver shows no device"


def test_a_driver_that_fails_is_said() -> None:
    def lost(index: int) -> int:
        raise RuntimeError("GPU is lost")

    devices, energy = check_gpus(lambda name: driver(nvmlDeviceGetHandleByIndex=lost))
    assert devices.detail == energy.detail == "the driver answers: GPU is lost"


def test_a_missing_binding_names_the_package() -> None:
    def absent(name: str) -> Any:
        raise ImportError(name)

    devices, energy = check_gpus(absent)
    assert devices.remedy == energy.remedy == "install it with: pip install nvidia-ml-py"


# perf_event_open


@pytest.mark.parametrize(("code", "paranoid", "hardware", "virtual", "cause", "remedy"), [
    (errno.EACCES, 3, False, False, "kernel.perf_event_paranoid is 3", "perf_event_paranoid=2"),
    (errno.EPERM, 2, False, False, "seccomp", "seccomp"),
    (errno.ENOENT, 2, True, True, "no PMU in this virtual machine", "bare-metal"),
    (errno.ENOENT, 2, True, False, "no driver for this CPU's PMU", "newer kernel"),
    (errno.ENOENT, 2, False, True, "does not know the event", "newer kernel"),
    (errno.EMFILE, 2, True, False, "file descriptors", "ulimit"),
    (errno.EIO, None, False, None, "Input/output error", "perf_event_open(2)"),
])  # fmt: skip
def test_what_the_kernel_refuses_is_explained(
    code: int, paranoid: int | None, hardware: bool, virtual: bool | None, cause: str, remedy: str
) -> None:
    said, way_out = explain_refusal(code, paranoid, hardware, virtual)
    assert cause in said
    assert remedy in way_out


def test_the_paranoid_level_is_read(tmp_path: Path) -> None:
    assert paranoid_level(tmp_path) is None
    write_tree(tmp_path, {"proc/sys/kernel/perf_event_paranoid": "-1"})
    assert paranoid_level(tmp_path) == -1


def test_page_faults_are_counted_exactly() -> None:
    """Touching 512 fresh pages makes 512 faults; the interpreter adds a few of its own."""
    if "[always]" in Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text():
        pytest.skip("transparent huge pages are always on: a fault brings more than a page")
    pages = 512
    try:
        event = PerfEvent(TYPE_SOFTWARE, SOFTWARE["page-faults"])
    except PerfEventError as error:
        pytest.skip(f"perf_event_open is refused here: {error}")
    counted = []
    with event:
        for _ in range(2):  # the first time, pages of the interpreter itself may come in, all the more after a fork
            with mmap.mmap(-1, pages * mmap.PAGESIZE) as memory:
                before = event.read()
                for page in range(pages):
                    memory[page * mmap.PAGESIZE] = 1
                counted.append(event.read() - before)
    assert pages <= min(counted) and counted[1] <= pages + 16
    assert event.descriptor == -1


def test_an_event_that_nobody_knows_is_refused_with_its_errno() -> None:
    with pytest.raises(PerfEventError) as caught:
        PerfEvent(TYPE_SOFTWARE, 9999)
    assert caught.value.errno in (errno.ENOENT, errno.EINVAL, errno.EACCES, errno.EPERM, errno.ENOSYS)
