"""Comparisons of constructed runs: ratios by hand, significance where it is and where it is not."""

from __future__ import annotations

import numpy as np
import pytest

from builders import MS, RunBuilder, stepped, trained
from sonda.analysis.comparison.findings import (
    ComparedSetting,
    ComparedSettings,
    DifferentMachines,
    DifferingLibrary,
    DifferingSetting,
    DifferingThreads,
    DifferingWork,
    DisturbedRuns,
    NoInterval,
    NoisyPart,
    OneProcess,
    UnfinishedRuns,
    UntimedParts,
    WidenedIntervals,
)
from sonda.analysis.comparison.runs import compare, describe, parse_percent, refuse_same_run
from sonda.record.errors import SondaError
from sonda.record.run import Run


def noisy(centre: float, seed: int, spread: float = 0.02, steps: int = 20, **info):
    return stepped(np.random.default_rng(seed).normal(centre, spread * centre, steps), **info)


def test_a_slower_side_is_said_to_be_slower_by_its_ratio():
    found = compare([trained()], [trained([1.3] * 8)])
    step = found.parts[0].step
    assert (step.a.value, step.b.value) == (120 * MS, 156 * MS)
    assert (step.ratio.value, step.significant, step.text) == (pytest.approx(1.3), True, "1.30x slower")
    assert found.slowdown.low == pytest.approx(0.3)


def test_a_faster_side_is_said_to_be_faster_by_the_inverse():
    found = compare([trained()], [trained([0.8] * 8)])
    assert found.parts[0].step.text == "1.25x faster"
    assert found.slowdown.value == pytest.approx(-0.2)


def test_noise_around_the_same_time_is_not_significant():
    step = compare([noisy(100, 1)], [noisy(100, 2)]).parts[0].step
    assert (step.significant, step.text) == (False, "not significant")
    assert step.ratio.low < 1 < step.ratio.high


def test_a_difference_beyond_the_noise_is_significant():
    step = compare([noisy(100, 1)], [noisy(110, 2)]).parts[0].step
    assert step.significant
    assert step.ratio.low < 1.1 < step.ratio.high


def test_every_phase_and_layer_is_compared():
    builder = RunBuilder()
    part = builder.part("train")
    for _ in range(8):
        step = builder.step(part, 120, {"data": 5, "forward": 50, "backward": 60})
        model = builder.layer(step["forward"], "", "Net", 48)
        builder.layer(model, "conv", "Conv2d", 30)
        builder.layer(model, "extra", "ReLU", 2)
    (found,) = compare([trained()], [builder.run()]).parts
    phases = {row.name: row.text for row in found.phases}
    assert phases == {
        "data": "not significant", "forward": "1.25x slower", "backward": "not significant", "other": "not significant",
    }  # fmt: skip
    # Layers, forward and backward together: the model 38 + 57 ms against 48, the convolution 60 against 30.
    ratios = {(row.path, row.name): row.ratio.value for row in found.layers}
    assert ratios == {("", "Net"): pytest.approx(48 / 95), ("conv", "Conv2d"): pytest.approx(0.5)}
    assert found.only_a == ("phase optimizer", "norm (BatchNorm2d)")
    assert found.only_b == ("extra (ReLU)",)


def test_the_same_path_with_another_class_is_another_layer():
    def run(name):
        builder = RunBuilder()
        part = builder.part("test")
        for _ in range(6):
            builder.layer(builder.step(part, 10, {"forward": 10})["forward"], "act", name, 5)
        return builder.run()

    (found,) = compare([run("ReLU")], [run("GELU")]).parts
    assert (found.layers, found.only_a, found.only_b) == ((), ("act (ReLU)",), ("act (GELU)",))


def test_a_layer_among_many_needs_stronger_evidence_than_one_alone():
    def run(shift, layers):
        builder = RunBuilder()
        part = builder.part("test")
        for wobble in np.linspace(-0.05, 0.05, 15):
            step = builder.step(part, 200, {"forward": 190})
            for i in range(layers):
                builder.layer(step["forward"], f"l{i}", "Linear", 1.0 + wobble + shift)
        return builder.run()

    alone, among = (compare([run(0.0, count)], [run(0.05, count)]) for count in (1, 100))
    one, many = alone.parts[0].layers[0].ratio, among.parts[0].layers[0].ratio
    assert one.value == many.value
    assert many.low < one.low
    assert many.high > one.high
    assert len(among.parts[0].layers) == 100
    assert WidenedIntervals(phases=True, layers=100) in among.notes
    assert WidenedIntervals(phases=True, layers=0) in alone.notes


