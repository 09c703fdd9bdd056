"""Stacks keep what they are given through a file; a damaged one is one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from record_examples import an_info, two_spans
from sonda.record.errors import SondaError
from sonda.record.run import FRAMES, STACKS, write_run
from sonda.record.stacks import Stacks
from stack_examples import a_frame, make_frames, make_samples, make_stacks

EXAMPLE = make_stacks(
    [a_frame(-1, "main", 3, "log(é)"), a_frame(0, "dumps", 9, origin="library", module="json")],
    [{"time": 5, "stack": 1, "lasted": 5, "call": "read"}, {"time": 9, "stack": -1, "lasted": 4, "ran": 0}],
)


def test_a_file_and_back(tmp_path: Path) -> None:
    run = write_run(tmp_path, an_info(), two_spans(), stacks=EXAMPLE)
    kept = run.stacks
    assert kept is not None
    for first, second in ((kept.frames, EXAMPLE.frames), (kept.samples, EXAMPLE.samples)):
        for name, values in second.numbers.items():
            np.testing.assert_array_equal(first.numbers[name], values)
        for name, words in second.words.items():
            assert first.words[name].decoded().tolist() == words.decoded().tolist()


def test_a_run_without_stacks_has_none(tmp_path: Path) -> None:
    assert write_run(tmp_path, an_info(), two_spans()).stacks is None


@pytest.mark.parametrize("name", [STACKS, FRAMES])
def test_a_damaged_file_is_one_line(tmp_path: Path, name: str) -> None:
    run = write_run(tmp_path, an_info(), two_spans(), stacks=EXAMPLE)
    data = (run.directory / name).read_bytes()
    (run.directory / name).write_bytes(data[: len(data) // 2])
    with pytest.raises(SondaError, match="damaged"):
        _ = run.stacks


def test_a_stack_that_is_not_among_the_frames_is_refused() -> None:
    frames = make_frames([a_frame(-1, "main", 1)])
    with pytest.raises(ValueError, match="stack"):
        Stacks(frames, make_samples([{"time": 1, "stack": 1, "lasted": 1}]))
    with pytest.raises(ValueError, match="parent"):
        Stacks(make_frames([a_frame(0, "main", 1)]), make_samples([]))
