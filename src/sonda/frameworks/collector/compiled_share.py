"""How much of a PyTorch program is compiled: all that runs, a part of it, or nothing.

Modules are compiled by `torch.compile`, by their method `compile`, by a forward that was compiled, or by TorchScript;
functions by `torch.compile` or TorchScript. Layers and their weights stand for work in every call of a module that no
other called: where not most of both are compiled, a part is.
"""

from __future__ import annotations

import sys
from typing import Any

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
