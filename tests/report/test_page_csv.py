"""Tables copied from a page: numbers are numbers in a unit that is said, with the ends of their intervals."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

import report_examples as examples
from browser import Browser, browser, needs_browser
from page_examples import many
from sonda.analysis.summary import MODEL, Value
from sonda.report.markup import panel_html, table_html
from sonda.report.page import frame_page, page_text
from sonda.report.quantities import title_with_unit
from sonda.report.section import Section
from sonda.report.table import Cell, Column, build, numbers, percents, words
from sonda.report.views.study.cells import printed_cell, study_cell

__all__ = ["browser"]
TABLE = "run0p0layers"
PRINTED = ({"value": 80.125, "unit": "%"}, {"value": None, "unit": "%", "low": 35.0, "high": 40.0})


def written(folder: Path, text: str) -> Path:
    path = folder / "page.html"
    path.write_text(text, encoding="utf-8")
    return path


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


@pytest.mark.parametrize(
    ("name", "unit", "copied"),
    [
        ("forward ms", "ns", "forward ns"),
        ("ms/step", "ns", "ns/step"),
        ("lost, µs a step", "ns", "lost, ns a step"),
        ("peak memory", "B", "peak memory B"),
        ("GFLOP/s", "FLOP/s", "FLOP/s"),
        ("% of roof", "%", "% of roof"),
        ("mJ", "J", "J"),
        ("slowdown", "1", "slowdown"),
        ("forms", "ns", "forms ns"),
        ("instructions M", "1", "instructions"),
        ("native Mcycles (wall)", "cycle", "native cycle (wall)"),
    ],
)
def test_a_copied_column_is_named_with_the_unit_of_its_numbers(name: str, unit: str, copied: str) -> None:
    assert title_with_unit(name, unit) == copied


@needs_browser
def test_layers_are_copied_with_kept_units_and_both_ends(browser: Browser, tmp_path: Path) -> None:
    browser.open(written(tmp_path, page_text([examples.training()])))
    browser.run("""navigator.clipboard.writeText = (text) => { window.kept = text; return Promise.resolve(); }""")
    browser.click(f".panel:has(#{TABLE}) button.copy")
    rows = read(browser.run("window.kept"))
    assert len(rows) == 77  # all layers, folded or not, with their whole paths
    conv = next(row for row in rows if row["layer"] == "layer1.0.conv")
    assert conv["type"] == "Conv2d"
    # 12.1 ms forward and 24.6 ms backward, and the interval of the example, -2 % and +3 %.
    for name, size in (("forward ns", 12.1e6), ("backward ns", 24.6e6)):
        found = [float(conv[key]) for key in (name, f"{name} low", f"{name} high")]
        assert found == pytest.approx([size, 0.98 * size, 1.03 * size], rel=1e-6)
    assert float(conv["own ns"]) == pytest.approx(36.7e6) and "own ns low" not in conv
    assert float(conv["FLOP"]) == pytest.approx(1.46e9)
    assert float(conv["activations B"]) == 8e6


@needs_browser
def test_long_tables_are_copied_from_their_data(browser: Browser, tmp_path: Path) -> None:
    browser.open(written(tmp_path, page_text([many(3000)])))
    rows = read(browser.run(f"sonda.table('{TABLE}').csv()"))
    assert len(rows) == 1 + 300 + 2700
    last = rows[-1]
    assert last["layer"] == "b299.2998"
    # 1,000 ns and one more for each layer before it.
    assert [float(last[f"forward ns{end}"]) for end in ("", " low", " high")] == pytest.approx([3998, 3918.04, 4117.94])


@needs_browser
def test_every_kind_of_number_is_copied_as_one(browser: Browser, tmp_path: Path) -> None:
    figure = {"value": 1.02, "low": 0.92, "high": 1.12, "unit": "", "source": "measured", "n": 7, "values": [1]}
    lacking = {**figure, "value": None, "low": None, "high": None, "reason": "not measured"}
    bytes_ = numbers([Value(384e6, "B", "counted"), Value(None, "B", "counted", reason="none")], suffix=True)[1]
    energy = Value(2.0, "J", "estimated", 1.0, 3.0, bounds=MODEL)
    table = build(
        [
            (Column("name, unit", right=False), [Cell("=cmd()"), Cell('a "b"')]),
            (Column("speed"), [study_cell(figure), study_cell(lacking)]),
            (Column("kept"), bytes_),
            (Column("roof"), percents([Value(0.7, "1", "derived"), Value(0.125, "1", "derived")])),
            (Column("amount"), [numbers([energy], suffix=True)[1][0], numbers([Value(3e6, "ns", "measured")])[1][0]]),
            (Column("ratio"), [Cell("1.12x", 1.12), Cell("0.50x", 0.5)]),
            (Column("n"), [Cell("1,204.5", 1204.5), Cell("–")]),
            (Column("said"), [Cell("1 to 2", 2.0), Cell("3", 3.0)]),
            (Column("mixed"), [*numbers([Value(1.23456e6, "ns", "measured")], suffix=True)[1], *words(["memory"])]),
            (Column("printed"), [printed_cell({"value": one}) for one in PRINTED]),
        ]
    )
    html = panel_html("made", table_html(table, "sortable"))
    browser.open(written(tmp_path, frame_page("made", [Section("made", "place", html, ())])))
    text = browser.run("document.querySelector('table').id = 'made'; sonda.table('made').csv()")
    assert text == (
        '"name, unit",speed,speed low,speed high,kept B,roof %,amount,amount unit,amount low,amount high,'
        "ratio x,n,said,mixed ns,printed %,printed % low,printed % high\r\n"
        "'=cmd(),1.02,0.92,1.12,384000000,70,2,J,1,3,1.12,1204.5,1 to 2,1234560,80.125,,\r\n"
        '"a ""b""",,,,,12.5,3000000,ns,,,0.50,,3,memory,35–40,35,40\r\n'
    )


@needs_browser
def test_runs_side_by_side_are_copied_whole(browser: Browser, tmp_path: Path) -> None:
    runs = [examples.training(), examples.inference()]
    browser.open(written(tmp_path, page_text(runs)))
    find = "document.querySelector('table[aria-label=\"side by side\"]').id = 'beside'"
    (step,) = (row for row in read(browser.run(f"{find}; sonda.table('beside').csv()")) if row[""] == "step")
    sizes = [float(text) for name, text in step.items() if text and not name.endswith((" unit", " low", " high"))
             and name]  # fmt: skip
    assert sizes == [pytest.approx(run.parts[0].step.value, rel=1e-9) for run in runs] and "ns" in step.values()


@needs_browser
def test_names_with_markup_are_copied_as_they_are(browser: Browser, tmp_path: Path) -> None:
    browser.open(written(tmp_path, page_text([examples.hostile()])))
    text = browser.run(f"sonda.table('{TABLE}').csv()")
    assert text.startswith("layer,type,forward ns,") and "<b>bold</b>" in text
