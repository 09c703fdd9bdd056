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


def first_line(error: BaseException, otherwise: str = "") -> str:
    """What an error says, in one line; of one that says nothing this, or its name."""
    return (str(error).strip().splitlines() or [otherwise or type(error).__name__])[0]
