"""The counted step of a network whose framework hides its operations. Formulas announce it; nothing runs.

Times of the pass `count` are never shown, so nothing needs to run in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Protocol

from sonda.frameworks.harness.announcer import AnnouncedObserver


class NominalCost(Protocol):
    """What an operation costs by formula."""

    @property
    def flops(self) -> int: ...

    @property
    def bytes(self) -> int: ...


class OperationsTaskProtocol(Protocol):
    """Operations that are ready to run, by name."""

    @property
    def names(self) -> Sequence[str]: ...

    @property
    def functions(self) -> Mapping[str, Any]:
        """The functions, not compiled yet."""

    @property
    def operands(self) -> Mapping[str, tuple[Any, ...]]: ...

    @property
    def costs(self) -> Mapping[str, NominalCost]: ...

    @property
    def dtype(self) -> str: ...


class StepCost(NominalCost, Protocol):
    """One operation of a step: its phase, its layer ('' for the network itself), its FLOPs and bytes."""

    @property
    def phase(self) -> str: ...

    @property
    def path(self) -> str: ...

    @property
    def class_name(self) -> str: ...

    @property
    def operation(self) -> str: ...


@dataclass(frozen=True)
class _MovedCost:
    """A cost that was moved to another layer."""

    phase: str
    path: str
    class_name: str
    operation: str
    flops: int
    bytes: int


def move_cost(cost: StepCost, path: str, class_name: str) -> StepCost:
    """The same cost, moved to this layer."""
    return _MovedCost(cost.phase, path, class_name, cost.operation, cost.flops, cost.bytes)


def count_step(observer: AnnouncedObserver, part: str, costs: Iterable[StepCost], framework: str, dtype: str) -> None:
    """Announce one step of `part` in the pass `count`; operations are named `framework.operation`.

    Loss and optimizer have operations only, other phases have layers.
    """
    with observer.span("pass", "count"), observer.span("step", part):
        for phase, phase_costs in groupby(costs, key=lambda cost: cost.phase):
            with observer.phase(phase):
                layered = phase not in ("loss", "optimizer")
                if layered:
                    direction = "backward" if phase == "backward" else "forward"
                    with observer.layer("", direction=direction):
                        for cost in phase_costs:
                            with observer.layer(cost.path, cost.class_name, direction):
                                _announce(observer, cost, framework, dtype)
                    continue
                for cost in phase_costs:
                    _announce(observer, cost, framework, dtype)


def _announce(observer: AnnouncedObserver, cost: StepCost, framework: str, dtype: str) -> None:
    with observer.operation(f"{framework}.{cost.operation}", cost.flops, cost.bytes, dtype):
        pass
