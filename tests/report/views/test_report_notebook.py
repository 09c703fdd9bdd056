"""What a notebook shows."""

from __future__ import annotations

import report_examples as examples
import snapshot_files as snapshots
from sonda.report.views.steps.view import StepsView


def test_the_fragment_as_kept() -> None:
    snapshots.check("notebook_training", StepsView(examples.training()).fragment(2))


def test_the_fragment_needs_no_script_and_escapes_names() -> None:
    text = StepsView(examples.hostile()).fragment()
    assert "<script" not in text and "<img" not in text and "<b>bold" not in text
    assert "&lt;b&gt;bold&lt;/b&gt;" in text
