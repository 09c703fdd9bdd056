"""A process that is held to a part of a processor uses no more, by a control group and by signals alike."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from time import monotonic, sleep

import pytest

from light_programs import without_ceilings
from sonda.record.errors import SondaError
from sonda.record.store import Store
from sonda.targets.job import Job
from sonda.targets.pipeline import measure
from sonda.targets.quota import GROUPS
from sonda.targets.target import parse_target

__all__ = ["without_ceilings"]

BURN = """
import time
def used(seconds):
    begin, before = time.perf_counter(), time.process_time()
    while time.perf_counter() - begin < seconds:
        pass
    return (time.process_time() - before) / (time.perf_counter() - begin)
def least_used(seconds, allowed, tries=5):
    least = 1.0
    for _ in range(tries):
        least = min(least, used(seconds))
        if least <= allowed:
            break
    return least
"""
SLACK = 1.15
"""A period that had begun before may be used up beside the quota; other programs only take from it."""


def start_python(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", BURN + textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)


def read_output(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0
    return output


def test_held_processes_use_their_shares_of_a_processor_and_leave_no_group() -> None:
    """Three at a time, together less than one processor."""
    shares = (0.1, 0.25, 0.5)
    held = [
        start_python(f"""
            import os
            from sonda.targets.quota import limit_this_process
            limit_this_process({share})
            print(os.getpid(), least_used(2.0, {SLACK * share}))
        """)
        for share in shares
    ]
    for share, process in zip(shares, held, strict=True):
        number, use = read_output(process).split()
        assert float(use) <= SLACK * share, share
        await_no_group(int(number))


def test_where_no_group_may_be_made_signals_hold_it() -> None:
    share = 0.25
    held = start_python(f"""
        import os, subprocess, sys
        code = f"from sonda.targets.quota import enforce_by_signals; enforce_by_signals({{os.getpid()}}, {share})"
        warden = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
        used(1.0)  # it starts
        print(least_used(2.0, {SLACK * share}))
    """)
    assert float(read_output(held)) <= SLACK * share


def test_a_held_process_that_is_killed_leaves_no_group() -> None:
    code = """
import os
from sonda.targets.quota import limit_this_process
limit_this_process(0.5)
print(os.getpid(), flush=True)
used(60)
"""
    with subprocess.Popen([sys.executable, "-c", BURN + code], stdout=subprocess.PIPE, text=True) as held:
        assert held.stdout is not None
        process = int(held.stdout.readline())
        held.kill()
    await_no_group(process)


def await_no_group(process: int) -> None:
    """The warden hears of the end by that of its input; it is nobody's child that could be waited for."""
    limit = monotonic() + 300
    while any(f"sonda-quota-{process}" in names for _, names, _ in os.walk(GROUPS)):
        assert monotonic() < limit, "the group is still there"
        sleep(0.05)


def test_a_part_of_a_processor_is_one_thread() -> None:
    slow = parse_target("hybrid=cpu/2+cpu/0.25").devices[1]
    assert (slow.kind, slow.threads, slow.share) == ("cpu", 1, 0.25)
    assert parse_target("cpu/.5").devices[0].share == 0.5
    assert parse_target("cpu/2").devices[0].share is None


@pytest.mark.parametrize("written", ["cpu/0.0", "cpu/1.0", "cpu/1.5", "cpu/0.001"])
def test_other_parts_are_refused_in_one_line(written: str) -> None:
    with pytest.raises(SondaError, match=r"of a processor; give 0.01 to 0.99, or whole threads"):
        parse_target(written)


def test_tensorflows_strategies_hold_nobody(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow", reason="a strategy is TensorFlow's")
    job = Job(workload="mlp", framework="tensorflow", train=True, on="mirrored=cpu/1+cpu/0.5")
    with pytest.raises(SondaError, match="hold no device to a part of a processor; use cpu/N"):
        measure(job, Store(tmp_path))


MODEL = """
import os, time
import torch

class Clocked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(256, 256)

    def forward(self, x):
        with open(os.path.join({place!r}, os.environ.get("RANK", "0")), "a") as file:
            print(time.process_time(), time.perf_counter(), file=file)
        for _ in range(20):
            x = torch.relu(self.layer(x))
        return x

def build():
    return Clocked()
"""


@pytest.mark.parametrize("on", ["cpu/0.25", "hybrid=cpu/1+cpu/0.25@shares=equal"])
@pytest.mark.usefixtures("without_ceilings")
def test_a_slow_device_uses_its_share_while_it_trains(on: str, tmp_path: Path) -> None:
    """The model itself reads its processor time and the clock."""
    place = tmp_path / "clocks"
    place.mkdir()
    file = tmp_path / "clocked.py"
    file.write_text(MODEL.format(place=str(place)))
    job = Job(workload=f"{file}:build", options={"input": "32x256"}, train=True, on=on, steps=40, warmup=2)
    run = measure(job, Store(tmp_path / "store"))
    assert any("cpu/0.25 is held to 0.25 of one processor" in note for note in run.info.notes)
    slow = sorted(place.iterdir())[-1]
    clocks = [tuple(map(float, line.split())) for line in slow.read_text().splitlines()]
    (cpu, begin), (cpu_end, end) = clocks[0], clocks[-1]
    assert end - begin > 0.2, "too short to tell"
    assert cpu_end - cpu <= SLACK * 0.25 * (end - begin)
