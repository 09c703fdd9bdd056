"""Which steps of a training have their layers recorded."""

from __future__ import annotations

from sonda.frameworks.collector.sampling.detail import BEGINNING, LONGEST_STRIDE, PAIR_NS, SHARE, WINDOW, DetailSample
from sonda.frameworks.collector.sampling.schedule import Schedule


def chosen(step_ns: int, pairs: int, steps: int) -> list[bool]:
    sample = DetailSample()
    return [sample.choose(number * step_ns, pairs) for number in range(steps)]


def test_long_steps_are_all_recorded() -> None:
    pairs = 100
    assert all(chosen(round(pairs * PAIR_NS / SHARE), pairs, 10 * WINDOW))


def test_the_first_steps_are_all_recorded() -> None:
    assert all(chosen(1_000, 1_000, BEGINNING))


def test_the_cost_of_short_steps_stays_small() -> None:
    step_ns, pairs, steps = 3_000_000, 40, 100 * WINDOW
    later = chosen(step_ns, pairs, steps)[BEGINNING:]
    spent = sum(later) * pairs * PAIR_NS / (len(later) * step_ns)
    assert 0.8 * SHARE < spent < 1.2 * SHARE


def test_even_the_shortest_steps_are_seen_now_and_then() -> None:
    later = chosen(10, 1_000, 100 * WINDOW)[WINDOW:]
    assert 0.9 / LONGEST_STRIDE < sum(later) / len(later) < 1.1 / LONGEST_STRIDE


def test_steps_of_every_remainder_are_recorded_alike() -> None:
    """A program that logs in every tenth step is not seen only there, or never there."""
    later = chosen(3_000_000, 40, 200 * WINDOW)
    numbers = [number for number, detail in enumerate(later) if detail and number > WINDOW]
    for period in (2, 5, 10, 16):
        counts = [sum(number % period == remainder for number in numbers) for remainder in range(period)]
        assert min(counts) > 0.8 * max(counts), (period, counts)


def test_an_evaluation_does_not_count_as_layers_of_a_step() -> None:
    """Between two steps of the window a long evaluation was recorded."""
    sample = DetailSample()
    for number in range(BEGINNING + 1):
        sample.choose(number * 10_000_000, 100_000 if number == 10 else 4)
    assert sample.stride == 1


class Loop:
    """A schedule with a sample that leaves out most steps, in a program of one module."""

    def __init__(self) -> None:
        self.schedule = Schedule()
        self.schedule.sample = DetailSample()
        self.now = 0
        for _ in range(2 * WINDOW):
            self.train()

    def forward(self, learns: bool = True, shape: int = 1, module: int = 2) -> None:
        self.schedule.begin_forward(module, shape, learns=learns, training=learns)
        self.schedule.end_forward(learns, self.now, 0)

    def step(self, optimizer: int = 0) -> None:
        self.now += 100_000
        self.schedule.end_optimizer_step(optimizer, self.now, 0, others=frozenset({optimizer}), pairs=40)

    def train(self) -> bool:
        """A step; returns whether its layers were recorded."""
        self.forward()
        detail = self.schedule.detail
        self.schedule.begin_backward()
        self.step()
        return detail

    def skip(self) -> None:
        """Train until the next step is left out."""
        while self.schedule.detail:
            self.train()


def test_most_steps_of_a_short_loop_are_left_out() -> None:
    loop = Loop()
    assert 20 < sum(loop.train() for _ in range(1000)) < 100


def test_an_evaluation_is_recorded_and_so_is_the_step_behind_it() -> None:
    loop = Loop()
    loop.skip()
    loop.forward(learns=False)
    assert loop.schedule.detail
    assert loop.train()


def test_a_new_shape_is_counted_in_a_step_that_was_to_be_left_out() -> None:
    loop = Loop()
    loop.skip()
    loop.forward(shape=7)
    assert loop.schedule.detail
    assert loop.schedule.counting


def test_steps_with_two_kinds_of_forwards_are_recorded_whole() -> None:
    """No step has the layers of a teacher and not those of its pupil."""
    loop = Loop()
    loop.skip()
    loop.forward()
    loop.forward(learns=False, module=4)
    assert not loop.schedule.detail
    loop.schedule.begin_backward()
    loop.step()
    assert all(loop.train() for _ in range(200))


def test_steps_of_two_optimizers_are_recorded_whole() -> None:
    loop = Loop()
    loop.skip()
    loop.schedule.end_optimizer_step(1, loop.now, 0, others=frozenset({0, 1}))
    loop.step()
    assert all(loop.train() for _ in range(200))


def test_the_size_cap_holds_in_a_step_that_was_left_out() -> None:
    loop = Loop()
    loop.schedule.size_cap = 1
    loop.skip()
    loop.schedule.apply_limits(loop.now, 3)
    loop.forward(learns=False)
    assert not loop.schedule.detail
