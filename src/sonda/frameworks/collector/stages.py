"""Stages of a program outside its steps: imports, files of weights, compilation, and what observing itself takes.

Every Python process of a program has them, with a framework or without. They are appended to `<process>.stages`: a line
of JSON each. Imports are timed by the lock that the interpreter takes for every module that it loads: its manager is
made before a module is looked for and left when it is loaded, so no frame of ours stands in a traceback, and the lock
is the interpreter's own. Of what happens inside of its own kind the outermost is kept, and of imports also other
packages that take long.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import sys
from _thread import _local as thread_local
from _thread import get_native_id
from _weakref import ref
from contextlib import contextmanager
from time import perf_counter_ns as now
from typing import Any

from . import ROOT

WORTH_WRITING_NS = 10_000_000
"""A stage this long is written when it ends: a killed program loses short ones only."""
MOST = 20_000
"""Stages of a process that are kept: a program may try an import that fails again and again."""

FILES = {
    "torch": (("torch", "torch.serialization"), ("save", "load")),
    "torch.distributed.checkpoint": (
        ("torch.distributed.checkpoint", "torch.distributed.checkpoint.state_dict_saver",
         "torch.distributed.checkpoint.state_dict_loader"),
        ("save", "load"),
    ),
    "safetensors.torch": (("safetensors.torch",), ("save_file", "load_file", "save_model", "load_model")),
    "safetensors.numpy": (("safetensors.numpy",), ("save_file", "load_file")),
    "safetensors.flax": (("safetensors.flax",), ("save_file", "load_file")),
    "keras.src.saving.saving_api": (
        ("keras.src.saving.saving_api",), ("save_model", "load_model", "save_weights", "load_weights"),
    ),
    "tensorflow.python.checkpoint.checkpoint": (
        ("tensorflow.python.checkpoint.checkpoint",), ("Checkpoint.write", "Checkpoint.read"),
    ),
    "tensorflow.python.saved_model.save": (("tensorflow.python.saved_model.save",), ("save",)),
    "flax.training.checkpoints": (("flax.training.checkpoints",), ("save_checkpoint", "restore_checkpoint")),
    "orbax.checkpoint._src.checkpointers.checkpointer": (
        ("orbax.checkpoint._src.checkpointers.checkpointer",), ("Checkpointer.save", "Checkpointer.restore"),
    ),
}  # fmt: skip
"""By the module whose import makes them: where functions that save and load weights are, and their names. Not NumPy's:
reading arrays is how data are read, and a class of the program's may override what saves them."""
DYNAMO, NUMBA = "torch._dynamo.callback", "numba.core.event"
"""Modules that tell when PyTorch and Numba compile, once they are imported."""
AGAIN, BACKWARD = "again", "backward"
"""Said of the compilation of code that was compiled before, and of a backward that waited for its first call."""


class _ThreadState(thread_local):
    """What is open in the calling thread."""

    importing: Any = None
    """A weak reference to the outermost import: it dies where taking the lock failed."""
    package = ""
    """The package of the innermost import."""
    open: tuple = ()
    """Names of the other stages, outermost first."""
    compiling = 0
    """When the outermost compilation began, ns; 0: none is open."""
    compilations = 0


