"""How much programs slow each other: figures from hand counts, intervals from Student's table, screens."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from charts import boxes_of, charts_of
from interference_cases import MS, experiment, known, pieces
from plain_runs import change_target
from sonda.analysis.comparison.runs import compare
from sonda.analysis.corun.findings import (
    DivideCache,
    Interfering,
    KeepApart,
    LookAtWaiting,
    MeasureAgain,
    OneAfterTheOther,
    OwnCores,
    SweepWays,
)
from sonda.analysis.corun.interference import interference
from sonda.analysis.run_summary import summarise
from sonda.record.errors import SondaError
from sonda.record.spans import Spans, Words
from sonda.record.stored import plain
from sonda.report.blocks import Detail
from sonda.report.page import page_text
from sonda.report.quantities import provenance
from sonda.report.section import section_of
from sonda.report.views.corun import CorunView
from sonda.report.words import describe

T2 = 4.302653
"""Student's t for 95 % and 2 degrees of freedom, from a printed table."""


def test_the_matrix_says_who_suffers_from_whom(tmp_path):
    found = interference(experiment(tmp_path, known))
    assert found.slowdown("a", "b").value == pytest.approx(2.0)
    assert found.slowdown("b", "a").value == pytest.approx(4.0)
    assert found.slowdown("c", "a").value == pytest.approx(1.5)
    assert found.slowdown("b", "c").value == pytest.approx(1.25)
    assert found.slowdown("a", "a").value is None
    assert found.alone["b"].steps["b"].value == pytest.approx(20 * MS)
    assert found.together.steps["c"].value == pytest.approx(8 * MS)


def test_figures_of_all_together_are_those_of_a_hand_count(tmp_path):
    whole = interference(experiment(tmp_path, known)).together
    # slowdowns 2, 4, 1.6: speeds 1/2 + 1/4 + 5/8; 3 / 7.6; 1.6 / 4
    assert whole.weighted_speedup.value == pytest.approx(1.375)
    assert whole.harmonic_mean.value == pytest.approx(3 / 7.6)
    assert whole.fairness.value == pytest.approx(0.4)


def test_programs_that_do_not_meet_have_the_best_figures(tmp_path):
    whole = interference(experiment(tmp_path, lambda members, turn, slot: pieces(3.0))).together
    assert (whole.weighted_speedup.value, whole.harmonic_mean.value, whole.fairness.value) == (3, 1, 1)


def test_waiting_for_a_core_is_told_from_being_slower(tmp_path):
    found = interference(
        experiment(tmp_path, lambda members, turn, slot: pieces(10.0 * len(members), cpu=1 / len(members)))
    )
    assert found.slowdown("a", "b").value == pytest.approx(2.0)
    assert found.slowdown("a", "b", cpu=True).value == pytest.approx(1.0)


def test_waiting_in_turn_is_seen_although_most_steps_are_as_fast_as_ever(tmp_path):
    def measured(members, turn, slot):
        if len(members) == 1:
            return pieces(1.0, count=20)
        # every second piece did the same steps three times as slowly: the mean is twice that alone
        return [[0, 10 * MS * (1 + 2 * (at % 2)), 10, 10 * MS] for at in range(20)]

    assert interference(experiment(tmp_path, measured)).slowdown("a", "b").value == pytest.approx(2.0)


def test_the_interval_is_students_over_repetitions(tmp_path):
    def measured(members, turn, slot):
        return pieces(10.0 if len(members) == 1 else 20.0 * math.exp(0.1 * (turn - 1)))

    value = interference(experiment(tmp_path, measured, repeat=3)).slowdown("a", "b")
    # logarithms ln 2 - 0.1, ln 2, ln 2 + 0.1: standard deviation 0.1, three of them
    reach = T2 * 0.1 / math.sqrt(3)
    assert value.value == pytest.approx(2.0, rel=1e-5)
    assert value.low == pytest.approx(2 * math.exp(-reach), rel=1e-4)
    assert value.high == pytest.approx(2 * math.exp(reach), rel=1e-4)


