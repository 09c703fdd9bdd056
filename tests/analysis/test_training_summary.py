"""Whole trainings: epochs, times, accuracy, energy; speed-ups, bounds and spreads. Every figure by hand."""

from __future__ import annotations

import math

import pytest

from builders import RunBuilder, stepped
from plain_runs import change_target
from sonda.analysis.comparison.repetitions import accuracy_curve, quotient, spread
from sonda.analysis.comparison.scaling import ScalingPoint, amdahl, efficiency, karp_flatt, scaling_curve, serial_share
from sonda.analysis.run_summary import summarise
from sonda.analysis.statistics import interval_words
from sonda.analysis.steps.training import Training, summarise_training
from sonda.analysis.summary import Value
from sonda.record.run import Run
from sonda.record.stored import plain
from sonda.report.blocks import Detail
from sonda.report.quantities import provenance
from sonda.report.values import value_document
from sonda.report.views.steps.training import before_words, energy_words
from sonda.report.views.steps.view import StepsView
from sonda.studies.figures.training import energy_value
from training_examples import S, trained


def training(run: Run) -> Training:
    found = summarise_training(run)
    assert found is not None
    return found


def two_epochs(**more: object) -> Run:
    """Training 50 and 48 s, validation 5 s each, test 12 s; 40 % and 70 % right, 75 % in the end."""
    return trained([50, 48], [5, 5], 12, [0.4, 0.7], 0.75, **more)  # type: ignore[arg-type]


def test_times_are_those_of_the_walks_without_loading_and_initialisation() -> None:
    found = training(two_epochs())
    assert (found.train, found.validate, found.test, found.whole) == (98 * S, 10 * S, 12 * S, 120 * S)
    assert (found.loading, found.initialisation) == (3 * S, 2 * S)
    assert [(one.number, one.train, one.validate, one.passed) for one in found.epochs] == [
        (1, 50 * S, 5 * S, 55 * S), (2, 48 * S, 5 * S, 108 * S),
    ]  # fmt: skip
    assert [(one.train_loss, one.validate_loss, one.accuracy) for one in found.epochs] == [(2, 1, 0.4), (1, 1, 0.7)]
    assert (found.accuracy, found.loss, found.devices) == (0.75, 0.5, 1)


def test_an_accuracy_is_reached_in_the_first_epoch_that_has_it() -> None:
    found = training(two_epochs())
    assert [found.reached(wanted) for wanted in (0.4, 0.41, 0.71)] == [found.epochs[0], found.epochs[1], None]


def test_a_training_without_validation_or_test_has_neither() -> None:
    found = training(trained([50, 48]))
    assert (found.validate, found.test, found.accuracy, found.whole) == (None, None, None, 98 * S)
    assert found.epochs[0].accuracy is None
    assert accuracy_curve([found]) == ()


def test_a_run_of_steps_is_no_training() -> None:
    assert summarise(stepped([1.0, 2.0])).training is None


def test_of_several_ranks_the_first_speaks() -> None:
    run = two_epochs(ranks=2)
    rank = run.spans.number("rank")
    assert training(run).devices == 2
    rows = [row for row, name in enumerate(run.spans.words("name").decoded()) if name == "train"]
    rank[rows[-1]] = 1  # the second epoch of training is another rank's
    assert [one.train for one in training(run).epochs] == [50 * S]


def test_energy_is_from_the_first_epoch_to_the_end_with_and_without_idle_devices() -> None:
    """120 s at 100 W of the processor that trains, and 16 W of a GPU that does not."""
    found = training(two_epochs(watts={"cpu": 100.0, "cuda:0": 16.0})).energy
    assert found is not None
    assert found.time == 120 * S
    assert found.used.value == pytest.approx(12_000)
    assert found.all.value == pytest.approx(13_920)
    assert found.devices["cuda:0"].value == pytest.approx(1_920)
    assert [one.value for one in found.used_to] == pytest.approx([5_500, 10_800])
    assert [one.value for one in found.all_to] == pytest.approx([5_500 * 1.16, 10_800 * 1.16])
    assert found.used.source == "measured"


