"""What all tests share: no example has a deadline, because machines may be busy; screens are as wide as in a pipe."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("sonda", deadline=None)
settings.load_profile("sonda")

os.environ.pop("COLUMNS", None)  # pytest-xdist gives its workers a terminal of 80 columns
