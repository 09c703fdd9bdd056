"""Programs that train in forked processes: the same to the last bit, and every process seen for what it did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from observed import Nursery, Outcome, check_structure
from sonda.record.spans import Spans

pytest.importorskip("torch")

STEP = Counter(optimizer=2, forward=1, loss=1, backward=1)
"""Phases of one training step of tests/programs/forking.py."""
FORKED = {
    # 4 trainings of 5 steps in chunks of 2: a worker has one chunk, or both.
    "pool": ({(10, 10), (20,)}, "train"),
    "queue": ({(4, 5)}, "train"),
    "executor": ({(10,)}, "train"),
    "hogwild": ({(4, 4)}, "train"),
    "by_hand": ({(2, 3, 4)}, "train"),
    "nested": ({(2, 3, 4)}, "train"),
    "inside": ({(3, 4, 4)}, "train"),
    "preloaded": ({(6, 6)}, "test"),
    "idle": ({(3,)}, "train"),
    "loading": ({(3,)}, "train"),
}
"""By the argument of the program: steps of its processes, sorted, where several ways are possible all of them; and
their part."""


@pytest.fixture(scope="module")
def nursery() -> Nursery:
    return Nursery()


@pytest.fixture(scope="module")
def observed(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Outcome]:
    """Called with an argument of the program: how it ended and what was observed. Each runs once."""
    return cache(lambda name: nursery.run("forking", name, directory=tmp_path_factory.mktemp("forking"), observe=True))


def steps_of_threads(spans: Spans) -> dict[int, int]:
    return dict(Counter(spans.number("thread")[spans.where(kind="step")].tolist()))


def phases_of_steps(spans: Spans) -> list[Counter[str]]:
    """Of every step how often it has each phase."""
    kind, name, parent = spans.words("kind").decoded(), spans.words("name").decoded(), spans.number("parent")
    steps: dict[int, Counter[str]] = {int(row): Counter() for row in np.flatnonzero(kind == "step")}
    for row in np.flatnonzero(kind == "phase"):
        if int(parent[row]) in steps:
            steps[int(parent[row])][str(name[row])] += 1
    return list(steps.values())


@pytest.mark.parametrize("way", FORKED)
def test_what_forked_processes_train_is_seen_and_nothing_twice(
    nursery: Nursery, observed: Callable[[str], Outcome], tmp_path: Path, way: str
) -> None:
    bare = nursery.run("forking", way, directory=tmp_path, observe=False)
    watched = observed(way)
    assert (watched.code, watched.output) == (bare.code, bare.output)
    assert len(bare.output.splitlines()) >= 2
    assert watched.assembly is not None
    spans = watched.assembly.spans
    check_structure(spans)
    possible, part = FORKED[way]
    counts = steps_of_threads(spans)
    assert tuple(sorted(counts.values())) in possible
    assert set(spans.words("name").decoded()[spans.where(kind="part")]) == {part}
    # Each process counts a step of its own, the first.
    assert int(spans.where(kind="step", pass_="count").sum()) >= len(counts)
    if way not in ("preloaded", "loading"):
        assert all(phases == STEP for phases in phases_of_steps(spans))
    assert watched.assembly.crew.unfinished == watched.assembly.crew.unstarted == 0
    assert watched.assembly.crew.together == (len(counts) if len(counts) > 1 else 0)


@pytest.mark.parametrize("way", ["killed", "daemon"])
def test_a_killed_child_leaves_whole_steps_and_no_others(nursery: Nursery, tmp_path: Path, way: str) -> None:
    bare = nursery.run("forking", way, directory=tmp_path / "bare", observe=False)
    watched = nursery.run("forking", way, directory=tmp_path / "observed", observe=True)
    assert (watched.code, watched.output) == (bare.code, bare.output)
    assert watched.assembly is not None
    spans = watched.assembly.spans
    check_structure(spans)
    [steps] = steps_of_threads(spans).values()
    assert steps >= 5, "what was done before the message is written before it"
    *others, last = phases_of_steps(spans)
    assert all(phases == STEP for phases in others)
    # Clearing gradients is the last thing that may have been seen: what follows a step belongs to it.
    assert last - STEP in (Counter(), Counter(optimizer=1)) and last >= STEP


def test_a_child_that_runs_no_framework_leaves_no_file(observed: Callable[[str], Outcome]) -> None:
    directory = observed("idle").directory
    assert directory is not None and len(list(directory.glob("*.events"))) == 1


def test_workers_of_a_forked_process_s_loader_leave_no_file(observed: Callable[[str], Outcome]) -> None:
    directory = observed("loading").directory
    assert directory is not None
    assert len(list(directory.glob("*.events"))) == 2, (
        "of the program, which imported the framework, and of the child that trained"
    )


def test_limits_of_the_program_hold_in_its_children(nursery: Nursery, tmp_path: Path) -> None:
    limited = nursery.run("forking", "hogwild", directory=tmp_path, observe=True, first=1, last=3)
    assert limited.assembly is not None
    spans = limited.assembly.spans
    assert sorted(steps_of_threads(spans).values()) == [4, 4]
    inner = spans.where(kind="layer", direction="forward") & spans.words("path").equal("0")
    assert int(inner.sum()) == 2 * 2, "steps 1 and 2 of each process have layers"
