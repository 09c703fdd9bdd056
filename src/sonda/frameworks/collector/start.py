"""What the injected `sitecustomize` calls: wait for the framework's import, then observe.

Nothing here may disturb the program: a failure is written beside the events and the program goes on unobserved.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import sys
import traceback
from time import perf_counter_ns as now
from typing import Any

VARIABLE = "SONDA_COLLECT"
"""Environment variable that holds the settings, as JSON."""


def start() -> None:
    """Begin to wait for PyTorch, with the settings of the environment."""
    settings = json.loads(os.environ[VARIABLE])
    waiter = _Waiter(settings)
    sys.meta_path.insert(0, waiter)
    if os.path.exists(os.path.join(settings["directory"], "counting.json")):
        # Before anything starts threads, which then inherit the counters. What is always counted can wait.
        waiter.open_counting()


class _Waiter:
    """A finder that lets the ordinary finders find the framework and acts once it is imported."""

    def __init__(self, settings: dict) -> None:
        self.settings = settings
        self.counting: Any = None

    def open_counting(self) -> None:
        """Open counters before the framework starts threads."""
        from .counting import Counting

        try:
            self.counting = self.counting or Counting(self.settings["directory"])
        except Exception:
            pass  # tried again once the framework is there

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch":
            return None
        # Programs ask where PyTorch is without importing it, so this finder stays until it is imported.
        for finder in sys.meta_path:
            spec: Any = finder.find_spec(name, path, target) if finder is not self else None
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, self)
                return spec
        return None


class _Loader:
    """Loads as the loader it stands before, then begins to observe."""

    def __init__(self, loader: Any, waiter: _Waiter) -> None:
        self.loader = loader
        self.waiter = waiter

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def create_module(self, spec: Any) -> Any:
        return self.loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__loader__ = module.__spec__.loader = self.loader
        self.waiter.open_counting()
        self.loader.exec_module(module)
        if self.waiter in sys.meta_path:
            sys.meta_path.remove(self.waiter)
            try:
                observe(module, self.waiter.settings, self.waiter.counting)
            except Exception:
                report_failure(self.waiter.settings["directory"])


def observe(torch: Any, settings: dict, counting: Any = None) -> None:
    """Observe this process until it ends, with counters that are open already."""
    from .benchcast import join_from_environment
    from .modelled import begin_modelling
    from .participation import join_windows
    from .recorder import Recorder
    from .schedule import Schedule
    from .torch_observer import TorchObserver

    recorder = Recorder(settings["directory"])
    schedule = Schedule(
        count=settings.get("count", True),
        first=settings.get("first", 0),
        last=settings.get("last", 0),
        deadline=now() + int(settings["max_time"] * 1e9) if settings.get("max_time") else 0,
        size_cap=settings.get("size_cap", 0),
        profile=settings.get("kernels", True),
        replay=settings.get("replay", False),
    )
    observer = TorchObserver(recorder, torch, schedule, counting)
    state_versions(recorder, torch)
    observer.install()
    atexit.register(finish, observer)
    _finish_before_hard_exit(observer)
    _write_before_exec(observer)
    begin_modelling(observer, announced=False)
    join_from_environment(observer)
    join_windows(observer)


def _finish_before_hard_exit(observer: Any) -> None:
    """`os._exit` runs nothing that was registered for the end; in a forked child there is nothing to write."""
    leave = os._exit

    def _exit(status: Any) -> None:
        if not observer.recorder.off:
            finish(observer)
            observer.recorder.flush()
        leave(status)

    os._exit = _exit  # type: ignore[assignment]


def _write_before_exec(observer: Any) -> None:
    """A program that replaces itself ends here for the collector; where it cannot be replaced, it goes on.

    All of `os.exec*` call these two.
    """
    os.execv = _written_first(os.execv, observer)
    os.execve = _written_first(os.execve, observer)


def _written_first(replace: Any, observer: Any) -> Any:
    recorder = observer.recorder
    costs: dict = {}

    @functools.wraps(replace)
    def written_first(*words: Any, **named: Any) -> Any:
        if recorder.off:  # a forked child, which has nothing to write
            return replace(*words, **named)
        try:
            costs.update(costs or _costs(observer))  # once: `execvp` tries one directory after the other
            _state_end(observer, costs)
            recorder.flush()
        except Exception:
            report_failure(recorder.directory)
        try:
            return replace(*words, **named)
        finally:
            recorder.state(finished=False)

    if replace in os.supports_fd:
        os.supports_fd.add(written_first)
    return written_first


def state_versions(recorder: Any, torch: Any) -> None:
    """State which process this is and what it runs on."""
    recorder.state(
        process=os.getpid(),
        rank=_rank(),
        versions={"python": sys.version.split()[0], "torch": str(torch.__version__)},
        threads=torch.get_num_threads(),
        isa=torch.backends.cpu.get_cpu_capability(),
    )


def _rank() -> int:
    """Which of the processes that train together this is; a program may say so after PyTorch is imported."""
    text = os.environ.get("RANK", "")
    return int(text) if text.isdigit() else 0


def finish(observer: Any) -> None:
    """State what only the end knows, and observe no more."""
    try:
        _state_end(observer, _costs(observer))
        observer.remove()
    except Exception:
        report_failure(observer.recorder.directory)


def _state_end(observer: Any, costs: dict) -> None:
    """State the threads used, what observing cost, what was left out, and that this is all."""
    recorder = observer.recorder
    if recorder.written or recorder.streams:
        recorder.state(
            rank=_rank(),
            threads=observer.torch.get_num_threads(),
            notes=observer.schedule.notes,
            **costs,
            **observer.counting.facts(),
        )
    recorder.state(finished=True)


def _costs(observer: Any) -> dict:
    """What a layer and a phase cost, ns; nothing of a process that ran none."""
    from .torch_cost import layer_cost, phase_cost

    if not (observer.recorder.written or observer.recorder.streams):
        return {}
    return {
        "span_ns": layer_cost(observer.torch, observer.layers.counting),
        "phase_ns": phase_cost(observer.torch),
    }


def report_failure(directory: str) -> None:
    """Leave the reason for the parent, which prints it in one line."""
    try:
        with open(os.path.join(directory, f"{os.getpid()}.failure"), "w", encoding="utf-8") as file:
            file.write(traceback.format_exc())
    except OSError:
        pass
