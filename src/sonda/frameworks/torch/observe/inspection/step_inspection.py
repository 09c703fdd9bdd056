"""Inspects one counted step: what its operations, calls, gradients and updates show beyond their costs."""

from __future__ import annotations

from time import perf_counter_ns as now
from typing import Any

from ..counting.operation_groups import OperationGroups
from ..values import tensors_in
from .code_places import CodePlaces
from .gradient_uses import GradientUses
from .repeated_calls import RepeatedCalls
from .updates import describe_update


class StepInspection:
    """Takes part in one counted step, from its first forward to its end. Nothing that fails here fails the program."""

    def __init__(self, torch: Any, places: CodePlaces, codes: dict) -> None:
        self._torch = torch
        self._places = places
        self.begin = now()
        self.operations = OperationGroups(torch, places)
        self._calls = RepeatedCalls(torch, places)
        self.gradients = GradientUses(torch, codes)
        self._updates: list = []
        self._batch = 0
        self._line = ""
        self._call_lines: dict[int, str] = {}
        """By the code of a module: the line that called it first."""

    def note_call(self, module: Any, code: int, args: tuple, kwargs: dict, caller: int, backward: bool) -> None:
        """A module is about to be called, by the module of the code `caller`; 0 for none. What a backward computes
        again is meant to be repeated."""
        try:
            self.gradients.note_call(module, code, not caller)
            if code not in self._call_lines:
                self._call_lines[code] = self._places.find()
            if not caller and not self._line:
                self._line = self._places.find()
            if not caller and not self._batch:
                sizes = [tensor.shape[0] for tensor in tensors_in(self._torch, (args, kwargs)) if tensor.dim()]
                self._batch = int(sizes[0]) if sizes else 0
            if not backward:
                with self._torch._C._DisableTorchDispatch():  # what is computed here is not the program's
                    self._calls.note(module, code, args, kwargs, caller)
        except Exception:  # tensors and modules of a library's own classes
            pass

    def note_result(self, code: int, result: Any) -> None:
        try:
            self.gradients.note_result(code, result, self._places.find())
        except Exception:  # as above
            pass

    def backward_begins(self) -> None:
        try:
            self.gradients.backward_begins()
        except Exception:  # as above
            pass

    def backward_ended(self) -> None:
        try:
            self.gradients.backward_ended()
        except Exception:  # as above
            pass

    def optimizer_steps(self, optimizer: Any) -> None:
        """An optimizer is about to step."""
        try:
            self.gradients.optimizer_steps([weight for group in optimizer.param_groups for weight in group["params"]])
        except Exception:  # an optimizer of a library
            pass

    def optimizer_stepped(self, optimizer: Any, model: Any) -> None:
        """An optimizer has stepped; its state is there by now."""
        try:
            weights = [weight for group in optimizer.param_groups for weight in group["params"]]
            with self._torch._C._DisableTorchDispatch():  # as above
                self._updates.append(describe_update(self._torch, optimizer, weights, model))
        except Exception:  # an optimizer of a library
            pass

    def gradients_cleared(self, owner: Any) -> None:
        """The gradients of an optimizer's weights, or of a module's, are about to be cleared."""
        try:
            if isinstance(owner, self._torch.nn.Module):
                self.gradients.gradients_cleared(list(owner.parameters()))
            else:
                self.gradients.gradients_cleared([weight for group in owner.param_groups for weight in group["params"]])
        except Exception:  # as above
            pass

    def facts(self, optimized: set | None) -> dict:
        """Everything that was seen, as a fact to state; `optimized` as in `GradientUses.facts`."""
        try:
            uses = {**self.gradients.facts(optimized), "sizes": self.gradients.layer_sizes()}
        except Exception:  # as above
            uses = {}
        for update in self._updates:
            for table in update["tables"]:
                table[3] = self.gradients.module_of(table[3])
        facts = {
            "inspected": self.begin,
            "until": now(),
            "batch": self._batch,
            "line": self._line,
            "called": [[code >> 1, line] for code, line in self._call_lines.items() if uses.get("thrown")],
            "groups": self.operations.facts(),
            "subnormal": self.operations.subnormal.facts(),
            "formats": self.operations.formats.facts(),
            "repeated": self._calls.facts(self.operations.random),
            "updates": self._updates,
            **uses,
        }
        facts["functions"] = {
            words: self._places.functions[words] for words in _words_in(facts) if words in self._places.functions
        }
        return facts


def _words_in(facts: Any) -> set:
    """Every text in nested lists and dictionaries."""
    words, waiting = set(), [facts]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            words.add(value)
        elif isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, (list, tuple)):
            waiting.extend(value)
    return words
