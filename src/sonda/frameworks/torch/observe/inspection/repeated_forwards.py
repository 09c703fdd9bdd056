"""Finds evaluating forwards that compute what one just before has computed.

Each forward of an inference is a step of its own, so that no step shows it. The first forwards of a program are looked
at, those in counted steps left out: two are alike where module, weights and the content of input and result are.
"""

from __future__ import annotations

from time import perf_counter_ns as now
from typing import Any, NamedTuple

from ..values import tensors_in
from .code_places import CodePlaces
from .repeated_calls import count_versions, describe_content, describe_rest, find_difference

MOST_FORWARDS = 400
"""Forwards of outermost modules that are looked at."""
BUDGET_NS = 50_000_000
"""For all of them: what adding up their inputs may take."""
ADDED = 1 << 14
"""Elements of a tensor that are added up: where input and result agree in these, the rest does."""
RECENT = 16
"""Forwards, within which one that is computed again could have been kept."""


class _Call(NamedTuple):
    signature: tuple | None
    """None for one that cannot be compared."""
    callers: tuple
    again: bool
    """Whether it computes what one of those before has."""
    result: tuple | None


class RepeatedForwards:
    """The first evaluating forwards of a program."""

    def __init__(self, torch: Any, places: CodePlaces) -> None:
        self._torch = torch
        self._places = places
        self._recent: list[_Call] = []
        self._looked = 0
        self._spent = 0
        """ns that looking took."""
        self._first = self._last = 0
        """When the first forward that was looked at began, and when the last one ended."""
        self._open: tuple | None = None
        """Signature and callers of the forward that runs."""
        self._repeated: dict[int, list] = {}
        """By the code of a module: how often, ns, and the line of the last time."""

    def begin(self, module: Any, code: int, args: tuple, kwargs: dict) -> int:
        """Look at a forward that is about to run. Returns when it begins; 0 where it was not looked at."""
        if self._looked >= MOST_FORWARDS or self._spent >= BUDGET_NS:
            return 0
        begin = now()
        self._open = None
        try:
            with self._torch._C._DisableTorchDispatch():  # what is computed here is not the program's
                self._open = self._describe(module, code, args, kwargs), self._places.list_callers()
        except Exception:  # tensors and modules of a library's own classes
            pass
        self._looked += 1
        ready = now()
        self._spent += ready - begin
        self._first = self._first or begin
        return ready

    def end(self, code: int, begin: int, result: Any) -> None:
        """The forward that began then has given this."""
        if not begin:
            return
        ended = now()
        try:
            with self._torch._C._DisableTorchDispatch():  # as above
                self._compare(code, ended - begin, result)
        except Exception:  # as above
            pass
        self._last = now()
        self._spent += self._last - ended

    def facts(self) -> dict:
        """`again`: forwards that were looked at, ns from the first to the last, and for each module its number, how
        often it computed something again, ns, and a line."""
        if not self._repeated:
            return {}
        lasted = self._last - self._first - self._spent
        rows = [[code >> 1, *repeated] for code, repeated in self._repeated.items()]
        return {"again": [self._looked, lasted, rows]}

    def _describe(self, module: Any, code: int, args: tuple, kwargs: dict) -> tuple | None:
        """What two forwards that compute the same have in common; None for one that cannot be compared."""
        tensors, rest = tensors_in(self._torch, (args, kwargs)), describe_rest(self._torch, args, kwargs)
        content = describe_content(self._torch, tensors, ADDED) if tensors and rest is not None else None
        return (code, count_versions(module), rest, content) if content is not None else None

    def _compare(self, code: int, ns: int, result: Any) -> None:
        signature, callers = self._open or (None, ())
        # A forward that draws random numbers gives something else each time.
        content = describe_content(self._torch, tensors_in(self._torch, result), ADDED) if signature else None
        alike = [
            at for at, call in enumerate(self._recent)
            if content is not None and call.signature == signature and call.result == content
        ]  # fmt: skip
        if alike:
            earlier = self._recent[alike[-1]]
            # A loop in which every forward repeats one before measures: it wants them all.
            if earlier.callers != callers or not all(call.again for call in self._recent[alike[-1] + 1 :]):
                repeated = self._repeated.setdefault(code, [0, 0, ""])
                different = find_difference(callers, earlier.callers)
                line = self._places.name(*different) if different is not None else ""
                repeated[:] = repeated[0] + 1, repeated[1] + ns, line
        self._recent = [*self._recent[1 - RECENT :], _Call(signature, callers, bool(alike), content)]
