"""Nodes that train together: how their agents meet, exchange reports, and gather the parts of one run.

All messages go through one store of PyTorch's at the place where nodes meet. The node at that place hosts the store and
has number 0. It has the first ranks and keeps the run. Clocks of different nodes are never compared: each node measures
by its own clock and sends results.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import msgspec

from sonda.record.errors import MissingExtraError, SondaError, first_line
from sonda.record.files.partial import node_name, write_whole
from sonda.targets.job import Job
from sonda.targets.ranks.outcomes import AgentReport
from sonda.targets.ranks.plan import Plan
from sonda.version import VERSION

PART, LOST, LOCATION = "part", "parts", "kept.json"
"""Files between an agent and its parent: this node's part of the run, nodes whose parts are lost, where it is kept."""
CHUNK = 1 << 20
"""Bytes of one value: PyTorch's store refuses more than 8 MiB."""
POLL_S = 0.1
GONE_S = 20
"""A node that should answer and is silent for so long is gone: ranks that lost others end within seconds."""
BOOT = Path("/proc/sys/kernel/random/boot_id")
NODE_SETTINGS = ("data", "checkpoint", "redact")
"""Settings of a job that may differ from node to node: places, and what is kept."""


class NodeGreeting(msgspec.Struct, kw_only=True):
    """What a node says of itself before anything is started."""

    node: str
    version: str
    job: dict[str, str]
    boot: str = ""
    """The kernel's id of this boot; '' where it is not known."""


class FullError(ConnectionError):
    """All nodes that were expected have met already."""


class RunLocation(msgspec.Struct, kw_only=True):
    """The run of all nodes and the node that keeps it, or why there is none."""

    run: str = ""
    node: str = ""
    cause: str = ""
    remedy: str = ""


