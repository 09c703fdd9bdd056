"""What stands behind and beneath the figures of a page: tables step by step, phases under power, what is missing."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import report_examples as examples
from builders import MS, RunBuilder
from charts import boxes_of, series_of
from plain_runs import run_info
from sonda.analysis.energy.run import STRETCHES, phases_beneath
from sonda.analysis.energy.summary import Beneath, Cost, Device, EnergySummary
from sonda.analysis.findings import Remark
from sonda.analysis.summary import Value
from sonda.record.run import ProbeState
from sonda.record.spans import Spans
from sonda.report.charts.chart import Boxes
from sonda.report.labels import plain
from sonda.report.markup import STATIC, blocks_html, table_html
from sonda.report.provenance import lacking_table, origin_blocks
from sonda.report.rows import BLANK, pack_rows
from sonda.report.table import Cell, Column, Table, build, numbers
from sonda.report.views.energy import energy_bars, energy_panels, power_figure
from sonda.report.views.steps.figure_data import power_table, roofline_table, steps_table


def spans_of(phases: dict[str, tuple[float, float]]) -> Spans:
    """A program of these phases: beginning and length in ms."""
    builder = RunBuilder()
    for name, (start, length) in phases.items():
        builder.add("phase", name, builder.root, start * MS, length * MS)
    return builder.spans()


def metered(beneath: Beneath | None) -> EnergySummary:
    return EnergySummary(
        "7f3a", "program", Value(2e9, "ns", "measured"), (), {}, {}, (), (), Remark(""), beneath=beneath,
        power={"cpu": ((0.5, 40.0), (1.0, 60.0)), "gpu (estimated)": ((1.0, 200.0),)},
        estimated=frozenset({"gpu (estimated)"}),
    )  # fmt: skip


def test_phases_are_shares_of_equal_stretches_of_the_time() -> None:
    """Forward from 0.5 s to 1.0 s of 2 s, backward from 1.0 s to 1.25 s; the rest is nothing's."""
    spans = spans_of({"forward": (500, 500), "backward": (1000, 250)})
    found = phases_beneath(spans, (), 2e9)
    assert found is not None and list(found.shares) == ["forward", "backward"]
    stretch = 2.0 / STRETCHES
    assert found.length == pytest.approx(stretch) and found.starts[1] == pytest.approx(stretch)
    assert sum(found.shares["forward"]) * stretch == pytest.approx(0.5)
    assert sum(found.shares["backward"]) * stretch == pytest.approx(0.25)
    inside = [start for start, share in zip(found.starts, found.shares["forward"], strict=True) if share > 0.999]
    assert min(inside) == pytest.approx(0.5) and max(inside) == pytest.approx(1.0 - stretch)


def test_regions_stand_beneath_where_there_are_no_phases() -> None:
    spans = spans_of({})
    found = phases_beneath(spans, [("load", 0, 250_000_000)], 1e9)
    assert found is not None and sum(found.shares["load"]) / STRETCHES == pytest.approx(0.25)
    assert phases_beneath(spans, (), 1e9) is None


def test_power_is_drawn_over_the_phases_and_a_model_is_dotted() -> None:
    figure = power_figure(metered(Beneath((0.0, 1.0), 1.0, {"forward": (0.25, 1.0)})))
    assert figure is not None
    cpu, gpu = series_of(figure)
    assert (cpu.line, gpu.line) == ("solid", "dot")
    assert [mark.name for mark in figure.fields[1].marks if isinstance(mark, Boxes)] == ["forward"]
    assert boxes_of(figure)["forward"].places == ((0.0, 1.0, 0.0, 25.0), (1.0, 2.0, 0.0, 100.0))
    bare = power_figure(metered(None))
    assert bare is not None and len(bare.fields) == 1


def spent(*energies: Value) -> EnergySummary:
    """Devices that took these."""
    none = Value(None, "W", "derived", reason="not known")
    devices = tuple(
        Device(f"d{at}", "", True, Cost(energy, none, none, none, none)) for at, energy in enumerate(energies)
    )
    return replace(metered(None), devices=devices)


def test_only_energy_with_bounds_has_a_line_of_bounds() -> None:
    figure = energy_bars(spent(Value(300.0, "J", "measured", 290.0, 320.0), Value(50.0, "J", "derived")))
    assert figure is not None
    (lines,) = series_of(figure)
    assert lines.intervals == ((290.0, 320.0), None)


@pytest.mark.parametrize(
    ("energy", "said"),
    [
        (Value(50.0, "J", "derived"), ""),
        (Value(50.0, "J", "measured", 40.0, 60.0), "Thin lines are bounds. "),
        (Value(50.0, "J", "estimated", 30.0, 70.0), "Hatched: estimated by a model, not measured. "
                                                    "Thin lines are bounds. "),
    ],
)  # fmt: skip
def test_the_caption_of_energy_tells_of_what_is_drawn(energy: Value, said: str) -> None:
    html = blocks_html(energy_panels(spent(energy)), "run0")
    assert f">{said}EDP is energy times time.<" in html
    assert "dotted lines are a model&#x27;s" in html  # of the power of the GPU
    solid = blocks_html(energy_panels(replace(spent(energy), estimated=frozenset())), "run0")
    assert "Mean power between readings.<" in solid


def test_the_table_behind_power_has_every_reading_and_marks_guesses() -> None:
    table = power_table(metered(None))
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["cpu", "0.50", "40"], ["cpu", "1.00", "60"], ["gpu (estimated)", "1.00", "200"],
    ]  # fmt: skip
    assert [row[2].estimated for row in table.rows] == [False, False, True]


