"""Words for what studies find."""

from __future__ import annotations

import pytest

from sonda.analysis.study_findings import RepeatMore
from sonda.report.words import describe


@pytest.mark.parametrize(
    ("repetitions", "disturbed", "advice"),
    [
        (1, False, "--repeat 3: "),  # the fewest that tell a difference from noise
        (5, False, "--repeat 20: "),  # an interval is half as wide with four times as many
        (2, True, "--repeat 8 while no other program runs: "),
    ],
)
def test_repeating_more_says_how_often_and_in_which_company(repetitions: int, disturbed: bool, advice: str) -> None:
    assert advice in describe(RepeatMore(repetitions, disturbed))
