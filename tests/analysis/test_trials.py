"""What trials mean: speed-ups within rounds, and losses."""

from __future__ import annotations

import pytest

from sonda.analysis.trials import DIFFER, NOT_COMPARED, NOT_SEEN, WITHIN, judge_losses, summarise_trials
from sonda.record.trials import RemedyTrial, TrialProcess, Trials

ROUNDS = (1.0, 1.3, 0.9)
"""How much slower everything is in a round."""


def processes(ns: float, samples: float = 8, losses=(2.0, 1.0), jitter=(1.0, 1.01, 0.99)):
    return [
        TrialProcess(ns=[ns * slow * own] * 5, samples=samples, losses=list(losses))
        for slow, own in zip(ROUNDS, jitter, strict=True)
    ]


def trial(name: str, ns: float, **others) -> RemedyTrial:
    return RemedyTrial(name=name, processes=processes(ns, **others))


def test_what_brings_most_is_first_and_slow_rounds_do_not_matter():
    summary = summarise_trials(
        Trials(
            bare=processes(100, jitter=(1, 1, 1)),
            remedies=[
                trial("fused", 100, jitter=(0.99, 1.0, 1.01)),
                RemedyTrial(name="compile", failure="RuntimeError: no"),
                trial("workers", 50),
                trial("batch", 160, samples=16, jitter=(1.01, 0.99, 1.0)),
            ],
        )
    )
    assert [one.name for one in summary.remedies] == ["workers", "batch", "fused", "compile"]
    workers, batch, fused, compile = summary.remedies
    assert workers.speedup.value == pytest.approx(2.0, rel=0.02)
    assert workers.helps
    assert batch.speedup.value == pytest.approx(1.25, rel=0.02)  # 100 ns for 8 samples, 160 for 16
    assert not fused.helps
    assert fused.speedup.low < 1 < fused.speedup.high
    assert compile.speedup.value is None
    assert compile.speedup.reason == "RuntimeError: no"
    assert not compile.helps


def losses_of(*levels):
    return [TrialProcess(ns=[1.0], losses=[9.0, level]) for level in levels]


@pytest.mark.parametrize(
    ("bare", "remedy", "judged"),
    [
        ((1.0, 1.0, 1.0), (1.04, 1.04, 1.04), WITHIN),  # 5 % are allowed
        ((1.0, 1.0, 1.0), (1.06, 1.06, 1.06), DIFFER),
        ((1.0, 1.2, 1.1), (1.3, 1.3, 1.3), WITHIN),  # bare processes differ by 0.2, and 5 % of 1.1
        ((1.0, 1.2, 1.1), (1.4, 1.4, 1.4), DIFFER),
        ((1.0, 1.0, 1.0), (1.0, float("nan"), 1.0), DIFFER),
        ((None, None, None), (1.0, 1.0, 1.0), NOT_SEEN),
    ],
)
def test_losses(bare, remedy, judged):
    bare = losses_of(*bare) if bare[0] else [TrialProcess(ns=[1.0])] * 3
    assert judge_losses(RemedyTrial(name="autocast", processes=losses_of(*remedy)), bare)[0] == judged


def test_losses_of_another_batch_are_not_compared():
    assert judge_losses(RemedyTrial(name="batch", processes=losses_of(1.0)), losses_of(1.0)) == (NOT_COMPARED, None)
