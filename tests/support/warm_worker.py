"""Workers that have PyTorch in memory already: each is forked from one process, so that no test waits for the import.

`WarmPopen` stands in the place of `subprocess.Popen` in `sonda.targets.local.child` and `sonda.targets.ranks.agent`. A
worker, or an agent and the ranks that it starts, has the command line, the environment, the directory and the standard
streams that it is given, as a process that is started has; a job for another framework is run by an interpreter of its
own. What libraries read as they are loaded (`OMP_PLACES`), and how an interpreter begins and ends, only tests marked
`cold` see.

Run as a program, this file is the process that forks.
"""

from __future__ import annotations

import array
import atexit
import ctypes
import importlib
import io
import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

# ---- the tests' side ----------------------------------------------------------------------------------------------

WORKER, AGENT, RANK = ("sonda.targets.local.worker", "sonda.targets.ranks.elastic_agent", "sonda.targets.ranks.rank")
IMPORTED = (
    WORKER, AGENT, RANK, "sonda.targets.training.trainer", "sonda.frameworks.torch.drive.epochs",
    "sonda.frameworks.torch.observe.observer", "sonda.frameworks.torch.parallel.calibration",
    "sonda.frameworks.torch.parallel.shared_task", "sonda.targets.ranks.shares", "sonda.targets.ranks.stages",
    "sonda.workloads.catalogue", "torch.distributed.launcher.api", "torch.nn.parallel.distributed",
)  # fmt: skip
"""What every worker, agent or rank imports."""
ROOM = 2000
"""Characters in the command line of the process that forks, for those of the processes that it forks."""

_server: list[Any] = []
"""The process that forks, and the path of its socket; empty until the first worker is wanted."""
_elsewhere: list[str] = []
"""The path of the socket, where another process of the tests has started the process that forks."""
_begun: dict[str, str] = {}
"""The environment in which the tests began; empty in processes that they start."""


def keep_environment() -> None:
    """Have processes that tests share begin in the environment of this moment, whichever test wants them first."""
    _begun.update(os.environ)


