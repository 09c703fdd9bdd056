"""The pictures of the rooms say what the code says."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from places import REPOSITORY
from rooms_cases import FILES as SOURCES
from rooms_cases import imports_in, package_of, room_of

TOOLS = REPOSITORY / "tools"
STRONG = 12
"""Calls that give things from one room to another: so many are a way that a picture of them must show."""


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:  # a tool finds those beside it, as when it is run
        patch.syspath_prepend(TOOLS)
        spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    return loaded("rooms_picture")


@pytest.fixture(scope="module")
def walk() -> ModuleType:
    return loaded("walk_picture")


def test_the_picture_is_up_to_date(tool: ModuleType) -> None:
    kept = tool.PICTURE.read_text(encoding="utf-8")
    assert kept == tool.drawn(), "run: python tools/rooms_picture.py"


def test_its_arrows_are_those_that_the_check_of_imports_finds(tool: ModuleType) -> None:
    known = tool.rooms()
    found: dict[str, set[str]] = {room: set() for room in known}
    for path in SOURCES:
        room = room_of(path)
        if room not in found:
            continue
        for _, name in imports_in(path.read_text(encoding="utf-8"), package_of(path)):
            parts = name.split(".")
            if parts[0] == "sonda" and len(parts) > 1 and parts[1] in known and parts[1] != room:
                found[room].add(parts[1])
    assert tool.arrows(known) == found


def test_what_is_left_out_follows_from_what_is_drawn(tool: ModuleType) -> None:
    found = tool.arrows(tool.rooms())
    height = tool.levels(found)
    drawn = tool.direct(found, height)
    for room in height:
        reached, new = set(), set(drawn[room])
        while new:
            reached |= new
            new = set().union(*(drawn[other] for other in new)) - reached
        assert found[room] & set(height) <= reached, room
    assert len(re.findall("marker-end", tool.drawn())) == sum(len(others) for others in drawn.values())


def test_a_new_import_changes_the_picture(tool: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    before, usual = tool.drawn(), tool.arrows
    monkeypatch.setattr(tool, "arrows", lambda known: usual(known) | {"report": {"analysis", "imports", "record"}})
    assert tool.drawn() != before


def test_a_circle_is_told(tool: ModuleType) -> None:
    with pytest.raises(SystemExit, match="circle"):
        tool.levels({"report": {"analysis"}, "analysis": {"report"}})


def test_how_data_walks_is_true_and_lacks_no_broad_way(walk: ModuleType) -> None:
    """Not equal to the letter: one call more somewhere changes the order of words, and not what they say."""
    found = walk.walks(walk.Code())
    picture = walk.PICTURE.read_text(encoding="utf-8")
    said = [re.split(" &gt; |: ", one) for one in re.findall('data-walk="([^"]+)"', picture)]
    assert len(said) > 10
    for giver, taker, words in said:
        for word in words.split(", "):
            assert found[giver, taker][word], f"{word} walks no more from {giver} to {taker}: run tools/walk_picture.py"
    drawn = {(giver, taker) for giver, taker, _ in said}
    broad = {pair for pair, calls in found.items() if calls.total() >= STRONG}
    assert broad <= drawn, "run: python tools/walk_picture.py"


FILES = {
    "record/kept.py": """
class Kept: ...
class KeptError(Exception): ...
class Plan(Protocol): ...
def keep(parts: list[Kept]) -> Kept: return Kept()
""",
    "workloads/plans.py": """
from sonda.record.kept import Plan
def plan() -> Plan: ...
""",
    "targets/measuring.py": """
from sonda.record.kept import Kept, keep
from sonda.workloads.plans import plan
class Job: ...
def measure(job: Job) -> Kept:
    plan()
    return keep([Kept()])
""",
    "analysis/meaning.py": """
from sonda.record.kept import Kept, KeptError
class Summary: ...
def summarise(run: Kept) -> Summary: return Summary()
def plain(run: Kept) -> dict[str, int]: ...
""",
    "report/showing.py": """
from sonda.analysis.meaning import Summary
def render(found: Summary) -> str: ...
def as_page(document: dict[str, int]) -> str: ...
""",
    "cli/commands.py": """
from sonda.analysis.meaning import plain, summarise
from sonda.report.showing import as_page, render
from sonda.targets.measuring import Job, measure
def command() -> None:
    run = measure(Job())
    render(summarise(run))
    document = plain(run)
    as_page(document)
""",
}


def test_ways_of_a_small_package_by_hand(walk: ModuleType, tmp_path: Path) -> None:
    for name, text in FILES.items():
        path = tmp_path / "sonda" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert walk.walks(walk.Code(tmp_path / "sonda")) == {
        ("workloads", "targets"): {"Plan": 1},
        # Handed to keep by who made it, and returned by keep to its caller.
        ("targets", "record"): {"Kept": 1},
        ("record", "targets"): {"Kept": 1},
        # The face takes it from measure and gives it to summarise and to plain.
        ("targets", "analysis"): {"Kept": 2},
        ("cli, api", "targets"): {"Job": 1},
        ("analysis", "report"): {"Summary": 1, "document": 1},
    }
