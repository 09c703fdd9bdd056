"""Looks for subnormal numbers in few elements of few tensors, and measures what they cost on this processor.

A processor computes with subnormal numbers by a slow path. Tensors are only read.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns as now
from time import thread_time_ns as spent
from typing import Any

SAMPLE = 4096
"""Elements of a tensor that are looked at."""
FIRST_CALL = 16
"""Call of a module at which it is looked at first, and then at every fourfold: weights become subnormal by and by."""
MOST_TENSORS = 24
"""Tensors that are looked at each time: the largest weights and their gradients."""
SMALLEST = 256
"""Elements of the smallest tensor that is looked at: less costs no time, whatever it holds."""
WORTH = 0.01
"""The part of a tensor's elements from which on it is named."""
MOST_NAMED = 16
MOST_OPERATIONS = 400
"""Operations of a counted step whose numbers are looked at."""
UNTRIED = frozenset({"copy", "creation", "ask", "to_device", "to_host", "update"})
"""Families of operations that no number slows, or that are looked at as a whole."""
POINTWISE = "pointwise"
LEAST_NS = 20_000
"""An operation that takes less is not looked at: looking takes longer."""
TRIES_ALONE = 3
"""Times that an operation is measured with either numbers, after one call that prepares it; the least counts."""
BUDGET_NS = 500_000_000
"""For all tries of a step: none begins that would take more than is left."""
USUAL = 0.5
TRIED = 1 << 14
"""Elements of the tensors with which the cost is measured: they fit in a core's own cache."""
TRIES = 7


class Denormals:
    """The tensors of a program in which subnormal numbers were seen."""

    def __init__(self, torch: Any, codes: dict) -> None:
        self._torch = torch
        self._codes = codes
        """Code of a module's forward, by its identity."""
        self._seen: dict[tuple, float] = {}
        """The largest part of subnormal elements, by the number of a module and what its tensor is."""

    def look_at_module(self, module: Any, result: Any, calls: int) -> None:
        """Look at a module's weights, their gradients, and its result, after so many calls (a power of two)."""
        if calls < FIRST_CALL or calls.bit_length() % 2 == 0:
            return
        try:
            owners = {
                id(weight): part for part in module.modules() for weight in vars(part)["_parameters"].values()
                if weight is not None
            }  # fmt: skip
            weights = sorted(module.parameters(), key=lambda weight: -weight.numel())[:MOST_TENSORS]
            with self._torch._C._DisableTorchDispatch():
                for weight in weights:
                    part = owners.get(id(weight), module)
                    self._look(part, "weights", weight)
                    if weight.grad is not None:
                        self._look(part, "gradients", weight.grad)
                if type(result) is self._torch.Tensor:
                    self._look(module, "result", result)
        except Exception:  # modules and tensors of a library's own classes
            pass

    def look_at_states(self, optimizer: Any, steps: int) -> None:
        """Look at what an optimizer keeps of its weights, after so many steps (a power of two)."""
        if steps < FIRST_CALL or steps.bit_length() % 2 == 0:
            return
        try:
            states = [state for states in optimizer.state.values() for state in states.values()]
            tensors = [state for state in states if type(state) is self._torch.Tensor and state.dim()]
            with self._torch._C._DisableTorchDispatch():
                parts = [
                    subnormal_part(self._torch, tensor)
                    for tensor in sorted(tensors, key=lambda tensor: -tensor.numel())[:MOST_TENSORS]
                ]
        except Exception:  # an optimizer of a library
            return
        if max(parts, default=0.0) >= WORTH:
            self._seen[-1, "state"] = max(parts)

    def _look(self, module: Any, what: str, tensor: Any) -> None:
        part = subnormal_part(self._torch, tensor)
        code = self._codes.get(id(module))
        if part >= WORTH and code is not None:
            key = code >> 1, what
            self._seen[key] = max(self._seen.get(key, 0.0), part)

    def facts(self) -> dict:
        """`denormals`: modules, what was looked at and the part of it that is subnormal. `denormal_times`: how many
        times longer a product, an operation on each element, and a root take with such numbers."""
        if not self._seen:
            return {}
        largest = sorted(self._seen.items(), key=lambda item: -item[1])[:MOST_NAMED]
        return {
            "denormals": [[number, what, part] for (number, what), part in largest],
            "denormal_times": measure_cost(self._torch),
        }