def test_a_process_that_is_slow_in_all_its_windows_widens_nothing(tmp_path):
    def measured(members, turn, slot):
        return pieces((10.0 if len(members) == 1 else 15.0) * (1 + turn))

    value = interference(experiment(tmp_path, measured, repeat=3)).slowdown("a", "b")
    assert value.value == pytest.approx(1.5)
    assert value.low is None or value.low == pytest.approx(1.5), "its own alone is what it is held against"


def test_repetitions_that_agree_by_chance_are_not_believed_beyond_their_pieces(tmp_path):
    def measured(members, turn, slot):
        if len(members) == 1:
            return pieces(10.0)
        return [[0, 10 * MS, 1, MS], [0, 30 * MS, 1, MS]]

    value = interference(experiment(tmp_path, measured, repeat=3)).slowdown("a", "b")
    # mean 20 of 10 and 30: standard error 10, half of the mean; three repetitions, two degrees of freedom
    reach = T2 * 0.5 / math.sqrt(3)
    assert value.value == pytest.approx(2.0)
    assert value.high == pytest.approx(2 * math.exp(reach), rel=1e-3)


@pytest.mark.parametrize("repeat", [1, 2])
def test_fewer_than_three_repetitions_have_no_interval_and_say_so(tmp_path, repeat):
    def measured(members, turn, slot):
        return [[0, (10 + at + turn) * len(members) * MS, 1, MS] for at in range(5)]

    found = interference(experiment(tmp_path, measured, repeat=repeat))
    for value in (found.slowdown("a", "b"), found.slowdown("a", "b", cpu=True), found.together.weighted_speedup,
                  found.together.harmonic_mean, found.together.fairness):  # fmt: skip
        assert value.value is not None and value.low is value.high is None
        assert value.reason == "too few repetitions for an interval"
    assert found.slowdown("a", "b").value == pytest.approx(2.0)
    assert "too few repetitions for an interval: give --repeat 3 or more" in CorunView(found).text(
        160, color=False, detail=Detail.ALL
    )


def test_three_repetitions_say_nothing_of_too_few(tmp_path):
    found = interference(experiment(tmp_path, known, repeat=3))
    assert "too few repetitions" not in CorunView(found).text(160, color=False, detail=Detail.ALL)


def test_the_ends_of_three_repetitions_are_the_least_and_the_most(tmp_path):
    """Three values reach no 95 %."""
    found = interference(experiment(tmp_path, known, repeat=3))
    for value in (found.together.steps["a"], found.together.counters["a"]["page_faults"]):
        assert value.few == 3 and "least to most of 3" in provenance(value)


def test_one_piece_has_no_interval_but_a_reason(tmp_path):
    found = interference(experiment(tmp_path, lambda members, turn, slot: pieces(5.0, count=1), repeat=3))
    assert found.slowdown("a", "b").low is None and found.slowdown("a", "b").reason
    assert found.together.fairness.low is None and found.together.fairness.reason
    assert not found.finding.sure


def test_intervals_hold_the_truth_as_often_as_they_say(tmp_path):
    generator = np.random.default_rng(7)
    inside = 0
    for trial in range(200):

        def measured(members, turn, slot):
            noise = math.exp(generator.normal(0, 0.05))
            return pieces((10.0 if len(members) == 1 else 13.0) * noise)

        value = interference(experiment(tmp_path / str(trial), measured, names="ab", repeat=3)).slowdown("a", "b")
        inside += value.low <= 1.3 <= value.high
    # 95 % of 200 is 190, its standard deviation 3.1: four of them below
    assert inside >= 178


def test_counters_are_per_time_and_per_step(tmp_path):
    counters = interference(experiment(tmp_path, known)).together.counters["a"]
    assert counters["cores_used"].value == 0.5 and counters["waiting"].value == 0.25
    assert counters["page_faults"].value == 2.0, "80 in 40 steps"
    assert counters["occupancy"].value is None and counters["occupancy"].reason == "no resctrl here"


