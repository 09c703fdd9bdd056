"""What the kernel knows of other processes."""

from __future__ import annotations

from pathlib import Path


def lives(process: int) -> bool:
    """Whether a process runs; one that has ended, and that its parent has not noticed yet, does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
