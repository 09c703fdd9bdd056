"""What all tests share: examples are the same everywhere and have all the time they need, because machines may be busy;
screens are as wide as in a pipe."""

from __future__ import annotations

import gc
import importlib.util
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from sonda.record import run
from sonda.record.files.user_cache import user_cache
from sonda.targets.local import child
from sonda.targets.ranks import agent
from warm_worker import keep_environment, warm_subprocess

# --hypothesis-profile=default tries other examples each time.
settings.register_profile("sonda", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("sonda")

os.environ.pop("COLUMNS", None)  # pytest-xdist gives its workers a terminal of 80 columns

if "PYTEST_XDIST_WORKER" not in os.environ:
    # Workers share a cache, in which the machine's ceilings are measured once. Compiled kernels stay the user's.
    _cache = tempfile.TemporaryDirectory(prefix="sonda-cache-")
    with suppress(OSError, RuntimeError):  # a user without a home that can be written
        _kernels = user_cache("kernels")
        _kernels.mkdir(parents=True, exist_ok=True)
        Path(_cache.name, "sonda").mkdir()
        Path(_cache.name, "sonda", "kernels").symlink_to(_kernels)
    os.environ["XDG_CACHE_HOME"] = _cache.name


def pytest_collection_finish() -> None:
    """Modules and tests stay until the end: nobody need look for garbage among their half a million objects. No test
    has changed the environment yet."""
    gc.collect()
    gc.freeze()
    keep_environment()


@pytest.fixture(autouse=True)
def _nobody_describes_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test installs for the runs that are made must not describe those of the next."""
    monkeypatch.setattr(run, "_describers", [])


@pytest.fixture(autouse=True, scope="session")
def _warm_workers() -> Iterator[None]:
    """Workloads run in processes that have PyTorch in memory already."""
    with pytest.MonkeyPatch.context() as patch:
        if importlib.util.find_spec("torch") is not None:
            for module in (child, agent):
                patch.setattr(module, "subprocess", warm_subprocess())
        yield


@pytest.fixture(autouse=True)
def _cold_workers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workloads of tests marked `cold` run in interpreters of their own."""
    if request.node.get_closest_marker("cold"):
        for module in (child, agent):
            monkeypatch.setattr(module, "subprocess", subprocess)