def phased() -> Spans:
    """Participants a and b, alone (windows 0 and 1) and together (2), two steps each: forward and backward of a."""
    kinds, names, parent, rank, call, duration = ["run"], ["run"], [-1], [0], [0], [0]

    def add(kind, name, above, slot, window, long):
        kinds.append(kind)
        names.append(name)
        parent.append(above)
        rank.append(slot)
        call.append(window)
        duration.append(long)
        return len(kinds) - 1

    for window, slot, forward, backward in ((0, 0, 10, 100), (1, 1, 5, 0), (2, 0, 15, 300), (2, 1, 5, 0)):
        epoch = add("epoch", "x", 0, slot, window, 1000)
        for wobble in (-1, 1):
            step = add("step", "step", epoch, slot, window, forward + backward)
            add("phase", "forward", step, slot, window, forward + wobble)
            if backward:
                # a phase may come in pieces
                add("phase", "backward", step, slot, window, backward - 20)
                add("phase", "backward", step, slot, window, 20 + wobble)
    return Spans(
        {"start": np.arange(len(kinds)), "duration": duration, "parent": parent, "rank": rank, "call": call},
        {"kind": Words.of(kinds), "name": Words.of(names)},
    )


def test_phases_have_slowdowns_of_their_own(tmp_path):
    run = experiment(tmp_path, lambda members, turn, slot: pieces(1.0), names="ab", spans=phased())
    phases = interference(run).together.phases
    assert phases["a"]["forward"].value == pytest.approx(1.5)
    assert phases["a"]["backward"].value == pytest.approx(3.0)
    assert phases["b"] == {}, "one phase is the step itself"


def layered() -> Spans:
    """Participant a, alone (window 0) and together (2), two steps each, of which the first has layers.

    Alone the model takes 10: `one` 4, `two` 3, itself 3. Together `one` takes 8, `two` 3 and the model itself 4.
    Backward of `one`: 2 alone, 8 together.
    """
    kinds, names, paths, directions, parent, call, duration = ["run"], ["run"], [""], [""], [-1], [0], [0]

    def add(kind, name, above, window, long, path="", direction=""):
        for column, value in ((kinds, kind), (names, name), (paths, path), (directions, direction), (parent, above),
                              (call, window), (duration, long)):  # fmt: skip
            column.append(value)
        return len(kinds) - 1

    for window, whole, one, two, back in ((0, 10, 4, 3, 2), (2, 15, 8, 3, 8)):
        epoch = add("epoch", "x", 0, window, 1000)
        for detail in (True, False):
            step = add("step", "step", epoch, window, whole + back)
            forward = add("phase", "forward", step, window, whole)
            backward = add("phase", "backward", step, window, back)
            if detail:
                model = add("layer", "Net", forward, window, whole, "", "forward")
                add("layer", "Linear", model, window, one, "one", "forward")
                add("layer", "ReLU", model, window, two, "two", "forward")
                add("layer", "Linear", backward, window, back, "one", "backward")
    return Spans(
        {"start": np.arange(len(kinds)), "duration": duration, "parent": parent, "call": call},
        {"kind": Words.of(kinds), "name": Words.of(names), "path": Words.of(paths), "direction": Words.of(directions)},
    )


def test_layers_have_slowdowns_of_their_own_time_and_those_that_lose_most_come_first(tmp_path):
    run = experiment(tmp_path, lambda members, turn, slot: pieces(1.0), names="ab", spans=layered())
    found = interference(run)
    layers = found.together.layers["a"]
    figures = [(one.layer, one.direction, one.alone.value, one.together.value) for one in layers]
    assert figures[:2] == [("one", "backward", 2, 8), ("one", "forward", 4, 8)]
    assert figures[2:] == [("", "forward", 3, 4), ("two", "forward", 3, 3)]
    assert [one.lost.value for one in layers] == pytest.approx([6, 4, 1, 0])
    assert [one.slowdown.value for one in layers] == pytest.approx([4, 2, 4 / 3, 1])
    assert found.together.layers["b"] == ()
    text = CorunView(found).text(160, color=False, detail=Detail.ALL)
    rows = [line.split() for line in text[text.index("Layers that lose most") :].splitlines()[2:4]]
    assert rows[0][:4] == ["a", "one", "Linear", "backward"] and rows[1][:4] == ["a", "one", "Linear", "forward"]
    assert CorunView(found).document()["together"]["layers"]["a"][0]["layer"] == "one"


