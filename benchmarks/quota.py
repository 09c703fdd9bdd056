"""A quota of processor time for one process: by a control group of its own where one may be made, else by a governor.

In every period a process may use so much processor time; then it is stopped until the period ends. A process that waits
uses nothing of it. The governor is a process of its own that does with signals what the kernel does with the group; it
looks every millisecond, for which it takes a part of a processor, and ends with its parent.
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
"""Of the governor, which cannot look as often as the kernel."""
LOOK_S = 0.001


def clock_of(process: int) -> int:
    """The clock that counts a process's time on processors, all threads together (Linux: `CPUCLOCK_PROF | pid`)."""
    return (~process << 3) | 2


@contextmanager
def quota(process: int, share: float) -> Iterator[None]:
    """Let a process have this share of one processor, until the end of the block."""
    group = control_group(process, share)
    if group is not None:
        own, before = group
        try:
            yield
        finally:
            with suppress(ProcessLookupError):  # it has ended
                (before / "cgroup.procs").write_text(str(process))
            own.rmdir()
        return
    governor = subprocess.Popen([sys.executable, "-S", __file__, str(process), str(share)], stdin=subprocess.PIPE)
    try:
        yield
    finally:
        assert governor.stdin is not None
        governor.stdin.close()
        governor.wait()


def control_group(process: int, share: float, groups: Path = GROUPS, told: str = "") -> tuple[Path, Path] | None:
    """A new group of control with this process in it, and the one in which it was; None where none may be made.

    `groups` is where they are mounted, `told` what the kernel says of those of the process (`/proc/PID/cgroup`).
    """
    before = _group_of(told or Path(f"/proc/{process}/cgroup").read_text(), groups)
    if before is None:
        return None
    own = before / f"sonda-quota-{process}"
    try:
        own.mkdir()
    except OSError:
        return None
    allowed = round(share * PERIOD_US)
    try:
        if (own / "cpu.cfs_quota_us").exists():
            (own / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (own / "cpu.cfs_quota_us").write_text(str(allowed))
        else:
            (own / "cpu.max").write_text(f"{allowed} {PERIOD_US}")
        (own / "cgroup.procs").write_text(str(process))
    except OSError:
        own.rmdir()
        return None
    return own, before


def _group_of(told: str, groups: Path) -> Path | None:
    """The group of a process that divides processors: of the older kind where there is one, else of the newer."""
    for line in told.splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):
            return groups / controllers / path.strip("/")
    found = [line.split(":", 2)[2] for line in told.splitlines() if line.startswith("0::")]
    return groups / found[0].strip("/") if found else None


def govern(process: int, share: float) -> None:
    """Until stdin is closed or the process is gone."""
    clock = clock_of(process)
    os.set_blocking(0, False)
    try:
        while _parent_is_there():
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


def _parent_is_there() -> bool:
    try:
        return os.read(0, 1) != b""
    except BlockingIOError:
        return True


if __name__ == "__main__":
    govern(int(sys.argv[1]), float(sys.argv[2]))
