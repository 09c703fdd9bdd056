"""The files of resctrl: read, written and locked as the kernel demands. Tests put another kernel behind them."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from sonda.record.errors import SondaError

MOUNTED = Path("/sys/fs/resctrl")
LOCK_S = 10.0
"""Seconds to wait for another tool that holds the lock."""
LOCK_AGAIN_S = 0.05


class ResctrlFiles(Protocol):
    """A resctrl file system. Paths are relative to its root; everything raises OSError as the kernel does."""

    def read(self, path: str) -> str:
        """The whole file."""

    def write(self, path: str, text: str) -> None:
        """One command in one `write()`."""

    def names(self, path: str) -> list[str]:
        """The names in a directory, sorted; empty where it does not exist."""

    def make(self, path: str) -> None:
        """`mkdir`: a new group."""

    def remove(self, path: str) -> None:
        """`rmdir` of a group; its tasks go to the group above."""

    def lock(self) -> AbstractContextManager[None]:
        """Keep other tools away while something is changed. Raises SondaError where another tool keeps the lock."""


class MountedFiles:
    """The mounted file system, or a copied tree as far as that can act."""

    def __init__(self, root: Path = MOUNTED) -> None:
        self.root = root

    def read(self, path: str) -> str:
        return (self.root / path).read_text(encoding="ascii", errors="replace")

    def write(self, path: str, text: str) -> None:
        data = text.encode("ascii")
        # No O_CREAT: a file that is not there is a mistake, not a new file. No buffer: the kernel takes each write as
        # one command and answers it with an errno.
        descriptor = os.open(self.root / path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        try:
            if os.write(descriptor, data) != len(data):
                raise OSError(errno.EIO, "the command was taken in part only")
        finally:
            os.close(descriptor)

    def names(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(self.root / path))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def make(self, path: str) -> None:
        os.mkdir(self.root / path)

    def remove(self, path: str) -> None:
        os.rmdir(self.root / path)

    @contextmanager
    def lock(self) -> Iterator[None]:
        descriptor = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            end = time.monotonic() + LOCK_S
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > end:
                        raise SondaError(
                            f"another program has held the lock on {self.root} for {LOCK_S:g} s",
                            "end the tool that changes cache partitions (pqos, rdtset, a container runtime)",
                        ) from None
                    time.sleep(LOCK_AGAIN_S)
            yield
        finally:
            os.close(descriptor)