def test_a_row_is_significant_exactly_when_its_interval_leaves_out_one():
    found = compare([trained(np.linspace(0.9, 1.1, 9))], [trained(np.linspace(0.95, 1.2, 9))])
    for row in [found.parts[0].step, *found.parts[0].phases, *found.parts[0].layers]:
        assert row.significant == (not row.ratio.low <= 1 <= row.ratio.high)


def test_several_processes_are_compared_by_the_median_of_their_medians():
    a = [stepped([duration] * 8) for duration in (100, 102, 98)]
    b = [stepped([duration] * 8) for duration in (130, 131, 129)]
    found = compare(a, b)
    assert found.parts[0].step.ratio.value == pytest.approx(1.3)
    assert found.parts[0].step.significant
    assert OneProcess not in map(type, found.notes)


def test_variation_between_processes_hides_what_steps_alone_would_show():
    # Steps are steady within each process, but processes of the same side differ by up to 20 %.
    a, b = [100, 120, 110], [112, 108, 125]
    found = compare([stepped([d] * 8) for d in a], [stepped([d] * 8) for d in b])
    assert not found.parts[0].step.significant
    assert compare([stepped([110] * 8)], [stepped([112] * 8)]).parts[0].step.significant


def test_one_process_a_side_says_what_is_unseen():
    assert OneProcess(both_sides=True) in compare([trained()], [trained()]).notes
    assert OneProcess(both_sides=False) in compare([trained()], [trained(), trained()]).notes


def test_fail_above_is_held_against_the_lower_end():
    found = compare([noisy(100, 1)], [noisy(110, 2)])
    low = found.slowdown.low
    assert 0 < low < found.slowdown.value
    assert found.check(low - 0.001).outcome == "slower"
    assert found.check(low + 0.001).outcome == found.check(found.slowdown.value).outcome == "unclear"
    assert found.check(found.slowdown.high).outcome == "within"


def test_a_noisy_machine_is_warned_about():
    found = compare([noisy(100, 1, 0.3)], [noisy(100, 2, 0.3)])
    (noise,) = (warning for warning in found.warnings if isinstance(warning, NoisyPart))
    step = found.parts[0].step.ratio
    assert (noise.part, noise.least) == (found.parts[0].name, pytest.approx((step.high / step.low) ** 0.5 - 1))
    quiet = compare([noisy(100, 1, 0.01)], [noisy(100, 2, 0.01)])
    assert NoisyPart not in map(type, quiet.warnings)


def test_one_step_is_not_taken_for_certainty():
    found = compare([stepped([100])], [stepped([200])])
    step = found.parts[0].step
    assert (step.ratio.value, step.ratio.low, step.text) == (2.0, None, "not significant")
    assert found.check(0.05).exit_code == 3
    assert NoInterval(found.parts[0].name, step.ratio.reason) in found.warnings


@pytest.mark.parametrize(
    ("change", "warning"),
    [
        (
            {"workload": {"name": "cnn", "train": True, "batch": 32, "samples": 16}},
            DifferingWork((DifferingSetting("batch", ("16", "32")),)),
        ),
        ({"machine": {"processor": "Another CPU"}}, DifferentMachines(("Invented CPU", "Another CPU"))),
        ({"versions": {"torch": "2.12.0"}}, DifferingLibrary(DifferingSetting("torch", ("none", "2.12.0")))),
        ({"status": "incomplete"}, UnfinishedRuns(("7f3a9c21",))),
    ],
)
def test_what_differs_is_warned_about(change, warning):
    assert not compare([trained()], [trained()]).warnings
    assert warning in compare([trained()], [trained(**change)]).warnings


BATCH_16 = {"name": "cnn", "train": True, "batch": 16, "samples": 16}


@pytest.mark.parametrize(
    ("a", "b", "settings"),
    [
        ({}, {"target": {"threads": 2}}, [("threads", "1", "2")]),
        ({}, {"workload": {**BATCH_16, "precision": "bfloat16"}}, [("precision", "none", "bfloat16")]),
        (
            {"workload": {**BATCH_16, "workers": 0}},
            {"workload": {**BATCH_16, "workers": 4, "compile": True}},
            [("compile", "none", "True"), ("workers", "0", "4")],
        ),
        (
            {"workload": {"command": ["python", "train.py"]}},
            {"workload": {"command": ["python", "train.py", "--amp"]}},
            [("command", "python train.py", "python train.py --amp")],
        ),
    ],
)
def test_how_the_same_work_is_done_is_what_is_compared(a, b, settings):
    found = compare([trained(**a), trained(**a)], [trained(**b)])
    assert found.notes[0] == ComparedSettings(tuple(ComparedSetting(*setting) for setting in settings))
    assert {type(warning) for warning in found.warnings} & {DifferingWork, DifferingThreads} == set()


