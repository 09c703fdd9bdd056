"""Marks on a GPU: where its work stood when a phase began and ended, without waiting for it.

A mark is a CUDA event in the queue of the current stream. The device notes the moment when it reaches it; the moments
are asked for later, once they have passed. Nothing is synchronised before the program ends.
"""

from __future__ import annotations

from collections import deque
from time import perf_counter_ns as now
from typing import Any

from .recorder import Recorder

GATHERED = 16_384
"""Marks after which those that the device has passed are read, all at once, and their events used again: reading takes
some µs each, which most programs then spend at their end."""
LONGEST = 3_000_000_000
"""ns that the end of a program waits for the last marks: a device that hangs must not keep it."""


class DeviceMarks:
    """Numbers moments in the queue of a device; their times are stated as facts.

    `mark()` returns a number, or -1 where nothing can be marked: CUDA is not used yet, or a graph is being captured.
    """

    def __init__(self, recorder: Recorder, torch: Any) -> None:
        self.recorder = recorder
        self.torch = torch
        define = recorder.define
        self.begin = define(kind="value", quantity="device_begin", source="counted")
        self.end = define(kind="value", quantity="device_end", source="counted")
        self._number = 0
        self._waiting: deque = deque()
        """(number, event, device) that the device may not have passed yet."""
        self._free: dict = {}
        """Events of each device that can be used again."""
        self._last: dict = {}
        """Of each device the last mark that was read: its event and its ns."""
        self._used = False
        """Whether the program has used CUDA."""

    def mark(self) -> int:
        cuda = self.torch.cuda
        if not self._used:
            if not cuda.is_initialized():
                return -1
            self._used = True
        if cuda.is_current_stream_capturing():
            return -1
        device = cuda.current_device()
        free = self._free.get(device)
        event = free.pop() if free else cuda.Event(enable_timing=True)
        event.record()
        number = self._number
        self._number += 1
        self._waiting.append((number, event, device))
        if len(self._waiting) > GATHERED and not number % (GATHERED // 8):
            self._read()
        return number

    def _read(self) -> None:
        """State the times of the marks that were passed, in the order in which they were made."""
        times: list = []
        while self._waiting and self._waiting[0][1].query():
            number, event, device = self._waiting.popleft()
            last = self._last.get(device)
            time = 0
            if last is not None:
                # Between neighbours: a distance from the beginning would have less and less resolution.
                time = last[1] + round(1e6 * last[0].elapsed_time(event))
                self._free.setdefault(device, []).append(last[0])
            self._last[device] = (event, time)
            times.append((number, device, time))
        if times:
            self.recorder.state(device_times=times)

    def finish(self) -> None:
        """Wait for what is still under way, and state the rest; also how much of each device's memory was held."""
        cuda = self.torch.cuda
        if not self._number:
            return
        deadline = now() + LONGEST
        while self._waiting and now() < deadline:
            self._read()
        devices = sorted(self._last)
        self.recorder.state(
            devices={
                str(device): {
                    "name": cuda.get_device_name(device),
                    "peak_allocated": cuda.max_memory_allocated(device),
                    "peak_reserved": cuda.max_memory_reserved(device),
                }
                for device in devices
            },
            tf32={
                "matmul": self.torch.backends.cuda.matmul.allow_tf32,
                "convolution": self.torch.backends.cudnn.allow_tf32,
            },
        )
        self._waiting.clear()
        self._free.clear()
