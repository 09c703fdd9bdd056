"""Programs for co-runs that need no framework, and a look at what is left of them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from sonda.targets.corun.plan import CorunSettings

QUICK = CorunSettings(seconds=0.1, repeat=1, timeout=100)


def script(path: Path, text: str, *words: str, name: str = "bad", kind: str = "cmd") -> str:
    """A participant that runs a Python file with the standard library only, which starts in some 10 ms."""
    path.write_text(text)
    return f"{name}={kind}:{sys.executable} -I -S {path} {' '.join(words)}"


def alive(marker: str | Path) -> list[int]:
    """Processes whose command line holds the marker."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes()
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if str(marker).encode() in words and state != "Z":
            found.append(int(entry.name))
    return found


def until(condition: Callable[[], bool], seconds: float = 300) -> None:
    """Wait for what a busy machine may take long for."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
