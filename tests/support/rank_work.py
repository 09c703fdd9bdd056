"""Readers of ranks that are killed in the middle of their work: found by their names in other processes."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from sonda.imports import rank_workers as spread_ranks


@dataclass(frozen=True)
class Doomed:
    """An order during which a process is killed once, or, where `mark` is no file, whoever does it."""

    order: Any
    work: str
    inside: str
    """What the process is doing when it is killed, by its name in `spread_ranks`."""
    mark: str

    def __str__(self) -> str:
        return str(self.order)


def do(doomed: Doomed) -> Any:
    """The order's own work; it dies when it comes to `inside`, after some of its files were written."""
    mark = Path(doomed.mark) if doomed.mark else None

    def killed(*_: Any, **__: Any) -> None:
        if mark is not None:
            mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)

    if "rank2" not in str(doomed.order) or (mark is not None and mark.exists()):
        return getattr(spread_ranks, doomed.work)(doomed.order)
    with patch.object(spread_ranks, doomed.inside, killed):
        return getattr(spread_ranks, doomed.work)(doomed.order)