class SubnormalOperations:
    """Operations of a counted step that read or give subnormal numbers, and how long they take without them.

    Each that is found at a place runs a few times more, on the same operands and on such without subnormal numbers, and
    its results are dropped.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._left = MOST_OPERATIONS
        self._left_ns = BUDGET_NS
        self._seen: dict[tuple, list] = {}
        """By phase, layer, line and name: ns, the largest part of subnormal elements, and how many times longer that
        takes; 0 where it was not tried."""

    def look(self, key: tuple, kind: Any, call: tuple, ns: int) -> None:
        """Look at an operation of this kind, its `call` being the function, its arguments and its result, that took so
        many ns."""
        if ns < LEAST_NS or not self._left or kind.random or kind.family in UNTRIED:
            return
        self._left -= 1
        func, args, kwargs, out = call
        try:
            with self._torch._C._DisableTorchDispatch():
                operands = [tensor.detach() for tensor in args if self._is_number(tensor)]
                results = [out.detach()] if kind.family == POINTWISE and self._is_number(out) else []
                part = max((subnormal_part(self._torch, tensor) for tensor in (*operands, *results)), default=0.0)
                if part < WORTH:
                    return
                seen = self._seen.setdefault((*key, kind.name), [0, 0.0, 0.0])
                seen[0] += ns
                if part > seen[1]:
                    seen[1] = part
                    if 2 * (TRIES_ALONE + 1) * ns <= self._left_ns:
                        begin = now()
                        seen[2] = self._try(kind, func, args, kwargs, results)
                        self._left_ns -= now() - begin
        except Exception:  # tensors of a library's own classes
            return

    def facts(self) -> list:
        """Phase, layer, line and name; ns, the part that is subnormal, and how many times longer that takes here."""
        return [[*key, ns, part, times] for key, (ns, part, times) in self._seen.items() if times]

    def _is_number(self, value: Any) -> bool:
        torch = self._torch
        return (
            isinstance(value, torch.Tensor)
            and value.layout == torch.strided
            and value.device.type == "cpu"
            and value.dtype in (torch.float32, torch.float64)
        )

    def _try(self, kind: Any, func: Any, args: tuple, kwargs: dict, results: list) -> float:
        """How many times longer the operation takes than with usual numbers in the place of subnormal ones, and of what
        makes such."""
        in_place = func._schema.is_mutable
        if in_place and kind.family != POINTWISE:
            return 0.0
        given = [value.detach() if self._is_number(value) else value for value in args]
        usual = [self._make_usual(value, results) if self._is_number(value) else value for value in given]
        times = []
        for _ in range(TRIES_ALONE + 1):
            row = []
            for values in (given, usual):
                operands = [value.clone() if in_place and self._is_number(value) else value for value in values]
                begin = now()
                func(*operands, **kwargs)
                row.append(now() - begin)
            times.append(row)
        slow, fast = (min(column[1:]) for column in zip(*times, strict=True))
        return slow / max(fast, 1)

    def _make_usual(self, tensor: Any, results: list) -> Any:
        """The tensor with a usual number where it is subnormal, or where a result of its shape is."""
        wrong = is_subnormal(self._torch, tensor)
        for result in results:
            if result.shape == tensor.shape:
                wrong = wrong | is_subnormal(self._torch, result)
        return self._torch.where(wrong, self._torch.full((), USUAL, dtype=tensor.dtype), tensor)


def subnormal_part(torch: Any, tensor: Any) -> float:
    """Part of a sample of a tensor's elements that are subnormal, 0 to 1; 0 for tensors that cannot be looked at."""
    if tensor.layout != torch.strided or tensor.device.type != "cpu" or tensor.numel() < SMALLEST:
        return 0.0
    if tensor.dtype not in (torch.float32, torch.float64):
        return 0.0
    values = tensor.detach()
    flat = values.view(-1) if values.is_contiguous() else values[..., 0].reshape(-1)
    # An odd distance: an even one would meet the same columns of a matrix in every row.
    sample = flat[:: flat.numel() // SAMPLE | 1]
    return float(is_subnormal(torch, sample).sum().item()) / max(1, sample.numel())


def is_subnormal(torch: Any, tensor: Any) -> Any:
    """Of each element whether it is subnormal. Compared as integers: a processor that flushes such numbers would
    compare them as 0."""
    bits = tensor.abs().view(torch.int32 if tensor.dtype == torch.float32 else torch.int64)
    least = torch.tensor(torch.finfo(tensor.dtype).tiny, dtype=tensor.dtype).view(bits.dtype)
    return (bits > 0) & (bits < least)


def measure_cost(torch: Any) -> list:
    """How many times longer products, operations on each element and roots take with subnormal numbers, here."""
    side = 96
    usual, small = (torch.full((TRIED,), value) for value in (0.5, 1e-40))
    matrix, small_matrix = (torch.full((side, side), value) for value in (0.5, 1e-40))
    product = _time(lambda: matrix @ small_matrix) / max(_time(lambda: matrix @ matrix), 1)
    element = _time(lambda: small * 0.5) / max(_time(lambda: usual * 0.5), 1)
    root = _time(small.sqrt) / max(_time(usual.sqrt), 1)
    return [product, element, root]


def _time(work: Callable[[], Any]) -> float:
    """The least processor time of some work, ns."""
    work()
    times = []
    for _ in range(TRIES):
        begin = spent()
        work()
        times.append(spent() - begin)
    return float(min(times))
