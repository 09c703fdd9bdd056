"""What tests of frameworks share: one thread of PyTorch's."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """What frameworks are held against is computed by one thread; others find PyTorch as it was."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
