"""The board on which participants line up, and the watchdog that names those which do not step."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from sonda.frameworks.collector.corun.board import Board
from sonda.targets.corun.crew import Watchdog

DEADLINE_S = 600
"""Only a defect takes this long."""


def test_the_board_tells_who_is_missing_and_who_still_measures():
    board = Board.make(3)
    board.arrive(0, 1)
    board.arrive(2, 1)
    assert board.missing([0, 1, 2], 1) == [1] and board.missing([0, 2], 1) == []
    board.mark_measured(2, 1)
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
    board.add_step(0)
    assert watchdog.stuck([0, 1]) == []
    now[0] = 11
    assert watchdog.stuck([0, 1]) == [1]
    now[0] = 20
    assert watchdog.stuck([0, 1]) == [0, 1], "the other's last step was seen at 9"
    watchdog.restart()
    assert watchdog.stuck([0, 1]) == []
    board.close()
