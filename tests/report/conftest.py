"""Tests of pages share a browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from browser import close_shared


def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """No other test finds it running."""
    if nextitem is None or Path(__file__).parent not in nextitem.path.parents:
        close_shared()
