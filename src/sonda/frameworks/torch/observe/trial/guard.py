"""Ends a try before it does what cannot be undone: files written outside of temporary folders, other programs started,
messages over a network, several ranks. What was measured until then is kept.

Python announces these before they happen (`sys.addaudithook`), in this process and in those forked from it. What a
library does in C without Python is not announced; `torch.save` is, by `session`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

WRITING = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC
CHANGES = {
    "os.remove": ((0, 1),), "os.rename": ((0, 2), (1, 3)), "os.rmdir": ((0, 1),), "os.mkdir": ((0, 2),),
    "os.truncate": ((0, -1),), "os.link": ((1, 3),), "os.symlink": ((1, 2),), "shutil.rmtree": ((0, 1),),
    "sqlite3.connect": ((0, -1),),
}  # fmt: skip
"""Events that change files: which of their values are the paths, and which the open folder that each is relative to;
-1 for none."""
STARTS = ("subprocess.Popen", "os.system", "os.posix_spawn", "os.exec", "os.fork", "os.forkpty")
ASKS_THE_SYSTEM = ("platform", "uuid", "ctypes.util")
"""Modules of Python that start programs which only answer."""
MAY_START = ("torch", "triton", "_sonda")
"""Packages whose processes belong to the try: workers of a loader, the compiler's."""
RANKS = ("torch.multiprocessing", "torch.distributed")


class Guard:
    """Calls `end(reason)` before something that a try must not do. `end` does not come back."""

    def __init__(self, directory: str, end: Callable[[str], None]) -> None:
        self.end = end
        self.on = True
        home = os.path.expanduser("~")
        caches = [os.environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache"), os.path.join(home, ".triton")]
        folders = [directory, tempfile.gettempdir(), "/dev", "/proc", os.path.join(home, ".nv"), *caches]
        self.harmless = tuple(os.path.join(os.path.realpath(folder), "") for folder in folders)
        self.own = os.path.join(os.path.realpath(directory), "")
        place = os.path.join(os.path.realpath(os.getcwd()), "")
        self.place = "" if place in self.harmless or place == os.sep else place
        """The program's folder, which may itself be in a temporary one."""
        sys.addaudithook(self.hear)

    def hear(self, event: str, values: tuple) -> None:
        """Called by Python for every event; nearly all of them are none of ours."""
        if not self.on:
            return
        if event == "open":
            path, mode, flags = values
            written = (
                any(letter in mode for letter in "wax+") if isinstance(mode, str) else bool((flags or 0) & WRITING)
            )
            if written:
                self.refuse_writing(path)
        elif event in CHANGES:
            for path, folder in CHANGES[event]:
                place = _resolve(values[path], values[folder] if 0 <= folder < len(values) else None)
                if event != "os.mkdir" or not os.path.isdir(place):  # a folder that exists stays as it is
                    self.refuse_writing(place)
        elif event in STARTS:
            self._refuse_starting(event, values)
        elif event == "socket.connect":
            self._refuse_connecting(values[1])

    def refuse_writing(self, path: Any) -> None:
        """End the try where `path` is a file of the user's."""
        if isinstance(path, int) or path is None:
            return
        try:
            name = os.fsdecode(path)
        except TypeError:
            return
        real = os.path.realpath(name)
        if name == ":memory:" or f"{os.sep}__pycache__{os.sep}" in real or real.endswith((".pyc", os.devnull)):
            return
        inside = os.path.join(real, "")
        of_program = bool(self.place) and inside.startswith(self.place) and not inside.startswith(self.own)
        if of_program or not inside.startswith(self.harmless):
            self._stop(f"it writes {name}")

    def _refuse_starting(self, event: str, values: tuple) -> None:
        starter = _starter()
        if starter.startswith(RANKS):
            self._stop("it starts several ranks")
        elif starter.partition(".")[0] not in MAY_START and starter not in ASKS_THE_SYSTEM:
            self._stop("it forks" if "fork" in event else f"it starts {_program(values)}")

    def _refuse_connecting(self, address: Any) -> None:
        host = address[0] if isinstance(address, tuple) and address else ""
        if host and not str(host).startswith(("127.", "::1", "localhost", "0.0.0.0")):
            self._stop(f"it connects to {host}")

    def _stop(self, reason: str) -> None:
        self.on = False
        self.end(reason)


def _resolve(path: Any, folder: Any) -> Any:
    """A path that may be relative to an open folder, as `tempfile` and `shutil` give it."""
    if not isinstance(folder, int) or folder < 0 or isinstance(path, int):
        return path
    try:
        return os.path.join(os.readlink(f"/proc/self/fd/{folder}"), os.fsdecode(path))
    except OSError:
        return path


def _starter() -> str:
    """The module that starts a process: the innermost outside of Python's own, or one that asks the system."""
    frame: Any = sys._getframe(3)
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name in ASKS_THE_SYSTEM or name.partition(".")[0] not in sys.stdlib_module_names:
            return name
        frame = frame.f_back
    return ""


def _program(values: tuple) -> str:
    words = values[0] if values else "a program"
    try:
        return os.path.basename(os.fsdecode(words))
    except TypeError:
        return "a program"