def test_counters_of_the_processor_are_rates_alone_and_together(tmp_path):
    """Alone 2000 instructions in 1000 cycles with 4 misses; together as many in 4000, half of the time counted."""
    run = experiment(tmp_path, known, names="ab")
    facts = plain(run.info.target.corun)
    facts["pmu"] = {"events": ["cycles", "instructions", "cache_misses", "r01c2"], "reason": "", "refused": {"b": "no"}}
    for window in facts["windows"]:
        one = window["measured"][0]
        if one["slot"] == 0:
            alone = len(window["members"]) == 1
            counted = {"cycles": 1000, "cache_misses": 4} if alone else {"cycles": 4000, "scaled": 0.5}
            one["counters"] |= {"instructions": 2000, **counted}
    change_target(run, corun=facts)
    found = interference(run)
    alone, together = found.alone["a"].counters["a"], found.together.counters["a"]
    assert (alone["ipc"].value, together["ipc"].value) == (2.0, 0.5)
    assert (alone["ipc"].source, together["ipc"].source) == ("counted", "estimated")
    assert alone["cache_misses"].value == 2.0 and together["cache_misses"].reason == "it had no counter"
    assert found.together.counters["b"]["ipc"].value is None and found.together.counters["b"]["ipc"].reason == "no"
    text = CorunView(found).text(200, color=False, detail=Detail.ALL)
    header = next(line for line in text.splitlines() if "IPC alone" in line)
    assert header.index("IPC alone") < header.index("IPC together") < header.index("cache misses /1000 alone")
    assert "– r01c2 /1000: it had no counter" in text, "a column that nobody has is one line"


def test_why_there_are_no_counters_of_the_processor_is_said_once(tmp_path):
    run = experiment(tmp_path, known)
    pmu = {"events": [], "reason": "no PMU in this virtual machine", "refused": {}}
    change_target(run, corun={**plain(run.info.target.corun), "pmu": pmu})
    found = interference(run)
    text = CorunView(found).text(160, color=False, detail=Detail.ALL)
    assert text.count("no PMU") == 1 and "– IPC, cache misses /1000: no PMU in this virtual machine" in text


def test_a_program_whose_progress_nobody_counts_has_no_slowdown_but_a_reason(tmp_path):
    def measured(members, turn, slot):
        return pieces(10.0 * len(members), steps=0 if slot else 10)

    run = experiment(tmp_path, measured, names="ab", repeat=3)
    facts = plain(run.info.target.corun)
    facts["participants"][1]["region"] = "window"
    change_target(run, corun=facts)
    found = interference(run)
    assert found.slowdown("a", "b").value == pytest.approx(2.0)
    assert found.slowdown("b", "a").value is None and "nobody counts" in found.slowdown("b", "a").reason
    for figure in (found.together.weighted_speedup, found.together.harmonic_mean, found.together.fairness):
        assert figure.value is None and "nobody counts" in figure.reason
    assert found.together.steps["b"].value is None and not found.finding.all_known


def divided(label, slowdown):
    return {
        "members": [0, 1], "partition": label, "repetition": 0,
        "measured": [
            {"slot": slot, "begin": 0, "end": 1, "slices": pieces(10.0 * slowdown), "llc_occupancy_B": 1 << 20,
             "memory_B_per_s": 2e9, "reasons": {}, "counters": {"cpu_time": 1.0, "time": 1.0, "page_faults": 0.0,
                                                               "context_switches": 0.0}}
            for slot in (0, 1)
        ],
    }  # fmt: skip


