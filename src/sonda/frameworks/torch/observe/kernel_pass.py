"""Kernels of a few steps: torch.profiler around steps of their own, whose times are not shown as timings.

The profiler has a clock of its own. Marks that hold the collector's time in their names tie the two together.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from time import perf_counter_ns as now
from typing import Any

from ...collector.clock import CLOCK, MARKS
from ...collector.failure import first_line
from ...collector.recorder import Recorder, Stream

TAKEN = "the program uses torch.profiler itself"


TEARDOWN = "TEARDOWN_CUPTI"
"""Environment variable by which Kineto lets go of CUPTI when a profiler has stopped. Without it CUPTI stays attached
and slows launches down to the program's end: 10 to 20 % were reported (pytorch pull request 146604)."""
FIRST_CUDA = (12, 6)
"""Before this, letting go of CUPTI crashed programs with CUDA graphs (the same request)."""
ATTACHED = (
    "the profiler's library (CUPTI) stayed attached after the steps whose kernels were recorded: later steps may be "
    "slower than without Sonda, 10 to 20 % were reported"
)
LEVEL = "KINETO_LOG_LEVEL"
"""Environment variable, read when a profiler first starts."""


@contextmanager
def _quiet() -> Any:
    """Keep the profiler from writing to the program's stderr that it starts and stops; what the program says goes."""
    if LEVEL in os.environ:
        yield
        return
    os.environ[LEVEL] = "99"
    try:
        yield
    finally:
        del os.environ[LEVEL]


def let_go_afterwards(torch: Any) -> None:
    """Have Kineto let go of CUPTI after this profiler, unless somebody has decided otherwise or CUDA is too old.

    The variable stays: Kineto does it at some later call of CUDA and asks for the variable again then, and when the
    program starts a profiler of its own. PyTorch itself sets it to 0 where it does not go together with CUDA graphs.
    """
    words = str(torch.version.cuda or "0").split(".")[:2]
    version = tuple(int(word) for word in words if word.isdecimal())
    if TEARDOWN not in os.environ and version >= FIRST_CUDA:
        os.environ[TEARDOWN] = "1"


class KernelPass:
    """`begin` and `end` bracket the steps. The trace lies beside the events; facts name it, or why it is missing."""

    def __init__(self, recorder: Recorder, torch: Any, replay: bool = False) -> None:
        """`replay`: a profiler outside, which replays kernels, is told where to begin and end; nothing is recorded."""
        self.recorder = recorder
        self.torch = torch
        self.replay = replay
        self._pass = recorder.define(kind="pass", name="kernels")
        self._profiler: Any = None
        self._stream: Stream | None = None
        self._count = 0
        self._starting = False
        self._taken = False
        """Whether the program uses torch.profiler itself."""

    def begin_in_child(self) -> None:
        """In a forked child: a profiler that runs is the parent's to end."""
        self._left = self._profiler
        self._profiler, self._stream, self._count = None, None, 0

    @property
    def active(self) -> bool:
        return self._profiler is not None

    @property
    def attached(self) -> bool:
        """Whether kernels were recorded in this program and CUPTI was not to be let go of after them."""
        return self._count > 0 and os.environ.get(TEARDOWN) != "1"

    def begin(self, stream: Stream) -> None:
        """Start the profiler; where somebody else uses it already, the reason is stated and nothing else happens."""
        torch = self.torch
        if self.replay:
            self._wait()
            torch.cuda.cudart().cudaProfilerStart()
            self._profiler, self._stream = self, stream
            stream.push((self._pass, now()))
            return
        try:
            if self._taken or torch._C._autograd._profiler_enabled():
                raise RuntimeError(TAKEN)
            self._wait()
            let_go_afterwards(torch)
            self._profiler = torch.profiler.profile(activities=torch.profiler.supported_activities(), acc_events=True)
            self._starting = True
            with _quiet():
                self._profiler.start()
            self._mark_clock()
        except Exception as error:
            self._profiler = None
            self.recorder.state(no_kernels=first_line(error, "torch.profiler failed"))
            return
        finally:
            self._starting = False
        self._stream = stream
        stream.push((self._pass, now()))

    def end(self) -> None:
        """Wait for the device, stop the profiler and write what it saw."""
        profiler, stream = self._profiler, self._stream
        if profiler is None or stream is None:
            return
        self._profiler = None
        stream.push((self._pass + 1, now()))
        if self.replay:
            self._wait()
            self.torch.cuda.cudart().cudaProfilerStop()
            return
        try:
            self._wait()
            self._mark_clock()
            profiler.stop()
            self._count += 1
            name = f"{os.getpid()}-{self._count}.kernels.json"
            profiler.export_chrome_trace(os.path.join(self.recorder.directory, name))
            self.recorder.state(kernels=name)
            # Kineto lets go of CUPTI within the next call of CUDA: better in this one than in a step that is timed.
            self._wait()
        except Exception as error:
            self.recorder.state(no_kernels=first_line(error, "torch.profiler failed"))

    def wrap_prepare(self, original: Any) -> Any:
        """What every profiler of PyTorch calls before it starts. There can be one: the program's goes first."""

        def wrapper(profiler: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._starting:
                self._taken = True
                ours, stream = self._profiler, self._stream
                if ours not in (None, self) and stream is not None:
                    self._profiler = None
                    stream.push((self._pass + 1, now()))
                    self.recorder.state(no_kernels=TAKEN)
                    with suppress(Exception):
                        ours.stop()
            return original(profiler, *args, **kwargs)

        return wrapper

    def _wait(self) -> None:
        """Until the device has done what was asked of it: these steps begin and end with an empty queue."""
        if self.torch.cuda.is_initialized():
            self.torch.cuda.synchronize()

    def _mark_clock(self) -> None:
        record = self.torch.profiler.record_function
        for _ in range(MARKS):
            with record(f"{CLOCK}{now()}"):
                pass
