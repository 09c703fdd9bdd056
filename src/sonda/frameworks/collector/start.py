"""Waits for a program to import a framework, then observes it. The injected `sitecustomize` calls `start`.

Nothing here may disturb the program. A failure is written beside the events, and the program goes on unobserved.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

from . import ROOT, stages
from .failure import report_failure
from .watch import end_block, watch_block

VARIABLE = "SONDA_COLLECT"
"""Environment variable that holds the settings, as JSON."""
OBSERVERS = {
    "torch": ("torch.observe.observer", "observe_torch"),
    "tensorflow": ("tensorflow.observe.observer", "observe_tensorflow"),
    "keras": ("tensorflow.observe.keras", "observe_keras"),
    "jax": ("jax.observe.observer", "observe_jax"),
    "pytensor": ("pytensor.observe.observer", "observe_pytensor"),
    **dict.fromkeys(
        (
            "transformers.trainer",
            *(f"{package}.loops.{loop}_loop" for package in ("lightning.pytorch", "pytorch_lightning")
              for loop in ("evaluation", "prediction")),
        ),
        ("torch.observe.evaluations", "observe_evaluations"),
    ),
}  # fmt: skip
"""By the name of a package or module: the observing module beside this collector, and the function in it,
`observe_…(package, settings, counting)`, which is called once the package is imported."""

TRIAL = "torch.observe.trial.session"
"""The module that tries a remedy, in place of observing."""


def start() -> None:
    """Begin to wait for frameworks, with the settings in the environment."""
    settings = json.loads(os.environ[VARIABLE])
    settings["place"] = _find_place()
    if "trial" in settings:
        _start_trial(settings)
        return
    stages.time_stages(settings["directory"])
    waiter = _ImportWaiter(settings)
    sys.meta_path.insert(0, waiter)
    if os.path.exists(os.path.join(settings["directory"], "counting.json")):
        # Counters are opened before anything starts threads, which inherit them. Without requested counters there is
        # time until a framework is imported.
        waiter.open_counting()


def _start_trial(settings: dict) -> None:
    """Wait for PyTorch to try a remedy; nothing is observed meanwhile."""
    importlib.import_module(f"{ROOT}.{TRIAL}").guard_process(settings)
    sys.meta_path.insert(0, _ImportWaiter(settings, {"torch": (TRIAL, "begin_trial")}))


def _find_place() -> str:
    """The current directory; '' where it was removed."""
    try:
        return os.getcwd()
    except OSError:
        return ""


class ObservedBlock:
    """A block of this process, observed until `end`: frameworks imported before it and inside it."""

    def __init__(self, settings: dict) -> None:
        settings = {**settings, "place": _find_place()}
        self.watch = watch_block(settings)
        self._waiter = _ImportWaiter(settings)
        for name in OBSERVERS:
            if name in sys.modules:
                self._waiter.imported(sys.modules[name])
        sys.meta_path.insert(0, self._waiter)

    def unseen(self) -> list:
        """Names of what the program runs and what nobody observes."""
        return [name for framework in self.watch.observed for name in framework.unseen()]

    def end(self) -> None:
        """Put all replaced functions back, and write the events."""
        if self._waiter in sys.meta_path:
            sys.meta_path.remove(self._waiter)
            end_block()
            self.watch.recorder.close()


class _ImportWaiter:
    """An import finder that leaves finding to the others and observes a framework once it is imported."""

    def __init__(self, settings: dict, observers: dict = OBSERVERS) -> None:
        self.settings = settings
        self.counting: Any = None
        self.awaited = dict(observers)
        """Frameworks that are not imported yet. One may import another, so this finder stays until the end."""

    def open_counting(self) -> None:
        """Open counters before the framework starts threads."""
        from .counters.process import Counting

        try:
            self.counting = self.counting or Counting(self.settings["directory"])
        except Exception:
            pass  # the watch tries again once the framework is imported

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self.awaited:
            return None
        # A program may look for a framework without importing it, so it stays awaited until it is imported.
        for finder in sys.meta_path:
            spec: Any = finder.find_spec(name, path, target) if finder is not self else None
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, self)
                return spec
        return None

    def imported(self, module: Any) -> None:
        """Observe a framework when it is imported for the first time."""
        entry = self.awaited.pop(module.__name__, None)
        if entry is None:
            return
        try:
            with stages.record_observing():
                observer = importlib.import_module(f"{ROOT}.{entry[0]}")
                getattr(observer, entry[1])(module, self.settings, self.counting)
        except Exception:
            report_failure(self.settings["directory"])


class _Loader:
    """Loads a module with its original loader, then begins to observe it."""

    def __init__(self, loader: Any, waiter: _ImportWaiter) -> None:
        self.loader = loader
        self.waiter = waiter

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def create_module(self, spec: Any) -> Any:
        return self.loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__loader__ = module.__spec__.loader = self.loader
        if "trial" not in self.waiter.settings:
            self.waiter.open_counting()
        self.loader.exec_module(module)
        self.waiter.imported(module)