def test_partitions_stand_beside_none(tmp_path):
    windows = [divided("a=f b=f0", 1.25)]
    run = experiment(tmp_path, lambda members, turn, slot: pieces(10.0 * len(members)), names="ab", windows=windows)
    found = interference(run)
    assert [one.partition for one in found.partitions] == ["a=f b=f0"]
    assert found.partitions[0].slowdowns["a"].value == pytest.approx(1.25)
    assert found.partitions[0].weighted_speedup.value == pytest.approx(1.6)
    assert found.partitions[0].counters["a"]["occupancy"].value == 1 << 20
    assert found.together.slowdowns["a"].value == pytest.approx(2.0)
    assert "a=f b=f0" in CorunView(found).text(160, color=False, detail=Detail.ALL)


# ---- shown ------------------------------------------------------------------------------------------------------


def test_the_worst_that_is_beyond_doubt_is_found(tmp_path):
    def measured(members, turn, slot):
        base = known(members, turn, slot)
        return [[start, long + (at % 2) * 1000, steps, cpu] for at, (start, long, steps, cpu) in enumerate(base)]

    found = interference(experiment(tmp_path, measured, repeat=3)).finding
    assert isinstance(found, Interfering) and found.sure
    assert (found.by, found.slowed, found.programs) == ("a", "b", 3)
    assert found.slowdown.value == pytest.approx(4.0, rel=1e-3)


def nearly(step_ms, cpu=1.0):
    """Pieces of which every other one is longer by a hair."""
    return [
        [start, long + at % 2 * 1000, steps, used + at % 2 * 1000]
        for at, (start, long, steps, used) in enumerate(pieces(step_ms, cpu))
    ]


def sure(slowdown, cpu):
    """Two programs of which the second slows the first; `cpu` is the slowdown of CPU time."""

    def measured(members, turn, slot):
        slowed = len(members) > 1 and slot == 0
        return nearly(10.0 * slowdown, cpu / slowdown) if slowed else nearly(10.0)

    return measured


@pytest.mark.parametrize(
    ("slowdown", "cpu", "remedy"),
    [(1.5, 1.4, KeepApart("a", "b")), (1.5, 1.0, LookAtWaiting("a", "b")), (1.0, 1.0, None)],
)
def test_what_to_try_follows_from_what_was_lost(tmp_path, slowdown, cpu, remedy):
    found = interference(experiment(tmp_path, sure(slowdown, cpu), names="ab", repeat=3))
    assert found.remedy == remedy
    words = describe(remedy) if remedy is not None else None
    assert ("Try: " in CorunView(found).text(200, color=False, detail=Detail.ALL)) == (words is not None)
    assert CorunView(found).document()["remedy"] == words


def test_programs_that_would_be_done_sooner_one_after_the_other_are_told_so(tmp_path):
    """Side by side each takes three times as long: 2/3 of one program's work."""

    def measured(members, turn, slot):
        return [
            [at, long + (at + turn) % 2 * 1000, steps, cpu]
            for at, long, steps, cpu in pieces(10.0 * (3 if len(members) > 1 else 1))
        ]

    found = interference(experiment(tmp_path, measured, names="ab", repeat=3))
    assert isinstance(found.remedy, OneAfterTheOther)
    assert found.remedy.weighted_speedup.value == pytest.approx(2 / 3, rel=1e-3)


def test_programs_on_one_core_are_given_their_own(tmp_path):
    found = interference(experiment(tmp_path, sure(2.0, 1.0), names="ab", repeat=3))
    described = tuple(msgspec.structs.replace(one, cores=[1]) for one in found.described)
    assert replace(found, described=described).remedy == OwnCores((1,))


def test_a_cache_that_can_be_divided_is_to_be_divided(tmp_path):
    found = interference(experiment(tmp_path, sure(1.5, 1.5), names="ab", repeat=3, monitor_reason=""))
    assert found.remedy == SweepWays()
    windows = [{**divided("a=f b=f0", 1.1), "repetition": turn} for turn in range(3)]
    found = interference(experiment(tmp_path / "divided", sure(1.5, 1.5), names="ab", repeat=3, windows=windows))
    assert isinstance(found.remedy, DivideCache)
    assert (found.remedy.slowed, found.remedy.partition) == ("a", "a=f b=f0")
    assert found.remedy.slowdown.value == pytest.approx(1.1, rel=1e-3)


