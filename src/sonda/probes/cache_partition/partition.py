"""A partition: groups that share out ways and bandwidth, made for a while and always undone.

Before anything is changed a journal says what was there. A process that is killed leaves it behind; whoever starts next
restores from it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from sonda.probes.cache_partition.resctrl import (
    BANDWIDTH,
    CacheControl,
    Capabilities,
    Resctrl,
    check_bandwidth,
    check_mask,
    contiguous,
)
from sonda.probes.cache_partition.resctrl_files import RealFiles, ResctrlFiles
from sonda.probes.kernel_files import read_text
from sonda.record.errors import SondaError

BOOT = Path("/proc/sys/kernel/random/boot_id")
"""Another one for every start of a kernel, and the same in all its containers."""


@dataclass(frozen=True)
class Shares:
    """What every participant may use, by its name; who has no mask stays with all other programs."""

    masks: dict[str, int] = field(default_factory=dict)
    bandwidths: dict[str, int] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """`mlp=f cnn=f0/50`."""
        names = dict.fromkeys([*self.masks, *self.bandwidths])
        return " ".join(f"{name}={self._word(name)}" for name in names)

    def _word(self, name: str) -> str:
        mask = f"{self.masks[name]:x}" if name in self.masks else ""
        return f"{mask}/{self.bandwidths[name]}" if name in self.bandwidths else mask

    def check(self, capabilities: Capabilities) -> None:
        """Raise SondaError for what this machine cannot share out so."""
        for name, mask in self.masks.items():
            if capabilities.cache is None:
                raise SondaError("this processor cannot divide its last-level cache", "leave out the ways")
            check_mask(name, mask, capabilities.cache)
        for name, value in self.bandwidths.items():
            if capabilities.bandwidth is None:
                raise SondaError("this processor cannot throttle memory bandwidth", "leave out the bandwidths")
            check_bandwidth(name, value, capabilities.bandwidth)


def masks_of_ways(ways: Mapping[str, int], cache: CacheControl) -> dict[str, int]:
    """Masks of so many ways each, side by side from the lowest, none overlapping.

    Raises SondaError unless enough stay for all other programs: without that it would be no partition.
    """
    masks: dict[str, int] = {}
    taken = 0
    for name, count in ways.items():
        if count < cache.least_bits:
            raise SondaError(f"{name}: {count} ways are too few", f"give {cache.least_bits} or more")
        masks[name] = ((1 << count) - 1) << taken
        taken += count
    if taken + cache.least_bits > cache.ways:
        raise SondaError(
            f"{'+'.join(map(str, ways.values()))} ways are too many: the cache has {cache.ways}, of which at least "
            f"{cache.least_bits} must stay for all other programs",
            f"give {cache.ways - cache.least_bits} or fewer together",
        )
    return masks


def rest_of(masks: Sequence[int], cache: CacheControl) -> int:
    """The longest row of ways that no mask has; 0 where it is shorter than a mask may be."""
    free = cache.mask
    for mask in masks:
        free &= ~mask
    rows = [
        ((1 << length) - 1) << low
        for low in range(cache.mask.bit_length())
        for length in range(1, cache.mask.bit_length() - low + 1)
    ]
    inside = [row for row in rows if row & ~free == 0 and contiguous(row) and row.bit_count() >= cache.least_bits]
    return max(inside, key=lambda row: (row.bit_count(), -row), default=0)


class Journal(msgspec.Struct):
    """What was there before."""

    process: int
    started: str
    """When that process began, in the kernel's ticks: numbers of processes come again."""
    schemata: dict[str, dict[int, str]]
    """Lines of the default group that were changed."""
    groups: list[str]
    """Groups that were made, or were about to be."""


class Partition:
    """Groups for participants, open from `partitioned` on. `share` may be called again and again."""

    def __init__(self, resctrl: Resctrl, groups: Mapping[str, str], domains: Sequence[int]) -> None:
        self.resctrl = resctrl
        self.groups = dict(groups)
        """Group by participant."""
        self.domains = tuple(domains)
        self._default = resctrl.schemata() if resctrl.capabilities.cache or resctrl.capabilities.bandwidth else {}
        self.controls = not any("mon_groups/" in group for group in self.groups.values())
        """Whether the groups can be given ways; else they are only watched."""

    def share(self, shares: Shares | None) -> list[str]:
        """Give out ways and bandwidth; None gives everybody what the default group had. Returns what to know of it."""
        shares = shares or Shares()
        shares.check(self.resctrl.capabilities)
        notes: list[str] = []
        if not self.controls:
            return notes
        with self.resctrl.files.lock():
            cache = self.resctrl.capabilities.cache
            if cache is not None:
                rest = rest_of(list(shares.masks.values()), cache) if shares.masks else 0
                if shares.masks and not rest:
                    notes.append("the masks leave no ways: all other programs share those of the participants")
                if any(mask & cache.shareable for mask in shares.masks.values()):
                    notes.append(f"ways {cache.shareable:x} are also used by other hardware of this machine")
                for name in cache.names:
                    for participant, group in self.groups.items():
                        mask = shares.masks.get(participant, rest)
                        self._assign(group, name, mask)
                    self._assign("", name, rest)
            if self.resctrl.capabilities.bandwidth is not None:
                for participant, group in self.groups.items():
                    value = shares.bandwidths.get(participant)
                    values = self._chosen(BANDWIDTH) if value is None else dict.fromkeys(self.domains, str(value))
                    self.resctrl.assign(group, BANDWIDTH, values)
        return notes

    def _assign(self, group: str, name: str, mask: int) -> None:
        """Set a mask in every domain that participants run in; 0 means what the default group had."""
        values = dict.fromkeys(self.domains, f"{mask:x}") if mask else self._chosen(name)
        if values:
            self.resctrl.assign(group, name, values)

    def _chosen(self, name: str) -> dict[int, str]:
        return {domain: value for domain, value in self._default[name].items() if domain in self.domains}


