"""The pages in docs/reading say how to read every quantity of a file and every column of a screen."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from docs_commands import PAGES, REPOSITORY
from sonda.record.quantities import QUANTITIES, SOURCES
from sonda.record.spans import PHASES
from sonda.targets.target import MODES, STRATEGIES

READING = REPOSITORY / "docs" / "reading"
SOURCES_PAGE = (REPOSITORY / "docs" / "reading.md").read_text(encoding="utf-8")
TIME = (READING / "time.md").read_text(encoding="utf-8")
COLUMNS = (READING / "columns.md").read_text(encoding="utf-8")
QUANTITIES_PAGE = (READING / "quantities.md").read_text(encoding="utf-8")
REPORT = REPOSITORY / "src" / "sonda" / "report"


def test_every_source_is_explained() -> None:
    for source in SOURCES:
        assert re.search(rf"^\| [^|]*\b{source}\b", SOURCES_PAGE, re.MULTILINE), source


def test_every_quantity_is_listed_with_its_unit() -> None:
    rows = re.findall(r"^\| (`[^|]+) \| ([^|]+) \|", QUANTITIES_PAGE, re.MULTILINE)
    listed = {name: unit.strip() for names, unit in rows for name in re.findall(r"`([^`]+)`", names)}
    assert listed == {name: quantity.unit for name, quantity in QUANTITIES.items()}


def test_every_phase_is_explained() -> None:
    rows = re.findall(r"^\| (\w+) \|", TIME.split("## Phases")[1].split("## ")[0], re.MULTILINE)
    told = {*rows, *re.findall(r"`(prefill|decode)`", TIME.split("## Phases")[1])}
    assert {*PHASES, "other"} <= told


def test_every_way_of_using_several_devices_is_told() -> None:
    """As a target, the way one types it: in the manual, and TensorFlow's on the pages that a newcomer reads too."""
    pages = {str(path.relative_to(REPOSITORY)): path.read_text(encoding="utf-8") for path in PAGES}
    for mode in MODES:
        assert any(re.search(rf"`{mode}=[\w/:+]", text) for text in pages.values()), mode
    for page in ("README.md", "docs/limits.md", "docs/tensorflow.md"):
        assert [mode for mode in STRATEGIES if f"{mode}=" not in pages[page]] == [], page


def headings(source: str) -> set[str]:
    """Names of columns of numbers in the code of a report: plain ones, and the words of those that are put together."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Column" and node.args):
            continue
        if any(key.arg == "right" and getattr(key.value, "value", None) is False for key in node.keywords):
            continue
        name = node.args[0]
        if isinstance(name, ast.Constant):
            found.add(str(name.value))
        elif isinstance(name, ast.JoinedStr):
            found.add(next((str(part.value) for part in name.values if isinstance(part, ast.Constant)), "").strip(" ,"))
    return {name for name in found if re.search("[A-Za-z]{2}", name)}


def explained(page: str) -> set[str]:
    """Names in the first column of the page's tables; `by …` stands for every name that begins so."""
    rows = re.findall(r"^\| ([^|]+) \|", page, re.MULTILINE)
    return {word.strip(" …") for row in rows for word in row.split(", ")}


def test_every_column_of_numbers_is_explained() -> None:
    words = explained(COLUMNS)
    unknown = {}
    for path in sorted(Path(REPORT).rglob("*.py")):
        lacking = {name.split(",")[0] for name in headings(path.read_text(encoding="utf-8"))} - words
        if lacking:
            unknown[str(path.relative_to(REPORT))] = sorted(lacking)
    assert unknown == {}, "say in docs/reading/columns.md how to read them"


def test_every_column_says_how_it_is_checked_or_when_not_to_trust_it() -> None:
    """And its unit and source, before what it is."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in COLUMNS.splitlines()
        if line.startswith("| ") and not line.startswith("| column")
    ]
    assert len(rows) > 70 and {len(row) for row in rows} == {5}
    assert [row[0] for row in rows if not row[2] or not (row[3] or row[4])] == []


def test_the_check_itself_sees_columns() -> None:
    source = 'Column("GFLOP")\nColumn(f"alone, {unit} a step")\nColumn("layer", right=False)\nColumn(name)\nColumn("%")'
    assert headings(source) == {"GFLOP", "alone"}


def test_every_verdict_is_explained() -> None:
    """By the words that its sentence begins with, on the page that a newcomer reads."""
    page = (REPOSITORY / "docs" / "howto" / "slow-training.md").read_text(encoding="utf-8")
    begun = {
        words.lower()
        for file in ("limits.py", "causes.py")
        for words in re.findall(
            r'f"([A-Z][\w -]+?)(?:: | in \{)',
            (REPOSITORY / "src" / "sonda" / "report" / "words" / file).read_text(encoding="utf-8"),
        )
    }
    assert len(begun) >= 25
    rows = " | ".join(re.findall(r"^\| ([^|]+) \|", page, re.MULTILINE))
    assert [words for words in sorted(begun) if words not in rows] == []
