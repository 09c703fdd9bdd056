"""Processes that an observed program starts: which are not observed, and when the others must write."""

from __future__ import annotations

import functools
import sys
from typing import Any

from .recorder import Recorder

WORKER = "torch.utils.data._utils.worker"
"""The module that holds what `torch.utils.data.get_worker_info()` returns."""


def is_data_worker() -> bool:
    """Whether this process is a worker of PyTorch's DataLoader: it prepares batches and makes no steps."""
    return find_worker() is not None


def find_worker() -> int | None:
    """The number of this process among the workers of its DataLoader; None where it is none."""
    about = getattr(sys.modules.get(WORKER), "_worker_info", None)
    return None if about is None else getattr(about, "id", 0)


def write_before_sending(recorder: Recorder) -> None:
    """Make a process that `multiprocessing` started write its events before it sends a message.

    The receiver of the last result may end the process at once. `with Pool(...)` does, and leaves no time to write.
    """
    process, connection = (sys.modules.get(f"multiprocessing.{name}") for name in ("process", "connection"))
    if process is None or connection is None or process.parent_process() is None:
        return
    send = connection.Connection._send_bytes
    if getattr(send, "sonda", None) is recorder:
        return  # the process that forked this one has done so

    @functools.wraps(send)
    def written_first(self: Any, *args: Any) -> Any:
        recorder.flush_before_message()
        return send(self, *args)

    written_first.sonda = recorder  # type: ignore[attr-defined]
    connection.Connection._send_bytes = written_first
