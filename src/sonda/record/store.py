"""The store: the directory where runs live, with their tags beside them."""

from __future__ import annotations

import errno
import os
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sonda.record.errors import Correction, SondaError, near
from sonda.record.files.partial import PARTIAL, discard, is_abandoned, partial_path
from sonda.record.run import IDENTITY, Run

RUN_NAME = re.compile(r"([0-9]{8}T[0-9]{6}(?:[0-9]{3})?)-([0-9a-f]{4,32})")
RUN_NAMES = re.compile(r"(?<![^\0])[0-9]{8}T[0-9]{6}(?:[0-9]{3})?-[0-9a-f]{4,32}(?![^\0])")
"""The same among names that are joined by what no name has: a store of 100,000 runs is looked through in one go."""
IDENTITIES = re.compile(r"-([0-9a-f]+)(?![^\0])")
TAG_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,99}")
SHORTEST = 4
FULL = (errno.ENOSPC, errno.EDQUOT)
MOST_ASKED = 20_000
"""Files whether they are there, which is as fast as listing a large directory."""
MOST_READ = 100
"""Runs among which that of a program is looked for."""
MOST_TRIES = 100
"""A tag's directory may vanish between making it and writing into it, when somebody takes the tag off elsewhere."""


def default_root() -> Path:
    """`$SONDA_HOME`, or `sonda-runs` in the current directory."""
    return Path(os.environ.get("SONDA_HOME") or "sonda-runs")


