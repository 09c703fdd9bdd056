"""The machine record, from constructed /proc and /sys trees (none of them was copied from a machine)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peak_theory import theoretical_flops
from sonda.probes.kernel_files import parse_cpu_list, parse_size
from sonda.probes.machine.allowance import read_allowance
from sonda.probes.machine.caches import read_caches
from sonda.probes.machine.environment import installed_versions, package_version, thread_variables, wait_policy
from sonda.probes.machine.record import fingerprint, machine_record
from sonda.record.machine import Machine

MIB = 1 << 20


def write_tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def cache_files(cpu: int, index: int, level: int, kind: str, size: str, shared: str) -> dict[str, str]:
    folder = f"sys/devices/system/cpu/cpu{cpu}/cache/index{index}"
    return {
        f"{folder}/level": str(level),
        f"{folder}/type": kind,
        f"{folder}/size": size,
        f"{folder}/shared_cpu_list": shared,
    }


def intel_server(root: Path) -> Path:
    """Constructed: two sockets of two cores with two threads each, as a Cascade Lake server numbers them."""
    files = {
        "sys/devices/system/cpu/online": "0-7",
        "sys/devices/system/cpu/smt/active": "1",
        "sys/devices/system/cpu/intel_pstate/no_turbo": "0",
        "sys/devices/system/node/node0/cpulist": "0-1,4-5",
        "sys/devices/system/node/node1/cpulist": "2-3,6-7",
        "proc/meminfo": "MemTotal:       197000000 kB\nMemFree:  1 kB",
        "proc/self/status": "Name:\tpython\nCpus_allowed_list:\t0-7",
        "proc/self/cgroup": "0::/user.slice",
        "proc/sys/kernel/osrelease": "6.1.0-13-amd64",
        "proc/sys/kernel/hostname": "node17.example.org",
        "etc/os-release": 'NAME="Debian"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"',
        "sys/class/dmi/id/sys_vendor": "Dell Inc.",
        "sys/class/dmi/id/product_name": "PowerEdge R640",
    }
    blocks = []
    for cpu in range(8):
        socket, core = (cpu % 4) // 2, cpu % 2
        siblings = f"{cpu % 4},{cpu % 4 + 4}"
        blocks.append(
            f"processor\t: {cpu}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\n"
            "model name\t: Intel(R) Xeon(R)   Gold 6248 CPU @ 2.50GHz\nstepping\t: 7\n"
            "flags\t\t: fpu sse4_2 avx avx2 fma avx512f avx512bw avx512_vnni"
        )
        base = f"sys/devices/system/cpu/cpu{cpu}"
        files |= {
            f"{base}/topology/physical_package_id": str(socket),
            f"{base}/topology/core_id": str(core),
            f"{base}/cpufreq/cpuinfo_max_freq": "3900000",
            f"{base}/cpufreq/base_frequency": "2500000",
            f"{base}/cpufreq/scaling_governor": "powersave",
        }
        files |= cache_files(cpu, 0, 1, "Data", "32K", siblings)
        files |= cache_files(cpu, 1, 1, "Instruction", "32K", siblings)
        files |= cache_files(cpu, 2, 2, "Unified", "1024K", siblings)
        files |= cache_files(cpu, 3, 3, "Unified", "28160K", "0-1,4-5" if socket == 0 else "2-3,6-7")
    files["proc/cpuinfo"] = "\n\n".join(blocks)
    return write_tree(root, files)


def epyc_guest(root: Path) -> Path:
    """Constructed: a virtual machine of four Zen 3 cores, no cpufreq, topology only in /proc/cpuinfo."""
    blocks = [
        f"processor\t: {cpu}\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\n"
        f"model name\t: AMD EPYC 7B13\nstepping\t: 0\nphysical id\t: 0\ncore id\t\t: {cpu}\n"
        "flags\t\t: fpu avx avx2 fma hypervisor"
        for cpu in range(4)
    ]
    files = {
        "proc/cpuinfo": "\n\n".join(blocks),
        "proc/meminfo": "MemTotal: 16384000 kB",
        "proc/self/status": "Cpus_allowed_list:\t0-3",
    }
    for cpu in range(4):
        files |= cache_files(cpu, 0, 1, "Data", "32K", str(cpu))
        files |= cache_files(cpu, 2, 2, "Unified", "512K", str(cpu))
        files |= cache_files(cpu, 3, 3, "Unified", "32768K", "0-3")
    return write_tree(root, files)


def graviton(root: Path) -> Path:
    """Constructed: an arm64 cloud machine in the manner of a Graviton 3, without cpufreq."""
    block = (
        "BogoMIPS\t: 2100.00\nFeatures\t: fp asimd asimdhp asimddp sve i8mm bf16\nCPU implementer\t: 0x41\n"
        "CPU architecture: 8\nCPU variant\t: 0x1\nCPU part\t: 0xd40\nCPU revision\t: 1"
    )
    files = {
        "proc/cpuinfo": "\n\n".join(f"processor\t: {cpu}\n{block}" for cpu in range(4)),
        "proc/meminfo": "MemTotal: 8000000 kB",
        "proc/self/status": "Cpus_allowed_list:\t0-3",
        "sys/devices/system/cpu/online": "0-3",
        "sys/class/dmi/id/sys_vendor": "Amazon EC2",
        "sys/class/dmi/id/product_name": "c7g.xlarge",
    }
    for cpu in range(4):
        files[f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"] = "-1"
        files[f"sys/devices/system/cpu/cpu{cpu}/topology/core_id"] = str(cpu)
        files |= cache_files(cpu, 0, 1, "Data", "64K", str(cpu))
        files |= cache_files(cpu, 2, 2, "Unified", "1024K", str(cpu))
        files |= cache_files(cpu, 3, 3, "Unified", "32768K", "0-3")
    return write_tree(root, files)


def test_a_two_socket_server_with_smt(tmp_path: Path) -> None:
    record = machine_record(intel_server(tmp_path))
    assert record["processor"] == "Intel(R) Xeon(R) Gold 6248 CPU @ 2.50GHz"
    assert (record["vendor"], record["family"], record["model"], record["stepping"]) == ("GenuineIntel", 6, 85, 7)
    assert (record["logical_cores"], record["physical_cores"], record["sockets"], record["smt"]) == (8, 4, 2, True)
    assert record["numa_nodes"] == 2
    assert (record["base_mhz"], record["max_mhz"]) == (2500, 3900)
    assert (record["governor"], record["turbo"]) == ("powersave", True)
    assert record["instruction_sets"] == ["sse4_2", "avx", "avx2", "fma", "avx512f", "avx512bw", "avx512_vnni"]
    assert record["memory_bytes"] == 197_000_000 * 1024
    assert record["virtual_machine"] is False
    assert record["container"] is False
    assert record["effective_cores"] == 8
    assert record["kernel"] == "6.1.0-13-amd64"
    assert record["os"] == "Debian GNU/Linux 12 (bookworm)"
    assert set(record["missing"]) == {"cpu_quota", "memory_limit_bytes"}


def test_caches_of_two_sockets(tmp_path: Path) -> None:
    caches = {(c.level, c.type): (c.bytes, c.shared_by, c.instances) for c in read_caches(intel_server(tmp_path))}
    assert caches == {
        (1, "Data"): (32 * 1024, 2, 4),
        (1, "Instruction"): (32 * 1024, 2, 4),
        (2, "Unified"): (MIB, 2, 4),
        (3, "Unified"): (28160 * 1024, 4, 2),
    }


def test_a_virtual_machine_without_clocks(tmp_path: Path) -> None:
    record = machine_record(epyc_guest(tmp_path))
    assert record["virtual_machine"] is True
    assert (record["logical_cores"], record["physical_cores"], record["sockets"]) == (4, 4, 1)
    assert record["smt"] is False
    for name in ("base_mhz", "max_mhz", "governor", "turbo", "numa_nodes", "host"):
        assert name not in record
        assert record["missing"][name]


def test_an_arm64_cloud_machine(tmp_path: Path) -> None:
    record = machine_record(graviton(tmp_path))
    assert record["processor"] == "Neoverse V1"
    assert (record["vendor"], record["family"], record["model"], record["stepping"]) == ("ARM", 8, 0xD40, "r1p1")
    assert Machine.of(record).stepping == "r1p1", "a run keeps it"
    assert record["architecture"] == "aarch64"
    assert record["instruction_sets"] == ["asimd", "asimdhp", "asimddp", "sve", "bf16", "i8mm"]
    assert (record["physical_cores"], record["sockets"]) == (4, 1)
    assert record["virtual_machine"] is True


def test_arm64_bare_metal_is_no_virtual_machine(tmp_path: Path) -> None:
    write_tree(graviton(tmp_path), {"sys/class/dmi/id/product_name": "c7g.metal"})
    assert machine_record(tmp_path)["virtual_machine"] is False


def test_an_unknown_arm64_core_is_named_by_its_numbers(tmp_path: Path) -> None:
    write_tree(tmp_path, {"proc/cpuinfo": "processor: 0\nCPU implementer: 0x77\nCPU part: 0x123\nCPU architecture: 8"})
    assert machine_record(tmp_path)["processor"] == "implementer 0x77 part 0x123"


@pytest.mark.parametrize(("quota", "cores"), [("150000 100000", 1), ("200000 100000", 2), ("20000 100000", 1),
                                              ("max 100000", 4), ("900000 100000", 4)])  # fmt: skip
def test_a_container_with_a_quota(tmp_path: Path, quota: str, cores: int) -> None:
    epyc_guest(tmp_path)
    write_tree(tmp_path, {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": quota, ".dockerenv": "",
                          "sys/fs/cgroup/memory.max": "2147483648"})  # fmt: skip
    record = machine_record(tmp_path)
    assert record["effective_cores"] == cores
    assert record["container"] is True
    assert record["memory_limit_bytes"] == 2 << 30
    assert ("cpu_quota" in record) == (not quota.startswith("max"))


def test_the_smallest_quota_up_the_hierarchy_counts(tmp_path: Path) -> None:
    write_tree(tmp_path, {
        "proc/self/cgroup": "0::/kubepods/pod7/task",
        "sys/fs/cgroup/kubepods/pod7/task/cpu.max": "max 100000",
        "sys/fs/cgroup/kubepods/pod7/cpu.max": "250000 100000",
        "sys/fs/cgroup/kubepods/cpu.max": "600000 100000",
    })  # fmt: skip
    assert read_allowance(tmp_path).quota == 2.5


def test_a_quota_of_cgroup_v1_whose_path_is_the_hosts(tmp_path: Path) -> None:
    write_tree(tmp_path, {
        "proc/self/cgroup": "7:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "300000",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
        "proc/self/status": "Cpus_allowed_list:\t0-1,8-15",
    })  # fmt: skip
    allowance = read_allowance(tmp_path)
    assert allowance.quota == 3.0
    assert allowance.memory_bytes is None
    assert allowance.affinity == [0, 1, *range(8, 16)]
    assert allowance.effective_cores(32) == 3


def test_affinity_limits_the_cores(tmp_path: Path) -> None:
    write_tree(intel_server(tmp_path), {"proc/self/status": "Cpus_allowed_list:\t2,6"})
    assert machine_record(tmp_path)["effective_cores"] == 2


def test_an_empty_machine_has_a_reason_for_everything(tmp_path: Path) -> None:
    record = machine_record(tmp_path)
    for name in ("processor", "caches", "memory_bytes", "logical_cores", "effective_cores", "virtual_machine", "os"):
        assert name not in record
        assert record["missing"][name]


def test_the_host_is_hashed_and_can_be_left_out(tmp_path: Path) -> None:
    intel_server(tmp_path)
    record, redacted = machine_record(tmp_path), machine_record(tmp_path, redact=True)
    assert "node17" not in json.dumps(record)
    assert len(record["host"]) == 12
    assert "host" not in redacted
    assert redacted["missing"]["host"] == "redacted"
    assert redacted["fingerprint"] == record["fingerprint"]


def test_the_fingerprint_follows_speed_and_nothing_else(tmp_path: Path) -> None:
    record = machine_record(intel_server(tmp_path))
    same = {**record, "kernel": "6.9", "host": "other", "os": "another", "memory_bytes": record["memory_bytes"] - 4096}
    assert fingerprint(same) == record["fingerprint"]
    for name, value in (("processor", "other"), ("effective_cores", 4), ("governor", "performance"), ("turbo", False),
                        ("memory_bytes", record["memory_bytes"] // 2)):  # fmt: skip
        assert fingerprint({**record, name: value}) != record["fingerprint"], name


def test_the_record_is_plain_and_this_machine_has_one() -> None:
    record = machine_record()
    assert json.loads(json.dumps(record)) == record
    assert record["fingerprint"]


def test_theory_of_a_known_core(tmp_path: Path) -> None:
    """Cascade Lake: 2 units x 16 lanes x 2 FLOP = 64 a cycle; four cores at most, however many threads there are."""
    record = machine_record(intel_server(tmp_path))
    assert theoretical_flops(record, 2) == 2 * 64 * 5.1e9
    assert theoretical_flops(record, 8) == 4 * 64 * 5.1e9
    assert theoretical_flops(record, 1, "float64") == 32 * 5.1e9
    assert theoretical_flops({**record, "model": 1}, 1) is None


def ranges(cpus: list[int]) -> str:
    """An independent writer of CPU lists: neighbours joined pair by pair."""
    words: list[str] = []
    for cpu in cpus:
        if words and int(words[-1].split("-")[-1]) == cpu - 1:
            words[-1] = f"{words[-1].split('-')[0]}-{cpu}"
        else:
            words.append(str(cpu))
    return ",".join(words)


@given(st.sets(st.integers(0, 300)))
def test_cpu_lists_come_back(cpus: set[int]) -> None:
    assert parse_cpu_list(ranges(sorted(cpus))) == sorted(cpus)


def test_cpu_lists_by_hand() -> None:
    assert parse_cpu_list("0-3,8") == [0, 1, 2, 3, 8]
    assert parse_cpu_list("0-9:2/5") == [0, 1, 5, 6]
    assert parse_cpu_list("") == []


@pytest.mark.parametrize("text", ["a", "3-1", "-1", "1-", "0-9999999999", "0-9:1/0", "0-9:3/2", "1;2"])
def test_damaged_cpu_lists_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a range of CPUs"):
        parse_cpu_list(text)


@given(st.integers(0, 10**9), st.sampled_from([("", 0), ("K", 10), ("M", 20), ("G", 30), ("T", 40)]),
       st.sampled_from(["", "B", "iB"]), st.sampled_from(["", " "]))  # fmt: skip
def test_sizes(count: int, unit: tuple[str, int], tail: str, blank: str) -> None:
    assert parse_size(f"{count}{blank}{unit[0]}{tail}") == count << unit[1]


def test_sizes_as_the_kernel_writes_them() -> None:
    assert parse_size("48K") == 49152
    assert parse_size("24682416 kB") == 24682416 * 1024
    with pytest.raises(ValueError, match="is not a size"):
        parse_size("many")


@given(st.dictionaries(
    st.sampled_from(["proc/cpuinfo", "proc/meminfo", "proc/self/status", "proc/self/cgroup", "etc/os-release",
                     "sys/devices/system/cpu/online", "sys/devices/system/cpu/cpu0/cache/index0/size",
                     "sys/devices/system/cpu/cpu0/cache/index0/level", "sys/fs/cgroup/cpu.max",
                     "sys/devices/system/cpu/cpu0/cache/index0/type"]),
    st.one_of(st.text(max_size=80), st.sampled_from(["processor: x", "processor: 0\nmodel: 0xzz", "MemTotal: -1 kB",
                                                     "0::/../../x", "Cpus_allowed_list: 9-1", "1 0", "-1"])),
))  # fmt: skip
def test_damaged_files_never_raise(tmp_path_factory: pytest.TempPathFactory, files: dict[str, str]) -> None:
    root = write_tree(tmp_path_factory.mktemp("machine"), {k: v.replace("\ud800", "") for k, v in files.items()})
    record = machine_record(root)
    assert record["fingerprint"]
    json.dumps(record)


def test_versions_name_what_is_installed_without_importing_it() -> None:
    import importlib.metadata
    import subprocess
    import sys

    found = installed_versions()
    assert found["numpy"] == importlib.metadata.version("numpy")
    assert "python" in found
    assert "sonda" in found
    code = (
        "import sys; from sonda.probes.machine.environment import installed_versions; installed_versions();"
        "print('numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    assert package_version("a-package-that-nobody-made") is None


def test_thread_variables_and_waiting() -> None:
    environment = {"OMP_NUM_THREADS": "4", "OMP_WAIT_POLICY": "PASSIVE", "HOME": "/x", "MKL_NUM_THREADS": ""}
    assert thread_variables(environment) == {"OMP_NUM_THREADS": "4", "OMP_WAIT_POLICY": "PASSIVE"}
    assert wait_policy(environment) == "passive"
    assert wait_policy({"GOMP_SPINCOUNT": "0"}) == "passive"
    assert wait_policy({"OMP_WAIT_POLICY": "active"}) == "active"
    assert wait_policy({}) == "active"
