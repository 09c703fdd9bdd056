"""The agent of this node: it runs the ranks to their end, and several nodes make one run of all their parts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic

import msgspec

from sonda.record.errors import SondaError
from sonda.record.files.partial import write_whole
from sonda.record.nodes import NodePart
from sonda.record.progress import Lasting, Say
from sonda.record.run import Run
from sonda.record.store import Store
from sonda.targets.job import JOB, OUTCOME, Job
from sonda.targets.ranks.elastic_agent import PLAN
from sonda.targets.ranks.nodes import LOCATION, LOST, PART, RunLocation, is_port_taken
from sonda.targets.ranks.outcomes import BEGUN, AgentReport, Forecast, read_forecast
from sonda.targets.ranks.plan import Plan
from sonda.targets.signals import describe_exit
from sonda.targets.target import STRATEGIES
from sonda.targets.training.supervisor import LostError

POLL_S = 0.1
ROOM = 1 << 18
"""Bytes that ranks need at least to write their outcomes."""


class KeptElsewhereError(SondaError):
    """Not a failure: another node keeps the run of several nodes."""

    def __init__(self, run: str, node: str) -> None:
        super().__init__(f"run {run} of all nodes is kept on node {node}", exit_code=0)


class NodeFiles(msgspec.Struct, frozen=True):
    """What one node saw, as a run of its own: the name of its directory, and its files."""

    name: str
    files: dict[str, bytes]


def agent_command(job: Job, plan: Plan, directory: Path) -> list[str]:
    """Write a job and a plan to a directory; returns the command of the agent that runs them."""
    (directory / JOB).write_bytes(msgspec.json.encode(job))
    (directory / PLAN).write_bytes(msgspec.json.encode(plan))
    # -P: a file in the user's directory that is named like a module must not be imported.
    agent = "strategy_agent" if plan.mode in STRATEGIES else "elastic_agent"
    return [sys.executable, "-P", "-m", f"sonda.targets.ranks.{agent}", str(directory)]


class Agent:
    """The process that starts the ranks of this node.

    Call `run` first, then `gather_parts` and `publish` on the first node or `deliver_part` on the others, then `close`.
    """

    def __init__(
        self,
        job: Job,
        plan: Plan,
        directory: Path,
        say: Say,
        variables: Mapping[str, str] | None = None,
        started: Callable[[int], None] = lambda pid: None,
    ) -> None:
        """`started(pid)` is called with the process whose children the ranks are, each time that they are started."""
        self._job, self._plan, self._directory, self._say = job, plan, directory, say
        self._on_start = started
        # The agent's own threads; every rank has its own.
        self._environment = {**os.environ, **(variables or {}), "OMP_NUM_THREADS": "1"}
        # When a node disappears, PyTorch would print pages of C++; Sonda says what happened in a line. In deterministic
        # mode every rank would warn about the order in which gradients are kept.
        if plan.nodes > 1 or job.deterministic:
            self._environment.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        self._process: subprocess.Popen[bytes] | None = None
        self.node, self.nodes = "", [""]
        """This node's name and those of all, in the order of their ranks, once the ranks have ended."""
        self.same: dict[str, str] = {}
        """Of nodes that are processes of one machine, the first of them."""

    def run(self) -> tuple[AgentReport, Forecast | None]:
        """Run the ranks to their end; shows the forecast as soon as it is there. Raises SondaError when a rank fails.

        With several nodes it returns when the ranks of all nodes have ended; the report is of this node's ranks.
        """
        command = agent_command(self._job, self._plan, self._directory)
        if self._plan.nodes > 1 and is_port_taken(self._plan.at):
            self._say(Lasting(f"a program listens at {self._plan.at} already: taken to be another node"))
        self._process = subprocess.Popen(command, env=self._environment, stdin=subprocess.DEVNULL)
        try:
            self._on_start(self._process.pid)
            forecast = self._watch()
            path = self._directory / OUTCOME
            if not path.exists():
                (self._directory / "room").write_bytes(bytes(ROOM))  # raises OSError where the disk is full
                raise SondaError(
                    f"the process that started the ranks of {self._job.on} {describe_exit(self._process.returncode)}",
                    "see its output above",
                )
            report = msgspec.json.decode(path.read_bytes(), type=AgentReport)
            if report.cause:
                self._process.wait()
                raise (LostError if report.lost else SondaError)(report.cause, report.remedy)
        except BaseException:
            self.close()
            raise
        self.node, self.nodes, self.same = report.node, report.nodes or [""], report.same
        return report, forecast

    def _watch(self) -> Forecast | None:
        """Wait until the ranks have ended; returns their forecast. Raises SondaError where nodes do not meet."""
        forecast: Forecast | None = None
        deadline = monotonic() + self._plan.timeout
        while True:
            ended = self._has_ended(POLL_S) or (self._plan.nodes > 1 and (self._directory / OUTCOME).exists())
            if forecast is None:
                forecast = read_forecast(self._directory)
                for sentence in forecast.sentences if forecast else ():
                    self._say(Lasting(sentence))
            if ended:
                return forecast
            # Another program at that port may never answer, and PyTorch would wait for it. One node waits for no other.
            if self._plan.nodes > 1 and monotonic() > deadline and not (self._directory / BEGUN).exists():
                self.close()
                raise self._meeting_failure()

    def _meeting_failure(self) -> SondaError:
        """Why nodes did not meet. Call it when this node's own agent, which may have listened, has ended."""
        cause = f"the ranks did not meet at {self._plan.at} within {self._plan.timeout:g} s"
        if is_port_taken(self._plan.at):
            return SondaError(
                f"{cause}; a program listens there that is no node of this training, or waits for others too",
                "give another port, or start the same command on every node",
            )
        return SondaError(cause, "check that all nodes were started and that the port is free and reachable")

    def _has_ended(self, seconds: float) -> bool:
        assert self._process is not None
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    # ---- several nodes ----------------------------------------------------------------------------------------

    @property
    def first(self) -> bool:
        """Whether the run is kept here."""
        return self.node == self.nodes[0]

    def gather_parts(self) -> tuple[list[NodePart], list[str]]:
        """The parts of other nodes in the order of their ranks, and the names of nodes that sent none."""
        path = self._directory / LOST
        self._wait_until(path.exists)
        lost = msgspec.json.decode(path.read_bytes(), type=list[str]) if path.exists() else self.nodes[1:]
        parts = []
        store = Store(self._directory / "nodes")
        for number, node in enumerate(self.nodes):
            path = self._directory / f"{PART}-{number}"
            if number and node not in lost:
                part = msgspec.msgpack.decode(path.read_bytes(), type=NodeFiles)
                run = store.adopt(part.name, part.files)
                parts.append(NodePart(node, run.info, run.spans, run.samples))
                path.unlink()
        return parts, lost

    def publish(self, keep: Callable[[], Run]) -> Run:
        """Keep the run of all nodes by `keep()` and tell the other nodes where it is, or why it failed."""
        try:
            run = keep()
        except SondaError as error:
            self._announce(RunLocation(cause=f"node {self.node}: {error.cause}", remedy=error.remedy))
            raise
        self._announce(RunLocation(run=run.id, node=self.node))
        return run

    def _announce(self, location: RunLocation) -> None:
        if len(self.nodes) > 1:
            write_whole(self._directory / LOCATION, msgspec.json.encode(location))
            self._wait_until(lambda: False)

    def deliver_part(self, part: Run) -> KeptElsewhereError:
        """Send this node's part to the first; returns where the run of all is. Raises SondaError if there is none."""
        files = {path.name: path.read_bytes() for path in part.directory.iterdir()}
        write_whole(self._directory / PART, msgspec.msgpack.encode(NodeFiles(part.directory.name, files)))
        self._wait_until(lambda: (self._directory / LOCATION).exists())
        try:
            location = msgspec.json.decode((self._directory / LOCATION).read_bytes(), type=RunLocation)
        except FileNotFoundError:
            raise SondaError(
                f"the agent of node {self.node} ended before node {self.nodes[0]} had kept the run",
                "start the same command again on every node",
            ) from None
        if location.cause:
            raise SondaError(location.cause, location.remedy)
        return KeptElsewhereError(location.run, location.node)

    def _wait_until(self, done: Callable[[], bool]) -> None:
        """Wait until `done()` or the end of the agent."""
        while not done() and not self._has_ended(POLL_S):
            pass

    def close(self) -> None:
        """End the agent and with it its ranks."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
