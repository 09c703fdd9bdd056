"""The protocols between the rooms: what a task, a workload, a probe and a rule promise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

from sonda.record.run import ProbeState
from sonda.record.samples import Reading

Mark = Callable[[str], AbstractContextManager[None]]
"""`with mark("prefill"): ...` announces a phase. A workload is handed one and knows nothing of who listens."""


class Task(Protocol):
    """A workload made ready in one framework: the model and its data are in memory."""

    model: Any
    inputs: Any
    """What one inference step is given."""
    samples: int
    """Samples that one step processes."""
    tokens: int
    """Tokens that one step processes; 0 where that has no meaning."""
    phase_tokens: dict[str, int]
    """Tokens that a phase of the step processes, where phases differ in that: prefill and decode."""

    def infer(self, mark: Mark) -> Any:
        """One inference step; returns the model's output."""

    def batches(
        self, workers: int, pin: bool = False, prefetch: int | None = None
    ) -> Iterator[tuple[tuple[Any, ...], Any]]:
        """Endless training batches (inputs, target) of the same shapes, loaded by `workers` processes (0: none).

        `pin` puts them into memory that a GPU can fetch from. `prefetch` is how many batches all processes together
        load ahead, rounded up to a whole number each; None for as many as the framework holds right.
        """

    def loss(self, output: Any, target: Any) -> Any:
        """The scalar to be minimised."""

    def optimizer(self) -> Any:
        """A fresh optimizer over the model's parameters."""


class WorkloadProtocol(Protocol):
    """What runs, as a description: cheap to make, needs no framework."""

    @property
    def name(self) -> str: ...

    def parameters(self) -> dict[str, Any]:
        """Everything that fixes what is computed, as plain values; goes into `run.json`."""

    def build(self, framework: str, train: bool, seed: int) -> Task:
        """Make it ready. Raises SondaError when it cannot be built in this framework."""


class Probe(Protocol):
    """Something that is read while a program runs, from outside it, in a thread of Sonda's."""

    interval: float
    """s between two readings."""

    def state(self) -> ProbeState:
        """Whether it works on this machine, and if not, why and what would change that."""

    def read(self) -> Iterable[Reading]:
        """Read its sensors now. A probe that raises is not read again, and the run calls it dead."""


class Rule(Protocol):
    """Looks at the summary of a run and says what limits it, or nothing."""

    def __call__(self, summary: Any) -> Any: ...
