"""What all tests share: examples are the same everywhere and have all the time they need, because machines may be busy;
screens are as wide as in a pipe."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from sonda.record import run

# --hypothesis-profile=default tries other examples each time.
settings.register_profile("sonda", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("sonda")

os.environ.pop("COLUMNS", None)  # pytest-xdist gives its workers a terminal of 80 columns


@pytest.fixture(autouse=True)
def _nobody_describes_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test installs for the runs that are made must not describe those of the next."""
    monkeypatch.setattr(run, "_describers", [])