class NodeMeeting:
    """The nodes of one training, from their meeting to its end.

    `names` has the names of the nodes by number. `same` has, for each node that shares its machine with others, the
    first node there.
    """

    def __init__(
        self, store: Any, number: int, names: list[str], timeout: float, same: dict[str, str] | None = None
    ) -> None:
        self._store, self.number, self.names, self._timeout = store, number, names, timeout
        self.same = same or {}

    @property
    def others(self) -> list[int]:
        return [number for number in range(len(self.names)) if number != self.number]

    # ---- what became of the ranks -----------------------------------------------------------------------------

    def exchange_reports(self, report: AgentReport) -> AgentReport:
        """Publish how the ranks of this node ended, and wait for the reports of the others.

        Returns this node's report where all went well. Else it returns the report of a node that knows the cause, or
        one that says which node is gone.
        """
        try:
            self._store.set(f"ended/{self.number}", msgspec.json.encode(report))
            return self._await_reports(report)
        except Exception as error:
            if not _is_disconnected(error):
                raise
            return self._report_gone(0) if report.heard or not report.cause else report

    def _await_reports(self, report: AgentReport) -> AgentReport:
        if report.cause and not report.heard:
            return report
        # Ranks that ended well have waited for all others; agents of those may still be busy.
        patience = GONE_S if report.cause else self._timeout
        limit = monotonic() + patience
        waiting = set(self.others)
        while waiting and monotonic() < limit:
            for number in sorted(waiting):
                if not self._store.check([f"ended/{number}"]):
                    continue
                waiting.remove(number)
                other_report = msgspec.json.decode(self._store.get(f"ended/{number}"), type=AgentReport)
                if other_report.cause and not other_report.heard:
                    cause = f"node {self.names[number]}: {other_report.cause}"
                    return AgentReport(cause=cause, remedy=other_report.remedy, lost=other_report.lost)
            if waiting:
                sleep(POLL_S)
        return self._report_gone(min(waiting)) if waiting else report

    def _report_gone(self, number: int) -> AgentReport:
        return AgentReport(
            cause=f"node {self.names[number]} went away; the ranks of {self.names[self.number]} were stopped",
            remedy="start the same command again on every node",
        )

    # ---- one run of all parts ---------------------------------------------------------------------------------

    def gather_run(self, directory: Path) -> None:
        """Send this node's part to the first node, or receive those of all others. Returns when the run is kept."""
        try:
            location = self._receive_parts(directory) if self.number == 0 else self._send_part(directory)
        except Exception as error:
            if not _is_disconnected(error):
                raise
            location = RunLocation(
                cause=f"node {self.names[0]} went away before it had kept the run",
                remedy="start the same command again on every node",
            )
        if self.number:
            write_whole(directory / LOCATION, msgspec.json.encode(location))

    def _send_part(self, directory: Path) -> RunLocation:
        key = f"part/{self.number}"
        while not (directory / PART).exists():
            self._store.add(f"alive/{self.number}", 1)
            sleep(POLL_S)
        count = 0
        with (directory / PART).open("rb") as file:
            while chunk := file.read(CHUNK):
                self._store.set(f"{key}/{count}", chunk)
                self._store.add(f"alive/{self.number}", 1)
                count += 1
        self._store.set(key, str(count))
        wait_until(lambda: self._store.check(["kept"]))
        return msgspec.json.decode(self._store.get("kept"), type=RunLocation)

    def _receive_parts(self, directory: Path) -> RunLocation:
        lost = []
        for number in self.others:
            if self._await_part(number):
                count = int(self._store.get(f"part/{number}"))
                with (directory / f"{PART}-{number}").open("wb") as file:
                    for at in range(count):
                        file.write(self._store.get(f"part/{number}/{at}"))
                        self._store.delete_key(f"part/{number}/{at}")
            else:
                lost.append(self.names[number])
        write_whole(directory / LOST, msgspec.json.encode(lost))
        wait_until(lambda: (directory / LOCATION).exists())
        location = msgspec.json.decode((directory / LOCATION).read_bytes(), type=RunLocation)
        self._store.set("kept", msgspec.json.encode(location))
        return location

    def _await_part(self, number: int) -> bool:
        """Wait for the part of another node; False where that node has shown no sign of life for `GONE_S`."""
        seen, limit = -1, monotonic() + GONE_S
        while not self._store.check([f"part/{number}"]):
            beats = self._store.add(f"alive/{number}", 0)
            if beats != seen:
                seen, limit = beats, monotonic() + GONE_S
            elif monotonic() > limit:
                return False
            sleep(POLL_S)
        return True

    def leave(self) -> None:
        """Leave the meeting. The first node, which hosts the store, stays until the others have left."""
        try:
            self._store.add("left", 1)
            limit = monotonic() + GONE_S
            while self.number == 0 and self._store.add("left", 0) < len(self.names) and monotonic() < limit:
                sleep(POLL_S)
        except Exception as error:
            if not _is_disconnected(error):
                raise


@contextmanager
def meet_nodes(plan: Plan, job: Job) -> Iterator[NodeMeeting]:
    """Meet the other nodes at the plan's place; leave them when the block ends.

    Raises SondaError where they do not come, have another version of Sonda, or run another job.
    """
    limit = monotonic() + plan.timeout
    full: FullError | None = None
    while True:
        try:
            store, number = _join_store(plan, limit)
            break
        except SondaError:
            raise
        except Exception as error:
            # The store of the run before may just be going away.
            full = error if isinstance(error, FullError) else full
            if not _is_disconnected(error) or monotonic() > limit:
                raise _meeting_failure(plan, full or error) from None
            sleep(POLL_S)
    own_facts = NodeGreeting(
        node=f"node {number}" if job.redact else node_name(),
        version=VERSION,
        job=_shared_settings(job),
        boot=_boot_id(),
    )
    store.set(f"facts/{number}", msgspec.json.encode(own_facts))
    keys = [f"facts/{node}" for node in range(plan.nodes)]
    try:
        store.wait(keys, timedelta(seconds=max(0.1, limit - monotonic())))
        facts = [msgspec.json.decode(store.get(key), type=NodeGreeting) for key in keys]
    except Exception as error:
        raise _meeting_failure(plan, error) from None
    names = _distinct_names([node_facts.node for node_facts in facts])
    nodes = NodeMeeting(
        store, number, names, plan.timeout, _first_on_machine([node_facts.boot for node_facts in facts], names)
    )
    try:
        _check_agreement(facts, nodes.names)
        yield nodes
    finally:
        nodes.leave()