def test_checkpoints_between_the_walks_stand_apart() -> None:
    """Two pauses of 4 s at 100 W: their 800 J are in no epoch, and their time in no product of energy and time."""
    run = two_epochs(watts={"cpu": 100.0, "cuda:0": 16.0}, pause=4.0)
    found = training(run).energy
    assert found is not None
    assert (found.time, found.between_time) == (120 * S, 8 * S)
    assert (found.used.value, found.all.value) == (pytest.approx(12_000), pytest.approx(13_920))
    assert [one.value for one in found.used_to] == pytest.approx([5_500, 10_800])
    assert found.between.value == pytest.approx(800)
    assert found.used.low is not None and found.used.high is not None
    assert found.used.low <= 12_000 <= found.used.high
    assert energy_value(summarise(run), "edp").value == pytest.approx(12_000 * 120)
    said = before_words(training(run))
    assert said.endswith(
        "checkpoints and what else lay between took 8.00 s and 800 J (measured), which are in none of these"
    )


def test_joules_of_checkpoints_shorter_than_the_time_between_readings_are_derived() -> None:
    """Two pauses of 0.25 s at 100 W between readings of a second each: 50 J, or anything from 0 to 200 J."""
    found = training(two_epochs(watts={"cpu": 100.0}, pause=0.25))
    assert found.energy is not None
    between = found.energy.between
    assert (between.value, between.source) == (pytest.approx(50), "derived")
    assert between.low is not None and between.high is not None
    assert 0 <= between.low < 50 < between.high <= 200
    assert (found.energy.used.value, found.energy.used.source) == (pytest.approx(12_000), "measured")
    assert "500 ms and 50.0 J (derived, 0–200 J)" in before_words(found)


def test_a_screen_and_a_document_say_what_the_walks_cost_and_what_the_whole_run() -> None:
    """120 s of walks at 100 + 16 W; the run takes 10 s more before them and 8 s for checkpoints."""
    run = two_epochs(watts={"cpu": 100.0, "cuda:0": 16.0}, pause=4.0)
    summary = summarise(run)
    text = " ".join(StepsView(summary).text(160, color=False, detail=Detail.ALL).split())
    assert "energy of these walks: 12.0 kJ (measured), EDP 1,440,000 J·s: CPU packages; with" in text
    assert "with devices that stood idle: 13.9 kJ (measured), EDP 1,670,400 J·s" in text
    # 138 s at 116 W.
    assert "16.0 kJ measured in 138 s of the whole run" in text
    spent = StepsView(summary).document()["training"]["energy"]
    assert spent["devices_in_use"]["value"] == pytest.approx(12_000)
    assert spent["all_devices"]["value"] == pytest.approx(13_920)
    assert spent["energy_delay_product"]["value"] == pytest.approx(12_000 * 120)
    assert spent["energy_delay_product_with_idle"]["value"] == pytest.approx(13_920 * 120)
    assert (spent["time"]["value"], spent["between"]["time"]["value"]) == (120 * S, 8 * S)
    assert spent["between"]["energy"]["value"] == pytest.approx(800)
    assert StepsView(summarise(two_epochs())).document()["training"]["energy"] is None


def test_walks_too_short_for_their_counters_say_so_on_the_screen() -> None:
    found = training(trained([1.5], watts={"cpu": 100.0}))
    assert energy_words(found).startswith("energy of these walks: not known, 1.5 s are too short")
    assert energy_words(training(trained([1.5]))) == ""


def test_an_estimate_of_the_processor_is_never_added_to_what_a_gpu_measured() -> None:
    run = two_epochs(watts={"cpu": 100.0, "cuda:0": 16.0})
    metered = plain(run.info.target.metered)
    metered["counters"][0]["source"] = "estimated"
    change_target(run, metered=metered)
    found = training(run).energy
    assert found is not None
    assert (found.used.value, found.used.source) == (pytest.approx(12_000), "estimated")
    assert (found.all.value, "never added" in found.all.reason) == (None, True)
    change_target(run, metered={**metered, "used": ["cpu", "cuda:0"]})
    found = training(run).energy
    assert found is not None
    assert (found.used.value, found.used.source) == (pytest.approx(1_920), "measured")
    assert found.covers == ("GPU boards with their memory",)


