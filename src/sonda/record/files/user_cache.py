"""The user's cache directory: what every store of a user may use, and what may be deleted at any time."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache(name: str) -> Path:
    """`sonda/<name>` in the user's cache directory. Raises RuntimeError for a user without a home."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "sonda" / name
