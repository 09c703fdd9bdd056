"""The crew: the processes of an experiment. They are started, given windows, watched, and always stopped."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from sonda.frameworks.collector.corun.board import Board
from sonda.record.errors import SondaError
from sonda.targets.corun.messages import Order, Participation, Ready, WindowReport, encode_line
from sonda.targets.corun.plan import Participant
from sonda.targets.corun.process_tree import end_tree
from sonda.targets.signals import describe_exit

# ---- The watchdog: participants that should step and do not, as the board shows -------------------------------------


class Watchdog:
    """Finds slots that should step and have finished no step for `timeout` s."""

    def __init__(self, board: Board, timeout: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.board = board
        self.timeout = timeout
        self.clock = clock
        self._last_steps: dict[int, tuple[int, float]] = {}

    def restart(self) -> None:
        """Begin a new window, in which no step is due yet."""
        self._last_steps.clear()

    def stuck(self, members: Sequence[int]) -> list[int]:
        now = self.clock()
        stuck = []
        for slot in members:
            steps = self.board.steps(slot)
            last, since = self._last_steps.get(slot, (-1, now))
            if steps != last:
                self._last_steps[slot] = (steps, now)
            elif now - since > self.timeout:
                stuck.append(slot)
        return stuck


# ----------------------------------------------------------------------------------------------------------------------

LOOK_S = 0.1
"""Between two checks of who is alive and stepping."""
LONGEST_MESSAGE = 1 << 24
STARTING_S = 120.0
"""s that a participant has at least to import PyTorch, build its workload and warm up; a command, to run once."""
ENDING_S = 10.0
"""Seconds that a participant may take to write down what it saw."""


class _Member:
    """One process and the part of its output that was not read yet."""

    def __init__(self, participant: Participant, process: subprocess.Popen[bytes]) -> None:
        self.participant = participant
        self.process = process
        self.buffer = b""

    def next_line(self) -> bytes | None:
        """The next whole line, if there is one."""
        line, newline, rest = self.buffer.partition(b"\n")
        if not newline:
            return None
        self.buffer = rest
        return line


class Crew:
    """Participants of one repetition. They start with `with Crew(...)`, and all have ended when the block ends."""

    def __init__(
        self,
        participants: Sequence[Participant],
        directory: Path,
        seconds: float,
        timeout: float,
        groups: Sequence[dict[str, Any]] = (),
        started: Callable[[int, int], None] = lambda slot, process: None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`groups` are events to count. `started(slot, process)` is called for each process before it does anything.

        `environment` are variables for all of them, beside this process's.
        """
        self.participants = participants
        self.directory = directory
        self.seconds = seconds
        self.timeout = timeout
        self.groups = list(groups)
        self.board = Board.make(len(participants))
        self.watchdog = Watchdog(self.board, timeout)
        self._on_start = started
        self._environment = {**os.environ, **(environment or {})}
        self._members: list[_Member] = []
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> Crew:
        try:
            for slot, participant in enumerate(self.participants):
                self._start(slot, participant)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self._members:
            # All of it: loaders of data and what a command starts are processes of their own.
            end_tree(member.process.pid, reaped=member.process.returncode is not None)
        for member in self._members:
            member.process.wait()
            for pipe in (member.process.stdin, member.process.stdout):
                if pipe is not None:
                    try:
                        pipe.close()
                    except BrokenPipeError:
                        pass
        self._selector.close()
        self.board.close()

    def _start(self, slot: int, participant: Participant) -> None:
        directory = self.directory / str(slot)
        directory.mkdir(parents=True)
        threads = str(participant.threads)
        process = subprocess.Popen(
            # -P: a file in the user's directory that is named like a module must not be imported.
            [sys.executable, "-P", "-m", "sonda.targets.corun.participant", str(directory.resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**self._environment, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads},
            pass_fds=(self.board.descriptor,),
            # A group to be stopped as a whole; and a session, because the kernel gives each session an equal share of
            # every core (autogroup): in one session, programs on different cores would take each other's share.
            start_new_session=True,
        )
        member = _Member(participant, process)
        self._members.append(member)
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._selector.register(process.stdout, selectors.EVENT_READ, slot)
        self._on_start(slot, process.pid)
        participation = Participation(
            job=participant.job,
            command=list(participant.command),
            region=participant.region,
            slot=slot,
            slots=len(self.participants),
            board=self.board.descriptor,
            cores=list(participant.cores),
            seconds=self.seconds,
            timeout=self.timeout,
            groups=self.groups,
        )
        self._send(slot, participation)

    def warm(self) -> list[Ready]:
        """Wait until everybody has built its workload and warmed up."""
        members = list(range(len(self._members)))
        limit = max(self.timeout, STARTING_S)
        end = time.monotonic() + limit
        answers = self._gather(
            members, Ready, "starting", limit, lambda waiting: waiting if time.monotonic() > end else []
        )
        return [answers[slot] for slot in members]

    def measure(self, window: int, members: Sequence[int]) -> list[WindowReport]:
        """One window; raises SondaError with the name of a participant that dies, fails or finishes no step."""
        self.watchdog.restart()
        for slot in members:
            self._send(slot, Order(window=window, members=list(members)))
        names = " + ".join(self.participants[slot].name for slot in members)
        reports = self._gather(
            members, WindowReport, f"running {names}", self.timeout, lambda waiting: self._stuck(members, window)
        )
        return [reports[slot] for slot in members]

    def finish(self) -> None:
        """Have everybody write down what it saw, and end."""
        for slot in range(len(self._members)):
            self._send(slot, Order())
        end = time.monotonic() + max(ENDING_S, self.timeout)
        for member in self._members:
            try:
                code = member.process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise self._process_failure(member, f"did not end within {self.timeout:g} s", "ending") from None
            if code:
                raise self._process_failure(member, describe_exit(code), "ending")

    def _stuck(self, members: Sequence[int], window: int) -> list[int]:
        stuck = self.watchdog.stuck(members)
        # Participants that wait for one that never arrived are not stuck themselves.
        absent = self.board.missing(members, window)
        return [slot for slot in stuck if slot in absent] or stuck

    def _send(self, slot: int, message: msgspec.Struct) -> None:
        pipe = self._members[slot].process.stdin
        assert pipe is not None
        try:
            pipe.write(encode_line(message))
            pipe.flush()
        except BrokenPipeError:
            pass  # it has ended: what it said last is read next

    def _gather(
        self, slots: Sequence[int], kind: Any, doing: str, limit: float, late: Callable[[list[int]], list[int]]
    ) -> dict[int, Any]:
        """Wait for a message of type `kind` from each of these slots.

        `late` says which of the slots that are still silent have had their `limit` s. Raises SondaError for these, and
        for a participant that failed or ended. `doing` says for the error what they were doing.
        """
        messages: dict[int, Any] = {}
        while len(messages) < len(slots):
            for key, _ in self._selector.select(LOOK_S):
                self._read(key.data, doing)
            for slot in slots:
                line = self._members[slot].next_line() if slot not in messages else None
                if line is None:
                    continue
                message = msgspec.json.decode(line, type=kind)
                if message.cause:
                    raise self._participant_failure(self.participants[slot], message, doing)
                messages[slot] = message
            waiting = [slot for slot in slots if slot not in messages]
            stuck = late(waiting)
            if waiting and stuck:
                names = " and ".join(self.participants[slot].name for slot in stuck)
                verb = "have" if len(stuck) > 1 else "has"
                raise SondaError(
                    f"{names} {verb} hung while {doing}: nothing for {limit:g} s; all were stopped",
                    "give a longer --timeout, or smaller steps",
                )
        return messages

    def _read(self, slot: int, doing: str) -> None:
        member = self._members[slot]
        assert member.process.stdout is not None
        data = os.read(member.process.stdout.fileno(), 1 << 16)
        if data:
            member.buffer += data
            if len(member.buffer) > LONGEST_MESSAGE:
                raise self._process_failure(member, "says more than it should", doing)
            return
        if b"\n" in member.buffer:
            self._selector.unregister(member.process.stdout)
            return  # what it said last tells why
        try:
            code = member.process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            raise self._process_failure(member, "fell silent", doing) from None
        raise self._process_failure(member, describe_exit(code), doing)

    def _participant_failure(self, participant: Participant, message: Ready | WindowReport, doing: str) -> SondaError:
        """The error of a participant that states its own failure."""
        if not participant.command:
            return SondaError(f"{participant.name}: {message.cause}", message.remedy)
        event, colon, why = message.cause.partition(": ")
        return SondaError(f"{participant.name} {event} while {doing}{colon}{why}", message.remedy)

    def _process_failure(self, member: _Member, event: str, doing: str) -> SondaError:
        return SondaError(
            f"{member.participant.name} {event} while {doing}; all others were stopped", "see its output above"
        )