def _join_store(plan: Plan, limit: float) -> tuple[Any, int]:
    """The store, and this node's number."""
    try:
        from torch.distributed import PrefixStore, TCPStore
    except ImportError:
        raise MissingExtraError("PyTorch", "torch") from None
    host, _, port = plan.at.rpartition(":")
    left = timedelta(seconds=max(1.0, limit - monotonic()))
    first = can_host(host, int(port))
    plain = TCPStore(host, int(port), is_master=first, wait_for_workers=False, multi_tenant=True, timeout=left)
    store = PrefixStore("sonda", plain)
    if first and store.add("host", 1) == 1:
        return store, 0
    number = store.add("joined", 1)
    if number >= plan.nodes:  # a meeting that is over, whose host is about to leave
        raise FullError(f"{plan.nodes} nodes have met there already")
    return store, number


def can_host(host: str, port: int) -> bool:
    """Whether this machine has that name and its port is free."""
    return any(_can_bind(address) for address in _addresses(host, port))


def is_port_taken(at: str) -> bool:
    """Whether HOST:PORT is of this machine and a program listens there already, another node's or any other."""
    host, _, port = at.rpartition(":")
    own_addresses = [address for address in _addresses(host, 0) if _can_bind(address)]
    families = {family for family, *_ in own_addresses}
    return any(address[0] in families and not _can_bind(address) for address in _addresses(host, int(port)))


def _addresses(host: str, port: int) -> list[Any]:
    """The addresses of a host name; none where it is unknown."""
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return []


def _can_bind(entry: Any) -> bool:
    """Whether a program could listen there."""
    family, kind, protocol, _, address = entry
    try:
        with socket.socket(family, kind, protocol) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
            trial.listen()
    except OSError:
        return False
    return True


def _meeting_failure(plan: Plan, error: Exception) -> SondaError:
    return SondaError(
        f"{plan.nodes} nodes did not meet at {plan.at}: {first_line(error)}",
        "start the same command on every node, and check that the port is free and reachable",
    )


def _check_agreement(facts: list[NodeGreeting], names: list[str]) -> None:
    """Raise SondaError where nodes have different versions of Sonda or were given different commands."""
    for node_facts, name in zip(facts, names, strict=True):
        if node_facts.version != facts[0].version:
            raise SondaError(
                f"node {names[0]} has Sonda {facts[0].version}, and node {name} has {node_facts.version}",
                "install the same version on every node",
            )
        for key in sorted({*node_facts.job, *facts[0].job}):
            ours, theirs = facts[0].job.get(key, "nothing"), node_facts.job.get(key, "nothing")
            if ours != theirs:
                raise SondaError(
                    f"node {names[0]} was started with {key} {ours}, and node {name} with {theirs}",
                    "start the same command on every node",
                )


def _shared_settings(job: Job) -> dict[str, str]:
    """What must be the same on all nodes, as text."""
    settings = msgspec.structs.asdict(job)
    return {
        **{name: str(settings[name]) for name in settings if name not in (*NODE_SETTINGS, "options")},
        **job.options,
    }


def _distinct_names(names: list[str]) -> list[str]:
    """Names that tell nodes apart, also where two of them are processes of one machine."""
    return [name if name not in names[:at] else f"{name}-{at + 1}" for at, name in enumerate(names)]


def _boot_id() -> str:
    """The id that the kernel draws at boot; '' where it cannot be read.

    Containers of one machine have different host names but the same kernel, and so the same sensors.
    """
    try:
        return BOOT.read_text().strip()
    except OSError:
        return ""


def _first_on_machine(boots: list[str], names: list[str]) -> dict[str, str]:
    """For every node that shares its machine with others, the first node there."""
    return {
        name: names[boots.index(boot)]
        for name, boot in zip(names, boots, strict=True) if boot and boots.count(boot) > 1
    }  # fmt: skip


def _is_disconnected(error: Exception) -> bool:
    """Whether an error of PyTorch's means that the other end is gone. PyTorch has several such errors."""
    return isinstance(error, OSError) or type(error).__name__ in (
        "DistNetworkError", "DistStoreError", "DistBackendError", "DistError",
    )  # fmt: skip


def wait_until(done: Callable[[], bool]) -> None:
    """Wait until `done()`. The end of the parent ends this process too."""
    while not done():
        sleep(POLL_S)
