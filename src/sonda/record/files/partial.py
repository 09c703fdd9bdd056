"""Partial files and directories: work in progress, under names that nobody takes for what they are to become.

`.partial-NODE-PROCESS-NUMBER` says who owns it, so that what a killed process left can be told from what a living one
is still writing, also where several machines share a store.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
from contextlib import suppress
from pathlib import Path

PARTIAL = ".partial-"
NODE = "SONDA_NODE"
"""Environment variable: a node's name where the host's does not tell nodes apart, as in containers."""
FORGOTTEN_S = 7 * 24 * 3600
"""Another machine's processes cannot be asked; what they have not touched for a week is left over."""

_OWNER = re.compile(r"\.partial-(.*)-([0-9]{1,10})-[0-9a-f]+")


def partial_path(root: Path) -> Path:
    """A new name under `root` for work in progress of this process."""
    return root / f"{PARTIAL}{_node()}-{os.getpid()}-{secrets.token_hex(6)}"


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that others see whole or not at all, also where this process is killed. Raises OSError."""
    partial = partial_path(path.parent)
    try:
        partial.write_bytes(data)
        partial.replace(path)
    except BaseException:  # an interrupt too
        with suppress(OSError):
            partial.unlink()
        raise


def is_abandoned(path: Path) -> bool:
    """Whether the process that made this partial file or directory has ended."""
    owner = _OWNER.fullmatch(path.name)
    if owner is None:
        return False
    node, process = owner[1], int(owner[2])
    return not _is_alive(process) if node == _node() else time.time() - _last_written(path) > FORGOTTEN_S


def node_name() -> str:
    """As this node is called: containers that share a host's name have process numbers of their own."""
    return os.environ.get(NODE) or os.uname().nodename


def _node() -> str:
    """The same in the name of a file."""
    return node_name().replace("/", "_")


def discard(path: Path) -> None:
    """Remove a directory with all that is in it, or the file or link that stands in its place. Raises OSError."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    # A signal reaches what /proc may hide: another user's process answers with a refusal.
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _last_written(path: Path) -> float:
    """When it, or anything directly inside, was last written, in seconds since 1970."""
    try:
        inside = path.iterdir() if path.is_dir() and not path.is_symlink() else ()
        newest: float = max(place.lstat().st_mtime for place in (path, *inside))
        return newest
    except OSError:
        return time.time()
