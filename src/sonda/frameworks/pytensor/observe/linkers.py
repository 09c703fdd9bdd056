"""Operations of a PyTensor function whose linker runs them one by one: each is a layer, numbered in the order in which
they run.

A virtual machine in Python calls a function for each operation, so clocks go around it. The one in C measures how long
each took and not when: its operations are laid one after another, from the begin of the call.
"""

from __future__ import annotations

from time import perf_counter_ns as now
from typing import Any, Protocol

from ...collector.recorder import Recorder, Stream

# ---- Which of PyTensor's linkers made a function, in the word that PyTensor's own settings have for it --------------

WORDS = {
    "NumbaLinker": "numba", "JAXLinker": "jax", "PytorchLinker": "pytorch", "MLXLinker": "mlx", "PerformLinker": "py",
    "CLinker": "c", "OpWiseCLinker": "c|py",
}  # fmt: skip
IN_ONE = frozenset({"numba", "jax", "pytorch", "mlx", "c"})
"""Linkers that make one piece of code of a whole graph: nobody can tell how long one of its operations takes."""


def linker_of(function: Any) -> str:
    """`numba`, `cvm`, `vm`, …; the name of its class where PyTensor has no word for it."""
    linker = function.maker.linker
    name = type(linker).__name__
    if name == "VMLinker":
        return "cvm" if linker.use_cloop else "vm"
    return WORDS.get(name, name)


# ----------------------------------------------------------------------------------------------------------------------


class Nodes(Protocol):
    """The operations of one function."""

    def begin(self, stream: Stream) -> None:
        """A call begins, whose operations are to be recorded."""

    def end(self, stream: Stream) -> None:
        """The call ends."""

    def remove(self) -> None:
        """Put everything back."""


def nodes_of(function: Any, recorder: Recorder, root: int, root_name: str) -> Nodes | None:
    """Who records the operations of this function; None where that cannot be, or its program measures them itself."""
    machine = function.vm
    nodes = getattr(machine, "nodes", None)
    if not nodes or function.profile is not None:
        return None
    codes = [
        recorder.define(
            kind="layer", name=_name(node.op), path=str(number), root=root, root_name=root_name, direction="forward"
        )
        for number, node in enumerate(nodes)
    ]
    if type(machine).__name__ in ("Loop", "Stack") and isinstance(machine.thunks, list):
        return _InPython(machine, codes)
    if hasattr(machine, "time_thunks") and hasattr(machine, "call_times"):
        return _InC(machine, codes)
    return None


def _name(operation: Any) -> str:
    """A class, as layers have: `Dot22`, and of an operation on every element `Sigmoid` or `Composite`."""
    return type(getattr(operation, "scalar_op", operation)).__name__


class _InPython:
    def __init__(self, machine: Any, codes: list) -> None:
        self._machine = machine
        self._push: Any = None
        """Of the thread whose call is recorded; None between such calls."""
        self._originals = list(machine.thunks)
        machine.thunks[:] = [self._timed(thunk, code) for thunk, code in zip(self._originals, codes, strict=True)]

    def _timed(self, thunk: Any, code: int) -> Any:
        def timed() -> Any:
            push = self._push
            if push is None:
                return thunk()
            push((code, now()))
            try:
                return thunk()
            finally:
                push((code + 1, now()))

        # Machines and messages of errors ask a thunk for its inputs, its outputs, and whether it is lazy.
        vars(timed).update(vars(thunk))
        return timed

    def begin(self, stream: Stream) -> None:
        self._push = stream.push

    def end(self, stream: Stream) -> None:
        self._push = None

    def remove(self) -> None:
        self._push = None
        self._machine.thunks[:] = self._originals


class _InC:
    def __init__(self, machine: Any, codes: list) -> None:
        self._machine = machine
        self._codes = codes
        self._before: list = []
        """How often each ran, and how long it took, before this call."""
        self._start = 0

    def begin(self, stream: Stream) -> None:
        self._before = list(zip(self._machine.call_counts, self._machine.call_times, strict=True))
        self._machine.time_thunks = 1
        self._start = now()

    def end(self, stream: Stream) -> None:
        time, latest = self._start, now()
        events: list = []
        after = zip(self._machine.call_counts, self._machine.call_times, strict=True)
        for code, (often, long), (count, total) in zip(self._codes, self._before, after, strict=True):
            if count > often:
                # Its clock is not this one, and counts in µs: nothing may end after the call.
                stop = min(time + round((total - long) * 1e9), latest)
                events += (code, time, code + 1, stop)
                time = stop
        stream.push(events)
        self._machine.time_thunks = 0

    def remove(self) -> None:
        self._machine.time_thunks = 0
