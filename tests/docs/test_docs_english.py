"""The documentation is in plain English: no phrase that needs a second reading, and no word of the code's own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from places import REPOSITORY

DOCS = REPOSITORY / "docs"
PAGES = [
    REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md")),
    *sorted((REPOSITORY / "examples").rglob("*.md")),
]  # fmt: skip
BANNED = {
    r"\b(?:is|are|was|were|be|been) said\b": "say who says it",
    r"\b(?:is|are|was|were|be|been) told\b": "shows, reports, names",
    r"\btell(?:s|ing)? apart\b|\btold apart\b": "distinguish, separate",
    r"\bh(?:olds?|eld|olding) (?:\w+ |\w+ \w+ )?against\b": "compares with",
    r"\bst(?:ands?|anding|ood) beside\b": "next to, compare with",
    r"\bof those that\b": "name them",
    r"\bforetold\b|\bforetells?\b|\bforeseen\b|\bforesight\b": "predict",
    r"\bof one's own\b": "of your own",
    r"\bat hand\b": "available",
    r"\bput together\b": "built, joined",
    r"\bin silence\b": "silently",
    r"\bunless given\b|\bunless said\b": "by default",
    r"\bwhoever\b|\bthereof\b|\bwherein\b|\bhitherto\b": "a plainer word",
    r"\bby turns\b": "alternately",
    r"\bmade anew\b|\bgoes on where\b": "starts again, continues",
    r"\band the like\b": "name it",
}
"""What sounds translated, with what to write instead."""
OWN_WORD = re.compile(r"\brooms?\b", re.IGNORECASE)
"""A part of the code: a word of the pages that explain the code."""
ABOUT_THE_CODE = {"architecture.md", "CONTRIBUTING.md"}


def prose(text: str) -> str:
    """A page without its blocks, its code in backticks and what screens say in italics; lines keep their numbers."""
    text = re.sub(r"^```.*?^```", lambda block: "\n" * block[0].count("\n"), text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"`[^`]*`", lambda code: "\n" * code[0].count("\n"), text)
    text = re.sub(r"(?<!\*)\*(?!\*)[^*]+\*(?!\*)", lambda shown: "\n" * shown[0].count("\n"), text)
    return re.sub(r"^\* (?:\w+ in \w+ on \w+|\w+ at \d).*$", "", text, flags=re.MULTILINE)


def faults(text: str, room: bool) -> list[str]:
    """Lines with phrases to avoid, each with what to write instead."""
    found = []
    plain = prose(text)
    for pattern, instead in BANNED.items():
        for match in re.finditer(pattern.replace(" ", r"\s+"), plain, re.IGNORECASE):
            words = " ".join(match[0].split())
            found.append(f"{plain.count(chr(10), 0, match.start()) + 1}: {words!r}: {instead}")
    if not room:
        links = re.sub(r"\]\([^)]*\)", "]", plain)
        found += [f"{links.count(chr(10), 0, match.start()) + 1}: {match[0]!r}" for match in OWN_WORD.finditer(links)]
    return found


@pytest.mark.parametrize("page", PAGES, ids=[str(path.relative_to(REPOSITORY)) for path in PAGES])
def test_a_page_is_in_plain_english(page: Path) -> None:
    explains_code = page.name in ABOUT_THE_CODE or page.parent.name == "rooms"
    assert faults(page.read_text(encoding="utf-8"), explains_code) == []


def test_the_check_itself_sees_what_it_should() -> None:
    assert faults("Ours is held\nagainst theirs.", True) == ["1: 'held against': compares with"]
    assert faults("It holds the engine against it.", True) == ["1: 'holds the engine against': compares with"]
    assert faults("a\n\nThe room `report`", False) == ["3: 'room'"]
    assert faults("The room `report`; *layers are told apart in 5 steps*", True) == []
    assert faults("```\nit is said\n```\n`it is said`", False) == []
