"""The page: one file, nothing outside of it, nothing in a name that acts, and figures that a real browser draws."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import report_examples as examples
from plain_runs import run_info
from sonda.analysis.summary import LayerRow, PartSummary, SimulatedCost, Summary, Value
from sonda.record.errors import SondaError
from sonda.record.run import ProbeState, Run
from sonda.report import figures
from sonda.report.page import page_text, write_page
from sonda.report.section import render_section
from sonda.report.views.compare.rooflines import RooflineTarget, rooflines, targets_panels
from sonda.report.views.steps.layers import layer_icicle, measures_of


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


def test_plotly_may_not_offer_to_upload_figures(pages: dict[str, str]) -> None:
    own = Elements(pages["one"]).scripts[-1]
    assert "showSendToCloud: false" in own
    assert "sendChartToCloud" not in own


def test_names_that_would_act_are_text(pages: dict[str, str]) -> None:
    elements = Elements(pages["hostile"])
    tags = {tag for tag, _ in elements.tags}
    assert not tags & {"img", "i", "b", "u", "s"}
    assert len(elements.scripts) == 4  # data, tables, Plotly, figures
    for _, attributes in elements.tags:
        assert not any(name.startswith("on") for name in attributes)
    text = "".join(elements.texts)
    for name in ("</script><script>alert(1)</script>", "<b>bold</b>", "<script>alert(4)</script> [red]", "<i>forward"):
        assert name in text
    assert "\x1b" not in pages["hostile"]


def test_the_data_of_the_figures_is_json_with_escaped_labels(pages: dict[str, str]) -> None:
    data = json.loads(Elements(pages["hostile"]).scripts[0])
    tree = next(figure for figure in data if "measures" in figure)
    labels = tree["measures"][0]["views"][""]["labels"]
    assert "&lt;b&gt;bold&lt;/b&gt;" in labels
    assert not [text for figure in data for text in _texts(figure) if re.search(r"<(?!/?b>|br>|extra>|/extra>)", text)]


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [text for item in items for text in _texts(item)]


@pytest.mark.parametrize("name", PAGES)
def test_every_figure_is_one_that_plotly_knows(pages: dict[str, str], name: str) -> None:
    import plotly.graph_objects as go

    for figure in json.loads(Elements(pages[name]).scripts[0]):
        go.Figure({"data": figure["data"], "layout": figure["layout"]})


def test_numbers_carry_their_source_and_interval(pages: dict[str, str]) -> None:
    titles = [attributes.get("title") or "" for tag, attributes in Elements(pages["one"]).tags if tag == "td"]
    # 402 ms with the interval of the example, -1.5 % and +2 %
    assert "402 ms, measured (a clock or sensor); 95 % interval 396 ms to 410 ms" in titles
    assert "missing: no operation was counted in this phase" in titles


def test_the_verdict_stands_on_top_with_its_numbers_and_what_to_try(pages: dict[str, str]) -> None:
    elements = Elements(pages["one"])
    text = "".join(elements.texts)
    order = [
        text.index(said)
        for said in (
            "Compute-bound in the convolutions", "part of the step ", "Then memory-bound", "What to try",
            "with --try Sonda tries them", "--channels-last", "1.12x (measured, ±2 %)", "time of a step",
            "Phases of a step",
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


def test_missing_figures_say_why(pages: dict[str, str]) -> None:
    text = "".join(Elements(pages["one step, nothing counted"]).texts)
    assert "Nothing to draw: no layer was seen." in text
    assert "Nothing to draw: no layer has FLOPs, bytes and time." in text


def test_phases_over_steps_are_the_recorded_times_and_warm_up_is_shaded() -> None:
    part = examples.training_part(steps=4, warmup=2)
    figure = figures.phases_over_steps(part)
    assert figure is not None
    forward = next(trace for trace in figure["data"] if trace["name"] == "forward")
    assert forward["x"] == [1, 2, 3, 4, 5, 6]
    # ms or s, whichever the axis says
    factor = {"time, ms": 1e6, "time, s": 1e9}[figure["layout"]["yaxis"]["title"]["text"]]
    assert [y * factor for y in forward["y"]] == pytest.approx(list(part.phase_steps["forward"]))
    shade = figure["layout"]["shapes"][0]
    assert (shade["x0"], shade["x1"]) == (0.5, 2.5)


def test_long_runs_are_drawn_as_means_of_neighbours() -> None:
    count = 10_001
    times = {"forward": tuple(float(i) for i in range(count))}
    part = replace(examples.training_part(), durations=(1e6,) * count, phase_steps=times)
    figure = figures.phases_over_steps(part)
    assert figure is not None
    trace = figure["data"][0]
    assert trace["type"] == "scatter"
    assert len(trace["x"]) == len(trace["y"]) == 3334  # groups of 3
    assert (trace["x"][0], trace["x"][-1]) == (2.0, 10_000.5)
    assert figure["layout"]["xaxis"]["title"]["text"] == "step (means of 3 neighbours)"


@pytest.mark.parametrize(
    ("count", "warmup", "said"),
    [
        (200, 3, "One bar for every step, in the order in which they ran; shaded ones are warm-up and count nowhere."),
        (200, 0, "One bar for every step, in the order in which they ran."),
        (201, 0, "Every step as a part of the area, in the order in which they ran."),
        (10_001, 0, "Every 3 neighbouring steps by their mean, in the order in which they ran."),
    ],
)
def test_the_caption_of_steps_says_how_they_are_drawn(count: int, warmup: int, said: str) -> None:
    times = {"forward": (1e6,) * count}
    part = replace(examples.training_part(), durations=(1e6,) * count, phase_steps=times, warmup=warmup)
    assert figures.steps_caption(part) == said
    figure = figures.phases_over_steps(part)
    assert figure is not None
    assert (figure["data"][0]["type"] == "bar") == ("bar" in said)
    assert ("shapes" in figure["layout"]) == ("shaded" in said)
    assert ("mean of 3 steps" in figure["data"][0]["hovertemplate"]) == ("mean" in said)


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
    peak, dram, points = figure["data"]
    assert peak["x"][0] == dram["x"][1] == 2.5  # 50 GFLOP/s over 20 GB/s
    assert peak["y"] == [5e10, 5e10] and dram["y"][1] == 5e10
    assert dram["y"][0] == pytest.approx(dram["x"][0] * 2e10)
    assert points["x"] == [5.0]  # 50 MFLOP over 10 MB
    assert points["y"] == [2.5e10]  # 50 MFLOP in 2 ms


def test_the_roofline_needs_flops_and_stands_without_ceilings() -> None:
    silent = examples.layer("act", "ReLU", 1e6, 1e6, 2e6, 0.0, 1e7, 1e9)
    assert figures.roofline([silent], ()) is None
    assert figures.roofline([], ()) is None
    alone = figures.roofline([examples.layer("conv", "Conv2d", 1e6, 1e6, 2e6, 5e7, 1e7, 1e9)], ())
    assert alone is not None and len(alone["data"]) == 1


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
    tree = layer_icicle(part.layers, measures_of(part), {})
    assert tree is not None
    for measure in tree["measures"]:
        assert all(len(view["ids"]) <= 2000 for view in measure["views"].values())
        assert sum(name.startswith("n") for view in measure["views"].values() for name in view["ids"]) == 5001


def test_several_targets_share_one_roofline() -> None:
    row = examples.layer("conv", "Conv2d", 1e6, 1e6, 2e6, 5e7, 1e7, 1e9)
    slow = (("peak", Value(5e10, "FLOP/s", "measured")), ("DRAM", Value(2e10, "B/s", "measured")))
    fast = (("peak", Value(2e11, "FLOP/s", "measured")), ("DRAM", Value(4e10, "B/s", "measured")))
    figure = rooflines([RooflineTarget("cpu/1", [row], slow), RooflineTarget("cpu/2", [row, row], fast)])
    roofs = [trace for trace in figure["data"] if trace["mode"] == "lines+text"]
    assert [trace["name"] for trace in roofs] == [
        "cpu/1: peak 50.0 GFLOP/s", "cpu/1: DRAM 20.0 GB/s", "cpu/2: peak 200 GFLOP/s", "cpu/2: DRAM 40.0 GB/s",
    ]  # fmt: skip
    one, two = (trace for trace in figure["data"] if trace["mode"] == "markers")
    assert (one["x"], one["y"], len(two["x"])) == ([5.0], [2.5e10], 2)  # 50 MFLOP over 10 MB, in 2 ms
    # Colours join marks and ceilings of a target, shapes tell targets apart without them.
    assert roofs[0]["line"]["color"] == roofs[1]["line"]["color"] == one["marker"]["color"] != two["marker"]["color"]
    assert one["marker"]["symbol"] != two["marker"]["symbol"]


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
        roofs = [trace for trace in figure["data"] if trace["mode"] == "lines+text"]
        assert [trace["name"] for trace in roofs] == names
        assert [trace["meta"] for trace in roofs] == ["ceiling", "ceiling", "target", "target"][: len(roofs)]
        assert all(trace["name"] in trace["text"] for trace in roofs)


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
    tree = layer_icicle(part.layers, measures_of(part), {0: -1, 1: 0, 2: 1})
    assert tree is not None
    assert [measure["hatched"] for measure in tree["measures"][:2]] == [False, False]
    cycles, energy = (measure["views"][""] for measure in tree["measures"][:2])
    assert (cycles["values"], energy["values"]) == ([0.0, 300.0, 100.0], [0.0, 2e-6, 6e-6])
    assert cycles["rows"] == [-1, 0, 1]


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
