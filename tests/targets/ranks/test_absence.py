"""Which rank did not come, and what it does instead: real processes that sleep, wait, are stopped or have ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sonda.frameworks.torch.parallel.calibration import keep_company
from sonda.targets.ranks import absence
from sonda.targets.ranks.absence import Absence, find_absences
from sonda.targets.ranks.outcomes import RankOutcome, write_outcome

LIMIT_S = 300
"""Only a defect takes this long."""
PROGRAM = """
import os, sys, time
from pathlib import Path
from sonda.targets.ranks.absence import answer_signals

def {function}():
    os.mknod(sys.argv[2]); time.sleep({seconds})

answer_signals(Path(sys.argv[1]), 1)
{function}()
"""
"""From the moment on that its file is there it is in one line of the function, whenever it is asked."""
Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is asked answers, however late a busy machine lets it."""
    monkeypatch.setattr(absence, "PATIENCE_S", LIMIT_S)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts rank 1 as a file of that name, and returns when it is in that function."""
    running: list[subprocess.Popen[bytes]] = []

    def start(file: str, function: str, seconds: float = 1000) -> subprocess.Popen[bytes]:
        path, there = tmp_path / file, tmp_path / "there"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PROGRAM.format(function=function, seconds=seconds))
        running.append(subprocess.Popen([sys.executable, str(path), str(tmp_path), str(there)]))
        limit = time.monotonic() + LIMIT_S
        while not there.exists() and time.monotonic() < limit:
            time.sleep(0.01)
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.wait()


def absent(directory: Path) -> Absence:
    (only,) = find_absences(directory, [1])
    return only


def test_a_rank_that_hangs_says_where(tmp_path: Path, start: Start) -> None:
    start("loader.py", "read_sample")
    said = absent(tmp_path)
    assert (said.rank, said.doing) == (1, "is in read_sample of loader.py, line 7")
    assert "@timeout=" in said.remedy


def test_a_rank_that_is_stopped_is_said_to_be(tmp_path: Path, start: Start) -> None:
    process = start("loader.py", "read_sample")
    process.send_signal(signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)  # until it is
    said = absent(tmp_path)
    assert said.doing == "is stopped by a signal" and "start again" in said.remedy


def test_a_rank_that_has_ended_or_never_began(tmp_path: Path, start: Start) -> None:
    assert absent(tmp_path).doing == "has not begun"
    start("loader.py", "read_sample", seconds=0).wait()
    assert absent(tmp_path).doing == "has ended"


def test_a_rank_that_waits_itself_is_not_the_one(tmp_path: Path, start: Start) -> None:
    start("torch/distributed/exchange.py", "all_reduce")
    assert find_absences(tmp_path, [1]) == []


def test_a_rank_that_keeps_others_company_is_not_the_one(tmp_path: Path, start: Start) -> None:
    start("sonda/frameworks/torch/parallel/x.py", keep_company.__name__)
    assert find_absences(tmp_path, [1]) == []


def test_a_rank_that_has_waited_in_vain_too_is_not_the_one(tmp_path: Path) -> None:
    write_outcome(tmp_path, RankOutcome(rank=1, device="cpu/1", cause="timed out", late=True, lost=True))
    assert find_absences(tmp_path, [1]) == []


def test_a_stack_that_is_still_being_written_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`faulthandler` writes it word by word: a rank that a busy machine holds up there is in no other function."""
    inner = '  File "/lib/python3/site-packages/torch/serialization.py", line 3 in load\n'
    whole = f'Stack (most recent call first):\n{inner}  File "/srv/loader.py", line 8 in read_sample\n'
    cuts = iter((len(whole) - len("ample\n"), len(whole) - 40, len(whole)))
    (tmp_path / "process-1").write_text(str(os.getpid()))
    monkeypatch.setattr(absence, "_request_stack", lambda number: None)
    monkeypatch.setattr(
        absence, "sleep", lambda seconds: (tmp_path / "stack-1").write_text(whole[: next(cuts, len(whole))])
    )
    assert absent(tmp_path).doing == "is in read_sample of loader.py, line 8"


def test_calibration_does_not_go_on_for_ever_for_a_rank_that_does_not_come() -> None:
    steps: list[int] = []
    with pytest.raises(TimeoutError, match=r"timed out after 0.05 s waiting for ranks"):
        keep_company(lambda: steps.append(1), lambda: 1, 2, 0.05)
    told = iter((1, 1, 2))
    assert keep_company(lambda: steps.append(1), lambda: next(told), 2, 60) == 2
