"""The picture of the rooms says what the code says."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

import test_rooms

TOOL = Path(__file__).parent.parent / "tools" / "rooms_picture.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("rooms_picture", TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_picture_is_up_to_date(tool: ModuleType) -> None:
    kept = tool.PICTURE.read_text(encoding="utf-8")
    assert kept == tool.drawn(), "run: python tools/rooms_picture.py"


def test_its_arrows_are_those_that_the_check_of_imports_finds(tool: ModuleType) -> None:
    known = tool.rooms()
    found: dict[str, set[str]] = {room: set() for room in known}
    for path in test_rooms.FILES:
        room = test_rooms.room_of(path)
        if room not in found:
            continue
        for _, name in test_rooms.imports(ast.parse(path.read_text(encoding="utf-8")), test_rooms.package_of(path)):
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
