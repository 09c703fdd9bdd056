"""Finds modules that are called again in a step with what they were called with before.

A call repeats an earlier one where it has the same tensors, unchanged, or for an outermost module tensors of the same
content; the same weights, unchanged; and where no random number was drawn. Tensors are not kept alive.
"""

from __future__ import annotations

import weakref
from typing import Any

from ..values import tensors_in
from .code_places import CodePlaces

MOST_CALLS = 20_000
"""Calls that are looked at in a step."""
MOST_ELEMENTS = 1 << 24
"""Larger tensors are compared by identity only: adding them up would take long."""
SAMPLE = 16
"""Elements that are compared beside the sum of all."""


class RepeatedCalls:
    """The calls of one counted step."""

    def __init__(self, torch: Any, places: CodePlaces) -> None:
        self._torch = torch
        self._places = places
        self._earlier: dict[int, list] = {}
        """By the code of a module: inputs and weights of its calls, and who made them."""
        self._calls: dict[int, int] = {}
        self._repeated: dict[int, int] = {}
        self._repeats: dict[int, bool] = {}
        """Whether the last call of a module repeats an earlier one, by the module's code."""
        self._lines: dict[int, str] = {}
        """Where a module is called again: the innermost line in which that differs from the call that it repeats."""
        self._left = MOST_CALLS

    def note(self, module: Any, code: int, args: tuple, kwargs: dict, caller: int) -> None:
        """Note a call that begins; `caller` is the code of the module that makes it, 0 for an outermost one."""
        self._calls[code] = self._calls.get(code, 0) + 1
        self._repeats[code] = False
        self._left -= 1
        if self._left < 0:
            return
        tensors = tensors_in(self._torch, (args, kwargs))
        if not tensors:
            return
        rest = describe_rest(self._torch, args, kwargs)
        if rest is None:
            return
        marks = tuple((id(tensor), tensor._version) for tensor in tensors if not tensor.is_inference())
        marks = marks if len(marks) == len(tensors) else tuple((id(tensor), 0) for tensor in tensors)
        weights = count_versions(module)
        content = None if caller else describe_content(self._torch, tensors)
        callers = self._places.list_callers()
        for (
            references,
            earlier_marks,
            earlier_content,
            earlier_weights,
            earlier_rest,
            earlier_callers,
        ) in self._earlier.get(code, ()):
            if earlier_weights != weights or earlier_rest != rest:
                continue
            alive = all(reference() is tensor for reference, tensor in zip(references, tensors, strict=False))
            same = len(references) == len(tensors) and alive and earlier_marks == marks
            if same or (content is not None and earlier_content == content):
                self._repeats[code] = True
                if self._repeats.get(caller):
                    return  # a part of what is repeated, or of what draws random numbers anew
                self._repeated[code] = self._repeated.get(code, 0) + 1
                different = find_difference(callers, earlier_callers)
                self._lines[code] = self._places.name(*different) if different is not None else self._places.find()
                return
        references = tuple(weakref.ref(tensor) for tensor in tensors)
        self._earlier.setdefault(code, []).append((references, marks, content, weights, rest, callers))

    def facts(self, random: set) -> list:
        """Modules with repeated calls: its number, all its calls, how many of these repeat an earlier one, and
        the line of the last of these."""
        return [
            [code >> 1, self._calls[code], times, self._lines[code]]
            for code, times in self._repeated.items()
            if code not in random
        ]


def describe_content(torch: Any, tensors: list, most: int = MOST_ELEMENTS) -> tuple | None:
    """What stands for the content of tensors: shapes, sums and some elements; None where that cannot be known. Of
    tensors with more elements than `most` some are added up, evenly spread."""
    parts = []
    for tensor in tensors:
        plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout == torch.strided
        if not plain or tensor.device.type != "cpu" or not 0 < tensor.numel() <= MOST_ELEMENTS:
            return None
        if tensor.is_complex() or tensor.is_quantized:
            return None
        values = tensor.detach()
        kind = torch.float64 if values.is_floating_point() else torch.int64
        few = values.reshape(-1)[:: max(1, values.numel() // SAMPLE)] if values.is_contiguous() else values[:1]
        few = few.reshape(-1)[: 2 * SAMPLE]
        if values.numel() > most and values.is_contiguous():
            # An odd distance: an even one would meet the same columns of a matrix in every row.
            added = values.view(-1)[:: values.numel() // most | 1]
        else:
            added = values
        parts.append((tuple(values.shape), str(values.dtype), added.sum(dtype=kind).item(), tuple(few.tolist())))
    return tuple(parts)


def describe_rest(torch: Any, args: tuple, kwargs: dict) -> str | None:
    """The arguments that are no tensors, as text; None where one has a state of its own, so that it may differ."""
    tensors = tensors_in(torch, (args, kwargs))
    if len(tensors) != len(args) + len(kwargs) and not _are_plain(torch, (args, kwargs)):
        return None
    return repr([value for value in (*args, *sorted(kwargs.items())) if not _holds_tensors(torch, value)])


def find_difference(callers: tuple, earlier: tuple) -> tuple | None:
    """The innermost caller in which two calls differ: of a helper that both go through nothing tells. Where they do
    not, as in a loop, the innermost of both."""
    pairs = zip(callers, earlier, strict=False)
    return next((mine for mine, other in pairs if mine != other), callers[0] if callers else None)


def count_versions(module: Any) -> int:
    """How often the module's weights were written to; in evaluation mode its buffers too, which it computes with."""
    versions = sum(weight._version for weight in module.parameters() if not weight.is_inference())
    if not module.training:
        versions += sum(buffer._version for buffer in module.buffers() if not buffer.is_inference())
    return versions


def _holds_tensors(torch: Any, value: Any) -> bool:
    return bool(tensors_in(torch, value))


def _are_plain(torch: Any, values: tuple) -> bool:
    """Whether arguments are tensors, numbers and words, in lists and dictionaries: nothing with a state of its own."""
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if isinstance(value, (tuple, list)):
            waiting.extend(value)
        elif isinstance(value, dict):
            waiting.extend(value.values())
        elif not isinstance(value, (torch.Tensor, int, float, str, bool, type(None), torch.dtype, torch.device)):
            return False
    return True
