"""Operations of a PyTensor function whose linker runs them one by one: each is a layer, numbered in the order in which
they run.

PyTensor's virtual machine in Python calls a function for each operation, which is timed. The one in C measures how long
each operation took and not when: its operations are laid out one after another, from the begin of the call.
"""

from __future__ import annotations

from time import perf_counter_ns as now
from typing import Any, Protocol

from ...collector.recorder import Recorder, Stream

# ---- The linker that made a function, by the name that it has in PyTensor's settings --------------------------------

LINKER_NAMES = {
    "NumbaLinker": "numba", "JAXLinker": "jax", "PytorchLinker": "pytorch", "MLXLinker": "mlx", "PerformLinker": "py",
    "CLinker": "c", "OpWiseCLinker": "c|py",
}  # fmt: skip
WHOLE_GRAPH = frozenset({"numba", "jax", "pytorch", "mlx", "c"})
"""Linkers that compile a whole graph into one piece of code, in which single operations cannot be timed."""


def linker_of(function: Any) -> str:
    """The linker of a function: `numba`, `cvm`, `vm`, …; the name of its class where PyTensor has no name for it."""
    linker = function.maker.linker
    name = type(linker).__name__
    if name == "VMLinker":
        return "cvm" if linker.use_cloop else "vm"
    return LINKER_NAMES.get(name, name)


# ----------------------------------------------------------------------------------------------------------------------


class OperationRecorder(Protocol):
    """Records the operations of one function."""

    def begin(self, stream: Stream) -> None:
        """Begin to record the operations of a call."""

    def end(self, stream: Stream) -> None:
        """End the call."""

    def remove(self) -> None:
        """Put everything back."""


def operation_recorder(function: Any, recorder: Recorder, root: int, root_name: str) -> OperationRecorder | None:
    """A recorder for the operations of a function; None where there can be none, or the program profiles it itself."""
    machine = function.vm
    nodes = getattr(machine, "nodes", None)
    if not nodes or function.profile is not None:
        return None
    codes = [
        recorder.define(
            kind="layer",
            name=_operation_name(node.op),
            path=str(number),
            root=root,
            root_name=root_name,
            direction="forward",
        )
        for number, node in enumerate(nodes)
    ]
    if type(machine).__name__ in ("Loop", "Stack") and isinstance(machine.thunks, list):
        return _PythonRecorder(machine, codes)
    if hasattr(machine, "time_thunks") and hasattr(machine, "call_times"):
        return _CRecorder(machine, codes)
    return None


def _operation_name(operation: Any) -> str:
    """The class of an operation: `Dot22`; of an operation on every element `Sigmoid` or `Composite`."""
    return type(getattr(operation, "scalar_op", operation)).__name__


class _PythonRecorder:
    def __init__(self, machine: Any, codes: list) -> None:
        self._machine = machine
        self._push: Any = None
        """`push` of the stream of the call that is recorded; None between such calls."""
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

        # Virtual machines and error messages read inputs, outputs and laziness from a thunk.
        vars(timed).update(vars(thunk))
        return timed

    def begin(self, stream: Stream) -> None:
        self._push = stream.push

    def end(self, stream: Stream) -> None:
        self._push = None

    def remove(self) -> None:
        self._push = None
        self._machine.thunks[:] = self._originals


class _CRecorder:
    def __init__(self, machine: Any, codes: list) -> None:
        self._machine = machine
        self._codes = codes
        self._before: list = []
        """For each operation, its calls and seconds before this call."""
        self._start = 0

    def begin(self, stream: Stream) -> None:
        self._before = list(zip(self._machine.call_counts, self._machine.call_times, strict=True))
        self._machine.time_thunks = 1
        self._start = now()

    def end(self, stream: Stream) -> None:
        time, latest = self._start, now()
        events: list = []
        after = zip(self._machine.call_counts, self._machine.call_times, strict=True)
        for code, (old_calls, old_seconds), (calls, seconds) in zip(self._codes, self._before, after, strict=True):
            if calls > old_calls:
                # PyTensor has another clock, which counts in µs: nothing may end after the call.
                stop = min(time + round((seconds - old_seconds) * 1e9), latest)
                events += (code, time, code + 1, stop)
                time = stop
        stream.push(events)
        self._machine.time_thunks = 0

    def remove(self) -> None:
        self._machine.time_thunks = 0
