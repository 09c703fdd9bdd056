"""A scheduler of Dask and its workers, each a process: what tests of clusters kill, stop and start again."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from places import SUPPORT


class Machinery:
    """A scheduler on the loopback and workers, each a process."""

    def __init__(self, folder: Path, more: Sequence[str] = ()) -> None:
        """`more` are words of the scheduler's and every worker's command line."""
        self.folder = folder
        self.more = list(more)
        self.file = folder / "scheduler.json"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        (folder / "tmp").mkdir()
        # A port that is bound, and not listened at, is given to nobody who asks for any; the scheduler may share it.
        self._port = socket.socket()
        self._port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._port.bind(("127.0.0.1", 0))
        self.start()
        self.wait_for(self._written)

    def start(self) -> None:
        """Start the scheduler, always at the same address."""
        port = str(self._port.getsockname()[1])
        words = ["scheduler", "--host", "127.0.0.1", "--port", port, "--scheduler-file", str(self.file)]
        self.begin("scheduler", words)

    def _written(self) -> bool:
        """The file appears before its content."""
        return self.file.exists() and self.file.read_text().rstrip().endswith("}")

    def begin(
        self, name: str, words: list[str], node: str = "", before: str = "pass", within: Sequence[str] = ()
    ) -> None:
        """Start a process. `before` are statements that it begins with, `within` a command that starts it."""
        program = f"{before}; from dask.__main__ import main; main()"
        environment = {
            **os.environ, "PYTHONPATH": str(SUPPORT), "SONDA_NODE": node, "OMP_NUM_THREADS": "1",
            "TMPDIR": str(self.folder / "tmp"),
        }  # fmt: skip
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

    def workers(self, **nodes: str) -> None:
        """Plain workers, by name, each on its node; waits until they are there, and nobody else."""
        for name, node in nodes.items():
            self.worker(name, node)
        self.wait_for_workers()

    def restart(self) -> None:
        """End the scheduler and its workers, and start it again at the same address."""
        for name in list(self.processes):
            self.end(name)
        self.start()

    @property
    def address(self) -> str:
        return str(json.loads(self.file.read_text())["address"])

    def wait_for(self, true: Any, seconds: float = 300) -> None:
        until = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < until, "waited too long"
            time.sleep(0.1)

    def wait_for_workers(self) -> None:
        """Wait until the scheduler knows exactly the workers that were started and not ended."""
        from distributed import Client

        with Client(self.address, set_as_default=False, timeout=120) as client:

            def names() -> list[str]:
                # Asked by itself: what the client keeps is emptied for a moment every two seconds.
                said = client.sync(client.scheduler.identity, n_workers=-1)
                return sorted(about["name"] for about in said["workers"].values())

            self.wait_for(lambda: names() == sorted(set(self.processes) - {"scheduler"}))

    def end(self, name: str, how: int = signal.SIGKILL) -> None:
        process = self.processes.pop(name)
        process.send_signal(how)
        process.wait()

    def close(self) -> None:
        for name in list(self.processes):
            self.end(name)
        self._port.close()
