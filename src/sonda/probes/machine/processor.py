"""Processor: name, identity, instruction sets, topology and clocks, from `/proc/cpuinfo` and `/sys`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from sonda.probes.kernel_files import parse_fields, read_cpu_list, read_int, read_text

FLAGS = (
    "sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16", "avx512_fp16",
    "avx_vnni", "amx_tile", "amx_bf16", "amx_int8", "amx_fp16",
    "asimd", "asimdhp", "asimddp", "sve", "sve2", "bf16", "i8mm", "svebf16", "svei8mm", "sme",
)  # fmt: skip
"""Instruction sets that decide how fast a network runs, under the names the kernel gives them (asimd is Neon)."""

ARM_IMPLEMENTERS = {0x41: "ARM", 0x46: "Fujitsu", 0x48: "HiSilicon", 0x4E: "NVIDIA", 0x51: "Qualcomm",
                    0x61: "Apple", 0x6D: "Microsoft", 0xC0: "Ampere"}  # fmt: skip
"""Source: Linux arch/arm64/include/asm/cputype.h."""

ARM_PARTS = {
    (0x41, 0xD03): "Cortex-A53", (0x41, 0xD07): "Cortex-A57", (0x41, 0xD08): "Cortex-A72",
    (0x41, 0xD0B): "Cortex-A76", (0x41, 0xD0C): "Neoverse N1", (0x41, 0xD40): "Neoverse V1",
    (0x41, 0xD49): "Neoverse N2", (0x41, 0xD4F): "Neoverse V2", (0x41, 0xD84): "Neoverse V3",
    (0x46, 0x001): "A64FX", (0xC0, 0xAC3): "Ampere-1",
}  # fmt: skip
"""Source: Linux arch/arm64/include/asm/cputype.h."""


class ProcessorIdentity(NamedTuple):
    """Which processor it is; None for what is not known."""

    processor: str | None = None
    """Its name."""
    vendor: str | None = None
    family: int | None = None
    """On arm64 the version of the architecture."""
    model: int | None = None
    """On arm64 the part number."""
    stepping: int | str | None = None
    """On arm64 variant and revision, as `r3p1`."""


class Topology(NamedTuple):
    """How the CPUs are arranged; None where the kernel does not say."""

    logical: int | None
    physical: int | None
    sockets: int | None
    smt: bool | None


class ClockControl(NamedTuple):
    """Clocks of a CPU, and who sets them; None where the kernel does not say."""

    base_mhz: float | None
    max_mhz: float | None
    governor: str | None
    turbo: bool | None


def read_cpuinfo(root: Path) -> list[dict[str, str]]:
    """The blocks of `/proc/cpuinfo` that describe a CPU, in order."""
    text = read_text(root / "proc/cpuinfo") or ""
    blocks = [parse_fields(block) for block in re.split(r"\n\s*\n", text)]
    return [block for block in blocks if block.get("processor", "").isdigit()]


def processor_identity(block: dict[str, str]) -> ProcessorIdentity:
    """The identity of one CPU, from its block of `/proc/cpuinfo`.

    arm64 has no name there: implementer and part number are looked up.
    """
    implementer, part = _parse_number(block.get("CPU implementer")), _parse_number(block.get("CPU part"))
    if implementer is None or part is None:
        return ProcessorIdentity(
            processor=" ".join(block.get("model name", "").split()) or None,
            vendor=block.get("vendor_id"),
            family=_parse_number(block.get("cpu family")),
            model=_parse_number(block.get("model")),
            stepping=_parse_number(block.get("stepping")),
        )
    vendor = ARM_IMPLEMENTERS.get(implementer, f"implementer {implementer:#x}")
    variant, revision = _parse_number(block.get("CPU variant")), _parse_number(block.get("CPU revision"))
    return ProcessorIdentity(
        processor=ARM_PARTS.get((implementer, part), f"{vendor} part {part:#x}"),
        vendor=vendor,
        family=_parse_number(block.get("CPU architecture")),
        model=part,
        stepping=None if variant is None or revision is None else f"r{variant}p{revision}",
    )


def instruction_sets(block: dict[str, str]) -> list[str]:
    """The instruction sets of `FLAGS` that this CPU has."""
    words = set((block.get("flags") or block.get("Features") or "").split())
    return [flag for flag in FLAGS if flag in words]


def is_guest(block: dict[str, str]) -> bool:
    """Whether an x86 CPU says that a hypervisor runs it."""
    return "hypervisor" in (block.get("flags") or "").split()


def read_topology(root: Path, blocks: list[dict[str, str]]) -> Topology:
    """Logical and physical CPUs, sockets and whether simultaneous multithreading is on.

    A virtual machine shows what its hypervisor invents: two of its cores may be one core of the host.
    """
    cpus = root / "sys/devices/system/cpu"
    online = read_cpu_list(cpus / "online") or sorted(int(block["processor"]) for block in blocks)
    cores: set[tuple[int, int]] = set()
    packages: set[int] = set()
    by_number = {int(block["processor"]): block for block in blocks}
    for cpu in online:
        block = by_number.get(cpu, {})
        package = read_int(cpus / f"cpu{cpu}/topology/physical_package_id")
        core = read_int(cpus / f"cpu{cpu}/topology/core_id")
        package = _parse_number(block.get("physical id")) if package is None else package
        core = _parse_number(block.get("core id")) if core is None else core
        if package is not None:
            # arm64 kernels write -1 where the firmware does not distinguish packages: one package then.
            packages.add(max(package, 0))
            if core is not None:
                cores.add((max(package, 0), core))
    physical = len(cores) or None
    active = read_int(cpus / "smt/active")
    smt = bool(active) if active is not None else (len(online) > physical if physical and online else None)
    return Topology(len(online) or None, physical, len(packages) or None, smt)


def read_clocks(root: Path, name: str, cpu: int = 0) -> ClockControl:
    """The clocks of a CPU, as far as the kernel shows them; the base clock may also stand in the processor's name."""
    cpus = root / "sys/devices/system/cpu"
    frequency = cpus / f"cpu{cpu}/cpufreq"
    base, highest = read_int(frequency / "base_frequency"), read_int(frequency / "cpuinfo_max_freq")
    in_name = re.search(r"@\s*([\d.]+)\s*GHz", name)
    base_mhz = base / 1000 if base else round(float(in_name[1]) * 1000, 3) if in_name else None
    no_turbo, boost = read_int(cpus / "intel_pstate/no_turbo"), read_int(cpus / "cpufreq/boost")
    turbo = no_turbo == 0 if no_turbo is not None else boost == 1 if boost is not None else None
    governor = read_text(frequency / "scaling_governor") or None
    return ClockControl(base_mhz, highest / 1000 if highest else None, governor, turbo)


def _parse_number(text: str | None) -> int | None:
    try:
        return int(text, 0) if text else None
    except ValueError:
        return None
