"""Which run of a compiled function an operation of JAX's profile belongs to, where the profile of a GPU does not say.

Kernels of a GPU carry the function and no number of its run. The host says when it began each run, and a call is waited
for before the next: what was launched from one begin to the next is of one run. Under a CUDA graph the profile names
the graph in place of the instruction (`jax_graphs`).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from sonda.frameworks.jax_profile import Operation

BEGINS = re.compile(r"^\[(\d+)\] GpuExecutable::ExecuteThunks$")
"""What the host does to begin a run on the GPU of this number; its stat `module_name` says of which function."""
GRAPH = re.compile(r"^command_buffer(_\d+)?$")


def numbered(
    operations: Iterable[tuple[Operation, int, int]], begins: Mapping[tuple[str, int], Sequence[int]]
) -> Iterator[Operation]:
    """Operations of GPUs with the numbers of their runs, from 1, the same on all GPUs.

    Each comes with the number of its GPU and when it was launched, ns; `begins` holds when the runs of a function began
    on a GPU. What was launched before the first is left out.
    """
    ordered = {key: sorted(times) for key, times in begins.items()}
    for one, gpu, launched in operations:
        run = bisect_right(ordered.get((one.module, gpu), ()), launched)
        if run:
            yield replace(one, run=run, device=gpu)
