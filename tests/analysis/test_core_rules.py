"""Who held the cores while threads of a step were ready to run; expected values by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonda.analysis.rules.advice import Change, TryChange, UseFewerThreads, UseFewerWorkers
from sonda.analysis.rules.judge import verdicts
from sonda.analysis.rules.limit_findings import HeldByOthers, Oversubscribed
from sonda.analysis.rules.program import cores
from sonda.analysis.rules.program.cores import CoreUse
from sonda.analysis.summary import CoreTimes, Summary
from verdicts_cases import STEP, bare, cost, layer, phase, summary

S = 1e9
COMPUTES = [layer("a", "Conv2d", cost(90, "compute", 0.8))]


def crowded(
    ran: float, waited: float, threads: int = 2, noise: float = 0.01, workers: int = 0, spec: str = "cpu",
    **conditions: Any,
) -> Summary:  # fmt: skip
    """A step on 2 cores whose threads ran and waited for so many times its length."""
    seen = summary(
        layers=COMPUTES,
        target={"spec": spec, "threads": threads, "device": "cpu"},
        workload={"name": "cnn", "batch": 16, "train": True, **({"workers": workers} if workers else {})},
        machine={"effective_cores": 2, "conditions": conditions},
    )
    part = dataclasses.replace(seen.parts[0], core_times=CoreTimes(ran, waited), noise=noise)
    return dataclasses.replace(seen, parts=(part,))


def test_two_threads_that_share_two_cores_with_two_others_run_half_of_the_time() -> None:
    (verdict,), _ = verdicts(crowded(ran=1.0, waited=1.0, other_cpus=1.0))
    finding = verdict.finding
    assert isinstance(finding, HeldByOthers) and verdict.kind == "contention"
    assert finding.share.value == pytest.approx(0.5)
    assert finding.alone.value == pytest.approx(STEP / 2)
    assert [remedy.advice for remedy in verdict.remedies] == [TryChange(Change.CLOSE_PROGRAMS)], "and none about code"


def test_it_is_said_of_steps_too_noisy_for_anything_else() -> None:
    (verdict,), _ = verdicts(crowded(ran=1.0, waited=1.0, noise=3.0, other_cpus=1.0))
    assert verdict.kind == "contention"


def test_eight_threads_on_two_cores_wait_for_each_other() -> None:
    """Both cores are the program's own all the time: six of eight threads wait."""
    said, _ = verdicts(crowded(ran=2.0, waited=6.0, threads=8, other_cpus=0.02))
    by_kind = {verdict.kind: verdict for verdict in said}
    assert "contention" not in by_kind
    finding = by_kind["oversubscription"].finding
    assert isinstance(finding, Oversubscribed) and not finding.processes
    assert (finding.share.value, finding.ready.value) == (pytest.approx(0.75), pytest.approx(8.0))
    (remedy,) = by_kind["oversubscription"].remedies
    assert (remedy.advice, remedy.options) == (UseFewerThreads(2, "torch", 8), ("--threads", "2"))


def test_a_step_that_its_own_threads_hold_up_has_a_clear_limit() -> None:
    seen = crowded(ran=2.0, waited=6.0, threads=8, other_cpus=0.02)
    slow = [layer("a", "Conv2d", cost(90, "", 0.1))]
    said, _ = verdicts(dataclasses.replace(seen, parts=(dataclasses.replace(seen.parts[0], layers=tuple(slow)),)))
    assert [verdict.kind for verdict in said] == ["oversubscription"]


def test_workers_that_hold_the_cores_are_the_program_s_own() -> None:
    """The process ran 0.5 CPUs and waited as long; the rest of the program used 14 of 20 core seconds."""
    seen = crowded(
        ran=0.5, waited=0.5, workers=4, other_cpus=0.05, wall_s=10.0, cpu_s=19.0,
        thread_times={"ran_ns": 5 * S, "waited_ns": 5 * S, "lasted_ns": 10 * S},
    )  # fmt: skip
    assert cores.others(seen) is None
    verdict = cores.own(seen)
    assert verdict is not None and isinstance(verdict.finding, Oversubscribed) and verdict.finding.processes
    assert [remedy.advice for remedy in verdict.remedies] == [UseFewerWorkers(2, 4)]


def test_workers_whose_batches_are_awaited_are_not_too_many() -> None:
    """A step of which 30 % waits for batches: with fewer workers these would come later."""
    seen = crowded(
        ran=0.5, waited=0.5, workers=4, other_cpus=0.05, wall_s=10.0, cpu_s=19.0,
        thread_times={"ran_ns": 5 * S, "waited_ns": 5 * S, "lasted_ns": 10 * S},
    )  # fmt: skip
    waiting = dataclasses.replace(seen.parts[0], phases=(phase("data", bare(30)), *seen.parts[0].phases))
    assert cores.own(dataclasses.replace(seen, parts=(waiting,))) is None


def test_steps_too_short_to_ask_in_them_are_judged_by_their_process() -> None:
    seen = crowded(1.0, 1.0, other_cpus=1.2, thread_times={"ran_ns": 6 * S, "waited_ns": 4 * S, "lasted_ns": 10 * S})
    bare = dataclasses.replace(seen, parts=(dataclasses.replace(seen.parts[0], core_times=None),))
    verdict = cores.others(bare)
    assert verdict is not None and verdict.share == pytest.approx(0.4)


@pytest.mark.parametrize(
    "seen",
    [
        crowded(ran=2.0, waited=0.1, other_cpus=1.0),
        crowded(ran=1.0, waited=1.0),
        crowded(ran=1.0, waited=1.0, other_cpus=0.05),
        summary(layers=COMPUTES, machine={"effective_cores": 2, "conditions": {"other_cpus": 1.5}}),
    ],
    ids=["hardly waited", "others unknown", "others idle", "waiting unknown"],
)
def test_nobody_is_blamed_without_both_signs(seen: Summary) -> None:
    assert cores.others(seen) is None and cores.own(seen) is None
    assert verdicts(seen)[0][0].kind == "compute"


def test_a_gpu_s_steps_do_not_wait_for_threads() -> None:
    seen = crowded(ran=1.0, waited=1.0, other_cpus=1.0)
    on_gpu = dataclasses.replace(seen, target=type(seen.target)(spec="cuda:0", device="cuda"))
    assert cores.others(on_gpu) is None


@given(*(st.floats(0, 100) for _ in range(2)), st.floats(0.1, 100), st.integers(1, 64))
def test_waits_for_others_and_for_own_threads_are_all_waits(
    ran: float, waited: float, lasted: float, count: int
) -> None:
    use = CoreUse(ran, waited, lasted, count)
    if use.wanted:
        assert 0 <= use.for_others <= 1 and use.for_own >= -1e-12
        assert use.for_others + use.for_own == pytest.approx(waited / use.wanted)


def test_what_the_process_ran_before_it_was_observed_is_no_other_process() -> None:
    """The program used 19 s of 20; its only process ran 14 s, loading data, before its framework was imported."""
    times = {"ran_ns": 5 * S, "waited_ns": 5 * S, "lasted_ns": 10 * S}
    measured = {"ran": 0.5, "waited": 0.5, "workers": 4, "other_cpus": 0.05, "wall_s": 10.0, "cpu_s": 19.0}
    assert cores.own(crowded(**measured, thread_times=times)) is not None
    assert cores.own(crowded(**measured, thread_times={**times, "ran_before_ns": 14 * S})) is None
