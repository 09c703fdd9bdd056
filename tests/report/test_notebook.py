"""Runs in a notebook: a real one is run cell by cell, and what its cells display is looked at."""

from __future__ import annotations

import importlib.util
import json
import types
from itertools import takewhile
from typing import Any
from xml.etree import ElementTree

import pytest

import report_examples as examples
import sonda
from builders import stepped, trained
from interference_cases import experiment, known
from notebook_cells import displayed, run_notebook
from places import REPOSITORY
from simulated_examples import CLOCKED, LAYER, SMALL_LAYER, nested_run
from sonda.analysis.corun.interference import interference
from sonda.api import Profile, compare
from sonda.record.errors import SondaError
from sonda.report.charts.chart import Axis, Chart, Plot, Points
from sonda.report.charts.svg import LETTER, WIDE, standalone
from sonda.report.display import Layers, StepPhases, display_interference
from sonda.report.palette import SYMBOLS
from sonda.report.words import describe

NOTEBOOK = REPOSITORY / "examples" / "07_notebook" / "training.ipynb"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def shown(tmp_path_factory) -> list[dict[str, Any]]:
    """What the notebook of the examples displays."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SONDA_HOME", str(tmp_path_factory.mktemp("notebook")))
        return run_notebook(NOTEBOOK)


@pytest.mark.slow
def test_a_run_shows_itself(shown):
    html = shown[2]["text/html"]
    assert "backward" in html and "Linear" in html and "<script" not in html
    assert "forward" in shown[2]["text/plain"]


@pytest.mark.slow
def test_its_layers_are_a_table_with_units_and_sources(shown):
    assert "<table" in shown[3]["text/html"]
    head, *rows = shown[3]["text/plain"].splitlines()
    assert head.split()[:3] == ["layer", "type", "forward"]
    table = takewhile(lambda row: not row.startswith("–"), rows)  # below it, why something is missing
    names = [tuple(row.split()[:2]) for row in table]
    assert names == [("(Sequential)", "Sequential"), ("0", "Linear"), ("1", "ReLU"), ("2", "Linear")]
    assert "flops: double" in shown[4]["text/plain"]


@pytest.mark.slow
def test_its_roofline_is_a_drawing(shown):
    bundle = shown[5]
    assert {"image/svg+xml", "text/plain"} <= bundle.keys()
    drawing = ElementTree.fromstring(bundle["image/svg+xml"])
    marks = [one for one in drawing.iter() if one.find(f"{SVG}title") is not None]
    assert any("Linear" in (one.findtext(f"{SVG}title") or "") for one in marks)


def test_the_notebook_is_kept_without_outputs():
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert all(not cell.get("outputs") for cell in cells), "outputs would be of the machine that made them"


def test_layers_as_arrow_have_the_numbers_of_the_run():
    layers = Profile(trained()).layers
    table = layers.to_arrow()
    rows = {row["path"]: row for row in table.to_pylist()}
    # The convolution of the built run: 25 ms forward and 35 ms backward.
    assert rows["conv"]["forward"] == 25e6 and rows["conv"]["backward"] == 35e6
    about = table.schema.field("forward").metadata
    assert about == {b"unit": b"ns", b"source": b"measured"}
    assert len(layers) == table.num_rows and [row.path for row in layers] == table["path"].to_pylist()


def test_spans_as_arrow_are_those_of_the_run():
    profile = Profile(stepped([10.0, 20.0]))
    table = profile.to_arrow()
    steps = [row["duration"] for row in table.to_pylist() if row["kind"] == "step"]
    assert steps == [10_000_000, 20_000_000]


def test_without_pandas_it_is_said_in_a_line(monkeypatch):
    usual = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "pandas" else usual(name))
    for one in (Profile(stepped([10.0])), Profile(trained()).layers):
        with pytest.raises(SondaError, match=r"pandas is not installed; pip install pandas, or use \.to_arrow\(\)"):
            one.to_pandas()


@pytest.mark.parametrize("what", ["spans", "layers"])
def test_pandas_is_given_the_arrow_table_and_the_units_that_it_drops(monkeypatch, what):
    """Without pandas: what it would be given is a table of its own kind, whole, and what it forgets is put back."""
    import pyarrow

    given = []
    monkeypatch.setattr("importlib.util.find_spec", lambda name: types.SimpleNamespace(name=name))

    class Handed:
        """A table whose conversion can be seen: Arrow's own cannot be replaced."""

        def __init__(self, table):
            self.schema, self._table = table.schema, table

        def to_pandas(self):
            given.append(self._table)
            return types.SimpleNamespace(attrs={})

    profile = Profile(trained())
    one = profile.layers if what == "layers" else profile
    table = one.to_arrow()
    monkeypatch.setattr(type(one), "to_arrow", lambda self: Handed(table))
    frame = one.to_pandas()
    assert isinstance(given[0], pyarrow.Table) and given[0].equals(table)
    name, unit = ("forward", "ns") if what == "layers" else ("flops:nominal", "FLOP")
    assert frame.attrs["unit"][name] == unit
    assert frame.attrs["source"].get("forward") == ("measured" if what == "layers" else None)  # of spans: in the name


