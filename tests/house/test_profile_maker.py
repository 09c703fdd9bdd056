"""Constructed profiles are what they say: the real one again and again."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.profile_maker import REAL, ProfileMaker

from sonda.analysis.traces.profile import summarise_profile
from sonda.imports.xplane.file import profile_events
from sonda.targets.imported.launcher import import_files


@pytest.fixture
def thrice(tmp_path: Path) -> Path:
    maker = ProfileMaker()
    path = tmp_path / "thrice.xplane.pb"
    assert maker.write(path, 3 * maker.copy_bytes) == 3
    return path


def test_every_copy_has_the_steps_and_operations_of_the_real_one(thrice: Path, tmp_path: Path) -> None:
    once = summarise_profile(import_files([REAL], tmp_path / "runs"))
    found = summarise_profile(import_files([thrice], tmp_path / "runs"))
    assert found.steps[0].durations == 3 * once.steps[0].durations
    assert {part: value.value for part, value in found.steps[0].parts.items()} == {
        part: None if value.value is None else 3 * value.value for part, value in once.steps[0].parts.items()
    }
    assert {(one.name, one.path): one.calls for one in found.operations} == {
        (one.name, one.path): 3 * one.calls for one in once.operations
    }


def test_numbers_of_steps_go_on_and_copies_do_not_overlap(thrice: Path) -> None:
    steps = [
        (event.stats["step_num"], event.start_ns) for _, _, event in profile_events(thrice) if "step_num" in event.stats
    ]
    assert [number for number, _ in steps] == list(range(24))
    starts = [start for _, start in steps]
    assert starts == sorted(starts)
