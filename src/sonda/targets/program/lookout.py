"""Python processes of a program that cannot be observed, found from outside while it runs.

A process observes itself where it starts with the environment that Sonda gave the program. One that is started with
another environment, or with a flag of Python that ignores it, leaves nothing. `/proc` shows that it exists, its command
line, and whether it has loaded a framework. Only a process with a framework is reported.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sonda.targets.processes import PROC, MeasuredProcesses, read_stat

INTERVAL_S = 0.4
"""Between two looks. Importing a framework takes longer."""
FRAMEWORKS = {"PyTorch": b"/torch/lib/libtorch", "TensorFlow": b"/tensorflow/", "JAX": b"/jaxlib/"}
"""By name: what stands in the list of a process's mapped files once it is loaded."""
COLLECT_VARIABLE = b"SONDA_COLLECT"
MOST_NAMED = 3
"""Programs that the note names."""


@dataclass(frozen=True)
class UnobservedProcess:
    """A process that loaded a framework and was not observed."""

    program: str
    framework: str
    why: str


class Lookout:
    """Finds unobserved processes: call `look` once in a while; `found` has them by their process numbers."""

    def __init__(
        self,
        processes: MeasuredProcesses,
        injected: str,
        flags: Callable[[list[str]], str],
        name: Callable[[list[str]], str],
        proc: Path = PROC,
    ) -> None:
        """`processes` are the program's, `injected` is the entry that PYTHONPATH must hold. `flags` gives the
        one-letter flags of a Python command line, `name` the name of its program."""
        self.found: dict[int, UnobservedProcess] = {}
        self._injected, self._flags, self._name, self._proc = injected.encode(), flags, name, proc
        self._processes = processes
        self._living = set(processes.roots())
        """Those of the last look."""
        self._decided: set[int] = set()
        self._words: dict[int, list[str]] = {}
        """What the processes that load a framework unobserved were started with."""

    def look(self) -> None:
        """Check the program's processes that were found last time, then find new ones."""
        for process in self._living - self._decided:
            self._look_at(process)
        self._living = set(self._processes.living())
        self._decided &= self._living

    def _look_at(self, process: int) -> None:
        words = [word.decode(errors="replace") for word in self._read(f"{process}/cmdline").split(b"\0")[:-1]]
        if not words or not self._is_python(process):
            return
        why = self._explain_hidden(words, self._read(f"{process}/environ"))
        if not why:
            self._decided.add(process)
            return
        mapped = self._read(f"{process}/maps")
        framework = next((name for name, mark in FRAMEWORKS.items() if mark in mapped), "")
        if framework:
            self._decided.add(process)
            self._words[process] = words
            stat = read_stat(process, self._proc)
            if stat is None or self._words.get(stat.parent) != words:  # what an unobserved process forks belongs to it
                self.found[process] = UnobservedProcess(self._name(words), framework, why)

    def _explain_hidden(self, words: list[str], environment: bytes) -> str:
        """Why a process that was started so does not observe itself; '' where it does."""
        flags = self._flags(words)
        for flag in "IES":
            if flag in flags:
                return f"python -{flag} ignores PYTHONPATH"
        variables = dict(variable.partition(b"=")[::2] for variable in environment.split(b"\0"))
        injected = self._injected in variables.get(b"PYTHONPATH", b"").split(b":")
        return "" if injected and COLLECT_VARIABLE in variables else "started with an environment that hides PYTHONPATH"

    def _is_python(self, process: int) -> bool:
        try:
            return Path(os.readlink(self._proc / str(process) / "exe")).name.startswith(("python", "pypy"))
        except OSError:
            return False

    def _read(self, name: str) -> bytes:
        try:
            return (self._proc / name).read_bytes()
        except OSError:
            return b""  # it has ended, or is somebody else's


@contextmanager
def keep_looking(lookout: Lookout) -> Iterator[None]:
    """Look at regular intervals, in a thread, until the block ends."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(INTERVAL_S):
            lookout.look()

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def describe_unobserved(unseen: list[UnobservedProcess]) -> str:
    """A line that says which processes were not observed and why; '' for none."""
    if not unseen:
        return ""
    reasons: dict[tuple[str, str], int] = {}
    for process in unseen:
        reasons[process.program, process.why] = reasons.get((process.program, process.why), 0) + 1
    named = [f"{program}{f' ({count} times)' if count > 1 else ''}: {why}"
             for (program, why), count in list(reasons.items())[:MOST_NAMED]]  # fmt: skip
    rest = f"; and {len(reasons) - MOST_NAMED} more" if len(reasons) > MOST_NAMED else ""
    frameworks = " and ".join(sorted({process.framework for process in unseen}))
    subject = "a process" if len(unseen) == 1 else f"{len(unseen)} processes"
    verb = "was" if len(unseen) == 1 else "were"
    return f"{subject} that loaded {frameworks} {verb} not observed: {'; '.join(named)}{rest}"
