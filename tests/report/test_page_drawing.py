"""What colours and letters of figures are, and how soon a large page answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import report_examples as examples
from browser import Browser, browser, needs_browser
from page_examples import hundred_thousand, many
from sonda.report.page import page_text

pytestmark = needs_browser
__all__ = ["browser"]

TABLE = "#run0p0layers"
NAMES = f"[...document.querySelectorAll('{TABLE} tbody tr:not(.space)')].map((r) => r.cells[0].lastChild.data)"
MOST_SECONDS = 3.0
"""Of processor time that a page may take until it answers, however large the run is."""


def test_labels_of_ceilings_are_written_in_ink(browser: Browser, tmp_path: Path) -> None:
    """Colours that tell targets apart have too little contrast for letters: WCAG asks for 4.5."""
    path = tmp_path / "page.html"
    other = replace(examples.training(), run="b2")
    slower = {"dram_bandwidth": replace(other.ceilings["dram_bandwidth"], value=1e9)}
    two = [examples.training(), replace(other, ceilings={**other.ceilings, **slower})]
    path.write_text(page_text(two), encoding="utf-8")
    browser.open(path, dark=True)
    colors = browser.run("""[...document.querySelectorAll('#rooflines text.label')]
        .map((text) => getComputedStyle(text).fill)""")
    assert colors and set(colors) == {"rgb(159, 167, 176)"}, "--soft of the dark page"


def test_yellow_bars_have_a_border_where_the_page_is_white(browser: Browser, tmp_path: Path) -> None:
    """Yellow is 1.3 to 1 on white, and 12 to 1 on the dark page; blue stands out from both."""
    part = examples.training_part()
    steps = {**part.phase_steps, "transfer": part.phase_steps["data"]}
    path = tmp_path / "page.html"
    made = replace(examples.training(), parts=(replace(part, phase_steps=steps),))
    path.write_text(page_text([made]), encoding="utf-8")
    bordered = """Object.fromEntries([...document.querySelectorAll('#run0p0steps svg.wide .key')].map((key) =>
        [key.textContent, getComputedStyle(key.querySelector('rect')).strokeWidth !== '0px'
            && getComputedStyle(key.querySelector('rect')).stroke !== 'none']))"""
    browser.open(path)
    found = browser.run(bordered)
    assert found["transfer"] and not found["backward"]


LARGE = {"spans": (hundred_thousand, "b39.23"), "layers": (lambda: many(3_000), "b299.2998")}
"""Runs of many rows, and the slowest layer of each."""


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_a_page_of_a_large_run_answers_within_three_seconds(name: str, tmp_path: Path) -> None:
    """Processor time of the page's main thread in a browser that has seen no page before. Crowded caches and clocks
    lengthen it and nothing shortens it, so the quickest of three counts."""
    made, slowest = LARGE[name]
    path = tmp_path / "page.html"
    path.write_text(page_text([made()]), encoding="utf-8")
    answered: list[float] = []
    for turn in range(3):
        answered.append(_processor_seconds(path, tmp_path / f"turn{turn}", slowest))
        if answered[-1] < MOST_SECONDS:
            break
    assert min(answered) < MOST_SECONDS, answered


def _processor_seconds(path: Path, folder: Path, slowest: str) -> float:
    """Of a fresh browser's main thread, until all is opened, and until two clicks have listed the layers flat and
    sorted them by time, with the slowest first."""
    folder.mkdir()
    fresh = Browser(folder)
    try:
        fresh.open(path)
        fresh.click("[data-flat]")
        fresh.click(f"{TABLE} thead th:nth-child(3)")
        assert fresh.comes_true(f"{NAMES}[0] === '{slowest}'")
        return fresh.main_thread_seconds()
    finally:
        fresh.close()
