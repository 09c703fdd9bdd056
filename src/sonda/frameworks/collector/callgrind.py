"""The modelled pass: the same program under callgrind, which writes its counters at every boundary of one step.

Every boundary of a phase or layer goes through `Stream.push`. For one step, the stream of the program's thread makes
callgrind write and clear its counters there, and records the number of the part that was written. So a part belongs to
the span that was open while it ran. Earlier steps run uninstrumented, but for the last of them, which warms the
simulated caches. The program ends after the modelled step.

Under valgrind a program runs some hundred times slower, so nothing is run that is not needed.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import mmap
import os
import platform
import posix
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter_ns as now
from typing import Any

# ---- Client requests to valgrind: how a Python program tells callgrind where to begin, and when to write -------------

CODE = bytes.fromhex(
    "4889f8"  # mov rax, rdi: the address of six words, the request and its five arguments
    "4889f2"  # mov rdx, rsi: the result where no valgrind answers
    "48c1c703 48c1c70d 48c1c73d 48c1c733"  # rol rdi by 3, 13, 61, 51: 128 in all, so nothing changes
    "4887db"  # xchg rbx, rbx: where valgrind acts, its result in rdx
    "4889d0 c3"  # mov rax, rdx; ret
)
RUNNING_ON_VALGRIND = 0x1001
CALLGRIND = ord("C") << 24 | ord("T") << 16
DUMP_STATS_AT = CALLGRIND + 3
START_INSTRUMENTATION = CALLGRIND + 4
STOP_INSTRUMENTATION = CALLGRIND + 5
WORDS = 6


class ValgrindClient:
    """Makes requests to the valgrind that this process runs under. Raises OSError where it gets no executable page."""

    def __init__(self) -> None:
        if platform.machine() not in ("x86_64", "AMD64"):
            raise OSError(f"requests to valgrind are known for x86-64, not for {platform.machine()}")
        self._page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        self._page.write(CODE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._page))
        # PYFUNCTYPE keeps the interpreter's lock, so that a request costs few instructions.
        self.call = ctypes.PYFUNCTYPE(ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong)(address)
        """`call(address of six words, default)` makes a request; without valgrind the answer is the default."""

    def request(self, number: int) -> int:
        """Make a request whose cost does not matter."""
        block = (ctypes.c_ulong * WORDS)(number)
        return int(self.call(ctypes.addressof(block), 0))

    def running(self) -> bool:
        """Whether this process runs under valgrind."""
        return self.request(RUNNING_ON_VALGRIND) > 0


class DumpRequests:
    """Requests to write and clear the counters, prepared in advance. Each has a name of its own, from 0 on."""

    def __init__(self, client: ValgrindClient, most: int) -> None:
        self.call = client.call
        self._names = [ctypes.create_string_buffer(b"sonda %d" % number) for number in range(most)]
        self._blocks = (ctypes.c_ulong * (WORDS * most))()
        for number, name in enumerate(self._names):
            self._blocks[WORDS * number] = DUMP_STATS_AT
            self._blocks[WORDS * number + 1] = ctypes.addressof(name)
        first, size = ctypes.addressof(self._blocks), WORDS * ctypes.sizeof(ctypes.c_ulong)
        self.addresses = [first + size * number for number in range(most)]
        """`call(addresses[n], 0)` writes part n."""


# ----------------------------------------------------------------------------------------------------------------------

VARIABLE = "SONDA_MODELLED"
"""Environment variable that holds JSON: `start`, the step at whose begin callgrind starts to count, and `step`, the
modelled step."""
MOST_PARTS = 20_000
"""How many parts a step may have; later ones are not written."""
NEVER = 1 << 62
"""ns."""
EMPTY_WARMUP, EMPTY = 6, 9
"""Empty spans that measure what a boundary costs. The first ones warm the caches and are left out."""


def begin_modelling(observer: Any, announced: bool, leave: Callable[[], object] = lambda: None) -> None:
    """Model a step of this program where the environment asks for it.

    `announced`: the program announces its steps itself (`observer.span("step", ...)`); otherwise the schedule knows
    when a step ends. `leave` is called after the step, before the program is ended.
    """
    text = os.environ.get(VARIABLE)
    if text:
        modeller = StepModeller(observer, json.loads(text), ValgrindClient())
        modeller.leave = leave
        modeller.begin(announced)


class StepModeller:
    """Follows a program's steps, starts callgrind in time, and ends the program after the requested step."""

    def __init__(self, observer: Any, settings: dict, client: ValgrindClient) -> None:
        self.observer = observer
        self.recorder = observer.recorder
        self.client = client
        self.start = int(settings["start"])
        self.step = int(settings["step"])
        self.steps = 0
        self.leave: Callable[[], object] = lambda: None
        self._pass = self.recorder.define(kind="pass", name="modelled")
        self._part = self.recorder.define(kind="value", quantity="part", source="modelled")

    def begin(self, announced: bool) -> None:
        if not self.client.running():
            self.recorder.state(modelled={"outside": True})
            return
        self.dumps = DumpRequests(self.client, MOST_PARTS)
        # The kernel would count the emulator, and reading its counters costs much here.
        self.observer.phases.close()
        atexit.register(self._leave, False)
        if announced:
            self._follow_announced()
        else:
            self._follow_schedule()

    def _follow_announced(self) -> None:
        span = self.observer.span

        @contextmanager
        def followed(kind: str, name: str) -> Iterator[None]:
            if kind != "step":
                with span(kind, name):
                    yield
                return
            self.begin_step()
            with span(kind, name):
                yield
            self.end_step()

        self.observer.span = followed

    def _follow_schedule(self) -> None:
        schedule = self.observer.schedule
        end_step = schedule.end_step

        def end_and_begin(time: int, written: int) -> None:
            self.end_step()
            end_step(time, written)
            self.begin_step()

        schedule.end_step = end_and_begin
        self.begin_step()

    # ---- one step ---------------------------------------------------------------------------------------------

    def begin_step(self) -> None:
        if self.steps == self.start:
            self.client.request(START_INSTRUMENTATION)
        if self.steps == self.step:
            self._open()

    def end_step(self) -> None:
        if self.steps == self.step:
            self._close()
        self.steps += 1

    def _open(self) -> None:
        """Replace `push` of the calling thread's stream, measure what a boundary costs, and begin the step."""
        recorder = self.recorder
        self.stream = recorder.stream()
        recorder.flush()
        # Writing events is no work of the program, and must not fall into the step.
        recorder.due = NEVER
        self.stream.push = self._make_push()
        self._calibrate()
        self.stream.push((self._pass, now()))

    def _close(self) -> None:
        """Write the last part and end the program: nothing after the step is needed."""
        self.stream.push((self._pass + 1, now()))
        self._leave(True)

    def _leave(self, complete: bool) -> None:
        """Write all events and end the process at once; also where the program ends before its step does."""
        self.client.request(STOP_INSTRUMENTATION)
        if self.recorder.off:  # a forked child, which recorded nothing
            return
        if complete:
            self.leave()
        self.recorder.state(modelled={"complete": complete, "steps": self.steps}, finished=True)
        self.recorder.flush()
        sys.stdout.flush()
        sys.stderr.flush()
        posix._exit(1 if hasattr(sys, "last_value") else 0)

    def _make_push(self) -> Any:
        """A `Stream.push` that makes callgrind write its counters wherever a span begins or ends."""
        extend = self.stream.events.extend
        call = self.dumps.call
        upcoming = iter([(address, (self._part, number)) for number, address in enumerate(self.dumps.addresses)])
        # A value that is defined later is taken for a boundary: its span has one more part then, which does no harm.
        values = {code for key, code in self.recorder._codes.items() if '"kind": "value"' in key}
        only_values = values.issuperset

        def push(pairs: tuple) -> None:
            if not only_values(pairs[::2]):
                address, event = next(upcoming, (0, ()))
                if address:
                    call(address, 0)
                    extend(event)
            extend(pairs)

        return push

    def _calibrate(self) -> None:
        """Record empty spans, as layers are recorded, and empty phases."""
        stream = self.stream
        span = self.recorder.define(kind="calibration", name="span")
        phase = self.recorder.define(kind="calibration", name="phase")
        for _ in range(EMPTY_WARMUP + EMPTY):
            stream.push((span, now()))
            stream.push((span + 1, now()))
        for _ in range(EMPTY_WARMUP + EMPTY):
            stream.begin(phase)
            stream.end()
