"""The picture of docs/architecture.md that says how data walks through the rooms, drawn from the code.

`python tools/walk_picture.py` writes docs/walk.svg. An arrow from one room to another says that the first makes a thing
and gives it to the second: a function of the first returns it to the second, a function of the second is called with it
by the first, or cli and api take it from one and call the other with it. A room makes a thing where it constructs its
class; what is a protocol, where a function promises to return one. Words on an arrow are the classes that walk there in
most calls, three at most. Of methods only those of a store count, which is where runs come from.
"""

from __future__ import annotations

import ast
import math
from collections import Counter, defaultdict
from html import escape
from pathlib import Path

from rooms_svg import FACES, FILL, LINE, PACKAGE, REPOSITORY, framed, parse_package

PICTURE = REPOSITORY / "docs" / "walk.svg"

FACE = "cli, api"
"""Faces are one box: they hold no logic."""
DOCUMENT = "document"
"""Plain values, which have no class."""
PLACE_OF_THINGS = ("Store",)
"""Classes that are where things are kept, and no things."""
FEWEST, WEAKEST = 3, 5
"""Arrows of fewer calls are left out, and those that the other way is so many times as strong as."""
NAMED = 3
"""Classes on an arrow."""

PLACES = {
    "workloads": (0, 0), FACE: (1, 0), "studies": (2, 0), "report": (3, 0),
    "frameworks": (0, 1), "targets": (1, 1), "analysis": (3, 1),
    "accelerators": (0, 2), "probes": (1, 2), "record": (2, 2), "integrations": (3, 2),
    "imports": (2, 3),
}  # fmt: skip
"""Column and row of every room, so that a run walks from left to right and back up."""
ABOVE = (("workloads", "studies"), (FACE, "report"))
"""Arrows that go over the box between."""
BOX, HIGH, ACROSS, DOWN, MARGIN, TOP = 140, 44, 262, 136, 16, 56
BESIDE = 9
"""px from the middle of a line that goes to and fro to each of its two."""

Name = tuple[str, str]
"""Module and name of a class or a function."""
Arrows = dict[tuple[str, str], Counter[str]]


class Code:
    """The package's classes and functions, and what the words of each of its files mean."""

    def __init__(self, package: Path = PACKAGE) -> None:
        self.trees = {_module(path, package): tree for path, tree in parse_package(package).items()}
        self.classes: dict[Name, ast.ClassDef] = {}
        self.functions: dict[Name, ast.FunctionDef] = {}
        self._words: dict[str, dict[str, Name]] = {}
        self._methods: dict[str, Name] = {}
        for module, tree in self.trees.items():
            words = self._words[module] = {}
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").startswith("sonda."):
                    words |= {alias.asname or alias.name: (str(node.module), alias.name) for alias in node.names}
            for node in tree.body:
                if isinstance(node, ast.ClassDef):
                    self.classes[module, node.name] = node
                    words[node.name] = (module, node.name)
                    if node.name in PLACE_OF_THINGS:
                        own = {one.name: one for one in node.body if isinstance(one, ast.FunctionDef)}
                        self._methods |= {word: (module, f"{node.name}.{word}") for word in own}
                        self.functions |= {self._methods[word]: method for word, method in own.items()}
                elif isinstance(node, ast.FunctionDef):
                    self.functions[module, node.name] = node
                    words[node.name] = (module, node.name)

    def called(self, module: str, call: ast.Call) -> Name | None:
        """The class or function of ours that is called, or the method of something that is called a store."""
        if isinstance(call.func, ast.Name):
            return self.meant(module, call.func.id)
        name = self._methods.get(call.func.attr) if isinstance(call.func, ast.Attribute) else None
        return name if name is not None and "store" in ast.unparse(call.func).lower() else None

    def meant(self, module: str, word: str) -> Name | None:
        """The class or function of ours that a word of a file names, also where another file passes it on."""
        name, seen = self._words[module].get(word), set()
        while name is not None and name not in self.classes and name not in self.functions:
            if name in seen:
                return None
            seen.add(name)
            name = self._words.get(name[0], {}).get(name[1])
        return name

    def things(self, module: str, annotation: ast.expr | None) -> list[Name]:
        """The classes of ours in an annotation, as far as they can walk: no errors, and not what is called later."""
        if annotation is None or (isinstance(annotation, ast.Subscript) and _is(annotation.value, "Callable")):
            return []
        found = [self.meant(module, node.id) for node in ast.walk(annotation) if isinstance(node, ast.Name)]
        known = [name for name in found if name in self.classes]
        return [name for name in known if not name[1].endswith("Error") and name[1] not in PLACE_OF_THINGS]

    def is_protocol(self, name: Name) -> bool:
        return any(_is(base, "Protocol") for base in self.classes[name].bases)