def test_energy_that_counters_cannot_resolve_is_missing() -> None:
    found = training(trained([1.5], watts={"cpu": 100.0})).energy
    assert found is not None
    assert found.used.value is None
    assert "1.5 s are too short for counters that are read every 1 s" in found.used.reason


def test_no_bound_is_below_nothing() -> None:
    """Nine pauses of 0.4 s, read every second at 100 W: each may have taken all that was spent between two readings."""
    found = training(trained([0.5] * 10, pause=0.4, watts={"cpu": 100.0})).energy
    assert found is not None and found.used.value == pytest.approx(500)
    assert found.used.low == 0 and found.used.high is not None and found.used.high >= 860


def test_epochs_of_an_interrupted_process_have_no_energy_here() -> None:
    """The walks of an earlier process lie before this one's beginning, where no counter was read."""
    found = training(two_epochs(begin=-60.0, watts={"cpu": 100.0})).energy
    assert found is not None
    assert (found.used.value, found.used.reason) == (None, "the counter was not read all of that time")


def test_the_published_speed_ups_follow_from_amdahl() -> None:
    """1.97 of the training part and 1.79 of the whole mean that 10.4 % were not shared, and a bound of 1.81."""
    serial = (1 / 1.79 - 1 / 1.97) / (1 - 1 / 1.97)
    assert serial == pytest.approx(0.1037, abs=5e-5)
    assert amdahl(serial, 2) == pytest.approx(1.812, abs=5e-4)
    assert amdahl(0.0, 8) == 8
    assert amdahl(1.0, 8) == 1
    # 5 s of validation after 50 s of training, and a test of 6 s after ten epochs: 56 of 556 s are not training.
    found = training(trained([50] * 10, [5] * 10, 6, [0.1] * 10, 0.8))
    assert serial_share(found) == pytest.approx(56 / 556)


def test_karp_and_flatt_find_the_serial_share_that_amdahl_was_given() -> None:
    for serial in (0.0, 0.03, 0.5, 1.0):
        for devices in (2, 3, 16):
            assert karp_flatt(amdahl(serial, devices), devices) == pytest.approx(serial)
    assert karp_flatt(1.79, 2) == pytest.approx((1 / 1.79 - 0.5) / 0.5)
    assert karp_flatt(1.0, 1) is None


def test_efficiency_is_the_speed_up_over_the_devices_as_published() -> None:
    assert efficiency(Value(1.79, "1", "derived", 1.7, 1.9), 2) == Value(0.895, "1", "derived", 0.85, 0.95)
    assert efficiency(Value(1.97, "1", "derived"), 2).value == 0.985


def test_a_scaling_curve_needs_another_number_of_devices() -> None:
    base = training(trained([50] * 10, [5] * 10, 6, [0.1] * 10, 0.8))
    one, two = (
        ScalingPoint(str(count), count, Value(1.0, "1", "derived"), Value(1.0, "1", "derived")) for count in (1, 2)
    )
    assert scaling_curve("base", [base], [one, one]) is None
    assert scaling_curve("base", [], [one, two]) is None
    curve = scaling_curve("base", [base], [one, two])
    assert curve is not None
    assert curve.bound(2) == pytest.approx(1 / (56 / 556 + 250 / 556))


def test_a_spread_is_mean_interval_least_and_most() -> None:
    found = spread([79.0, 80.0, 84.0])
    # Standard deviation sqrt(7), Student's t of two degrees of freedom 4.302653 (any table).
    reach = 4.302653 * math.sqrt(7 / 3)
    assert (found.mean, found.minimum, found.maximum) == (81, 79, 84)
    assert (found.low, found.high) == (pytest.approx(81 - reach), pytest.approx(81 + reach))
    assert spread([5.0]).low is None


