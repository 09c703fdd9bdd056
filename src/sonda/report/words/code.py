"""Words for what a program's own code does: Python, native code, or waiting and for what."""

from __future__ import annotations

from sonda.analysis import wording
from sonda.analysis.code.summary import CodeLead, CodeTime, Doing
from sonda.record.stacks import INTERPRETER

DOING = {Doing.PYTHON: "Python", Doing.NATIVE: "native code", Doing.WAITING: "waiting"}
SLEEP, LOCK, CHILD, DISK, MESSAGE = "a sleep", "a lock", "a process", "the disk", "messages"
FILE = "a file or pipe"
WAITS = {
    INTERPRETER: "the interpreter's lock",
    **dict.fromkeys(("clock_nanosleep", "nanosleep"), SLEEP),
    **dict.fromkeys(("futex", "flock", "fcntl", "semop", "semtimedop"), LOCK),
    **dict.fromkeys(("wait4", "waitid"), CHILD),
    **dict.fromkeys(("fsync", "fdatasync", "sync", "syncfs", "msync"), DISK),
    **dict.fromkeys(("read", "readv", "pread64", "preadv", "write", "writev", "pwrite64", "pwritev", "openat"), FILE),
    **dict.fromkeys(
        ("poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait", "epoll_pwait2", "recvfrom", "recvmsg",
         "sendto", "sendmsg", "connect", "accept", "accept4"), MESSAGE,
    ),
}  # fmt: skip
"""What a thread waits for in a system call."""

LONGEST_TEXT = 60
"""Characters of an expression that a sentence quotes."""


def name_place(lead: CodeLead) -> str:
    """`train.py:41 Watch.__call__`, without folders."""
    file = lead.place.file.rpartition("/")[2]
    return f"{file}:{lead.place.line} {lead.place.function}".rstrip()


def shorten(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"


def name_wait(call: str) -> str:
    """`waiting for a sleep (clock_nanosleep)`; `waiting` where nothing tells for what."""
    if not call:
        return "waiting"
    if call == INTERPRETER:
        return f"waiting for {WAITS[call]}"
    return f"waiting for {WAITS[call]} ({call})" if call in WAITS else f"waiting ({call})"


def name_doing(time: CodeTime) -> str:
    """What takes most of a place's time."""
    return name_wait(time.call) if time.doing is Doing.WAITING else DOING[time.doing]


def describe_lead(lead: CodeLead) -> str:
    """`29 ms, Python in json.dumps`."""
    called = f" in {lead.called}" if lead.called else ""
    return f"{wording.duration(lead.time.total)}, {name_doing(lead.time)}{called}"