def _module(path: Path, package: Path) -> str:
    return ".".join((package.name, *path.relative_to(package).with_suffix("").parts)).removesuffix(".__init__")


def _is(node: ast.expr, word: str) -> bool:
    return isinstance(node, ast.Name) and node.id == word


def room_of(module: str) -> str:
    """The box that a module stands in."""
    room = module.split(".")[1] if "." in module else module
    return FACE if room in FACES else room


def walks(code: Code) -> Arrows:
    """How many calls give which class from one room to another."""
    makes: dict[Name, set[str]] = defaultdict(set)
    calls: list[tuple[str, Name]] = []
    for module, tree in code.trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                name = code.called(module, node)
                if name in code.classes:
                    makes[name].add(room_of(module))
                elif name is not None:
                    calls.append((room_of(module), name))
            elif isinstance(node, ast.FunctionDef):
                for thing in code.things(module, node.returns):
                    if code.is_protocol(thing) and module != thing[0]:
                        makes[thing].add(room_of(module))
    arrows: Arrows = defaultdict(Counter)
    given: dict[Name, Counter[str]] = defaultdict(Counter)
    taken: dict[Name, Counter[str]] = defaultdict(Counter)
    for caller, name in calls:
        called, function = room_of(name[0]), code.functions[name]
        if caller == called:
            continue
        parameters = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        returned = code.things(name[0], function.returns)
        wanted = [thing for one in parameters for thing in code.things(name[0], one.annotation)]
        if caller == FACE:
            for thing in returned:
                given[thing][called] += 1
            for thing in wanted:
                taken[thing][called] += 1
        else:
            for thing in returned:
                arrows[called, caller][thing[1]] += called in makes[thing]
        for thing in wanted:
            arrows[caller, called][thing[1]] += caller in makes[thing]
    for thing, givers in given.items():
        for giver in givers:
            for taker, count in taken[thing].items():
                if giver != taker and giver in makes[thing]:
                    arrows[giver, taker][thing[1]] += count
    for pair, count in _documents(code).items():
        arrows[pair][DOCUMENT] += count
    return {pair: +found for pair, found in arrows.items() if +found}


def _documents(code: Code) -> Counter[tuple[str, str]]:
    """Plain values that a face takes from a function of one room and calls one of another with."""
    found: Counter[tuple[str, str]] = Counter()
    for module, tree in code.trees.items():
        if room_of(module) != FACE:
            continue
        for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
            made: dict[str, set[str]] = defaultdict(set)
            for node in ast.walk(function):
                if (
                    isinstance(node, ast.Assign)
                    and isinstance(node.value, ast.Call)
                    and _plain(code, module, node.value)
                ):
                    for target in node.targets:
                        made[ast.unparse(target)].add(_room_called(code, module, node.value))
            for node in ast.walk(function):
                taker = _room_called(code, module, node) if isinstance(node, ast.Call) else ""
                for word in node.args if taker and isinstance(node, ast.Call) else []:
                    for giver in made.get(ast.unparse(word), set()) - {taker}:
                        found[giver, taker] += 1
    return found


def _room_called(code: Code, module: str, call: ast.Call) -> str:
    name = code.called(module, call)
    return room_of(name[0]) if name in code.functions and room_of(name[0]) != FACE else ""


def _plain(code: Code, module: str, call: ast.Call) -> bool:
    """Whether it calls a function of another room that returns a dictionary."""
    name = code.called(module, call)
    returns = code.functions[name].returns if name in code.functions else None
    return bool(_room_called(code, module, call)) and returns is not None and ast.unparse(returns).startswith("dict[")


