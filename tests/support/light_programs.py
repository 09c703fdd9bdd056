"""Fixtures for tests of programs, without what takes seconds and is tested elsewhere."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from places import PROGRAMS


@pytest.fixture(scope="module")
def without_ceilings() -> Iterator[None]:
    """What the machine can do is not measured."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("local.launcher", "ranks.launcher", "circumstances"):
            patch.setattr(f"sonda.targets.{module}.load_or_measure", lambda *given, **named: {})
        yield


@pytest.fixture(scope="module")
def without_compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Interpreters that are started do not import PyTorch's compiler, which takes as long as the rest of PyTorch."""
    place = tmp_path_factory.mktemp("uncompiled")
    shutil.copy(PROGRAMS / "uncompiled.py", place / "sitecustomize.py")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(place), prepend=os.pathsep)
        yield
