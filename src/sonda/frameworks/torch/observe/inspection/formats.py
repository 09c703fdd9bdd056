"""Tries operations on images of a counted step with channels last: for some kernels and shapes that is faster.

Each kind of operation runs a few times more, on the same operands, and its results are dropped.
"""

from __future__ import annotations

from time import perf_counter_ns as now
from typing import Any

TRIED = {
    "aten.convolution": 2, "aten.max_pool2d_with_indices": 1, "aten.avg_pool2d": 1, "aten.upsample_nearest2d": 1,
    "aten.upsample_bilinear2d": 1, "aten.upsample_bicubic2d": 1,
}  # fmt: skip
"""Operations that write to nothing but their result, and how many of their first arguments have channels."""
TRANSPOSED = 6
"""The argument of a convolution that says whether it is transposed: such have weights of another order."""
LEAST_NS = 100_000
"""An operation that takes less is not tried: its time is mostly overhead."""
TRIES = 3
"""Times that each format is measured, after one call that prepares it; the least counts."""
BUDGET_NS = 500_000_000
"""For all tries of a step: none begins that would take more than is left."""


class ImageFormats:
    """How many times longer each kind of operation takes with channels first than with channels last."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._left = BUDGET_NS
        self._times: dict[tuple, float] = {}
        self._seen: dict[tuple, list] = {}
        """By phase, layer and line: ns, and ns of the same with channels last."""

    def look(self, key: tuple, name: str, func: Any, args: tuple, ns: int) -> None:
        """Try an operation with these arguments, which took so many ns, if its operands have channels first."""
        try:
            operands = args[: TRIED[name]]
            if ns < LEAST_NS or not self._has_channels_first(*operands):
                return
            if len(operands) > 1 and args[TRANSPOSED]:
                return
            rest = [value for value in args[len(operands) :] if not isinstance(value, self._torch.Tensor)]
            kind = name, *(tuple(operand.shape) for operand in operands), repr(rest)
            if kind not in self._times and 2 * (TRIES + 1) * ns <= self._left:
                self._times[kind] = 0.0  # where it fails it is not tried again
                begin = now()
                try:
                    self._times[kind] = self._try(func, operands, args[len(operands) :])
                finally:
                    self._left -= now() - begin
        except Exception:  # arguments as another PyTorch passes them
            return
        if self._times.get(kind):
            sums = self._seen.setdefault(key, [0, 0.0])
            sums[0] += ns
            sums[1] += ns / self._times[kind]

    def facts(self) -> list:
        """Phase, layer and line; ns, and how many times longer that is than with channels last."""
        return [[*key, ns, ns / last] for key, (ns, last) in self._seen.items()]

    def _has_channels_first(self, *operands: Any) -> bool:
        torch = self._torch
        return all(
            type(tensor) in (torch.Tensor, torch.nn.Parameter)
            and tensor.device.type == "cpu"
            and tensor.dtype is torch.float32
            and tensor.dim() == 4
            and tensor.is_contiguous()
            for tensor in operands
        ) and not operands[0].is_contiguous(memory_format=torch.channels_last)

    def _try(self, func: Any, operands: tuple, rest: tuple) -> float:
        torch = self._torch
        with torch._C._DisableTorchDispatch():
            bare = [tensor.detach() for tensor in operands]
            turned = [tensor.contiguous(memory_format=torch.channels_last) for tensor in bare]
            times = [[_time(func, (*tensors, *rest)) for tensors in (bare, turned)] for _ in range(TRIES + 1)]
        first, last = (min(column[1:]) for column in zip(*times, strict=True))
        return first / max(last, 1)


def _time(func: Any, args: tuple) -> int:
    begin = now()
    func(*args)
    return now() - begin
