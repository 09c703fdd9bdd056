"""Finds gradients and graphs that a step makes and nobody uses.

A gradient is used where an optimizer steps with it, or where its weight changes afterwards. It is thrown away where it
is cleared before that, or where its weight belongs to no optimizer. A graph is used where a backward reaches it.
Nothing here is kept alive.
"""

from __future__ import annotations

import weakref
from typing import Any

from ..values import tensors_in


class GradientUses:
    """The gradients and graphs of one counted step."""

    def __init__(self, torch: Any, codes: dict) -> None:
        self._torch = torch
        self._codes = codes
        """Code of a module's forward, by its identity."""
        self._roots: dict[int, Any] = {}
        """Weak references to the outermost modules of this step."""
        self._order: dict[int, int] = {}
        """By the code of a module: when it was first called in this step."""
        self._seen: dict[int, tuple] = {}
        """By the identity of a weight: its gradient as it was seen last, and the weight's version then."""
        self._pending: dict[int, int] = {}
        """By the identity of a weight: how many gradients were added to it that nobody has used yet."""
        self._thrown: dict[int, int] = {}
        self._made: dict[int, int] = {}
        """Gradients that were made, and those of them that were thrown away, by the identity of the weight."""
        self._graphs: list = []
        """Outermost calls with a graph: the code of the module, whether a backward reached it, and its line."""
        self._backwards = 0

    # ---- graphs -----------------------------------------------------------------------------------------------

    def note_call(self, module: Any, code: int, outermost: bool) -> None:
        """A module is called."""
        self._order.setdefault(code, len(self._order))
        if outermost:
            self._roots.setdefault(id(module), weakref.ref(module))

    def note_result(self, code: int, result: Any, line: str) -> None:
        """An outermost module, called in this line, gave a result with a graph."""
        nodes = []
        for tensor in tensors_in(self._torch, result):
            with self._torch._C.DisableTorchFunctionSubclass():
                node = tensor.grad_fn
            if node is not None:
                nodes.append(node)
        if not nodes:
            return
        call = [code, False, line]
        self._graphs.append(call)

        def reached(_gradients: Any) -> None:
            call[1] = True

        for node in nodes:
            node.register_prehook(reached)

    # ---- gradients --------------------------------------------------------------------------------------------

    def backward_begins(self) -> None:
        """Note the gradients that are there before the first backward of the step."""
        if not self._backwards:
            self._look(first=True)

    def backward_ended(self) -> None:
        self._backwards += 1
        self._look()

    def _look(self, first: bool = False) -> None:
        """Note which weights have new gradients."""
        for weight in self._weights():
            gradient = weight.grad
            if gradient is None:
                self._seen.pop(id(weight), None)
                continue
            state = id(gradient), gradient._version, weight._version
            before = self._seen.get(id(weight))
            self._seen[id(weight)] = state
            if not first and (before is None or before[:2] != state[:2]):
                self._pending[id(weight)] = self._pending.get(id(weight), 0) + 1
                self._made[id(weight)] = self._made.get(id(weight), 0) + 1

    def optimizer_steps(self, weights: Any) -> None:
        """An optimizer is about to step with the gradients of these weights."""
        for weight in weights:
            self._pending.pop(id(weight), None)

    def gradients_cleared(self, weights: Any) -> None:
        """The gradients of these weights are about to be cleared."""
        for weight in weights:
            self._throw(weight)

    def _throw(self, weight: Any) -> None:
        lost = self._pending.pop(id(weight), 0)
        seen = self._seen.get(id(weight))
        if lost and seen is not None and weight._version == seen[2]:  # else it was updated by hand
            self._thrown[id(weight)] = self._thrown.get(id(weight), 0) + lost

    def _weights(self) -> list:
        weights: dict[int, Any] = {}
        for reference in self._roots.values():
            module = reference()
            if module is not None:
                weights.update((id(weight), weight) for weight in module.parameters() if weight.is_leaf)
        return list(weights.values())

    def module_of(self, weight: int) -> int:
        """The number of the module that holds the weight with this identity; -1 where none of this step does."""
        for reference in self._roots.values():
            root = reference()
            for module in root.modules() if root is not None else ():
                if any(id(own) == weight for own in vars(module)["_parameters"].values()):
                    return int(self._codes.get(id(module), -2)) >> 1
        return -1

    def layer_sizes(self) -> list:
        """Of every module of this step with weights of its own: its number, how many weights, inputs and outputs of a
        matrix, and the side of a convolution's kernel; 0 for what it does not have."""
        sizes = {}
        for reference in self._roots.values():
            root = reference()
            for module in root.modules() if root is not None else ():
                code = self._codes.get(id(module))
                weights = [weight for weight in vars(module)["_parameters"].values() if weight is not None]
                if code is None or not weights or code not in self._order:
                    continue
                kernel = getattr(module, "kernel_size", 0)
                side = max(kernel) if isinstance(kernel, tuple) else 0
                matrix = weights[0].shape if weights[0].dim() == 2 and not side else (0, 0)
                sizes[code] = [code >> 1, sum(weight.numel() for weight in weights), matrix[1], matrix[0], side]
        return list(sizes.values())

    def facts(self, optimized: set | None) -> dict:
        """`thrown`: modules whose own gradients were thrown away: its number, the part of its gradients that were, and
        whether every weight that was called before it has the same. `graphs`: modules with calls whose graph no
        backward reached: its number, calls with a graph, how many of them were not reached, and a line of these.

        `optimized` are the identities of the weights of all optimizers; None where some may be unknown.
        """
        if optimized is not None:
            for weight in self._weights():
                if id(weight) not in optimized:
                    self._throw(weight)
        graphs: dict[int, list] = {}
        for code, reached, line in self._graphs:
            calls = graphs.setdefault(code, [code >> 1, 0, 0, ""])
            calls[1] += 1
            if not reached:
                calls[2] += 1
                calls[3] = line
        return {
            "thrown": self._thrown_by_module() if self._thrown else [],
            "unreached": [calls for calls in graphs.values() if calls[2]],
        }

    def _thrown_by_module(self) -> list:
        modules = {}
        for reference in self._roots.values():
            root = reference()
            for module in root.modules() if root is not None else ():
                code = self._codes.get(id(module))
                if code is not None and code in self._order:
                    modules[code] = module
        thrown = []
        before = 1.0
        """The least part of its gradients that a module called before loses."""
        for code in sorted(modules, key=lambda code: self._order[code]):
            weights = [id(weight) for weight in vars(modules[code])["_parameters"].values() if weight is not None]
            made = sum(self._made.get(weight, 0) for weight in weights)
            lost = sum(self._thrown.get(weight, 0) for weight in weights)
            if lost:
                thrown.append([code >> 1, lost / made, lost / made <= before])
            if made:
                before = min(before, lost / made)
        return thrown
