"""Being alone on a node: one lock for everybody who measures there, whichever user or study it is.

It is a file of the system's folder for temporary files that everybody may read, which is enough to lock it.
"""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sonda.record.errors import SondaError
from sonda.targets.keeping import Lasting, Say
from sonda.targets.node import node_name


@contextmanager
def using(how: int, say: Say = lambda text: None) -> Iterator[None]:
    """Wait until nobody measures on this node, and to measure (LOCK_EX) until nobody simulates either.

    `say` is told where somebody is waited for. Raises SondaError where the lock cannot be had at all.
    """
    path = Path(tempfile.gettempdir()) / f"sonda-alone-{node_name().replace('/', '_')}"
    lock = _locked(path, how, say)
    try:
        yield
    finally:
        os.close(lock)


def _locked(path: Path, how: int, say: Say) -> int:
    while True:
        lock = _opened(path)
        try:
            try:
                fcntl.flock(lock, how | fcntl.LOCK_NB)
            except BlockingIOError:
                say(Lasting(f"waiting until nobody else measures on this machine ({path})"))
                fcntl.flock(lock, how)
            # A folder of temporary files is tidied up: a file that is there no more keeps nobody out.
            if _same(lock, path):
                return lock
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)


def _opened(path: Path) -> int:
    """The file, made where it is not there yet. It may be another user's, whose files nobody opens with O_CREAT in
    such a folder (fs.protected_regular)."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    while True:
        try:
            lock = os.open(path, flags)
            if stat.S_ISREG(os.fstat(lock).st_mode):
                return lock
            os.close(lock)
            raise SondaError(f"{path} is no file of Sonda's", "have it removed, or set another $TMPDIR")
        except FileNotFoundError:
            pass
        except OSError as error:
            raise _refused(path, error) from None
        try:
            lock = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            continue  # somebody else was faster
        except OSError as error:
            raise _refused(path, error) from None
        os.fchmod(lock, 0o644)  # whatever the user's mask is, others must be able to read it
        return lock


def _refused(path: Path, error: OSError) -> SondaError:
    return SondaError(
        f"whether anybody measures on this machine is not known: {path}: {error.strerror}",
        "have the file removed, or make room there, or set another $TMPDIR for everybody who measures",
    )


def _same(lock: int, path: Path) -> bool:
    try:
        there = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    mine = os.fstat(lock)
    return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)