def test_the_table_behind_steps_has_every_step_with_its_phases() -> None:
    table = steps_table(examples.training_part(steps=4, warmup=2))
    assert [column.name for column in table.columns][:3] == ["step", "step, s", "data, ms"]
    assert [row[-1].text for row in table.rows] == ["warm-up"] * 2 + ["timed"] * 4
    assert table.rows[0][1].text == "2.40"  # 1263 ms times 1.9
    assert table.rows[0][1].hint == "2.40 s, measured (a clock or sensor)"


def test_the_table_behind_a_roofline_has_intensity_and_rate() -> None:
    row = examples.layer("conv", "Conv2d", 1e6, 1e6, 2e6, 5e7, 1e7, 1e9)
    table = roofline_table([row])
    cells = {column.name: cell for column, cell in zip(table.columns, table.rows[0], strict=True)}
    assert cells["intensity, FLOP/B"].text == "5.00"  # 50 MFLOP over 10 MB
    assert cells["achieved, GFLOP/s"].text == "25.0"  # in 2 ms
    assert cells["bandwidth, GB/s"].text == "5.00"


def test_long_tables_come_as_data_that_gives_every_cell_back() -> None:
    values = [Value(1e6 * n, "ns", "measured", 0.9e6 * n, 1.1e6 * n) for n in range(1, 1001)]
    unit, cells = numbers(values)
    names = [Cell(f"</script>\u202e{n}", f"{n}", tone="name") for n in range(1000)]
    table = build([(Column("name", right=False), names), (Column(unit), cells)], "long")
    html = table_html(table)
    assert html.count("<tr>") == 1 + STATIC and html.count("</script>") == 1
    data = pack_rows(table)
    number = data["columns"][1]
    assert number["text"] == [cell.text for cell in cells]
    for row in (0, 499, 999):
        template, *filled = number["hint"][row].split("|")
        told = number["templates"][int(template)]
        for part in filled:
            told = told.replace(BLANK, part, 1)
        assert told == cells[row].hint
    assert len(number["templates"]) < 10  # one for each mix of units, not for each row
    assert data["columns"][0]["text"][7] == plain("</script>\u202e7") == "</script>\ufffd7"
    named = [Cell(f"a\u202e{n}", f"a\u202e{n}") for n in range(300)]
    assert "order" not in pack_rows(build([(Column("name"), named)]))["columns"][0], "names sort as they are shown"
    assert json.loads(html.partition('class="rows">')[2].partition("</script>")[0]) == json.loads(json.dumps(data))


def test_numbers_that_are_copied_keep_all_digits_and_others_are_short() -> None:
    exact = [Value(1e6 + n / 7, "ns", "measured", 1e6 - n / 3, 1e6 + n / 3) for n in range(300)]
    ratios = [Cell(f"{n / 7:.2f}x", n / 7) for n in range(300)]
    table = build([(Column("ms"), numbers(exact)[1]), (Column("ratio"), ratios)])
    copied, sorted_by = pack_rows(table)["columns"]
    assert copied["order"] == [value.value for value in exact]
    assert (copied["low"], copied["high"]) == ([value.low for value in exact], [value.high for value in exact])
    assert json.dumps(copied["order"][:8:7]) == "[1000000, 1000001]"  # whole ones without the point
    assert sorted_by["order"][1] == 0.1428571


def test_what_could_not_be_measured_is_listed_with_reason_and_remedy() -> None:
    info = run_info(
        id="7f3a9c21", created="", status="complete",
        probes=[ProbeState("pmu", "missing", "no PMU in this virtual machine", "use a bare-metal machine"),
                ProbeState("os", "ok")],
    )  # fmt: skip
    summary = replace(examples.training(), ceilings={"reason": "not measured on this machine"})
    table = lacking_table(summary, info)
    assert table is not None
    assert [tuple(cell.text for cell in row) for row in table.rows] == [
        ("hardware counters (pmu)", "no PMU in this virtual machine", "use a bare-metal machine"),
        ("ceilings of the machine", "not measured on this machine", "–"),
        ("FLOPs, bytes, % of roof, peak memory of data", "no operation was counted in this phase", "–"),
    ]
    assert lacking_table(replace(examples.training(), parts=()), None) is None
    assert lacking_table(replace(summary, parts=()), None) is None, "no step that could be held against ceilings"
    silent = replace(examples.training_part(), phases=[examples.phase(name, 1e6, 2e6, None, None, None)
                                                       for name in ("forward", "backward")])  # fmt: skip
    alike = lacking_table(replace(examples.training(), parts=(silent,)), None)
    assert alike is not None
    assert [row[0].text for row in alike.rows] == ["FLOPs, bytes, % of roof, peak memory of forward, backward"]


def test_a_cell_is_estimated_by_its_own_words_only() -> None:
    guess, sure = numbers([Value(2.0, "J", "estimated", 1.0, 3.0), Value(2.0, "J", "measured")])[1]
    assert (guess.estimated, sure.estimated, Cell("2", hint="an estimated time").estimated) == (True, False, False)
    table = Table((Column("energy"),), ((guess,),))
    assert 'class="number estimated"' in table_html(table)


def test_what_observing_costs_has_units_and_the_source_of_each() -> None:
    overhead = {"span_ns": 4706.4, "spans_per_step": 23.43, "step_share": 0.000513}
    info = run_info(id="7f3a", created="2026-11-16", status="complete", overhead=overhead)
    html = blocks_html(origin_blocks(examples.training(), info), "run0")
    for name, said in (("span", "4.71 µs, measured"), ("spans per step", "23.4, counted"),
                       ("step share", "0.05 %, derived")):  # fmt: skip
        assert f"<th>observing: {name}</th><td>{said}</td>" in html
