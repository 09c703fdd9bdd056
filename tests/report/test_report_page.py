"""The page: one file, nothing outside of it, nothing in a name that acts, and figures that a real browser draws."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

import report_examples as examples
from charts import across, boxes_of, heights, name_of, series_of, upright
from places import TESTS
from plain_runs import run_info
from sonda.analysis.comparison.summary import ComparedRow, PartComparison
from sonda.analysis.run_summary import summarise
from sonda.analysis.summary import LayerRow, PartSummary, SimulatedCost, Summary, Value
from sonda.record.errors import SondaError
from sonda.record.run import ProbeState, Run
from sonda.record.store import Store
from sonda.report import figures
from sonda.report.charts.chart import Area, Boxes, Shade
from sonda.report.page import page_text, write_page
from sonda.report.section import render_section
from sonda.report.views.compare.pairs import paired_bars
from sonda.report.views.compare.rooflines import RooflineTarget, rooflines, targets_panels
from sonda.report.views.steps.layers import layer_icicle, measures_of
from sonda.report.views.steps.tables import layer_table


@pytest.mark.parametrize("run", ["e8be", "000f"])
def test_a_list_of_kernels_says_what_its_shares_are_of(run: str) -> None:
    kept = Store(TESTS / "corpus" / "runs").one(run)
    text = page_text([summarise(kept)], [kept])
    (table,) = re.findall(r"<table class='bars'>.*?</table>", text)
    head = "kernels and copies, % of the time of all of them, each counted for itself"
    assert table.startswith(f"<table class='bars'><caption class='soft'>{head}</caption><tr>")


@pytest.mark.parametrize(("run", "said"), [
    ("46fb", "<th>target: tf32</th><td>matmul: no, convolution: no</td>"),
    ("46fb", "<th>target: devices</th><td>cuda:0 (name: NVIDIA H200, "),
    ("c151", "<th>workload: train</th><td>no</td>"),
])  # fmt: skip
def test_what_is_known_of_a_machine_is_in_words(run: str, said: str) -> None:
    kept = Store(TESTS / "corpus" / "runs").one(run)
    text = page_text([summarise(kept)], [kept])
    assert said in text
    facts = re.findall(r"<th>(?:target|workload): \w+</th><td>(.*?)</td>", text)
    assert len(facts) > 8 and not any(fact in ("", "None", "True", "False") or "{" in fact for fact in facts)


class Elements(HTMLParser):
    """Tags, attributes and the texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] == "script" and self.cdata_elem:
            self.scripts[-1] += data
        else:
            self.texts.append(data)


def without_steps() -> Summary:
    return replace(examples.inference(), parts=())


def wide(count: int) -> Summary:
    """One model of many equal layers, each a little slower than the one before."""
    step = 1e9
    rows: list[LayerRow] = [examples.layer("", "Model", step, 0, 0, 1e9, 1e8, step, leaf=False)]
    rows += [examples.layer(f"l{i}", "Linear", 1e3 + i, 0, 1e3 + i, 1e5, 1e5, step) for i in range(count)]
    part = replace(examples.training_part(), layers=tuple(rows))
    return replace(examples.training(), parts=(part,))


