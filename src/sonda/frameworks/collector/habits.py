"""Habits of a PyTorch program: how it computes and loads, read where it does, so that nobody advises what is in use.

A look happens at the first forward of an outermost module and then ever more seldom: options may change on the way, and
a look at a large network takes a while. Functions that are compiled are looked at likewise, by the modules that they
use. What training does counts; only where nothing is trained, what inference does.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from typing import Any

from .compiled_share import CompiledShare
from .recorder import Recorder
from .torch_values import modules_in, tensors_in


class Habits:
    """`notice` every forward of an outermost module; `facts` are what was noticed until now."""

    def __init__(self, torch: Any, recorder: Recorder) -> None:
        self._torch = torch
        self._recorder = recorder
        self._threads_set = 0
        self.begin()

    def begin(self) -> None:
        """Forget what was noticed; also in a forked child."""
        self._share = CompiledShare(self._torch)
        self._threads: Counter = Counter()
        """By the number of threads that the program has set, 0 where it set none, the forwards that ran with it."""
        self._noticed: dict = {}
        """By whether it learns: options that were found in use."""
        self._cast_inside = ""
        """The type to which autocast casts inside of what was compiled."""
        self._graphs = False
        self._stated: dict = {}

    @property
    def noticed(self) -> bool:
        """Whether there was anything to notice."""
        return bool(self._noticed) or self._graphs or self._share.anything

    def notice(self, module: Any, args: tuple, learns: bool) -> None:
        """A module that no other one called is about to run."""
        calls = self._share.count_module(module, learns)
        if calls and not calls & (calls - 1):
            self._look(calls, [module], args, learns)

    def notice_function(self, function: Any, args: tuple, kwargs: dict, learns: bool) -> None:
        """A function that was compiled, and that no module called, has run."""
        calls = self._share.count_function(learns)
        if not calls & (calls - 1):
            given = (*args, *kwargs.values())
            try:
                modules = modules_in(self._torch, (function, *given))
            except Exception:  # objects of somebody else's making
                return
            self._look(calls, modules, given, learns)

    def wrap_set_threads(self, original: Any) -> Any:
        """`torch.set_num_threads`: how many threads the program chose."""

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            self._threads_set = next((value for value in (*args, *kwargs.values()) if type(value) is int), 0)
            return result

        return wrapper

    def wrap_replay(self, original: Any) -> Any:
        """`CUDAGraph.replay`: that graphs are in use."""

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self._graphs = True
            return original(*args, **kwargs)

        return wrapper

    def wrap_cast(self, original: Any) -> Any:
        """`autocast.__enter__`: what is compiled enters it while it is being compiled, and may never do so again."""
        compiling = self._torch.compiler.is_compiling

        def wrapper(context: Any) -> Any:
            if compiling() and getattr(context, "_enabled", False):
                self._cast_inside = _name(getattr(context, "fast_dtype", ""))
            return original(context)

        return wrapper

    def threads(self) -> int:
        """Threads of an operation while the network ran.

        PyTorch is asked in the main thread only, at import and at the end: in another one its answer decides with how
        many threads that one computes, and so the bits of what it computes.
        """
        most = self._threads.most_common(1)
        number = most[0][0] if most else self._threads_set
        if not number and threading.current_thread() is threading.main_thread():
            number = self._torch.get_num_threads()
        return int(number or len(os.sched_getaffinity(0)))

    def facts(self) -> dict:
        """Options in use, by the names that Sonda's own workloads have for them."""
        trains = bool(self._noticed.get(True))
        noticed = self._noticed.get(trains) or {}
        found = {
            **self._share.facts(trains),
            "channels_last": bool(noticed.get("channels_last")),
            **({"autocast": self._cast_inside} if self._cast_inside else {}),
            **{name: noticed[name] for name in ("weights", "autocast", "matmul_precision", "cores") if name in noticed},
        }
        return {**found, **({"cuda_graphs": True} if self._graphs else {})}

    def _look(self, calls: int, modules: list, given: tuple, learns: bool) -> None:
        try:
            self._threads[self._threads_set] += calls  # later looks stand for more forwards
            self._look_at(modules, given, self._noticed.setdefault(learns, {}))
            for module in modules:
                self._share.weigh(module, learns)
            facts = self.facts()
        except Exception:  # a module of somebody else's making
            return
        if facts != self._stated:
            self._stated = facts
            self._recorder.state(habits=facts)

    def _look_at(self, outermost: list, given: tuple, noticed: dict) -> None:
        torch = self._torch
        modules = [module for one in outermost for module in one.modules()]
        inputs = [value for value in given if type(value) is torch.Tensor]
        weights = [weight for one in outermost for weight in one.parameters()]
        # A function without modules is given its weights.
        weights = weights or [tensor for tensor in tensors_in(torch, given) if tensor.is_floating_point()]
        sizes: Counter = Counter()
        for tensor in weights:
            sizes[_name(tensor.dtype)] += tensor.numel()
        if sizes:
            noticed["weights"] = sizes.most_common(1)[0][0]
        convolutions = [one.weight for one in modules if isinstance(one, torch.nn.modules.conv._ConvNd)]
        # Either of weights and input makes a convolution run with channels last.
        if convolutions and any(self._channels_last(tensor) for tensor in (*convolutions, *inputs)):
            noticed["channels_last"] = True
        for device in {"cpu", *(tensor.device.type for tensor in inputs)}:
            if torch.is_autocast_enabled(device):
                noticed["autocast"] = _name(torch.get_autocast_dtype(device))
        noticed["matmul_precision"] = torch.get_float32_matmul_precision()
        noticed["cores"] = len(os.sched_getaffinity(0))

    def _channels_last(self, tensor: Any) -> bool:
        """Whether a tensor of images lies so in memory; not where both orders are the same."""
        torch = self._torch
        form = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim())
        return form is not None and tensor.is_contiguous(memory_format=form) and not tensor.is_contiguous()


def _name(kind: Any) -> str:
    """`bfloat16` of `torch.bfloat16`."""
    return str(kind).rpartition(".")[2]
