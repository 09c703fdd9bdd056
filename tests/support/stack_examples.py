"""Sampled stacks that are written down by hand: frames by name, samples by moment."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from builders import MS
from sonda.record.spans import Words
from sonda.record.stacks import FRAME_NUMBERS, SAMPLE_NUMBERS, USER, Frames, Stacks, StackSamples

Frame = tuple[int, str, int, str, str, str, str, str]
"""Parent, function, line, text, origin, module, loops, feeds."""


def a_frame(
    parent: int, function: str, line: int, text: str = "", origin: str = USER, module: str = "", loops: str = "",
    feeds: str = "",
) -> Frame:  # fmt: skip
    return parent, function, line, text, origin, module, loops, feeds


def make_frames(rows: Sequence[Frame]) -> Frames:
    """Frames of `train.py`; functions begin at line 1."""
    numbers = {name: np.zeros(len(rows), dtype=np.int64) for name in FRAME_NUMBERS}
    numbers["parent"] = np.array([row[0] for row in rows], dtype=np.int64)
    numbers["line"] = numbers["end_line"] = numbers["statement"] = np.array([row[2] for row in rows], dtype=np.int64)
    numbers["first_line"] = np.ones(len(rows), dtype=np.int64)
    words = {"function": 1, "text": 3, "origin": 4, "module": 5, "loops": 6, "feeds": 7}
    files = Words.of("train.py" if row[4] == USER else "library.py" for row in rows)
    return Frames(
        numbers, {name: Words.of(str(row[at]) for row in rows) for name, at in words.items()} | {"file": files}
    )


def make_samples(rows: Sequence[dict[str, float | str]]) -> StackSamples:
    """Samples with what each row says: `time`, `lasted`, `ran` and `late` in ms; one thread that runs unless told."""
    numbers = {name: np.zeros(len(rows), dtype=np.int64) for name in SAMPLE_NUMBERS}
    numbers["worker"][:] = -1
    for at, row in enumerate(rows):
        for name, value in {"ran": row["lasted"], **row}.items():
            if name != "call":
                in_time = name in ("time", "lasted", "ran", "late")
                numbers[name][at] = float(value) * MS if in_time else int(value)
    return StackSamples(numbers, {"call": Words.of(str(row.get("call", "")) for row in rows)})


def make_stacks(frames: Sequence[Frame], samples: Sequence[dict[str, float | str]]) -> Stacks:
    return Stacks(make_frames(frames), make_samples(samples))
