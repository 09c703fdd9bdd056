"""A modelled step is read for what it means: mix, misses, a budget with bounds, misses over cache sizes."""

from __future__ import annotations

import platform

import numpy as np
import pytest

from builders import MS, RunBuilder
from plain_runs import change_target
from sonda.analysis.counters.callgrind import COUNTERS, ModelledSummary, summarise_modelled
from sonda.analysis.counters.findings import MarkersTakenOff, ModelledBy, OtherIsa, StandInCache
from sonda.analysis.run_summary import summarise
from sonda.analysis.steps.parts import parts as parts_of
from sonda.probes.callgrind.penalties import find_core, measure_frequency, measure_load_ns, measure_misprediction_ns
from sonda.probes.callgrind.valgrind import ASSUMED
from sonda.record.errors import SondaError
from sonda.record.run import Run
from sonda.record.spans import Spans
from sonda.report.blocks import Detail
from sonda.report.page import page_text
from sonda.report.views.steps.view import StepsView
from sonda.targets.instruments.miss_curve import miss_curve, miss_point, parse_sizes, resize_last_level

needs_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="needs an x86-64 processor")


# ---- what it means --------------------------------------------------------------------------------------------------


PENALTIES = {"core": "Invented", "width": 4, "hertz": 2e9, "mispredicted": 20.0, "last_level": 50.0, "memory": 200.0}
ABOUT = {
    "tool": "callgrind 3.19.0", "I1": "32768,8,64", "D1": "32768,8,64", "LL": "25165824,12,64", "isa": "AVX2",
    "asked": {"I1": {"bytes": 32768, "ways": 8, "line": 64}, "D1": {"bytes": 32768, "ways": 8, "line": 64},
              "LL": {"bytes": 25952256, "ways": 11, "line": 64}},
    "native_isa": "AVX512", "threads": 1, "marker_instructions": 4700.0, "phase_marker_instructions": 5100.0,
    "step": 2, "start": 1, "part": "train", "complete": True, "penalties": PENALTIES,
}  # fmt: skip


def counts(instructions: float, **others: float) -> dict[str, float]:
    named = dict.fromkeys(COUNTERS, 0.0) | {"instructions": instructions} | others
    return {f"{name}:modelled": value for name, value in named.items()}


def modelled_run(about: dict | None = None) -> Run:
    """Three timed steps of 10 ms (forward 4, backward 5), and a modelled one of 10,000 instructions."""
    builder = RunBuilder()
    part = builder.part("train")
    for _ in range(3):
        rows = builder.step(part, 10.0, {"forward": 4.0, "backward": 5.0})
        model = builder.layer(rows["forward"], "", "Model", 4.0)
        builder.layer(model, "conv", "Conv2d", 3.0)
        builder.layer(rows["backward"], "conv", "Conv2d", 5.0, direction="backward")
    step = builder.add("step", "", builder.root, builder.clock, 999 * MS, pass_="modelled", metrics=counts(10_000))
    forward = builder.add(
        "phase", "forward", step, builder.clock, 400 * MS, pass_="modelled",
        metrics=counts(6000, loads=3000, stores=600, branches=500, indirect_branches=100, branch_misses=20,
                       indirect_misses=10, l1d_load_misses=30, l1d_store_misses=30, ll_load_misses=6,
                       ll_store_misses=3, l1i_misses=5, ll_instruction_misses=1),
    )  # fmt: skip
    model = builder.layer(forward, "", "Model", 0.1, metrics=counts(5500))
    builder.layer(model, "conv", "Conv2d", 0.1, metrics=counts(5000))
    backward = builder.add("phase", "backward", step, builder.clock, MS, pass_="modelled", metrics=counts(3000))
    builder.layer(backward, "conv", "Conv2d", 0.1, direction="backward", metrics=counts(2500))
    run = builder.run()
    change_target(run, modelled=ABOUT if about is None else about)
    return run


def summary_of(run: Run) -> ModelledSummary:
    found = summarise(run).modelled
    assert found is not None
    return found


def test_mix_misses_and_mispredictions_are_ratios_of_the_counters() -> None:
    forward = summary_of(modelled_run()).phases[0].modelled
    assert forward.share == pytest.approx(0.6)
    assert forward.loads.value == pytest.approx(0.5)
    assert forward.stores.value == pytest.approx(0.1)
    assert forward.branches.value == pytest.approx(0.1)
    assert forward.l1_misses.value == pytest.approx(10.0)  # 60 in 6,000
    assert forward.ll_misses.value == pytest.approx(10 / 6)  # 6 + 3 + 1
    assert forward.mispredictions.value == pytest.approx(5.0)  # 30 in 6,000
    assert forward.misprediction_rate.value == pytest.approx(0.05)  # 30 of 600
    assert forward.memory_bytes.value == 9 * 64