@contextmanager
def partitioned(
    files: ResctrlFiles, root: Path, participants: Sequence[str], domains: Sequence[int], control: bool
) -> Iterator[Partition]:
    """A group for every participant until the block ends; `control` for ways, else they are watched only.

    `root` is the store's, where the journal lives. Raises SondaError where another process of Sonda's is at it.
    """
    restore_left(root, files)
    resctrl = Resctrl(files)
    above = "" if control else "mon_groups/"
    groups = {name: f"{above}sonda-{os.getpid()}-{slot}" for slot, name in enumerate(participants)}
    lines = resctrl.schemata() if control else {}
    before = {
        name: {domain: value for domain, value in lines[name].items() if domain in domains}
        for name in (resctrl.capabilities.cache.names if resctrl.capabilities.cache and control else ())
    }
    path = journal_path(root)
    journal = Journal(os.getpid(), _started(os.getpid()), before, list(groups.values()))
    _write(path, journal)
    try:
        with files.lock():
            for group in groups.values():
                resctrl.make(group)
        yield Partition(resctrl, groups, domains)
    finally:
        _undo(resctrl, journal, path)


def restore_left(root: Path, files: ResctrlFiles | None = None) -> str:
    """Undo what a killed process left; returns a sentence about it, '' where there was nothing.

    Raises SondaError where the process that changed it is still at work, or the kernel refuses.
    """
    path = journal_path(root)
    try:
        journal = msgspec.json.decode(path.read_bytes(), type=Journal)
    except FileNotFoundError:
        return ""
    except (OSError, msgspec.MsgspecError) as error:
        raise SondaError(f"{path} cannot be read ({error}): cache partitions may have been left changed",
                         "see the groups sonda-* in /sys/fs/resctrl, then remove the file") from None  # fmt: skip
    files = files or RealFiles()
    if not files.names("info"):
        return ""  # unmounted, which puts everything back; or hidden here, and the journal is for who sees it
    if journal.started and _started(journal.process) == journal.started and journal.process != os.getpid():
        raise SondaError(f"process {journal.process} of Sonda's has divided the cache", "wait until it ends")
    _undo(Resctrl(files), journal, path)
    return f"restored the cache partition that process {journal.process} left when it was killed"


def left_checks(root: Path, files: ResctrlFiles | None = None) -> list[tuple[str, str, str, str]]:
    """The same for an examination of the machine, as (name, state, detail, remedy); never raises."""
    name = "cache partition left behind"
    try:
        restored = restore_left(root, files)
    except SondaError as error:
        return [(name, "warning", error.cause, error.remedy)]
    return [(name, "ok", restored, "")] if restored else []


def _undo(resctrl: Resctrl, journal: Journal, path: Path) -> None:
    """Put everything back; the journal goes last, so that an undoing that is killed is undone again."""
    with resctrl.files.lock():
        for name, values in journal.schemata.items():
            resctrl.assign("", name, values)
        for group in journal.groups:
            resctrl.remove(group)
    path.unlink(missing_ok=True)


def _write(path: Path, journal: Journal) -> None:
    """On the disk before anything is changed."""
    temporary = path.with_suffix(".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(msgspec.json.encode(journal))
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except OSError as error:
        raise SondaError(
            f"cannot write the journal {path}: {error.strerror}; without it a partition could not be restored",
            "set $SONDA_HOME to a directory you can write",
        ) from None


def _started(process: int) -> str:
    """When a process began; '' where there is none. Its name may hold blanks and brackets."""
    stat = read_text(Path(f"/proc/{process}/stat")) or ""
    after = stat.rpartition(")")[2].split()
    # A zombie has ended: nothing of it can still be changing anything.
    return after[19] if len(after) > 19 and after[0] != "Z" else ""


def journal_path(root: Path) -> Path:
    """In the store's root, by this start of this machine's kernel: others may share the store, and a kernel that is
    started again has forgotten its partitions."""
    return root / f".resctrl-journal-{read_text(BOOT) or ''}.json"
