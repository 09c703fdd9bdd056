"""The agent: `python -m sonda.targets.ranks.elastic_agent DIRECTORY` starts the ranks of this node and waits for them.

It is PyTorch's own, that of torchrun. Ranks find each other through a store on a free port. Where one of them fails,
the others are stopped. It leaves `outcome.json`: the outcomes of the ranks, or which rank failed and why.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import uuid
from pathlib import Path
from typing import Any

import msgspec

from sonda.record.errors import MissingExtraError, SondaError, first_line
from sonda.record.files.partial import write_whole
from sonda.targets.job import JOB, OUTCOME, Job
from sonda.targets.ranks.nodes import meet_nodes
from sonda.targets.ranks.outcomes import AgentReport, read_outcome
from sonda.targets.ranks.plan import Plan
from sonda.targets.signals import describe_exit, end_with_parent
from sonda.targets.training.supervisor import LostError

PLAN = "plan.json"
UNDER_VARIABLE = "SONDA_UNDER"
"""Environment variable: words that every rank is to run under, as JSON."""
POLL_S = 0.1
STOP_S = 5
"""How long a rank that is told to end may take."""


class OthersLostError(LostError):
    """Ranks ended because others were gone; why those ended is not known here."""


def main() -> int:
    end_with_parent()
    directory = Path(sys.argv[1])
    os.dup2(2, 1)  # what a model prints is no result of ours
    plan = msgspec.json.decode((directory / PLAN).read_bytes(), type=Plan)
    report = run_on_nodes(plan, directory) if plan.nodes > 1 else _run_and_report(plan, directory)
    if plan.nodes == 1 or report.cause:
        try:
            write_whole(directory / OUTCOME, msgspec.json.encode(report))
        except OSError:
            return 1  # the disk is full, which whoever started this finds too
    return 1 if report.cause else 0


def run_on_nodes(plan: Plan, directory: Path) -> AgentReport:
    """Run the ranks of this node together with those of others, until one run of all nodes is kept.

    The outcome is written as soon as the ranks of all nodes have ended well. The parent process then hands over this
    node's part of the run.
    """
    job = msgspec.json.decode((directory / JOB).read_bytes(), type=Job)
    try:
        with meet_nodes(plan, job) as nodes:
            report = nodes.exchange_reports(_run_and_report(plan, directory, nodes.number))
            if not report.cause:
                report.node, report.nodes, report.same = nodes.names[nodes.number], nodes.names, nodes.same
                report.cpu_s = sum(os.times()[:4])
                write_whole(directory / OUTCOME, msgspec.json.encode(report))
                nodes.gather_run(directory)
    except SondaError as error:
        return AgentReport(cause=error.cause, remedy=error.remedy)
    return report


def _run_and_report(plan: Plan, directory: Path, node: int = 0) -> AgentReport:
    try:
        return run_ranks(plan, directory, node)
    except SondaError as error:
        lost, heard = isinstance(error, LostError), isinstance(error, OthersLostError)
        return AgentReport(cause=error.cause, remedy=error.remedy, lost=lost, heard=heard)


def run_ranks(plan: Plan, directory: Path, node: int = 0) -> AgentReport:
    """Start the ranks and wait for their end. Raises SondaError where they cannot be started or one of them fails."""
    try:
        from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
        from torch.distributed.elastic.rendezvous.api import RendezvousError
        from torch.distributed.launcher.api import LaunchConfig, elastic_launch
    except ImportError:
        raise MissingExtraError("PyTorch", "torch") from None
    # What it would say of a failed rank is said in one line by whoever started this.
    logging.getLogger("torch.distributed").setLevel(logging.CRITICAL)
    configuration = LaunchConfig(
        min_nodes=plan.nodes,
        max_nodes=plan.nodes,
        nproc_per_node=1 if plan.mode == "dp" else len(plan.devices),
        run_id="sonda" if plan.nodes > 1 else uuid.uuid4().hex,
        # Several nodes have met: the first ranks are those of the node that hosts the store, whose one port is enough.
        rdzv_backend="static" if plan.nodes > 1 else "c10d",
        rdzv_endpoint=plan.at,
        rdzv_configs={"rank": node, "timeout": plan.timeout} if plan.nodes > 1 else {"join_timeout": plan.timeout},
        # Else PyTorch makes a folder for output that goes elsewhere, among the system's temporary files, and leaves it.
        logs_specs=DefaultLogsSpecs(log_dir=str(directory / "logs")),
        max_restarts=0,
        monitor_interval=POLL_S,
        local_addr="localhost" if plan.nodes == 1 else None,
        **({"shutdown_timeout": STOP_S} if "shutdown_timeout" in LaunchConfig.__dataclass_fields__ else {}),
    )
    under = msgspec.json.decode(os.environ.pop(UNDER_VARIABLE, "[]"), type=list[str])
    command = (*under, sys.executable, "-P", "-m", "sonda.targets.ranks.rank", str(directory), str(os.getpid()))
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # or the agent says that it chose so; every rank sets its own
    try:
        elastic_launch(configuration, command[0])(*command[1:])
    except ChildFailedError as error:
        raise _first_failure(plan, directory, error.failures) from None
    except RendezvousError as error:
        raise SondaError(
            f"the ranks did not meet at {plan.at}: {first_line(error)}", "check that the port is free and reachable"
        ) from None
    outcomes = [read_outcome(directory, rank) for rank in _rank_numbers(directory)]
    return AgentReport(ranks=[outcome for outcome in outcomes if outcome is not None])


def _rank_numbers(directory: Path) -> list[int]:
    return sorted(int(path.stem.rpartition("-")[2]) for path in directory.glob("rank-*.json"))


def _first_failure(plan: Plan, directory: Path, failures: dict[int, Any]) -> SondaError:
    """The failure to report, of those in the order in which ranks ended.

    A rank that has waited in vain comes first: the rank that it waited for hangs and was killed by the agent. Then a
    rank that was killed or states a cause, before ranks that only lost others. A cause that all ranks state alike, such
    as an unknown option of the workload, names no rank.
    """
    outcomes = {rank: read_outcome(directory, rank) for rank in range(plan.ranks)}
    causes = {outcome.cause if outcome else "" for outcome in outcomes.values()}
    prioritised: list[tuple[int, SondaError]] = []
    for rank, failure in failures.items():
        outcome, name = outcomes.get(rank), plan.name(rank)
        if failure.exitcode < 0:
            stopped = failure.exitcode == -signal.SIGTERM
            lost = OthersLostError if stopped else LostError
            why = f"{name} {describe_exit(failure.exitcode)}; the other ranks were stopped"
            prioritised.append((3 if stopped else 0, lost(why, "see its output above")))
        elif outcome is not None and outcome.cause:
            cause = outcome.cause if len(causes) == 1 or outcome.absent else f"{name}: {outcome.cause}"
            kind = OthersLostError if outcome.lost else SondaError
            prioritised.append((-1 if outcome.late else 2 if outcome.lost else 0, kind(cause, outcome.remedy)))
        else:
            prioritised.append((1, SondaError(f"{name} {describe_exit(failure.exitcode)}", "see its output above")))
    return min(prioritised, key=lambda entry: entry[0])[1]


if __name__ == "__main__":
    sys.exit(main())
