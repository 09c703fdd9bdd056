"""Top-Down of constructed runs: every expected share was computed by hand from the numbers in `counted_examples`."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counted_examples import SKYLAKE, ZEN4, counted_run, definition, groups
from sonda.analysis.counters.findings import SlotsDefined
from sonda.analysis.counters.summary import Slots, TopDown
from sonda.analysis.doubts import NoTopDown
from sonda.analysis.rules.limit_findings import SlotsLost
from sonda.analysis.run_summary import summarise
from sonda.probes.counters.topdown_tables import load_tables
from sonda.record.conventions.expression import parse
from sonda.record.conventions.topdown import read_definition
from sonda.record.errors import SondaError

# ---- expressions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", 7), ("(1 + 2) * 3", 9), ("8 / 4 / 2", 1), ("7 - 2 - 1", 4), ("-a + 3", 1), ("a - -a", 4),
        ("max(0, 1 - a)", 0), ("min(a, 5, 1.5)", 1.5), ("2e3 / .5", 4000), ("0x10 * a", 32), ("- (1 + a) * 2", -6),
        ("max(a)", 2), ("2*(3-(4-a))", 2),
    ],
)  # fmt: skip
def test_a_formula_has_the_value_of_arithmetic(text: str, value: float) -> None:
    assert float(parse(text).value({"a": 2.0})) == value


@given(st.recursive(
    st.integers(1, 99).map(str) | st.sampled_from(["a", "b"]),
    lambda inner: st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
    max_leaves=12,
))  # fmt: skip
def test_formulas_agree_with_python(text: str) -> None:
    import ast
    import operator

    known = {"a": 3.0, "b": 0.25}
    signs = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}

    def walk(node: ast.expr) -> float:
        if isinstance(node, ast.BinOp):
            return signs[type(node.op)](walk(node.left), walk(node.right))
        return known[node.id] if isinstance(node, ast.Name) else float(node.value)  # type: ignore[attr-defined]

    try:
        expected = walk(ast.parse(text, mode="eval").body)
    except ZeroDivisionError:
        assert math.isnan(float(parse(text).value(known)))
        return
    assert float(parse(text).value(known)) == pytest.approx(expected, rel=1e-12)


def test_a_formula_over_steps_is_one_per_step_and_a_quotient_by_zero_is_not_known() -> None:
    found = parse("a / b").value({"a": np.array([6.0, 6.0, np.nan]), "b": np.array([3.0, 0.0, 1.0])})
    assert found[0] == 2 and np.isnan(found[1:]).all()


def test_names_are_told_in_order_and_once() -> None:
    assert parse("b * max(a, b) - c").names == ("b", "a", "c")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "ends too early"), ("1 +", "ends too early"), ("(1", "'\\)' is missing"), ("a b", "'b' is not expected"),
        ("a ** 2", "not expected"), ("abs(a)", "no function 'abs'"), ("a.b", "no number, name or sign"),
        ("__import__('os')", "no number"), ("a[0]", "no number"), ("5a", "no number"),
        ("(" * 99 + "a" + ")" * 99, "more than 50"),
        ("+".join("a" * 900), "more than 400"), ("max()", "not expected"), ("a if a else 0", "not expected"),
        (f"0x{'f' * 300}", "too large a number"),
    ],
)  # fmt: skip
def test_what_is_no_formula_is_one_line_that_says_where(text: str, why: str) -> None:
    with pytest.raises(SondaError, match=why) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


@given(st.text(max_size=40))
def test_any_text_is_a_formula_or_a_mistake(text: str) -> None:
    try:
        parse(text)
    except SondaError:
        pass


# ---- definitions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", sorted(load_tables()))
def test_every_table_survives_the_way_through_the_run(table: str) -> None:
    assert read_definition(definition(table)) == load_tables()[table].definition


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"categories": [{"name": "a", "formula": "1 +"}]}, "ends too early"),
        ({"categories": [{"name": "a", "formula": "1", "parent": "b"}]}, "not before it"),
        ({"categories": [{"name": "a", "formula": "1"}, {"name": "a", "formula": "1"}]}, "two formulas"),
    ],
)
def test_a_damaged_definition_is_a_warning_and_the_rest_of_the_run_is_shown(changed: dict, why: str) -> None:
    target = {"spec": "cpu", "device": "cpu", "threads": 1, "topdown": {"name": "x", "categories": [], **changed}}
    summary = summarise(counted_run("skylake-sp", SKYLAKE, target=target))
    assert summary.parts[0].topdown is None and summary.parts[0].counted is not None
    assert any(isinstance(warning, NoTopDown) and why in warning.cause for warning in summary.warnings)


# ---- shares -----------------------------------------------------------------------------------------------------


def topdown(**changes) -> TopDown:
    found = (
        summarise(counted_run(**{"table": "skylake-sp", "events": SKYLAKE, "steps": 24, **changes})).parts[0].topdown
    )
    assert found is not None
    return found


def shares(slots: Slots) -> dict[str, float | None]:
    return {name: share.value.value for name, share in slots.shares.items()}


BY_HAND = {
    "frontend_bound": 0.2, "bad_speculation": 0.15, "backend_bound": 0.25, "retiring": 0.4,
    "fetch_latency": 0.1, "fetch_bandwidth": 0.1, "branch_mispredicts": 0.105, "machine_clears": 0.045,
    "memory_bound": 0.25 * 350 / 730, "core_bound": 0.25 * 380 / 730, "heavy_operations": 0.125,
    "light_operations": 0.275,
}  # fmt: skip


def test_shares_of_step_phases_and_layers_are_those_computed_by_hand() -> None:
    found = topdown()
    assert list(found.phases) == ["forward", "backward"] and set(found.layers) == {"", "conv"}
    for slots in (found.step, *found.phases.values(), *found.layers.values()):
        assert shares(slots) == pytest.approx(BY_HAND)
        assert slots.residual.value == pytest.approx(0, abs=1e-9)


def test_level_one_is_computed_step_by_step_and_level_two_across_groups() -> None:
    step = topdown().step
    assert not step.shares["backend_bound"].across and step.shares["backend_bound"].value.low is not None
    # Its events stand in two groups; heavy operations need the retired slots of the first and the fused of the second.
    assert step.shares["memory_bound"].across and step.shares["heavy_operations"].across
    assert step.shares["memory_bound"].value.low is None


def test_children_are_parts_of_the_very_share_that_is_shown() -> None:
    found = topdown(scale=lambda step, phase: 1 + 0.01 * (step % 7)).step
    for parent, inside in (("frontend_bound", ("fetch_latency", "fetch_bandwidth")),
                           ("backend_bound", ("memory_bound", "core_bound"))):  # fmt: skip
        assert sum(shares(found)[name] for name in inside) == pytest.approx(shares(found)[parent], abs=1e-12)
        assert found.residuals[parent].value == 0


def test_steps_of_unequal_length_do_not_move_shares_across_groups() -> None:
    # Steps that count the second group take three times the cycles: every rate per cycle stays.
    found = topdown(scale=lambda step, phase: 3.0 if step % 4 == 1 else 1.0, steps=48)
    assert shares(found.step) == pytest.approx(BY_HAND)


def test_a_category_counts_only_above_its_threshold_and_under_a_parent_that_counts() -> None:
    step = topdown().step
    counts = {name for name, share in step.shares.items() if share.counts}
    # Thresholds: frontend 0.15, bad 0.15 (reached, not passed), backend 0.2, retiring 0.7; mispredictions are over 0.1
    # and heavy operations too, but their parents are not over theirs; latency 0.1 is not over 0.1, memory 0.12 not
    # over 0.2, core 0.13 over 0.1.
    assert counts == {"frontend_bound", "backend_bound", "core_bound"}
    assert step.leading == ("backend_bound", "core_bound")


def test_phases_differ_where_their_counts_do() -> None:
    # Backward retires half as many slots and issues as many fewer: 0.2 retiring, 0.25 + 0.2 backend.
    run = counted_run("skylake-sp", SKYLAKE, 24)
    columns = run.spans.metrics
    backward = run.spans.where(kind="phase", name="backward")
    for name, less in (("uops_retired_retire_slots", 800), ("uops_issued_any", 800)):
        columns[f"{name}:counted"][backward] -= less * 0.4
    found = summarise(run).parts[0].topdown
    assert found is not None
    assert shares(found.phases["backward"])["retiring"] == pytest.approx(0.2)
    assert shares(found.phases["backward"])["backend_bound"] == pytest.approx(0.45)
    assert shares(found.phases["forward"])["backend_bound"] == pytest.approx(0.25)
    # 60 % of the step's cycles are forward's.
    assert shares(found.step)["backend_bound"] == pytest.approx(0.6 * 0.25 + 0.4 * 0.45)


def test_amd_has_five_categories_and_a_residual() -> None:
    found = topdown(table="zen4", events=ZEN4)
    assert found.level_one == ["frontend_bound", "bad_speculation", "backend_bound", "smt_contention", "retiring"]
    by_hand = {
        "frontend_bound": 0.15, "bad_speculation": 0.04, "backend_bound": 0.4, "smt_contention": 0.05, "retiring": 0.35,
        "fetch_latency": 0.1, "fetch_bandwidth": 0.05, "branch_mispredicts": 0.03, "pipeline_restarts": 0.01,
        "memory_bound": 0.3, "core_bound": 0.1, "microcode": 0.007, "fastpath": 0.343,
    }  # fmt: skip
    assert shares(found.step) == pytest.approx(by_hand)
    assert found.step.residual.value == pytest.approx(0.01)
    assert found.step.leading == ("backend_bound", "memory_bound")


def test_where_the_hardware_allows_no_top_down_it_is_called_approximate() -> None:
    # 6 slots x 1,000 cycles: 2,400 retired, 2,700 dispatched, the queue empty in 100 cycles.
    events = {"cycles": 1000, "instructions": 1500, "ex_ret_ops": 2400, "de_dis_ops_dispatched": 2700,
              "de_dis_uop_queue_empty": 100}  # fmt: skip
    summary = summarise(counted_run("zen3", events))
    found = summary.parts[0].topdown
    assert found is not None and found.definition.approximate
    assert shares(found.step) == pytest.approx(
        {"frontend_latency": 0.1, "bad_speculation": 0.05, "retiring": 0.4, "backend_or_bandwidth": 0.45}
    )
    first = found.findings[0]
    assert isinstance(first, SlotsDefined) and first.approximate and first.name.startswith("AMD Zen 3")
    assert not any(isinstance(verdict.finding, SlotsLost) for verdict in summary.verdicts)


def test_a_negative_share_is_not_shown_and_says_why() -> None:
    # More retired than dispatched, as skid between groups can make it.
    found = topdown(table="zen4", events={**ZEN4, "de_src_op_disp_all": 2040})
    share = found.step.shares["bad_speculation"].value
    assert share.value is None and "counted at different times" in share.reason
    assert not found.step.shares["bad_speculation"].counts


def test_a_group_that_was_refused_leaves_its_categories_missing_with_the_event() -> None:
    found = topdown(taking_turns=groups("skylake-sp")[:1])
    assert shares(found.step)["backend_bound"] == pytest.approx(0.25)
    memory = found.step.shares["memory_bound"].value
    assert memory.value is None and memory.reason == "cycle_activity_stalls_mem_any was not counted"
    assert found.step.residuals["backend_bound"].value is None
    assert found.step.leading == ("backend_bound",)


def test_scaled_counts_are_used_and_every_share_of_them_is_called_estimated() -> None:
    found = topdown(estimated=True, running=0.5)
    assert shares(found.step) == pytest.approx(BY_HAND)
    assert {share.value.source for share in found.step.shares.values()} == {"estimated"}
    assert found.step.residual.source == "estimated"


def test_counts_of_a_part_of_the_time_that_nobody_scaled_are_refused() -> None:
    part = summarise(counted_run("skylake-sp", SKYLAKE, running=0.62)).parts[0]
    assert part.topdown is None
    assert part.counted is None or part.counted.step.ipc.value is None


def test_only_the_steps_that_counted_all_the_time_are_used_where_there_are_some() -> None:
    run = counted_run("skylake-sp", SKYLAKE, 16)
    columns = run.spans.metrics
    # Every other turn of the first group shared the PMU; what was scaled there is far off.
    for row in np.flatnonzero(run.spans.where(kind="phase") & ~np.isnan(columns["uops_issued_any:counted"]))[:4]:
        columns["counter_running:counted"][row] /= 2
        for name in groups("skylake-sp")[0]:
            columns.setdefault(f"{name}:estimated", np.full(len(run.spans), np.nan))[row] = 7.0
            columns[f"{name}:counted"][row] = np.nan
    found = summarise(run).parts[0].topdown
    assert found is not None
    assert found.step.shares["backend_bound"].value.source == "derived"
    assert shares(found.step)["backend_bound"] == pytest.approx(0.25)


def test_on_a_hybrid_processor_counts_of_one_kind_of_core_are_no_reason_to_refuse() -> None:
    run = counted_run("skylake-sp", SKYLAKE, running=0.7)
    run.spans.metrics["cycles_small_cores:counted"] = np.where(run.spans.where(kind="phase"), 100.0, np.nan)
    found = summarise(run).parts[0].topdown
    assert found is not None and shares(found.step) == pytest.approx(BY_HAND)


def test_level_one_over_steps_takes_a_stretch_for_every_turn_of_all_groups() -> None:
    found = topdown(steps=10)
    assert found.stretches == ((1, 4), (5, 8), (9, 10))
    assert found.over_steps["backend_bound"] == pytest.approx((0.25, 0.25, 0.25))
    only_last = topdown(steps=10, taking_turns=[*groups("skylake-sp")[1:], groups("skylake-sp")[0]])
    assert math.isnan(only_last.over_steps["backend_bound"][2])


def test_level_one_over_steps_joins_groups_that_took_turns() -> None:
    """8 slots x 1,000 cycles; mispredictions are of the second group, whose steps do three times the work.

    Frontend 1600/8000 - 4*25/1000 = 0.1; bad (1-3/4)*(1-1/2) + 0.1 = 0.225; backend 0.3; retiring 3/4*1/2 = 0.375.
    Without mispredictions, from step 5 on, 0.2 and 0.125.
    """
    events = {
        "cycles": 1000, "instructions": 2000, "stall_slot_frontend": 1600, "stall_slot_backend": 2400,
        "stall_slot": 4000, "op_retired": 3000, "op_spec": 4000, "stall_backend": 400, "stall_backend_mem": 300,
        "br_mis_pred": 25,
    }  # fmt: skip
    run = counted_run("neoverse-v1", events, 8, scale=lambda step, phase: 1.0 + 2 * (step % 2))
    start, mispredicted = run.spans.number("start"), run.spans.metrics["br_mis_pred:counted"]
    mispredicted[(start >= start[run.spans.where(kind="step")][4]) & ~np.isnan(mispredicted)] = 0
    found = summarise(run).parts[0].topdown
    assert found is not None and found.stretches == ((1, 2), (3, 4), (5, 6), (7, 8))
    assert found.over_steps["frontend_bound"] == pytest.approx((0.1, 0.1, 0.2, 0.2))
    assert found.over_steps["bad_speculation"] == pytest.approx((0.225, 0.225, 0.125, 0.125))
    assert found.over_steps["backend_bound"] == pytest.approx((0.3,) * 4)
    assert found.over_steps["retiring"] == pytest.approx((0.375,) * 4)


def test_a_run_without_counters_has_no_top_down() -> None:
    run = counted_run("skylake-sp", SKYLAKE)
    for column in [name for name in run.spans.metrics if not name.startswith("counter_")]:
        run.spans.metrics[column][:] = np.nan
    part = summarise(run).parts[0]
    assert (part.topdown, part.counted) == (None, None)


# ---- verdicts ---------------------------------------------------------------------------------------------------


def verdict(**changes):
    summary = summarise(counted_run(**{"table": "zen4", "events": ZEN4, "steps": 24, **changes}))
    return next((one for one in summary.verdicts if isinstance(one.finding, SlotsLost)), None)


def test_memory_bound_by_top_down_is_said_with_its_evidence() -> None:
    found = verdict()
    assert found is not None and found.kind == "memory"
    lost = found.finding
    assert (lost.phases, lost.category, lost.inside) == (("forward", "backward"), "backend bound", "memory bound")
    assert (lost.share.value, lost.slots) == (pytest.approx(0.4), "slots")
    assert found.share == pytest.approx(0.4)
    assert found.evidence["forward: backend bound"].value == pytest.approx(0.4)
    assert found.evidence["IPC"].value == 2


@pytest.mark.parametrize(
    ("events", "kind", "category", "share"),
    [
        ({"de_no_dispatch_no_ops_from_frontend": 2700, "de_no_dispatch_backend_stalls": 600}, "frontend",
         "frontend bound", 0.45),
        ({"de_src_op_disp_all": 4500, "de_no_dispatch_backend_stalls": 100}, "speculation", "bad speculation", 0.4),
        ({"de_no_dispatch_smt_contention": 2500, "de_no_dispatch_backend_stalls": 100}, "contention",
         "smt contention", 0.42),
    ],
)  # fmt: skip
def test_other_losses_are_named(events: dict, kind: str, category: str, share: float) -> None:
    found = verdict(events={**ZEN4, **events})
    assert found is not None and found.finding.category == category
    assert found.finding.share.value == pytest.approx(share, abs=0.005)
    assert found.kind == kind


def test_slots_that_did_work_are_no_loss_and_small_losses_no_verdict() -> None:
    quick = {**ZEN4, "de_no_dispatch_no_ops_from_frontend": 300, "de_no_dispatch_backend_stalls": 500,
             "ex_ret_ops": 4800, "de_src_op_disp_all": 4860}  # fmt: skip
    assert verdict(events=quick) is None
