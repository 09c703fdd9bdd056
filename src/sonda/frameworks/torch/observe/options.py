"""Habits of a PyTorch program: the options it computes with, so that no advice names an option already in use.

A module is inspected at its first forward and then at every power of two of its calls: options may change during a
program, and inspecting a large network takes a while. Compiled functions are inspected likewise, through the modules
that they use. The options of training count; those of inference only where nothing is trained.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from typing import Any

from ...collector.recorder import Recorder
from .inspection.code_places import CodePlaces
from .values import modules_in, tensors_in

# ---- How much of a program is compiled: all, a part, or nothing ------------------------------------------------------

MOST_MODULES = 64
"""Most outermost modules inspected: a program may make one in every step."""
USUAL_SHARE = 8
"""A module called less often than one in so many compiled functions is not a part of the usual step."""


class CompiledShare:
    """Counts the calls of outermost modules and compiled functions, and weighs how much of a module is compiled."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._modules: tuple[dict, dict] = ({}, {})
        """For inference and for training, by a module's identity: its calls, its layers and compiled layers, its
        weights and compiled weights."""
        self._functions = [0, 0]
        """Calls of compiled functions outside of modules, for inference and for training."""

    def count_module(self, module: Any, learns: bool) -> int:
        """Count a call of this module, and return the number of its calls; 0 where it is not inspected."""
        entries = self._modules[learns]
        entry = entries.get(id(module))
        if entry is None:
            if len(entries) >= MOST_MODULES:
                return 0
            entry = entries[id(module)] = [0, 0, 0, 0, 0]
        entry[0] += 1
        return int(entry[0])

    def count_function(self, learns: bool) -> int:
        """Count a call of a compiled function, and return the number of all such calls."""
        self._functions[learns] += 1
        return self._functions[learns]

    def weigh(self, module: Any, learns: bool) -> None:
        """Measure how many layers and weights of this module are compiled. Embedding tables do not count as weights."""
        entry = self._modules[learns].get(id(module))
        if entry is None:
            return  # only called inside of a function
        torch = self._torch
        tables = (torch.nn.Embedding, torch.nn.EmbeddingBag)
        compiled_modules = (child for child in module.modules() if self._is_compiled(child))
        compiled_parts = {id(part) for child in compiled_modules for part in child.modules()}
        totals = [0, 0, 0, 0]
        for part in module.modules():
            size = 0 if isinstance(part, tables) else sum(weight.numel() for weight in part.parameters(recurse=False))
            compiled = id(part) in compiled_parts
            for at, amount in enumerate((bool(size), bool(size) * compiled, size, size * compiled)):
                totals[at] += amount
        entry[1:] = totals

    @property
    def has_compiled(self) -> bool:
        """Whether any compiled code ran."""
        weighed = any(entry[2] for entries in self._modules for entry in entries.values())
        return weighed or any(self._functions) or self._dynamo_ran() or self._script_ran()

    def facts(self, learns: bool) -> dict:
        """`compile`: whether something is compiled. `compile_part`: whether much of what runs is not."""
        if not self.has_compiled:
            return {"compile": False}
        modules = self._modules[learns].values()
        if self._functions[learns]:
            plain = sum(calls for calls, *amounts in modules if _is_part(*amounts))
            part = USUAL_SHARE * plain >= self._functions[learns]
        else:
            part = _is_part(*(sum(entry[0] * entry[at] for entry in modules) for at in (1, 2, 3, 4)))
        return {"compile": True, **({"compile_part": True} if part else {})}

    def _is_compiled(self, module: Any) -> bool:
        if getattr(module, "_compiled_call_impl", None) is not None or isinstance(module, self._torch.jit.ScriptModule):
            return True
        # A module excluded by `torch.compiler.disable` is wrapped by the compiler too.
        eval_frame = sys.modules.get("torch._dynamo.eval_frame")
        if eval_frame is not None and isinstance(module, eval_frame.OptimizedModule):
            return not isinstance(module.dynamo_ctx, eval_frame.DisableContext)
        forward = getattr(module, "forward", None)
        return hasattr(forward, "_torchdynamo_orig_callable") and not getattr(forward, "_torchdynamo_disable", False)

    def _dynamo_ran(self) -> bool:
        """Whether `torch.compile` has compiled anything, a module or a function."""
        utils = sys.modules.get("torch._dynamo.utils")
        return utils is not None and utils.counters.get("frames", {}).get("ok", 0) > 0

    def _script_ran(self) -> bool:
        """Whether a TorchScript function has run; libraries define some that never do."""
        try:
            functions = self._torch.jit._state._python_cu.get_functions()
        except Exception:  # another PyTorch
            return False
        return any(map(_has_run, functions))