def quiet_environment() -> dict[str, str]:
    """For a process that tests share: it has one thread and no GPU, and nothing that a test has set for itself."""
    return {**(_begun or os.environ), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def server_socket() -> str:
    """The path of the socket at which workers are asked for; starts the process that forks where there is none."""
    if _elsewhere:
        return _elsewhere[0]
    if not _server or _server[0].poll() is not None or _server[2] != os.getpid():
        started = subprocess.Popen(
            [sys.executable, "-P", __file__, " " * ROOM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=quiet_environment(),
            text=True,
        )
        assert started.stdout is not None
        place = started.stdout.readline().strip()
        assert place, "the process that forks did not begin"
        _server[:] = [started, place, os.getpid()]
        atexit.register(_end_server, started)
    return str(_server[1])


def use_server(path: str) -> None:
    """Have this process, which a test started, ask for its workers and agents where the test does."""
    from sonda.targets.local import child
    from sonda.targets.ranks import agent

    _elsewhere[:] = [path]
    for module in (child, agent):
        module.subprocess = warm_subprocess()  # type: ignore[attr-defined]


def warm_subprocess() -> SimpleNamespace:
    """Has what the modules that start workers and agents use of `subprocess`."""
    names = ("PIPE", "DEVNULL", "TimeoutExpired")
    return SimpleNamespace(Popen=_start, **{name: getattr(subprocess, name) for name in names})


def _start(command: list[str], env: Mapping[str, str], stdin: int) -> Any:
    if command[3] in (WORKER, AGENT):
        return WarmPopen(command, stdin, env)
    return subprocess.Popen(command, env=env, stdin=stdin)


def _end_server(server: subprocess.Popen[str]) -> None:
    """Have it end by itself, so that it removes its socket."""
    assert server.stdin is not None
    server.stdin.close()
    try:
        server.wait(timeout=10)
    except subprocess.TimeoutExpired:
        server.kill()


class WarmPopen:
    """Has what is used of a `subprocess.Popen`: a worker is given its job, an agent reads nothing."""

    def __init__(self, command: list[str], stdin: int, env: Mapping[str, str]) -> None:
        assert command[1:3] == ["-P", "-m"]
        order = {"command": command, "env": dict(env), "cwd": os.getcwd()}
        if stdin == subprocess.PIPE:
            reading, self._writing = os.pipe()
        else:
            reading, self._writing = os.open(os.devnull, os.O_RDONLY), -1
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(server_socket())
        for stream in (sys.__stdout__, sys.__stderr__):
            if stream is not None:
                stream.flush()
        socket.send_fds(self._connection, [b"x"], [reading, 1, 2])
        os.close(reading)
        self._connection.sendall(json.dumps(order).encode() + b"\n")
        self._answers = self._connection.makefile("r")
        self.pid = int(self._answers.readline())
        self.returncode: int | None = None

    def communicate(self, data: bytes) -> None:
        with suppress(BrokenPipeError), open(self._writing, "wb") as pipe:
            pipe.write(data)
        self._writing = -1
        self.wait()

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a warm process", timeout or 0.0)
            self.returncode = os.waitstatus_to_exitcode(int(self._answers.readline() or signal.SIGKILL))
            self._answers.close()
            self._connection.close()
        return self.returncode

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0.0)
        return None

    def kill(self) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(self.pid, signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._writing >= 0:
            os.close(self._writing)
        self.wait()


# ---- the process that forks ---------------------------------------------------------------------------------------


def serve() -> None:
    import gc

    import torch

    for name in IMPORTED:
        importlib.import_module(name)

    sys.path.append(os.path.dirname(__file__))
    for name in importlib.import_module("torch_modules").MODULES:
        importlib.import_module(name)
    sys.path.pop()

    place = os.path.join(tempfile.mkdtemp(prefix="sonda-warm-"), "socket")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(place)
    listening.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that forked a worker
    threading.Thread(target=_end_with_tests, args=(place,), daemon=True).start()
    weight = torch.nn.Parameter(torch.ones(1))  # what every first optimizer does, short of a backward
    torch.optim.SGD([weight], lr=0.1).zero_grad()
    gc.freeze()
    print(place, flush=True)
    while True:
        connection, _ = listening.accept()
        if not os.fork():
            listening.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _wait_for_worker(connection)
            os._exit(0)
        connection.close()


def _end_with_tests(place: str) -> None:
    sys.stdin.buffer.read()  # ends with the process that started this one
    os.unlink(place)
    os.rmdir(os.path.dirname(place))
    os._exit(0)


def _wait_for_worker(connection: socket.socket) -> None:
    _, streams, _, _ = socket.recv_fds(connection, 1, 3)
    order = json.loads(connection.makefile("r").readline())
    child = os.fork()
    if not child:
        connection.close()
        os._exit(_become(order, streams))
    for stream in streams:
        os.close(stream)
    connection.sendall(f"{child}\n".encode())
    _, status = os.waitpid(child, 0)
    with suppress(BrokenPipeError):  # nobody waits for it any more
        connection.sendall(f"{status}\n".encode())


def _become(order: dict[str, Any], streams: array.array[int] | list[int]) -> int:
    """Run the worker in this process; returns its exit code."""
    import torch

    from sonda.targets.job import JOB
    from sonda.targets.local import worker

    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    command = order["command"]
    _take_place(command, order["env"], order["cwd"])
    torch.set_num_threads(int(order["env"]["OMP_NUM_THREADS"]))
    if command[3] == AGENT:
        return _be_agent(command)
    job = os.read(0, 1 << 24)
    while chunk := os.read(0, 1 << 24):
        job += chunk
    if json.loads(job).get("framework", "torch") != "torch":
        (Path(command[4]) / JOB).write_bytes(job)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.execve(command[0], command, order["env"])
    sys.stdin = io.TextIOWrapper(io.BytesIO(job))
    return _run_main(worker.main, command[3:])


def _take_place(command: Sequence[str], environment: Mapping[str, str], directory: str = "") -> None:
    """Give this process a command line, an environment, a directory, and numbers of its own."""
    import random

    import numpy
    import torch

    begin, end = map(int, Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45:47])
    line = "\0".join(command).encode()[: end - begin - 1]
    ctypes.memmove(begin, line.ljust(end - begin, b"\0"), end - begin)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # it may be another there
    if directory:
        os.chdir(directory)
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:0] = paths
    # A new interpreter begins with numbers of its own: what forgets to seed them must not seem to repeat itself.
    random.seed()
    numpy.random.seed()
    torch.seed()
    if any(Path(path, "sitecustomize.py").exists() for path in paths):  # which an interpreter runs first
        sys.modules.pop("sitecustomize", None)
        importlib.import_module("sitecustomize")


def _run_main(main: Callable[[], int], arguments: list[str]) -> int:
    """The exit code of a program whose `main` is run in this process."""
    sys.argv = arguments
    sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115 - they last as long as the process
    try:
        code = main()
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 0
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _be_agent(command: list[str]) -> int:
    """Run the agent in this process, which forks its ranks."""
    from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler

    from sonda.targets.ranks import elastic_agent

    subprocess_handler.Popen = ForkedRank  # type: ignore[misc]
    return _run_main(elastic_agent.main, command[3:])


class ForkedRank(subprocess.Popen):
    """A rank that its agent forks; what runs under a tool is started."""

    def __init__(self, args: tuple[str, ...], env: dict[str, str], **settings: Any) -> None:
        self._environment = env
        super().__init__(args, env=env, **settings)

    def _execute_child(self, args: tuple[str, ...], *settings: Any) -> None:
        if args[3] != RANK:
            super()._execute_child(args, *settings)  # type: ignore[misc]
            return
        self.pid = os.fork()
        if self.pid:
            self._child_created = True
            return
        code = 1
        try:
            code = _be_rank(args, self._environment)
        finally:
            os._exit(code)


def _be_rank(command: tuple[str, ...], environment: dict[str, str]) -> int:
    import gc

    from sonda.targets.ranks import rank

    os.setsid()
    gc.freeze()
    # Whatever of the agent is open: a rank that kept it would hide the agent's end from others.
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > 2 and number != nothing:
            with suppress(OSError):  # that of the list
                os.fstat(number)
                os.dup2(nothing, number)
    for one in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(one, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    logging.getLogger("torch.distributed").setLevel(logging.NOTSET)
    _take_place(command, environment)
    return _run_main(rank.main, list(command[3:]))


if __name__ == "__main__":
    serve()
