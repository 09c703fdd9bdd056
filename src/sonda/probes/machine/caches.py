"""Caches: what each level holds and which CPUs share it, from `/sys/devices/system/cpu/cpu*/cache`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sonda.probes.kernel_files import parse_size, read_cpu_list, read_int, read_text


@dataclass(frozen=True)
class Cache:
    """One level and type of cache."""

    level: int
    type: str
    """Data, Instruction or Unified."""
    bytes: int
    """Of one instance."""
    shared_by: int
    """CPUs that share one instance."""
    instances: int

    def record(self) -> dict[str, Any]:
        return asdict(self)


def read_caches(root: Path = Path("/")) -> list[Cache]:
    """Caches by level; empty where the kernel does not show them (some arm64 virtual machines).

    Instances are told apart by the CPUs that share them, because cache ids are missing on older kernels. On CPUs with
    unequal cores the largest instance of a level stands for it.
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
        Cache(level, kind, max(found.values()), max(len(shared) for shared in found), len(found))
        for (level, kind), found in sorted(instances.items())
    ]
