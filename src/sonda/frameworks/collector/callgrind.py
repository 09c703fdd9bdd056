"""The modelled pass: the same program under callgrind, which writes its counters at every boundary of one step.

Every boundary of a phase or layer is something that a stream is told (`Stream.push`), so this is where it is seen: for
one step the stream of the program's thread first has callgrind write and clear its counters, and then notes which part
that was. A part therefore belongs to the span that was open while it ran. Steps before it run uninstrumented, the last
of them instrumented so that the simulated caches are warm; after it the program is ended.

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

# ---- Client requests to valgrind: how a Python program tells callgrind where to begin, and when to write its --------

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
    """Speaks to the valgrind that this process runs under. Raises OSError where no executable page is to be had."""

    def __init__(self) -> None:
        if platform.machine() not in ("x86_64", "AMD64"):
            raise OSError(f"requests to valgrind are known for x86-64, not for {platform.machine()}")
        self._page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        self._page.write(CODE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._page))
        # PYFUNCTYPE: the lock of the interpreter is kept, so a request costs as few instructions as can be.
        self.call = ctypes.PYFUNCTYPE(ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong)(address)
        """`call(address of six words, default)`: the request itself; the default is what a processor answers."""

    def request(self, number: int) -> int:
        """Make a request once, where its cost does not matter."""
        block = (ctypes.c_ulong * WORDS)(number)
        return int(self.call(ctypes.addressof(block), 0))

    def running(self) -> bool:
        """Whether this process runs under valgrind."""
        return self.request(RUNNING_ON_VALGRIND) > 0


class DumpRequests:
    """Requests to write and clear the counters, made beforehand: each has a name of its own, from 0 on."""

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
"""Environment variable that holds, as JSON: `start`, the step at whose begin callgrind starts to count; `step`, the
step that is modelled."""
MOST_PARTS = 20_000
"""Parts that a step may have; what comes after them is not seen."""
NEVER = 1 << 62
"""ns."""
EMPTY_WARMUP, EMPTY = 6, 9
"""Empty spans that tell what a boundary costs: the first are left out, because they find their code for the first
time."""


def begin_modelling(observer: Any, announced: bool, leave: Callable[[], object] = lambda: None) -> None:
    """Model a step of this program where the environment asks for it.

    `announced` says that the program announces its steps itself (`observer.span("step", ...)`); otherwise the schedule
    tells when one is over. `leave` is called when the step is over, before the program is ended.
    """
    text = os.environ.get(VARIABLE)
    if text:
        modelling = StepModeller(observer, json.loads(text), ValgrindClient())
        modelling.leave = leave
        modelling.begin(announced)


class StepModeller:
    """Follows a program's steps, starts callgrind in time, and ends the program after the step that was asked for."""

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
        # What the kernel counts of an emulator is not what it counts of the program, and reading it costs much here.
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
        """Take over the stream of the calling thread, learn what a boundary costs, and begin the step."""
        recorder = self.recorder
        self.stream = recorder.stream()
        recorder.flush()
        # Writing the events out is no work of the program's, and must not fall into the step.
        recorder.due = NEVER
        self.stream.push = self._push()
        self._calibrate()
        self.stream.push((self._pass, now()))

    def _close(self) -> None:
        """Write the last part and end the program: whatever it would still do takes long and is not looked at."""
        self.stream.push((self._pass + 1, now()))
        self._leave(True)

    def _leave(self, complete: bool) -> None:
        """Write what there is and leave at once; also where the program ends by itself before its step is over."""
        self.client.request(STOP_INSTRUMENTATION)
        if self.recorder.off:  # a forked child, which has nothing to say
            return
        if complete:
            self.leave()
        self.recorder.state(modelled={"complete": complete, "steps": self.steps}, finished=True)
        self.recorder.flush()
        sys.stdout.flush()
        sys.stderr.flush()
        posix._exit(1 if hasattr(sys, "last_value") else 0)

    def _push(self) -> Any:
        """`Stream.push` that has callgrind write its counters wherever a span begins or ends."""
        extend = self.stream.events.extend
        call = self.dumps.call
        upcoming = iter([(address, (self._part, number)) for number, address in enumerate(self.dumps.addresses)])
        # A value that is defined from now on is taken for a boundary: its span then has one part more, and no harm.
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
        """Empty spans as layers are recorded, and empty phases."""
        stream = self.stream
        span = self.recorder.define(kind="calibration", name="span")
        phase = self.recorder.define(kind="calibration", name="phase")
        for _ in range(EMPTY_WARMUP + EMPTY):
            stream.push((span, now()))
            stream.push((span + 1, now()))
        for _ in range(EMPTY_WARMUP + EMPTY):
            stream.begin(phase)
            stream.end()
