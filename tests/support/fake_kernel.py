"""A kernel that stands in for Linux: it opens any event, counts what a test tells it to, refuses what it is told."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from sonda.frameworks.collector.counters.perf_event import DISABLE, DISABLED, ENABLE, KernelCalls, PerfEventError


@dataclass
class Opened:
    """An event as it was asked for."""

    type: int
    size: int
    config: int
    read_format: int
    flags: int
    thread: int
    group: int
    value: int = 0


@dataclass
class FakeKernel(KernelCalls):
    """Counts a group only while it is enabled. `happen` lets events happen, `share` is the part really counted."""

    refuse: Callable[[Opened], int] = lambda event: 0
    """The errno for an event; 0 lets it pass."""
    alive: list[list[int]] = field(default_factory=lambda: [[7]])
    """What successive looks at the list of threads find; the last stays."""
    events: dict[int, Opened] = field(default_factory=dict)
    enabled: dict[int, bool] = field(default_factory=dict)
    times: dict[int, list[int]] = field(default_factory=dict)
    asked: list[Opened] = field(default_factory=list)
    controls: list[tuple[int, int]] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)

    def open(self, attributes: bytearray, thread: int, cpu: int, group: int) -> int:
        kind, size, config = struct.unpack_from("=IIQ", attributes)
        read_format, flags = struct.unpack_from("=QQ", attributes, 32)
        event = Opened(kind, size, config, read_format, flags, thread, group)
        self.asked.append(event)
        code = self.refuse(event)
        if code:
            raise PerfEventError(code, os.strerror(code))
        descriptor = 1000 + len(self.asked)
        self.events[descriptor] = event
        if group < 0:
            self.enabled[descriptor] = not flags & DISABLED
            self.times[descriptor] = [0, 0]
        return descriptor

    def control(self, descriptor: int, request: int) -> None:
        self.controls.append((descriptor, request))
        self.enabled[descriptor] = {ENABLE: True, DISABLE: False}[request]

    def threads(self) -> list[int]:
        return self.alive.pop(0) if len(self.alive) > 1 else self.alive[0]

    def happen(self, counts: dict[int, int], time: int = 1000, share: float = 1.0) -> None:
        """So many of each event by its config, in so many ns, of which a group counts a share."""
        for leader, enabled in self.enabled.items():
            if enabled and leader in self.events:
                self.times[leader][0] += time
                self.times[leader][1] += int(time * share)
                for descriptor, event in self.events.items():
                    if leader in (descriptor, event.group):
                        event.value += int(counts.get(event.config, 0) * share)

    def read(self, descriptor: int, size: int) -> bytes:  # type: ignore[override]
        if descriptor not in self.events:
            raise OSError(errno.EBADF, "Bad file descriptor")
        values = [one.value for at, one in self.events.items() if descriptor in (at, one.group)]
        return struct.pack(f"={3 + len(values)}Q", len(values), *self.times[descriptor], *values)[:size]

    def close(self, descriptor: int) -> None:
        self.closed.append(descriptor)
        self.events.pop(descriptor, None)
