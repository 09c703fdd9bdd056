"""Reports a failure to observe: a file beside the events, which the parent process prints in one line."""

from __future__ import annotations

import os
import traceback


def report_failure(directory: str) -> None:
    """Write the traceback of the exception that is being handled. The program goes on unobserved."""
    try:
        with open(os.path.join(directory, f"{os.getpid()}.failure"), "w", encoding="utf-8") as file:
            file.write(traceback.format_exc())
    except OSError:
        pass


def first_line(error: BaseException, otherwise: str = "") -> str:
    """The first line of an error's message. Without a message: `otherwise`, or the name of its class."""
    return (str(error).strip().splitlines() or [otherwise or type(error).__name__])[0]