def _is_part(layers: int, compiled_layers: int, weights: int, compiled_weights: int) -> bool:
    """Whether at most half of the layers, or of the weights, are compiled."""
    return layers > 0 and (2 * compiled_layers <= layers or 2 * compiled_weights <= weights)


def _has_run(function: Any) -> bool:
    try:
        return bool(function.get_debug_state().execution_plans)
    except Exception:  # PyTorch asserts that there is a plan
        return False


# ----------------------------------------------------------------------------------------------------------------------


class Habits:
    """Notices the options in use at the forwards of outermost modules. `facts` gives those noticed so far."""

    def __init__(self, torch: Any, recorder: Recorder) -> None:
        self._torch = torch
        self._recorder = recorder
        self._threads_set = 0
        self._places = CodePlaces(torch)
        self._threads_line = ""
        """Where the program chose its number of threads."""
        self._double_line = ""
        """Where it chose 64 bits for its numbers or weights."""
        self.begin()

    def begin(self) -> None:
        """Forget everything noticed, at the beginning and in a forked child."""
        self._compiled_share = CompiledShare(self._torch)
        self._threads: Counter = Counter()
        """Number of forwards by the number of threads that the program has set; 0 where it set none."""
        self._noticed: dict = {}
        """Options found in use, for inference and for training."""
        self._compiled_cast = ""
        """The type to which autocast casts inside of compiled code; '' for none."""
        self._graphs = False
        self._stated: dict = {}

    @property
    def noticed(self) -> bool:
        """Whether anything was noticed."""
        return bool(self._noticed) or self._graphs or self._compiled_share.has_compiled

    def notice(self, module: Any, args: tuple, learns: bool) -> int:
        """Count a call of an outermost module, and inspect it where its number of calls is a power of two.

        Returns this number where it was inspected, 0 otherwise.
        """
        calls = self._compiled_share.count_module(module, learns)
        if not calls or calls & (calls - 1):
            return 0
        self._inspect(calls, [module], args, learns)
        return calls

    def notice_function(self, function: Any, args: tuple, kwargs: dict, learns: bool) -> None:
        """The same for a compiled function that ran outside of modules."""
        calls = self._compiled_share.count_function(learns)
        if not calls & (calls - 1):
            inputs = (*args, *kwargs.values())
            try:
                modules = modules_in(self._torch, (function, *inputs))
            except Exception:  # objects of a library's own classes
                return
            self._inspect(calls, modules, inputs, learns)

    def wrap_set_threads(self, original: Any) -> Any:
        """Wrap `torch.set_num_threads`, to know how many threads the program chose."""

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            self._threads_line = self._places.find()
            self._threads_set = next((value for value in (*args, *kwargs.values()) if type(value) is int), 0)
            return result

        return wrapper

    def wrap_precision(self, original: Any) -> Any:
        """Wrap what chooses a type for numbers or weights, to know where the program chose 64 bits."""
        double, tensor = self._torch.float64, self._torch.Tensor

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            chosen = (*args, *kwargs.values())
            if any(value is double or (type(value) is tensor and value.dtype is double) for value in chosen):
                self._double_line = self._places.find()
            return result

        return wrapper

    def wrap_double(self, original: Any) -> Any:
        """Wrap `Module.double`."""

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self._double_line = self._places.find()
            return original(*args, **kwargs)

        return wrapper

    def wrap_replay(self, original: Any) -> Any:
        """Wrap `CUDAGraph.replay`, to know that graphs are in use."""

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self._graphs = True
            return original(*args, **kwargs)

        return wrapper

    def wrap_cast(self, original: Any) -> Any:
        """Wrap `autocast.__enter__`: compiled code enters it during compilation, and perhaps never again."""
        compiling = self._torch.compiler.is_compiling

        def wrapper(context: Any) -> Any:
            if compiling() and getattr(context, "_enabled", False):
                self._compiled_cast = _type_name(getattr(context, "fast_dtype", ""))
            return original(context)

        return wrapper

    def threads(self) -> int:
        """Threads of one operation in most forwards.

        PyTorch is asked in the main thread only, at import and at the end. In another thread the question itself would
        fix the number of threads with which that thread computes, and so change its bits.
        """
        most = self._threads.most_common(1)
        number = most[0][0] if most else self._threads_set
        if not number and threading.current_thread() is threading.main_thread():
            number = self._torch.get_num_threads()
        return int(number or len(os.sched_getaffinity(0)))

    def facts(self) -> dict:
        """Options in use, by the names that Sonda's own workloads use."""
        trains = bool(self._noticed.get(True))
        noticed = self._noticed.get(trains) or {}
        facts = {
            **self._compiled_share.facts(trains),
            "channels_last": bool(noticed.get("channels_last")),
            **({"autocast": self._compiled_cast} if self._compiled_cast else {}),
            **{name: noticed[name] for name in ("weights", "autocast", "matmul_precision", "cores") if name in noticed},
        }
        lines = {"threads_line": self._threads_line, "double_line": self._double_line}
        where = {name: line for name, line in lines.items() if line}
        return {**facts, **where, **({"cuda_graphs": True} if self._graphs else {})}

    def _inspect(self, calls: int, modules: list, inputs: tuple, learns: bool) -> None:
        """Note the options in use by these modules and inputs, and state them where they have changed."""
        try:
            self._threads[self._threads_set] += calls  # later inspections stand for more forwards
            self._note_options(modules, inputs, self._noticed.setdefault(learns, {}))
            for module in modules:
                self._compiled_share.weigh(module, learns)
            facts = self.facts()
        except Exception:  # a module of a library's own class
            return
        if facts != self._stated:
            self._stated = facts
            self._recorder.state(habits=facts)

    def _note_options(self, outermost: list, inputs: tuple, noticed: dict) -> None:
        """Write the options in use by these modules to `noticed`."""
        torch = self._torch
        modules = [part for module in outermost for part in module.modules()]
        tensors = [value for value in inputs if type(value) is torch.Tensor]
        weights = [weight for module in outermost for weight in module.parameters()]
        # A function without modules gets its weights as inputs.
        weights = weights or [tensor for tensor in tensors_in(torch, inputs) if tensor.is_floating_point()]
        sizes: Counter = Counter()
        for tensor in weights:
            sizes[_type_name(tensor.dtype)] += tensor.numel()
        if sizes:
            noticed["weights"] = sizes.most_common(1)[0][0]
        convolutions = [part.weight for part in modules if isinstance(part, torch.nn.modules.conv._ConvNd)]
        # A convolution runs with channels last where its weights or its input have that format.
        if convolutions and any(self._channels_last(tensor) for tensor in (*convolutions, *tensors)):
            noticed["channels_last"] = True
        for device in {"cpu", *(tensor.device.type for tensor in tensors)}:
            if torch.is_autocast_enabled(device):
                noticed["autocast"] = _type_name(torch.get_autocast_dtype(device))
        noticed["matmul_precision"] = torch.get_float32_matmul_precision()
        noticed["cores"] = len(os.sched_getaffinity(0))

    def _channels_last(self, tensor: Any) -> bool:
        """Whether a tensor of images has its channels last in memory, and not the usual order too."""
        torch = self._torch
        form = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim())
        return form is not None and tensor.is_contiguous(memory_format=form) and not tensor.is_contiguous()


def _type_name(kind: Any) -> str:
    """`bfloat16` of `torch.bfloat16`."""
    return str(kind).rpartition(".")[2]
