"""Shares, their corrections and what is foretold, held against hand counts and against trying everything."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonda.frameworks.torch.parallel import calibration
from sonda.frameworks.torch.parallel import shared_task as sharing
from sonda.frameworks.torch.parallel.balance import EVERY, Balance, Pace
from sonda.frameworks.torch.parallel.batches import ShareSampler, cut_batch, scaled_shares
from sonda.frameworks.torch.parallel.calibration import measure_alone, timed_sizes
from sonda.frameworks.torch.parallel.group import ExchangeMeter
from sonda.frameworks.torch.parallel.outlook import choose_outlook, describe_outlook, predict_outlook
from sonda.frameworks.torch.parallel.shared_task import SharedTask
from sonda.frameworks.torch.parallel.shares import Line, equal_shares, fit_line, slowest_time, split_batch
from sonda.record.errors import SondaError


class Nothing:
    """A task of eight samples that is never driven."""

    inputs, samples, tokens, phase_tokens = (), 8, 0, {}  # type: ignore[var-annotated]


lines = st.builds(Line, st.floats(0, 1), st.floats(1e-6, 1))


# ---- lines and shares -------------------------------------------------------------------------------------------


def test_a_line_is_found_again() -> None:
    found = fit_line([4, 8, 16], [0.1 + 0.03 * n for n in (4, 8, 16)])
    assert found.fixed == pytest.approx(0.1)
    assert found.per_sample == pytest.approx(0.03)
    assert found.time(100) == pytest.approx(3.1)


def test_no_part_of_a_line_is_below_zero() -> None:
    # Through (1, 1) and (2, 4) a line begins at -2; through the origin it is (1·1 + 2·4) / (1 + 4) = 1.8 steep.
    assert fit_line([1, 2], [1, 4]) == Line(0.0, pytest.approx(1.8))
    falling = fit_line([1, 2], [4, 2])
    assert falling.fixed == 3.0
    assert 0 < falling.per_sample < 1e-6
    assert fit_line([5], [2.0]) == Line(0.0, pytest.approx(0.4))


def test_a_rank_three_times_slower_gets_a_quarter() -> None:
    assert split_batch([Line(0, 1), Line(0, 3)], 32) == (24, 8)
    assert split_batch([Line(0, 1), Line(0, 1)], 33) in ((17, 16), (16, 17))
    assert equal_shares(3, 8) == (3, 3, 2)
    # 150 + 30 n = 3 (150 + 30 (32 - n)) at n = 26.5; with 26 and 6 the slower is done after 990, with 27 the faster
    # after 960, and the slower after 900
    assert split_batch([Line(0.150, 0.030), Line(0.450, 0.090)], 32) == (27, 5)


@settings(max_examples=150, deadline=None)
@given(st.lists(lines, min_size=1, max_size=3), st.integers(3, 14))
def test_no_other_shares_are_faster(found: list[Line], batch: int) -> None:
    shares = split_batch(found, batch)
    assert sum(shares) == batch and min(shares) >= 1
    others = [tried for tried in product(range(1, batch + 1), repeat=len(found)) if sum(tried) == batch]
    assert slowest_time(found, shares) == pytest.approx(min(slowest_time(found, tried) for tried in others))


def test_a_batch_smaller_than_the_ranks_is_refused() -> None:
    with pytest.raises(SondaError, match="a batch of 2 cannot be shared by 3 ranks"):
        split_batch([Line(0, 1)] * 3, 2)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=5), st.data())
def test_the_last_batch_is_shared_in_proportion(shares: list[int], data: st.DataObject) -> None:
    count = data.draw(st.integers(len(shares), max(len(shares), sum(shares))))
    found = scaled_shares(shares, count)
    assert sum(found) == count and min(found) >= 1
    for share, scaled in zip(shares, found, strict=True):
        assert scaled <= max(1, share * count / sum(shares) + len(shares))


# ---- while it runs ----------------------------------------------------------------------------------------------


def _steps_until(balance: Balance, speeds: list[list[float]], wanted: tuple[int, ...]) -> int | None:
    """Run ranks whose step takes `speeds[step][rank]` times what their lines say; steps until shares are as wanted."""
    paces = [Pace() for _ in balance.lines]
    steps: list[float] = []
    for step, factors in enumerate(speeds):
        if balance.is_due(step):
            balance.update(step, [pace.factor for pace in paces], balance.measured_step(steps))
        if balance.shares == wanted:
            return step
        foreseen = [line.time(share) for line, share in zip(balance.lines, balance.shares, strict=True)]
        for pace, factor, time in zip(paces, factors, foreseen, strict=True):
            pace.record_step(factor * time, time)
        steps.append(max(factor * time for factor, time in zip(factors, foreseen, strict=True)))
    return None


@pytest.mark.parametrize("begin", range(EVERY))
def test_shares_follow_a_rank_that_slows_down_within_twenty_steps(begin: int) -> None:
    balance = Balance([Line(0.0, 0.01)] * 2, 32)
    assert balance.shares == (16, 16)
    speeds = [[1.0, 1.0]] * (10 + begin) + [[1.0, 3.0]] * 20
    found = _steps_until(balance, speeds, (24, 8))
    assert found is not None and found - (10 + begin) <= 20
    assert balance.shares_at(0) == (16, 16)
    assert balance.shares_at(found) == (24, 8)


def test_shares_come_back_when_the_rank_does() -> None:
    balance = Balance([Line(0.0, 0.01)] * 2, 32)
    _steps_until(balance, [[1.0, 3.0]] * 25, (0, 0))
    assert balance.shares == (24, 8)
    _steps_until(balance, [[1.0, 1.0]] * 25, (0, 0))
    assert balance.shares == (16, 16)


def test_noise_and_a_single_slow_step_move_nothing() -> None:
    noisy = [[1.0 + 0.03 * (step % 3 - 1), 1.0 - 0.03 * (step % 2)] for step in range(40)]
    noisy[11] = [1.0, 5.0]
    balance = Balance([Line(0.1, 0.01)] * 2, 32)
    _steps_until(balance, noisy, (0, 0))
    assert [change.shares for change in balance.changes] == [(16, 16)]


def moves(
    took: Callable[[int, int], float], steps: int, factor: Callable[[int], float] = lambda step: 0.8
) -> list[tuple[int, int]]:
    """Steps and the first rank's shares from there on, where a step takes what is said of it and these shares, and the
    second rank seems to have that factor."""
    balance = Balance([Line(0.105, 0.021), Line(0.413, 0.0673)], 32, (28, 4))
    done: list[float] = []
    for step in range(steps):
        if balance.is_due(step):
            balance.update(step, (1.0, factor(step)), balance.measured_step(done))
        done.append(took(step, balance.shares[0]))
    return [(change.step, change.shares[0]) for change in balance.changes]


def test_shares_that_make_the_step_longer_are_taken_back() -> None:
    """Ranks that wait for each other within a step: by their own times 26 + 6 is best, measured it is not. It is tried
    again after 25 steps, and 50 after that, for others may have disturbed it. So is 30 + 2, on trial."""
    took = {26: 0.95, 28: 0.87, 30: 0.90}
    lines, trials = (
        [(5, 26), (10, 28), (35, 26), (40, 28), (90, 26), (95, 28)],
        [(15, 30), (20, 28), (45, 30), (50, 28)],
    )
    assert moves(lambda _, share: took[share], 100) == [(0, 28), *sorted(lines + trials)]


def test_shares_that_lines_advise_are_kept_where_they_help() -> None:
    took = {26: 0.80, 28: 0.87}
    trials = [(10, 28), (15, 26), (40, 28), (45, 26), (95, 28)]
    assert moves(lambda _, share: took[share], 100) == [(0, 28), (5, 26), *trials]


def test_the_rank_with_fewest_samples_gives_some_away_where_that_helps() -> None:
    """30 + 2 saves 6 %, which lines would not have said; 31 + 1 does not."""
    took = {26: 0.95, 28: 0.87, 30: 0.82, 31: 0.90}
    found = moves(lambda _, share: took[share], 60)
    assert found == [(0, 28), (5, 26), (10, 28), (15, 30), (20, 31), (25, 30), (50, 31), (55, 30)]


def test_lines_are_asked_at_once_when_a_device_slows_down() -> None:
    """From step 15 on everything takes twice as long, with whatever shares."""
    took = {26: 0.95, 28: 0.87}
    found = moves(lambda step, share: 2 * 0.87 if step >= 15 else took[share], 60)
    assert found == [(0, 28), (5, 26), (10, 28), (15, 30), (20, 28), (25, 26), (45, 28), (50, 26)]


def test_lines_are_asked_at_once_when_a_device_is_fast_again() -> None:
    """The second rank seems three times as fast from step 12 on. By the lines 15 + 17 take 0.420 s each, where 14 + 18
    take 0.399 and 0.439, and 16 + 16 take 0.441 and 0.402."""
    took = {26: 0.95, 28: 0.87}
    found = moves(lambda _, share: took.get(share, 0.5), 20, lambda step: 0.8 if step < 12 else 0.27)
    assert found == [(0, 28), (5, 26), (10, 28), (15, 15)]


def test_lines_alone_move_shares_where_no_step_was_measured_yet() -> None:
    balance = Balance([Line(0.0, 0.01)] * 2, 32)
    assert balance.measured_step([0.2, 0.2]) == 0
    assert balance.measured_step([9.0, 0.2, 0.1, 0.3, 0.2, 0.2]) == 0.2
    assert not balance.update(5, (1.0, 1.0))
    assert balance.update(10, (1.0, 3.0))
    assert balance.shares == (24, 8)
    assert balance.measured_step([0.2] * 12) == 0, "two steps with the new shares"


def test_a_last_batch_that_is_not_full_says_nothing_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Epochs of two steps, of 8 samples and of 4: 8 s and 4 s. The median of five would be 8 and 4 in turns, and shares
    on trial would seem to save half of the step."""
    now = [0.0]
    monkeypatch.setattr(sharing, "perf_counter", lambda: now[0])

    class FixedGroup:
        me, size, meter = 0, 2, ExchangeMeter()

        def gather_numbers(self, own: list[float]) -> list[list[float]]:
            return [own, own]

    balance = Balance([Line(0, 2.0), Line(0, 2.0)], 8, (4, 4))
    task = SharedTask(Nothing(), None, FixedGroup(), balance)  # type: ignore[arg-type]
    for step in range(10):
        task.agree_on_shares()
        samples = 2 if step % 2 else 4
        task.begin_step(samples, 0.5)
        now[0] += 2.0 * samples
        task.end_step(samples)
        if step in (4, 6):
            assert balance.measured_step(task.log.steps) == 8.0
    assert balance.measured_step(task.log.steps) == 0, "two full batches among the last five"


