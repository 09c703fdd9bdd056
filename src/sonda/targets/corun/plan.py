"""The plan of a co-run: which programs take part, on which cores, in which windows."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path

import msgspec

from sonda.probes.cache_partition.partition import CacheShares, divide_ways
from sonda.probes.cache_partition.resctrl import CacheControl
from sonda.probes.kernel_files import LONGEST_CPU_LIST, read_cpu_list
from sonda.record.errors import SondaError, nearest
from sonda.targets.corun.messages import WINDOW
from sonda.targets.job import Job, check_job, with_options
from sonda.targets.program.launcher import program_name
from sonda.targets.target import parse_whole
from sonda.workloads.catalogue import describe

COMMAND = re.compile(r"(?:([^=\s:]+)=)?(cmd|window):(.*)", re.DOTALL)
REFUSED = ("on", "steps", "seconds", "mapping", "set", "probe", "redact")
"""Settings of a run that mean nothing for one participant of several."""


@dataclass(frozen=True)
class Participant:
    """One program of the experiment."""

    name: str
    job: Job | None
    cores: tuple[int, ...]
    command: tuple[str, ...] = ()
    """Where there is no job."""
    region: str = ""
    """Of a command: `window`, or '' where the participant is to find it out."""

    @property
    def threads(self) -> int:
        return (self.job.threads if self.job else None) or len(self.cores)


@dataclass(frozen=True)
class CorunSettings:
    """How to measure. Partitions are measured with all participants together, besides windows without a partition."""

    seconds: float = 5.0
    repeat: int = 3
    timeout: float = 120.0
    ways: str = ""
    """`4,6`: ways of the last-level cache for each participant, in order."""
    partition: str = ""
    """`mlp=0xf,cnn=0xf0`: masks by participant."""
    bandwidth: str = ""
    """`50,100`: memory bandwidth for each participant, in order, in the machine's unit."""
    sweep: bool = False
    """The first participant gets every number of ways in turn, the others share the rest."""
    probe: str = ""
    """Probes that are asked for: `energy`, `pmu:branch-misses` for events beside those that are always counted."""

    @property
    def divides(self) -> bool:
        return bool(self.ways or self.partition or self.bandwidth or self.sweep)

    def check(self) -> None:
        """Raise SondaError for what cannot be."""
        for name, value in (("seconds", self.seconds), ("timeout", self.timeout)):
            if not 0 < value < 1e6:
                raise SondaError(f"--{name} {value:g} is not a time", "give more than 0")
        if self.repeat < 1:
            raise SondaError(f"--repeat {self.repeat} is too small", "give 1 or more")
        if sum(map(bool, (self.ways, self.partition, self.sweep))) > 1:
            raise SondaError("--ways, --partition and --sweep-ways divide the same cache", "give one of them")


@dataclass(frozen=True)
class PlannedWindow:
    """Participants that run at the same time, under a partition or none."""

    members: tuple[int, ...]
    shares: CacheShares | None = None
    partition: str = ""


@dataclass(frozen=True)
class Cast:
    """The participants, and notes on the cores that they run on."""

    participants: tuple[Participant, ...]
    notes: list[str] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        return [participant.name for participant in self.participants]


def parse_cast(texts: Sequence[str], cores: str = "", root: Path = Path("/")) -> Cast:
    """Participants as the user writes them: `mlp`, `"cnn --batch 8 --train"`, `name=mlp`, `"cmd:python train.py"`.

    A command after `cmd:` is measured by its steps where it is a PyTorch program that can be observed, by whole runs
    otherwise; one after `window:` runs on while a window lasts.
    `cores` has an entry for each, `0,1` or `0-3,4-7` or `0+2,1`; where it has fewer, participants share. Raises
    SondaError for what cannot run.
    """
    if len(texts) < 2:
        raise SondaError("one participant has nobody to run with", "name two or more, e.g. sonda corun mlp cnn")
    parsed = [_parse_participant(text) for text in texts]
    names: list[str] = []
    for name, _ in parsed:
        same = sum(1 for earlier, _ in parsed[: len(names)] if earlier == name)
        names.append(f"{name}#{same + 1}" if same else name)
    if len(set(names)) < len(names):
        raise SondaError(f"two participants are called {max(names, key=names.count)!r}", "give them names: a=mlp b=mlp")
    assigned_cores, notes = _assign_cores(cores, names, root)
    participants = []
    for name, (_, template), assigned in zip(names, parsed, assigned_cores, strict=True):
        participant = replace(template, name=name, cores=assigned)
        if participant.threads > len(assigned):
            words = f"{participant.threads} threads on {len(assigned)} core{'s' * (len(assigned) > 1)}"
            notes.append(f"{name} has {words}: they wait in turn")
        if participant.job is not None:
            participant = replace(
                participant, job=msgspec.structs.replace(participant.job, threads=participant.threads)
            )
        participants.append(participant)
    return Cast(tuple(participants), notes)


