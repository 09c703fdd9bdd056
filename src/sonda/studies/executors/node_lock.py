"""Being alone on a node: one lock for everybody who measures there, whichever user or study it is.

It is a file of the system's folder for temporary files that everybody may read, which is enough to lock it. Linux gives
a shared lock also while somebody waits for the whole, so that simulations that follow on one another would keep a
measurement out for ever: a second file is a turnstile, which whoever waits to measure keeps closed.
"""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sonda.record.errors import SondaError
from sonda.record.files.partial import node_name
from sonda.record.progress import Lasting, Say


@contextmanager
def hold_node(how: int, say: Say = lambda text: None) -> Iterator[None]:
    """Wait until nobody measures on this node, and to measure (LOCK_EX) until nobody simulates either.

    Simulations that come later than a measurement wait for it. `say` is told where somebody is waited for. Raises
    SondaError where the lock cannot be had at all.
    """
    folder, node = Path(tempfile.gettempdir()), node_name().replace("/", "_")
    path = folder / f"sonda-alone-{node}"
    condition = "nobody measures" if how == fcntl.LOCK_SH else "nobody else measures or simulates"
    words = Lasting(f"waiting until {condition} on this machine ({path})")
    waiting_notes: list[str] = []

    def at_turnstile() -> None:
        say(words)
        waiting_notes.append(words)

    turn = _lock_file(folder / f"sonda-turn-{node}", how, at_turnstile)
    try:
        if how == fcntl.LOCK_SH:
            fcntl.flock(turn, fcntl.LOCK_UN)
        lock = _lock_file(path, how, lambda: None if waiting_notes else say(words))
    finally:
        os.close(turn)
    try:
        yield
    finally:
        os.close(lock)


def _lock_file(path: Path, how: int, wait: Callable[[], None]) -> int:
    """The file, opened and locked; `wait` is called before somebody else is waited for."""
    while True:
        lock = _open_file(path)
        try:
            try:
                fcntl.flock(lock, how | fcntl.LOCK_NB)
            except BlockingIOError:
                wait()
                fcntl.flock(lock, how)
            # A folder of temporary files is tidied up: a file that is there no more keeps nobody out.
            if _is_same_file(lock, path):
                return lock
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)


def _open_file(path: Path) -> int:
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
            raise _refusal(path, error) from None
        try:
            lock = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            continue  # somebody else was faster
        except OSError as error:
            raise _refusal(path, error) from None
        os.fchmod(lock, 0o644)  # whatever the user's mask is, others must be able to read it
        return lock


def _refusal(path: Path, error: OSError) -> SondaError:
    return SondaError(
        f"whether anybody measures on this machine is not known: {path}: {error.strerror}",
        "have the file removed, or make room there, or set another $TMPDIR for everybody who measures",
    )


def _is_same_file(lock: int, path: Path) -> bool:
    try:
        there = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    mine = os.fstat(lock)
    return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)
