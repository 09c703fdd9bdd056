"""A command as a participant: an observed PyTorch program by its steps, any other by whole runs or by the window.

The command runs in a process group of its own below this process. Its output goes to a file, whose last line is shown
where the command fails.
"""

from __future__ import annotations

import os
import select
import subprocess
from pathlib import Path

import msgspec

from sonda.frameworks import INJECT
from sonda.frameworks.collector.corun.board import Board
from sonda.frameworks.collector.corun.counters import ENDED, RUNNING, WindowCounters
from sonda.frameworks.collector.corun.participation import VARIABLE
from sonda.frameworks.collector.corun.window import SLICES, measure_window
from sonda.record.errors import SondaError
from sonda.targets.corun.messages import RUNS, STEPS, WINDOW, Order, Participation, Ready, WindowReport, encode_line
from sonda.targets.corun.process_tree import continue_below, end_below, stop_below
from sonda.targets.signals import signal_name

OUTPUT = "output"
LAST_CHARACTERS = 200
NEVER_DETAILED = 1 << 62
"""First step whose layers are recorded, unless the windows say otherwise."""
LOOKS_PER_WINDOW = 2 * SLICES
"""Looks at a command that runs on, in a window."""


class CommandParticipant:
    """The command, started and warm. Its region is steps, whole runs, or a window during which it runs on."""

    def __init__(self, participation: Participation, directory: Path, board: Board) -> None:
        self.participation = participation
        self.directory = directory
        self.board = board
        self.program: subprocess.Popen[bytes] | None = None
        self.counters = WindowCounters(participation.groups, RUNNING if participation.region == WINDOW else ENDED)
        self._stopped = False
        self._answers = self._orders = -1
        self._unread = b""
        ready = Ready(process=os.getpid())
        if participation.region == WINDOW:
            self.program = self._start({})
            self._let_run(participation.seconds)
            self._stop()
            ready.region = WINDOW
        else:
            ready = self._find_steps() or Ready(region=RUNS, process=os.getpid())
        self.region = ready.region
        ready.workload = {"command": participation.command, "region": ready.region}
        ready.pmu = ready.pmu or self.counters.reason
        self.ready = ready

    # ---- a window ---------------------------------------------------------------------------------------------

    def measure(self, order: Order) -> WindowReport:
        if self.region == STEPS:
            os.write(self._orders, encode_line(order))
            return msgspec.json.decode(self._answer(), type=WindowReport)
        counts = self.counters.total_events if self.counters.counts_instructions else lambda name: 0.0
        progress = (lambda: counts("instructions")) if self.region == WINDOW else None
        going = measure_window(
            self.board, self.participation.slot, order.window, order.members, self.participation.seconds,
            60 + 2 * self.participation.timeout, self.counters, progress,
        )  # fmt: skip
        while True:
            try:
                next(going)
            except StopIteration as ended:
                self._stop()
                return WindowReport(**ended.value)
            self._step()
            self.board.add_step(self.participation.slot)

    def _step(self) -> None:
        if self.region == WINDOW:
            if self._stopped:
                continue_below(os.getpid())
                self._stopped = False
            self._let_run(self.participation.seconds / LOOKS_PER_WINDOW)
            return
        program = self._start({})
        code = program.wait()
        self._end_leftovers()
        if code:
            raise self._explain_end(code)

    def _stop(self) -> None:
        if self.participation.region == WINDOW:
            stop_below(os.getpid())
            self._stopped = True

    def _let_run(self, seconds: float) -> None:
        """Let the command run for some s. Raises SondaError when it ends meanwhile."""
        assert self.program is not None
        # Sleep until then: polling would disturb the other participants.
        ended = os.pidfd_open(self.program.pid)
        try:
            if not select.select([ended], [], [], seconds)[0]:
                return
        finally:
            os.close(ended)
        raise self._explain_end(
            self.program.wait(), "it is to run on as long as windows last", "for a command that ends: cmd:"
        )

    def close(self) -> None:
        if self.region == STEPS:
            os.write(self._orders, encode_line(Order()))
            assert self.program is not None
            self.program.wait()  # as long as the parent lets it
        end_below(os.getpid())

    # ---- starting ---------------------------------------------------------------------------------------------

    def _start(self, variables: dict[str, str]) -> subprocess.Popen[bytes]:
        with (self.directory / OUTPUT).open("wb") as output:
            try:
                return subprocess.Popen(
                    self.participation.command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                    env={**os.environ, **variables}, process_group=0,
                )  # fmt: skip
            except OSError as error:
                raise SondaError(f"cannot be started: {error.strerror}", "check the command") from None

    def _find_steps(self) -> Ready | None:
        """Run the command observed until it has made its first steps; None where it ends well without steps."""
        orders, answers = self.directory / "orders", self.directory / "answers"
        os.mkfifo(orders, 0o600)
        os.mkfifo(answers, 0o600)
        # Both ways, so that opening does not wait for the program.
        self._orders, self._answers = os.open(orders, os.O_RDWR), os.open(answers, os.O_RDWR | os.O_NONBLOCK)
        observing = {"directory": str(self.directory), "count": False, "first": NEVER_DETAILED, "kernels": False}
        participation = self.participation
        part = {
            "board": f"/proc/{os.getpid()}/fd/{participation.board}",
            "slot": participation.slot,
            "slots": participation.slots,
            "orders": str(orders),
            "answers": str(answers),
            "parent": os.getpid(),
            "seconds": participation.seconds,
            "timeout": participation.timeout,
            "groups": participation.groups,
        }
        path = os.pathsep.join(entry for entry in (str(INJECT), os.environ.get("PYTHONPATH", "")) if entry)
        self.program = self._start({
            "PYTHONPATH": path, "SONDA_COLLECT": msgspec.json.encode(observing).decode(),
            VARIABLE: msgspec.json.encode(part).decode(),
        })  # fmt: skip
        try:
            return msgspec.json.decode(self._answer(), type=Ready)
        except _EndedWellError:
            self._end_leftovers()
            return None

    def _answer(self) -> bytes:
        """The next line from the observed program. Raises SondaError when it ends without one."""
        assert self.program is not None
        ended = os.pidfd_open(self.program.pid)
        try:
            while b"\n" not in self._unread:
                ready, _, _ = select.select([self._answers, ended], [], [])
                if self._answers in ready:
                    self._unread += os.read(self._answers, 1 << 16)
                elif ended in ready:
                    raise self._explain_end(self.program.wait(), "it had no more steps before all was measured",
                                      "have it run on for longer, or give shorter --seconds")  # fmt: skip
        finally:
            os.close(ended)
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _end_leftovers(self) -> None:
        """End processes that a run left behind, so that the next run begins like the first."""
        end_below(os.getpid())
        while True:
            try:
                if os.waitpid(-1, os.WNOHANG) == (0, 0):
                    return
            except ChildProcessError:
                return

    def _explain_end(self, code: int, why: str = "", remedy: str = "check the command") -> SondaError:
        if code == 0:
            return _EndedWellError(f"ended with code 0: {why}", remedy)
        how = f"was ended by {signal_name(-code)}" if code < 0 else f"ended with code {code}"
        text = (self.directory / OUTPUT).read_text(encoding="utf-8", errors="replace").strip()
        last = text.splitlines()[-1][:LAST_CHARACTERS] if text else "it printed nothing"
        return SondaError(f"{how}: {last}", "see what it needs to run by itself")


class _EndedWellError(SondaError):
    """The command ended with code 0."""
