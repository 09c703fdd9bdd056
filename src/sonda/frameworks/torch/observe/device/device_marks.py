"""Marks on a GPU: when the device reached the beginning and the end of each phase, without waiting for it.

A mark is a CUDA event in the queue of the current stream. The device notes the time when it reaches the event. Times
are read later, once the events have passed. Nothing is synchronised before the program ends.
"""

from __future__ import annotations

import itertools
from collections import deque
from contextlib import suppress
from time import perf_counter_ns as now
from typing import Any

from ....collector.recorder import Recorder
from .device_state import DeviceState, device_uuid

MOST_WAITING = 16_384
"""Number of unread marks from which on those that the device has passed are read, all at once, and their events reused.
Reading takes some µs each, so most programs spend that time at their end only."""
LONGEST_WAIT_NS = 3_000_000_000
"""How long the end of a program waits for the last marks: a device that hangs must not keep the program."""


class DeviceMarks:
    """Numbers marks in the queue of a device, and states their times as facts.

    `mark()` returns a number, or -1 where nothing can be marked: CUDA is not used yet, a graph is being captured, or
    the device failed. The program itself will meet that failure.
    """

    def __init__(self, recorder: Recorder, torch: Any) -> None:
        self.recorder = recorder
        self.torch = torch
        define = recorder.define
        self.begin = define(kind="value", quantity="device_begin", source="counted")
        self.end = define(kind="value", quantity="device_end", source="counted")
        self._inherited: list = []
        """Events of the parent process, kept alive: destroying them here would call a device that is not ours."""
        self._reset()

    def begin_in_child(self) -> None:
        """In a forked child: leave the parent's marks to the parent."""
        self._inherited.append((self._waiting, self._free, self._last))
        self._reset()

    def _reset(self) -> None:
        self._numbers = itertools.count()
        self._waiting: deque = deque()
        """(number, event, device) of the marks that are not read yet."""
        self._free: dict = {}
        """Events of each device that can be reused."""
        self._last: dict = {}
        """The last mark read of each device: its event and its time, ns."""
        self._used = False
        """Whether the program has used CUDA."""
        self._devices: dict = {}
        """Facts about each device that was marked: its name and UUID."""
        self._states: dict = {}
        """The `DeviceState` of each device."""

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
            if device not in self._devices:
                self._introduce_device(device)
            if len(self._waiting) > MOST_WAITING and not number % (MOST_WAITING // 8):
                self._read()
        except (RuntimeError, IndexError):
            return -1
        return number

    def _introduce_device(self, device: int) -> None:
        """State at once that a device is used: a program that is killed states nothing at its end."""
        about = self._devices[device] = {"name": self.torch.cuda.get_device_name(device)}
        uuid = device_uuid(self.torch, device)
        if uuid:
            about["uuid"] = uuid
        self._states[device] = DeviceState(self.torch, device)
        self.recorder.state(devices={str(number): facts for number, facts in self._devices.items()})

    def note_states(self) -> None:
        """Read clocks, temperature and throttling of each device now, before a wait lets it idle."""
        for device, state in self._states.items():
            self._devices[device]["state"] = state.read()

    def _read(self) -> None:
        """State the times of the marks that the device has passed, in the order in which they were made."""
        times: list = []
        try:
            while self._waiting and self._waiting[0][1].query():
                number, event, device = self._waiting.popleft()
                last = self._last.get(device)
                time = 0
                if last is not None:
                    # Relative to the mark before: a distance from the beginning would lose resolution with time.
                    time = last[1] + round(1e6 * last[0].elapsed_time(event))
                    self._free.setdefault(device, []).append(last[0])
                self._last[device] = (event, time)
                times.append((number, device, time))
        finally:
            if times:
                self.recorder.state(device_times=times)

    def finish(self) -> None:
        """Wait for the last marks and state their times, and the peak memory of each device."""
        if not self._devices:
            return
        if not any("state" in about for about in self._devices.values()):
            self.note_states()  # a program with few steps
        deadline = now() + LONGEST_WAIT_NS
        with suppress(RuntimeError):  # a device that failed passes no mark
            while self._waiting and now() < deadline:
                self._read()
        devices = {str(device): {**about, **self._memory(device)} for device, about in sorted(self._devices.items())}
        self.recorder.state(devices=devices, tf32=self._tf32())
        self._waiting.clear()
        self._free.clear()

    def _memory(self, device: int) -> dict:
        """Peak allocated and reserved memory, bytes; nothing where the program's own allocator does not know."""
        cuda = self.torch.cuda
        try:
            return {
                "peak_allocated": cuda.max_memory_allocated(device),
                "peak_reserved": cuda.max_memory_reserved(device),
            }
        except RuntimeError:
            return {}

    def _tf32(self) -> dict:
        """Whether products and convolutions may run as TF32; left out where PyTorch does not say."""
        backends = self.torch.backends
        ways = (
            ("matmul", backends.cuda.matmul, lambda: backends.cuda.matmul),
            ("convolution", backends.cudnn, lambda: backends.cudnn.conv),
        )
        allowed = {}
        for name, flags, newer in ways:
            try:
                allowed[name] = bool(flags.allow_tf32)
            except RuntimeError:
                # PyTorch refuses the older attribute once a program has used `fp32_precision`.
                with suppress(RuntimeError, AttributeError):
                    allowed[name] = newer().fp32_precision == "tf32"
        return allowed
