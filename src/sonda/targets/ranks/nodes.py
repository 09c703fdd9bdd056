"""Nodes that train together, as their agents see them: who is there, what became of each, and parts of one run.

All of it goes through one store of PyTorch's at the place where nodes meet. The node at that place hosts it and has
number 0: the first ranks are there, and there the run is kept. Clocks of different nodes are never compared: each
measures its own time, and only what it found is sent.
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
from sonda.targets.ranks.outcomes import Report
from sonda.targets.ranks.plan import Plan
from sonda.version import VERSION

PART, PARTS, KEPT = "part", "parts", "kept.json"
"""Files between an agent and whoever started it: this node's part of the run, those of all others, where it is kept."""
CHUNK = 1 << 20
"""Bytes of one value: PyTorch's store refuses more than 8 MiB."""
POLL_S = 0.1
GONE_S = 20
"""A node that says nothing for so long, while it should, is gone: ranks that lost others end within seconds."""
BOOT = Path("/proc/sys/kernel/random/boot_id")
OWN = ("data", "checkpoint", "redact")
"""Settings of a job that may differ from node to node: places, and what is kept."""


class Facts(msgspec.Struct, kw_only=True):
    """What a node says of itself before anything is started."""

    node: str
    version: str
    job: dict[str, str]
    boot: str = ""
    """What tells this boot of a kernel from all others; '' where it is not known."""


class FullError(ConnectionError):
    """As many nodes as there should be have met already."""


class Kept(msgspec.Struct, kw_only=True):
    """Where the run is, or why there is none."""

    run: str = ""
    node: str = ""
    cause: str = ""
    remedy: str = ""


class Nodes:
    """The nodes of one training, from their meeting to its end. `names` are theirs by number; `same` says of those that
    are processes of one machine which is the first of them."""

    def __init__(
        self, store: Any, number: int, names: list[str], timeout: float, same: dict[str, str] | None = None
    ) -> None:
        self._store, self.number, self.names, self._timeout = store, number, names, timeout
        self.same = same or {}

    @property
    def others(self) -> list[int]:
        return [number for number in range(len(self.names)) if number != self.number]

    # ---- what became of the ranks -----------------------------------------------------------------------------

    def ended(self, report: Report) -> Report:
        """Say how the ranks of this node ended, and hear of the others'.

        The report of whoever knows why they failed first, or of a node that is gone; this node's where all went well.
        """
        try:
            self._store.set(f"ended/{self.number}", msgspec.json.encode(report))
            return self._heard(report)
        except Exception as error:
            if not _is_gone(error):
                raise
            return self._silent(0) if report.heard or not report.cause else report

    def _heard(self, report: Report) -> Report:
        if report.cause and not report.heard:
            return report
        # Ranks that ended well have waited for all others, whose agents may still be busy.
        patience = GONE_S if report.cause else self._timeout
        limit = monotonic() + patience
        waiting = set(self.others)
        while waiting and monotonic() < limit:
            for number in sorted(waiting):
                if not self._store.check([f"ended/{number}"]):
                    continue
                waiting.remove(number)
                other = msgspec.json.decode(self._store.get(f"ended/{number}"), type=Report)
                if other.cause and not other.heard:
                    cause = f"node {self.names[number]}: {other.cause}"
                    return Report(cause=cause, remedy=other.remedy, lost=other.lost)
            if waiting:
                sleep(POLL_S)
        return self._silent(min(waiting)) if waiting else report

    def _silent(self, number: int) -> Report:
        return Report(
            cause=f"node {self.names[number]} went away; the ranks of {self.names[self.number]} were stopped",
            remedy="start the same command again on every node",
        )

    # ---- one run of all parts ---------------------------------------------------------------------------------

    def bring_together(self, directory: Path) -> None:
        """Send this node's part to the first, or receive those of all others; ends when the run is kept."""
        try:
            kept = self._receive(directory) if self.number == 0 else self._send(directory)
        except Exception as error:
            if not _is_gone(error):
                raise
            kept = Kept(
                cause=f"node {self.names[0]} went away before it had kept the run",
                remedy="start the same command again on every node",
            )
        if self.number:
            write_whole(directory / KEPT, msgspec.json.encode(kept))

    def _send(self, directory: Path) -> Kept:
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
        until(lambda: self._store.check(["kept"]))
        return msgspec.json.decode(self._store.get("kept"), type=Kept)

    def _receive(self, directory: Path) -> Kept:
        lost = []
        for number in self.others:
            if self._comes(number):
                count = int(self._store.get(f"part/{number}"))
                with (directory / f"{PART}-{number}").open("wb") as file:
                    for at in range(count):
                        file.write(self._store.get(f"part/{number}/{at}"))
                        self._store.delete_key(f"part/{number}/{at}")
            else:
                lost.append(self.names[number])
        write_whole(directory / PARTS, msgspec.json.encode(lost))
        until(lambda: (directory / KEPT).exists())
        kept = msgspec.json.decode((directory / KEPT).read_bytes(), type=Kept)
        self._store.set("kept", msgspec.json.encode(kept))
        return kept

    def _comes(self, number: int) -> bool:
        """Wait for another node's part; False when that node shows no sign of life any more."""
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
        """The first node hosts the store: it stays until the others have heard what there is to hear."""
        try:
            self._store.add("left", 1)
            limit = monotonic() + GONE_S
            while self.number == 0 and self._store.add("left", 0) < len(self.names) and monotonic() < limit:
                sleep(POLL_S)
        except Exception as error:
            if not _is_gone(error):
                raise


