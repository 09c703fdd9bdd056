"""A quota of processor time for one process: by a control group of its own where one may be made, else by signals.

In every period a process may use a given processor time; then it is stopped until the period ends. A process that waits
uses nothing of it. A second process, the warden, enforces the quota. It makes a control group and removes it when the
limited process has ended, however that ended. Where it may make no group, it stops and continues the process itself.
For that it looks every millisecond, which takes a few percent of a processor; child processes are not limited then.

The warden runs this file and nothing else of Sonda's.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
PERIOD_US = 10_000
"""Short against a step, so that a process is slow rather than now fast and now stopped."""
PERIOD_S = 0.04
"""Of a warden that sends signals, which cannot look as often as the kernel."""
LOOK_S = 0.001
EMPTY_S = 5.0
"""How long a group may take to become empty after the limited process has ended: its children may end later."""

_wardens: list[subprocess.Popen[bytes]] = []


def limit_this_process(share: float) -> None:
    """Limit this process to a share of one processor until it ends. Returns when the limit is in force."""
    _wardens.append(_start_warden(os.getpid(), share))


@contextmanager
def limit_process(process: int, share: float) -> Iterator[None]:
    """Limit a process to a share of one processor until the block ends."""
    warden = _start_warden(process, share)
    try:
        yield
    finally:
        assert warden.stdin is not None
        warden.stdin.close()
        warden.wait()


def _start_warden(process: int, share: float) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-I", "-S", __file__, str(process), str(share)]
    warden = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert warden.stdout is not None
    warden.stdout.read()  # it closes its output when it is at work
    warden.stdout.close()
    return warden


# ---- The warden ------------------------------------------------------------------------------------------------------


def main() -> None:
    """Limit a process until stdin is closed, also by the end of the parent."""
    process, share = int(sys.argv[1]), float(sys.argv[2])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # they mean the limited process; the warden outlives it to continue it
    groups = make_control_group(process, share)
    os.close(1)
    if groups is None:
        enforce_by_signals(process, share)
        return
    sys.stdin.buffer.read()
    group, before = groups
    with suppress(OSError):  # it has ended
        (before / "cgroup.procs").write_text(str(process))
    end = time.monotonic() + EMPTY_S
    while time.monotonic() < end:
        try:
            group.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.05)


def make_control_group(
    process: int, share: float, groups: Path = GROUPS, listing: str = ""
) -> tuple[Path, Path] | None:
    """Move a process into a new control group; returns that group and the former one, or None where none may be made.

    `groups` is where control groups are mounted, `listing` the text of `/proc/PID/cgroup`.
    """
    before = _cpu_group(listing or Path(f"/proc/{process}/cgroup").read_text(), groups)
    if before is None:
        return None
    group = before / f"sonda-quota-{process}"
    try:
        group.mkdir()
    except OSError:
        return None
    allowed = round(share * PERIOD_US)
    try:
        if (group / "cpu.cfs_quota_us").exists():
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(allowed))
        else:
            (group / "cpu.max").write_text(f"{allowed} {PERIOD_US}")
        (group / "cgroup.procs").write_text(str(process))
    except OSError:
        group.rmdir()
        return None
    return group, before


def _cpu_group(listing: str, groups: Path) -> Path | None:
    """The control group of a process that limits processor time: of cgroup v1 where there is one, else of v2."""
    for line in listing.splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):
            return groups / controllers / path.strip("/")
    unified = [line.split(":", 2)[2] for line in listing.splitlines() if line.startswith("0::")]
    return groups / unified[0].strip("/") if unified else None


def process_clock(process: int) -> int:
    """The id of the clock that counts the processor time of a process, all threads (Linux: `CPUCLOCK_PROF | pid`)."""
    return (~process << 3) | 2


def enforce_by_signals(process: int, share: float) -> None:
    """Stop and continue a process until stdin is closed or the process is gone."""
    clock = process_clock(process)
    os.set_blocking(0, False)
    try:
        while _is_wanted():
            end = time.monotonic() + PERIOD_S
            used = time.clock_gettime(clock) + share * PERIOD_S
            while time.clock_gettime(clock) < used and time.monotonic() < end:
                time.sleep(LOOK_S)
            if time.monotonic() < end:
                os.kill(process, signal.SIGSTOP)
                time.sleep(max(0.0, end - time.monotonic()))
                os.kill(process, signal.SIGCONT)
            over = time.clock_gettime(clock) - used
            if over > 0:
                # What was used beyond the quota, because the look came late, is owed.
                os.kill(process, signal.SIGSTOP)
                time.sleep(over / share)
                os.kill(process, signal.SIGCONT)
    except OSError:
        return  # the process is gone


def _is_wanted() -> bool:
    try:
        return os.read(0, 1) != b""
    except BlockingIOError:
        return True


if __name__ == "__main__":
    main()
