"""Variants of a study: named changes of its options, shown side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plain_runs import run_info
from sonda.analysis.summary import LayerRow, PartSummary, SimulatedCost, Summary, Traffic, Value
from sonda.record.run import Run
from sonda.report.screen import render
from sonda.report.views.study.screen import study_blocks
from sonda.report.words import in_words, word_findings
from sonda.studies.catalogue import _document
from sonda.studies.engine.plan import configurations, count_points, options, plan_points
from sonda.studies.engine.runner import StudyResult
from sonda.studies.figures.registry import parse_figure
from sonda.studies.file.check import Vocabulary
from sonda.studies.file.loader import read_study
from sonda.studies.file.mistakes import StudyMistakes
from sonda.studies.file.study import Study
from sonda.studies.file.vocabulary import vocabulary_of_sonda
from sonda.studies.results.table import study_table


def worded_document(result: StudyResult) -> dict[str, Any]:
    return word_findings(_document(result))


def _option(workload: str, key: str, value: object) -> str:
    return "" if key in ("batch", "set", "seed") else f"{workload} has no option {key!r}"


def _together(configuration: dict[str, object]) -> str:
    own = {key: value for key, value in configuration.items() if key not in ("variant", "workload", "on")}
    return next((problem for key, value in own.items() if (problem := _option("mlp", key, value))), "")


WORDS = Vocabulary(
    workload=lambda name: "" if name == "mlp" else f"there is no workload {name!r}",
    option=_option,
    configuration=_together,
    target=lambda spec: "" if spec.startswith(("cpu", "sim:")) else f"{spec!r} is not a target",
)
GOOD = """\
[study]
name = "x"
repeat = 3
metrics = ["cycles", "cycles@a"]
compare = ["cycles"]
[workload]
name = "mlp"
on = "sim:one"
[axes]
batch = [1, 2]
[variant.plain]
[variant."twice as wide"]
set = "multipliers=2"
[variant.measured]
on = "cpu"
batch = [2]
[[exclude]]
variant = "plain"
batch = 1
[scale.small]
variant = ["plain", "measured"]
[[published]]
where = { variant = "plain", batch = 2 }
cycles = [100, 200]
source = "s"
"""


def study(text: str = GOOD) -> Study:
    return read_study(text, "x.toml", WORDS)


def wrong(old: str, new: str) -> list[tuple[int, str, str]]:
    assert old in GOOD
    with pytest.raises(StudyMistakes) as caught:
        study(GOOD.replace(old, new))
    return [(one.line, one.key, one.text) for one in caught.value.mistakes]


def test_variants_change_options_and_replace_axes() -> None:
    found = [(one["variant"], one["on"], one.get("set", ""), one["batch"]) for one in configurations(study())]
    assert found == [
        ("plain", "sim:one", "", 2),
        ("twice as wide", "sim:one", "multipliers=2", 1),
        ("twice as wide", "sim:one", "multipliers=2", 2),
        ("measured", "cpu", "", 2),
    ]


def test_a_scale_keeps_the_variants_it_names() -> None:
    small = study().at_scale("small")
    assert [one["variant"] for one in configurations(small)] == ["plain", "measured"]


def test_what_is_simulated_has_one_repetition_and_what_is_measured_all() -> None:
    points = plan_points(study())
    assert len(points) == count_points(study()) == 3 + 3
    assert [point.repetition for point in points if point.configuration["variant"] == "measured"] == [1, 2, 3]
    assert {point.repetition for point in points if point.configuration["variant"] != "measured"} == {1}


def test_the_name_of_a_variant_is_no_part_of_a_points_identity() -> None:
    before = {point.identity for point in plan_points(study())}
    renamed = study(GOOD.replace("plain", "base"))
    assert {point.identity for point in plan_points(renamed)} == before
    assert "variant" not in options(plan_points(renamed)[0].configuration)
    wider = study(GOOD.replace("multipliers=2", "multipliers=4"))
    assert len({point.identity for point in plan_points(wider)} & before) == 4, "plain and the three that are measured"


def test_a_description_that_changes_is_simulated_again(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    text = (
        'name = "mine"\n[engines.dense]\nkind = "flexible_dense"\nmultipliers = 64\nread_ports = 16\n'
        'write_ports = 16\nreduction = "ASNETWORK"\naccumulators = true\n[route]\nlinear = "dense"\n'
    )
    file.write_text(text)
    mine = Study("x", {"workload": "mlp", "on": f"sim:{file}"}, {})
    (before,) = plan_points(mine)
    assert plan_points(mine)[0].identity == before.identity
    file.write_text(text.replace("64", "128"))
    assert plan_points(mine)[0].identity != before.identity


@pytest.mark.parametrize(
    ("old", "new", "line", "key", "said"),
    [
        ('set = "multipliers=2"', "", 12, "variant.twice as wide", "measures what the variant 'plain' does"),
        ('set = "multipliers=2"', "sett = 2", 13, "variant.twice as wide.sett", "mlp has no option 'sett'"),
        ('set = "multipliers=2"', 'seed = 1', 13, "variant.twice as wide.seed", "cannot be changed by a variant"),
        ("[variant.plain]", "[variant]\nodd = 1\n[variant.plain]", 12, "variant.odd", "must be a table [variant.NAME]"),
        ('["plain", "measured"]', '["plain", "mesured"]', 21, "scale.small.variant[1]", "did you mean 'measured'?"),
        ('compare = ["cycles"]', 'compare = ["cycle"]', 5, "study.compare[0]", "did you mean 'cycles'?"),
        ('{ variant = "plain"', '{ variant = "plane"', 23, "published[0].where", "matches no point of the study"),
        ('variant = "plain"\nbatch = 1', 'variant = "wide"', 18, "exclude[0].variant", "the axis has no 'wide'"),
        ("[100, 200]", "[200, 100]", 24, "published[0].cycles", "the range ends at 100, not above its beginning 200"),
        ("[100, 200]", "[100]", 24, "published[0].cycles", "a range has two ends, not 1"),
        ("[100, 200]", '[100, "x"]', 24, "published[0].cycles", "both ends of a range must be finite numbers"),
        ("[100, 200]", "[-1, 2]", 24, "published[0].cycles", "a range cannot begin below 0"),
        ('"cycles@a"]', '"step_ms@a"]', 4, "study.metrics[1]", "step is kept of a whole step only"),
        ('"cycles@a"]', '"reads_ms"]', 4, "study.metrics[1]", "reads is kept in 1, which ms is not"),
    ],
)  # fmt: skip
def test_mistakes_name_the_line(old: str, new: str, line: int, key: str, said: str) -> None:
    found = wrong(old, new)
    assert (line, key) in [(at, where) for at, where, _ in found]
    assert any(said in text for _, _, text in found)
    assert len(found) == 1


def test_an_accelerator_that_is_not_there_or_a_misspelt_setting_is_found_before_anything_runs() -> None:
    text = '[study]\nname = "x"\n[workload]\nname = "dlrm"\non = "sim:dlrm-hybrid"\n[variant.a]\n[variant.b]\n'
    words = vocabulary_of_sonda()
    for change, said in (('on = "sim:dlrm-hybird"', "dlrm-hybrid"), ('set = "multiplier=2"', "multipliers")):
        with pytest.raises(StudyMistakes, match=said):
            read_study(text + change + "\n", "x.toml", words)
    assert read_study(text + 'set = "clock_GHz=1"\n', "x.toml", words).variants["b"] == {"set": "clock_GHz=1"}


# ---- figures and tables -------------------------------------------------------------------------------------------


def spent(cycles: float, whole: float, dram: float | None = None) -> SimulatedCost:
    def number(value: float, unit: str = "1") -> Value:
        return Value(value, unit, "simulated")

    traffic = None
    if dram is not None:
        traffic = Traffic(number(dram, "B"), number(dram / 4, "B"), number(0.5), number(3), number(1))
    return SimulatedCost(
        cycles=number(cycles, "cycle"),
        share=cycles / whole,
        utilisation=number(0.5),
        reads=number(2 * cycles),
        writes=number(3),
        multiplications=number(10 * cycles),
        stack={"compute": number(cycles, "cycle")},
        bound="compute",
        energy=Value(cycles * 1e-9, "J", "simulated", cycles * 5e-10, cycles * 2e-9),
        traffic=traffic,
        possible=20 * cycles,
    )


def layer(path: str, simulated: SimulatedCost | None) -> LayerRow:
    nothing = Value(None, "ns", "simulated")
    return LayerRow(path, "Module", 0, True, 1, nothing, nothing, nothing, None, nothing, simulated=simulated)  # type: ignore[arg-type]


def simulated_summary(scale: float = 1.0, dram: float | None = None) -> Summary:
    """A step of 100 cycles: 40 in `a` (30 of them in a.x), 25 and 35 in the called members of the list `bags`."""
    whole = 100 * scale
    parts: dict[str, float] = {"a": 40, "a.x": 30, "bags.0": 25, "bags.1": 35, "bags.1.inner": 5}
    layers = [layer(path, spent(cycles * scale, whole, dram)) for path, cycles in parts.items()]
    layers.append(layer("host", None))
    step = Value(None, "ns", "simulated", reason="no clock")
    part = PartSummary(
        "test", step, 1, 0, (), 0.0, step, step, (), tuple(layers), {}, simulated=spent(whole, whole, dram)
    )
    return Summary("id", "", "", "complete", (part,), (), (), {}, ())


@pytest.mark.parametrize(
    ("key", "value", "unit"),
    [
        ("cycles", 100, "cycles"),
        ("cycles@a", 40, "cycles"),
        ("cycles@a.x", 30, "cycles"),
        ("cycles@bags", 25 + 35, "cycles"),
        ("share_percent@bags", 60, "%"),
        ("reads@bags", 120, ""),
        ("writes@bags", 6, ""),
        ("utilisation_percent@bags", 50, "%"),
        ("compute_cycles@a", 40, "cycles"),
        ("energy_nJ@bags", 60, "nJ"),
    ],
)
def test_figures_of_a_simulated_run(key: str, value: float, unit: str) -> None:
    found = parse_figure(key).value_of(simulated_summary())
    assert found.value == pytest.approx(value)
    assert found.unit == unit


def test_energies_keep_their_bounds() -> None:
    energy = parse_figure("energy_nJ@bags").value_of(simulated_summary())
    assert (energy.low, energy.high) == (pytest.approx(30), pytest.approx(120))


def test_traffic_is_there_where_the_buffer_is_finite() -> None:
    assert parse_figure("dram_MB").value_of(simulated_summary(dram=4e6)).value == pytest.approx(5)
    assert parse_figure("dram_read_MB@bags").value_of(simulated_summary(dram=4e6)).value == pytest.approx(8)
    assert parse_figure("cold_misses@bags").value_of(simulated_summary(dram=4e6)).value == 6
    for key in ("dram_MB", "memory_cycles", "cold_misses"):
        assert parse_figure(key).value_of(simulated_summary()).reason == "the global buffer is unlimited"


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("cycles@nowhere", "the model has no module 'nowhere'"),
        ("cycles@host", "nothing of host ran on an engine"),
    ],
)
def test_what_a_simulated_run_does_not_have(key: str, reason: str) -> None:
    assert parse_figure(key).value_of(simulated_summary()) == Value(
        None, parse_figure(key).unit, "simulated", reason=reason
    )


def result(one: Study) -> StudyResult:
    points = plan_points(one)
    runs = [(p, Run(Path(p.identity), run_info(id=p.identity, created="", status="complete", point=p.record())))
            for p in points]  # fmt: skip
    return StudyResult(one, tuple(runs), (), len(runs))


CROSSED = """\
[study]
name = "x"
metrics = ["cycles", "cycles@a", "cycles@bags", "energy_nJ", "dram_MB"]
compare = ["cycles", "dram_MB"]
[workload]
name = "mlp"
on = "sim:one"
[axes]
batch = [1, 2]
[variant.plain]
[variant.half]
set = "multipliers=2"
[[published]]
where = { variant = "plain" }
cycles = [120, 250]
source = "s"
"""


def summarised(run: Run) -> Summary:
    """100 cycles for every sample; the variant `half` takes 1/4 of that with one sample and all of it with two."""
    point: dict[str, Any] = run.info.point
    halved = point["variant"] == "half"
    return simulated_summary(point["batch"] * (0.25 if halved and point["batch"] == 1 else 1), 4e6 if halved else None)


def test_variants_are_compared_with_the_first() -> None:
    table = study_table(result(study(CROSSED)), summarised)
    assert table.axes == ("variant", "batch")
    (ratio,) = table.compared
    # The geometric mean of 1/4 and 1. The first variant has no memory, so dram_MB cannot be compared.
    assert (ratio.figure, ratio.variant, ratio.n) == ("cycles", "half", 2)
    assert ratio.ratio == pytest.approx(0.5)


def test_of_a_range_there_is_no_ratio_but_where_ours_lies_and_a_note_where_it_is_missed() -> None:
    table = study_table(result(study(CROSSED)), summarised)
    first, second = [row.cells[0] for row in table.rows[:2]]
    assert first.published[0].value == Value(None, "cycles", "published", 120, 250, "a range was printed")
    assert (first.published[0].ratio, first.published[0].in_range) == (None, "below")
    assert (second.published[0].ratio, second.published[0].in_range) == (None, "inside")
    assert in_words(table.notes) == ["cycles is outside the published 120 to 250 cycles: 1 100"]


def test_the_screen_shows_the_first_variant_whole_and_all_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sonda.studies.catalogue.summarise", summarised)
    lines = render(study_blocks(worded_document(result(study(CROSSED))), 100), 100, False).splitlines()
    words = [line.split() for line in lines]
    at = lines.index("  plain: cycles")
    assert words[at + 1 : at + 4] == [["batch", "whole", "a", "bags"], ["1", "100", "40.0", "60.0"],
                                      ["2", "200", "80.0", "120"]]  # fmt: skip
    assert ["1", "100", "(50.0–200)"] in words
    at = lines.index("  cycles, ours beside what was published")
    assert words[at + 1 : at + 3] == [["batch", "ours", "published"], ["1", "100", "120–250"]]
    at = lines.index("  cycles, variants side by side")
    assert words[at + 1 : at + 5] == [
        ["batch", "plain", "half"], ["1", "100", "25.0"], ["2", "200", "200"], ["geometric", "mean", "1.00×", "0.500×"],
    ]  # fmt: skip
    at = lines.index("  DRAM traffic MB, variants side by side")
    assert words[at + 1 : at + 3] == [["batch", "half"], ["1", "5.00"]]


def test_a_narrow_screen_splits_variants_over_several_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sonda.studies.catalogue.summarise", summarised)
    text = CROSSED.replace(
        "[[published]]", '[variant.third]\nset = "multipliers=4"\n[variant.fourth]\nset = "x=8"\n[[published]]'
    )
    lines = render(study_blocks(worded_document(result(study(text))), 60), 60, False).splitlines()
    heads = [line.split() for line in lines if line.split()[:2] == ["batch", "plain"]]
    assert len(heads) == 2
    assert [name for head in heads for name in head[2:]] == ["half", "third", "fourth"]
    assert all(len(line) <= 60 for line in lines)