def _parse_participant(text: str) -> tuple[str, Participant]:
    command = COMMAND.fullmatch(text.strip())
    if command:
        return _parse_command(text, *command.groups())
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise SondaError(f"participant {text!r}: {error}", "write for example 'cnn --batch 8'") from None
    if not words or words[0].startswith("-"):
        raise SondaError(f"participant {text!r} names no workload", "write for example 'cnn --batch 8'")
    name, equals, workload = words[0].partition("=")
    if not equals:
        name, workload = words[0], words[0]
    if not name or not workload:
        raise SondaError(f"participant {text!r} names no workload", "write for example a=mlp")
    try:
        job = check_job(with_options(Job(workload=workload), words[1:]))
    except msgspec.ValidationError as error:
        problem, _, field = str(error).replace("`", "").partition(" - at $.")
        raise SondaError(f"{name}: --{field} cannot be so: {problem[:1].lower()}{problem[1:]}", "mend it") from None
    plain = Job(workload=workload)
    for setting in REFUSED:
        if getattr(job, setting) != getattr(plain, setting):
            raise SondaError(f"{name}: --{setting} means nothing for one of several programs", "leave it out")
    describe(job.workload, job.options)
    return name, Participant(name, job, ())


def _parse_command(text: str, name: str | None, kind: str, line: str) -> tuple[str, Participant]:
    example = f"write for example '{kind}:python train.py'"
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise SondaError(f"participant {text!r}: {error}", example) from None
    if not words:
        raise SondaError(f"participant {text!r} names no command", example)
    if shutil.which(words[0]) is None:
        raise SondaError(f"participant {text!r}: there is no program {words[0]!r}", "check the command")
    name = name or program_name(words)
    return name, Participant(name, None, (), tuple(words), WINDOW if kind == "window" else "")


