"""A process that is held to a part of a processor uses no more, by a control group and by signals alike."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from sonda.record.errors import SondaError
from sonda.record.store import Store
from sonda.targets.job import Job
from sonda.targets.pipeline import measure
from sonda.targets.quota import GROUPS
from sonda.targets.target import parse_target

BURN = """
import time
def used(seconds):
    begin, before = time.perf_counter(), time.process_time()
    while time.perf_counter() - begin < seconds:
        pass
    return (time.process_time() - before) / (time.perf_counter() - begin)
"""
SLACK = 1.15
"""A period that had begun before may be used up beside the quota; other programs only take from it."""


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", BURN + textwrap.dedent(code)], capture_output=True, text=True,
                          check=True, timeout=60).stdout  # fmt: skip


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_a_held_process_uses_its_share_of_a_processor_and_leaves_no_group(share: float) -> None:
    told = python(f"""
        import os
        from sonda.targets.quota import limit_this_process
        limit_this_process({share})
        print(os.getpid(), used(2.0))
    """)
    process, use = told.split()
    assert float(use) <= SLACK * share
    assert not _groups_of(int(process))


def test_where_no_group_may_be_made_signals_hold_it() -> None:
    told = python("""
        import os, subprocess, sys
        code = f"from sonda.targets.quota import enforce_by_signals; enforce_by_signals({os.getpid()}, 0.25)"
        warden = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
        used(1.0)  # it starts
        print(used(2.0))
    """)
    assert float(told) <= SLACK * 0.25


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
    # The warden hears of it by the end of its input; it is nobody's child that could be waited for.
    for _ in range(200):
        if not _groups_of(process):
            return
        subprocess.run(["sleep", "0.05"], check=True)
    raise AssertionError("the group is still there")


def _groups_of(process: int) -> list[Path]:
    return [Path(place) for place, names, _ in os.walk(GROUPS) if f"sonda-quota-{process}" in names]


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
        self.layer = torch.nn.Linear(512, 512)

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
def test_a_slow_device_uses_its_share_while_it_trains(on: str, tmp_path: Path) -> None:
    """The model itself reads its processor time and the clock."""
    place = tmp_path / "clocks"
    place.mkdir()
    file = tmp_path / "clocked.py"
    file.write_text(MODEL.format(place=str(place)))
    job = Job(workload=f"{file}:build", options={"input": "64x512"}, train=True, on=on, steps=40, warmup=2)
    run = measure(job, Store(tmp_path / "store"))
    assert any("cpu/0.25 is held to 0.25 of one processor" in note for note in run.info.notes)
    slow = sorted(place.iterdir())[-1]
    clocks = [tuple(map(float, line.split())) for line in slow.read_text().splitlines()]
    (cpu, begin), (cpu_end, end) = clocks[0], clocks[-1]
    assert end - begin > 0.2, "too short to tell"
    assert cpu_end - cpu <= SLACK * 0.25 * (end - begin)
