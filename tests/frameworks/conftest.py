"""What tests of frameworks share: time enough for processes that import them, and one thread of PyTorch's."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LONGEST_S = 900
"""A test may start three processes that import TensorFlow one after the other, each of which takes a minute where
others use the machine too."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LONGEST_S))


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
