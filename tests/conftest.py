"""What all tests share: no example has a deadline, because machines may be busy."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("sonda", deadline=None)
settings.load_profile("sonda")
