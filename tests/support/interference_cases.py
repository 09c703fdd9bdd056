"""Helpers of `test_interference.py` that other tests use too."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from plain_runs import run_info
from sonda.record.run import new_id, now, write_run
from sonda.record.spans import Spans

MS = 1_000_000


ALONE = {"a": 10.0, "b": 20.0, "c": 5.0}
"""ms per step."""


PAIRS = {("a", "b"): (2.0, 4.0), ("a", "c"): (1.0, 1.5), ("b", "c"): (1.25, 1.0)}


TOGETHER = (2.0, 4.0, 1.6)


def pieces(step_ms: float, cpu: float = 1.0, count: int = 4, steps: int = 10) -> list[list[int]]:
    long = round(step_ms * MS * steps)
    return [[at * long, long, steps, round(long * cpu)] for at in range(count)]


def experiment(tmp_path, measured, names="abc", repeat=1, spans=None, **cache):
    """`measured(members, repetition, slot)` gives the pieces of a participant in a window."""
    slots = range(len(names))
    groups = [(slot,) for slot in slots] + list(combinations(slots, 2)) + ([tuple(slots)] if len(names) > 2 else [])
    windows = []
    for repetition in range(repeat):
        for members in groups:
            windows.append({
                "members": list(members), "partition": "", "repetition": repetition,
                "measured": [
                    {"slot": slot, "begin": 0, "end": 1, "slices": measured(members, repetition, slot),
                     "counters": {"cpu_time": 50.0, "time": 100.0, "run_queue_wait": 25.0, "page_faults": 80.0,
                                  "context_switches": 4.0}}
                    for slot in members
                ],
            })  # fmt: skip
    windows += cache.pop("windows", [])
    facts = {
        "participants": [{"name": name, "cores": [slot], "threads": 1} for slot, name in enumerate(names)],
        "seconds": 1.0, "repeat": repeat, "timeout": 9.0, "windows": windows,
        "cache": {"partitions": {}, "ways": None, "reason": "", "monitor_reason": "no resctrl here", **cache},
    }  # fmt: skip
    info = run_info(id=new_id(), created=now(), status="complete", workload={"name": " + ".join(names)},
                   target={"spec": "0,1,2", "device": "corun", "corun": facts})  # fmt: skip
    return write_run(tmp_path, info, spans or Spans({"start": np.zeros(0)}, {}))


def known(members, repetition, slot):
    names = "abc"
    if len(members) == 1:
        return pieces(ALONE[names[slot]])
    if len(members) == 2:
        pair = tuple(names[one] for one in members)
        return pieces(ALONE[names[slot]] * PAIRS[pair][members.index(slot)])
    return pieces(ALONE[names[slot]] * TOGETHER[slot])
