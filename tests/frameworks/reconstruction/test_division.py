"""Where processes divide their work, in programs that are written down here."""

from __future__ import annotations

import pytest

from sonda.frameworks.reconstruction.division import Division, find_division

SPAWNED = """
import torch.multiprocessing as mp

def part(rank, rows):
    each = len(rows) // 2
    return rows[rank * each : (rank + 1) * each]

def work(number, rows):
    for row in part(number, rows):
        learn(row)

mp.spawn(work, args=(load(),), nprocs=2)
"""
ASKED = """
import os
import torch.distributed as dist

class Trainer:
    def __init__(self, place):
        self.place = place
        self.device = devices[0].to(names[place])

    def rows(self):
        return [load(name) for name in FILES[self.place]]

def main():
    Trainer(int(os.environ["LOCAL_RANK"])).rows()
"""
FORKED = """
from multiprocessing import Process

def work(group, who):
    for batch in range(who, 100, 2):
        learn(batch)

for number in range(2):
    Process(target=work, args=("jobs", number)).start()
"""
UNDIVIDED = """
import torch.distributed as dist

def main():
    rank = dist.get_rank()
    torch.manual_seed(rank)
    weights.to(devices[rank])
    if rank == 0:
        print("begins")
"""


@pytest.mark.parametrize(
    ("source", "line", "function"),
    [(SPAWNED, 6, "part"), (ASKED, 11, "Trainer.rows"), (FORKED, 5, "work")],
)
def test_the_line_that_chooses_by_the_number_of_a_process(source: str, line: int, function: str) -> None:
    assert find_division({"train.py": source.encode()}) == Division("train.py", line, function)


def test_a_number_is_followed_into_other_files() -> None:
    parts, main = SPAWNED.split("def work")
    assert find_division({"main.py": b"def work" + main.encode(), "parts.py": parts.encode()}) == Division(
        "parts.py", 6, "part"
    )


@pytest.mark.parametrize("source", [UNDIVIDED, "def work(rank):\n    return rows[rank]", "not Python", ""])
def test_what_divides_nothing_has_no_line(source: str) -> None:
    assert find_division({"train.py": source.encode()}) is None