PAGES: dict[str, list[Summary]] = {
    "one": [examples.training()],
    "one step, nothing counted": [examples.inference()],
    "no steps": [without_steps()],
    "hostile": [examples.hostile()],
    "several": [examples.training(), examples.inference(), without_steps()],
    "none": [],
}


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return {name: page_text(summaries) for name, summaries in PAGES.items()}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_asks_for_nothing_outside_of_itself(pages: dict[str, str], name: str) -> None:
    elements = Elements(pages[name])
    loading = {"link", "img", "iframe", "object", "embed", "video", "audio", "source", "base", "form", "input"}
    assert {
        tag
        for tag, attributes in elements.tags
        if tag in loading and attributes.get("type") not in ("checkbox", "radio")
    } == set()
    for _, attributes in elements.tags:
        assert not {"src", "srcset", "action", "data", "background", "ping"} & attributes.keys()
        assert (attributes.get("href") or "#").startswith("#")
    styles = re.search(r"<style>(.*?)</style>", pages[name], re.DOTALL)
    assert styles and "url(" not in styles.group(1) and "@import" not in styles.group(1)
    policy = next(a["content"] for _, a in elements.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None and policy.startswith("default-src 'none';") and "http" not in policy


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_small(pages: dict[str, str], name: str) -> None:
    assert len(pages[name].encode()) < 1_000_000


def test_names_that_would_act_are_text(pages: dict[str, str]) -> None:
    elements = Elements(pages["hostile"])
    tags = {tag for tag, _ in elements.tags}
    assert not tags & {"img", "i", "b", "u", "s"}
    figures = sum(attributes.get("class") in ("figure", "icicle") for _, attributes in elements.tags)
    assert len(elements.scripts) == figures + 1  # the hints of each figure, and the page's own
    for _, attributes in elements.tags:
        assert not any(name.startswith("on") for name in attributes)
    text = "".join(elements.texts)
    for name in ("</script><script>alert(1)</script>", "<b>bold</b>", "<script>alert(4)</script> [red]", "<i>forward"):
        assert name in text
    assert "\x1b" not in pages["hostile"]


def test_every_mark_has_its_hint_and_every_hint_its_marks(pages: dict[str, str]) -> None:
    scripts = Elements(pages["hostile"]).scripts[:-1]
    assert "<b>bold</b>" in "".join(map(str, json.loads(scripts[0]))), "hints are data that a script shows as text"
    for figure in re.findall(r'<div class="(?:figure|icicle)".*?</script>', pages["one"], re.DOTALL):
        hints = json.loads(re.findall(r'class="hints">(.*?)</script>', figure, re.DOTALL)[0])
        assert {int(number) for number in re.findall(r'data-h="(\d+)"', figure)} == set(range(len(hints)))


@pytest.mark.parametrize("name", PAGES)
def test_every_figure_is_well_formed(pages: dict[str, str], name: str) -> None:
    drawings = re.findall(r"<svg.*?</svg>", pages[name], re.DOTALL)
    for drawing in drawings:
        root = ElementTree.fromstring(drawing)
        _, _, width, height = map(float, root.attrib["viewBox"].split())
        for text in root.iter("{http://www.w3.org/2000/svg}text"):
            assert 0 <= float(text.attrib["x"]) <= width and 0 < float(text.attrib["y"]) <= height, text.text


def test_numbers_carry_their_source_and_interval(pages: dict[str, str]) -> None:
    titles = [attributes.get("title") or "" for tag, attributes in Elements(pages["one"]).tags if tag == "td"]
    # 402 ms with the interval of the example, -1.5 % and +2 %
    assert "402 ms, measured (a clock or sensor); 95 % interval 396 ms to 410 ms" in titles
    assert "missing: no operation was counted in this phase" in titles


def test_verdict_remedies_and_times_stand_on_top_and_all_else_below(pages: dict[str, str]) -> None:
    elements = Elements(pages["one"])
    text = "".join(elements.texts)
    order = [
        text.index(said)
        for said in (
            "Compute-bound in the convolutions", "part of the step ", "What to try",
            "with --try Sonda tries them", "--channels-last", "1.12x (measured, ±2 %)", "time of a step",
            "Where the time goes", "of its roof", "Then memory-bound", "Phases of a step",
        )
    ]  # fmt: skip
    assert order == sorted(order)
    chips = [attributes for tag, attributes in elements.tags if tag == "li" and "title" in attributes]
    # A reader without a mouse reaches them too.
    assert [(one["title"], one["tabindex"]) for one in chips] == [
        ("0.710, derived (arithmetic on other metrics)", "0"),
        ("0.790, derived (arithmetic on other metrics)", "0"),
        ("2.30 GB, nominal (from the algorithm's formula)", "0"),
    ]


def test_a_page_has_no_panel_with_nothing_in_it(pages: dict[str, str]) -> None:
    text = "".join(Elements(pages["one step, nothing counted"]).texts)
    assert "Nothing to draw" not in text and "Roofline" not in text


def test_phases_over_steps_are_the_recorded_times_and_warm_up_is_shaded() -> None:
    part = examples.training_part(steps=4, warmup=2)
    figure = figures.phases_over_steps(part)
    assert figure is not None
    forward = boxes_of(figure)["forward"]
    assert [(left + right) / 2 for left, right, _, _ in forward.places] == [1, 2, 3, 4, 5, 6]
    # ms or s, whichever the axis says
    factor = {"time, ms": 1e6, "time, s": 1e9}[figure.fields[0].y.title]
    assert [height * factor for height in heights(forward)] == pytest.approx(list(part.phase_steps["forward"]))
    (shade,) = (mark for mark in figure.marks if isinstance(mark, Shade))
    assert (shade.first, shade.last) == (0.5, 2.5)


def test_a_long_warm_up_leaves_room_for_the_other_steps() -> None:
    """A first step of 100 times the others goes on above the picture: three times the longest timed step."""
    durations, phases = (1e9, 1e7, 1e7, 1e7), {"forward": (1e9, 1e7, 1e7, 1e7)}
    part = replace(examples.training_part(), durations=durations, phase_steps=phases, warmup=1)
    figure = figures.phases_over_steps(part)
    assert figure is not None and figure.fields[0].y.ends == (0, pytest.approx(1.15 * 30))
    assert figures.steps_caption(part).endswith("those of warm-up go on above the picture.")


def test_long_runs_are_drawn_as_means_of_neighbours() -> None:
    count = 10_001
    times = {"forward": tuple(float(i) for i in range(count))}
    part = replace(examples.training_part(), durations=(1e6,) * count, phase_steps=times)
    figure = figures.phases_over_steps(part)
    assert figure is not None
    (area,) = (mark for mark in figure.marks if isinstance(mark, Area))
    assert len(area.across) == len(area.high) == 770  # groups of 13
    assert (area.across[0], area.across[-1]) == (7.0, 9999.5)
    assert area.high[0] == pytest.approx(6e-6), "the mean of 0 to 12 ns, in ms"
    assert figure.x.title == "step (means of 13 neighbours)"


@pytest.mark.parametrize(
    ("count", "warmup", "said"),
    [
        (200, 3, "One bar for every step, in the order in which they ran; shaded ones are warm-up and count nowhere."),
        (200, 0, "One bar for every step, in the order in which they ran."),
        (201, 0, "Every step as a part of the area, in the order in which they ran."),
        (10_001, 0, "Every 13 neighbouring steps by their mean, in the order in which they ran."),
    ],
)
def test_the_caption_of_steps_says_how_they_are_drawn(count: int, warmup: int, said: str) -> None:
    times = {"forward": (1e6,) * count}
    part = replace(examples.training_part(), durations=(1e6,) * count, phase_steps=times, warmup=warmup)
    assert figures.steps_caption(part) == said
    figure = figures.phases_over_steps(part)
    assert figure is not None
    assert isinstance(figure.marks[0], Boxes) == ("bar" in said)
    assert any(isinstance(mark, Shade) for mark in figure.marks) == ("shaded" in said)
    assert figure.strips[0].hint.startswith("steps 1 to 13, mean") == ("mean" in said)


def test_a_roofline_without_ceilings_or_with_too_many_layers_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    made = examples.training()
    assert "Lines are the ceilings of this machine" in page_text([made])
    assert "Lines are the ceilings of this machine" not in page_text([replace(made, ceilings={})])
    count = len(figures.roofline_rows(made.parts[0].layers))
    monkeypatch.setattr(figures, "MOST_POINTS", 5)
    assert f"Of {count} layers the picture has the 5 with the most time." in page_text([made])


def test_the_roofline_meets_at_the_ridge_and_points_lie_where_the_numbers_say() -> None:
    row = examples.layer("conv", "Conv2d", 1e6, 1e6, 2e6, 5e7, 1e7, 1e9)
    lines = (("peak", Value(5e10, "FLOP/s", "measured")), ("DRAM", Value(2e10, "B/s", "measured")))
    figure = figures.roofline([row], lines)
    assert figure is not None
    peak, dram, points = series_of(figure)
    assert across(peak)[0] == across(dram)[1] == 2.5  # 50 GFLOP/s over 20 GB/s
    assert upright(peak) == [5e10, 5e10] and upright(dram)[1] == 5e10
    ((left, low), _) = filter(None, dram.points)
    assert low == pytest.approx(left * 2e10)
    assert points.points == ((5.0, 2.5e10),)  # 50 MFLOP over 10 MB, in 2 ms


def test_the_roofline_needs_flops_and_stands_without_ceilings() -> None:
    silent = examples.layer("act", "ReLU", 1e6, 1e6, 2e6, 0.0, 1e7, 1e9)
    assert figures.roofline([silent], ()) is None
    assert figures.roofline([], ()) is None
    alone = figures.roofline([examples.layer("conv", "Conv2d", 1e6, 1e6, 2e6, 5e7, 1e7, 1e9)], ())
    assert alone is not None and len(alone.marks) == 1


def test_what_the_run_knows_is_on_the_page(tmp_path: Path) -> None:
    info = run_info(
        id="7f3a9c21", created="2026-11-15T03:30:12+00:00", status="complete", versions={"torch": "2.13.0"},
        probes=[ProbeState("energy", "dead", "stays at 0", "measure on bare metal")], workload={"name": "<mlp>"},
    )  # fmt: skip
    text = "".join(Elements(page_text([examples.training()], [Run(tmp_path, info)])).texts)
    for known in ("2.13.0", "stays at 0", "measure on bare metal", "<mlp>"):
        assert known in text


def test_a_comparison_stands_on_top() -> None:
    text = "".join(Elements(page_text([examples.training()], comparison=examples.comparison())).texts)
    assert text.index("B is 1.05x faster than A") < text.index("Compute-bound in the convolutions")


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = write_page(tmp_path / "new" / "page.html", [examples.training()])
    assert path.read_text(encoding="utf-8").endswith("</html>\n")
    assert [entry.name for entry in path.parent.iterdir()] == ["page.html"]
    with pytest.raises(SondaError, match="cannot write"):
        write_page(path / "inside.html", [examples.training()])


def test_big_trees_are_folded() -> None:
    part = wide(5000).parts[0]
    tree = layer_icicle(part.layers, measures_of(part))
    assert tree is not None
    assert all(len(slabs) <= 301 for slabs in tree.views.values())
    slabs = [slab for slabs in tree.views.values() for slab in slabs]
    assert len(slabs) <= 1001 and {slab.view for slab in slabs} - {""} == set(tree.views) - {""}
    # The slowest ones are in sight, and what is left out is counted.
    assert any(slab.label == "l4999 Linear" for slab in tree.slabs)
    last = [slab for slab in slabs if slab.label.endswith("smaller layers")][-1]
    assert last.hint.endswith("the table has them")
    shown = sum(slab.label.endswith("Linear") for slab in slabs)
    assert shown + int(last.label.split()[0].replace(",", "")) == 5000


def test_several_targets_share_one_roofline() -> None:
    row = examples.layer("conv", "Conv2d", 1e6, 1e6, 2e6, 5e7, 1e7, 1e9)
    slow = (("peak", Value(5e10, "FLOP/s", "measured")), ("DRAM", Value(2e10, "B/s", "measured")))
    fast = (("peak", Value(2e11, "FLOP/s", "measured")), ("DRAM", Value(4e10, "B/s", "measured")))
    figure = rooflines([RooflineTarget("cpu/1", [row], slow), RooflineTarget("cpu/2", [row, row], fast)])
    roofs = [series for series in series_of(figure) if series.line]
    assert [name_of(roof) for roof in roofs] == [
        "cpu/1: peak 50.0 GFLOP/s", "cpu/1: DRAM 20.0 GB/s", "cpu/2: peak 200 GFLOP/s", "cpu/2: DRAM 40.0 GB/s",
    ]  # fmt: skip
    one, two = (series for series in series_of(figure) if series.symbols)
    assert (one.points, len(two.points)) == (((5.0, 2.5e10),), 2)  # 50 MFLOP over 10 MB, in 2 ms
    # Colours join marks and ceilings of a target, shapes tell targets apart without them.
    assert roofs[0].color == roofs[1].color == one.color != two.color
    assert one.symbols != two.symbols


def test_both_sides_of_a_comparison_keep_their_colours() -> None:
    """Of two runs each: the second of A looks like the first, and B has the colour of its bars."""
    row = examples.layer("conv", "Conv2d", 1e6, 1e6, 2e6, 5e7, 1e7, 1e9)
    figure = rooflines([RooflineTarget(f"run {at}", [row], (), side) for at, side in enumerate((0, 0, 1, 1))])
    colors = [series.color for series in series_of(figure) if series.symbols]
    step = Value(1e6, "ns", "measured")
    same = ComparedRow("step", "", step, step, Value(1.0, "1", "derived"), False, "not significant")
    bars = paired_bars(PartComparison("train", same, (), (), (), ()))
    assert bars is not None
    a, b = (boxes.color for boxes in boxes_of(bars).values())
    assert colors == [a, a, b, b] and a != b


def test_ceilings_of_one_machine_are_drawn_once() -> None:
    row = examples.layer("conv", "Conv2d", 1e6, 1e6, 2e6, 5e7, 1e7, 1e9)
    lines = (("peak", Value(5e10, "FLOP/s", "measured")), ("DRAM", Value(2e10, "B/s", "measured")))
    other = (("peak", Value(2e11, "FLOP/s", "measured")), ("DRAM", Value(4e10, "B/s", "measured")))
    same = [RooflineTarget("cpu/1", [row], lines), RooflineTarget("cpu/2", [row], lines)]
    for targets, names in (
        (same, ["peak 50.0 GFLOP/s", "DRAM 20.0 GB/s"]),
        ([*same, RooflineTarget("far", [row], other)], [
            "cpu/1, cpu/2: peak 50.0 GFLOP/s", "cpu/1, cpu/2: DRAM 20.0 GB/s", "far: peak 200 GFLOP/s",
            "far: DRAM 40.0 GB/s",
        ]),
    ):  # fmt: skip
        figure = rooflines(targets)
        roofs = [series for series in series_of(figure) if series.line]
        assert [name_of(roof) for roof in roofs] == names
        assert [bool(roof.color) for roof in roofs] == [False, False, True, True][: len(roofs)], "shared ones are ink"


def test_targets_without_layers_need_no_shared_roofline() -> None:
    assert targets_panels([examples.training(), examples.inference()], ["cpu/1", "cpu/2"]) == []
    both = targets_panels([examples.training(), examples.training("0badcafe")], ["cpu/1", "<cpu>"])
    html = render_section("Rooflines", "targets", both).html
    assert "&lt;cpu&gt;" in html and "<cpu>" not in html


def test_cycles_and_energy_are_widths_where_a_run_has_them() -> None:
    """Two layers on an accelerator without a clock: no time, so cycles come first."""
    part = simulated_part({"a": (300.0, 2e-6), "b": (100.0, 6e-6)})
    assert [(one.name, one.unit, one.source) for one in measures_of(part)[:2]] == [
        ("cycles", "cycle", "simulated"), ("energy", "J", "simulated"),
    ]  # fmt: skip
    tree = layer_icicle(part.layers, measures_of(part))
    assert tree is not None and tree.measures[:2] == ("cycles", "energy")
    assert [[width for _, width in slab.spans[:2]] for slab in tree.slabs] == [
        [1.0, 1.0], [pytest.approx(0.75), pytest.approx(0.25)], [pytest.approx(0.25), pytest.approx(0.75)],
    ]  # fmt: skip


def test_fields_of_the_tree_are_as_wide_as_the_table_says_also_where_steps_differ() -> None:
    """A block that runs in few steps: medians of what is inside do not add up to its own, and do not need to."""
    made = [("", 40.0), ("often", 30.0), ("seldom", 7.1), ("seldom.a", 6.0)]
    step = 100e6
    rows = tuple(
        examples.layer(path, "Block", share * 1e6, 0.0, 0.0 if path != "seldom.a" else 30e6, 1e6, 1e6, step,
                       leaf=path == "seldom.a")
        for path, share in made
    )  # fmt: skip
    tree = layer_icicle(rows, measures_of(replace(examples.training_part(), layers=rows)))
    assert tree is not None and tree.measures[0] == "time"
    widths = {slab.label.partition(" ")[0]: slab.spans[0][1] for slab in tree.slabs}
    assert {name: round(100 * width, 1) for name, width in widths.items()} == {
        "Block": 40.0, "often": 30.0, "seldom": 7.1, "a": 6.0, "in": 60.0,
    }  # fmt: skip
    table = layer_table(rows, "layer")
    shown = [column.name for column in table.columns].index("%")
    assert [row[shown].text for row in table.rows] == ["40.0", "30.0", "7.1", "6.0"]
    assert [slab.texts[0] for slab in tree.slabs[:4]] == ["40.0 %", "30.0 %", "7.1 %", "6.0 %"]


def simulated_part(layers: dict[str, tuple[float, float]]) -> PartSummary:
    """Layers by name with their cycles and joules, in a model that has none of its own."""
    none = Value(None, "ns", "simulated", reason="no clock")

    def row(path: str, cycles: float, joules: float) -> LayerRow:
        made = examples.layer(path, "Linear", 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, leaf=bool(path))
        whole = Value(cycles, "cycle", "simulated")
        nothing = Value(0.0, "1", "simulated")
        own = SimulatedCost(whole, 0.5, nothing, nothing, nothing, nothing, {"compute": whole}, "compute",
                        Value(joules, "J", "simulated"))  # fmt: skip
        return replace(made, own=none, simulated=own, own_simulated=own if path else None)

    rows = [row("", 400.0, 8e-6), *(row(path, *found) for path, found in layers.items())]
    return replace(examples.training_part(), layers=tuple(rows), simulated=rows[0].simulated)
