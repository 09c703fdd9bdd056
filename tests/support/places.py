"""Where things lie that tests use."""

from __future__ import annotations

from pathlib import Path

SUPPORT = Path(__file__).parent
TESTS = SUPPORT.parent
DATA = TESTS / "data"
PROGRAMS = TESTS / "programs"
REPOSITORY = TESTS.parent
