"""resctrl: what of caches and memory bandwidth can be divided and watched, and the commands that do it.

Rules of the kernel (Documentation/filesystems/resctrl.rst): one write per command, ended by a newline; the reason of a
refusal is in `info/last_cmd_status`; masks are contiguous unless `sparse_masks` says otherwise; a domain is a cache,
by its id; `tasks` takes threads, one at a time; a new mask or group matters for new lines only.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sonda.probes.cache_partition.resctrl_files import ResctrlFiles
from sonda.probes.kernel_files import read_int
from sonda.record.errors import SondaError

CACHE = "L3"
CODE_AND_DATA = ("L3CODE", "L3DATA")
"""The names of L3 where resctrl is mounted with cdp."""
BANDWIDTH = "MB"
MONITOR = "L3_MON"
FULL_AGAIN_S, FULL_TRIES = 0.2, 10
"""Ids of groups just removed stay busy until their lines have left the cache: a new group is tried for two seconds."""
MOST_LOOKS = 100
"""Looks at a program's list of threads until it stays the same."""
COUNTERS = ("llc_occupancy", "mbm_total_bytes", "mbm_local_bytes")
NO_COUNT = ("Unavailable", "Unassigned", "Error")
"""What a counter's file may hold instead of a number."""


class ResctrlError(SondaError):
    """A command that the kernel refused, with its errno and its own reason."""

    def __init__(self, command: str, error: OSError, reason: str, remedy: str) -> None:
        name = errno.errorcode.get(error.errno or 0, str(error.errno))
        why = f": {reason}" if reason else ""
        super().__init__(f"resctrl refuses to {command} ({name}{why})", remedy)
        self.errno = error.errno or 0
        self.reason = reason


@dataclass(frozen=True)
class CacheControl:
    """How one cache can be divided."""

    names: tuple[str, ...]
    """Lines of `schemata` that hold its masks: L3, or L3CODE and L3DATA."""
    mask: int
    """All ways."""
    least_bits: int
    sparse: bool
    """Whether a mask may have holes."""
    shareable: int
    """Ways that other hardware (graphics, I/O) may use too."""
    groups: int
    """Control groups, the default one included."""
    domains: tuple[int, ...]
    """Ids of the caches."""

    @property
    def ways(self) -> int:
        return self.mask.bit_count()


@dataclass(frozen=True)
class BandwidthControl:
    """How memory bandwidth can be throttled, in the machine's own unit (percent, MiB/s, or 1/8 GB/s on AMD)."""

    least: int
    step: int
    groups: int
    domains: tuple[int, ...]


@dataclass(frozen=True)
class ResctrlCapabilities:
    """What this machine's resctrl can do; None or empty for what it cannot."""

    cache: CacheControl | None
    bandwidth: BandwidthControl | None
    features: tuple[str, ...]
    """Of monitoring: llc_occupancy, mbm_total_bytes, mbm_local_bytes."""
    groups: int
    """Control groups at most, the default one included: the smallest number of all resources."""


@dataclass(frozen=True)
class GroupUsage:
    """Bytes that a group holds and has moved, summed over domains; None where a counter gives no number.

    `reasons` says why, by the name of the counter.
    """

    occupancy: int | None = None
    """Bytes in the last-level cache now."""
    total: int | None = None
    """Bytes from and to memory since the group was made."""
    local: int | None = None
    """The same, for memory of the own node only."""
    reasons: dict[str, str] = field(default_factory=dict)


def parse_schemata(text: str) -> dict[str, dict[int, str]]:
    """`L3:0=ff;1=ff` as values by name and domain, without blanks. Raises SondaError for anything else."""
    schemata: dict[str, dict[int, str]] = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        name, colon, rest = line.partition(":")
        try:
            if not colon:
                raise ValueError
            pairs = [entry.split("=") for entry in rest.split(";")]
            schemata[name.strip()] = {int(domain): value.strip() for domain, value in pairs}
        except ValueError:
            raise SondaError(f"resctrl's schemata has a line {line.strip()!r}", "use a newer Sonda") from None
    return schemata


def schemata_line(name: str, values: Mapping[int, str]) -> str:
    """One command that sets these domains and leaves all others."""
    return f"{name}:{';'.join(f'{domain}={value}' for domain, value in sorted(values.items()))}\n"


