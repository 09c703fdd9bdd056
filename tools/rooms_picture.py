"""The picture of docs/architecture.md, drawn from the code: rooms, and who imports whom.

`python tools/rooms_picture.py` writes docs/rooms.svg. Rooms are the packages of src/sonda, with the words of the list
in docs/architecture.md; arrows are the imports of their files. An arrow that follows from others is left out.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from html import escape
from pathlib import Path
from textwrap import wrap

from rooms_svg import FACES, FILL, LINE, PACKAGE, REPOSITORY, framed

PAGE = REPOSITORY / "docs" / "architecture.md"
PICTURE = REPOSITORY / "docs" / "rooms.svg"

FLOOR = "record"
"""Everybody stands on it: it is a bar below, and has no arrows."""

WIDTH, BOX, GAP, MARGIN = 920, 196, 24, 16
LINES = 4
"""Of words under a room's name: as many as the longest needs."""
HEIGHT = 38 + 15 * LINES
LEVEL = HEIGHT + 48
BAR = 68
"""Height of the faces above and of the floor below."""


def rooms() -> dict[str, str]:
    """Every room with what it is for, in the order of the page."""
    listed = dict(re.findall(r"^  ([a-z]+)(?:/|\.py) +(.+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    found = {
        path.name.removesuffix(".py") for path in PACKAGE.iterdir() if path.is_dir() and (path / "__init__.py").exists()
    }
    found.add("api")
    if set(listed) != found:
        raise SystemExit(f"docs/architecture.md lists other rooms than src/sonda has: {sorted(set(listed) ^ found)}")
    return listed


@cache
def imported(path: Path) -> set[str]:
    """The rooms that a file imports, wherever in it: absolute and relative imports."""
    here = ("sonda", *path.relative_to(PACKAGE).parent.parts)
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            names += [f"{module}.{alias.name}" for alias in node.names]
    return {name.split(".")[1] for name in names if name.startswith("sonda.")}


def arrows(known: dict[str, str]) -> dict[str, set[str]]:
    """Of every room, the rooms that its files import."""
    found: dict[str, set[str]] = {room: set() for room in known}
    for path in sorted(PACKAGE.rglob("*.py")):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if room in found:
            found[room] |= imported(path) & set(known) - {room}
    return found


def levels(found: dict[str, set[str]]) -> dict[str, int]:
    """How high each room between faces and floor stands: above everything that it imports."""
    middle = [room for room in found if room not in (*FACES, FLOOR)]
    height = dict.fromkeys(middle, 0)
    for _ in middle:
        for room in middle:
            height[room] = max((height[other] + 1 for other in found[room] if other in height), default=0)
    if max(height.values()) >= len(middle):
        raise SystemExit("rooms import each other in a circle")
    return height


def places(height: dict[str, int]) -> dict[str, tuple[float, float]]:
    """Left upper corners. Rooms of one level stand in the order of the page, centred."""
    top = max(height.values())
    found = {}
    for level in range(top + 1):
        row = [room for room in height if height[room] == level]
        left = (WIDTH - len(row) * BOX - (len(row) - 1) * GAP) / 2
        for place, room in enumerate(row):
            found[room] = (left + place * (BOX + GAP), MARGIN + BAR + GAP + (top - level) * LEVEL)
    return found


def direct(found: dict[str, set[str]], height: dict[str, int]) -> dict[str, set[str]]:
    """The imports between faces and floor without those that others lead to: who imports A, which imports B, has B."""

    def reached(room: str) -> set[str]:
        below = found[room] & set(height)
        return below.union(*(reached(other) for other in below))

    straight = {}
    for room in height:
        below = found[room] & set(height)
        straight[room] = below - set().union(*(reached(other) for other in below))
    return straight


def box(x: float, y: float, width: float, height: float, title: str, below: str) -> str:
    lines = wrap(below, int(width / 5.6))
    if len(lines) > LINES:
        raise SystemExit(f"docs/architecture.md says more of {title} than its box holds: {len(lines)} lines")
    words = "".join(
        f'<text x="{x + width / 2:g}" y="{y + 40 + 15 * number:g}" class="what">{escape(line)}</text>'
        for number, line in enumerate(lines)
    )
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" fill="{FILL}" stroke="{LINE}"/>'
        f'<text x="{x + width / 2:g}" y="{y + 22:g}" class="name">{escape(title)}</text>{words}'
    )


def arrow(start: tuple[float, float], end: tuple[float, float]) -> str:
    """To a room one level below: from the lower edge of a box to the upper edge of another."""
    (x, y), (to_x, to_y) = start, end
    bend = (to_y - y) / 2
    curve = f"M{x:g},{y:g} C{x:g},{y + bend:g} {to_x:g},{to_y - bend:g} {to_x:g},{to_y:g}"
    return f'<path d="{curve}" marker-end="url(#tip)"/>'


def long_arrow(corner: tuple[float, float], end: tuple[float, float]) -> str:
    """To a room further below: out of the side of the box, then straight down, past the boxes between."""
    (x, y), (to_x, to_y) = corner, end
    side = x if to_x < x else x + BOX
    line = f"M{side:g},{y + HEIGHT / 2:g} H{to_x:g} V{to_y:g}"
    return f'<path d="{line}" marker-end="url(#tip)"/>'


def drawn() -> str:
    """The whole picture as SVG, the same for the same code."""
    known = rooms()
    found = arrows(known)
    height = levels(found)
    place = places(height)
    lowest = max(y for _, y in place.values())
    floor = lowest + HEIGHT + 2 * GAP
    standing = [room for room in known if FLOOR in found[room]]
    others = [room for room in known if room not in (*standing, FLOOR)]
    lines, boxes = [], []
    straight = direct(found, height)
    for room, (x, y) in place.items():
        near = sorted((other for other in straight[room] if height[other] == height[room] - 1), key=place.__getitem__)
        for other in sorted(straight[room], key=place.__getitem__):
            comers = [comer for comer in place if other in straight[comer]]
            # Long ways come in last, on the outer side, where no box stands above.
            comers.sort(key=lambda comer, other=other: (height[comer] - height[other], place[comer]))
            to_x, to_y = place[other]
            end = (to_x + BOX * (comers.index(room) + 1) / (len(comers) + 1), to_y)
            if other in near:
                start = (x + BOX * (near.index(other) + 1) / (len(near) + 1), y + HEIGHT)
                lines.append(arrow(start, end))
            else:
                lines.append(long_arrow((x, y), end))
        boxes.append(box(x, y, BOX, HEIGHT, room, known[room]))
    whole = WIDTH - 2 * MARGIN
    seen = {other for face in FACES for other in found[face]} - set(FACES)
    all_seen = "every room" if seen >= set(known) - set(FACES) else ", ".join(sorted(seen))
    boxes.append(box(MARGIN, MARGIN, whole, BAR, "cli, api", f"import {all_seen}, and hold no logic"))
    everybody = "imported by every room" if not others else f"imported by every room but {', '.join(others)}"
    boxes.append(box(MARGIN, floor, whole, BAR, FLOOR, f"{known[FLOOR]} ({everybody})"))
    bottom = floor + BAR + MARGIN
    return framed(WIDTH, bottom, "The rooms of Sonda and their imports", "font-size:11px", (*lines, *boxes))


def main() -> None:
    PICTURE.write_text(drawn(), encoding="utf-8")
    print(PICTURE.relative_to(REPOSITORY))


if __name__ == "__main__":
    main()
