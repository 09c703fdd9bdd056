"""A partition: groups that divide cache ways and bandwidth among programs, made for a while and always undone.

A journal is written before anything is changed. It holds what was there. A process that is killed leaves its journal
behind, and the next process of Sonda's restores from it.
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
    Resctrl,
    ResctrlCapabilities,
    check_bandwidth,
    check_mask,
    is_contiguous,
)
from sonda.probes.cache_partition.resctrl_files import MountedFiles, ResctrlFiles
from sonda.probes.kernel_files import read_text
from sonda.record.errors import SondaError

BOOT = Path("/proc/sys/kernel/random/boot_id")
"""Differs from one start of the kernel to the next, and is the same in all containers."""


@dataclass(frozen=True)
class CacheShares:
    """What every participant may use, by its name. A participant without a mask shares with all other programs."""

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

    def check(self, capabilities: ResctrlCapabilities) -> None:
        """Raise SondaError for masks and bandwidths that this machine cannot give."""
        for name, mask in self.masks.items():
            if capabilities.cache is None:
                raise SondaError("this processor cannot divide its last-level cache", "leave out the ways")
            check_mask(name, mask, capabilities.cache)
        for name, value in self.bandwidths.items():
            if capabilities.bandwidth is None:
                raise SondaError("this processor cannot throttle memory bandwidth", "leave out the bandwidths")
            check_bandwidth(name, value, capabilities.bandwidth)


def divide_ways(ways: Mapping[str, int], cache: CacheControl) -> dict[str, int]:
    """Masks with these numbers of ways, side by side from the lowest way on, none overlapping.

    Raises SondaError where too few ways stay for all other programs: those would share the participants' ways.
    """
    masks: dict[str, int] = {}
    used = 0
    for name, count in ways.items():
        if count < cache.least_bits:
            raise SondaError(f"{name}: {count} ways are too few", f"give {cache.least_bits} or more")
        masks[name] = ((1 << count) - 1) << used
        used += count
    if used + cache.least_bits > cache.ways:
        raise SondaError(
            f"{'+'.join(map(str, ways.values()))} ways are too many: the cache has {cache.ways}, of which at least "
            f"{cache.least_bits} must stay for all other programs",
            f"give {cache.ways - cache.least_bits} or fewer together",
        )
    return masks


def find_free_ways(masks: Sequence[int], cache: CacheControl) -> int:
    """The longest row of ways that is in no mask, as a mask; 0 where it is shorter than a mask may be."""
    free = cache.mask
    for mask in masks:
        free &= ~mask
    rows = [
        ((1 << length) - 1) << low
        for low in range(cache.mask.bit_length())
        for length in range(1, cache.mask.bit_length() - low + 1)
    ]
    inside = [row for row in rows if row & ~free == 0 and is_contiguous(row) and row.bit_count() >= cache.least_bits]
    return max(inside, key=lambda row: (row.bit_count(), -row), default=0)


class PartitionJournal(msgspec.Struct):
    """What the partition was before it was changed, and which groups were made."""

    process: int
    started: str
    """When that process began, in the kernel's ticks: a number alone may be another process by now."""
    schemata: dict[str, dict[int, str]]
    """Lines of the default group that were changed."""
    groups: list[str]
    """Groups that were made, or were about to be."""


class Partition:
    """Groups for participants, as `open_partition` makes them. `share` may be called again and again."""

    def __init__(self, resctrl: Resctrl, groups: Mapping[str, str], domains: Sequence[int]) -> None:
        self.resctrl = resctrl
        self.groups = dict(groups)
        """Group by participant."""
        self.domains = tuple(domains)
        self._default = resctrl.schemata() if resctrl.capabilities.cache or resctrl.capabilities.bandwidth else {}
        self.controls = not any("mon_groups/" in group for group in self.groups.values())
        """Whether the groups can be given ways; else they are only watched."""

    def share(self, shares: CacheShares | None) -> list[str]:
        """Give out ways and bandwidth; returns notes on what participants share all the same.

        None gives every participant what the default group had.
        """
        shares = shares or CacheShares()
        shares.check(self.resctrl.capabilities)
        notes: list[str] = []
        if not self.controls:
            return notes
        with self.resctrl.files.lock():
            cache = self.resctrl.capabilities.cache
            if cache is not None:
                rest = find_free_ways(list(shares.masks.values()), cache) if shares.masks else 0
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
                    given = dict.fromkeys(self.domains, str(value))
                    values = self._default_values(BANDWIDTH) if value is None else given
                    self.resctrl.assign(group, BANDWIDTH, values)
        return notes

    def _assign(self, group: str, name: str, mask: int) -> None:
        """Set a mask in every domain that participants run in; 0 means what the default group had."""
        values = dict.fromkeys(self.domains, f"{mask:x}") if mask else self._default_values(name)
        if values:
            self.resctrl.assign(group, name, values)

    def _default_values(self, name: str) -> dict[int, str]:
        """What the default group had in the domains that participants run in."""
        return {domain: value for domain, value in self._default[name].items() if domain in self.domains}


