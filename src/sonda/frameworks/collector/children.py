"""Processes that an observed program starts: which are left alone, and what they write before they may be ended."""

from __future__ import annotations

import functools
import sys
from typing import Any

from .recorder import Recorder

WORKER = "torch.utils.data._utils.worker"
"""Where PyTorch keeps what `torch.utils.data.get_worker_info()` gives."""


def is_data_worker() -> bool:
    """Whether this process is a worker of PyTorch's DataLoader: what it computes is no step, but a batch's making."""
    return getattr(sys.modules.get(WORKER), "_worker_info", None) is not None


def write_before_sending(recorder: Recorder) -> None:
    """Have a process that `multiprocessing` started write what it has seen before it sends something.

    Who has the last result may end the process that sent it: `with Pool(...)` does, and leaves it no time to write.
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
