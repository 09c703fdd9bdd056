"""The agent of TensorFlow's strategies.

`python -m sonda.targets.ranks.strategy_agent DIRECTORY` starts their processes. Strategies whose replicas are devices
of one process have one; others have one for every worker, every server and the coordinator. These find each other by
`TF_CONFIG` on this machine's loopback. Where one of them fails, the others are stopped. The agent leaves
`outcome.json`: the outcomes of the ranks, or which process failed and why.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from time import sleep

import msgspec

from sonda.record.errors import SondaError
from sonda.record.files.partial import write_whole
from sonda.targets.job import OUTCOME
from sonda.targets.ranks.elastic_agent import PLAN
from sonda.targets.ranks.outcomes import AgentReport, read_outcome
from sonda.targets.ranks.plan import Plan
from sonda.targets.ranks.strategy_plan import ONE_PROCESS
from sonda.targets.signals import describe_exit, end_with_parent
from sonda.targets.training.supervisor import LostError

POLL_S = 0.05
HOST = "127.0.0.1"
RANK, WORKER, SERVER, COORDINATOR = "rank", "worker", "ps", "chief"
"""Roles of processes, the last three in TensorFlow's words."""


@dataclass(frozen=True)
class MemberProcess:
    """A process of a strategy: its role, its number among those of its role, and its name for the user."""

    role: str
    number: int
    name: str

    @property
    def trains(self) -> bool:
        """Whether it ends by itself; the others serve until they are stopped."""
        return self.role in (RANK, COORDINATOR)


def main() -> int:
    end_with_parent()
    directory = Path(sys.argv[1])
    os.dup2(2, 1)  # what TensorFlow prints is no result of ours
    plan = msgspec.json.decode((directory / PLAN).read_bytes(), type=Plan)
    try:
        report = run_members(plan, directory)
    except SondaError as error:
        report = AgentReport(cause=error.cause, remedy=error.remedy, lost=isinstance(error, LostError))
    write_whole(directory / OUTCOME, msgspec.json.encode(report))
    return 1 if report.cause else 0


def plan_members(plan: Plan) -> list[MemberProcess]:
    """The processes of a plan."""
    if plan.mode in ONE_PROCESS:
        return [MemberProcess(RANK, 0, plan.mode)]
    if plan.mode == "multiworker":
        return [MemberProcess(RANK, rank, plan.name(rank)) for rank in range(plan.ranks)]
    workers = [MemberProcess(WORKER, rank, f"worker {plan.name(rank)}") for rank in range(plan.ranks)]
    servers = [MemberProcess(SERVER, number, f"parameter server {number}") for number in range(plan.servers)]
    return [*servers, *workers, MemberProcess(COORDINATOR, 0, "the coordinator")]


def cluster_configurations(plan: Plan, members: list[MemberProcess]) -> list[str]:
    """`TF_CONFIG` of every member, with ports that were free a moment ago; '' where there is one process."""
    if len(members) == 1 and plan.mode in ONE_PROCESS:
        return [""]
    tasks = [(WORKER if member.role == RANK else member.role, member.number) for member in members]
    sockets = [socket.socket() for _ in members]
    try:
        cluster: dict[str, list[str]] = {}
        for (kind, _), bound in zip(tasks, sockets, strict=True):
            bound.bind((HOST, 0))
            cluster.setdefault(kind, []).append(f"{HOST}:{bound.getsockname()[1]}")
    finally:
        for bound in sockets:
            bound.close()
    return [json.dumps({"cluster": cluster, "task": {"type": kind, "index": number}}) for kind, number in tasks]


def run_members(plan: Plan, directory: Path) -> AgentReport:
    """Start the processes and wait for the end of those that train. Raises SondaError where one fails."""
    members = plan_members(plan)
    running: list[subprocess.Popen[bytes]] = []
    try:
        for member, configuration in zip(members, cluster_configurations(plan, members), strict=True):
            environment = dict(os.environ)
            environment.pop("TF_CONFIG", None)  # one of the user's own is about another cluster
            if configuration:
                environment["TF_CONFIG"] = configuration
            command = [sys.executable, "-P", "-m", "sonda.targets.ranks.strategy_rank", str(directory), member.role]
            command += [str(member.number), str(os.getpid())]
            running.append(subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL))
        _wait(members, running, directory)
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
            process.wait()
    outcomes = [read_outcome(directory, rank) for rank in range(plan.ranks)]
    return AgentReport(ranks=[outcome for outcome in outcomes if outcome is not None])


def _wait(members: list[MemberProcess], running: list[subprocess.Popen[bytes]], directory: Path) -> None:
    """Wait until all processes that train have ended well. Raises SondaError as soon as one fails."""
    while True:
        ended = [(member, process.poll()) for member, process in zip(members, running, strict=True)]
        for member, code in ended:
            if code or (code == 0 and not member.trains):
                raise _failure(member, code, directory, len(members) > 1)
        if all(code == 0 for member, code in ended if member.trains):
            return
        sleep(POLL_S)


def _failure(member: MemberProcess, code: int, directory: Path, several: bool) -> SondaError:
    outcome = read_outcome(directory, member.number) if member.trains else None
    if outcome is not None and outcome.cause:
        return SondaError(outcome.cause, outcome.remedy)
    others = "; the others were stopped" if several else ""
    kind = LostError if code < 0 else SondaError
    return kind(f"{member.name} {describe_exit(code)}{others}", "see its output above")


if __name__ == "__main__":
    sys.exit(main())
