"""Times the stages of a program outside its steps: imports, files of weights, compilation, and observing itself.

Every Python process of a program has stages, with a framework or without. They are appended to `<process>.stages`, a
line of JSON each. Imports are timed by the lock that the interpreter takes for every module. The lock's manager is made
before a module is looked for and left when the module is loaded. So no frame of the collector stands in a traceback,
and the lock stays the interpreter's own. Where stages of one kind are nested, only the outermost is recorded; of nested
imports, those of other packages that take long are recorded too.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
from _thread import _local as thread_local
from _thread import get_native_id
from _weakref import ref
from contextlib import contextmanager
from time import perf_counter_ns as now
from typing import Any

from . import ROOT
from .facts import encode_fact

WORTH_WRITING_NS = 10_000_000
"""A stage this long is written when it ends, so that a killed program loses short ones only."""
MOST = 20_000
"""Stages of a process that are recorded: a program may try a failing import again and again."""

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
"""By the module whose import defines them: the modules that hold functions which save and load weights, and the names
of the functions. NumPy's are not among them: programs read their data with them, and may override what saves arrays."""
DYNAMO, NUMBA = "torch._dynamo.callback", "numba.core.event"
"""Modules that report when PyTorch and Numba compile."""
AGAIN, BACKWARD = "again", "backward"
"""Details of a compilation: the code was compiled before; it is a backward, compiled at its first call."""


class _ThreadState(thread_local):
    """The stages that are open in the calling thread."""

    importing: Any = None
    """A weak reference to the outermost import. It dies where taking the lock failed."""
    package = ""
    """The package of the innermost import."""
    open: tuple = ()
    """Names of the other stages, the outermost first."""
    compiling = 0
    """When the outermost compilation began, ns; 0 where none is open."""
    compilations = 0