# ---- before it runs ---------------------------------------------------------------------------------------------


def test_the_bound_is_one_plus_one_by_f() -> None:
    # Study: a processor 11.8 times slower than a GPU can bring 8.5 %.
    outlook = predict_outlook([Line(0, 0.001), Line(0, 0.0118)], 128, 0.0)
    assert outlook.bound == pytest.approx(1 + 1 / 11.8)
    assert outlook.shares == (118, 10)
    assert outlook.speedup == pytest.approx(0.128 / 0.118)


def test_communication_that_costs_more_than_sharing_saves_does_not_pay() -> None:
    pair = [Line(0, 0.010), Line(0, 0.030)]
    # Alone 320 ms, shared 240 ms: 80 ms are saved.
    for cost, ranks, words in ((0.079, (0, 1), False), (0.081, (0,), True)):
        whole, chosen = predict_outlook(pair, 32, cost), choose_outlook(pair, 32, cost)
        assert chosen.ranks == ranks
        said = describe_outlook(whole, chosen, ["cuda:0", "cpu"], auto=True)
        assert any("cannot pay" in line for line in said) == words
        assert any("@auto leaves out cpu" in line for line in said) == words
    assert (
        said[0] == "a step of 32 samples alone: cuda:0 320 ms, cpu 960 ms (F = 3); so at most 1.33 times cuda:0 alone"
    )
    assert said[1] == ("shares 24 + 8: 240 ms of work and 81 ms of communication, predicted 0.997 times cuda:0 alone")
    assert said[2].endswith("communication takes 81 ms a step, and sharing the work saves 80 ms")


