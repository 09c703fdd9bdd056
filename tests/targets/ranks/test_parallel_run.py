"""Faults of several devices, each named in one line with nothing left running."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from processes import lives
from sonda.cli.application import say
from sonda.record.errors import SondaError
from sonda.record.store import Store
from sonda.targets.job import JOB, Job
from sonda.targets.ranks import rank as parallel_rank
from sonda.targets.ranks.agent import Agent
from sonda.targets.ranks.elastic_agent import PLAN, _first_failure
from sonda.targets.ranks.launcher import measure_ranks
from sonda.targets.ranks.outcomes import Forecast, RankOutcome, read_outcome, write_forecast, write_outcome
from sonda.targets.ranks.plan import make_plan
from sonda.targets.target import parse_target
from sonda.targets.training.supervisor import LostError

pytest.importorskip("torch")

MODEL = """
import os, signal
from torch import nn

class Doomed(nn.Sequential):
    calls = 0

    def forward(self, values):
        Doomed.calls += 1
        if Doomed.calls == int(os.environ["DOOMED_AT"]) and os.environ["RANK"] == "1":
            {fate}
        return super().forward(values)

def build():
    return Doomed(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))
"""


def test_a_killed_rank_is_named_and_the_others_are_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    doomed = tmp_path / "doomed.py"
    doomed.write_text(MODEL.format(fate="os.kill(os.getpid(), signal.SIGKILL)"))
    # After the trials of a batch of 8 (sizes 2 and 4, at least three steps each) and in the middle of the steps.
    monkeypatch.setenv("DOOMED_AT", "25")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    on, started = "ddp=cpu/1+cpu/1", []
    job = Job(workload=f"{doomed}:build", options={"input": "8x1x8x8"}, train=True, warmup=1, steps=5000, on=on)
    with pytest.raises(SondaError) as caught:
        Agent(job, make_plan(job, parse_target(on)), tmp_path, say, started=started.append).run()
    assert str(caught.value).startswith("cpu/1 (rank 1) was ended by SIGKILL (out of memory?); the other ranks were st")
    assert isinstance(caught.value, LostError), "a whole training would go on from its checkpoint"
    ranks = [int(path.read_text()) for path in tmp_path.glob("process-*")]
    assert len(ranks) == 2 and len(started) == 1 and not any(map(lives, [*ranks, *started]))
    assert not list((tmp_path / "temporary").glob("torchelastic_*")), "what goes away with the run's own directory"


class Failure:
    def __init__(self, exitcode: int) -> None:
        self.exitcode = exitcode


@pytest.mark.parametrize(
    ("codes", "causes", "said"),
    [
        ({0: 1, 1: -9}, {0: ("the connection was reset", True)}, "cpu/1 (rank 1) was ended by SIGKILL"),
        ({0: -15, 1: 1}, {1: ("there is no such model", False)}, "cpu/1 (rank 1): there is no such model; mend it"),
        ({0: 1, 1: 1}, dict.fromkeys((0, 1), ("there is no such model", False)), "there is no such model; mend it"),
        ({0: 1, 1: 1}, {0: ("gone", True), 1: ("not enough memory", False)}, "cpu/1 (rank 1): not enough memory"),
        ({1: 7}, {}, "cpu/1 (rank 1) ended with code 7"),
        # Rank 1 hangs: the agent, which stops it, has to kill it.
        ({0: 1, 1: -9}, {0: ("timed out after 10 s waiting for rank 1", True)}, "cpu/1 (rank 0): timed out after 10 s"),
        ({0: 1, 1: -9}, {0: ("rank 1 did not come: it sleeps (timed)", True)}, "rank 1 did not come: it sleeps"),
        # Whoever was told to end first; the others were told by the agent.
        ({1: -15, 0: -15}, {}, "cpu/1 (rank 1) was ended by SIGTERM"),
    ],
)
def test_who_failed_first_is_named(
    tmp_path: Path, codes: dict[int, int], causes: dict[int, tuple[str, bool]], said: str
) -> None:
    on = "ddp=cpu/1+cpu/1"
    plan = make_plan(Job(workload="mlp", train=True, on=on), parse_target(on))
    for rank, (cause, lost) in causes.items():
        late, absent = "timed" in cause, "did not come" in cause
        outcome = RankOutcome(
            rank=rank, device="cpu/1", cause=cause, remedy="mend it", lost=lost, late=late, absent=absent
        )
        write_outcome(tmp_path, outcome)
    error = _first_failure(plan, tmp_path, {rank: Failure(code) for rank, code in codes.items()})
    assert str(error).startswith(said)


def test_what_is_foreseen_is_said_without_a_terminal_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    on = "hybrid=cpu/1+cpu/1"
    job = Job(workload="mlp", train=True, on=on)
    agent = Agent(job, make_plan(job, parse_target(on)), tmp_path, say)
    write_forecast(tmp_path, Forecast(sentences=["at most 1.33 times", "cannot pay"], numbers={}))
    agent._process = subprocess.Popen(["true"])
    assert agent._watch() is not None
    say("running")  # for whoever watches a screen
    assert capsys.readouterr() == ("", "at most 1.33 times\ncannot pay\n")


def test_a_mistake_in_the_options_is_found_before_a_process_is_started(tmp_path: Path) -> None:
    job = Job(workload="mlp", options={"depth": "3"}, train=True, on="ddp=cpu/1+cpu/1")
    with pytest.raises(SondaError, match=r"^mlp has no option 'depth'"):
        measure_ranks(job, Store(tmp_path))


def test_a_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks could not say what became of them: nothing can be written any more."""
    on = "ddp=cpu/1+cpu/1"
    job = Job(workload="mlp", train=True, on=on)
    store = Store(tmp_path)

    def full(path: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(SondaError, match=r"the disk of the store .* is full: No space left on device; free some space"):
        with store.scratch() as directory:
            agent = Agent(job, make_plan(job, parse_target(on)), directory, say)
            monkeypatch.setattr(Path, "write_bytes", full)
            agent.run()
    monkeypatch.undo()
    assert not list(tmp_path.glob(".partial*")), "and nothing is left of it"


def test_ranks_that_never_meet_are_not_waited_for(tmp_path: Path) -> None:
    """A program that listens at the port and never answers."""
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        taken.listen()
        on = f"ddp=cpu/1+cpu/1@nodes=2,at=localhost:{taken.getsockname()[1]},timeout=1"
        job = Job(workload="mlp", train=True, on=on)
        said: list[str] = []
        started: list[int] = []
        with pytest.raises(SondaError, match=r"the ranks did not meet at localhost:\d+ within 1 s; a program listens"):
            Agent(job, make_plan(job, parse_target(on)), tmp_path, said.append, started=started.append).run()
    assert len(started) == 1 and not any(map(lives, started)) and not list(tmp_path.glob("process-*"))
    assert [one.partition(" at ")[0] for one in said] == ["a program listens"], "at once, not after all the waiting"


@pytest.mark.parametrize(
    ("error", "said", "late"),
    [
        (TimeoutError("timed out after 7 s waiting for rank 1"),
         "cpu/1 (rank 1) did not come within 7 s: it has not begun", True),
        (RuntimeError("[gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 7000ms for recv operation"),
         "cpu/1 (rank 1) did not come within 7 s: it has not begun", True),
        (TimeoutError("timed out after 7 s waiting for ranks that are calibrated"),
         "cpu/1 (rank 1) did not come within 7 s: it has not begun", True),
        (RuntimeError("DataLoader timed out after 5 seconds"),
         "the workload failed: RuntimeError: DataLoader timed out after 5 seconds", False),
        (TimeoutError("The read operation timed out"),
         "the workload failed: TimeoutError: The read operation timed out", False),
    ],
)  # fmt: skip
def test_a_rank_that_has_waited_for_another_in_vain_says_so_and_no_other_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str, late: bool
) -> None:
    on = "hybrid=cpu/1+cpu/1@timeout=7"
    job = Job(workload="mlp", train=True, on=on)
    (tmp_path / JOB).write_bytes(msgspec.json.encode(job))
    (tmp_path / PLAN).write_bytes(msgspec.json.encode(make_plan(job, parse_target(on))))

    def fail(rank: parallel_rank.Rank) -> None:
        raise error

    def left(code: int) -> None:
        raise SystemExit(code)

    for name, value in (("RANK", "0"), ("LOCAL_RANK", "0"), ("OMP_NUM_THREADS", "1"), ("MKL_NUM_THREADS", "1")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["rank", str(tmp_path)])
    monkeypatch.setattr(parallel_rank, "end_with_parent", lambda parent: None)
    monkeypatch.setattr(parallel_rank.Rank, "run", fail)
    monkeypatch.setattr(parallel_rank.os, "_exit", left)
    with pytest.raises(SystemExit):
        parallel_rank.main()
    outcome = read_outcome(tmp_path, 0)
    assert outcome is not None and outcome.cause.startswith(said) and outcome.absent == late
    assert outcome.lost and outcome.late == late
    assert outcome.remedy.endswith("give it longer with @timeout=") == late


@pytest.mark.parametrize("rank", ["rank {}", "strategy_rank {} ps 0"])
def test_a_rank_whose_agent_is_gone_before_it_begins_ends_at_once(rank: str, tmp_path: Path) -> None:
    """It imports for a second before it can tell the kernel whose end is its own. The directory is empty: whose agent
    is there finds no job in it."""
    command = [sys.executable, "-m", *f"sonda.targets.ranks.{rank}".format(tmp_path).split()]
    ends = [subprocess.run([*command, str(who)], stderr=subprocess.DEVNULL) for who in (os.getpid(), 1 << 30)]
    assert [end.returncode for end in ends] == [1, -9]