def is_contiguous(mask: int) -> bool:
    low = mask & -mask
    return mask > 0 and (mask // low) & (mask // low + 1) == 0


def check_mask(who: str, mask: int, cache: CacheControl) -> None:
    """Raise SondaError for a mask that the kernel would refuse."""
    if mask <= 0 or mask & ~cache.mask:
        raise SondaError(f"{who}: mask {mask:x} is outside {cache.mask:x}", f"choose among {cache.ways} ways")
    if not cache.sparse and not is_contiguous(mask):
        raise SondaError(f"{who}: mask {mask:x} has holes, which this processor does not allow", "use ways in a row")
    if mask.bit_count() < cache.least_bits:
        raise SondaError(f"{who}: mask {mask:x} has too few ways", f"give {cache.least_bits} or more")


def check_bandwidth(who: str, value: int, control: BandwidthControl) -> None:
    """Raise SondaError for a bandwidth too small, or one that the kernel would silently round.

    The most is for the kernel to judge: it depends on the unit, which depends on how resctrl was mounted.
    """
    if value < control.least:
        raise SondaError(f"{who}: bandwidth {value} is below {control.least}", f"give {control.least} or more")
    if control.step > 1 and value % control.step:
        near = -(-value // control.step) * control.step
        raise SondaError(f"{who}: bandwidth {value} is not a multiple of {control.step}", f"give {near}")


def read_cache_domain(core: int) -> int | None:
    """The id of the last-level cache that a core uses; None where the kernel does not say."""
    return read_int(Path(f"/sys/devices/system/cpu/cpu{core}/cache/index3/id"))


class Resctrl:
    """The commands. `group` is '' for the default group, else a name, or `NAME/mon_groups/NAME`."""

    def __init__(self, files: ResctrlFiles, sleep: Callable[[float], None] = time.sleep) -> None:
        self.files = files
        self.sleep = sleep
        self.capabilities = self._read_capabilities()

    def schemata(self, group: str = "") -> dict[str, dict[int, str]]:
        return parse_schemata(self._read(_group_path(group, "schemata")))

    def assign(self, group: str, name: str, values: Mapping[int, str]) -> None:
        """Set masks or bandwidths of some domains. Raises ResctrlError when refused."""
        line = schemata_line(name, values)
        remedy = "choose another mask or value"
        self._command(f"set {line.strip()} in {group or 'the default group'}", remedy,
                      lambda: self.files.write(_group_path(group, "schemata"), line))  # fmt: skip

    def make(self, group: str) -> None:
        """Make a group. Raises ResctrlError where there are too many."""
        for attempt in range(FULL_TRIES):
            try:
                self._command(f"make the group {group}",
                              f"remove groups that nobody needs: this machine has room for {self.capabilities.groups}",
                              lambda: self.files.make(group))  # fmt: skip
                return
            except ResctrlError as error:
                if error.errno != errno.EBUSY or attempt == FULL_TRIES - 1:
                    raise
                self.sleep(FULL_AGAIN_S)

    def remove(self, group: str) -> None:
        """Remove a group; it is no error where it is gone already."""
        try:
            self._command(f"remove the group {group}", "remove it by hand with rmdir", lambda: self.files.remove(group))
        except ResctrlError as error:
            if error.errno != errno.ENOENT:
                raise

    def groups(self) -> list[str]:
        """Control groups besides the default one."""
        own = {"info", "mon_groups", "mon_data"}
        return [name for name in self.files.names("") if name not in own and self.files.names(name)]

    def move(self, process: int, group: str, root: Path = Path("/")) -> int:
        """Move every thread of a program into a group, also those it starts meanwhile; returns how many.

        Raises SondaError where the program has ended.
        """
        moved: set[int] = set()
        for _ in range(MOST_LOOKS):
            try:
                threads = {int(name) for name in os.listdir(root / f"proc/{process}/task")}
            except FileNotFoundError:
                raise SondaError(
                    f"process {process} ended before it could be moved to a group", "start again"
                ) from None
            new = threads - moved
            if not new:
                return len(moved)
            for thread in sorted(new):
                self._move_thread(thread, group)
                moved.add(thread)
        raise SondaError(f"process {process} starts threads faster than they can be moved", "use fewer threads")

    def _move_thread(self, thread: int, group: str) -> None:
        try:
            self._command(f"move task {thread} to {group}", "run as root",
                          lambda: self.files.write(_group_path(group, "tasks"), f"{thread}\n"))  # fmt: skip
        except ResctrlError as error:
            if error.errno != errno.ESRCH:  # a thread may end at any moment
                raise

    def read_usage(self, group: str = "") -> GroupUsage:
        """Read the counters of a group."""
        counts: dict[str, int | None] = {}
        reasons: dict[str, str] = {}
        for feature in COUNTERS:
            if feature not in self.capabilities.features:
                reasons[feature] = f"this processor does not count {feature}"
                continue
            counts[feature], reason = self._sum_domains(group, feature)
            if reason:
                reasons[feature] = reason
        occupancy, total, local = (counts.get(feature) for feature in COUNTERS)
        return GroupUsage(occupancy, total, local, reasons)

    def _sum_domains(self, group: str, feature: str) -> tuple[int | None, str]:
        """The sum of a counter over all domains; or None and the reason."""
        total = 0
        domains = [name for name in self.files.names(_group_path(group, "mon_data")) if name.startswith("mon_L3_")]
        if not domains:
            return None, "the group has no counters"
        for domain in domains:
            try:
                text = self.files.read(_group_path(group, f"mon_data/{domain}/{feature}")).strip()
            except OSError as error:
                return None, f"{domain} cannot be read: {error.strerror}"
            if not text.isdigit():
                word = text if text in NO_COUNT else repr(text[:20])
                return None, f"the counter of {domain} answers {word}"
            total += int(text)
        return total, ""

    # ---- what there is ----------------------------------------------------------------------------------------

    def _read_capabilities(self) -> ResctrlCapabilities:
        lines = parse_schemata(self._text("schemata"))  # not there where nothing can be divided
        names = tuple(name for name in CODE_AND_DATA if name in lines) or ((CACHE,) if CACHE in lines else ())
        cache = None
        if names:
            first = f"info/{names[0]}"
            cache = CacheControl(
                names=names,
                mask=self._number(f"{first}/cbm_mask", 16, 0),
                least_bits=self._number(f"{first}/min_cbm_bits", 10, 1),
                sparse=self._number(f"{first}/sparse_masks", 10, 0) == 1,
                shareable=self._number(f"{first}/shareable_bits", 16, 0),
                groups=self._number(f"{first}/num_closids", 10, 1),
                domains=tuple(lines[names[0]]),
            )
        bandwidth = None
        if BANDWIDTH in lines:
            bandwidth = BandwidthControl(
                least=self._number("info/MB/min_bandwidth", 10, 1),
                step=self._number("info/MB/bandwidth_gran", 10, 1),
                groups=self._number("info/MB/num_closids", 10, 1),
                domains=tuple(lines[BANDWIDTH]),
            )
        features = tuple(self._text(f"info/{MONITOR}/mon_features").split())
        limits = [control.groups for control in (cache, bandwidth) if control is not None]
        for resource in self.files.names("info"):
            if resource not in (CACHE, BANDWIDTH, MONITOR, *CODE_AND_DATA):
                limit = self._number(f"info/{resource}/num_closids", 10, 0)
                limits += [limit] if limit else []
        return ResctrlCapabilities(cache, bandwidth, features, min(limits, default=1))

    def _text(self, path: str) -> str:
        try:
            return self.files.read(path).strip()
        except OSError:
            return ""

    def _number(self, path: str, base: int, otherwise: int) -> int:
        try:
            return int(self._text(path), base)
        except ValueError:
            return otherwise

    def _read(self, path: str) -> str:
        try:
            return self.files.read(path)
        except OSError as error:
            raise SondaError(f"resctrl's {path} cannot be read: {error.strerror}", "see: sonda doctor") from None

    def _command(self, command: str, remedy: str, act: Callable[[], None]) -> None:
        try:
            act()
        except OSError as error:
            status = self._text("info/last_cmd_status")
            reason = status if status and status != "ok" else error.strerror or ""
            if error.errno in (errno.EACCES, errno.EPERM):
                remedy = "run as root"
            raise ResctrlError(command, error, reason, remedy) from None


def _group_path(group: str, path: str) -> str:
    return f"{group}/{path}" if group else path