def test_equal_shares_of_unequal_ranks_may_save_nothing() -> None:
    pair = [Line(0, 0.010), Line(0, 0.030)]
    whole = predict_outlook(pair, 32, 0.001, shares=(16, 16))
    assert whole.compute == pytest.approx(0.48), "the slower rank with half of the batch"
    assert describe_outlook(whole, whole, ["a", "b"], auto=False)[-1].endswith("sharing the work saves nothing")


def test_one_rank_is_held_against_nobody() -> None:
    whole = predict_outlook([Line(0.002, 0.001)], 32, 0.005)
    said = describe_outlook(whole, whole, ["cpu/1"], auto=False)
    assert said == ["a step of 32 samples: 34 ms, on one rank, which exchanges nothing"]


def test_one_rank_alone_exchanges_nothing() -> None:
    chosen = choose_outlook([Line(0, 1.0), Line(0, 0.01)], 8, 10.0)
    assert chosen.shares == (0, 8)
    assert (chosen.step, chosen.speedup) == (pytest.approx(0.08), pytest.approx(1.0))
    assert chosen.to_record()["communication_ns"] == 0


def test_what_is_fastest_alone_may_be_slowest_in_company() -> None:
    """Two threads and one of two processors: at once the first waits for a processor, alone it is the faster."""
    pair = [Line(0, 0.120), Line(0, 0.010)]
    alone = [0.100, 0.170]  # of 16 samples
    chosen = choose_outlook(pair, 16, 0.001, alone)
    # Together at best 1 + 15 samples: 150 ms. The first alone: 100 ms.
    assert chosen.shares == (16, 0) and chosen.step == pytest.approx(0.1) and chosen.speedup == pytest.approx(1.0)
    whole = predict_outlook(pair, 16, 0.001, alone=alone)
    assert whole.bound == pytest.approx(1 + 0.100 / 0.170) and whole.speedup == pytest.approx(0.100 / 0.151)
    said = describe_outlook(whole, chosen, ["cpu/2", "cpu/1"], auto=True)
    assert "cpu/2 100 ms, cpu/1 170 ms (F = 1.7)" in said[0] and said[-1] == "@auto leaves out cpu/1"


