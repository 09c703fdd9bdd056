"""The board on which participants line up, and BenchCast's barrier, joined by real processes."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import sonda
from sonda.frameworks.collector.corun.benchcast import DO_WAIT, SIZE, Barrier, BarrierError
from sonda.frameworks.collector.corun.board import Board
from sonda.record.errors import SondaError
from sonda.targets.corun.crew import Watchdog

DEADLINE_S = 600
"""Only a defect takes this long."""


# ---- the board --------------------------------------------------------------------------------------------------


def test_the_board_tells_who_is_missing_and_who_still_measures():
    board = Board.make(3)
    board.arrive(0, 1)
    board.arrive(2, 1)
    assert board.missing([0, 1, 2], 1) == [1] and board.missing([0, 2], 1) == []
    board.measured(2, 1)
    assert board.measuring([0, 2], 1) == [0]
    assert board.missing([0, 2], 2) == [0, 2], "every window is a new one"
    board.close()


def test_a_line_that_does_not_fill_names_the_slots():
    board = Board.make(2)
    with pytest.raises(TimeoutError, match=r"\[1\]"):
        board.line_up(0, [0, 1], 1, timeout=0.01)
    board.close()


LINE = """
import sys, time
from sonda.frameworks.collector.corun.board import Board
board = Board(int(sys.argv[1]), 2)
slot = int(sys.argv[2])
for window in (1, 2, 3):
    if slot: sys.stdin.readline()
    board.line_up(slot, [0, 1], window, 120)
    print(time.monotonic_ns(), flush=True)
"""


def test_nobody_leaves_the_line_before_the_last_arrives():
    board = Board.make(2)
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", LINE, str(board.descriptor), str(slot)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=(board.descriptor,),
        )
        for slot in (0, 1)
    ]  # fmt: skip
    try:
        for window in (1, 2, 3):
            end = time.monotonic() + DEADLINE_S
            while board.missing([0], window):
                assert time.monotonic() < end
                time.sleep(0.001)
            let_go = time.monotonic_ns()
            programs[1].stdin.write("go\n")
            programs[1].stdin.flush()
            assert all(int(program.stdout.readline()) >= let_go for program in programs)
    finally:
        for program in programs:
            program.kill()
            program.communicate()
        board.close()


def test_the_watchdog_names_who_finishes_no_step():
    board = Board.make(2)
    now = [0.0]
    watchdog = Watchdog(board, 10, clock=lambda: now[0])
    assert watchdog.stuck([0, 1]) == []
    now[0] = 9
    board.step(0)
    assert watchdog.stuck([0, 1]) == []
    now[0] = 11
    assert watchdog.stuck([0, 1]) == [1]
    now[0] = 20
    assert watchdog.stuck([0, 1]) == [0, 1], "the other's last step was seen at 9"
    watchdog.restart()
    assert watchdog.stuck([0, 1]) == []
    board.close()


# ---- BenchCast --------------------------------------------------------------------------------------------------


class BenchCast:
    """What BenchCast's parent does: a process-shared barrier in shared memory, then a byte."""

    def __init__(self, count: int) -> None:
        self.name = f"sonda-test-{os.getpid()}-{time.monotonic_ns()}"
        self.path = Path("/dev/shm") / self.name
        self.path.write_bytes(bytes(SIZE))
        with self.path.open("r+b") as file:
            self.memory = mmap.mmap(file.fileno(), SIZE)
        self.library = ctypes.CDLL(None)
        attributes = ctypes.create_string_buffer(16)
        assert self.library.pthread_barrierattr_init(attributes) == 0
        assert self.library.pthread_barrierattr_setpshared(attributes, 1) == 0
        self.address = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(self.memory)))
        assert self.library.pthread_barrier_init(self.address, attributes, count) == 0
        self.memory[DO_WAIT] = 1

    def wait(self) -> None:
        assert self.library.pthread_barrier_wait(self.address) in (0, -1)

    def clear(self) -> None:
        self.memory[DO_WAIT] = 0


@pytest.fixture
def benchcast():
    made = []

    def make(count: int) -> BenchCast:
        made.append(BenchCast(count))
        return made[-1]

    signal.alarm(DEADLINE_S)  # a barrier that is not passed would wait for ever
    yield make
    signal.alarm(0)
    for one in made:
        one.path.unlink()


JOINS = """
import sys, sonda
barrier = sonda.join_barrier(sys.argv[1])
for turn in range(4):
    sys.stdin.readline()
    print(turn, barrier.wait(), flush=True)
barrier.close()
"""


def test_a_python_program_passes_the_barrier_with_the_others(benchcast):
    parent = benchcast(3)
    programs = [
        subprocess.Popen([sys.executable, "-c", JOINS, parent.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         text=True)
        for _ in range(2)
    ]  # fmt: skip
    try:
        for turn in range(4):
            if turn == 3:
                parent.clear()
            for program in programs:
                program.stdin.write("go\n")
                program.stdin.flush()
            if turn < 3:
                parent.wait()  # returns only because both programs wait too
            assert [program.stdout.readline() for program in programs] == [f"{turn} {turn < 3}\n"] * 2
    finally:
        for program in programs:
            program.kill()
            program.communicate()


def test_others_that_do_not_come_are_an_error_and_no_hang(benchcast):
    barrier = Barrier(benchcast(2).name, timeout=0.05)
    with pytest.raises(BarrierError, match=r"did not come .* 0\.05 s"):
        barrier.wait()


def test_a_barrier_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(SondaError, match="no barrier 'sonda-nothing'"):
        sonda.join_barrier("sonda-nothing")
    with pytest.raises(SondaError, match="not the name"):
        sonda.join_barrier("../etc/passwd")


def test_memory_too_small_for_a_barrier_is_refused():
    path = Path("/dev/shm") / f"sonda-small-{os.getpid()}"
    path.write_bytes(b"small")
    try:
        with pytest.raises(BarrierError, match="too small"):
            Barrier(path.name)
    finally:
        path.unlink()


TRAINS = """
import torch, torch.nn as nn
torch.manual_seed(0); torch.set_num_threads(1)
model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    print("step", step, flush=True)
"""


@pytest.mark.slow
def test_an_unmodified_program_joins_by_an_environment_variable(benchcast, tmp_path):
    parent = benchcast(2)
    script = tmp_path / "train.py"
    script.write_text(TRAINS)
    environment = {**os.environ, "SONDA_HOME": str(tmp_path / "store"), "SONDA_BARRIER": f"{parent.name}:100"}
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "sonda", "run", "--no-count", "--", sys.executable, str(script)],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        for step in range(3):
            parent.wait()  # after its step, before it says so
            assert child.stdout.readline() == f"step {step}\n"
        # It is at the barrier again, or on its way there: it waits once more, then no more.
        parent.clear()
        try:
            parent_waits = subprocess.Popen([sys.executable, "-c", JOINS_ONCE, parent.name])
            out, err = child.communicate(timeout=DEADLINE_S)
        finally:
            parent_waits.kill()
            parent_waits.wait()
        assert out == "step 3\nstep 4\nstep 5\n", err
        assert child.returncode == 0, err
    finally:
        child.kill()
        child.wait()


JOINS_ONCE = """
import ctypes, mmap, sys
with open("/dev/shm/" + sys.argv[1], "r+b") as file:
    memory = mmap.mmap(file.fileno(), 40)
ctypes.CDLL(None).pthread_barrier_wait(ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory))))
"""
"""Lets a program go that had come to the barrier before the byte was cleared."""
