"""Names of the system calls that a thread may wait in, by their numbers.

Numbers: `asm/unistd_64.h` of x86-64 and `asm-generic/unistd.h`, which Arm uses.
"""

from __future__ import annotations

from sonda.frameworks.collector.stacks.threads import LOCK
from sonda.record.stacks import INTERPRETER

X86_64 = {
    0: "read", 1: "write", 7: "poll", 16: "ioctl", 17: "pread64", 18: "pwrite64", 19: "readv", 20: "writev",
    23: "select", 26: "msync", 34: "pause", 35: "nanosleep", 40: "sendfile", 42: "connect", 43: "accept", 44: "sendto",
    45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 61: "wait4", 65: "semop", 72: "fcntl", 73: "flock", 74: "fsync",
    75: "fdatasync", 128: "rt_sigtimedwait", 130: "rt_sigsuspend", 162: "sync", 202: "futex", 220: "semtimedop",
    230: "clock_nanosleep", 232: "epoll_wait", 247: "waitid", 257: "openat", 270: "pselect6", 271: "ppoll",
    275: "splice", 281: "epoll_pwait", 288: "accept4", 295: "preadv", 296: "pwritev", 306: "syncfs",
    426: "io_uring_enter", 441: "epoll_pwait2",
}  # fmt: skip
GENERIC = {
    22: "epoll_pwait", 25: "fcntl", 29: "ioctl", 32: "flock", 56: "openat", 63: "read", 64: "write", 65: "readv",
    66: "writev", 67: "pread64", 68: "pwrite64", 69: "preadv", 70: "pwritev", 71: "sendfile", 72: "pselect6",
    73: "ppoll", 76: "splice", 81: "sync", 82: "fsync", 83: "fdatasync", 95: "waitid", 98: "futex", 101: "nanosleep",
    115: "clock_nanosleep", 133: "rt_sigsuspend", 137: "rt_sigtimedwait", 192: "semtimedop", 193: "semop",
    202: "accept", 203: "connect", 206: "sendto", 207: "recvfrom", 211: "sendmsg", 212: "recvmsg", 227: "msync",
    242: "accept4", 260: "wait4", 267: "syncfs", 426: "io_uring_enter", 441: "epoll_pwait2",
}  # fmt: skip
BY_MACHINE = {"x86_64": X86_64, "aarch64": GENERIC, "riscv64": GENERIC}
OTHER = "other"
"""A call that is not among these."""


def name_call(machine: str, number: int) -> str:
    """The name of a system call, `other` for one that is not listed; '' for -1, which is none."""
    if number == LOCK - 1:
        return INTERPRETER
    return BY_MACHINE.get(machine, {}).get(number, OTHER) if number >= 0 else ""
