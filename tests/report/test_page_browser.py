"""The page in a real Chromium: drawn at three sizes, used by mouse and keyboard, printed; nothing leaves it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import report_examples as examples
from browser import FITTED, SCREENSHOTS, SHOWN, SIZES, Browser, browser, needs_browser, outside
from counted_examples import SKYLAKE, counted_run
from page_examples import many
from places import TESTS
from simulated_examples import CLOCKED, nested_run
from sonda.analysis.run_summary import summarise
from sonda.analysis.summary import MODEL, Summary, Value
from sonda.record.store import Store
from sonda.report.page import page_text, write_page

pytestmark = needs_browser
__all__ = ["browser"]

TABLE = "#run0p0layers"
NAMES = f"[...document.querySelectorAll('{TABLE} tbody tr:not(.space)')].map((r) => r.cells[0].lastChild.data)"


def counted() -> Summary:
    return summarise(counted_run(table="skylake-sp", events=SKYLAKE, steps=24))


def estimated() -> Summary:
    """A run with one number that is a guess."""
    part = examples.training_part()
    guess = replace(part.phases[1], peak_memory=Value(1.9e9, "B", "estimated", 1e9, 3e9, bounds=MODEL))
    return replace(examples.training(), parts=(replace(part, phases=(part.phases[0], guess, *part.phases[2:])),))


def recorded() -> Summary:
    """What an H200 did, with kernels counted by Nsight Compute."""
    return summarise(Store(TESTS / "corpus" / "runs").one("726d"))


def simulated() -> Summary:
    return summarise(nested_run(CLOCKED, Path("in-memory")))


MADE: dict[str, Callable[[], list[Summary]]] = {
    "one": lambda: [examples.training()],
    "counted": lambda: [counted()],
    "gpu": lambda: [recorded()],
    "simulated": lambda: [simulated()],
    "several": lambda: [examples.training(), examples.inference()],
    "hostile": lambda: [examples.hostile()],
    "estimated": lambda: [estimated()],
    "many": lambda: [many(3000)],
}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("pages")

    def made(name: str) -> Path:
        path = folder / f"{name}.html"
        if not path.exists():
            path.write_text(page_text(MADE[name]()), encoding="utf-8")
        return path

    return made


@pytest.mark.parametrize("name", ["one", "counted", "several"])
def test_every_size_is_drawn_without_errors_requests_or_a_page_that_scrolls_sideways(
    browser: Browser, page: Callable[[str], Path], name: str
) -> None:
    browser.open(page(name))
    for label, size in SIZES.items():
        browser.resize(size)
        browser.media(dark=label == "tablet")
        assert browser.comes_true(f"innerWidth === {size[0]} && {FITTED}")
        assert browser.run("document.documentElement.scrollWidth") <= size[0]
        browser.screenshot(SCREENSHOTS / f"{name}-{label}.png")
    assert browser.messages == []
    assert outside(browser.requests) == []


@pytest.mark.parametrize("run", ["e8be", "000f"])
@pytest.mark.parametrize("width", [768, 850])
def test_a_list_of_kernels_makes_no_page_scroll_sideways(
    browser: Browser, tmp_path: Path, run: str, width: int
) -> None:
    kept = Store(TESTS / "corpus" / "runs").one(run)
    browser.open(write_page(tmp_path / "page.html", [summarise(kept)], [kept]), (width, 1000))
    assert browser.run("document.querySelectorAll('table.bars tr').length") >= 5
    assert browser.run("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(("run", "words"), [("f569", "bound"), ("46fb", "kernel")])
def test_no_words_of_a_picture_are_cut_at_its_edges(browser: Browser, tmp_path: Path, run: str, words: str) -> None:
    kept = Store(TESTS / "corpus" / "runs").one(run)
    path = write_page(tmp_path / "page.html", [summarise(kept)], [kept])
    for size in SIZES.values():
        browser.open(path, size)
        cut = browser.run(f"""{SHOWN}.flatMap((drawn) => [...drawn.querySelectorAll('text')].filter((text) => {{
            const box = text.getBoundingClientRect(), whole = drawn.getBoundingClientRect();
            return box.width && (box.left < whole.left - 0.5 || box.right > whole.right + 0.5);
        }}).map((text) => text.textContent))""")
        assert cut == [], size
        assert words in browser.run(f"{SHOWN}.map((drawn) => drawn.textContent).join(' ')")


@pytest.mark.parametrize(("name", "least"), [("counted", 7), ("gpu", 5), ("simulated", 2)])
def test_behind_every_picture_there_is_a_table(
    browser: Browser, page: Callable[[str], Path], name: str, least: int
) -> None:
    browser.open(page(name), SIZES["phone"])
    bare = browser.run("""[...document.querySelectorAll('.figure, .icicle')]
        .filter((f) => !f.closest('.panel').querySelector('table')).map((f) => f.id)""")
    assert bare == []
    assert browser.run("document.querySelectorAll('.figure, .icicle').length") >= least
    assert browser.run("document.documentElement.scrollWidth") <= SIZES["phone"][0]
    # Every number of a table says where it comes from, but for those that name a row.
    silent = browser.run("""[...document.querySelectorAll('table')].filter((t) => t.tHead).flatMap((t) =>
        [...t.tBodies[0].rows].slice(0, 3).flatMap((r) => [...r.cells].filter((c) => c.matches('td.number')
            && /[0-9]/.test(c.textContent) && !c.title)
            .map((c) => `${t.ariaLabel}: ${t.tHead.rows[0].cells[c.cellIndex].textContent}`)))""")
    assert set(silent) == set()
    assert browser.messages == [] and outside(browser.requests) == []


def test_the_layer_table_folds_and_sorts_by_mouse(browser: Browser, page: Callable[[str], Path]) -> None:
    browser.open(page("one"))
    assert browser.run(NAMES) == ["(ResNet)", "layer1", "layer2", "layer3", "layer4"]
    browser.click(f"{TABLE} tbody tr:nth-child(2) button.fold")
    unfolded = browser.run(NAMES)
    assert unfolded[:4] == ["(ResNet)", "layer1", "0.conv", "0.norm"] and len(unfolded) == 5 + 18
    browser.click("[data-flat]")
    browser.click(f"{TABLE} thead th:nth-child(3)")
    slowest = browser.run(NAMES)
    browser.click(f"{TABLE} thead th:nth-child(3)")
    fastest = browser.run(NAMES)
    # The largest scale is that of the first unit of the last block.
    assert len(slowest) == 72 and slowest[0] == fastest[-1] == "layer4.0.conv"
    browser.click(f"{TABLE} thead th:nth-child(3)")
    assert browser.run(NAMES)[0] == "layer1.0.conv"  # a third click brings back the order of the run


def test_numbers_in_names_sort_as_numbers(browser: Browser, tmp_path: Path) -> None:
    layers = [examples.layer(f"block.{n}", "Linear", 1e6, 0, 1e6, 1e5, 1e5, 1e8) for n in (10, 2, 1)]
    made = replace(examples.training(), parts=(replace(examples.training_part(), layers=tuple(layers)),))
    path = tmp_path / "page.html"
    path.write_text(page_text([made]), encoding="utf-8")
    browser.open(path)
    browser.click(f"{TABLE} thead th:nth-child(1)")
    assert browser.run(NAMES) == ["block.1", "block.2", "block.10"]


def test_keys_sort_walk_and_show_unit_and_source(browser: Browser, page: Callable[[str], Path]) -> None:
    browser.open(page("one"))
    browser.run(f"document.querySelector('{TABLE} thead button.sort').focus()")
    for _ in range(2):
        browser.press("Tab")
    assert browser.run("document.activeElement.textContent") == "forward ms"
    assert browser.run("document.getElementById('hint').textContent") == "time per step, layers inside included"
    outline = browser.run("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    browser.press("Enter")
    assert browser.run(f"document.querySelector('{TABLE} thead th:nth-child(3)').ariaSort") == "descending"
    assert browser.run(NAMES) == ["(ResNet)", "layer4", "layer3", "layer2", "layer1"]
    # Behind the heads the body is one stop, walked through by arrows.
    while browser.run("document.activeElement.closest('thead') !== null"):
        browser.press("Tab")
    assert browser.run("document.activeElement.textContent").endswith("(ResNet)")
    for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
        browser.press(key)
    # 18 convolutions and norms of the last block: 109.6 ms forward, and the interval of the example, -2 % and +3 %.
    told = browser.run("document.getElementById('hint').textContent")
    assert re.fullmatch(r"110 ms, measured \(a clock or sensor\); 95 % interval 107 ms to 113 ms", told)
    assert browser.run("document.activeElement.getAttribute('aria-describedby')") == "hint"
    browser.press("Escape")
    assert browser.run("document.getElementById('hint').hidden")
    for key in ("ArrowLeft", "ArrowLeft", "Enter"):
        browser.press(key)
    assert len(browser.run(NAMES)) == 5 + 18
    browser.press("Enter")
    assert len(browser.run(NAMES)) == 5


def test_tab_walks_down_the_page_and_the_focus_is_seen(browser: Browser, page: Callable[[str], Path]) -> None:
    browser.open(page("one"))
    browser.run("window.stops = []")
    for _ in range(30):
        browser.press("Tab")
        browser.run("window.stops.push(document.activeElement)")
    assert browser.run("""window.stops.every((stop, at) => stop !== document.body && (at === 0
        || stops[at - 1].compareDocumentPosition(stop) & Node.DOCUMENT_POSITION_FOLLOWING))""")
    # From the numbers behind the verdict over titles that open into the layers.
    assert browser.run("stops[0].closest('.evidence') !== null")
    assert browser.run("stops.some((stop) => stop.matches('.panel > summary'))")
    browser.press("Tab")
    assert browser.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_searching_leaves_the_rows_that_match(browser: Browser, page: Callable[[str], Path]) -> None:
    browser.open(page("one"))
    browser.run("document.querySelector('input[type=search]').focus()")
    browser.type("LAYER2.3")
    assert browser.run(NAMES) == ["layer2.3.conv", "layer2.3.norm", "layer2.3.act"]
    assert browser.run("document.querySelector('.tools [role=status]').textContent") == "3 of 77 rows"


TREE = "document.getElementById('run0p0tree')"


def test_the_reader_chooses_what_the_width_of_layers_is(browser: Browser, page: Callable[[str], Path]) -> None:
    browser.open(page("one"))
    names = browser.run("[...document.querySelectorAll('[data-measures] label')].map((l) => l.textContent.trim())")
    assert names == ["time", "FLOPs", "bytes"]
    conv = f"[...{TREE}.children].find((slab) => slab.textContent.startsWith('0.conv'))"
    part = f"{conv}.getBoundingClientRect().width / {TREE}.clientWidth"
    assert browser.run(part) == pytest.approx(36.7 / 1263, abs=0.002)  # ms of its own, of a step
    browser.click("[data-measures] label:nth-of-type(2) input")
    # 24 convolutions of 1.46 GFLOP times scales that add up to 27, and 24 normalisations of 0.02: 39.9 GFLOP in all.
    assert browser.run(part) == pytest.approx(1.46 / 39.9, abs=0.002)
    assert browser.run(f"{conv}.querySelector('small').textContent") == "3.7 %"


def test_a_field_that_is_clicked_grows_and_shrinks(browser: Browser, page: Callable[[str], Path]) -> None:
    browser.open(page("one"))
    layer = f"[...{TREE}.children].find((slab) => slab.textContent.startsWith('layer4'))"
    whole = browser.run(f"{layer}.clientWidth")
    browser.run(f"{layer}.click()")
    assert browser.run(f"{layer}.getBoundingClientRect().width") == pytest.approx(
        browser.run(f"{TREE}.getBoundingClientRect().width"), abs=1
    )
    assert not browser.run("document.querySelector('[data-back]').hidden")
    browser.click("[data-back]")
    assert browser.run(f"{layer}.clientWidth") == whole
    assert browser.run("document.querySelector('[data-back]').hidden")


def test_small_layers_are_folded_and_unfold(browser: Browser, page: Callable[[str], Path]) -> None:
    browser.open(page("many"))
    assert browser.run(f"{TREE}.children.length") <= 301
    assert browser.run("document.querySelector('[data-back]').hidden")
    before = browser.run(f"{TREE}.textContent")
    browser.run(
        """document.querySelector(`.slab[data-view="${document.querySelector('template').dataset.view}"]`).click()"""
    )
    assert browser.run(f"{TREE}.textContent") != before
    assert not browser.run("document.querySelector('[data-back]').hidden")
    browser.click("[data-back]")
    assert browser.run(f"{TREE}.textContent") == before


def test_marks_tell_what_they_are_under_the_pointer_and_by_keyboard(
    browser: Browser, page: Callable[[str], Path]
) -> None:
    browser.open(page("one"))
    hint = "document.getElementById('hint')"
    browser.run("document.getElementById('run0p0steps').scrollIntoView({block: 'center'})")
    # What scrolls hides hints in the next frame.
    browser.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    x, y = browser.run("""(() => {
        const b = document.querySelector('#run0p0steps svg.wide .strip').getBoundingClientRect();
        return [b.x + b.width / 2, b.y + b.height / 2]; })()""")
    browser.move(x, y)
    assert browser.comes_true(f"!{hint}.hidden && {hint}.textContent.startsWith('step 1, measured')")
    browser.move(5, 5)
    assert browser.comes_true(f"{hint}.hidden")
    browser.run("document.getElementById('run0p0steps').focus()")
    for key in ("ArrowRight", "ArrowRight"):
        browser.press(key)
    assert browser.run(f"{hint}.textContent").startswith("step 2, measured")
    browser.press("End")
    count = browser.run("document.querySelectorAll('#run0p0steps svg.wide .strip').length")
    assert browser.run(f"{hint}.textContent").startswith(f"step {count}, measured")


def test_names_of_the_legend_hide_what_they_name(browser: Browser, page: Callable[[str], Path]) -> None:
    browser.open(page("one"))
    key = "document.querySelector('#run0p0steps svg.wide .key')"
    drawn = "document.querySelector('#run0p0steps svg.wide [data-s=\"0\"]')"
    browser.run(f"{key}.focus()")
    browser.press("Enter")
    assert browser.run(f"[{key}.getAttribute('aria-pressed'), getComputedStyle({drawn}).visibility]") == [
        "false", "hidden",
    ]  # fmt: skip
    browser.press("Enter")
    assert browser.run(f"getComputedStyle({drawn}).visibility") == "visible"


def test_the_first_screen_has_the_answer_and_all_else_is_closed(browser: Browser, page: Callable[[str], Path]) -> None:
    browser.open(page("one"), (1280, 800), wait=False)
    assert browser.comes_true("document.readyState === 'complete'")
    for inside in (".verdict p.first", ".verdict ul.plain li", ".stack .parts", "table.bars tr:last-child"):
        assert browser.run(f"document.querySelector('{inside}').getBoundingClientRect().bottom") <= 800, inside
    opened = browser.run("[...document.querySelectorAll('details.panel[open] h3')].map((h) => h.textContent)")
    assert opened == ["Where the time goes"]
    # By keyboard, as any element of a page that opens.
    browser.run("document.querySelector('details.panel:not([open]) > summary').focus()")
    browser.press("Enter")
    assert browser.run("document.querySelectorAll('details.panel[open]').length") == 2


def test_long_tables_draw_the_rows_in_sight(browser: Browser, page: Callable[[str], Path]) -> None:
    browser.open(page("many"))
    browser.click("[data-flat]")
    assert browser.run(f"document.querySelectorAll('{TABLE} tbody tr').length") < 120
    assert browser.run(f"document.querySelector('{TABLE}').ariaRowCount") == "2701"  # 300 x 9 layers and the head
    browser.run(f"document.querySelector('{TABLE} tbody th').focus()")
    for _ in range(60):
        browser.press("ArrowDown")
    assert browser.run("document.activeElement.textContent") == "b6.66"  # the 61st of nine in each block
    assert browser.run("document.activeElement.title").startswith("b6.66 Linear, 1 call")
    browser.run(f"document.querySelector('{TABLE}').parentElement.scrollTop = 1e9")
    assert browser.comes_true(f"{NAMES}.at(-1) === 'b299.2998'"), browser.run(NAMES)


def test_names_that_would_act_are_shown_as_text(browser: Browser, page: Callable[[str], Path]) -> None:
    browser.open(page("hostile"))
    assert browser.run("document.querySelectorAll('img').length") == 0
    labels = browser.run(f"{TREE}.textContent")
    assert "<b>bold</b>" in labels
    assert browser.messages == [] and outside(browser.requests) == []


def test_estimates_are_hatched_and_say_so(browser: Browser, page: Callable[[str], Path]) -> None:
    browser.open(page("estimated"))
    found = browser.run("""[...document.querySelectorAll('.estimated')].map((c) => [c.textContent, c.title,
        getComputedStyle(c).backgroundImage.startsWith('repeating-linear-gradient')])""")
    told = "1.90 GB, estimated (a guess with bounds); bounds of the power model: 1.00 GB to 3.00 GB"
    assert found == [["1.90 GB", told, True]]


def test_energy_of_an_accelerator_is_hatched_for_its_tables_are_guesses(
    browser: Browser, page: Callable[[str], Path]
) -> None:
    browser.open(page("simulated"))
    hatched = browser.run("""[...document.querySelectorAll('.estimated')].map((c) => [c.tagName, c.title,
        getComputedStyle(c).backgroundImage.startsWith('repeating-linear-gradient')])""")
    assert {name for name, _, _ in hatched} == {"DIV", "TD"}, "the box on top and the fields of tables"
    for _, told, seen in hatched:
        assert seen and re.search(r"J, simulated \(an accelerator model\); bounds of the tables it comes from: ", told)
    assert not browser.run("document.querySelector('td[title*=\"bounds of the tables\"]:not(.estimated)')")
    widths = browser.run("[...document.querySelectorAll('[data-measures] label')].map((l) => l.textContent.trim())")
    assert widths[:2] == ["time", "cycles"] and "energy, a guess" in widths


def test_paper_has_the_layers_and_no_title_that_stays_closed(browser: Browser, page: Callable[[str], Path]) -> None:
    heights = """[...document.querySelectorAll(%r)].map((shown) => shown.getBoundingClientRect().height)"""
    for name in ("one", "several"):
        browser.open(page(name), wait=False)
        assert browser.comes_true("document.readyState === 'complete'")
        browser.media(kind="print")
        assert browser.comes_true("document.documentElement.classList.contains('paper')")
        reports = browser.run(heights % "details.report")
        assert (reports == []) is (name == "one") and not any(reports), "two reports are pages of their own"
        assert any(browser.run(heights % "details.tree table")) is (name == "one")
        browser.media()
        assert browser.comes_true("!document.querySelector('details.tree[open]')"), "as it was"


def test_on_paper_nothing_is_cut(browser: Browser, page: Callable[[str], Path]) -> None:
    browser.open(page("many"), dark=True)
    browser.click("[data-flat]")
    browser.resize((720, 1000))
    browser.media(dark=True, kind="print")
    widest = f"Math.max(...{SHOWN}.map((drawn) => drawn.clientWidth))"
    assert browser.comes_true(f"{widest} <= 720 && document.querySelector('#run0p0layers tr.said') !== null")
    found: dict[str, Any] = json.loads(browser.run("""JSON.stringify({
        wide: document.documentElement.scrollWidth,
        ground: getComputedStyle(document.body).backgroundColor,
        ink: getComputedStyle(document.body).color,
        rows: document.querySelectorAll('#run0p0layers tbody tr:not(.said)').length,
        said: document.querySelector('#run0p0layers tr.said').textContent,
        boxes: [...document.querySelectorAll('.scroll')]
            .filter((box) => getComputedStyle(box).overflowX !== 'visible').length,
    })"""))  # fmt: skip
    assert found["wide"] <= 720 and found["boxes"] == 0
    assert found["ground"] == "rgb(255, 255, 255)" and found["ink"] == "rgb(34, 38, 43)"  # light, whatever the screen
    assert found["rows"] == 1000
    assert found["said"] == "1,000 of 2,700 rows are printed; Copy as CSV has all."
    browser.media()


def test_on_paper_long_names_and_many_columns_have_room(browser: Browser, page: Callable[[str], Path]) -> None:
    """A4 with margins of 12 mm is 703 px wide; kernels of a GPU have long names and up to 14 columns."""
    browser.open(page("gpu"), (703, 1000))
    browser.media(kind="print")
    narrowest = "Math.min(...[...document.querySelectorAll('tbody th:first-child')].map((c) => c.clientWidth || 999))"
    assert browser.comes_true(f"document.documentElement.classList.contains('paper') && {narrowest} > 90")
    assert browser.run("document.documentElement.scrollWidth") <= 703
    broken = """[...document.querySelectorAll('td.word')].filter((c) => c.textContent === 'kernel'
        && c.clientHeight > 30 && c.clientHeight > c.parentElement.cells[0].clientHeight).length"""
    assert browser.run(broken) == 0
    browser.media()


def test_a_real_printer_gets_light_figures_that_fit(browser: Browser, page: Callable[[str], Path]) -> None:
    browser.open(page("one"), dark=True, wait=False)
    assert browser.comes_true("document.readyState === 'complete'")
    browser.run("""addEventListener('beforeprint', () => { window.printed = [
        document.querySelectorAll('details.panel:not([open])').length,
        getComputedStyle(document.documentElement).getPropertyValue('--ink').trim()]; })""")
    closed = "document.querySelectorAll('details.panel:not([open])').length"
    before = browser.run(closed)
    assert before > 0 and browser.pdf().startswith(b"%PDF-")
    assert browser.run("window.printed") == [0, "#22262b"], "paper shows what is to be opened, in light colours"
    assert browser.run(closed) == before
    assert not browser.run("document.documentElement.classList.contains('paper')")