def test_alone_means_while_the_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two ranks, by a clock of its own: 30 ms a sample in company, 20 ms alone."""
    now = [0.0]
    order: list[str] = []
    monkeypatch.setattr(calibration, "perf_counter", lambda: now[0])

    class Two:
        size, me = 2, 1

        def barrier(self) -> None:
            order.append("all")

        def gather_numbers(self, own: list[float]) -> list[list[float]]:
            return [[0.5], own]

    def step(size: int) -> None:
        order.append(f"{size}")
        now[0] += 0.020 * size

    # Half of the batch is timed: 16 samples take 0.32 s instead of 0.48, so 32 take 0.64 instead of 0.96.
    found = measure_alone(step, 32, Two(), Line(0, 0.030), 32)  # type: ignore[arg-type]
    assert found == [0.5, pytest.approx(0.64)]
    assert order == ["all", "all", "16", "16", "16"], "the first waits meanwhile; one step makes ready"
    # Where each rank has as much, both together have 64 samples.
    assert measure_alone(step, 32, Two(), Line(0, 0.030), 64)[1] == pytest.approx(1.28)  # type: ignore[arg-type]


def test_sizes_of_a_calibration() -> None:
    assert timed_sizes(32) == [4, 8, 16]
    assert timed_sizes(4) == [2, 4], "one size would not tell what every step costs"
    assert timed_sizes(2) == [2]
    assert timed_sizes(1) == [1]


@pytest.mark.parametrize(("last", "moved"), [(None, True), (6, True), (5, False)])
def test_after_the_timed_steps_shares_stay(last: int | None, moved: bool) -> None:
    """The step that is counted then has the shares of the last timed one."""

    class FixedGroup:
        me, size, meter = 0, 2, ExchangeMeter()

        def gather_numbers(self, own: object) -> list[list[float]]:
            return [[3.0, 0.0], [1.0, 0.0]]

    balance = Balance([Line(0, 1.0), Line(0, 1.0)], 8)
    task = SharedTask(Nothing(), None, FixedGroup(), balance)  # type: ignore[arg-type]
    task.last, task.step = last, 5
    task.agree_on_shares()
    assert (balance.shares != (4, 4)) is moved


# ---- batches ----------------------------------------------------------------------------------------------------


def test_ranks_together_see_every_batch_of_one_process() -> None:
    shares = {0: (3, 1), 1: (2, 2)}
    order = list(range(11))
    ranks = [ShareSampler(order, 4, lambda step: shares.get(step, (3, 1)), rank) for rank in range(2)]
    first, second = (list(rank) for rank in ranks)
    assert first == [[0, 1, 2], [4, 5], [8, 9]]
    assert second == [[3], [6, 7], [10]]
    assert list(ranks[0].weights) == [3 / 4, 1 / 2, 2 / 3]
    assert list(ranks[1].weights) == [1 / 4, 1 / 2, 1 / 3]


def test_a_last_batch_without_a_sample_for_everybody_is_left_out() -> None:
    assert list(ShareSampler(range(5), 4, lambda step: (3, 1), 0)) == [[0, 1, 2]]


def test_a_batch_is_cut_by_rows_and_nothing_else_is() -> None:
    torch = pytest.importorskip("torch")
    rows = torch.arange(8).reshape(4, 2)
    inputs, rest = cut_batch(((rows, {"more": rows[:, 0]}), 7), 1, 3, 4)
    assert inputs[0].tolist() == [[2, 3], [4, 5]]
    assert inputs[1]["more"].tolist() == [2, 4]
    assert rest == 7
    with pytest.raises(SondaError, match="a tensor of 4x2 in a batch of 5 samples cannot be shared"):
        cut_batch(rows, 0, 1, 5)
    pair = namedtuple("pair", "images labels")
    assert cut_batch(pair(rows, rows[:, 0]), 0, 2, 4)._asdict().keys() == {"images", "labels"}
