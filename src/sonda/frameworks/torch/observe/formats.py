"""Tries convolutions of a counted step with channels last: on some processors, and for some shapes, that is faster.

Each kind of convolution runs a few times more, on the same operands, and its results are dropped.
"""

from __future__ import annotations

from time import perf_counter_ns as now
from typing import Any

CONVOLUTION = "aten.convolution"
LEAST_NS = 100_000
"""A convolution that takes less is not tried: its time is mostly overhead."""
TRIES = 2
"""Times that each format is measured, after one call that prepares it; the least counts."""
BUDGET_NS = 500_000_000
"""For all tries of a step: none begins after it."""


class ConvolutionFormats:
    """How many times longer each kind of convolution takes with channels first than with channels last."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._left = BUDGET_NS
        self._times: dict[tuple, float] = {}
        self._seen: dict[tuple, list] = {}
        """By phase, layer and line: ns, and ns of the same with channels last."""

    def look(self, key: tuple, args: tuple, ns: int) -> None:
        """Try the convolution with these arguments, which took so many ns, if its operands have channels first."""
        try:
            if ns < LEAST_NS or not self._has_channels_first(*args[:2]) or args[6]:
                return
            kind = tuple(args[0].shape), tuple(args[1].shape), *(tuple(values) for values in args[3:6]), args[8]
            if kind not in self._times and self._left > 0:
                begin = now()
                self._times[kind] = self._try(args)
                self._left -= now() - begin
        except Exception:  # arguments as another PyTorch passes them
            return
        if kind in self._times:
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

    def _try(self, args: tuple) -> float:
        torch = self._torch
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            turned = [tensor.detach().contiguous(memory_format=torch.channels_last) for tensor in args[:2]]
            times = [[self._time((*operands, *args[2:])) for operands in (args[:2], turned)] for _ in range(TRIES + 1)]
        first, last = (min(column[1:]) for column in zip(*times, strict=True))
        return first / max(last, 1)

    def _time(self, args: tuple) -> int:
        begin = now()
        self._torch.convolution(*args)
        return now() - begin
