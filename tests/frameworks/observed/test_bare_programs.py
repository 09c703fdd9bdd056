"""A training by functions alone is counted like one by modules; FLOPs of its products by hand."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from observed import Nursery
from sonda.record.evidence import StepEvidence

pytest.importorskip("torch")

FORWARD = 2 * 32 * 24 * 48 + 2 * 32 * 48
"""FLOPs of both products; a backward makes the same for the weights, and the second again for its input."""


def test_a_step_without_modules_is_counted_once_and_trains_to_the_same_bits(tmp_path: Path) -> None:
    nursery = Nursery()
    bare = nursery.run("bare", directory=tmp_path / "bare", observe=False)
    seen = nursery.run("bare", directory=tmp_path / "seen", observe=True)
    assert bare.code == seen.code == 0, seen.output[-2000:]
    assert seen.output == bare.output
    assert seen.assembly is not None
    (step,) = (msgspec.convert(step, StepEvidence) for step in seen.assembly.evidence)
    products = [group for group in step.groups if group.family == "product"]
    forward = sum(float(group.flops) for group in products if group.phase == "")
    backward = sum(float(group.flops) for group in products if group.phase == "backward")
    assert forward == FORWARD
    assert backward == FORWARD + 2 * 32 * 48
    assert all(group.line.startswith("bare.py:") or "/bare.py:" in group.line for group in products)
    spans = seen.assembly.spans
    steps = spans.where(kind="step")
    assert int(np.count_nonzero(steps)) == 6
    assert int(np.count_nonzero(steps & spans.words("pass").equal("count"))) == 1
