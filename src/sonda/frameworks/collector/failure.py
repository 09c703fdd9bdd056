"""A failure to observe: written beside the events, for the parent that prints it in one line."""

from __future__ import annotations

import os
import traceback


def report_failure(directory: str) -> None:
    """Leave the reason of the exception that is being handled. The program goes on unobserved."""
    try:
        with open(os.path.join(directory, f"{os.getpid()}.failure"), "w", encoding="utf-8") as file:
            file.write(traceback.format_exc())
    except OSError:
        pass