def test_the_budget_is_from_the_issue_floor_to_all_stalls_without_overlap() -> None:
    budget = summary_of(modelled_run()).phases[0].modelled.budget
    assert budget is not None
    assert budget.issue.value == 6000 / 4
    assert budget.mispredictions.value == 30 * 20
    assert budget.instruction_misses.value == (5 - 1) * 50 + 1 * 200
    assert budget.data_misses.value == (60 - 9) * 50 + 9 * 200
    assert budget.high.value == 1500 + 600 + 400 + 4350
    # 4 ms at 2 GHz.
    assert budget.native.value == pytest.approx(8e6)


def test_native_cycles_are_time_on_a_clock_in_every_row() -> None:
    run = modelled_run()
    run.spans.metrics["task_clock:counted"] = np.where(run.spans.where(kind="phase", pass_="timed"), 7.0 * MS, np.nan)
    found = summary_of(run)
    layers = {layer.path: layer.own for layer in found.layers}
    rows = [found.step, *(phase.modelled for phase in found.phases), found.outside, layers[""], layers["conv"]]
    # At 2 GHz: a step of 10 ms, forward 4, backward 5, other 1; the model without its layer 1, that one 3 + 5.
    assert [row.budget.native.value for row in rows if row.budget] == pytest.approx([20e6, 8e6, 10e6, 2e6, 2e6, 16e6])
    assert "native Mcycles (wall)" in StepsView(summarise(run)).text(width=200, color=False, detail=Detail.ALL)


def test_phases_and_what_belongs_to_none_add_up_to_the_step() -> None:
    found = summary_of(modelled_run())
    assert [phase.name for phase in found.phases] == ["forward", "backward"]
    assert found.outside.counters["instructions"].value == 10_000 - 6000 - 3000
    assert found.step.counters["instructions"].value == 10_000


def test_a_layer_has_its_own_and_forward_and_backward_with_the_layers_inside() -> None:
    layers = {layer.path: layer for layer in summary_of(modelled_run()).layers}
    assert (layers["conv"].forward.value, layers["conv"].backward.value) == (5000, 2500)
    assert layers["conv"].own.counters["instructions"].value == 7500
    assert (layers[""].forward.value, layers[""].backward.value) == (5500, 2500)
    assert layers[""].own.counters["instructions"].value == 500
    assert layers["conv"].leaf and not layers[""].leaf


def test_times_of_the_emulator_are_no_timings() -> None:
    run = modelled_run()
    (part,) = parts_of(run)
    assert part.durations.tolist() == [10.0 * MS] * 3
    assert part.phases["forward"].tolist() == [4.0 * MS] * 3
    assert summarise(run).parts[0].counters == {}


def test_without_penalties_there_is_no_budget_and_everything_else() -> None:
    found = summary_of(modelled_run({key: value for key, value in ABOUT.items() if key != "penalties"}))
    assert found.step.budget is None and found.phases[0].modelled.loads.value == pytest.approx(0.5)


def test_a_run_without_a_modelled_step_has_no_summary_of_one() -> None:
    builder = RunBuilder()
    builder.step(builder.part("train"), 10.0, {"forward": 4.0})
    run = builder.run()
    assert summarise_modelled(run, ()) is None and summarise(run).modelled is None
    assert "modelled" not in StepsView(summarise(run)).document()


def test_what_a_reader_must_know_is_said() -> None:
    by, *others = summary_of(modelled_run()).findings
    assert isinstance(by, ModelledBy) and (by.isa, by.threads, by.step) == ("AVX2", 1, 3)
    assert OtherIsa("AVX512") in others
    # I1 and D1 are simulated as they are.
    assert [found for found in others if isinstance(found, StandInCache)] == [
        StandInCache("LL", "24.75 MiB 11-way", "24 MiB 12-way")
    ]
    (markers,) = (found for found in others if isinstance(found, MarkersTakenOff))
    assert markers.boundary == 4700


# ---- how it is shown ------------------------------------------------------------------------------------------------


def test_the_tables_are_below_the_timed_ones_and_never_called_top_down() -> None:
    text = StepsView(summarise(modelled_run())).text(width=200, color=False, detail=Detail.ALL)
    timed, modelled = text.index("\n  phase "), text.index("\n  modelled ")
    assert timed < text.index("\n  layer ") < modelled < text.index("\n  modelled layer ")
    line = next(line for line in text[modelled:].splitlines() if line.startswith("  forward"))
    assert line.split() == ["forward", "6,000", "60.0", "0.50", "0.10", "0.10", "10", "1.67", "5",
                            "<0.01", "–", "0.01", "8.00"]  # fmt: skip
    assert text.replace("not Top-Down", "").lower().count("top-down") == 0


