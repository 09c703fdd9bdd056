"""Habits of a PyTorch program: how it computes and loads, read where it does, so that nobody advises what is in use.

A look happens at the first forward of an outermost module and then ever more seldom: options may change on the way, and
a look at a large network takes a while. Functions that are compiled are looked at likewise, by the modules that they
use. What training does counts; only where nothing is trained, what inference does.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from typing import Any

from ...collector.recorder import Recorder
from .values import modules_in, tensors_in

# ---- How much of a PyTorch program is compiled: all that runs, a part of it, or nothing -----------------------------

MOST_MODULES = 64
"""Outermost modules that are looked at: a program may make one in every step."""
FEW = 8
"""Modules that are called less often than an eighth of the compiled functions are no part of the usual step."""


class CompiledShare:
    """Told of every outermost module and compiled function that runs, and by `weigh` what a module consists of."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._modules: tuple[dict, dict] = ({}, {})
        """By whether they learn, and by their identities: calls; layers, and the compiled ones; weights likewise."""
        self._functions = [0, 0]
        """Calls of compiled functions that no module called, by whether they learn."""

    def count_module(self, module: Any, learns: bool) -> int:
        """How often this module has been called, with this call; 0 where it is not looked at."""
        known = self._modules[learns]
        entry = known.get(id(module))
        if entry is None:
            if len(known) >= MOST_MODULES:
                return 0
            entry = known[id(module)] = [0, 0, 0, 0, 0]
        entry[0] += 1
        return int(entry[0])

    def count_function(self, learns: bool) -> int:
        """How often functions have been called, with this call."""
        self._functions[learns] += 1
        return self._functions[learns]

    def weigh(self, module: Any, learns: bool) -> None:
        """Look at what of this module is inside of compiled ones; tables of embeddings are only read."""
        entry = self._modules[learns].get(id(module))
        if entry is None:
            return  # called by a function only
        torch = self._torch
        tables = (torch.nn.Embedding, torch.nn.EmbeddingBag)
        inside = {id(part) for one in module.modules() if self._is_compiled(one) for part in one.modules()}
        found = [0, 0, 0, 0]
        for part in module.modules():
            size = 0 if isinstance(part, tables) else sum(weight.numel() for weight in part.parameters(recurse=False))
            compiled = id(part) in inside
            for at, amount in enumerate((bool(size), bool(size) * compiled, size, size * compiled)):
                found[at] += amount
        entry[1:] = found

    @property
    def anything(self) -> bool:
        """Whether anything that was compiled ran."""
        weighed = any(entry[2] for known in self._modules for entry in known.values())
        return weighed or any(self._functions) or self._dynamo_ran() or self._script_ran()

    def facts(self, learns: bool) -> dict:
        """`compile`: something is compiled; `compile_part`: most of what runs, or what runs as often, is not."""
        if not self.anything:
            return {"compile": False}
        modules = self._modules[learns].values()
        if self._functions[learns]:
            plain = sum(calls for calls, *found in modules if _is_part(*found))
            part = FEW * plain >= self._functions[learns]
        else:
            part = _is_part(*(sum(one[0] * one[at] for one in modules) for at in (1, 2, 3, 4)))
        return {"compile": True, **({"compile_part": True} if part else {})}

    def _is_compiled(self, module: Any) -> bool:
        if getattr(module, "_compiled_call_impl", None) is not None or isinstance(module, self._torch.jit.ScriptModule):
            return True
        # What is kept from the compiler (`torch.compiler.disable`) has been wrapped by it too.
        eval_frame = sys.modules.get("torch._dynamo.eval_frame")
        if eval_frame is not None and isinstance(module, eval_frame.OptimizedModule):
            return not isinstance(module.dynamo_ctx, eval_frame.DisableContext)
        forward = getattr(module, "forward", None)
        return hasattr(forward, "_torchdynamo_orig_callable") and not getattr(forward, "_torchdynamo_disable", False)

    def _dynamo_ran(self) -> bool:
        """Whether anything was compiled by `torch.compile`, a module or a function."""
        utils = sys.modules.get("torch._dynamo.utils")
        return utils is not None and utils.counters.get("frames", {}).get("ok", 0) > 0

    def _script_ran(self) -> bool:
        """Whether a function of TorchScript ran more often than it takes to look at it; libraries have some."""
        try:
            functions = self._torch.jit._state._python_cu.get_functions()
        except Exception:  # another PyTorch
            return False
        return any(map(_has_run, functions))


def _is_part(layers: int, compiled_layers: int, weights: int, compiled_weights: int) -> bool:
    """Whether not most of these are compiled."""
    return layers > 0 and (2 * compiled_layers <= layers or 2 * compiled_weights <= weights)


def _has_run(function: Any) -> bool:
    try:
        return bool(function.get_debug_state().execution_plans)
    except Exception:  # asserts that there is a plan
        return False


# ----------------------------------------------------------------------------------------------------------------------


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
