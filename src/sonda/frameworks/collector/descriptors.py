"""Descriptors that stand aside: the collector's own, under numbers that the program's files do not come to have.

A program may close every descriptor that it finds, as daemons do, and open files of its own, which get the lowest
numbers. What is then read, written or closed under a number that once was ours would be the program's.
"""

from __future__ import annotations

import fcntl
import os

ASIDE = 512
"""The lowest number taken. A new file gets the lowest that is free: a program with fewer files does not reach it."""


def move_aside(descriptor: int) -> int:
    """The same file under a high number, closed on exec; as it was where the limit of open files is too low."""
    try:
        high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, ASIDE)
    except OSError:
        return descriptor
    os.close(descriptor)
    return high


def file_identity(descriptor: int) -> tuple:
    """Which file it is: device and inode; nothing where it is closed."""
    try:
        found = os.fstat(descriptor)
    except OSError:
        return ()
    return found.st_dev, found.st_ino


def close_named(descriptor: int, name: str) -> None:
    """Close it if the name of its file still ends so; nothing happens where the program has closed it."""
    try:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(name):
            os.close(descriptor)
    except OSError:
        pass