class Stages:
    """The stages of this process, from `time_stages` until it ends."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.mine = _ThreadState()
        self.kept = 0
        self._lines: list = []
        self._begin_process()

    def _begin_process(self) -> None:
        self._process = os.getpid()
        self._lines = [{"process": self._process, "begun": now()}]

    def add(self, kind: str, name: str, detail: str, start: int, end: int) -> None:
        """Record a stage of the calling thread that has ended; `start` and `end` in ns."""
        if self.kept >= MOST:
            return
        self.kept += 1
        line = {"kind": kind, "name": name, "what": detail, "thread": get_native_id(), "start": start, "end": end}
        self._lines.append(line)
        if end - start >= WORTH_WRITING_NS:
            self.write()

    @contextmanager
    def stage(self, name: str, detail: str = "") -> Any:
        """Record what runs inside as this stage, unless the stage is open already."""
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
            self.add("stage", name, detail, start, now())

    def write(self) -> None:
        """Append the recorded stages to the file. After a failure nothing more is recorded."""
        # Another thread may append meanwhile.
        lines = self._lines[:]
        del self._lines[: len(lines)]
        text = b"".join(encode_fact(line) + b"\n" for line in lines)
        try:
            path = os.path.join(self.directory, f"{self._process}.stages")
            file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                os.write(file, text)
            finally:
                os.close(file)
        except OSError:
            self.kept = MOST

    def finish(self) -> None:
        self._lines.append({"process": self._process, "ended": now()})
        self.write()

    def finish_if_used(self) -> None:
        """Finish before `os._exit`, which runs no registered function. Forked children end by it.

        A child that recorded no stage writes nothing, not even that it began.
        """
        if self.kept:
            self.finish()

    def begin_in_child(self) -> None:
        """In a forked child: drop the parent's stages, and begin with none."""
        self.mine = _ThreadState()
        self.kept = 0
        self._begin_process()

    # ---- imports ----------------------------------------------------------------------------------------------

    def time_imports(self) -> None:
        """Replace the manager of the interpreter's module locks. An interpreter without one has no timed imports."""
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
                nested = mine.package not in (self.around, ROOT)
                mine.package = self.around
                if self.outermost:
                    mine.importing = None
                if self.outermost or (nested and end - self.start >= WORTH_WRITING_NS):
                    stages.add("stage", "import", name, self.start, end)
                if name in FILES or name in (DYNAMO, NUMBA):
                    stages.follow_module(name)

        TimedLockManager.__name__ = TimedLockManager.__qualname__ = manager.__name__
        TimedLockManager.__module__ = manager.__module__
        bootstrap._ModuleLockManager = TimedLockManager

    def follow_module(self, name: str) -> None:
        """Time what an imported module saves, loads or compiles."""
        module: Any = sys.modules.get(name)
        if module is None:
            return
        try:
            if name == DYNAMO:
                self._follow_dynamo(module.callback_handler)
            elif name == NUMBA:
                listener = {
                    "on_start": lambda _self, _event: self._begin_compilation(),
                    "on_end": lambda _self, _event: self._end_compilation("numba"),
                }
                module.register("numba:compile", type("Listener", (module.Listener,), listener)())
            else:
                places, functions = FILES[name]
                for function in functions:
                    self._time(places, function)
        except Exception:
            pass  # an unknown version of the module: its stages are not timed

    # ---- files of weights -------------------------------------------------------------------------------------

    def _time(self, places: tuple, path: str) -> None:
        """Replace a function by a timed one in every module that holds it."""
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
                timed[id(original)] = self._make_timed(original, path)
            setattr(owner, name, timed[id(original)])

    def _make_timed(self, original: Any, path: str) -> Any:
        stage = self.stage

        @functools.wraps(original)
        def timed(*args: Any, **kwargs: Any) -> Any:
            with stage("checkpoint", f"{path} {_line_of(sys._getframe(1))}".strip()):
                return original(*args, **kwargs)

        timed._sonda_timed = True  # type: ignore[attr-defined]
        return timed

    # ---- compilation ------------------------------------------------------------------------------------------

    def _begin_compilation(self, *_about: Any) -> None:
        mine = self.mine
        if not mine.compilations:
            mine.compiling = now()
        mine.compilations += 1

    def _follow_dynamo(self, handler: Any) -> None:
        """Follow PyTorch's compilations, also after `torch.compiler.reset()`, which drops all callbacks."""
        clear = handler.clear

        def follow() -> None:
            handler.register_start_callback(self._begin_compilation)
            handler.register_end_callback(self._end_dynamo)

        def clear_and_follow() -> None:
            clear()
            follow()

        handler.clear = clear_and_follow
        follow()

    def _end_dynamo(self, about: Any = None) -> None:
        """End a compilation of PyTorch's. Its id `3/0` holds the number of the code and how often it was compiled
        before. A backward is compiled once for each of its forwards."""
        trigger = getattr(getattr(about, "callback_trigger", None), "name", "")
        times = str(getattr(about, "compile_id", "")).strip("[]").rpartition("/")[2].partition("_")[0]
        detail = BACKWARD if trigger == "LAZY_BACKWARD" else AGAIN if times not in ("", "0") else ""
        self._end_compilation("torch.compile", detail)

    def _end_compilation(self, name: str, detail: str = "") -> None:
        mine = self.mine
        if mine.compilations:
            mine.compilations -= 1
            if not mine.compilations:
                self.add("compile", name, detail, mine.compiling, now())


def _line_of(frame: Any) -> str:
    """The line that a frame is in, `train.py:41`; '' for none."""
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}" if frame is not None else ""


_begun: list = []
"""The stages of this process, once they are timed."""


def time_stages(directory: str) -> None:
    """Time the stages of this process until it ends."""
    stages = Stages(directory)
    _begun.append(stages)
    stages.time_imports()
    # The function that is registered first is called last.
    atexit.register(stages.finish)
    os.register_at_fork(after_in_child=stages.begin_in_child)
    _finish_before_hard_exit(stages)


def _finish_before_hard_exit(stages: Stages) -> None:
    leave = os._exit

    @functools.wraps(leave)
    def _exit(*status: Any, **named: Any) -> Any:
        stages.finish_if_used()
        return leave(*status, **named)

    os._exit = _exit


@contextmanager
def record_observing() -> Any:
    """Record what runs inside as the stage `observing`: it is work of the collector, not of the program."""
    if not _begun:
        yield
        return
    with _begun[0].stage("observing"):
        yield