def shown(code: Code) -> dict[tuple[str, str], str]:
    """The arrows that are drawn, with their words."""
    arrows = walks(code)
    kept = {}
    for (giver, taker), found in sorted(arrows.items()):
        strength, back = found.total(), arrows.get((taker, giver), Counter()).total()
        if strength >= FEWEST and strength * WEAKEST > back:
            kept[giver, taker] = ", ".join(word for _, word in sorted((-found[word], word) for word in found)[:NAMED])
    return kept


def _middle(room: str) -> tuple[float, float]:
    column, row = PLACES[room]
    return MARGIN + column * ACROSS + BOX / 2, TOP + row * DOWN + HIGH / 2


def _edge(room: str, way: tuple[float, float], aside: tuple[float, float]) -> tuple[float, float]:
    """Where a line that goes this way, so far beside the middle of a box, leaves it."""
    shares = []
    for half, along, off in zip((BOX / 2, HIGH / 2), way, aside, strict=True):
        if along:
            shares.append((math.copysign(half, along) - off) / along)
    x, y = _middle(room)
    return x + aside[0] + min(shares) * way[0], y + aside[1] + min(shares) * way[1]


def _path(giver: str, taker: str, words: str, line: str) -> str:
    """The line with what it says, for whoever checks it."""
    said = escape(f"{giver} > {taker}: {words}")
    return f'<path d="{line}" marker-end="url(#tip)" data-walk="{said}"/>'


def _arrow(giver: str, taker: str, words: str, both: bool) -> tuple[str, str]:
    """A line and its words; of two that go to and fro, each lies and is named on its own side."""
    start, end = _middle(giver), _middle(taker)
    if (giver, taker) in ABOVE:
        (x, y), (to_x, to_y) = (start[0], start[1] - HIGH / 2), (end[0], end[1] - HIGH / 2)
        line = f"M{x:g},{y:g} C{x:g},{y - 44:g} {to_x:g},{to_y - 44:g} {to_x:g},{to_y:g}"
        return _path(giver, taker, words, line), _label((x + to_x) / 2, y - 37, words)
    way = (end[0] - start[0], end[1] - start[1])
    long = math.hypot(*way)
    aside = (-way[1] / long * BESIDE, way[0] / long * BESIDE) if both else (0.0, 0.0)
    (x, y), (to_x, to_y) = _edge(giver, way, aside), _edge(taker, (-way[0], -way[1]), aside)
    line = f"M{x:.1f},{y:.1f} L{to_x:.1f},{to_y:.1f}"
    middle = ((x + to_x) / 2 + 2.4 * aside[0], (y + to_y) / 2 + 2.4 * aside[1])
    return _path(giver, taker, words, line), _label(*middle, words)


def _label(x: float, y: float, words: str) -> str:
    lines = words.split(", ")
    return "".join(
        f'<text x="{x:.1f}" y="{y + 4 + 12 * (at - (len(lines) - 1) / 2):.1f}" class="what">'
        f"{escape(line + (',' if at < len(lines) - 1 else ''))}</text>"
        for at, line in enumerate(lines)
    )


def drawn(code: Code | None = None) -> str:
    """The whole picture as SVG, the same for the same code."""
    arrows = shown(code or Code())
    strange = {room for pair in arrows for room in pair} - set(PLACES)
    if strange:
        raise SystemExit(f"tools/walk_picture.py has no place for {', '.join(sorted(strange))}")
    lines, words = [], []
    for (giver, taker), said in arrows.items():
        line, text = _arrow(giver, taker, said, (taker, giver) in arrows)
        lines.append(line)
        words.append(text)
    boxes = []
    for room in PLACES:
        x, y = _middle(room)
        boxes.append(
            f'<rect x="{x - BOX / 2:g}" y="{y - HIGH / 2:g}" width="{BOX}" height="{HIGH}" rx="6" fill="{FILL}" '
            f'stroke="{LINE}"/><text x="{x:g}" y="{y + 5:g}" class="name">{escape(room)}</text>'
        )
    width = 2 * MARGIN + 3 * ACROSS + BOX
    bottom = TOP + 3 * DOWN + HIGH + MARGIN
    small = "font-size:11.5px;paint-order:stroke;stroke:#ffffff;stroke-width:4px"
    return framed(width, bottom, "How data walks through the rooms of Sonda", small, (*lines, *boxes, *words))


def main() -> None:
    PICTURE.write_text(drawn(), encoding="utf-8")
    print(PICTURE.relative_to(REPOSITORY))


if __name__ == "__main__":
    main()
