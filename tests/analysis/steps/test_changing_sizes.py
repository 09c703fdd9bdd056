"""Trainings whose sizes change from forward to forward: FLOPs of a step are those counted by hand.

The counts are made in `programs/changing.py`, of matrix products alone; additions and the like are some percent more.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from observed import Nursery, seen
from plain_runs import workload_of
from sonda.analysis.doubts import Covered, ShapesAveraged, ShapesNotForetold
from sonda.analysis.steps.parts import Part, parts
from sonda.analysis.steps.shape_counts import count_part

pytest.importorskip("torch")

NEAR = 0.06


@pytest.fixture(scope="module")
def nursery() -> Nursery:
    return Nursery()


def run(nursery: Nursery, name: str, directory: Path) -> tuple[list[float], Part]:
    """The FLOPs of all steps by hand, and the part of the run that has them."""
    observed = nursery.run("changing", name, directory=directory, observe=True)
    assert observed.code == 0 and observed.assembly is not None, observed.output
    [line] = [line for line in observed.output.splitlines() if line.startswith("FLOPS")]
    workload = SimpleNamespace(workload=workload_of({"train": True}))
    [part] = parts(SimpleNamespace(spans=observed.assembly.spans, info=workload))  # type: ignore[arg-type]
    return json.loads(line.removeprefix("FLOPS")), part


def by_hand(flops: list[float], part: Part, rows: np.ndarray) -> float:
    """The mean of those steps that have these rows."""
    every = np.concatenate((part.rows, part.counted))
    every = every[np.argsort(part.index.spans.number("start")[every])]
    assert len(every) == len(flops)
    return float(np.array(flops)[np.isin(every, rows)].mean())


def passes(part: Part) -> list[str]:
    return part.index.spans.words("pass").decoded()[part.rows].tolist()


@pytest.mark.parametrize(
    ("name", "partly"),
    [
        ("gathered", 0), ("images", 0), ("translated", 0), ("frozen", 0), ("taught", 0),
        # That a cell is called so often before a backward is known once there was one.
        ("elements", 1),
    ],
)  # fmt: skip
def test_flops_of_all_steps_follow_from_some(nursery: Nursery, tmp_path: Path, name: str, partly: int) -> None:
    flops, part = run(nursery, name, tmp_path)
    found = count_part(part, None)
    assert found.counts is not None and found.covered is not None
    assert isinstance(found.note, ShapesAveraged) and found.note.foretold
    assert found.covered.mean() > 0.9
    covered = part.rows[part.measured][found.covered]
    total = sum(tally.flops for tally in found.counts.phases.values())
    assert total == pytest.approx(by_hand(flops, part, covered), rel=NEAR)
    assert passes(part).count("warmup") <= partly, "a step was counted from its middle on"


def test_a_step_that_comes_every_fifth_time_is_counted_too(nursery: Nursery, tmp_path: Path) -> None:
    flops, part = run(nursery, "every_fifth", tmp_path)
    found = count_part(part, None)
    assert found.counts is not None and found.covered is not None and found.covered.all()
    total = sum(tally.flops for tally in found.counts.phases.values())
    assert total == pytest.approx(by_hand(flops, part, part.rows[part.measured]), rel=NEAR)


def test_where_nothing_foretells_a_step_the_mean_of_the_counted_ones_is_shown(nursery: Nursery, tmp_path: Path) -> None:
    flops, part = run(nursery, "decided", tmp_path)
    found = count_part(part, None)
    assert found.counts is not None
    total = sum(tally.flops for tally in found.counts.phases.values())
    assert total == pytest.approx(by_hand(flops, part, part.counted), rel=NEAR)
    assert isinstance(found.note, ShapesNotForetold) and found.note.covered == Covered(len(part.counted), 30)


def test_threads_of_a_process_count_a_shape_once(nursery: Nursery, tmp_path: Path) -> None:
    observed = nursery.run("changing", "threads", directory=tmp_path, observe=True)
    assert observed.assembly is not None
    found = seen(observed.assembly.spans)
    assert sum(steps for _, steps in found.parts) == 40
    assert found.counted == 1
