"""Perf events: counters of the Linux kernel, opened with `perf_event_open` and read with `os.read`.

Numbers of system calls, bits and layouts are from Linux include/uapi/linux/perf_event.h. All calls of the kernel are in
`KernelCalls`, so that tests can replace it.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import struct
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..descriptors import close_named, move_aside

SYSCALLS = {"x86_64": 298, "aarch64": 241}
TYPE_HARDWARE = 0
TYPE_SOFTWARE = 1
TYPE_RAW = 4
SOFTWARE = {"task-clock": 1, "page-faults": 2, "context-switches": 3, "cpu-migrations": 4}
ATTRIBUTE_BYTES = (112, 96, 72, 64)
"""Sizes of `perf_event_attr`, the newest first: since Linux 4.1, 3.12 and 2.6.35, and before."""
DISABLED = 1 << 0
INHERIT = 1 << 1
EXCLUDE_KERNEL = 1 << 5
EXCLUDE_HYPERVISOR = 1 << 6
ENABLE_ON_EXEC = 1 << 12
INHERIT_THREAD = 1 << 35
"""Threads inherit the event, child processes do not; since Linux 5.13."""
CLOSE_ON_EXEC = 8
THIS_THREAD = 0
ANY_CPU = -1
NO_GROUP = -1
READ_GROUP = 1 | 2 | 8
"""A read gives the number of events, the time enabled and the time running (ns), then one value per event in the order
in which they were opened."""
ENABLE, DISABLE = 0x2400, 0x2401
WHOLE_GROUP = 1
HEAD_WORDS = 3
PERF_FILE = "anon_inode:[perf_event]"
"""The name in `/proc` of a descriptor that is a counter."""


class PerfEventError(OSError):
    """The kernel refused an event; `errno` says why."""

    event = ""
    """Name of the event, where several were opened."""


class Event(NamedTuple):
    """An event to count: the PMU's type number and its code. With `kernel`, the kernel's work counts too."""

    name: str
    type: int
    config: int
    config1: int = 0
    config2: int = 0
    kernel: bool = False


class GroupReading(NamedTuple):
    """The counts of a group at one moment: ns since it was enabled, ns in which it counted, and a value per event."""

    enabled: int
    running: int
    values: tuple[int, ...]


READ_ATTEMPTS = 100
READ_PAUSE = 1e-4


def read_descriptor(descriptor: int, size: int) -> bytes:
    """Bytes of a counter or group, as `os.read` gives them.

    While a thread ends, the kernel takes its inherited events out of the group one by one, and refuses a reading in
    between (ECHILD). The reading is repeated until the thread has ended, for 10 ms at most.
    """
    try:
        return os.read(descriptor, size)
    except ChildProcessError:
        for _ in range(READ_ATTEMPTS - 1):
            time.sleep(READ_PAUSE)
            try:
                return os.read(descriptor, size)
            except ChildProcessError:
                pass
        raise


class KernelCalls:
    """The system calls that counters need."""

    read = staticmethod(read_descriptor)

    def __init__(self) -> None:
        self._library: Any = None

    def open(self, attributes: bytearray, thread: int, cpu: int, group: int) -> int:
        """Open an event; returns its descriptor. Raises PerfEventError."""
        number = SYSCALLS.get(platform.machine())
        if number is None or platform.system() != "Linux":
            raise PerfEventError(errno.ENOSYS, "perf_event_open is known on Linux x86-64 and arm64 only")
        if self._library is None:
            self._library = ctypes.CDLL(None, use_errno=True)
        buffer = (ctypes.c_char * len(attributes)).from_buffer(attributes)
        descriptor: int = self._library.syscall(
            ctypes.c_long(number), ctypes.byref(buffer), ctypes.c_int(thread), ctypes.c_int(cpu), ctypes.c_int(group),
            ctypes.c_ulong(CLOSE_ON_EXEC),
        )  # fmt: skip
        if descriptor < 0:
            code = ctypes.get_errno()
            raise PerfEventError(code, os.strerror(code))
        return move_aside(descriptor)

    def control(self, descriptor: int, request: int) -> None:
        """Enable or disable the group whose leader has this descriptor."""
        fcntl.ioctl(descriptor, request, WHOLE_GROUP)

    def close(self, descriptor: int) -> None:
        """Close a descriptor, unless the program closed it and opened another file under the same number."""
        close_named(descriptor, PERF_FILE)

    def threads(self) -> list[int]:
        """Ids of the threads of this process."""
        return sorted(int(name) for name in os.listdir("/proc/self/task"))


LINUX = KernelCalls()


def open_event(
    event: Event, thread: int = THIS_THREAD, cpu: int = ANY_CPU, group: int = NO_GROUP, flags: int = 0,
    read_format: int = 0, kernel: KernelCalls = LINUX,
) -> int:  # fmt: skip
    """Open one event; `flags` are added to those that leave the kernel's work out. Raises PerfEventError.

    A kernel that does not know a size of attributes is asked again with a smaller one. Linux before 5.13 cannot count
    threads without child processes: it counts both.
    """
    if not event.kernel:
        flags |= EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR
    refusal: PerfEventError | None = None
    for wanted in (flags, flags & ~INHERIT_THREAD) if flags & INHERIT_THREAD else (flags,):
        for size in ATTRIBUTE_BYTES:
            if event.config2 and size < 72:
                break
            try:
                return kernel.open(_attributes(event, size, wanted, read_format), thread, cpu, group)
            except PerfEventError as error:
                refusal = refusal if refusal is not None and wanted != flags else error
                if error.errno != errno.E2BIG:
                    break
        if refusal is not None and refusal.errno != errno.EINVAL:
            break
    assert refusal is not None
    raise refusal


def _attributes(event: Event, size: int, flags: int, read_format: int) -> bytearray:
    attributes = bytearray(size)
    struct.pack_into("=IIQ", attributes, 0, event.type, size, event.config)
    struct.pack_into("=QQ", attributes, 32, read_format, flags)
    struct.pack_into("=Q", attributes, 56, event.config1)
    if event.config2:
        struct.pack_into("=Q", attributes, 64, event.config2)
    return attributes


class EventGroup:
    """Events of one thread, and of threads that it starts from now on, that count together or not at all.

    The whole group is opened disabled: siblings of a group that runs already stay inactive until the next context
    switch, and their readings do not show it. The group is not pinned: a pinned group that gets no counter in one of
    its threads stops there silently, while the time running of an unpinned group shows it.
    """

    def __init__(
        self, events: Sequence[Event], thread: int = THIS_THREAD, children: bool = False, on_exec: bool = False,
        kernel: KernelCalls = LINUX,
    ) -> None:  # fmt: skip
        """`children` counts child processes too; `on_exec` begins when the thread execs. Raises PerfEventError."""
        self.events = tuple(events)
        self.size = 8 * (HEAD_WORDS + len(self.events))
        """Bytes of a reading."""
        self.descriptors: list[int] = []
        self._kernel = kernel
        self._layout = struct.Struct(f"={HEAD_WORDS + len(self.events)}Q")
        inherit = INHERIT if children else INHERIT | INHERIT_THREAD
        try:
            for event in self.events:
                leader = self.descriptors[0] if self.descriptors else NO_GROUP
                flags = inherit
                if leader == NO_GROUP:
                    flags |= DISABLED | (ENABLE_ON_EXEC if on_exec else 0)
                try:
                    descriptor = open_event(
                        event, thread, group=leader, flags=flags, read_format=READ_GROUP, kernel=kernel
                    )
                except PerfEventError as error:
                    error.event = event.name
                    raise
                self.descriptors.append(descriptor)
        except BaseException:
            self.close()
            raise

    @property
    def leader(self) -> int:
        """The descriptor that reads all events at once; -1 after `close`."""
        return self.descriptors[0] if self.descriptors else -1

    def enable(self) -> None:
        self._kernel.control(self.leader, ENABLE)

    def disable(self) -> None:
        self._kernel.control(self.leader, DISABLE)

    def read(self) -> GroupReading:
        """The counts at this moment. Raises PerfEventError where the kernel refuses, or others took the counters."""
        try:
            raw = self._kernel.read(self.leader, self.size)
        except OSError as error:
            raise PerfEventError(error.errno, error.strerror) from error
        if len(raw) != self.size:
            raise PerfEventError(errno.EBUSY, "the counters are taken by somebody else")
        _, enabled, running, *values = self._layout.unpack(raw)
        return GroupReading(enabled, running, tuple(values))

    def close(self) -> None:
        """Close every descriptor: closing the leader leaves its siblings open."""
        while self.descriptors:
            self._kernel.close(self.descriptors.pop())


ATTEMPTS = 10
"""How often attaching begins again because new threads appeared."""


def attach(
    events: Sequence[Event], children: bool = False, kernel: KernelCalls = LINUX
) -> tuple[list[EventGroup], bool]:
    """Open one disabled group per thread of this process; returns them, and whether no thread appeared meanwhile.

    A new thread may or may not have inherited a group from the thread that started it. So all groups are opened again
    then, and no thread is counted twice or left out. Raises PerfEventError.
    """
    groups: list[EventGroup] = []
    stable = False
    for _ in range(ATTEMPTS):
        for group in groups:
            group.close()
        groups = []
        before = kernel.threads()
        try:
            for thread in before:
                try:
                    groups.append(EventGroup(events, thread, children, kernel=kernel))
                except PerfEventError as error:
                    if error.errno != errno.ESRCH:  # a thread that has ended meanwhile
                        raise
        except BaseException:
            for group in groups:
                group.close()
            raise
        stable = set(kernel.threads()) <= set(before)
        if stable:
            break
    return groups, stable
