"""Allowance: how much of the machine this process may use, by affinity, container quota and memory limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sonda.probes.kernel_files import parse_cpu_list, parse_fields, read_int, read_text

UNLIMITED = 1 << 60
"""cgroup v1 writes 'no limit' as a number near 2^63; no machine has an EiB of memory."""


@dataclass(frozen=True)
class Allowance:
    """What may be used. A field is None where nothing limits it or nothing is known."""

    affinity: list[int] | None
    """CPUs the process may run on: its affinity, already cut down by the cgroup's cpuset."""
    quota: float | None
    """CPU seconds per second that the cgroup grants; the smallest up the hierarchy."""
    memory_bytes: int | None
    """The cgroup's memory limit; the smallest up the hierarchy."""

    def effective_cores(self, logical: int | None) -> int | None:
        """CPUs that can really run at the same time: min(affinity, quota), at least 1."""
        available = len(self.affinity) if self.affinity else logical
        if self.quota is None:
            return available
        # A quota of 2.5 keeps two threads busy; a third would be throttled half of the time and delay the others.
        whole = max(1, int(self.quota + 1e-6))
        return min(available, whole) if available else whole


def read_allowance(root: Path = Path("/")) -> Allowance:
    """Read affinity and cgroup limits (v1 and v2) of the calling process; never raises."""
    status = parse_fields(read_text(root / "proc/self/status") or "")
    try:
        affinity = parse_cpu_list(status.get("Cpus_allowed_list", "")) or None
    except ValueError:
        affinity = None
    quotas = [*_read_quotas_v2(root), *_read_quotas_v1(root)]
    limits = [*_read_memory_limits(root)]
    return Allowance(affinity, min(quotas, default=None), min(limits, default=None))


def _read_quotas_v2(root: Path) -> Iterator[float]:
    for directory in _cgroup_directories(root, ""):
        words = (read_text(directory / "cpu.max") or "").split()
        if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]) > 0:
            yield int(words[0]) / int(words[1])


def _read_quotas_v1(root: Path) -> Iterator[float]:
    for directory in _cgroup_directories(root, "cpu"):
        quota, period = read_int(directory / "cpu.cfs_quota_us"), read_int(directory / "cpu.cfs_period_us")
        if quota is not None and period and quota > 0 and period > 0:
            yield quota / period


def _read_memory_limits(root: Path) -> Iterator[int]:
    for controller, name in (("", "memory.max"), ("memory", "memory.limit_in_bytes")):
        for directory in _cgroup_directories(root, controller):
            limit = read_int(directory / name)
            if limit is not None and 0 < limit < UNLIMITED:
                yield limit


def _cgroup_directories(root: Path, controller: str) -> Iterator[Path]:
    """The cgroup directories of this process, from its own up to the mount, for v2 (`""`) or one v1 controller.

    Inside a container `/proc/self/cgroup` may name a path of the host that is not visible; the mount itself is then
    the container's own cgroup and is reached as the last parent.
    """
    mounts = root / "sys/fs/cgroup"
    for line in (read_text(root / "proc/self/cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controller == "" and not (number == "0" and controllers == ""):
            continue
        if controller and controller not in controllers.split(","):
            continue
        mount = _controller_mount(mounts, controllers)
        parts = [part for part in path.split("/") if part not in ("", ".", "..")]
        for length in range(len(parts), -1, -1):
            yield mount.joinpath(*parts[:length])


def _controller_mount(mounts: Path, controllers: str) -> Path:
    if controllers == "":
        # On hybrid systems v2 lives in `unified` beside the v1 controllers.
        return mounts / "unified" if (mounts / "unified").is_dir() else mounts
    for name in (controllers, *controllers.split(",")):
        if (mounts / name).is_dir():
            return mounts / name
    return mounts / controllers