@pytest.mark.parametrize(
    "command", [["python", "other.py"], ["python", "-m", "train"], ["python", "-c", "1"], ["./train"], None]
)
def test_another_program_is_other_work(command):
    a, b = trained(workload={"command": ["python", "train.py"]}), trained(workload={"command": command})
    assert DifferingWork in map(type, compare([a], [b]).warnings)


def test_a_side_whose_runs_differ_among_themselves_compares_nothing():
    one, two = trained(), trained(target={"threads": 2})
    found = compare([one], [one, two])
    assert DifferingThreads(DifferingSetting("threads", ("1", "2"))) in found.warnings
    assert ComparedSettings not in map(type, found.notes)


def test_other_work_names_every_setting_that_differs():
    larger = trained(workload={**BATCH_16, "batch": 32, "compile": True})
    (warning,) = (one for one in compare([trained()], [larger]).warnings if isinstance(one, DifferingWork))
    assert [setting.name for setting in warning.settings] == ["batch", "compile"]


def test_a_run_on_both_sides_is_refused(tmp_path):
    main, other, head = (Run(tmp_path / name, trained(id=name).info) for name in ("aa", "bb", "cc"))
    refuse_same_run([main], [head])
    with pytest.raises(SondaError, match="A and B are the same: aa; name another run"):
        refuse_same_run([main], [Run(tmp_path / "aa", main.info)])
    with pytest.raises(SondaError, match="bb is on both sides; take one of its tags off"):
        refuse_same_run([main, other], [other, head])


@pytest.mark.parametrize(
    ("ratio", "low", "high", "text"),
    [
        (1.3, 1.25, 1.35, "1.30x slower"),  # (1.35 / 1.25)**0.5 is 1.039
        (1.3, 1.1, 1.5, "1.10 to 1.50x slower"),  # 1.17
        (0.25, 0.2, 0.3125, "3.20 to 5.00x faster"),
        (0.02, 0.01, 0.04, "25.0 to 100x faster"),
        (40.0, 2.0, 1200.0, "2.00 to >1,000x slower"),
    ],
)
def test_a_factor_that_is_hardly_known_is_a_range_in_its_own_direction(ratio, low, high, text):
    assert describe(ratio, low, high) == text


def test_parts_are_matched_by_name():
    builder = RunBuilder()
    for name, duration in (("train", 100), ("validate", 30)):
        part = builder.part(name)
        for _ in range(6):
            builder.step(part, duration)
    found = compare([builder.run()], [stepped([150] * 6, part="train")])
    assert [part.name for part in found.parts] == ["train"]
    assert UntimedParts(("validate",)) in found.warnings


def test_nothing_in_common_is_refused_in_one_line():
    with pytest.raises(SondaError, match="A has train, B has test"):
        compare([stepped([10] * 6, part="train")], [stepped([10] * 6, part="test")])


def test_an_empty_side_is_refused():
    with pytest.raises(SondaError):
        compare([], [trained()])


def test_only_counted_steps_cannot_be_compared():
    with pytest.raises(SondaError, match="B has none"):
        compare([trained()], [trained([])])


@pytest.mark.parametrize(("text", "value"), [("5%", 0.05), ("5 %", 0.05), ("2.5%", 0.025), ("10", 0.1), ("0%", 0.0)])
def test_percentages(text, value):
    assert parse_percent(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "%", "five", "-5%", "5%%", "nan", "1e400x"])
def test_what_is_no_percentage_is_refused_with_a_remedy(text):
    with pytest.raises(SondaError, match="write it like 5%"):
        parse_percent(text)


@pytest.mark.parametrize(("ratio", "text"), [(1.3, "1.30x slower"), (0.8, "1.25x faster"), (1 / 1.05, "1.05x faster")])
def test_wording_of_ratios(ratio, text):
    assert describe(ratio) == text


def test_runs_that_others_disturbed_are_doubted():
    quiet, disturbed = stepped([100] * 8), stepped([100] * 8, id="0badcafe", disturbed=["others"])
    assert DisturbedRuns(1, 2) in compare([quiet], [disturbed]).warnings
    assert DisturbedRuns not in map(type, compare([quiet], [quiet]).warnings)