class Stages:
    """Of this process, from `begin` on until it ends."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.mine = _ThreadState()
        self.kept = 0
        self._lines: list = []
        self._begin_process()

    def _begin_process(self) -> None:
        self._process = os.getpid()
        self._lines = [{"process": self._process, "begun": now()}]

    def keep(self, kind: str, name: str, what: str, start: int, end: int) -> None:
        """A stage of the calling thread has ended."""
        if self.kept >= MOST:
            return
        self.kept += 1
        line = {"kind": kind, "name": name, "what": what, "thread": get_native_id(), "start": start, "end": end}
        self._lines.append(line)
        if end - start >= WORTH_WRITING_NS:
            self.write()

    @contextmanager
    def stage(self, name: str, what: str = "") -> Any:
        """What runs inside is this stage, unless it is open already."""
        around = self.mine.open
        if name in around:
            yield
            return
        self.mine.open = (*around, name)
        start = now()
        try:
            yield
        finally:
            self.mine.open = around
            self.keep("stage", name, what, start, now())

    def write(self) -> None:
        """Append what was kept; where that fails, nothing is kept any more."""
        # Another thread may append meanwhile.
        lines = self._lines[:]
        del self._lines[: len(lines)]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        try:
            path = os.path.join(self.directory, f"{self._process}.stages")
            file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                os.write(file, text.encode())
            finally:
                os.close(file)
        except OSError:
            self.kept = MOST

    def finish(self) -> None:
        self._lines.append({"process": self._process, "ended": now()})
        self.write()

    def leave(self) -> None:
        """The process ends by `os._exit`, which runs nothing that was registered: as forked children do.

        A child that kept nothing has told nobody that it began.
        """
        if self.kept:
            self.finish()

    def after_fork(self) -> None:
        """A forked child has stages of its own; those of its parent are the parent's."""
        self.mine = _ThreadState()
        self.kept = 0
        self._begin_process()

    # ---- imports ----------------------------------------------------------------------------------------------

    def time_imports(self) -> None:
        """Stand before the manager of the interpreter's module locks. Where there is none, imports are not timed."""
        bootstrap: Any = sys.modules.get("_frozen_importlib")
        manager: Any = getattr(bootstrap, "_ModuleLockManager", None)
        if manager is None:
            return
        stages = self

        class TimedLockManager(manager):
            def __init__(self, name: str) -> None:
                manager.__init__(self, name)
                mine = stages.mine
                around = mine.importing
                self.outermost = (around is None or around() is None) and not name.startswith(ROOT)
                if self.outermost:
                    mine.importing = ref(self)
                self.around, mine.package = mine.package, name.partition(".")[0]
                self.start = now()

            def __exit__(self, *args: Any, **named: Any) -> None:
                manager.__exit__(self, *args, **named)
                name, end, mine = self._name, now(), stages.mine
                other = mine.package not in (self.around, ROOT)
                mine.package = self.around
                if self.outermost:
                    mine.importing = None
                if self.outermost or (other and end - self.start >= WORTH_WRITING_NS):
                    stages.keep("stage", "import", name, self.start, end)
                if name in FILES or name in (DYNAMO, NUMBA):
                    stages.imported(name)

        TimedLockManager.__name__ = TimedLockManager.__qualname__ = manager.__name__
        TimedLockManager.__module__ = manager.__module__
        bootstrap._ModuleLockManager = TimedLockManager

    def imported(self, name: str) -> None:
        """A module was imported that saves, loads or compiles."""
        module: Any = sys.modules.get(name)
        if module is None:
            return
        try:
            if name == DYNAMO:
                self._follow_dynamo(module.callback_handler)
            elif name == NUMBA:
                listener = {
                    "on_start": lambda _self, _event: self._compilation_begins(),
                    "on_end": lambda _self, _event: self._compilation_ends("numba"),
                }
                module.register("numba:compile", type("Listener", (module.Listener,), listener)())
            else:
                places, functions = FILES[name]
                for function in functions:
                    self._time(places, function)
        except Exception:
            pass  # another version of it: what it does is not told apart

    # ---- files of weights -------------------------------------------------------------------------------------

    def _time(self, places: tuple, path: str) -> None:
        """Put a timed function in the place of one, wherever it is known."""
        *holders, name = path.split(".")
        timed: dict = {}
        for place in places:
            owner: Any = sys.modules.get(place)
            for holder in holders:
                owner = getattr(owner, holder, None)
            original = getattr(owner, name, None)
            if original is None or hasattr(original, "_sonda_timed"):
                continue
            if id(original) not in timed:
                timed[id(original)] = self._timed(original, path)
            setattr(owner, name, timed[id(original)])

    def _timed(self, original: Any, path: str) -> Any:
        stage = self.stage

        @functools.wraps(original)
        def timed(*args: Any, **kwargs: Any) -> Any:
            with stage("checkpoint", path):
                return original(*args, **kwargs)

        timed._sonda_timed = True  # type: ignore[attr-defined]
        return timed

    # ---- compilation ------------------------------------------------------------------------------------------

    def _compilation_begins(self, *_about: Any) -> None:
        mine = self.mine
        if not mine.compilations:
            mine.compiling = now()
        mine.compilations += 1

    def _follow_dynamo(self, handler: Any) -> None:
        """Be told of PyTorch's compilations, also after `torch.compiler.reset()`, which forgets whom to tell."""
        clear = handler.clear

        def follow() -> None:
            handler.register_start_callback(self._compilation_begins)
            handler.register_end_callback(self._dynamo_ends)

        def clear_and_follow() -> None:
            clear()
            follow()

        handler.clear = clear_and_follow
        follow()

    def _dynamo_ends(self, about: Any = None) -> None:
        """The number of a compilation is that of the code and how often it was compiled before: `3/0`. A backward is
        compiled once for each of its forwards."""
        trigger = getattr(getattr(about, "callback_trigger", None), "name", "")
        times = str(getattr(about, "compile_id", "")).strip("[]").rpartition("/")[2].partition("_")[0]
        what = BACKWARD if trigger == "LAZY_BACKWARD" else AGAIN if times not in ("", "0") else ""
        self._compilation_ends("torch.compile", what)

    def _compilation_ends(self, name: str, what: str = "") -> None:
        mine = self.mine
        if mine.compilations:
            mine.compilations -= 1
            if not mine.compilations:
                self.keep("compile", name, what, mine.compiling, now())


_begun: list = []
"""The stages of this process, once they are timed."""


def time_stages(directory: str) -> None:
    """Time the stages of this process until it ends."""
    stages = Stages(directory)
    _begun.append(stages)
    stages.time_imports()
    # The first that is registered is the last that is called.
    atexit.register(stages.finish)
    os.register_at_fork(after_in_child=stages.after_fork)
    _finish_before_hard_exit(stages)


def _finish_before_hard_exit(stages: Stages) -> None:
    leave = os._exit

    @functools.wraps(leave)
    def _exit(*status: Any, **named: Any) -> Any:
        stages.leave()
        return leave(*status, **named)

    os._exit = _exit


@contextmanager
def record_observing() -> Any:
    """What runs inside is Sonda's own work, and no stage of the program."""
    if not _begun:
        yield
        return
    with _begun[0].stage("observing"):
        yield
