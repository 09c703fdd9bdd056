"""The processes of the measured program: found below those that were added, gone when they end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from sonda.targets.processes import MeasuredProcesses, ProcessStat, read_stat


class FakeProc:
    """A `/proc` with the one file that is read."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def start(self, pid: int, parent: int, state: str = "S", started: int = 7) -> None:
        (self.root / str(pid)).mkdir(exist_ok=True)
        # proc(5): the state is field 3, the parent field 4, the start field 22.
        between = " ".join(["0"] * 17)
        (self.root / str(pid) / "stat").write_text(f"{pid} (a ) name) {state} {parent} {between} {started} 0\n")

    def end(self, pid: int) -> None:
        (self.root / str(pid) / "stat").unlink()
        (self.root / str(pid)).rmdir()


def test_what_the_kernel_shows_of_a_process_is_read_past_its_name(tmp_path: Path) -> None:
    FakeProc(tmp_path).start(10, 1, "R", 123)
    assert read_stat(10, tmp_path) == ProcessStat("R", 1, "123")
    assert read_stat(11, tmp_path) is None


def test_all_below_a_root_are_found_whenever_they_start(tmp_path: Path) -> None:
    proc, processes = FakeProc(tmp_path), MeasuredProcesses(tmp_path)
    assert processes.living() == []
    proc.start(10, 1)
    proc.start(99, 1)  # somebody else's
    processes.add(10)
    assert processes.roots() == processes.living() == [10]
    proc.start(20, 30)  # its parent has the larger number
    proc.start(30, 10)
    proc.start(98, 99)
    assert sorted(processes.living()) == [10, 20, 30] and processes.roots() == [10]
    proc.end(30)
    proc.start(20, 1)  # an orphan stays one of the program's
    assert sorted(processes.living()) == [10, 20]


def test_a_process_that_has_ended_is_gone_and_its_number_is_not_the_program_s(tmp_path: Path) -> None:
    proc, processes = FakeProc(tmp_path), MeasuredProcesses(tmp_path)
    for pid in (10, 11, 12):
        proc.start(pid, 1)
        processes.add(pid)
    processes.add(13)  # has ended before it could be added
    proc.start(10, 1, "Z")
    proc.end(11)
    proc.start(12, 1, started=8)  # another process with the same number
    assert processes.roots() == processes.living() == []


def test_a_real_child_and_its_child_are_found(tmp_path: Path) -> None:
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"
    processes = MeasuredProcesses()
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        processes.add(child.pid)
        child.stdout.readline()
        root, below = processes.living()
        assert root == child.pid and processes.roots() == [root] and os.getpid() not in (root, below)
        assert (read_stat(below) or ProcessStat("", 0, "")).parent == root
    assert processes.living() == processes.roots() == []
