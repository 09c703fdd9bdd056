"""Perf events: a single counter of the Linux kernel, and what it means when the kernel refuses one."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path
from types import TracebackType

from sonda.frameworks.collector.counters.perf_event import (
    ANY_CPU,
    THIS_THREAD,
    Event,
    open_event,
)
from sonda.probes.kernel_files import read_int


class PerfEvent:
    """A counter of the calling thread (or of one CPU), counting from when it is opened. Close it after use."""

    def __init__(
        self, kind: int, config: int, process: int = THIS_THREAD, cpu: int = ANY_CPU, user: bool = True
    ) -> None:
        """`user` leaves the kernel's own work out, as `perf_event_paranoid` 2 demands.

        Raises PerfEventError where the kernel refuses it.
        """
        # A system-wide PMU such as power does not tell user from kernel.
        self.descriptor = open_event(Event("", kind, config, kernel=not user), process, cpu)

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


def explain_refusal(
    code: int, paranoid: int | None, hardware: bool, virtual: bool | None, kernel: bool = False
) -> tuple[str, str]:
    """Cause and remedy of an errno from `perf_event_open`; `kernel` where the kernel's own work was to be counted."""
    level = (
        f"kernel.perf_event_paranoid is {paranoid}" if paranoid is not None else "kernel.perf_event_paranoid unknown"
    )
    if code in (errno.EACCES, errno.EPERM):
        if paranoid is not None and paranoid > 2:
            return f"refused: {level}", "set it to 2 or lower: sysctl kernel.perf_event_paranoid=2"
        if paranoid == 2 and kernel:
            return (
                f"{level}, which keeps the kernel's part from ordinary users",
                "set it to 1 or lower: sysctl kernel.perf_event_paranoid=1",
            )
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
        errno.EBUSY: ("the counters are taken by somebody else", "stop other profilers, or ask for fewer events"),
        errno.ENOSYS: ("no perf_event_open on this system", "use Linux on x86-64 or arm64 with CONFIG_PERF_EVENTS"),
    }
    return meanings.get(code, (os.strerror(code), "see perf_event_open(2)"))
