"""A scheduler of Dask and its workers, each a process: what tests of clusters kill, stop and start again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent


class Machinery:
    """A scheduler on the loopback and workers, each a process."""

    def __init__(self, folder: Path, more: Sequence[str] = ()) -> None:
        """`more` are words of the scheduler's and every worker's command line."""
        self.folder = folder
        self.more = list(more)
        self.file = folder / "scheduler.json"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.begin("scheduler", ["scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(self.file)])
        self.wait_for(self._written)

    def _written(self) -> bool:
        """The file appears before its content."""
        return self.file.exists() and self.file.read_text().rstrip().endswith("}")

    def begin(
        self, name: str, words: list[str], node: str = "", before: str = "pass", within: Sequence[str] = ()
    ) -> None:
        """Start a process. `before` are statements that it begins with, `within` a command that starts it."""
        program = f"{before}; from dask.__main__ import main; main()"
        environment = {**os.environ, "PYTHONPATH": str(TESTS), "SONDA_NODE": node, "OMP_NUM_THREADS": "1"}
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                [*within, sys.executable, "-c", program, *words, "--no-dashboard", *self.more], stdout=log,
                stderr=log, env=environment, cwd=self.folder,
            )  # fmt: skip

    def worker(self, name: str, node: str, before: str = "pass", within: Sequence[str] = ()) -> None:
        """A worker that makes the runs of studies by hand."""
        words = ["worker", "--scheduler-file", str(self.file), "--nthreads", "1", "--no-nanny", "--name", name]
        by_hand = f"{before}; import cluster_work; cluster_work.measure_by_hand({str(self.folder)!r})"
        self.begin(name, words, node, by_hand, within)

    def restart(self) -> None:
        """End the scheduler and start it again at the same address; its workers end with it."""
        port = self.address.rpartition(":")[2]
        self.end("scheduler")
        for name in [one for one in self.processes if one != "scheduler"]:
            self.end(name)
        self.begin("scheduler", ["scheduler", "--host", "127.0.0.1", "--port", port])

    @property
    def address(self) -> str:
        return str(json.loads(self.file.read_text())["address"])

    def wait_for(self, true: Any, seconds: float = 60) -> None:
        until = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < until, "waited too long"
            time.sleep(0.1)

    def wait_for_workers(self, count: int) -> None:
        from distributed import Client

        with Client(self.address, set_as_default=False) as client:
            client.wait_for_workers(count, timeout=90)

    def end(self, name: str, how: int = signal.SIGKILL) -> None:
        process = self.processes.pop(name)
        process.send_signal(how)
        process.wait()

    def close(self) -> None:
        for name in list(self.processes):
            self.end(name)