def test_a_slowdown_in_doubt_is_to_be_measured_again(tmp_path):
    found = interference(experiment(tmp_path, known, repeat=1))
    assert found.remedy == MeasureAgain()


def test_the_screen_has_the_matrix_and_why_columns_are_empty(tmp_path):
    text = CorunView(interference(experiment(tmp_path, known, reason="no CAT here"))).text(
        200, short="7f3a", color=False, detail=Detail.ALL
    )
    lines = text.splitlines()
    row = next(line for line in lines if line.strip().startswith("b ") and "4.00" in line)
    assert "1.25" in row and "Saved as run 7f3a" in text
    assert "no CAT here" in text and "no resctrl here" in text
    for width in (40, 80):
        CorunView(interference(experiment(tmp_path / str(width), known))).text(width, color=False, detail=Detail.ALL)


def test_names_from_outside_cannot_act(tmp_path):
    run = experiment(tmp_path, lambda members, turn, slot: pieces(1.0), names=("<b>x", "\x1b[31my"))
    found = interference(run)
    assert "\x1b" not in CorunView(found).text(120, color=False, detail=Detail.ALL)
    section = section_of(CorunView(found), 0, True)
    assert "<b>x" not in section.html and "&lt;b&gt;x" in section.html


def test_the_document_and_the_page_hold_every_figure(tmp_path):
    run = experiment(tmp_path, known, repeat=2)
    document = json.loads(json.dumps(CorunView(interference(run)).document()))
    assert document["kind"] == "corun" and document["matrix"]["b"]["a"]["value"] == pytest.approx(4.0)
    assert document["together"]["fairness"]["value"] == pytest.approx(0.4)
    page = page_text([summarise(run)], [run])
    assert "Slowdown: a row suffers from a column" in page and "weighted speed-up" in page


def test_a_slowdown_in_doubt_has_no_colour_on_the_map(tmp_path):
    """Beside b, a takes about twice as long; b takes 8 ms or 12 ms, as it does alone."""

    def measured(members, repetition, slot):
        steps = (8, 12) if slot else (19, 21) if len(members) > 1 else (9, 11)
        return [[at * 30 * MS, one * MS, 1, one * MS] for at, one in enumerate(steps * 8)]

    found = interference(experiment(tmp_path, measured, names="ab", repeat=3))
    sure, doubtful = found.slowdown("a", "b"), found.slowdown("b", "a")
    assert sure.low > 1 and doubtful.low <= 1 <= doubtful.high
    (heat,) = charts_of(CorunView(found).full()).values()
    ((slow, none),) = (boxes.colors for boxes in boxes_of(heat).values())
    assert heat.scale.color(1.0) != slow != none == heat.scale.color(0.0) or slow == heat.scale.color(1.0)
    ((sure_text, doubtful_text),) = (boxes.texts for boxes in boxes_of(heat).values())
    assert doubtful_text.endswith("not significant") and "not" not in sure_text
    view = CorunView(interference(experiment(tmp_path, known)))
    section = section_of(view, 0, True)
    (once,) = charts_of(view.full()).values()
    assert set(boxes_of(once)[""].colors) == {once.scale.color(0.0)}, "no interval, nothing to be said"
    assert section.html.count("what is not significant, or has no interval, is grey.") == 2


def test_a_co_run_is_summarised_and_not_compared(tmp_path):
    run = experiment(tmp_path, known)
    assert run.info.kind == "corun"
    summary = summarise(run)
    assert summary.parts == () and isinstance(summary.verdicts[0].finding, Interfering)
    with pytest.raises(SondaError, match="several programs"):
        compare([run], [run])


def test_a_damaged_experiment_is_one_line(tmp_path):
    run = experiment(tmp_path, known)
    del run.info.target.corun.windows[0]
    with pytest.raises(SondaError, match="co-run"):
        interference(run)
