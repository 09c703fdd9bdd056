"""Kernel files: small texts under `/proc` and `/sys`, read without ever raising.

Everything takes a `root`, so that a copied or constructed tree stands in for the machine.
"""

from __future__ import annotations

import re
from pathlib import Path

CPU_RANGE = re.compile(r"(\d+)(?:-(\d+))?(?::(\d+)/(\d+))?")
SIZE = re.compile(r"(\d+)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
LONGEST_CPU_LIST = 1 << 20
"""CPU numbers beyond this are a damaged file, not a machine."""


def read_text(path: Path) -> str | None:
    """The file's text without surrounding blanks; None where it does not exist or may not be read."""
    try:
        return path.read_text(errors="replace").strip()
    except (OSError, ValueError):
        return None


def read_int(path: Path) -> int | None:
    """The file's whole number; None where the file holds none or may not be read."""
    text = read_text(path)
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None


def parse_cpu_list(text: str) -> list[int]:
    """`"0-3,8"` is [0, 1, 2, 3, 8]; `"0-10:2/5"` takes 2 of every 5. Raises ValueError for anything else."""
    cpus: set[int] = set()
    for part in text.replace("\n", "").split(","):
        if not part.strip():
            continue
        match = CPU_RANGE.fullmatch(part.strip())
        if not match:
            raise ValueError(f"{part!r} is not a range of CPUs")
        first = int(match[1])
        last = int(match[2]) if match[2] else first
        if last < first or last > LONGEST_CPU_LIST:
            raise ValueError(f"{part!r} is not a range of CPUs")
        used, group = (int(match[3]), int(match[4])) if match[3] else (1, 1)
        if group == 0 or used > group:
            raise ValueError(f"{part!r} is not a range of CPUs")
        cpus.update(cpu for cpu in range(first, last + 1) if (cpu - first) % group < used)
    return sorted(cpus)


def read_cpu_list(path: Path) -> list[int] | None:
    """The CPUs that a file lists; None where it lists none or may not be read."""
    text = read_text(path)
    if not text:
        return None
    try:
        return parse_cpu_list(text)
    except ValueError:
        return None


def parse_size(text: str) -> int:
    """Bytes of `"48K"`, `"32 MB"` or `"24682416 kB"`; K is 1024. Raises ValueError for anything else."""
    match = SIZE.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{text!r} is not a size")
    return int(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " ")


def parse_fields(text: str) -> dict[str, str]:
    """`key : value` lines, as in `/proc/meminfo` and one block of `/proc/cpuinfo`; the first value of each key."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip(), value.strip())
    return fields
