"""Habits of a PyTorch program: how it computes and loads, read where it does, so that nobody advises what is in use.

A look happens at the first forwards of outermost modules and then ever more seldom: options may change on the way, and
a look at a large network takes a while. What training does counts; only where nothing is trained, what inference does.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from typing import Any

from .recorder import Recorder

ALWAYS_LOOKED_AT = 4
"""Forwards that are looked at one by one; later ones at every power of two."""


class Habits:
    """`notice` every forward of an outermost module; `facts` are what was noticed until now."""

    def __init__(self, torch: Any, recorder: Recorder) -> None:
        self._torch = torch
        self._recorder = recorder
        self.begin()

    def begin(self) -> None:
        """Forget what was noticed; also in a forked child."""
        self._calls = 0
        self._threads: Counter = Counter()
        self._noticed: dict = {}
        """By whether it learns: options that were found in use."""
        self._graphs = False
        self._stated: dict = {}

    @property
    def noticed(self) -> bool:
        """Whether there was anything to notice."""
        return bool(self._noticed)

    def notice(self, module: Any, args: tuple, learns: bool) -> None:
        """A module that no other one called is about to run."""
        self._calls = calls = self._calls + 1
        if calls > ALWAYS_LOOKED_AT and calls & (calls - 1):
            return
        try:
            self._threads[self._torch.get_num_threads()] += calls  # later looks stand for more forwards
            self._look(module, args, self._noticed.setdefault(learns, {}))
            facts = self.facts()
        except Exception:  # a module of somebody else's making
            return
        if facts != self._stated:
            self._stated = facts
            self._recorder.state(habits=facts)

    def wrap_replay(self, original: Any) -> Any:
        """`CUDAGraph.replay`: that graphs are in use."""

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self._graphs = True
            return original(*args, **kwargs)

        return wrapper

    def threads(self) -> int:
        """Threads of an operation while the network ran; those of now where it did not."""
        most = self._threads.most_common(1)
        return int(most[0][0] if most else self._torch.get_num_threads())

    def facts(self) -> dict:
        """Options in use, by the names that Sonda's own workloads have for them."""
        noticed = self._noticed.get(True) or self._noticed.get(False) or {}
        found = {
            "compile": bool(noticed.get("compile")) or self._dynamo_ran(),
            "channels_last": bool(noticed.get("channels_last")),
            **{name: noticed[name] for name in ("weights", "autocast", "matmul_precision", "cores") if name in noticed},
        }
        return {**found, **({"cuda_graphs": True} if self._graphs else {})}

    def _look(self, module: Any, args: tuple, noticed: dict) -> None:
        torch = self._torch
        modules = list(module.modules())
        if any(self._compiled(one) for one in modules):
            noticed["compile"] = True
        sizes: Counter = Counter()
        for parameter in module.parameters():
            sizes[str(parameter.dtype).rpartition(".")[2]] += parameter.numel()
        if sizes:
            noticed["weights"] = sizes.most_common(1)[0][0]
        convolutions = [one.weight for one in modules if isinstance(one, torch.nn.modules.conv._ConvNd)]
        given = [value for value in args if type(value) is torch.Tensor]
        # Either of weights and input makes a convolution run with channels last.
        if convolutions and any(self._channels_last(tensor) for tensor in (*convolutions, *given)):
            noticed["channels_last"] = True
        for device in {"cpu", *(tensor.device.type for tensor in given)}:
            if torch.is_autocast_enabled(device):
                noticed["autocast"] = str(torch.get_autocast_dtype(device)).rpartition(".")[2]
        noticed["matmul_precision"] = torch.get_float32_matmul_precision()
        noticed["cores"] = len(os.sched_getaffinity(0))

    def _compiled(self, module: Any) -> bool:
        if getattr(module, "_compiled_call_impl", None) is not None or isinstance(module, self._torch.jit.ScriptModule):
            return True
        eval_frame = sys.modules.get("torch._dynamo.eval_frame")
        return eval_frame is not None and isinstance(module, eval_frame.OptimizedModule)

    def _dynamo_ran(self) -> bool:
        """Whether anything was compiled by `torch.compile`, a module or a function."""
        utils = sys.modules.get("torch._dynamo.utils")
        return utils is not None and utils.counters.get("frames", {}).get("ok", 0) > 0

    def _channels_last(self, tensor: Any) -> bool:
        """Whether a tensor of images lies so in memory; not where both orders are the same."""
        torch = self._torch
        form = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim())
        return form is not None and tensor.is_contiguous(memory_format=form) and not tensor.is_contiguous()
