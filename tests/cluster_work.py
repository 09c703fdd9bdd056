"""Work that other processes do in tests of executors: found by its name, so it stands in a module of its own."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from sonda.record.errors import SondaError


def square(number: int) -> int:
    return number * number


def refuse(number: int) -> int:
    raise SondaError(f"{number} cannot be", "give another")


def fail(number: int) -> int:
    raise ValueError(f"number {number}")


def die(number: int) -> int:
    """Dies of 3."""
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def die_once(order: tuple[int, str]) -> int:
    """Dies of 3 the first time: the file says that it was there."""
    number, file = order
    if number == 3 and not Path(file).exists():
        Path(file).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def when(order: tuple[str, float]) -> tuple[str, float, float, int]:
    """Where it ran, from when to when, and in which process."""
    from sonda.targets.node import node_name

    begin = time.time()
    time.sleep(order[1])
    return node_name(), begin, time.time(), os.getpid()


def append_and_wait(order: tuple[str, float]) -> int:
    """Notes that it began, then takes its time."""
    with open(order[0], "a", encoding="utf-8") as file:
        file.write("begun\n")
    time.sleep(order[1])
    return os.getpid()
