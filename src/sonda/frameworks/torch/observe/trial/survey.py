"""What a program asks of PyTorch that a remedy could change, and the lines where it does so."""

from __future__ import annotations

import os
import sys
import sysconfig
import weakref
from typing import Any

MOST = 8
"""Loaders, optimizers and models that are noted."""
LIBRARIES = tuple(
    os.path.join(os.path.realpath(path), "")
    for path in {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)


def user_place(skip: Any = None) -> dict:
    """File and line of the innermost frame of the user's own code; {} where there is none.

    `skip`: a class. Constructors of it are passed over, so that the line is the one that makes the whole.
    """
    frame: Any = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not _is_library(code.co_filename) and not (skip is not None and _is_constructor(frame, skip)):
            return {"file": os.path.realpath(code.co_filename), "line": frame.f_lineno}
        frame = frame.f_back
    return {}


def _is_library(name: str) -> bool:
    if name.startswith("<"):
        return True
    return os.path.realpath(name).startswith((*LIBRARIES, OURS))


def _is_constructor(frame: Any, kind: Any) -> bool:
    code = frame.f_code
    if code.co_name != "__init__" or not code.co_argcount:
        return False
    return isinstance(frame.f_locals.get(code.co_varnames[0]), kind)


OURS = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))), "")


class Survey:
    """What was seen so far."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.loaders: list = []
        self.optimizers: list = []
        self.models: list = []
        self.made: Any = weakref.WeakKeyDictionary()
        """Places of modules by module."""
        self.called: Any = weakref.WeakKeyDictionary()
        """What is noted of outermost modules that were called, by module."""
        self.set_threads: dict = {}
        self.compiles = False
        self.autocast = False
        self.threads = torch.get_num_threads()

    def facts(self) -> dict:
        """As plain values."""
        torch = self.torch
        main = getattr(sys.modules.get("__main__"), "__file__", None)
        cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
        return {
            "loaders": self.loaders, "optimizers": self.optimizers, "models": self.models, "threads": self.threads,
            "set_threads": self.set_threads, "compiles": self.compiles, "autocast": self.autocast, "cuda": cuda,
            "tensor_cores": bool(cuda and torch.cuda.get_device_capability()[0] >= 8),
            "matmul": torch.get_float32_matmul_precision(),
            "script": {"file": os.path.realpath(main), "line": 1} if main else {},
        }  # fmt: skip

    def note_loader(self, loader: Any) -> None:
        data = self.torch.utils.data
        if len(self.loaders) >= MOST:
            return
        in_map = not isinstance(loader.dataset, data.IterableDataset)
        batched = loader.batch_size is not None and type(loader.batch_sampler) is data.BatchSampler
        try:
            samples = len(loader.dataset) if in_map else 0
        except TypeError:
            samples = 0
        self.loaders.append({
            **user_place(), "workers": loader.num_workers, "batch": loader.batch_size if batched else 0,
            "samples": samples, "pin": bool(loader.pin_memory),
        })  # fmt: skip

    def note_optimizer(self, optimizer: Any, known: Any) -> None:
        if len(self.optimizers) >= MOST:
            return
        settings = optimizer.defaults
        self.optimizers.append({
            **user_place(), "name": type(optimizer).__name__, "can_fuse": "fused" in known,
            "can_foreach": "foreach" in known, "fused": bool(settings.get("fused")),
            "foreach": bool(settings.get("foreach")),
        })  # fmt: skip

    def note_module(self, module: Any) -> None:
        """A module is being made."""
        place = user_place(self.torch.nn.Module)
        if place:
            self.made[module] = place

    def note_call(self, module: Any) -> None:
        """An outermost module is called for the first time."""
        weights = list(module.parameters())
        self.called[module] = {}
        if not weights or len(self.models) >= MOST:
            return
        self.autocast = self.autocast or self.torch.is_autocast_enabled(weights[0].device.type)
        self.compiles = self.compiles or hasattr(module, "_orig_mod") or module._compiled_call_impl is not None
        self.called[module].update({
            **self.made.get(module, {}), "name": type(module).__name__, "images": any(w.dim() == 4 for w in weights),
            "bits": max(w.element_size() * 8 for w in weights), "device": weights[0].device.type,
            "channels_last": any(
                w.dim() == 4 and min(w.shape[1:]) > 1 and not w.is_contiguous() for w in weights
            ),
        })  # fmt: skip
        self.models.append(self.called[module])

    def note_result(self, module: Any, result: Any) -> None:
        """What an outermost module gave."""
        note = self.called.get(module)
        if note and "tensor" not in note:
            note["tensor"] = isinstance(result, self.torch.Tensor) and result.is_floating_point()