class Store:
    """Runs under one directory. Reads never change it; a damaged run is skipped and named in `damaged`."""

    def __init__(self, root: Path | str | None = None) -> None:
        """`root` is the directory, as a path or as text; `$SONDA_HOME` or its default where none is given."""
        if root is not None and not isinstance(root, Path | str):
            raise SondaError(f"a store is a directory, not {type(root).__name__}", "give its path")
        self.root = Path(root).expanduser() if root else default_root()
        self.damaged: list[SondaError] = []

    def names(self) -> list[str]:
        """Names of what is named like a run, newest first."""
        try:
            names = os.listdir(self.root)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise SondaError(f"cannot read the store {self.root}: {error.strerror}", "set $SONDA_HOME") from None
        return sorted(RUN_NAMES.findall("\0".join(names)), reverse=True)

    def directories(self) -> list[Path]:
        """What is named like a run, newest first."""
        return [self.root / name for name in self.names()]

    def runs(self, limit: int | None = None) -> Iterator[Run]:
        """Runs, newest first; what cannot be read goes to `damaged`."""
        self.damaged.clear()
        count = 0
        for directory in self.directories():
            if limit is not None and count >= limit:
                return
            try:
                run = Run.load(directory)
            except SondaError as error:
                self.damaged.append(error)
                continue
            count += 1
            yield run

    def locate(self, reference: str) -> list[Path]:
        """Directories of the runs that a reference names, oldest first: a path, `last`, a tag, the beginning of an id.

        They need not be readable, except that `last` is the newest that is. Raises SondaError when it names none, or
        more than one run by their ids.
        """
        if _is_run(Path(reference)):
            return [Path(reference)]
        if reference == "last":
            return [self._last().directory]
        directories = self.directories()
        identities = self._tagged(reference)
        tagged = [d for d in reversed(directories) if _identity(d) in identities]
        if tagged:
            return tagged
        matching = [
            d for d in directories if d.name == reference
            or (len(reference) >= SHORTEST and _identity(d).startswith(reference))
        ]  # fmt: skip
        if len(matching) > 1:
            names = [_identity(d) for d in matching]
            if len(set(names)) == 1:
                names = [d.name for d in matching]
            raise SondaError(f"{reference!r} could be any of {', '.join(names[:4])}", "write more of the id or name")
        if not matching:
            raise SondaError(f"no run, tag or path {reference[:200]!r} in {self.root}", self._propose(reference))
        return matching

    def _propose(self, reference: str) -> str:
        """What to write for a reference that names nothing: of a program its newest run, else the nearest tag."""
        if reference.endswith((".py", ".sh")):
            name = Path(reference).name
            for run in self.runs(MOST_READ):
                if name in (Path(word).name for word in run.info.workload.command or ()):
                    newest = self.short(run.id)
                    return Correction(f"its newest run is {newest}.", reference, newest)
        meant = near(reference[:200], ["last", *self.tag_names()])
        return f"did you mean {meant!r}? See: sonda ls" if meant else "see: sonda ls"

    def _last(self) -> Run:
        for run in self.runs(limit=1):
            return run
        if self.damaged:
            raise self.damaged[0]
        raise SondaError(f"there are no runs in {self.root}", "make one with: sonda run mlp")

    def find(self, reference: str) -> list[Run]:
        """The runs that a reference names, oldest first; raises SondaError as `locate` does.

        Of several, those that cannot be read are named in `damaged`; raises SondaError when none can.
        """
        runs: list[Run] = []
        damaged: list[SondaError] = []
        for directory in self.locate(reference):
            try:
                runs.append(Run.load(directory))
            except SondaError as error:
                damaged.append(error)
        if not runs:
            raise damaged[0]
        self.damaged = damaged if damaged else self.damaged
        return runs

    def one(self, reference: str) -> Run:
        """The newest of the runs that a reference names."""
        return self.find(reference)[-1]

    def has(self, identity: str) -> bool:
        """Whether a run with exactly this id is in the store."""
        return any(identity_of(name) == identity for name in self.names())

    def short(self, identity: str) -> str:
        """The shortest beginning of an id that names one run only."""
        return self.shorts([identity])[0]

    def shorts(self, identities: Sequence[str], names: Sequence[str] | None = None) -> list[str]:
        """The same for many ids at once: among sorted ids, an id can be confused with its neighbours only.

        `names` are those of all runs, where the caller has them already.
        """
        beginnings = {identity[:SHORTEST] for identity in identities}
        there = IDENTITIES.findall("\0".join(self.names() if names is None else names))
        known = sorted({identity for identity in there if identity[:SHORTEST] in beginnings} | set(identities))
        short_names = []
        for identity in identities:
            at = bisect_left(known, identity)
            length = SHORTEST
            for neighbour in known[max(0, at - 1) : at + 2]:
                while neighbour != identity and length < len(identity) and neighbour.startswith(identity[:length]):
                    length += 1
            short_names.append(identity[:length])
        return short_names

    def check_tag(self, tag: str) -> None:
        """Raise SondaError for what cannot be a tag."""
        if not TAG_NAME.fullmatch(tag) or tag == "last":
            raise SondaError(
                f"{tag[:200]!r} cannot be a tag", "use at most 100 letters, digits, '.', '_', '+', '-'; not 'last'"
            )

    def tag(self, identity: str, tag: str) -> None:
        """Give a run a tag. A tag may be on several runs."""
        place = self._tag_place(identity, tag)
        for left in reversed(range(MOST_TRIES)):
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.touch()
                return
            except OSError as error:
                if left and isinstance(error, (FileNotFoundError, FileExistsError)):
                    continue
                raise SondaError(f"cannot tag in {self.root}: {error.strerror}", "make the store writable") from None

    def untag(self, identity: str, tag: str) -> None:
        """Take a tag off a run; the tag itself goes with its last run."""
        place = self._tag_place(identity, tag)
        try:
            place.unlink()
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise SondaError(f"cannot untag in {self.root}: {error.strerror}", "make the store writable") from None
        try:
            place.parent.rmdir()
        except OSError:
            pass  # other runs have it too

    def _tag_place(self, identity: str, tag: str) -> Path:
        # Both become a path, and an id may come from somebody else's run.json.
        self.check_tag(tag)
        if not IDENTITY.fullmatch(identity):
            raise SondaError(f"{identity[:200]!r} is not the id of a run", "see: sonda ls")
        return self.root / "tags" / tag / identity

    def _tagged(self, tag: str) -> set[str]:
        """Ids of the runs with this tag."""
        if not TAG_NAME.fullmatch(tag):
            return set()
        try:
            return set(os.listdir(self.root / "tags" / tag))
        except OSError:
            return set()

    def tag_names(self) -> list[str]:
        """Every tag of the store, in the order of the alphabet."""
        try:
            return sorted(filter(TAG_NAME.fullmatch, os.listdir(self.root / "tags")))
        except OSError:
            return []

    def tags(self, of: Sequence[str] | None = None) -> dict[str, list[str]]:
        """Tags of every tagged run by its id, or `of` these runs at least: of a few it is asked, not listed, because a
        tag may be on all runs of a large store."""
        by_run: dict[str, list[str]] = {}
        names = self.tag_names()
        ask = of is not None and len(of) * len(names) <= MOST_ASKED
        for tag in names:
            place = self.root / "tags" / tag
            for identity in [name for name in of or () if (place / name).exists()] if ask else self._tagged(tag):
                by_run.setdefault(identity, []).append(tag)
        return by_run

    def remove(self, directory: Path) -> None:
        """Remove a run, damaged or not, and its tags. It leaves its name first, so nobody sees half of it.

        Refuses what is not named like a run: a project may have a `run.json` of its own.
        """
        name = RUN_NAME.fullmatch(directory.name)
        if name is None:
            raise SondaError(f"{directory} is not named like a run of Sonda's", "remove it yourself")
        doomed = partial_path(directory.parent)
        try:
            directory.rename(doomed)
            discard(doomed)
        except FileNotFoundError:
            raise SondaError(f"there is no run {directory.name} any more", "see: sonda ls") from None
        except OSError as error:
            raise SondaError(
                f"cannot remove {directory.name}: {error.strerror or error}", "make the store writable"
            ) from None
        for tag in self.tags([name[2]]).get(name[2], []):
            self.untag(name[2], tag)

    def adopt(self, name: str, files: Mapping[str, bytes]) -> Run:
        """Take in a run that was made elsewhere: the name of its directory, and its files. It appears whole.

        Raises SondaError when it is no run, or the store cannot be written.
        """
        if not RUN_NAME.fullmatch(name) or any("/" in file or file in ("", ".", "..") for file in files):
            raise SondaError(f"{name[:80]!r} is not a run", "send a run's directory as it is")
        partial = partial_path(self.root)
        try:
            partial.mkdir(parents=True)
            for file, content in files.items():
                (partial / file).write_bytes(content)
            info = Run.load(partial).info
            partial.rename(self.root / name)
        except OSError as error:
            _discard_quietly(partial)
            raise SondaError(
                f"cannot keep {name} in {self.root}: {error.strerror or error}", "make room, or set $SONDA_HOME"
            ) from None
        except SondaError:
            _discard_quietly(partial)
            raise
        return Run(self.root / name, info)

    def remove_older_than(self, age: timedelta) -> list[Path]:
        """Remove the runs made longer ago than `age`; returns what was removed.

        One that somebody else removes meanwhile is gone as well, and is not returned.
        """
        try:
            limit = datetime.now(UTC) - age
        except OverflowError:
            return []
        removed = []
        for directory in self.directories():
            if not _is_made_before(directory, limit):
                continue
            try:
                self.remove(directory)
            except SondaError:
                if os.path.lexists(directory):
                    raise
                continue
            removed.append(directory)
        return removed

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A directory for work in progress, on the file system that will hold the run; gone afterwards.

        Raises SondaError when the store cannot be written, so that nothing is run for nothing.
        """
        self.sweep()
        directory = partial_path(self.root)
        try:
            directory.mkdir(parents=True)
        except OSError as error:
            raise SondaError(
                f"cannot write the store {self.root}: {error.strerror}", "set $SONDA_HOME to a directory you can write"
            ) from None
        try:
            yield directory
        except OSError as error:
            if error.errno not in FULL:
                raise
            raise SondaError(
                f"the disk of the store {self.root} is full: {error.strerror}", "free some space, or set $SONDA_HOME"
            ) from None
        finally:
            _discard_quietly(directory)

    def sweep(self) -> None:
        """Clear away what a killed writer left: partial directories whose process is gone."""
        for path in self.root.glob(f"{PARTIAL}*"):
            if is_abandoned(path):
                _discard_quietly(path)


def parse_age(text: str) -> timedelta:
    """`30d`, `12h`, `2w`, `90m`: a time span. Raises SondaError for anything else."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([mhdw])\s*", text)
    if not match:
        raise SondaError(f"{text!r} is not an age", "write it like 30d, 12h, 2w or 90m")
    names = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
    try:
        return timedelta(**{names[match[2]]: float(match[1])})
    except OverflowError:
        raise SondaError(f"{text!r} is longer than any run is old", "write it like 30d") from None


def identity_of(name: str) -> str:
    """The id of a run, from the name of its directory."""
    return name.rpartition("-")[2]


def _identity(directory: Path) -> str:
    return identity_of(directory.name) if RUN_NAME.fullmatch(directory.name) else directory.name


def _is_run(path: Path) -> bool:
    """Whether this path leads to a run, or to something in a store that is named like one."""
    try:
        return (path / "run.json").is_file() or (
            len(path.parts) > 1 and RUN_NAME.fullmatch(path.name) is not None and os.path.lexists(path)
        )
    except (OSError, ValueError):
        return False  # too long, or not to be looked into: then it is no path of a run


def _is_made_before(directory: Path, limit: datetime) -> bool:
    stamp = directory.name.partition("-")[0]
    try:
        created = datetime.strptime(stamp[:15], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return False  # no such day: age unknown
    return created + timedelta(milliseconds=int(stamp[15:] or 0)) < limit


def _discard_quietly(path: Path) -> None:
    try:
        discard(path)
    except OSError:
        pass  # the next sweep tries again
