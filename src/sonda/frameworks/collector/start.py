"""What the injected `sitecustomize` calls: wait for the framework's import, then observe.

Nothing here may disturb the program: a failure is written beside the events and the program goes on unobserved.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import sys
import traceback
from time import perf_counter_ns as now

VARIABLE = "SONDA_COLLECT"
"""Environment variable that holds the settings, as JSON."""


def start() -> None:
    """Begin to wait for PyTorch, with the settings of the environment."""
    settings = json.loads(os.environ[VARIABLE])
    sys.meta_path.insert(0, _Waiter(settings))


class _Waiter:
    """A finder that lets the ordinary finders find the framework and acts once it is imported."""

    def __init__(self, settings: dict) -> None:
        self.settings = settings

    def find_spec(self, name: str, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        spec.loader = _Loader(spec.loader, self.settings)
        return spec


class _Loader:
    """Loads as the loader it stands before, then begins to observe."""

    def __init__(self, loader, settings: dict) -> None:
        self.loader = loader
        self.settings = settings

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module) -> None:
        module.__loader__ = module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        try:
            observe(module, self.settings)
        except Exception:
            report_failure(self.settings["directory"])


def observe(torch, settings: dict) -> None:
    """Observe this process until it ends."""
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
    )
    observer = TorchObserver(recorder, torch, schedule)
    state_versions(recorder, torch)
    observer.install()
    atexit.register(finish, observer)


def state_versions(recorder, torch) -> None:
    """State which process this is and what it runs on."""
    recorder.state(
        process=os.getpid(),
        rank=int(os.environ.get("RANK", "0") or 0),
        versions={"python": sys.version.split()[0], "torch": str(torch.__version__)},
        threads=torch.get_num_threads(),
    )


def finish(observer) -> None:
    """State what only the end knows: the threads used, what observing cost, what was left out."""
    recorder = observer.recorder
    try:
        if recorder.written or recorder.streams:
            recorder.state(
                threads=observer.torch.get_num_threads(),
                span_ns=observer.cost(),
                notes=observer.schedule.notes,
                finished=True,
            )
        observer.remove()
    except Exception:
        report_failure(recorder.directory)


def report_failure(directory: str) -> None:
    """Leave the reason for the parent, which prints it in one line."""
    try:
        with open(os.path.join(directory, f"{os.getpid()}.failure"), "w", encoding="utf-8") as file:
            file.write(traceback.format_exc())
    except OSError:
        pass
