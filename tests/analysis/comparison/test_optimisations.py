"""What options bring: ratios to the base with intervals, options together, one sentence; points that need no run."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from builders import stepped
from charts import across, charts_of, series_of
from optimisations_cases import CHANGES, summaries
from sonda.analysis.comparison.optimisations import (
    Limit,
    Option,
    _together,
    main_limit,
    parts_of,
    weigh_options,
)
from sonda.analysis.comparison.option_effects import brought_everywhere
from sonda.analysis.findings import Remark
from sonda.analysis.rules.advice import FuseOperations
from sonda.analysis.rules.limit_findings import TooNoisy
from sonda.analysis.run_summary import summarise
from sonda.analysis.statistics import Side, pooled, ratio, side, welch
from sonda.analysis.summary import Remedy, Summary, Value, Verdict
from sonda.record.run import Run
from sonda.record.store import Store
from sonda.report.screen import render
from sonda.report.section import section_of
from sonda.report.views.study.optimisations import limit_sentences, limits_table, options_figure, summary_lines
from sonda.report.views.study.screen import study_blocks
from sonda.report.views.study.view import StudyView
from sonda.report.words import describe, word_findings
from sonda.report.words.names import at_places
from sonda.studies.catalogue import load_plan
from sonda.studies.engine.applicability import why_not
from sonda.studies.engine.plan import configurations, plan_points
from sonda.studies.engine.runner import StudyResult, load_study_result
from sonda.studies.file.loader import load_study
from sonda.studies.file.study import Study
from sonda.studies.results.optimisations import optimisations, optimisations_document
from sonda.studies.results.table import study_table


def weighed(times: dict[str, float], noise: float = 0.01, missing: dict[str, str] | None = None) -> dict[str, Option]:
    runs = {name: summaries(middle, noise, seed=number) for number, (name, middle) in enumerate(times.items())}
    found = weigh_options("", "base", runs, CHANGES, missing or {})
    return {one.name: one for one in found.options}


# ---- few repetitions ----------------------------------------------------------------------------------------------


def drawn_sides(drawn: np.random.Generator, noise: Sequence[float], slower: Sequence[float]) -> list[Side]:
    """Three processes of each variant, of ten steps; `noise` from process to process, 2 % from step to step."""
    return [
        side([times * np.exp(own * drawn.standard_normal() + 0.02 * drawn.standard_normal((10, 1))) for _ in range(3)],
             [10] * 3)
        for own, times in zip(noise, slower, strict=True)
    ]  # fmt: skip


@pytest.mark.parametrize("noise", [[0.05] * 6, [0.02] * 5 + [0.2], [0.2] + [0.02] * 5, [0.02] * 3 + [0.08] * 3])
def test_intervals_of_all_variants_at_once_hold_the_truth_also_where_noise_differs(noise: list[float]) -> None:
    """150 experiments of a base and five variants that change nothing."""
    drawn = np.random.default_rng(3)
    held = 0
    for _ in range(150):
        base, *variants = pooled(drawn_sides(drawn, noise, [1.0] * 6))
        held += all(low[0] <= 1 <= high[0] for _, low, high in (ratio(base, one, 5) for one in variants))
    # Of 150 with 95 %, fewer than 135 come out once in a hundred times.
    assert held >= 135


def test_three_processes_of_each_tell_twice_as_fast_from_noise() -> None:
    """5 % from process to process: of a single pair little is known, of six variants together enough."""
    drawn = np.random.default_rng(4)
    told = {"apart": 0, "pooled": 0}
    for _ in range(50):
        sides = drawn_sides(drawn, [0.05] * 6, [1.0, 1.0, 1.0, 1.0, 1.0, 1.5])
        for how, (base, *_, last) in (("apart", sides), ("pooled", pooled(sides))):
            told[how] += bool(ratio(base, last, 5)[1][0] > 1)
    assert told["pooled"] >= 45 and told["apart"] < told["pooled"]


def test_a_variant_that_is_noisier_beyond_chance_keeps_its_own_error() -> None:
    one = np.ones(1)
    sides = [Side(one, np.array([0.01]), 2) for _ in range(5)] + [Side(one, np.array([0.2]), 2)]
    *alike, noisy = pooled(sides)
    assert noisy is sides[-1]
    assert all(each.common and each.freedom == 10 and each.error[0] == pytest.approx(0.01) for each in alike)
    # Two of them share their estimate: its freedom counts once. Beside it the other's few decide.
    assert welch([(1e-4, alike[0]), (1e-4, alike[1])]) == 10 and welch([(1e-4, alike[0]), (0.04, noisy)]) == 2


def test_what_has_no_error_is_left_alone() -> None:
    one = np.ones(1)
    sides = [Side(one, np.array([error]), 2) for error in (0.01, 0.0, 0.01)]
    assert pooled(sides) == sides and pooled(sides[:1]) == sides[:1]


# ---- one option ---------------------------------------------------------------------------------------------------


def test_a_ratio_is_of_medians_and_its_interval_holds_the_truth() -> None:
    found = weighed({"base": 12.0, "prefetch": 6.0, "mixed": 12.0, "both": 24.0})
    for name, truth, effect in (("prefetch", 2.0, "faster"), ("mixed", 1.0, ""), ("both", 0.5, "slower")):
        speedup = found[name].speedup
        assert speedup.value == pytest.approx(truth, rel=0.03)
        assert speedup.low < truth < speedup.high  # type: ignore[operator]
        assert found[name].effect == effect or effect == ""
    assert describe(found["prefetch"].outcome) == f"{found['prefetch'].speedup.value:.2f}x faster"
    assert describe(found["both"].outcome) == f"{1 / found['both'].speedup.value:.2f}x slower"  # type: ignore[operator]
    assert describe(found["mixed"].outcome) == "not significant"


def test_nothing_is_said_only_where_it_is_known() -> None:
    quiet = weighed({"base": 12.0, "prefetch": 12.0}, noise=0.002)["prefetch"]
    noisy = weighed({"base": 12.0, "prefetch": 12.0}, noise=0.2)["prefetch"]
    assert (quiet.effect, noisy.effect) == ("nothing", "unknown")
    assert describe(quiet.outcome) == describe(noisy.outcome) == "not significant"


def test_another_batch_is_compared_by_samples() -> None:
    workload = {"name": "cnn", "train": True, "samples": 32}
    runs = {"base": summaries(10.0), "prefetch": summaries(10.0, seed=1, workload=workload)}
    found = weigh_options("", "base", runs, {"base": {}, "prefetch": {"batch": 32}}, {})
    assert found.options[0].speedup.value == pytest.approx(2.0, rel=0.03)


def test_what_is_missing_says_why() -> None:
    found = weighed({"base": 12.0}, missing={"mixed": "not applicable: --x: y"})
    assert found["mixed"].speedup.value is None and describe(found["mixed"].outcome) == "not applicable: --x: y"
    assert describe(found["prefetch"].outcome) == "not measured yet" and found["prefetch"].effect == ""
    without = {name: f"not applicable: {name}" for name in ("mixed", "both")}
    runs = {"base": summaries(9.0), "prefetch": summaries(3.0)}
    brought = weigh_options("", "base", runs, CHANGES, without, inapplicable=set(without)).finding
    assert [(effect.names, effect.effect) for effect in brought.effects] == [
        (("prefetch",), "faster"),
        (("mixed",), "lacking"),
    ]
    assert brought.effects[0].most == pytest.approx(3.0, rel=0.01)
    alone = weigh_options("", "base", {"mixed": summaries(3.0)}, CHANGES, {}).options
    assert {one.name: describe(one.outcome) for one in alone}["mixed"] == "the base is not measured yet"


def test_one_step_each_has_no_interval() -> None:
    runs = {name: [summarise(stepped([middle]))] for name, middle in (("base", 12.0), ("prefetch", 6.0))}
    option = weigh_options("", "base", runs, CHANGES, {}).options[0]
    assert option.speedup.value == 2.0 and option.speedup.low is None and option.effect == "unknown"
    assert describe(option.outcome) == "one measurement each has no interval", (
        "nothing was tested, so nothing is not significant"
    )
    figure = options_figure(optimisations_document([weigh_options("", "base", runs, CHANGES, {})])[0])
    assert figure is not None
    assert [series.intervals for series in series_of(figure)] == [(None,)]


# ---- several ------------------------------------------------------------------------------------------------------


def test_a_variant_is_made_of_the_options_whose_settings_it_has() -> None:
    assert parts_of("both", CHANGES) == ("prefetch", "mixed")
    assert parts_of("prefetch", CHANGES) == ()
    more = {**CHANGES, "cache": {"cache": True}, "all": {**CHANGES["both"], "cache": True}}
    assert parts_of("all", more) == ("prefetch", "mixed", "cache")
    assert parts_of("all", {**more, "cache": {"cache": False}}) == ()
    assert parts_of("both", {**CHANGES, "mixed": {"precision": "float16"}}) == ()


@pytest.mark.parametrize(
    ("both", "words"),
    [(2.0, "as the product of its parts"), (3.0, "less than the product"), (1.5, "more than the product")],
)
def test_options_together_are_held_against_their_product(both: float, words: str) -> None:
    """Twice and three times as fast: six times, by the product."""
    found = weighed({"base": 12.0, "prefetch": 6.0, "mixed": 4.0, "both": both}, noise=0.002)["both"].together
    assert found is not None and found.parts == ("prefetch", "mixed")
    assert found.product == pytest.approx(6.0, rel=0.02)
    assert found.excess.value == pytest.approx(12.0 / both / 6.0, rel=0.02)
    assert describe(found.finding).startswith(words)


def test_errors_of_all_factors_add_up() -> None:
    def one(time: float, error: float) -> Side:
        return Side(np.array([time]), np.array([error]), 10_000)

    sides = {"base": one(12, 0.01), "prefetch": one(6, 0.02), "mixed": one(4, 0.03), "both": one(2, 0.04)}
    found = _together(sides, "base", "both", CHANGES, 1)
    assert found is not None and found.excess.value == pytest.approx(1.0)
    reach = math.exp(NormalDist().inv_cdf(0.975) * math.sqrt(0.01**2 + 0.02**2 + 0.03**2 + 0.04**2))
    assert (found.excess.low, found.excess.high) == (pytest.approx(1 / reach), pytest.approx(reach))


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["cnn"], " with cnn"),
        (["cnn, batch 8", "mlp, batch 8"], " with cnn, batch 8 and with mlp, batch 8"),
        (["a", "b", "c", "d"], " in 4 of 5 places"),
        (["a", "b", "c", "d", "e"], ""),
        ([""], ""),
    ],
)
def test_where_something_holds_is_said_in_one_way(names: list[str], words: str) -> None:
    assert at_places(names, 5) == words


# ---- what limits each ---------------------------------------------------------------------------------------------

MEMORY = Verdict(
    "memory", Remark("Memory-bound: 3 activations move 3.1 GB a step at 91 % of DRAM bandwidth, 40 % of the step."),
    {"share": Value(0.4, "1", "derived")}, (Remedy(FuseOperations("torch", partly=False), ("--compile",)),), 0.62,
)  # fmt: skip
UNCLEAR = Verdict(
    "none", Remark("No clear limit: the optimizer takes 50 % of the step."), {}, (Remedy(Remark("think")),), 0.8
)


def judged(ms: float, verdict: Verdict) -> Summary:
    return dataclasses.replace(summarise(stepped([ms])), verdicts=(verdict,))


def test_a_limit_is_that_of_the_run_in_the_middle_with_the_share_that_its_sentence_names() -> None:
    noise = Value(0.7, "1", "derived")
    noisy = Verdict("noisy", TooNoisy(noise, Value(1e6, "ns", "measured")), {"noise": noise})
    found = main_limit([judged(3.0, UNCLEAR), judged(1.0, noisy), judged(2.0, MEMORY)])
    assert found == Limit("memory", 0.4, MEMORY.finding, FuseOperations("torch", partly=False), "--compile")
    assert main_limit([judged(1.0, UNCLEAR)]) == Limit("not clear", None, UNCLEAR.finding, Remark("think"), "")
    assert main_limit([judged(1.0, noisy)]).kind == "too noisy" and main_limit([]) == Limit()


def test_what_limits_is_one_line_for_each_and_whole_sentences_are_behind_it() -> None:
    runs = {"base": [judged(12.0, MEMORY)], "prefetch": [judged(6.0, MEMORY)], "mixed": [judged(4.0, UNCLEAR)]}
    (shown,) = word_findings(optimisations_document([weigh_options("", "base", runs, CHANGES, {})]))
    table = limits_table(shown)
    assert table is not None
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["base", "memory", "40.0", "--compile"],
        ["prefetch", "memory", "40.0", "--compile"],
        ["mixed", "not clear", "–", "think"],
    ]
    assert table.rows[0][1].hint == describe(MEMORY.finding) and table.rows[0][3].hint.startswith("fuse operations")
    assert limit_sentences(shown) == [
        f"base, prefetch: {describe(MEMORY.finding)} Try: fuse operations: torch.compile(model).",
        f"mixed: {describe(UNCLEAR.finding)} Try: think.",
    ]
    assert limits_table({**shown, "base_limit": {"kind": ""}, "options": []}) is None


# ---- in a study ---------------------------------------------------------------------------------------------------

STUDY = Study(
    "options",
    {"train": True, "data": "cifar10-like"},
    {"workload": ("cnn", "resnet18")},
    repeat=2,
    base="base",
    metrics=("step_ms", "input_ms"),
    variants={**{name: dict(of) for name, of in CHANGES.items()}, "private threads": {"gpu_private_threads": 2}},
)
TIMES = {"base": 12.0, "prefetch": 6.0, "mixed": 4.0, "both": 2.0}


def measured(study: Study = STUDY) -> tuple[StudyResult, dict[str, Summary]]:
    runs, found = [], {}
    for number, point in enumerate(plan_points(study)):
        middle = TIMES.get(str(point.configuration["variant"]))
        if middle is not None:
            steps = middle * (1 + 0.004 * np.random.default_rng(number).standard_normal(12))
            run = stepped(steps, id=f"{number:08x}")
            runs.append((point, run))
            found[run.id] = summarise(run)
    without = tuple((point, why) for point in plan_points(study) if (why := why_not(study, point.configuration)))
    return StudyResult(study, tuple(runs), (), len(runs), without), found


def document_of(study: Study = STUDY) -> dict[str, Any]:
    result, found = measured(study)

    def read(run: Run) -> Summary:
        return found[run.id]

    table = study_table(result, read)
    columns = [{"figure": one.key, "unit": one.unit, "of": one.path} for one in table.columns]
    return word_findings({
        "study": table.study, "question": "", "scale": "", "axes": list(table.axes), "columns": columns,
        "base": table.base, "rows": table.to_rows(), "deviations": [], "notes": list(table.notes),
        "optimisations": optimisations_document(brought := optimisations(result, read)),
        "whole": brought_everywhere(brought),
    })  # fmt: skip


def test_points_that_would_be_the_same_as_others_are_not_measured(tmp_path: Path) -> None:
    store = Store(tmp_path)
    found = load_study_result(STUDY, store)
    said = {str(point.configuration["variant"]) for point, _ in found.inapplicable}
    assert said == {"private threads"} and len(found.inapplicable) == 4
    assert "private threads" not in {str(point.configuration["variant"]) for point, _ in found.failures}
    fixed = Study("fixed", {"gpu_private_threads": 2, "workload": "cnn", "train": True}, {"batch": (1, 2)})
    assert [why_not(fixed, one) for one in configurations(fixed)] == ["", ""]


def test_a_plan_names_what_is_not_measured_and_why() -> None:
    document = load_plan("pytorch-optimisations", "small", 1)
    assert "private threads: not applicable: --gpu-private-threads: TensorFlow on a GPU only" in document["lacks"]
    assert "private threads" not in {run["variant"] for run in document["runs"]}


def test_the_table_says_not_applicable_and_counts_no_failure() -> None:
    shown = document_of()
    row = next(one for one in shown["rows"] if one["configuration"]["variant"] == "private threads")
    assert row["figures"]["step_ms"]["reason"].startswith("not applicable: --gpu-private-threads: TensorFlow")
    assert row["failures"] == [] and not any("have no run" in note for note in shown["notes"])


def test_the_screen_has_the_sentence_the_table_and_the_verdicts_of_every_place() -> None:
    shown = document_of()
    assert [place["place"] for place in shown["optimisations"]] == ["cnn", "resnet18"]
    text = render(study_blocks(shown, 160), 160)
    # One sentence for the whole, then one for each network.
    assert shown["whole"] in " ".join(text.split()) and shown["whole"].startswith("Prefetch and mixed bring ")
    assert text.count("Prefetch and mixed bring ") == 3 and "private threads do not apply here." in text
    assert "cnn: what options bring against base" in text and "as the product of its parts" in text
    assert "cnn: what limits each" in text and "Neither" not in text, "whole sentences are on the page"
    assert summary_lines(shown["optimisations"])[0].startswith("cnn: Prefetch and mixed bring 6.")


def test_the_page_has_a_mark_for_every_option_with_its_interval() -> None:
    shown = document_of()
    figure = options_figure(shown["optimisations"][0])
    assert figure is not None
    (faster,) = series_of(figure)
    values = dict(zip(figure.fields[0].y.names, across(faster), strict=True))
    assert set(values) == {"prefetch", "mixed", "both"} and faster.name == "faster"
    assert values["prefetch"] == pytest.approx(2.0, rel=0.05)
    assert all(ends is not None and ends[0] < value < ends[1]
               for ends, value in zip(faster.intervals, filter(None, across(faster)), strict=True))  # fmt: skip
    section = section_of(StudyView(shown))
    assert "Prefetch and mixed bring" in section.html and len(charts_of(StudyView(shown).full())) >= 2
    top, of_cnn, of_resnet = section.html.split(": what options bring against base")
    # The whole first; what is of one network stands with its picture.
    assert [piece.count("Prefetch and mixed bring ") for piece in (top, of_cnn, of_resnet)] == [1, 1, 1]
    assert "<summary>In whole sentences</summary><p>base, " in section.html


def test_a_study_without_a_base_has_no_such_summary() -> None:
    result, found = measured()
    result = dataclasses.replace(result, study=dataclasses.replace(STUDY, base=""))
    assert optimisations(result, lambda run: found[run.id]) == []


# ---- the studies that ship ----------------------------------------------------------------------------------------

PRINTED = {
    ("cnn", "base"): [(6.1, 3.2), (7.3, 3.1)],
    ("cnn", "private threads"): [(6.5, 3.2), (5.4, 3.1)],
    ("cnn", "mixed float16"): [(8.7, 3.5)],
    ("cnn", "mixed float16, private threads"): [(8.5, 3.6)],
    ("resnet50", "base"): [(461.6, 442.8), (431, 443)],
    ("resnet50", "private threads"): [(461.7, 443), (462.4, 444.7)],
    ("resnet50", "mixed float16"): [(261.8, 230.1)],
    ("resnet50", "mixed float16, private threads"): [(255.8, 231.8)],
}
"""Mean step and device compute time in ms, as the slide has them, without and with the policy float32."""


def test_every_printed_figure_is_there() -> None:
    study = load_study("tensorflow-optimisations")
    found: dict[tuple[str, str], list[tuple[Any, Any]]] = {}
    for row in study.published:
        figures = (row.figures["step_ms"], row.figures["device_compute_ms"])
        found.setdefault((row.where["workload"], row.where["variant"]), []).append(figures)
    assert found == PRINTED


@pytest.mark.parametrize("name", ["tensorflow-optimisations", "pytorch-optimisations", "jax-optimisations"])
def test_combined_variants_have_their_parts_in_the_study(name: str) -> None:
    study = load_study(name)
    changes: dict[str, dict[str, object]] = {one: dict(own) for one, own in study.variants.items()}
    for one in study.variants:
        if "," in one:
            assert set(parts_of(one, changes)) == {part.strip() for part in one.split(",")}, one


def test_a_study_that_is_not_done_knows_how_far_processes_differ_from_those_that_were_repeated() -> None:
    """Steps of one process are much alike; two processes of another variant differ by 10 %, more than options do."""
    runs = {"base": [summarise(stepped([100.0, 100.1] * 10))], "prefetch": [summarise(stepped([97.0, 97.1] * 10))]}
    (alone,) = (one for one in weigh_options("", "base", runs, CHANGES, {}).options if one.name == "prefetch")
    assert alone.effect == "faster"  # of one process each, nothing tells how far processes differ
    runs["mixed"] = [summarise(stepped([middle, middle + 0.1] * 10)) for middle in (95.0, 105.0)]
    found = {one.name: one for one in weigh_options("", "base", runs, CHANGES, {}).options}
    assert (found["prefetch"].effect, found["mixed"].effect) == ("unknown", "unknown")
    assert found["prefetch"].speedup.value == pytest.approx(100.05 / 97.05)
    brought = weigh_options("", "base", runs, CHANGES, {}).finding
    assert {effect.effect for effect in brought.effects} == {"unknown"}
    text = describe(brought)
    assert "cannot be told from noise (" in text and not any(word.count("0") > 5 for word in text.split())
