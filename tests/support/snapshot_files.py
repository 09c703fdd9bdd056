"""Snapshots: screens kept as plain text files, to be read by people when they change.

`SONDA_UPDATE_SNAPSHOTS=1` writes them anew; look at the difference before keeping it.
"""

from __future__ import annotations

import os

from places import TESTS

FOLDER = TESTS / "snapshots"


def check(name: str, text: str) -> None:
    """Compare a screen with its snapshot."""
    path = FOLDER / f"{name}.txt"
    if os.environ.get("SONDA_UPDATE_SNAPSHOTS") == "1":
        FOLDER.mkdir(exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
    assert text + "\n" == path.read_text(encoding="utf-8")
