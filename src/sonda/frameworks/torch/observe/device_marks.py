"""Marks on a GPU: where its work stood when a phase began and ended, without waiting for it.

A mark is a CUDA event in the queue of the current stream. The device notes the moment when it reaches it; the moments
are asked for later, once they have passed. Nothing is synchronised before the program ends.
"""

from __future__ import annotations

import itertools
from collections import deque
from contextlib import suppress
from time import perf_counter_ns as now
from typing import Any

from ...collector.recorder import Recorder
from .device_state import DeviceState, identity

GATHERED = 16_384
"""Marks after which those that the device has passed are read, all at once, and their events used again: reading takes
some µs each, which most programs then spend at their end."""
LONGEST = 3_000_000_000
"""ns that the end of a program waits for the last marks: a device that hangs must not keep it."""


class DeviceMarks:
    """Numbers moments in the queue of a device; their times are stated as facts.

    `mark()` returns a number, or -1 where nothing can be marked: CUDA is not used yet, a graph is being captured, or
    the device failed, which is the program's to find out.
    """

    def __init__(self, recorder: Recorder, torch: Any) -> None:
        self.recorder = recorder
        self.torch = torch
        define = recorder.define
        self.begin = define(kind="value", quantity="device_begin", source="counted")
        self.end = define(kind="value", quantity="device_end", source="counted")
        self._left: list = []
        """Events of the process that forked this one: destroying them here would ask a device that is not ours."""
        self._begin()

    def begin_in_child(self) -> None:
        """In a forked child: what its parent marked is the parent's to read."""
        self._left.append((self._waiting, self._free, self._last))
        self._begin()

    def _begin(self) -> None:
        self._numbers = itertools.count()
        self._waiting: deque = deque()
        """(number, event, device) that the device may not have passed yet."""
        self._free: dict = {}
        """Events of each device that can be used again."""
        self._last: dict = {}
        """Of each device the last mark that was read: its event and its ns."""
        self._used = False
        """Whether the program has used CUDA."""
        self._about: dict = {}
        """Name and identity of each device that was marked."""
        self._states: dict = {}
        """What each is asked for its clocks."""

    def mark(self) -> int:
        cuda = self.torch.cuda
        if not self._used:
            if not cuda.is_initialized():
                return -1
            self._used = True
        try:
            if cuda.is_current_stream_capturing():
                return -1
            device = cuda.current_device()
            free = self._free.get(device)
            event = free.pop() if free else cuda.Event(enable_timing=True)
            event.record()
            number = next(self._numbers)
            self._waiting.append((number, event, device))
            if device not in self._about:
                self._first_of(device)
            if len(self._waiting) > GATHERED and not number % (GATHERED // 8):
                self._read()
        except (RuntimeError, IndexError):
            return -1
        return number

    def _first_of(self, device: int) -> None:
        """Say at once that a device is used: a program that is killed says nothing at its end."""
        about = self._about[device] = {"name": self.torch.cuda.get_device_name(device)}
        known = identity(self.torch, device)
        if known:
            about["uuid"] = known
        self._states[device] = DeviceState(self.torch, device)
        self.recorder.state(devices={str(one): about for one, about in self._about.items()})

    def note_states(self) -> None:
        """Keep the clocks, temperature and throttling of each device as they are now, before a wait lets it rest."""
        for device, state in self._states.items():
            self._about[device]["state"] = state.read()

    def _read(self) -> None:
        """State the times of the marks that were passed, in the order in which they were made."""
        times: list = []
        try:
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
        finally:
            if times:
                self.recorder.state(device_times=times)

    def finish(self) -> None:
        """Wait for what is still under way, and state the rest; also how much of each device's memory was held."""
        if not self._about:
            return
        if not any("state" in about for about in self._about.values()):
            self.note_states()  # a program of few steps
        deadline = now() + LONGEST
        with suppress(RuntimeError):  # a device that failed passes no mark
            while self._waiting and now() < deadline:
                self._read()
        devices = {str(device): {**about, **self._memory(device)} for device, about in sorted(self._about.items())}
        self.recorder.state(devices=devices, tf32=self._tf32())
        self._waiting.clear()
        self._free.clear()

    def _memory(self, device: int) -> dict:
        """The most that was allocated and reserved, bytes; nothing where the program's own allocator does not say."""
        cuda = self.torch.cuda
        try:
            return {
                "peak_allocated": cuda.max_memory_allocated(device),
                "peak_reserved": cuda.max_memory_reserved(device),
            }
        except RuntimeError:
            return {}

    def _tf32(self) -> dict:
        """Whether products and convolutions may run as TF32; what PyTorch does not say is left out."""
        backends = self.torch.backends
        ways = (
            ("matmul", backends.cuda.matmul, lambda: backends.cuda.matmul),
            ("convolution", backends.cudnn, lambda: backends.cudnn.conv),
        )
        found = {}
        for name, flags, kind in ways:
            try:
                found[name] = bool(flags.allow_tf32)
            except RuntimeError:
                # PyTorch refuses the older question once a program has used `fp32_precision`.
                with suppress(RuntimeError, AttributeError):
                    found[name] = kind().fp32_precision == "tf32"
        return found
