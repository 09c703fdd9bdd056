"""The documentation builds as a site: strictly, with links that lead somewhere, and fetching nothing from outside."""

from __future__ import annotations

import ast
import logging
import re
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import sonda
from docs_commands import REPOSITORY, blocks
from help_cases import ALL

DOCS = REPOSITORY / "docs"


class Collected(HTMLParser):
    """What a page holds: ids, links to follow, and what a browser would fetch by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.ids |= {found[name] for name in ("id", "name") if found.get(name)}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if tag == "link" and found.get("rel") != "canonical" and found.get("href"):
            self.fetched.append(found["href"])
        self.fetched += [found[name] for name in ("src", "data", "poster", "srcset") if found.get(name)]


class Text(HTMLParser):
    """The words of a page, as a reader sees them."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def text_of(page: Path) -> str:
    text = Text()
    text.feed(page.read_text(encoding="utf-8"))
    return "".join(text.words)


def collected(text: str) -> Collected:
    page = Collected()
    page.feed(text)
    return page


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. Strict: a page outside the navigation, or a link that leads nowhere, is a failure."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    place = tmp_path_factory.mktemp("site")
    warnings: list[str] = []

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            warnings.append(record.getMessage())

    logger, keeper = logging.getLogger("mkdocs"), Keeper(logging.WARNING)
    logger.addHandler(keeper)
    try:
        build(load_config(str(REPOSITORY / "mkdocs.yml"), site_dir=str(place)))
    finally:
        logger.removeHandler(keeper)
    assert warnings == [], "mend the page, or add it to nav in mkdocs.yml"
    return place


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Collected]:
    return {path: collected(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}


def test_every_page_is_built(site: Path, pages: dict[Path, Collected]) -> None:
    for path in DOCS.rglob("*.md"):
        assert (site / path.relative_to(DOCS)).with_suffix(".html") in pages


def test_every_page_is_in_the_navigation(site: Path, pages: dict[Path, Collected]) -> None:
    """Of the first page, and so of all: the navigation is the same everywhere."""
    first = site / "index.html"
    reached = {(site / unquote(urlsplit(link).path)).resolve() for link in pages[first].links if link} | {first}
    assert [path.name for path in pages if path.resolve() not in reached and path.name != "404.html"] == []


def test_a_reader_finds_every_command_and_option(site: Path) -> None:
    """The page is made from the code; this asks the command line itself, by the words that a user types."""
    text = text_of(site / "reference" / "commands.html")
    commands = {name: command for name, command in ALL.items() if name and not hasattr(command, "commands")}
    assert len(commands) > 15
    for name, command in commands.items():
        chapter = text.split(f"sonda {name}\u00b6" if f"sonda {name}\u00b6" in text else f"sonda {name}\n")[1].split(
            "\u00b6"
        )[0]
        options = {
            word for param in command.params if param.name != "help" for word in param.opts if word.startswith("--")
        }
        assert [option for option in sorted(options) if not re.search(rf"{option}\b", chapter)] == [], name


def test_a_reader_finds_everything_that_sonda_exports(site: Path, pages: dict[Path, Collected]) -> None:
    page = site / "reference" / "python.html"
    text = text_of(page)
    names = [name for name in sonda.__all__ if not name.startswith("_")]
    assert len(names) > 10 and [name for name in names if f"sonda{name}".lower() not in pages[page].ids] == []
    assert "sonda.load(reference: str = 'last', store: Where = None) -> Profile" in text
    assert "Write one HTML page that works offline; returns its path." in text  # of a method


def test_there_is_no_search_that_does_not_work(site: Path, pages: dict[Path, Collected]) -> None:
    """mkdocs' search fetches its index, which browsers refuse to pages from disk."""
    assert not (site / "search").exists()
    assert [path.name for path in pages if "mkdocs-search" in path.read_text(encoding="utf-8")] == []


def test_the_first_picture_is_small(site: Path) -> None:
    picture = site / "first-look.png"
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size < 150_000


def test_links_and_anchors_lead_somewhere(site: Path, pages: dict[Path, Collected]) -> None:
    dead = []
    for path, page in pages.items():
        if path.name == "404.html":  # its links begin with /, because it is shown at any address
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme in ("http", "https", "mailto"):
                continue
            goal = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not goal.exists() or (parts.fragment and goal in pages and parts.fragment not in pages[goal].ids | {""}):
                dead.append(f"{path.relative_to(site)}: {link}")
    assert dead == []


def outside(text: str) -> list[str]:
    """What of a style sheet or a script's text would be fetched from elsewhere."""
    return re.findall(r"""(?:url\(|@import\s+|fetch\(|src\s*=)\s*["']?((?:https?:)?//[^"')\s]+)""", text)


def test_pages_ask_nothing_of_anybody(site: Path, pages: dict[Path, Collected]) -> None:
    asked = [(path.name, url) for path, page in pages.items() for url in page.fetched if re.match(r"(https?:)?//", url)]
    for path in site.rglob("*.css"):
        asked += [(path.name, url) for url in outside(path.read_text(encoding="utf-8"))]
    for path in pages:
        asked += [(path.name, url) for url in outside(path.read_text(encoding="utf-8"))]
    assert asked == []


def test_the_checks_themselves_see_what_is_wrong() -> None:
    page = collected('<link rel="stylesheet" href="https://a.b/c.css"><img src="//a.b/d.png"><a href="#x">y</a>')
    assert page.fetched == ["https://a.b/c.css", "//a.b/d.png"]
    assert page.links == ["#x"] and page.ids == set()
    assert outside("p { background: url('https://a.b/e.png') } @import \"//a.b/f.css\";") == [
        "https://a.b/e.png", "//a.b/f.css"]  # fmt: skip
    assert outside("p { background: url(img/e.png) }") == []


def test_readme_leads_to_pages_that_are_there() -> None:
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)", text)
    assert links and [link for link in links if not (REPOSITORY / link).exists()] == []


