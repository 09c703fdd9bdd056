"""A block of the program that is running now, observed from inside: what `sonda.profile()` does."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter_ns

from sonda.frameworks.collector.start import ObservedBlock
from sonda.frameworks.reconstruction.assembly import assemble
from sonda.probes.machine.contamination import read_conditions
from sonda.record.errors import SondaError
from sonda.record.run import Run, write_run
from sonda.record.store import Store
from sonda.record.target import NO_STEP_OF_BLOCK, BlockTarget
from sonda.record.workload import Workload
from sonda.targets.circumstances import describe_gpus, describe_habits, describe_pipelines, observed_circumstances
from sonda.targets.instrument import Observation, RunPlan
from sonda.targets.pipeline import draft_run
from sonda.targets.profiles.jax import with_jitted_layers
from sonda.targets.profiles.kernels import with_kernels
from sonda.targets.profiles.tensorflow import with_graph_layers
from sonda.targets.program.launcher import read_failure
from sonda.targets.target import available_threads

MOST_NAMED = 5
"""Functions."""

_observing: list[ProfiledBlock] = []
"""The block that is being observed: frameworks can be patched once only."""


class ProfiledBlock:
    """A block that is observed from the construction of this object until `finish`."""

    def __init__(self, store: Store, directory: Path, name: str, count: bool, stacks: bool) -> None:
        self.store = store
        self.directory = directory
        self._handled = sys.exc_info()[1]
        """An exception that the program was handling already when the block began."""
        self.name = name
        self.observed = ObservedBlock({"directory": str(directory), "count": count, "kernels": count, "stacks": stacks})
        self._warned_of = self.observed.unseen()
        if self._warned_of:
            warnings.warn(describe_unseen(self._warned_of), stacklevel=6)  # where the block begins
        self.before = read_conditions()
        self.begin = perf_counter_ns()

    def finish(self) -> Run:
        """Stop observing and keep the run: complete, or incomplete when an exception is on its way out."""
        end = perf_counter_ns()
        failed = sys.exc_info()[1] is not self._handled
        after = read_conditions()
        unseen = self.observed.unseen()
        self.observed.end()
        assembly = assemble(self.directory, self.begin, end)
        kernels = with_kernels(assembly, self.directory, self.begin)
        spans, of_graphs = with_graph_layers(assembly, kernels.spans, self.directory, self.begin)
        spans, of_jitted = with_jitted_layers(assembly, spans, self.directory, self.begin)
        failure = read_failure(self.directory)
        threads = assembly.threads or available_threads()
        observation = Observation(
            spans,
            workload=Workload.of(
                {
                    "name": self.name or "block",
                    "framework": assembly.framework or "torch",
                    "block": True,
                    **({"traced": assembly.traced} if assembly.traced else {}),
                    **describe_pipelines(assembly),
                    **describe_habits(assembly),
                }
            ),
            target=BlockTarget.of(
                spec="", device="cuda" if assembly.devices else "cpu", threads=threads, **describe_gpus(assembly)
            ),
            circumstances=observed_circumstances(assembly, threads, self.store.root, self.before, after, whole=False),
            assembly=assembly,
            complete=not failed,
            notes=[
                *([f"observing failed: {failure}"] if failure else []),
                *([describe_unseen(unseen)] if unseen else []),
                *kernels.notes,
                *of_graphs,
                *of_jitted,
            ],
        )
        if set(unseen) - set(self._warned_of):
            warnings.warn(describe_unseen(unseen), stacklevel=4)  # where the block ends
        elif not unseen and not spans.where(kind="step").any():
            warnings.warn(NO_STEP_OF_BLOCK, stacklevel=4)
        draft = draft_run(RunPlan("block", self.store, self.directory, lambda text: None), observation)
        return write_run(self.store.root, draft.info, draft.spans, stacks=draft.stacks)


def describe_unseen(names: Sequence[str]) -> str:
    """Why the block does not show these jitted functions, and what would."""
    more = len(names) - MOST_NAMED
    listed = ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
    return (
        f"sonda.profile() does not see {listed}: jax.jit made them before the block; make them inside it, or observe "
        "the whole program: sonda run -- python PROGRAM"
    )


@contextmanager
def observe_block(store: Store, name: str, count: bool, stacks: bool) -> Iterator[ProfiledBlock]:
    """Observe until `finish` is called inside the context; raises SondaError when another block is being observed."""
    if _observing:
        raise SondaError("another sonda.profile() is still observing", "end it first: blocks cannot be nested")
    with ExitStack() as stack:
        directory = stack.enter_context(store.scratch())
        block = ProfiledBlock(store, directory, name, count, stacks)
        _observing.append(block)
        stack.callback(_observing.clear)
        stack.callback(block.observed.end)
        yield block
