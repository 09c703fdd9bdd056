"""A page of every shipped study in a real Chromium, from constructed figures: all of one kind, and each whole.

Every page is opened once, at one of three sizes in turn, and all tests look at it; in the end it is seen at all of
them, and screenshots are kept.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from browser import FITTED, SCREENSHOTS, SHOWN, SIZES, Browser, browser, needs_browser, outside
from charts import series_of
from sonda.report.page import write_view
from sonda.report.palette import GREY
from sonda.report.views.study.optimisations import options_figure
from sonda.report.views.study.view import StudyView
from sonda.studies.file.loader import published_studies
from study_examples import constructed

pytestmark = needs_browser
__all__ = ["browser"]

PICTURES = {
    "corun": {"studyheat", "studymisses"},
    "dlrm-accelerator": {"studydots0", "studycycles", "studytrade"},
    "framework-mnist": {"studydots0", "studyaccuracy", "studyoptions0", "studypublished"},
    "hybrid": {"studydots0", "studyscaling", "studyaccuracy", "studyenergy", "studyrelative", "studyoptions0"},
    "jax-optimisations": {"studydots0", "studyprocessor", "studydevice", "studyoptions0"},
    "network-zoo": {"studydots0"},
    "pytorch-optimisations": {"studydots0", "studyprocessor", "studydevice", "studyoptions0"},
    "resnet34-batch-resolution": {"studydots0", "studydots1", "studydots2", "studyaccuracy"},
    "resnet34-parallel": {"studydots0", "studyscaling", "studyaccuracy", "studyenergy", "studyedp", "studypublished"},
    "serving": {"studydots0", "studydots1", "studydots2"},
    "six-operations": {"studydots0", "studydots1", "studypublished"},
    "tensorflow-optimisations": {"studydots0", "studyprocessor", "studydevice", "studyoptions0", "studypublished"},
    "topdown-phases": {"studydots0", "studyphases", "studyslots"},
}
"""What each study must show, by the questions of its file."""
CUT = f"""{SHOWN}.flatMap((drawn) => {{
  const [figure, place] = [drawn.closest('.figure'), drawn.getBoundingClientRect()];
  const out = (box) => box.width
    && (box.left < place.left - 2 || box.right > place.right + 2 || box.bottom > place.bottom + 2);
  return [...drawn.querySelectorAll('text')].filter((text) => text.textContent && out(text.getBoundingClientRect()))
    .map((text) => `${{figure.id}}: ${{text.textContent}}`);
}})"""
"""Texts of pictures that reach beyond them."""
WHOLE = ("pytorch-optimisations", "six-operations")
"""Those with most configurations are drawn whole, the others at their small scale."""
HOSTILE = "<img src=x onerror=alert(1)>"
SORTED = """(async () => {
  const read = (table, at) => [...table.tBodies[0].rows].map((row) => Number(row.cells[at].dataset.order));
  for (const table of document.querySelectorAll('table.sortable')) {
    for (const head of table.tHead.rows[0].cells) {
      const at = head.cellIndex;
      const before = read(table, at);
      if (!head.classList.contains('number') || before.some(Number.isNaN) || new Set(before).size < 2) continue;
      const folded = table.closest('details');
      if (folded) folded.open = true;
      while (!head.querySelector('button')) await new Promise((done) => setTimeout(done, 20));
      const orders = [1, 2, 3].map(() => { head.querySelector('button').click(); return read(table, at); });
      return [before, ...orders];
    }
  }
})()"""
"""A column of numbers as it was, and after each of three clicks on its head."""


@dataclass(frozen=True)
class Opened:
    name: str
    study: dict[str, Any]
    browser: Browser
    size: tuple[int, int]


@pytest.fixture(scope="module", params=sorted(PICTURES))
def opened(
    request: pytest.FixtureRequest, browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> Opened:  # fmt: skip
    name: str = request.param
    folder = tmp_path_factory.mktemp(name)
    study = constructed(name, folder / "store", None if name in WHOLE else "small")
    if name == "corun":
        study = json.loads(json.dumps(study).replace("stress-cache", HOSTILE))
    label, size = list(SIZES.items())[sorted(PICTURES).index(name) % len(SIZES)]
    browser.open(write_view(folder / f"{name}.html", StudyView(study)), size, dark=label == "tablet")
    return Opened(name, study, browser, size)


def test_all_shipped_studies_are_held_to_their_pictures() -> None:
    assert set(PICTURES) == set(published_studies())


def test_a_study_is_drawn_whole_without_errors_or_requests(opened: Opened) -> None:
    browser = opened.browser
    assert browser.messages == []
    assert outside(browser.requests) == []
    assert browser.run("document.documentElement.scrollWidth") <= opened.size[0]
    drawn = browser.run(
        "[...document.querySelectorAll('.figure')].filter((f) => f.querySelector('svg')).map((f) => f.id)"
    )
    assert PICTURES[opened.name] <= set(drawn)
    assert len(drawn) == browser.run("document.querySelectorAll('.figure').length")


def test_behind_every_picture_there_is_a_table(opened: Opened) -> None:
    assert opened.browser.run("""[...document.querySelectorAll('.figure')]
        .filter((f) => !f.closest('.panel').querySelector('table')).map((f) => f.id)""") == []  # fmt: skip


def test_question_answer_with_numbers_and_what_it_rests_on_come_first(opened: Opened) -> None:
    browser, study = opened.browser, opened.study
    assert browser.run("document.querySelector('h1 + p').textContent") == study["question"]
    first = browser.run("document.querySelector('h1 + p + .verdict p.first').textContent")
    assert any(letter.isdigit() for letter in first), first
    rows = len(study["rows"])
    assert f"{rows} of {rows}" in browser.run("document.querySelector('.facts').textContent")


def test_three_repetitions_have_no_95_percent_interval(opened: Opened) -> None:
    hints = opened.browser.run("""[...document.querySelectorAll('td')]
        .map((c) => c.title || c.dataset.hint || '').filter((hint) => hint.includes(', measured ('))""")
    assert len(hints) >= len(opened.study["rows"])
    assert all("least to most of 3 repetitions: " in hint and "95 % interval" not in hint for hint in hints)


def test_a_column_of_numbers_sorts_down_up_and_back(opened: Opened) -> None:
    before, down, up, back = opened.browser.run(SORTED)
    assert down == sorted(before, reverse=True)
    assert up == sorted(before)
    assert back == before


def test_options_that_cannot_be_told_from_nothing_are_grey(opened: Opened) -> None:
    browser = opened.browser
    options = [one for place in opened.study["optimisations"] for one in place["options"]]
    unsure = {one["name"] for one in options if one["effect"] == "unknown"}
    grey = browser.run("""[...document.querySelectorAll('td.quiet')].filter((c) => c.textContent === 'not significant')
        .map((c) => c.parentElement.cells[0].textContent)""")
    assert set(grey) == unsure
    for place in opened.study["optimisations"]:
        figure = options_figure(place)
        assert figure is not None
        marks = {series.name: series for series in series_of(figure)}
        if "not significant" in marks:
            assert marks["not significant"].color == GREY
            assert figure.x.ends is not None and figure.x.ends[1] <= 100, "an interval without end squeezes nothing"


def test_markup_in_names_is_text(opened: Opened) -> None:
    assert opened.browser.run("document.querySelectorAll('img').length") == 0
    if opened.name == "corun":
        assert HOSTILE in opened.browser.run("document.body.textContent")


def test_at_every_size_no_text_of_a_picture_is_cut(opened: Opened) -> None:
    """The last of a page, for it leaves it at another size."""
    browser = opened.browser
    for label, size in SIZES.items():
        browser.resize(size)
        assert browser.comes_true(f"innerWidth === {size[0]} && {FITTED} && {CUT}.length === 0"), browser.run(CUT)
        assert browser.run("document.documentElement.scrollWidth") <= size[0]
        browser.screenshot(SCREENSHOTS / f"study-{opened.name}-{label}.png", most=2500)
