"""Determinism: the same bits from the same seed on the same machine, where libraries would choose otherwise.

A GPU's libraries add up in an order that depends on what finishes first, or try several algorithms and take the fastest
of the moment. Without that they are slower, so it is asked for (`--deterministic`) and kept in the run.
"""

from __future__ import annotations

import os

from sonda.record.errors import SondaError

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
WORKSPACES = (":4096:8", ":16:8")
"""What cuBLAS may be told so that its streams share no memory for sums; the larger costs 24 MiB and no time."""
REFUSED = "does not have a deterministic implementation"
"""What PyTorch says of an operation that it has no other way for."""


def be_deterministic() -> None:
    """Have PyTorch use nothing in this process whose result may differ from time to time.

    To be called before anything was multiplied on a GPU. An operation without such a way raises RuntimeError when it is
    met. Raises SondaError where the environment says the contrary.
    """
    given = os.environ.setdefault(WORKSPACE, WORKSPACES[0])
    if given not in WORKSPACES:
        raise SondaError(f"--deterministic: {WORKSPACE} is {given!r}", f"unset it, or set {' or '.join(WORKSPACES)}")
    import torch

    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


def refusal(error: Exception) -> SondaError | None:
    """What to say of an operation that PyTorch cannot do deterministically; None for every other error."""
    operation, found, _ = str(error).partition(f" {REFUSED}")
    if not found:
        return None
    return SondaError(f"--deterministic: PyTorch has no such way for {operation.split()[-1]}", "leave it out")
