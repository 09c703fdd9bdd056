"""The machine record: everything that determines how fast this machine is, and what of it is not known."""

from __future__ import annotations

import hashlib
import json
import platform
import re
from pathlib import Path
from typing import Any

import msgspec

from sonda.probes.kernel_files import parse_fields, parse_size, read_text
from sonda.probes.machine.allowance import read_allowance
from sonda.probes.machine.caches import read_caches
from sonda.probes.machine.processor import (
    instruction_sets,
    is_guest,
    processor_identity,
    read_clocks,
    read_cpuinfo,
    read_topology,
)

GIB = 1 << 30

SPEED = (
    "processor", "vendor", "family", "model", "stepping", "architecture", "instruction_sets", "caches",
    "logical_cores", "physical_cores", "sockets", "numa_nodes", "smt", "effective_cores", "base_mhz", "max_mhz",
    "governor", "turbo", "virtual_machine",
)  # fmt: skip
"""Items of the fingerprint, beside the memory in whole GiB (the kernel's total varies from boot to boot)."""

HYPERVISORS = ("qemu", "kvm", "vmware", "virtualbox", "innotek", "xen", "microsoft corporation", "parallels", "bochs",
               "google", "amazon ec2", "openstack", "digitalocean", "hetzner", "alibaba cloud", "nutanix")  # fmt: skip
"""Makers that DMI names in virtual machines."""

REASONS = {
    "processor": "/proc/cpuinfo names none",
    "vendor": "/proc/cpuinfo names none",
    "family": "/proc/cpuinfo has none",
    "model": "/proc/cpuinfo has none",
    "stepping": "/proc/cpuinfo has none",
    "physical_cores": "the kernel shows no topology",
    "sockets": "the kernel shows no topology",
    "smt": "the kernel shows no topology",
    "logical_cores": "neither /sys nor /proc/cpuinfo lists CPUs",
    "numa_nodes": "the kernel was built without NUMA",
    "caches": "the kernel shows no caches; firmware or hypervisor hides them",
    "memory_bytes": "/proc/meminfo has no MemTotal",
    "base_mhz": "no cpufreq driver, and the processor's name has no clock",
    "max_mhz": "no cpufreq driver (usual in virtual machines)",
    "governor": "no cpufreq driver (usual in virtual machines)",
    "turbo": "no driver says (usual in virtual machines)",
    "cpu_quota": "no cgroup limits CPU time",
    "memory_limit_bytes": "no cgroup limits memory",
    "affinity": "/proc/self/status has no Cpus_allowed_list",
    "effective_cores": "neither affinity nor the number of CPUs is known",
    "virtual_machine": "no hypervisor flag on this architecture, and DMI names no maker",
    "os": "no os-release file",
    "host": "redacted",
}


def machine_record(root: Path = Path("/"), redact: bool = False) -> dict[str, Any]:
    """The machine as `run.json` keeps it, as plain values; never raises.

    An item that could not be found is absent; `missing` has its name and the reason. `host` is a hash of the host's
    name, which is enough to distinguish machines; `redact` leaves it out. `fingerprint` changes with everything that
    determines speed, and with nothing else. `root` stands in for `/`.
    """
    blocks = read_cpuinfo(root)
    first = blocks[0] if blocks else {}
    identity = processor_identity(first)
    topology = read_topology(root, blocks)
    allowance = read_allowance(root)
    facts: dict[str, Any] = {
        **identity._asdict(),
        "architecture": _architecture(root, first),
        "instruction_sets": instruction_sets(first),
        "logical_cores": topology.logical,
        "physical_cores": topology.physical,
        "sockets": topology.sockets,
        "smt": topology.smt,
        "numa_nodes": len(list((root / "sys/devices/system/node").glob("node[0-9]*"))) or None,
        **read_clocks(root, identity.processor or "", allowance.affinity[0] if allowance.affinity else 0)._asdict(),
        "caches": [msgspec.to_builtins(cache) for cache in read_caches(root)] or None,
        "memory_bytes": _read_memory_bytes(root),
        "virtual_machine": _is_virtual_machine(root, first),
        "container": _is_container(root),
        "affinity": len(allowance.affinity) if allowance.affinity else None,
        "cpu_quota": allowance.quota,
        "memory_limit_bytes": allowance.memory_bytes,
        "effective_cores": allowance.effective_cores(topology.logical),
        "kernel": _kernel_release(root),
        "os": _os_name(root),
        "host": None if redact else _host_hash(root),
    }
    record = {key: value for key, value in facts.items() if value is not None}
    record["missing"] = {key: reason for key, reason in REASONS.items() if key not in record}
    if not redact and "host" in record["missing"]:
        record["missing"]["host"] = "the host has no name"
    record["fingerprint"] = fingerprint(record)
    return record


def fingerprint(record: dict[str, Any]) -> str:
    """Sixteen hexadecimal digits that name everything in the record that determines speed."""
    speed = {key: record[key] for key in SPEED if key in record}
    speed["memory_gib"] = round(record.get("memory_bytes", 0) / GIB)
    return hashlib.sha256(json.dumps(speed, sort_keys=True).encode()).hexdigest()[:16]


def _architecture(root: Path, block: dict[str, str]) -> str:
    if root == Path("/"):
        return platform.machine()
    return "aarch64" if "CPU implementer" in block else "x86_64"


def _read_memory_bytes(root: Path) -> int | None:
    total = parse_fields(read_text(root / "proc/meminfo") or "").get("MemTotal")
    try:
        return parse_size(total) if total else None
    except ValueError:
        return None


def _is_virtual_machine(root: Path, block: dict[str, str]) -> bool | None:
    if is_guest(block) or (read_text(root / "sys/hypervisor/type") or "") == "xen":
        return True
    dmi = root / "sys/class/dmi/id"
    maker = " ".join(read_text(dmi / name) or "" for name in ("sys_vendor", "product_name")).strip().lower()
    if maker.endswith(".metal") or "-metal" in maker:
        return False
    if any(hypervisor in maker for hypervisor in HYPERVISORS):
        return True
    if "flags" in block or maker:
        return False
    return None


def _is_container(root: Path) -> bool:
    if (root / ".dockerenv").exists() or (root / "run/.containerenv").exists():
        return True
    return bool(re.search(r"docker|kubepods|containerd|lxc|libpod", read_text(root / "proc/1/cgroup") or ""))


def _kernel_release(root: Path) -> str | None:
    return read_text(root / "proc/sys/kernel/osrelease") or None


def _os_name(root: Path) -> str | None:
    text = read_text(root / "etc/os-release") or read_text(root / "usr/lib/os-release") or ""
    match = re.search(r'^PRETTY_NAME="?([^"\n]*)"?$', text, re.MULTILINE)
    return match[1] if match else None


def _host_hash(root: Path) -> str | None:
    name = read_text(root / "proc/sys/kernel/hostname")
    return hashlib.sha256(name.encode()).hexdigest()[:12] if name else None