def test_two_to_five_values_have_no_95_percent_interval_but_a_least_and_a_most() -> None:
    """The range of n values holds the median with 1 - 2 / 2**n: 0.5 of two, 0.94 of five, 0.97 of six."""
    assert [interval_words(count) for count in (2, 5, 6)] == [
        "least to most of 2",
        "least to most of 5",
        "95 % interval",
    ]
    few, many = (summarise(stepped([100.0 + step for step in range(steps)])).parts[0].step for steps in (3, 8))
    assert (few.few, few.low, few.high) == (3, 100e6, 102e6)
    assert provenance(few).endswith("; least to most of 3: 100 ms to 102 ms")
    assert value_document(few)["few"] == 3
    assert (many.few, "95 % interval" in provenance(many)) == (0, True)
    short, long = (summarise(stepped([100.0 + step for step in range(steps)])).subtitle for steps in (3, 8))
    # Half of 100 to 102 over 101.
    assert short.endswith("3 steps, ±1.0 % (least to most of 3)") and "least" not in long


def test_a_quotient_is_of_medians_and_has_an_interval_where_something_was_repeated() -> None:
    found = quotient([10.0, 12.0, 11.0], [5.0, 5.5, 5.2])
    assert found.value == pytest.approx(11 / 5.2)
    assert found.low is not None and found.high is not None
    assert found.low < 11 / 5.2 < found.high
    assert quotient([10.0], [5.0]) == Value(2.0, "1", "derived", reason="one repetition has no interval")
    assert quotient([], [5.0]).value is None
    assert quotient([10.0], [0.0]).value is None


def test_accuracy_curves_have_the_spread_of_their_repetitions() -> None:
    runs = [training(trained([50, 50], [5, 5], 1, [0.4, last], 0.7)) for last in (0.6, 0.7, 0.8)]
    first, second = accuracy_curve(runs)
    assert (first.accuracy.mean, first.accuracy.minimum, first.accuracy.maximum) == (pytest.approx(0.4), 0.4, 0.4)
    assert (second.accuracy.mean, second.accuracy.minimum, second.accuracy.maximum) == (pytest.approx(0.7), 0.6, 0.8)
    assert (second.epoch, second.passed, second.n) == (2, pytest.approx(110), 3)


def with_steps(counts: tuple[int, ...], images: int, batches: int = 0) -> Run:
    """Epochs of 10 s with so many steps of 3 s and 1 s before each; of `images` in batches of 4, or in so many
    `batches` of somebody's own loader."""
    builder = RunBuilder()
    for number, count in enumerate(counts):
        part = builder.add("part", "train", builder.root, number * 10 * S, 10 * S)
        epoch = builder.add("epoch", "train", part, number * 10 * S, 10 * S, call=number)
        for step in range(count):
            builder.add("step", "step", epoch, (number * 10 + step * 4 + 1) * S, 3 * S)
    facts = {"images": {"train": images}, **({"batches": {"train": batches}} if batches else {})}
    return builder.run(workload={"name": "cnn", **({} if batches else {"batch": 4}), "training": facts})


def test_what_lies_between_steps_is_told() -> None:
    """Two steps of 3 s leave 4 s of each epoch of 10 s."""
    found = training(with_steps((2, 2), images=8))
    assert found.between_steps == 8 * S
    assert before_words(found) == "between steps, in these times: 8.00 s"


def test_of_steps_that_were_not_recorded_nobody_knows_what_lies_between() -> None:
    """Twelve images are three steps; of a long training the later ones are not recorded."""
    assert training(with_steps((2, 2), images=12)).between_steps is None
    assert training(with_steps((2, 0), images=8)).between_steps is None
    assert training(with_steps((2, 2), images=11)).between_steps == 8 * S
    assert training(with_steps((2, 1), images=64, batches=2)).between_steps is None
    assert training(with_steps((2, 2), images=64, batches=2)).between_steps == 8 * S
