"""Perf events: one counter of the Linux kernel, opened and read through `perf_event_open`, or why it cannot be.

Numbers of system calls, types and flag bits: Linux include/uapi/linux/perf_event.h.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from pathlib import Path
from types import TracebackType

from sonda.probes.kernel_files import read_int

SYSCALLS = {"x86_64": 298, "aarch64": 241}
TYPE_HARDWARE = 0
TYPE_SOFTWARE = 1
HARDWARE = {"cycles": 0, "instructions": 1}
SOFTWARE = {"task-clock": 1, "page-faults": 2, "context-switches": 3, "cpu-migrations": 4}
ATTRIBUTE_BYTES = 112
"""PERF_ATTR_SIZE_VER5: every kernel since 4.1 knows it."""
EXCLUDE_KERNEL = 1 << 5
EXCLUDE_HYPERVISOR = 1 << 6
CLOSE_ON_EXEC = 8
THIS_THREAD = 0
ANY_CPU = -1


class PerfEventError(OSError):
    """The kernel refused an event; `errno` says how."""


class PerfEvent:
    """A counter of the calling thread (or of one CPU), counting from when it is opened. Close it after use."""

    def __init__(
        self, kind: int, config: int, process: int = THIS_THREAD, cpu: int = ANY_CPU, user: bool = True
    ) -> None:
        """`user` leaves the kernel's own work out, which `perf_event_paranoid` 2 asks for. Raises PerfEventError."""
        number = SYSCALLS.get(platform.machine())
        if number is None or platform.system() != "Linux":
            raise PerfEventError(errno.ENOSYS, "perf_event_open is known on Linux x86-64 and arm64 only")
        # The flags differ: a system-wide PMU such as power knows no difference between user and kernel.
        flags = EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR if user else 0
        attributes = bytearray(ATTRIBUTE_BYTES)
        struct.pack_into("=IIQ", attributes, 0, kind, ATTRIBUTE_BYTES, config)
        struct.pack_into("=Q", attributes, 40, flags)
        buffer = (ctypes.c_char * ATTRIBUTE_BYTES).from_buffer(attributes)
        library = ctypes.CDLL(None, use_errno=True)
        self.descriptor = library.syscall(
            ctypes.c_long(number), ctypes.byref(buffer), ctypes.c_int(process), ctypes.c_int(cpu), ctypes.c_int(-1),
            ctypes.c_ulong(CLOSE_ON_EXEC),
        )  # fmt: skip
        if self.descriptor < 0:
            code = ctypes.get_errno()
            raise PerfEventError(code, os.strerror(code))

    def read(self) -> int:
        """Events since it was opened."""
        return int(struct.unpack("=Q", os.read(self.descriptor, 8))[0])

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __enter__(self) -> PerfEvent:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def paranoid_level(root: Path = Path("/")) -> int | None:
    """`kernel.perf_event_paranoid`: 2 lets a process count itself, Debian's 3 and Ubuntu's 4 refuse everything."""
    return read_int(root / "proc/sys/kernel/perf_event_paranoid")


def explain(code: int, paranoid: int | None, hardware: bool, virtual: bool | None) -> tuple[str, str]:
    """Cause and remedy of an errno from `perf_event_open`."""
    level = (
        f"kernel.perf_event_paranoid is {paranoid}" if paranoid is not None else "kernel.perf_event_paranoid unknown"
    )
    if code in (errno.EACCES, errno.EPERM):
        if paranoid is not None and paranoid > 2:
            return f"refused: {level}", "set it to 2 or lower: sysctl kernel.perf_event_paranoid=2"
        return (
            f"refused, though {level}: a container's seccomp profile, most likely",
            "start the container with --cap-add PERFMON and a seccomp profile that allows perf_event_open",
        )
    if code in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP) and hardware:
        if virtual:
            return (
                "no PMU in this virtual machine",
                "use a bare-metal machine, or a virtual machine whose host passes the PMU through",
            )
        return "the kernel has no driver for this CPU's PMU", "use a newer kernel"
    meanings = {
        errno.ENOENT: ("the kernel does not know the event", "use a newer kernel"),
        errno.EINVAL: ("the PMU does not take this combination", "ask for fewer or other events"),
        errno.E2BIG: ("the kernel is older than 4.1", "use a newer kernel"),
        errno.EMFILE: ("out of file descriptors", "raise the limit: ulimit -n 4096"),
        errno.ENOSYS: ("no perf_event_open on this system", "use Linux on x86-64 or arm64 with CONFIG_PERF_EVENTS"),
    }
    return meanings.get(code, (os.strerror(code), "see perf_event_open(2)"))
