"""Determinism: the same bits from the same seed on the same machine.

By default a GPU's libraries may sum in the order in which threads finish, or try several algorithms and take the one
that is fastest at the moment. Deterministic ones are slower, so the user asks for them (`--deterministic`), and the run
records it.
"""

from __future__ import annotations

import os

from sonda.record.errors import SondaError

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
WORKSPACES = (":4096:8", ":16:8")
"""Values with which cuBLAS sums deterministically. The first costs 24 MiB and no time."""
REFUSED = "does not have a deterministic implementation"
"""Words of PyTorch's error for an operation without a deterministic implementation."""


def be_deterministic() -> None:
    """Let PyTorch use only deterministic implementations in this process.

    Call it before the first product on a GPU. An operation without such an implementation raises RuntimeError when it
    is called. Raises SondaError where the environment asks for the contrary.
    """
    workspace = os.environ.setdefault(WORKSPACE, WORKSPACES[0])
    if workspace not in WORKSPACES:
        raise SondaError(
            f"--deterministic: {WORKSPACE} is {workspace!r}", f"unset it, or set {' or '.join(WORKSPACES)}"
        )
    import torch

    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


def explain_refusal(error: Exception) -> SondaError | None:
    """The error to show for an operation without a deterministic implementation; None for every other error."""
    operation, refused, _ = str(error).partition(f" {REFUSED}")
    if not refused:
        return None
    return SondaError(f"--deterministic: PyTorch has no such way for {operation.split()[-1]}", "leave it out")