def test_the_page_has_all_layers_and_says_what_was_simulated() -> None:
    text = page_text([summarise(modelled_run())])
    for words in ("Modelled step", "Modelled layers", "24 MiB 12-way stands for it"):
        assert words in text
    assert "Misses over sizes" not in text  # no sizes were swept


def test_every_number_of_the_document_says_that_it_is_modelled() -> None:
    document = StepsView(summarise(modelled_run())).document()["modelled"]
    for row in (document["step"], document["other"], *document["phases"], *document["layers"]):
        for name, value in row["metrics"].items():
            source = "derived" if name.startswith("budget_native") else "modelled"
            assert name.endswith(f":{source}") and value["source"] == source and "unit" in value
    forward = document["phases"][0]["metrics"]
    assert forward["instructions:modelled"]["value"] == 6000
    assert forward["budget_high:modelled"] == {"value": 6850.0, "unit": "cycle", "source": "modelled"}
    assert (document["isa"], document["native_isa"]) == ("AVX2", "AVX512")


# ---- the miss curve -------------------------------------------------------------------------------------------------


def test_sizes_are_read_smallest_first_and_once() -> None:
    assert parse_sizes("2MiB+512K+2M") == (512 << 10, 2 << 20)
    for text, reason in (("", "not the size"), ("2MiB+", "not the size"), ("lots", "'lots' is not the size"),
                         ("1K", "from 64KiB"), ("2T", "from 64KiB")):  # fmt: skip
        with pytest.raises(SondaError, match=reason):
            parse_sizes(text)


def test_only_the_last_level_changes_its_size() -> None:
    caches = resize_last_level(ASSUMED, 512 << 10)
    assert (caches.I1, caches.D1) == (ASSUMED.I1, ASSUMED.D1)
    assert str(caches.LL) == f"{512 << 10},16,64"


def misses(conv: float) -> Spans:
    builder = RunBuilder()
    step = builder.add("step", "", builder.root, 0, 9, pass_="modelled", metrics=counts(1000))
    forward = builder.add("phase", "forward", step, 0, 9, pass_="modelled",
                          metrics=counts(900, ll_load_misses=conv + 2, ll_store_misses=10))  # fmt: skip
    model = builder.layer(forward, "", "Model", 0.1, metrics=counts(1, ll_load_misses=conv + 1, ll_store_misses=10))
    builder.layer(model, "conv", "Conv2d", 0.1, metrics=counts(1, ll_load_misses=conv, ll_store_misses=7))
    return builder.run().spans


def test_a_point_has_the_data_misses_of_phases_and_of_layers_by_themselves() -> None:
    point = miss_point(misses(5), ASSUMED)
    assert point["phases"] == {"forward": 17.0}
    assert point["layers"] == {"": 4.0, "conv": 12.0}
    assert (point["bytes"], point["instructions"]) == (8 << 20, 1000.0)


def test_a_size_that_comes_to_the_same_cache_is_not_run_again() -> None:
    asked = []

    def model(caches: object) -> Spans:
        asked.append(str(caches.LL))  # type: ignore[attr-defined]
        return misses(100)

    points = miss_curve((512 << 10, (512 << 10) + 64, 8 << 20), ASSUMED, misses(5), model)
    assert asked == ["524288,16,64"]
    assert [(point["bytes"], point["layers"]["conv"]) for point in points] == [(524288, 107.0), (8 << 20, 12.0)]
    run = modelled_run({**ABOUT, "miss_curve": points})
    text = StepsView(summarise(run)).text(width=160, color=False, detail=Detail.ALL)
    assert "512 KiB 16-way" in text and "8 MiB 16-way" in text
    line = next(line for line in text[text.index("last-level misses") :].splitlines() if line.startswith("  conv"))
    assert line.split() == ["conv", "107", "12"]


# ---- what stalls cost -----------------------------------------------------------------------------------------------


@needs_x86
def test_costs_of_stalls_are_of_the_order_that_processors_have() -> None:
    hertz = measure_frequency()
    assert 0.5e9 < hertz < 8e9
    near, far = measure_load_ns(16 << 10), measure_load_ns(256 << 20)
    # The first level answers in 3 to 7 cycles; memory is further away than ten times that.
    assert 2.5 < near * hertz * 1e-9 < 20
    assert far > 10 * near
    assert 2 < measure_misprediction_ns() * hertz * 1e-9 < 200


def test_processors_are_known_by_family_and_model() -> None:
    found = [find_core("GenuineIntel", 6, 85), find_core("GenuineIntel", 6, 106), find_core("AuthenticAMD", 25, 1),
             find_core("AuthenticAMD", 26, 2)]  # fmt: skip
    assert [core.width if core else 0 for core in found] == [4, 5, 6, 8]
    assert find_core("GenuineIntel", 6, 1) is None and find_core("", None, None) is None
