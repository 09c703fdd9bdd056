"""Ranks for tests: forked from one process that has PyTorch in memory already, so that a rank costs no import."""

from __future__ import annotations

import multiprocessing
import os
import random
import socket
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from torch_modules import MODULES
from warm_worker import IMPORTED

CONTEXT = multiprocessing.get_context("forkserver")
DEADLINE_S = 600
"""Only a defect takes this long."""


def free_port() -> int:
    """A port that nobody is given by chance before it is used: below those that Linux gives to whoever asks for any."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as trial, suppress(OSError):
            trial.bind(("localhost", port))
            return port


def _rank(function: Callable[..., Any], rank: int, size: int, port: int, results: Any, arguments: tuple) -> None:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="localhost",
                      MASTER_PORT=str(port))  # fmt: skip
    import torch

    from sonda.frameworks.torch.parallel.group import ExchangeMeter, join_ranks, leave_ranks

    torch.set_num_threads(1)
    try:
        if function.__name__ == "whole_rank":  # it joins itself
            results.put((rank, function(*arguments), ""))
            return
        group = join_ranks("gloo", ExchangeMeter(), DEADLINE_S / 2)
        results.put((rank, function(group, *arguments), ""))
        leave_ranks()
    except BaseException:
        results.put((rank, None, traceback.format_exc()))


def started(size: int, function: Callable[..., Any], *arguments: Any) -> tuple[list[Any], Any]:
    """The processes of the ranks, and the queue of what `function(group, *arguments)` returns on each."""
    CONTEXT.set_forkserver_preload([*MODULES, *IMPORTED])
    results = CONTEXT.Queue()
    port = free_port()
    processes = [
        CONTEXT.Process(target=_rank, args=(function, rank, size, port, results, arguments), daemon=True)
        for rank in range(size)
    ]
    for process in processes:
        process.start()
    return processes, results


def on_ranks(size: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What `function(group, *arguments)` returned on every rank; it and what it returns must be plain."""
    processes, results = started(size, function, *arguments)
    found: dict[int, Any] = {}
    try:
        for _ in processes:
            rank, value, failure = results.get(timeout=DEADLINE_S)
            assert not failure, f"rank {rank}: {failure}"
            found[rank] = value
    finally:
        for process in processes:
            process.join(5)
            if process.is_alive():
                process.kill()
    return [found[rank] for rank in range(size)]
