"""What the injected `sitecustomize` calls: wait for the import of frameworks, then observe them.

Nothing here may disturb the program: a failure is written beside the events and the program goes on unobserved.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

from . import stages
from .failure import report_failure

VARIABLE = "SONDA_COLLECT"
"""Environment variable that holds the settings, as JSON."""
OBSERVERS = {
    "torch": ("start", "observe"),
    "tensorflow": ("tensorflow_observer", "observe_tensorflow"),
    "keras": ("keras_observer", "observe_keras"),
    "jax": ("jax_observer", "observe_jax"),
    "pytensor": ("pytensor_observer", "observe_pytensor"),
}
"""By the name of a package: the module of this collector, and in it the function `observe(package, settings, counting)`
that observes it once it is imported."""


def start() -> None:
    """Begin to wait for frameworks, with the settings of the environment."""
    settings = json.loads(os.environ[VARIABLE])
    stages.begin(settings["directory"])
    waiter = _Waiter(settings)
    sys.meta_path.insert(0, waiter)
    if os.path.exists(os.path.join(settings["directory"], "counting.json")):
        # Before anything starts threads, which then inherit the counters. What is always counted can wait.
        waiter.open_counting()


class _Waiter:
    """A finder that lets the ordinary finders find a framework and acts once it is imported."""

    def __init__(self, settings: dict) -> None:
        self.settings = settings
        self.counting: Any = None
        self.awaited = dict(OBSERVERS)
        """Frameworks that were not imported yet. One may import the next, so this finder stays until the end."""

    def open_counting(self) -> None:
        """Open counters before the framework starts threads."""
        from .counting import Counting

        try:
            self.counting = self.counting or Counting(self.settings["directory"])
        except Exception:
            pass  # tried again once the framework is there

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self.awaited:
            return None
        # Programs ask where a framework is without importing it, so it is awaited until it is imported.
        for finder in sys.meta_path:
            spec: Any = finder.find_spec(name, path, target) if finder is not self else None
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, self)
                return spec
        return None

    def imported(self, module: Any) -> None:
        """Observe a framework, the first time that it is imported."""
        entry = self.awaited.pop(module.__name__, None)
        if entry is None:
            return
        try:
            with stages.observing():
                observer = importlib.import_module(f"{__package__}.{entry[0]}")
                getattr(observer, entry[1])(module, self.settings, self.counting)
        except Exception:
            report_failure(self.settings["directory"])


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
        self.waiter.imported(module)


def observe(torch: Any, settings: dict, counting: Any = None) -> None:
    """Observe PyTorch in this process until it ends, with counters that are open already."""
    from .children import begin_in_child
    from .torch_observer import TorchObserver
    from .watch import Observed, watch_process

    watch = watch_process(settings, counting)
    observer = TorchObserver(watch.recorder, torch, watch.schedule, watch.counting, watch.phases)
    observer.install()
    observer.replace(torch, "set_num_threads", observer.habits.wrap_set_threads)
    if observer.marks is not None:
        observer.replace(torch.cuda.CUDAGraph, "replay", observer.habits.wrap_replay)

    def steps() -> int:
        """The schedule's, less those that other frameworks announced."""
        return watch.schedule.steps - sum(one.steps() for one in watch.observed if one is not observed)

    observed = Observed(
        "torch",
        observer.remove,
        steps,
        observer.habits.threads,
        lambda: _costs(observer),
        lambda: {"habits": observer.habits.facts()} if observer.habits.noticed else {},
        lambda stream: begin_in_child(observer, watch.schedule, stream),
    )
    watch.add(observed, torch=str(torch.__version__))
    watch.recorder.state(isa=torch.backends.cpu.get_cpu_capability())


def state_versions(recorder: Any, torch: Any) -> None:
    """State which process this is and what it runs on, where PyTorch alone is observed."""
    from .watch import rank

    recorder.state(
        process=os.getpid(),
        rank=rank(recorder),
        versions={"python": sys.version.split()[0], "torch": str(torch.__version__)},
        threads=torch.get_num_threads(),
        isa=torch.backends.cpu.get_cpu_capability(),
    )


def finish(observer: Any) -> None:
    """State what only the end knows, and observe no more: of a `TorchObserver` that is alone."""
    from .reading_cost import reading_costs
    from .watch import state_end

    recorder = observer.recorder
    try:
        if recorder.written or recorder.streams:
            costs = {**_costs(observer), **reading_costs(observer.counting)}
            facts = {"threads": observer.torch.get_num_threads(), **costs}
            state_end(recorder, observer.schedule, observer.counting, facts)
        recorder.state(finished=True)
        observer.remove()
    except Exception:
        report_failure(recorder.directory)


def _costs(observer: Any) -> dict:
    """What a layer and a phase cost, ns; nothing where that cannot be tried in this process any more."""
    from .torch_cost import recording_costs

    try:
        return recording_costs(observer.torch, observer.layers.counting, observer.layers.marked)
    except Exception:
        return {}
