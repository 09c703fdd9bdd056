"""One process at a time for each study or exploration: a lock that the kernel lets go of when its holder dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sonda.record.errors import SondaError


@contextmanager
def hold_lock(path: Path, what: str) -> Iterator[None]:
    """Hold the lock at `path`, which is for `what`.

    Raises SondaError when another process has it, or the store cannot be written.

    The file stays: removing it would let a third process lock a new one while a second still waits for the old.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise SondaError(
            f"cannot write to the store {path.parent.parent}: {error.strerror}",
            "point $SONDA_HOME at a directory that can be written",
        ) from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 20).decode("ascii", "replace").strip()
            who = f"process {holder}" if holder.isdigit() else "another process"
            raise SondaError(
                f"{what} is being run by {who} with the same store", "wait for it, or use another $SONDA_HOME"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
