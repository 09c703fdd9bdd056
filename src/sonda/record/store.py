"""The store: the directory where runs live, with their tags beside them."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sonda.record.errors import SondaError
from sonda.record.run import PARTIAL, Run

RUN_NAME = re.compile(r"^(\d{8}T\d{6})-([0-9a-f]{4,32})$")
TAG_NAME = re.compile(r"^[A-Za-z0-9][\w.+-]*$")
SHORTEST = 4


def default_root() -> Path:
    """`$SONDA_HOME`, or `sonda-runs` in the current directory."""
    return Path(os.environ.get("SONDA_HOME") or "sonda-runs")


class Store:
    """Runs under one directory. Reads never change it; a damaged run is skipped and named in `damaged`."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or default_root()
        self.damaged: list[SondaError] = []

    def directories(self) -> list[Path]:
        """Directories that are named like runs, newest first."""
        try:
            names = [entry.name for entry in os.scandir(self.root) if RUN_NAME.match(entry.name)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise SondaError(f"cannot read the store {self.root}: {error.strerror}", "set $SONDA_HOME") from None
        return [self.root / name for name in sorted(names, reverse=True)]

    def runs(self, limit: int | None = None) -> Iterator[Run]:
        """Runs, newest first; what cannot be read goes to `damaged`."""
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

        They need not be readable. Raises SondaError when it names none, or more than one run by their ids.
        """
        path = Path(reference)
        if (path / "run.json").is_file():
            return [path]
        directories = self.directories()
        if reference == "last":
            if not directories:
                raise SondaError(f"there are no runs in {self.root}", "make one with: sonda run mlp")
            return directories[:1]
        if TAG_NAME.match(reference) and (self.root / "tags" / reference).is_dir():
            identities = {entry.name for entry in (self.root / "tags" / reference).iterdir()}
            tagged = [d for d in reversed(directories) if _identity(d) in identities]
            if tagged:
                return tagged
        matching = [
            d for d in directories if d.name == reference
            or (len(reference) >= SHORTEST and _identity(d).startswith(reference))
        ]  # fmt: skip
        if len(matching) > 1:
            names = ", ".join(_identity(d) for d in matching[:4])
            raise SondaError(f"{reference!r} could be any of {names}", "write more digits of the id")
        if not matching:
            raise SondaError(f"no run, tag or path {reference!r} in {self.root}", "see: sonda ls")
        return matching

    def find(self, reference: str) -> list[Run]:
        """The runs that a reference names, oldest first; raises SondaError as `locate` does, and for a damaged run."""
        return [Run.load(directory) for directory in self.locate(reference)]

    def one(self, reference: str) -> Run:
        """The newest of the runs that a reference names."""
        return self.find(reference)[-1]

    def has(self, identity: str) -> bool:
        """Whether a run with exactly this id is in the store."""
        return any(_identity(directory) == identity for directory in self.directories())

    def short(self, identity: str) -> str:
        """The shortest beginning of an id that names one run only."""
        others = [_identity(d) for d in self.directories() if _identity(d) != identity]
        length = SHORTEST
        while length < len(identity) and any(other.startswith(identity[:length]) for other in others):
            length += 1
        return identity[:length]

    def tag(self, identity: str, tag: str) -> None:
        """Give a run a tag. A tag may be on several runs."""
        if not TAG_NAME.match(tag) or tag == "last":
            raise SondaError(f"{tag!r} cannot be a tag", "use letters, digits, '.', '_', '+', '-'; not 'last'")
        try:
            (self.root / "tags" / tag).mkdir(parents=True, exist_ok=True)
            (self.root / "tags" / tag / identity).touch()
        except OSError as error:
            raise SondaError(f"cannot tag in {self.root}: {error.strerror}", "make the store writable") from None

    def untag(self, identity: str, tag: str) -> None:
        """Take a tag off a run; the tag itself goes with its last run."""
        (self.root / "tags" / tag / identity).unlink(missing_ok=True)
        try:
            (self.root / "tags" / tag).rmdir()
        except OSError:
            pass

    def tags(self) -> dict[str, list[str]]:
        """Tags of every tagged run, by its id."""
        found: dict[str, list[str]] = {}
        for path in sorted((self.root / "tags").glob("*/*")):
            found.setdefault(path.name, []).append(path.parent.name)
        return found

    def remove(self, directory: Path) -> None:
        """Remove a run, damaged or not, and its tags. It leaves its name first, so nobody sees half of it."""
        identity = _identity(directory)
        doomed = self.root / f"{PARTIAL}{os.getpid()}-{identity}"
        try:
            directory.rename(doomed)
            shutil.rmtree(doomed)
        except OSError as error:
            raise SondaError(f"cannot remove {directory.name}: {error.strerror}", "make the store writable") from None
        for tag in self.tags().get(identity, []):
            self.untag(identity, tag)

    def remove_older_than(self, age: timedelta) -> list[Path]:
        """Remove the runs made longer ago than `age`; returns what was removed."""
        try:
            limit = (datetime.now(UTC) - age).strftime("%Y%m%dT%H%M%S")
        except OverflowError:
            return []
        old = [directory for directory in self.directories() if directory.name[:15] < limit]
        for directory in old:
            self.remove(directory)
        return old

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A directory for work in progress, on the file system that will hold the run; gone afterwards.

        Raises SondaError when the store cannot be written, so that nothing is run for nothing.
        """
        self.sweep()
        directory = self.root / f"{PARTIAL}{os.getpid()}-{secrets.token_hex(4)}"
        try:
            directory.mkdir(parents=True)
        except OSError as error:
            raise SondaError(
                f"cannot write the store {self.root}: {error.strerror}", "set $SONDA_HOME to a directory you can write"
            ) from None
        try:
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def sweep(self) -> None:
        """Clear away what a killed writer left: partial directories whose process is gone."""
        for path in self.root.glob(f"{PARTIAL}*"):
            process = path.name.removeprefix(PARTIAL).split("-")[0]
            if process.isdigit() and not Path("/proc", process).exists():
                shutil.rmtree(path, ignore_errors=True)


def parse_age(text: str) -> timedelta:
    """`30d`, `12h`, `2w`, `90m`: a time span. Raises SondaError for anything else."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([mhdw])\s*", text)
    if not match:
        raise SondaError(f"{text!r} is not an age", "write it like 30d, 12h, 2w or 90m")
    names = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
    try:
        return timedelta(**{names[match[2]]: float(match[1])})
    except OverflowError:
        raise SondaError(f"{text!r} is longer than any run is old", "write it like 30d") from None


def _identity(directory: Path) -> str:
    match = RUN_NAME.match(directory.name)
    return match.group(2) if match else directory.name
