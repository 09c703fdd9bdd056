"""Words that distinguish events of imported profiles: the importer writes them, the analysis reads them."""

from __future__ import annotations

import re

PIPELINE_PATH = "tf.data"
"""The path of what threads of tf.data do: they prepare what steps will ask for."""
EAGER_PATH = "eager"
"""Before the path of operations that were called one by one, outside of a compiled function."""
LOADING = "enumerate(DataLoader)"
"""How PyTorch's mark of making or waiting for the next batch begins."""
GET_NEXT = ("IteratorGetNext", "EagerLocalExecute: IteratorGetNext", LOADING)
"""Beginnings of names of calls that wait for the next batch."""
ENGINE = "autograd::engine::"
"""Before the names of what PyTorch's autograd does around an operation."""
LAUNCHING = "launch of "
"""Before the name of a kernel, where a call of the device's programming interface bears it."""
DRIVER = re.compile(r"(?:cu|hip)[A-Z]\w*|cuda[A-Z]\w*")
"""Calls of a device's programming interface that are named by themselves."""
TRANSFERRING = ("DevicePut", "CommonPjRtClient::BufferFromHost", "TransferToDevice", "TransferFromDevice", "ToLiteral")
"""Beginnings of names of calls by which a host moves data to a device, or back."""
COMMUNICATING = re.compile(
    r"all-reduce|all-gather|all-to-all|reduce-scatter|collective-permute|Collective(?:Reduce|Gather|Bcast|AllToAll)|"
    r"NcclAllReduce|^communicate$"
)
"""In names of XLA's instructions, TensorFlow's operations and Sonda's own phase that communicate."""
ON_HOST = re.compile(r"(?:gloo|mpi|ucc):")
"""Beginnings of names by which PyTorch marks collectives that the host executes."""
CALLING = re.compile(r"\w{1,4}ccl:|_?c10d\w*::|record_param_comms$")
"""Beginnings of names of the calls that hand a collective over to its backend, or wait for it."""


def executes_collective(name: str) -> bool:
    """Whether the host executes a collective under this name."""
    return bool(ON_HOST.match(name) or COMMUNICATING.search(name))


def communicates(name: str) -> bool:
    """Whether an event of the host under this name is of communication: it executes it, calls it, or waits for it."""
    return executes_collective(name) or bool(CALLING.match(name))
