"""Kernels of a few steps: torch.profiler around extra steps, whose times are not shown as timings.

The profiler has its own clock. Marks with the collector's time in their names relate the two clocks.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from time import perf_counter_ns as now
from typing import Any

from ....collector.clock import CLOCK, MARKS
from ....collector.failure import first_line
from ....collector.recorder import Recorder, Stream

PROFILER_IN_USE = "the program uses torch.profiler itself"
TEARDOWN = "TEARDOWN_CUPTI"
"""Environment variable that makes Kineto release CUPTI when a profiler has stopped. Without it CUPTI stays attached and
slows launches until the program ends: 10 to 20 % were reported (pytorch pull request 146604)."""
FIRST_SAFE_CUDA = (12, 6)
"""With older CUDA, releasing CUPTI crashed programs with CUDA graphs (the same pull request)."""
CUPTI_ATTACHED = (
    "the profiler's library (CUPTI) stayed attached after the steps whose kernels were recorded: later steps may be "
    "slower than without Sonda, 10 to 20 % were reported"
)
LOG_LEVEL = "KINETO_LOG_LEVEL"
"""Environment variable that Kineto reads when a profiler first starts."""


@contextmanager
def _silence_profiler() -> Any:
    """Keep the profiler's start and stop messages off the program's stderr, unless the program set the level itself."""
    if LOG_LEVEL in os.environ:
        yield
        return
    os.environ[LOG_LEVEL] = "99"
    try:
        yield
    finally:
        del os.environ[LOG_LEVEL]


def release_cupti_afterwards(torch: Any) -> None:
    """Let Kineto release CUPTI after this profiler, unless the variable is set already or CUDA is too old.

    The variable stays set: Kineto reads it again in the later CUDA call that releases CUPTI, and when the program
    starts its own profiler. PyTorch itself sets it to 0 where it conflicts with CUDA graphs.
    """
    words = str(torch.version.cuda or "0").split(".")[:2]
    version = tuple(int(word) for word in words if word.isdecimal())
    if TEARDOWN not in os.environ and version >= FIRST_SAFE_CUDA:
        os.environ[TEARDOWN] = "1"


class KernelPass:
    """Records kernels between `begin` and `end`. The trace lies beside the events; a fact names it, or why it is
    missing."""

    def __init__(self, recorder: Recorder, torch: Any, replay: bool = False) -> None:
        """`replay`: mark the steps for an outside profiler that replays kernels, and record nothing."""
        self.recorder = recorder
        self.torch = torch
        self.replay = replay
        self._pass = recorder.define(kind="pass", name="kernels")
        self._profiler: Any = None
        self._stream: Stream | None = None
        self._count = 0
        self._starting = False
        self._program_profiles = False
        """Whether the program uses torch.profiler itself."""

    def begin_in_child(self) -> None:
        """In a forked child: leave a running profiler to the parent."""
        self._inherited = self._profiler
        self._profiler, self._stream, self._count = None, None, 0

    @property
    def active(self) -> bool:
        return self._profiler is not None

    @property
    def attached(self) -> bool:
        """Whether kernels were recorded and CUPTI stays attached afterwards."""
        return self._count > 0 and os.environ.get(TEARDOWN) != "1"

    def begin(self, stream: Stream) -> None:
        """Start the profiler. Where the program uses it already, only the reason is stated."""
        torch = self.torch
        if self.replay:
            self._synchronize()
            torch.cuda.cudart().cudaProfilerStart()
            self._profiler, self._stream = self, stream
            stream.push((self._pass, now()))
            return
        try:
            if self._program_profiles or torch._C._autograd._profiler_enabled():
                raise RuntimeError(PROFILER_IN_USE)
            self._synchronize()
            release_cupti_afterwards(torch)
            self._profiler = torch.profiler.profile(activities=torch.profiler.supported_activities(), acc_events=True)
            self._starting = True
            with _silence_profiler():
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
            self._synchronize()
            self.torch.cuda.cudart().cudaProfilerStop()
            return
        try:
            self._synchronize()
            self._mark_clock()
            profiler.stop()
            self._count += 1
            name = f"{os.getpid()}-{self._count}.kernels.json"
            profiler.export_chrome_trace(os.path.join(self.recorder.directory, name))
            self.recorder.state(kernels=name)
            # Kineto releases CUPTI within the next call of CUDA: better in this one than in a timed step.
            self._synchronize()
        except Exception as error:
            self.recorder.state(no_kernels=first_line(error, "torch.profiler failed"))

    def wrap_prepare(self, original: Any) -> Any:
        """Wrap what every profiler calls before it starts. Only one can run, so ours yields to the program's."""

        def wrapper(profiler: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._starting:
                self._program_profiles = True
                ours, stream = self._profiler, self._stream
                if ours not in (None, self) and stream is not None:
                    self._profiler = None
                    stream.push((self._pass + 1, now()))
                    self.recorder.state(no_kernels=PROFILER_IN_USE)
                    with suppress(Exception):
                        ours.stop()
            return original(profiler, *args, **kwargs)

        return wrapper

    def _synchronize(self) -> None:
        """Wait for the device, so that these steps begin and end with an empty queue."""
        if self.torch.cuda.is_initialized():
            self.torch.cuda.synchronize()

    def _mark_clock(self) -> None:
        record = self.torch.profiler.record_function
        for _ in range(MARKS):
            with record(f"{CLOCK}{now()}"):
                pass