@contextmanager
def open_partition(
    files: ResctrlFiles, root: Path, participants: Sequence[str], domains: Sequence[int], control: bool
) -> Iterator[Partition]:
    """Make a group for every participant until the block ends. With `control` they can be given ways.

    Without it they are only watched. `root` is the store's directory, which has the journal. Raises SondaError where
    another process of Sonda's has a partition.
    """
    restore_partition(root, files)
    resctrl = Resctrl(files)
    above = "" if control else "mon_groups/"
    groups = {name: f"{above}sonda-{os.getpid()}-{slot}" for slot, name in enumerate(participants)}
    lines = resctrl.schemata() if control else {}
    before = {
        name: {domain: value for domain, value in lines[name].items() if domain in domains}
        for name in (resctrl.capabilities.cache.names if resctrl.capabilities.cache and control else ())
    }
    path = journal_path(root)
    journal = PartitionJournal(os.getpid(), _process_start(os.getpid()), before, list(groups.values()))
    _write_journal(path, journal)
    try:
        with files.lock():
            for group in groups.values():
                resctrl.make(group)
        yield Partition(resctrl, groups, domains)
    finally:
        _undo_partition(resctrl, journal, path)


def restore_partition(root: Path, files: ResctrlFiles | None = None) -> str:
    """Undo the partition that a killed process left; returns a sentence about it, '' where there was none.

    Raises SondaError where the process that made it still runs, or the kernel refuses.
    """
    path = journal_path(root)
    try:
        journal = msgspec.json.decode(path.read_bytes(), type=PartitionJournal)
    except FileNotFoundError:
        return ""
    except (OSError, msgspec.MsgspecError) as error:
        raise SondaError(f"{path} cannot be read ({error}): cache partitions may have been left changed",
                         "see the groups sonda-* in /sys/fs/resctrl, then remove the file") from None  # fmt: skip
    files = files or MountedFiles()
    if not files.names("info"):
        return ""  # unmounted, which restores everything; or hidden here, and another process can use the journal
    if journal.started and _process_start(journal.process) == journal.started and journal.process != os.getpid():
        raise SondaError(f"process {journal.process} of Sonda's has divided the cache", "wait until it ends")
    _undo_partition(Resctrl(files), journal, path)
    return f"restored the cache partition that process {journal.process} left when it was killed"


def check_left_partition(root: Path, files: ResctrlFiles | None = None) -> list[tuple[str, str, str, str]]:
    """Restore as `restore_partition` does, for `doctor`: checks as (name, state, detail, remedy). Never raises."""
    name = "cache partition left behind"
    try:
        restored = restore_partition(root, files)
    except SondaError as error:
        return [(name, "warning", error.cause, error.remedy)]
    return [(name, "ok", restored, "")] if restored else []


def _undo_partition(resctrl: Resctrl, journal: PartitionJournal, path: Path) -> None:
    """Restore everything. The journal goes last, so that another process can go on where this one is killed."""
    with resctrl.files.lock():
        for name, values in journal.schemata.items():
            resctrl.assign("", name, values)
        for group in journal.groups:
            resctrl.remove(group)
    path.unlink(missing_ok=True)


def _write_journal(path: Path, journal: PartitionJournal) -> None:
    """Write the journal, and wait until it is on the disk. Raises SondaError where it cannot be written."""
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


def _process_start(process: int) -> str:
    """When a process began, in the kernel's ticks; '' where there is no such process."""
    stat = read_text(Path(f"/proc/{process}/stat")) or ""
    fields = stat.rpartition(")")[2].split()  # behind its name, which may hold blanks and brackets
    # A zombie has ended: it changes nothing any more.
    return fields[19] if len(fields) > 19 and fields[0] != "Z" else ""


def journal_path(root: Path) -> Path:
    """The journal in the store's directory, by the start of this machine's kernel.

    Other machines may share the store, and a kernel that is started again has no partitions.
    """
    return root / f".resctrl-journal-{read_text(BOOT) or ''}.json"
