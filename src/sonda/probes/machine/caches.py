"""Caches: the bytes of every level and the CPUs that share it, from `/sys/devices/system/cpu/cpu*/cache`."""

from __future__ import annotations

from pathlib import Path

from sonda.probes.kernel_files import parse_size, read_cpu_list, read_int, read_text
from sonda.record.machine import CacheLevel


def read_caches(root: Path = Path("/")) -> list[CacheLevel]:
    """Caches by level; empty where the kernel does not show them (some arm64 virtual machines).

    The CPUs that share an instance identify it, because cache ids are missing on older kernels. On CPUs with unequal
    cores the largest instance of a level stands for it.
    """
    instances: dict[tuple[int, str], dict[tuple[int, ...], int]] = {}
    cpus = root / "sys/devices/system/cpu"
    for index in sorted(cpus.glob("cpu[0-9]*/cache/index[0-9]*")):
        level, kind, size = read_int(index / "level"), read_text(index / "type"), read_text(index / "size")
        if level is None or not kind or not size:
            continue
        try:
            count = parse_size(size)
        except ValueError:
            continue
        if count == 0:
            continue
        own = int(index.parent.parent.name.removeprefix("cpu"))
        shared = tuple(read_cpu_list(index / "shared_cpu_list") or [own])
        instances.setdefault((level, kind), {})[shared] = count
    return [
        CacheLevel(
            level=level,
            type=kind,
            bytes=max(by_cpus.values()),
            shared_by=max(len(shared) for shared in by_cpus),
            instances=len(by_cpus),
        )
        for (level, kind), by_cpus in sorted(instances.items())
    ]
