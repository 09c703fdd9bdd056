"""Keeps the collector's file descriptors away from the program's.

A program may close every descriptor that it finds, as daemons do. Files that it opens afterwards get the lowest free
numbers. If the collector then read, wrote or closed one of its old numbers, it would touch a file of the program. So
its descriptors have high numbers, and it checks what a number refers to before it uses it.
"""

from __future__ import annotations

import fcntl
import os

ASIDE = 512
"""The lowest number that the collector takes. Programs with fewer open files never get it."""


def move_aside(descriptor: int) -> int:
    """Move an open file to a high number that is closed on exec. Returns the old number where the limit is too low."""
    try:
        high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, ASIDE)
    except OSError:
        return descriptor
    os.close(descriptor)
    return high


def file_identity(descriptor: int) -> tuple:
    """Device and inode of an open file; () for a descriptor that is closed."""
    try:
        status = os.fstat(descriptor)
    except OSError:
        return ()
    return status.st_dev, status.st_ino


def close_named(descriptor: int, name: str) -> None:
    """Close a descriptor if the name of its file still ends with `name`: the program may have closed and reused it."""
    try:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(name):
            os.close(descriptor)
    except OSError:
        pass
