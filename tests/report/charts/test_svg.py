"""Figures as SVG: bars as long as their numbers, hints that both widths share, names that a phone has room for."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree

import pytest

from charts import boxes_of, lengths
from sonda.report.charts.chart import (
    Axis,
    BarPart,
    Boxes,
    Chart,
    ColorScale,
    Guide,
    Plot,
    Points,
    Strip,
    grouped_bars,
    heat_map,
    stacked_bars,
    stacked_columns,
)
from sonda.report.charts.hints import Hints
from sonda.report.charts.svg import NARROW, WIDE, draw

SVG = "{http://www.w3.org/2000/svg}"
NAMES = ["a short one", "a name that is much too long to stand beside a picture"]
PARTS = [
    BarPart("forward", "#56b4e9", [1.0, 3.0], ["forward of a", "forward of b"]),
    BarPart("backward", "#0072b2", [3.0, None], ["backward of a", ""], [True, False]),
]


def drawn(chart: Chart, width: int = WIDE, hints: Hints | None = None) -> ElementTree.Element:
    return ElementTree.fromstring(draw(chart, width, hints or Hints(), "made"))


def texts(root: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in root.iter(f"{SVG}text")]


def marks(root: ElementTree.Element) -> Iterator[ElementTree.Element]:
    return (element for element in root.iter() if "data-h" in element.attrib)


def test_bars_are_as_long_as_their_numbers() -> None:
    root = drawn(stacked_bars(NAMES, PARTS, Axis("ms", ends=(0, 4))))
    wide = [float(mark.attrib["width"]) for mark in marks(root)]
    # 1, 3 and 3 of 4 ms; a part that is missing has no bar.
    assert wide[1] == pytest.approx(3 * wide[0], abs=0.2) and wide[2] == pytest.approx(wide[1], abs=0.2)
    first, _, second = marks(root)
    assert float(second.attrib["x"]) == pytest.approx(float(first.attrib["x"]) + wide[0], abs=0.1), "one upon the other"
    striped = [rect for rect in root.iter(f"{SVG}rect") if rect.attrib["fill"].startswith("url(#made-hatch")]
    hatched = [rect for rect in striped if rect.get("pointer-events") == "none"]
    assert len(hatched) == 1 and hatched[0].attrib["width"] == second.attrib["width"], "only the guess"


def test_bars_that_are_parts_of_100_are_equally_long() -> None:
    boxes = boxes_of(stacked_bars(NAMES, PARTS, Axis("%"), norm=True))
    assert lengths(boxes["forward"]) == {0: 25, 1: 100} and lengths(boxes["backward"]) == {0: 75}


def test_bars_of_a_group_stand_below_each_other_within_their_place() -> None:
    boxes = boxes_of(grouped_bars(NAMES, PARTS, Axis("ms")))
    (a_low, a_high), (b_low, b_high) = (boxes[name].places[0][2:] for name in ("forward", "backward"))
    assert -0.5 < a_low < a_high <= b_low < b_high < 0.5


def test_columns_without_a_height_leave_a_gap() -> None:
    forward, backward = stacked_columns([(0, 1), (1, 2)], [("a", "#000000", [1.0, None]), ("b", "#ffffff", [2.0, 3.0])])
    assert isinstance(forward, Boxes) and isinstance(backward, Boxes)
    assert forward.places == ((0, 1, 0, 1),) and backward.places == ((0, 1, 1, 3), (1, 2, 0, 3))


def test_both_widths_tell_the_same_and_every_hint_stands_once() -> None:
    hints = Hints()
    chart = stacked_bars(NAMES, PARTS, Axis("ms"))
    numbers = [[mark.attrib["data-h"] for mark in marks(drawn(chart, width, hints))] for width in (WIDE, NARROW)]
    assert numbers[0] == numbers[1] == ["0", "1", "2"]
    assert list(hints.numbers) == ["forward of a", "forward of b", "backward of a"]


def test_long_names_stand_above_their_bars_on_a_phone_and_are_cut_beside_them() -> None:
    chart = stacked_bars(NAMES, PARTS, Axis("ms"))
    assert NAMES[1] not in texts(drawn(chart)) and any(text.endswith("…") for text in texts(drawn(chart)))
    narrow = drawn(chart, NARROW)
    left = min(float(mark.attrib["x"]) for mark in marks(narrow))
    assert left < 10, "the bars have the whole width"
    name = next(text for text in narrow.iter(f"{SVG}text") if (text.text or "").startswith("a name"))
    _, second, _ = marks(narrow)
    assert float(name.attrib["y"]) < float(second.attrib["y"])


def test_a_map_has_a_field_for_what_is_known_in_the_colour_of_its_scale() -> None:
    scale = ColorScale("ms", ("#000000", "#ffffff"), 0.0, 2.0)
    assert [scale.color(value) for value in (-1.0, 0.0, 1.0, 2.0, 9.0)] == [
        "#000000", "#000000", "#808080", "#ffffff", "#ffffff",
    ]  # fmt: skip
    chart = heat_map(["r0", "r1"], ["c0", "c1"], [[0.0, None], [float("nan"), 2.0]], scale, [["a", ""], ["", "b"]])
    assert [mark.attrib["fill"] for mark in marks(drawn(chart))] == ["#000000", "#ffffff"]


def test_a_gap_in_a_series_breaks_its_line() -> None:
    series = Points("a", "#000000", ((0, 1), (1, 2), None, (3, 1), (4, 2)), "solid")
    root = drawn(Chart(Axis(), (Plot(Axis(), (series,)),), 100))
    (line,) = (path for path in root.iter(f"{SVG}path") if path.get("fill") == "none")
    assert (line.attrib["d"].count("M"), line.attrib["d"].count("L")) == (2, 2)


def test_a_strip_covers_all_plots_and_a_guide_only_its_own() -> None:
    plots = (Plot(Axis("one", ends=(0, 1)), (Guide(1.0),)), Plot(Axis("two", ends=(0, 1)), ()))
    root = drawn(Chart(Axis(ends=(0, 2)), plots, 200, (Strip(0, 1, "first"),)))
    (strip,) = marks(root)
    (guide,) = (path for path in root.iter(f"{SVG}path") if path.get("stroke-width") == "1.4")
    top, bottom = (float(end) for end in guide.attrib["d"].split()[1].split("V"))
    assert bottom - top == pytest.approx(100, abs=0.2) and float(strip.attrib["height"]) > 200


def test_names_beside_bars_and_words_at_a_line_are_inside_of_the_picture() -> None:
    """An m of DejaVu Sans, the widest font of common systems, is 0.974 em; `bound` is 3.15 em."""
    name = "m" * 20
    root = drawn(stacked_bars([name, "b"], PARTS[:1], Axis("ms", ends=(0, 4))))
    (label,) = (text for text in root.iter(f"{SVG}text") if text.text == name)
    assert float(label.attrib["x"]) >= 20 * 0.974 * 12
    for width in (WIDE, NARROW):
        for side, place, before in (("right", 4.0, 0.0), ("left", 0.0, 1.0), ("middle", 4.0, 0.5)):
            field = Plot(Axis("queries"), (Guide(place, "bound", side=side),))
            root = drawn(Chart(Axis("ms", ends=(0, 4)), (field,), 100), width)
            (word,) = (text for text in root.iter(f"{SVG}text") if text.text == "bound")
            left = float(word.attrib["x"]) - before * 3.15 * 12
            assert left >= 0 and left + 3.15 * 12 <= width, (width, side)


def test_names_from_outside_are_text() -> None:
    evil = "</svg><script>alert(1)</script>"
    root = drawn(stacked_bars([evil], [BarPart(evil, "#000000", [1.0], [evil])], Axis(evil)))
    assert not list(root.iter(f"{SVG}script")) and any("script" in text for text in texts(root))