def _assign_cores(text: str, names: Sequence[str], root: Path) -> tuple[list[tuple[int, ...]], list[str]]:
    """Cores of every participant, and notes on what they share."""
    usable = sorted(os.sched_getaffinity(0))
    count = len(names)
    if text:
        entries = [_parse_cores(entry) for entry in text.split(",")]
        absent = sorted({core for entry in entries for core in entry} - set(usable))
        if absent:
            raise SondaError(
                f"core{'s' * (len(absent) > 1)} {', '.join(map(str, absent))} do{'es' * (len(absent) == 1)} not exist "
                "here, or may not be used",
                f"choose among {', '.join(map(str, usable))}",
            )
        if len(entries) > count:
            raise SondaError(f"--cores has {len(entries)} entries for {count} participants",
                             "join the cores of one with + or -: 0-3,4-7 or 0+2,1")  # fmt: skip
    else:
        cores_each = max(1, len(usable) // count)
        entries = [tuple(usable[at * cores_each : (at + 1) * cores_each]) for at in range(min(count, len(usable)))]
    assigned = [entries[slot % len(entries)] for slot in range(count)]
    return assigned, _describe_neighbours(assigned, names, root)


def _parse_cores(text: str) -> tuple[int, ...]:
    cores: list[int] = []
    for piece in text.split("+"):
        first, dash, last = piece.strip().partition("-")
        begin, end = parse_whole(first), parse_whole(last if dash else first)
        if begin is None or end is None or end > LONGEST_CPU_LIST:
            raise SondaError(f"--cores: {text.strip()!r} is not a list of cores", "write 0,1 or 0-3,4-7 or 0+2,1")
        cores += range(begin, end + 1)
    if not cores:
        raise SondaError(f"--cores: {text.strip()!r} holds no core", "write the lower number first")
    return tuple(dict.fromkeys(cores))


def _describe_neighbours(assigned: Sequence[tuple[int, ...]], names: Sequence[str], root: Path) -> list[str]:
    """Notes on participants that share more or less than memory and the last-level cache."""
    notes = []
    for (a, first), (b, second) in combinations(zip(names, assigned, strict=True), 2):
        shared = sorted(set(first) & set(second))
        if shared:
            which = f"core{'s' * (len(shared) > 1)} {', '.join(map(str, shared))}"
            notes.append(f"{a} and {b} share {which}: they run in turn, which slows them beyond caches and memory")
            continue
        if any(set(_sibling_threads(core, root)) & set(second) for core in first):
            notes.append(f"{a} and {b} run on two threads of one core: they share its units and first caches too")
        elif not any(set(_cache_sharers(core, root)) & set(second) for core in first):
            notes.append(f"{a} and {b} share no last-level cache: what slows them is elsewhere")
    return notes


def _sibling_threads(core: int, root: Path) -> list[int]:
    return read_cpu_list(root / f"sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list") or [core]


def _cache_sharers(core: int, root: Path) -> list[int]:
    """Cores that share the last-level cache with this one; all where the kernel does not say."""
    shared = read_cpu_list(root / f"sys/devices/system/cpu/cpu{core}/cache/index3/shared_cpu_list")
    return shared or list(range(os.cpu_count() or 1))


def plan_windows(count: int, partitions: Sequence[tuple[str, CacheShares]] = ()) -> list[PlannedWindow]:
    """Windows of each participant alone, each pair, all together, and all together under each partition."""
    everybody = tuple(range(count))
    windows = [PlannedWindow((slot,)) for slot in everybody]
    windows += [PlannedWindow(pair) for pair in combinations(everybody, 2)]
    if count > 2:
        windows.append(PlannedWindow(everybody))
    return windows + [PlannedWindow(everybody, shares, label) for label, shares in partitions]


def check_shares(setting: CorunSettings, names: Sequence[str]) -> None:
    """Raise SondaError for shares that no processor could give these participants."""
    for option, text in (("bandwidth", setting.bandwidth), ("ways", setting.ways)):
        _parse_in_order(option, text, names)
    if setting.partition:
        _parse_masks(setting.partition, names)


def plan_partitions(
    setting: CorunSettings, names: Sequence[str], cache: CacheControl | None
) -> list[tuple[str, CacheShares]]:
    """The partitions that were asked for, with their labels. Raises SondaError for what the cache cannot divide so."""
    bandwidths = _parse_in_order("bandwidth", setting.bandwidth, names)
    if cache is None:
        if setting.ways or setting.partition or setting.sweep:
            raise SondaError("this processor cannot divide its last-level cache", "leave out the ways")
        return [_label_shares(CacheShares({}, bandwidths))] if bandwidths else []
    if setting.sweep:
        first, *others = names
        most = cache.ways - 2 * cache.least_bits
        sweep = []
        for count in range(cache.least_bits, most + 1):
            first_mask = ((1 << count) - 1) << (cache.mask.bit_length() - count)
            others_mask = ((1 << (cache.ways - count - cache.least_bits)) - 1) << cache.least_bits
            masks = {first: first_mask, **dict.fromkeys(others, others_mask)}
            sweep.append((f"{first} {count} of {cache.ways} ways", CacheShares(masks, bandwidths)))
        return sweep
    if setting.ways:
        return [
            _label_shares(CacheShares(divide_ways(_parse_in_order("ways", setting.ways, names), cache), bandwidths))
        ]
    if setting.partition:
        return [_label_shares(CacheShares(_parse_masks(setting.partition, names), bandwidths))]
    return [_label_shares(CacheShares({}, bandwidths))] if bandwidths else []


def _label_shares(shares: CacheShares) -> tuple[str, CacheShares]:
    return shares.words, shares


def _parse_in_order(option: str, text: str, names: Sequence[str]) -> dict[str, int]:
    if not text:
        return {}
    pieces = [piece.strip() for piece in text.split(",")]
    if len(pieces) != len(names) or not all(piece.isdecimal() and int(piece) for piece in pieces):
        raise SondaError(f"--{option} {text} is not a whole number from 1 for each of {len(names)} participants",
                         f"write for example --{option} {','.join('4' for _ in names)}")  # fmt: skip
    return {name: int(piece) for name, piece in zip(names, pieces, strict=True)}


def _parse_masks(text: str, names: Sequence[str]) -> dict[str, int]:
    masks: dict[str, int] = {}
    for piece in text.split(","):
        name, _, mask = piece.strip().rpartition("=")
        if name not in names:
            raise SondaError(f"--partition: {name or piece!r} takes no part", nearest(name or piece, names))
        if name in masks:
            raise SondaError(f"--partition names {name} twice", "give each participant one mask")
        try:
            masks[name] = int(mask, 16)
        except ValueError:
            masks[name] = 0
        if masks[name] < 1:
            raise SondaError(f"--partition: {name}={mask} is not a mask of ways", "write it like 0xf0")
    return masks