def test_pandas_has_every_span_with_words_numbers_and_gaps():
    pytest.importorskip("pandas")
    run = trained()
    frame = Profile(run).to_pandas()
    assert len(frame) == len(run.spans) and list(frame["kind"]) == run.spans.words("kind").decoded().tolist()
    assert str(frame["kind"].dtype) == "category"  # a word is kept once
    flops, steps = frame["flops:nominal"], frame["kind"] == "step"
    assert flops[steps].isna().all() and flops.notna().any(), "what was not counted is missing, and not 0"
    assert frame["duration"].dtype == "int64" and frame.attrs["unit"]["flops:nominal"] == "FLOP"
    layers = Profile(run).layers.to_pandas().set_index("path")
    # The convolution of the built run: 25 ms forward and 35 ms backward.
    assert layers.loc["conv", "forward"] == 25e6 and layers.loc["conv", "backward"] == 35e6
    assert layers["activations"].isna().any() and layers["leaf"].dtype == bool


def test_layers_of_a_simulated_machine_show_those_that_ran_on_it(tmp_path):
    layers = Profile(nested_run(CLOCKED, tmp_path)).layers
    shown = displayed(layers)
    head, *rows = shown["text/plain"].splitlines()
    # The block only holds its layer, and the activation runs on the host.
    assert head.split()[0] == "layer" and [row.split()[0] for row in rows[:2]] == ["(Model)", "block.layer"]
    assert not any(row.startswith(("block ", "act ")) for row in rows)
    assert "2,712" in shown["text/plain"] and "2,712" in shown["text/html"]
    assert [row.path for row in layers] == ["", "block", "block.layer", "act"]
    assert layers.to_arrow().column("cycles").to_pylist() == [2 * LAYER + SMALL_LAYER, 2 * LAYER, 2 * LAYER, None]


def test_a_block_that_has_not_ended_says_so():
    assert repr(Profile()) == "<profile of a block that has not ended>" and Profile()._repr_html_() is None


def test_what_sonda_offers_is_what_can_be_used():
    assert dir(sonda) == sorted(sonda.__all__)
    assert all(getattr(sonda, name) is not None for name in dir(sonda))
    assert [name for name in dir(sonda) if name.startswith("_")] == ["__version__"]


def test_phases_show_themselves_and_are_tables():
    phases = Profile(trained()).phases
    # The built step of 120 ms: data 5, forward 40, backward 60, optimizer 10, and 5 that no phase covers.
    names = ["data", "forward", "backward", "optimizer", "other"]
    assert [row.name for row in phases] == names and phases[1].cost.time.value == 40e6 and len(phases[1:]) == 4
    table = phases.to_arrow()
    assert table.column("name").to_pylist() == names
    assert table.column("time").to_pylist() == [5e6, 40e6, 60e6, 10e6, 5e6]
    assert table.schema.field("time").metadata == {b"unit": b"ns", b"source": b"measured"}
    assert phases.to_pandas().set_index("name").loc["backward", "time"] == 60e6
    shown = displayed(phases)
    assert shown["text/plain"].split()[:2] == ["phase", "ms"] and shown["text/html"].count("<table") == 1
    assert repr(StepPhases(None)) == "<no phase was seen>" and StepPhases(None).to_arrow().num_rows == 0


@pytest.mark.parametrize(("kind", "words"), [(StepPhases, "no phase was seen"), (Layers, "no layer was seen")])
def test_a_run_without_steps_says_so_in_a_notebook(kind, words):
    rows = kind(None)
    shown = displayed(rows)
    assert words in shown["text/plain"] and words in shown["text/html"]
    assert "<table" not in shown["text/html"]


def test_phases_of_a_simulated_machine_show_their_cycles(tmp_path):
    phases = Profile(nested_run(CLOCKED, tmp_path)).phases
    assert phases.to_arrow().column("cycles").to_pylist() == [2 * LAYER + SMALL_LAYER]
    assert displayed(phases)["text/plain"].split()[:2] == ["phase", "cycles"]


