"""A block of the program that is running now, observed from inside: what `sonda.profile()` does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter_ns

from sonda.frameworks.assembly import assemble
from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.collector.schedule import Schedule
from sonda.frameworks.collector.start import finish, state_versions
from sonda.frameworks.collector.torch_observer import TorchObserver
from sonda.probes.contamination import read_conditions
from sonda.record.errors import MissingExtraError, SondaError
from sonda.record.run import Run, RunInfo, new_id, write_run
from sonda.record.store import Store
from sonda.targets.keeping import gpus, habits, observed
from sonda.targets.kernels import with_kernels

_observing: list[Block] = []
"""The block that is being observed: PyTorch can be patched once only."""


class Block:
    """Observes from its making until `finish`."""

    def __init__(self, store: Store, directory: Path, name: str, count: bool) -> None:
        try:
            import torch
        except ImportError:
            raise MissingExtraError("PyTorch", "torch") from None
        self.store = store
        self.directory = directory
        self._handled = sys.exc_info()[1]
        """An exception that the program was handling already when the block began."""
        self.name = name
        recorder = Recorder(str(directory))
        self.observer = TorchObserver(recorder, torch, Schedule(count=count, profile=count))
        state_versions(recorder, torch)
        self.before = read_conditions()
        self.begin = perf_counter_ns()
        self.observer.install()

    def finish(self) -> Run:
        """Stop observing and keep the run: complete, or incomplete when an exception is on its way out."""
        end = perf_counter_ns()
        failed = sys.exc_info()[1] is not self._handled
        after = read_conditions()
        recorder = self.observer.recorder
        finish(self.observer)
        recorder.close()
        assembly = assemble(self.directory, self.begin, end)
        kernels = with_kernels(assembly, self.directory, self.begin)
        threads = assembly.threads or self.observer.torch.get_num_threads()
        fields = observed(assembly, threads, self.store.root, self.before, after)
        fields["notes"] += kernels.notes
        info = RunInfo(
            id=new_id(),
            status="incomplete" if failed else "complete",
            workload={"name": self.name or "block", "framework": "torch", "block": True, **habits(assembly)},
            target={
                "spec": "",
                "device": "cuda" if assembly.devices else "cpu",
                "threads": threads,
                **gpus(assembly),
            },
            **fields,
        )
        return write_run(self.store.root, info, kernels.spans)


@contextmanager
def observe_block(store: Store, name: str, count: bool) -> Iterator[Block]:
    """Observe until `finish` is called inside the context; raises SondaError when another block is being observed."""
    if _observing:
        raise SondaError("another sonda.profile() is still observing", "end it first: blocks cannot be nested")
    with ExitStack() as stack:
        directory = stack.enter_context(store.scratch())
        block = Block(store, directory, name, count)
        _observing.append(block)
        stack.callback(_observing.clear)
        stack.callback(block.observer.remove)
        yield block