def test_examples_that_pages_name_are_there() -> None:
    named = {name for path in DOCS.rglob("*.md") for name in re.findall(r"`(examples/\w+)`", path.read_text("utf-8"))}
    assert len(named) >= 5
    assert [name for name in sorted(named) if not (REPOSITORY / name).is_dir()] == []


@pytest.mark.parametrize("room", sorted(path.stem for path in (DOCS / "rooms").glob("*.md")))
def test_a_room_names_files_that_it_has(room: str) -> None:
    text = (DOCS / "rooms" / f"{room}.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)
    place = REPOSITORY / "src" / "sonda" / room
    assert len(rows) >= min(5, len([path for path in place.rglob("*.py") if path.name != "__init__.py"]))
    assert [row for row in rows if not (place / row).exists()] == []


def test_every_room_has_a_page() -> None:
    rooms = {path.parent.name for path in (REPOSITORY / "src" / "sonda").glob("*/__init__.py")}
    assert {path.stem for path in (DOCS / "rooms").glob("*.md")} == rooms


def test_every_study_has_a_page_that_says_how_to_repeat_it() -> None:
    for path in (REPOSITORY / "src" / "sonda" / "studies" / "published").glob("*.toml"):
        text = (DOCS / "studies" / f"{path.stem}.md").read_text(encoding="utf-8")
        assert f"sonda study {path.stem}" in text


@pytest.mark.parametrize("language", ["python", "toml"])
def test_blocks_are_what_they_say(language: str) -> None:
    found = [block for block in blocks() if block.language == language]
    assert found
    for block in found:
        try:
            if language == "python":
                ast.parse(block.text)
            else:
                tomllib.loads(block.text)
        except (SyntaxError, tomllib.TOMLDecodeError) as error:
            pytest.fail(f"{block.page}:{block.line}: {error}")


@pytest.mark.parametrize("page", sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")))
def test_a_page_has_one_title(page: str) -> None:
    """What stands below a second one is not in the navigation."""
    text = re.sub(r"^```.*?^```", "", (DOCS / page).read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    assert len(re.findall(r"^# ", text, re.MULTILINE)) == 1
