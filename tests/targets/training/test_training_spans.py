"""Walks of processes that were lost: where they lie on the clock of the run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sonda.record.spans import Spans, Words
from sonda.record.training import Trained, Walk, read_trained, write_trained
from sonda.targets.training.supervisor import with_walks

S = 1_000_000_000
ORIGIN = 1000 * S
"""When the run began, on the machine's clock."""


def walk(part: str, epoch: int, begin: float, seconds: float) -> Walk:
    """`begin` in s since the run began."""
    start = ORIGIN + round(begin * S)
    return Walk(part=part, epoch=epoch, begin=start, end=start + round(seconds * S), samples=8, loss=1.0)


def placed(earlier: list[Walk], own: list[Walk], resumed: int) -> list[tuple[str, int, float, float]]:
    """Part, epoch, start and length (s) of every epoch of the run, in order of time; `own` have spans already."""
    rows = [("run", "", -1, 0, 100 * S)]
    for one in own:
        rows.append(("part", one.part, 0, one.begin - ORIGIN, one.end - one.begin))
        rows.append(("epoch", one.part, len(rows) - 1, one.begin - ORIGIN, one.end - one.begin))
    kind, name, parent, start, duration = zip(*rows, strict=True)
    numbers = {"start": start, "duration": duration, "parent": parent, "call": [0] * len(rows)}
    spans = Spans(
        {key: np.array(values) for key, values in numbers.items()},
        {"kind": Words.of(kind), "name": Words.of(name)},
    )
    whole = with_walks(spans, Trained(walks=[*earlier, *own], resumed=resumed), ORIGIN)
    epochs = np.flatnonzero(whole.where(kind="epoch"))
    parents = whole.number("parent")[epochs]
    assert whole.where(kind="part")[parents].all()
    assert (whole.number("start")[parents] == whole.number("start")[epochs]).all(), "a part of its own for each"
    found = [
        (str(whole.words("name").decoded()[row]), int(whole.number("call")[row]),
         float(whole.number("start")[row]) / S, float(whole.number("duration")[row]) / S)
        for row in epochs.tolist()
    ]  # fmt: skip
    return sorted(found, key=lambda one: one[2])


def test_walks_of_ranks_that_were_started_again_keep_their_time() -> None:
    """An epoch of 20 s and its validation, a rank that is lost 5 s later, and the rest from 40 s on."""
    lost = [walk("train", 0, 3, 20), walk("validate", 0, 23, 2)]
    assert placed(lost, [walk("train", 1, 40, 19)], 1) == [
        ("train", 0, 3, 20), ("validate", 0, 23, 2), ("train", 1, 40, 19),
    ]  # fmt: skip


def test_walks_of_an_earlier_command_lie_end_to_end_before_the_beginning() -> None:
    """It ended 100 s before this one began; its second epoch was repeated by ranks of this one that were lost."""
    before = [walk("train", 0, -300, 20), walk("validate", 0, -250, 2)]
    again = [walk("train", 1, 5, 18)]
    assert placed([*before, *again], [walk("train", 2, 40, 19)], 2) == [
        ("train", 0, -22, 20), ("validate", 0, -2, 2), ("train", 1, 5, 18), ("train", 2, 40, 19),
    ]  # fmt: skip


def test_walks_by_the_clock_of_another_boot_are_not_taken_for_this_runs() -> None:
    """They lie after what followed them: the machine was started again in between."""
    before = [walk("train", 0, 5000, 20), walk("train", 1, 5020, 20)]
    assert placed(before, [walk("train", 2, 4, 19)], 2) == [
        ("train", 0, -40, 20), ("train", 1, -20, 20), ("train", 2, 4, 19),
    ]  # fmt: skip


def test_a_process_that_is_killed_while_it_writes_its_result_left_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Path.write_bytes

    def killed(self: Path, data: bytes) -> int:
        write(self, data[:10])
        raise KeyboardInterrupt

    with monkeypatch.context() as during, pytest.raises(KeyboardInterrupt):
        during.setattr(Path, "write_bytes", killed)
        write_trained(tmp_path, Trained(resumed=2))
    assert read_trained(tmp_path) is None
    write_trained(tmp_path, Trained(resumed=2))
    assert read_trained(tmp_path) == Trained(resumed=2)