@contextmanager
def met(plan: Plan, job: Job) -> Iterator[Nodes]:
    """Meet the other nodes at the plan's place and leave them in the end.

    Raises SondaError where they do not come, are another Sonda, or run another job.
    """
    limit = monotonic() + plan.timeout
    full: FullError | None = None
    while True:
        try:
            store, number = _join(plan, limit)
            break
        except SondaError:
            raise
        except Exception as error:
            # The store of the run before may just be going away.
            full = error if isinstance(error, FullError) else full
            if not _is_gone(error) or monotonic() > limit:
                raise _alone(plan, full or error) from None
            sleep(POLL_S)
    own = Facts(node=f"node {number}" if job.redact else node_name(), version=VERSION, job=_settings(job), boot=_boot())
    store.set(f"facts/{number}", msgspec.json.encode(own))
    keys = [f"facts/{other}" for other in range(plan.nodes)]
    try:
        store.wait(keys, timedelta(seconds=max(0.1, limit - monotonic())))
        facts = [msgspec.json.decode(store.get(key), type=Facts) for key in keys]
    except Exception as error:
        raise _alone(plan, error) from None
    names = _names([one.node for one in facts])
    nodes = Nodes(store, number, names, plan.timeout, _same([one.boot for one in facts], names))
    try:
        _agree(facts, nodes.names)
        yield nodes
    finally:
        nodes.leave()


def _join(plan: Plan, limit: float) -> tuple[Any, int]:
    """The store, and this node's number."""
    try:
        from torch.distributed import PrefixStore, TCPStore
    except ImportError:
        raise MissingExtraError("PyTorch", "torch") from None
    host, _, port = plan.at.rpartition(":")
    left = timedelta(seconds=max(1.0, limit - monotonic()))
    first = is_here(host, int(port))
    plain = TCPStore(host, int(port), is_master=first, wait_for_workers=False, multi_tenant=True, timeout=left)
    store = PrefixStore("sonda", plain)
    if first and store.add("host", 1) == 1:
        return store, 0
    number = store.add("joined", 1)
    if number >= plan.nodes:  # a meeting that is over, whose host is about to leave
        raise FullError(f"{plan.nodes} nodes have met there already")
    return store, number


def is_here(host: str, port: int) -> bool:
    """Whether this is the machine of that name, and nobody listens at the port yet."""
    return any(_binds(place) for place in _places(host, port))


def is_taken(at: str) -> bool:
    """Whether HOST:PORT is of this machine, and a program listens there already: another node's, or anybody's."""
    host, _, port = at.rpartition(":")
    own = [place for place in _places(host, 0) if _binds(place)]
    families = {family for family, *_ in own}
    return any(place[0] in families and not _binds(place) for place in _places(host, int(port)))


def _places(host: str, port: int) -> list[Any]:
    """The addresses that the name stands for; none where it stands for none."""
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return []


def _binds(place: Any) -> bool:
    """Whether a program could listen there."""
    family, kind, protocol, _, address = place
    try:
        with socket.socket(family, kind, protocol) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
            trial.listen()
    except OSError:
        return False
    return True


def _alone(plan: Plan, error: Exception) -> SondaError:
    return SondaError(
        f"{plan.nodes} nodes did not meet at {plan.at}: {first_line(error)}",
        "start the same command on every node, and check that the port is free and reachable",
    )


def _agree(facts: list[Facts], names: list[str]) -> None:
    """Raises SondaError where nodes are different Sondas, or were given different commands."""
    for one, name in zip(facts, names, strict=True):
        if one.version != facts[0].version:
            raise SondaError(
                f"node {names[0]} has Sonda {facts[0].version}, and node {name} has {one.version}",
                "install the same version on every node",
            )
        for key in sorted({*one.job, *facts[0].job}):
            ours, theirs = facts[0].job.get(key, "nothing"), one.job.get(key, "nothing")
            if ours != theirs:
                raise SondaError(
                    f"node {names[0]} was started with {key} {ours}, and node {name} with {theirs}",
                    "start the same command on every node",
                )


def _settings(job: Job) -> dict[str, str]:
    """What must be the same on all nodes, as text."""
    settings = msgspec.structs.asdict(job)
    return {**{name: str(settings[name]) for name in settings if name not in (*OWN, "options")}, **job.options}


def _names(given: list[str]) -> list[str]:
    """Names that tell nodes apart, also where two of them are processes of one machine."""
    return [name if name not in given[:at] else f"{name}-{at + 1}" for at, name in enumerate(given)]


def _boot() -> str:
    """The kernel draws it when it starts. Containers of one machine have other host names and the same kernel, and so
    the same sensors."""
    try:
        return BOOT.read_text().strip()
    except OSError:
        return ""


def _same(boots: list[str], names: list[str]) -> dict[str, str]:
    """The first node of its machine, for every node that shares one."""
    return {
        name: names[boots.index(boot)]
        for name, boot in zip(names, boots, strict=True) if boot and boots.count(boot) > 1
    }  # fmt: skip


def _is_gone(error: Exception) -> bool:
    """PyTorch says in several ways that nobody is at the other end."""
    return isinstance(error, OSError) or type(error).__name__ in (
        "DistNetworkError", "DistStoreError", "DistBackendError", "DistError",
    )  # fmt: skip


def until(done: Callable[[], bool]) -> None:
    """Wait for what will come, or for whoever started this, whose end is the end of this process."""
    while not done():
        sleep(POLL_S)