def test_a_comparison_shows_itself_and_is_one(tmp_path):
    slow, fast = Profile(trained(id="a1")), Profile(trained([0.5] * 8, id="b2"))
    found = compare(slow, fast, store=tmp_path)
    shown = displayed(found)
    assert found.parts[0].step.text == "2.00x faster" and found.check(0.05).outcome == "within"
    assert "B is 2.00x faster than A (95 %): 60.0 ms per step instead of 120 ms" in shown["text/plain"]
    assert "B is 2.00x faster than A" in shown["text/html"] and shown["text/html"].count("<table") >= 1
    assert "<script" not in shown["text/html"] and "\x1b" not in shown["text/plain"]


def test_programs_side_by_side_show_themselves(tmp_path):
    found = display_interference(interference(experiment(tmp_path, known)))
    shown = displayed(found)
    assert describe(found.finding) in shown["text/html"] and shown["text/html"].count("<table") >= 1
    assert "weighted" in shown["text/plain"] and "<script" not in shown["text/html"]
    assert found.together.slowdowns["b"].value == 4  # a step of 20 ms alone takes it 80 ms


def test_nothing_to_draw_is_said_in_a_line():
    with pytest.raises(SondaError, match="has FLOPs, bytes and time; draw a measured run"):
        Profile(stepped([10.0, 10.0])).roofline()
    empty = Layers(None)
    assert len(empty) == 0 and repr(empty) == "<no layer was seen>" and empty.to_arrow().num_rows == 0


def corners(drawing):
    """The shapes of all marks: corners, or a circle's middle."""
    shapes = [[(float(one.get("cx")), float(one.get("cy")))] for one in drawing.iter(f"{SVG}circle")]
    for one in drawing.iter(f"{SVG}polygon"):
        shapes.append([tuple(map(float, corner.split(","))) for corner in one.get("points").split()])
    return shapes


def test_every_point_and_roof_lies_inside_the_drawing():
    drawing = ElementTree.fromstring(standalone(Profile(trained()).roofline().figure))
    found = corners(drawing)
    assert found
    height = float(drawing.get("height"))
    assert all(0 <= x <= WIDE and 0 <= y <= height for shape in found for x, y in shape)


def test_every_limit_is_drawn_in_a_shape_of_its_own_and_named_inside_the_drawing():
    """Colours are never alone, and eleven names need more than a line."""
    points = tuple(
        Points(
            f"mostly {name}", "#000000", ((10.0, 10.0),), symbols=(symbol,), sizes=(20.0,), hints=(f"mostly {name}",)
        )
        for name, symbol in SYMBOLS.items()
    )
    chart = Chart(Axis(log=True, ends=(1.0, 100.0)), (Plot(Axis(log=True, ends=(1.0, 100.0)), points),), 300)
    drawing = ElementTree.fromstring(standalone(chart))
    marks = [one for one in drawing.iter() if one.find(f"{SVG}title") is not None]
    forms = [(one.tag, one.get("points") or "") for one in marks]
    assert len(marks) == len(set(forms)) == len(SYMBOLS)
    middle = float(marks[0].get("cy") or marks[0].get("points").split(",")[1].split()[0])
    names = [one for one in drawing.iter(f"{SVG}text") if (one.text or "").startswith("mostly")]
    assert len(names) == len(SYMBOLS) and len({one.get("y") for one in names}) > 1
    for one in names:
        assert float(one.get("x")) + LETTER * len(one.text) <= WIDE and 0 < float(one.get("y")) < middle


def test_a_point_stands_where_its_numbers_say():
    point = Points("", "#000000", ((10.0, 100.0), (1.0, 10.0), (100.0, 1000.0)), symbols=("circle",), sizes=(10.0,),
                   hints=("a\nb", "", ""))  # fmt: skip
    figure = Chart(Axis(log=True, ends=(1.0, 100.0)), (Plot(Axis(log=True, ends=(10.0, 1000.0)), (point,)),), 300)
    mark, low, high = ElementTree.fromstring(standalone(figure)).iter(f"{SVG}circle")
    # In the middle between the corners of the field, which is 300 px high.
    for name in ("cx", "cy"):
        assert float(mark.get(name)) == pytest.approx((float(low.get(name)) + float(high.get(name))) / 2, abs=0.1)
    assert float(low.get("cy")) - float(high.get("cy")) == 300 and mark.get("r") == "5"
    assert mark.findtext(f"{SVG}title") == "a\nb"


def test_names_that_are_markup_stay_text():
    profile = Profile(stepped([10.0]))
    profile.__dict__["summary"] = examples.hostile()
    html = displayed(profile.layers)["text/html"]
    assert "<b>bold" not in html and "<img" not in html and "&lt;b&gt;bold&lt;/b&gt;" in html
    ElementTree.fromstring(standalone(profile.roofline().figure))
