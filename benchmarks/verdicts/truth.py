"""The truth about a planted program: its cause, where it is, and the edits that remove it."""

from __future__ import annotations

import ast
import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
PROGRAMS = FOLDER / "programs"
GOOD = "good"
CONTENTION = "contention"
KEYS = {
    "cause", "disguised", "device", "arguments", "what", "also", "remedies", "competitors", "place", "removal",
    "measured",
}  # fmt: skip
PLACE_KEYS = {"file", "function", "text", "texts", "layer"}
AROUND = 1
"""Lines beside the planted one that count as the same place: a statement may begin or end there."""


@dataclass(frozen=True)
class Removal:
    """One edit: `old` occurs once in the file, relative to the program's folder, and becomes `new`."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Place:
    """Where a cause is: lines of a file, a function, or a layer. What is not given is empty."""

    file: str
    function: str
    lines: frozenset[int]
    layer: str

    def holds(self, file: str, line: int, function: str, layer: str) -> bool:
        """Whether a place that was named is this one: the same layer, a line at or beside it, or its function."""
        if self.layer and layer:
            return layer == self.layer or layer.endswith(f".{self.layer}") or self.layer.endswith(f".{layer}")
        if not file or Path(file).name != Path(self.file).name:
            return False
        near = any(abs(line - own) <= AROUND for own in self.lines)
        return near or (bool(function) and function.split(".")[-1] == self.function.split(".")[-1] != "<module>")


@dataclass(frozen=True)
class Truth:
    """A program and what is true of it."""

    program: Path
    cause: str
    disguised: bool
    device: str
    arguments: tuple[str, ...]
    what: str
    accepted: frozenset[str]
    """The cause, and others that an expert would call the same finding."""
    remedies: frozenset[str]
    competitors: int
    place: Place | None
    removals: tuple[Removal, ...]
    share: float | None
    """Part of the program's time that removing the cause saves; None where that was not measured."""

    @property
    def name(self) -> str:
        return f"{self.program.parent.name}/{self.program.stem}"

    def copy_without_cause(self, folder: Path) -> Path:
        """Copy the program's folder, apply the removals, and return the program there."""
        target = folder / self.program.parent.name
        shutil.copytree(self.program.parent, target, ignore=shutil.ignore_patterns("__pycache__"))
        for removal in self.removals:
            file = target / removal.file
            file.write_text(file.read_text().replace(removal.old, removal.new))
        return target / self.program.name


def read_causes() -> dict[str, dict[str, Any]]:
    """What each cause is, and the kinds of remedies that lessen it."""
    return tomllib.loads((FOLDER / "causes.toml").read_text())


def read_truths(device: str = "", programs: Path | None = None) -> list[Truth]:
    """Every planted program, or those for one kind of device. Raises ValueError where a truth is not sound."""
    causes = read_causes()
    paths = sorted((programs or PROGRAMS).resolve().glob("*/*.toml"))
    truths = [_read_truth(path, causes) for path in paths]
    return [truth for truth in truths if not device or truth.device == device]


def _read_truth(path: Path, causes: dict[str, dict[str, Any]]) -> Truth:
    fields = tomllib.loads(path.read_text())
    cause = fields["cause"]
    unknown = sorted(set(fields) - KEYS)
    if unknown or cause not in causes or not set(fields.get("also", [])) <= set(causes):
        raise ValueError(f"{path.name}: unknown key or cause: {unknown or cause} {fields.get('also', '')}")
    program = path.with_suffix(".py")
    removals = tuple(Removal(edit["file"], edit["old"], edit["new"]) for edit in fields.get("removal", []))
    for removal in removals:
        count = (path.parent / removal.file).read_text().count(removal.old)
        if count != 1:
            raise ValueError(f"{path.name}: the text to remove occurs {count} times in {removal.file}, not once")
    if not removals and cause not in (GOOD, CONTENTION):
        raise ValueError(f"{path.name}: nothing says how to remove the cause")
    return Truth(
        program=program,
        cause=cause,
        disguised=fields.get("disguised", False),
        device=fields.get("device", "cpu"),
        arguments=tuple(map(str, fields.get("arguments", []))),
        what=fields["what"],
        accepted=frozenset({cause, *fields.get("also", [])}),
        remedies=frozenset(fields.get("remedies", causes[cause]["remedies"])),
        competitors=fields.get("competitors", 0),
        place=_read_place(path, fields["place"]) if "place" in fields else None,
        removals=removals,
        share=fields.get("measured", {}).get("share"),
    )


def _read_place(path: Path, fields: dict[str, Any]) -> Place:
    if unknown := sorted(set(fields) - PLACE_KEYS):
        raise ValueError(f"{path.name}: a place has no key {unknown[0]!r}")
    file = fields.get("file", path.with_suffix(".py").name)
    source = (path.parent / file).read_text()
    texts = fields.get("texts", [fields["text"]] if "text" in fields else [])
    rows = source.splitlines()
    lines: set[int] = set()
    for text in texts:
        first = text.strip().splitlines()[0].strip()
        numbers = [number for number, row in enumerate(rows, 1) if row.strip() == first]
        if not numbers:
            raise ValueError(f"{path.name}: {file} has no line {first!r}")
        lines |= _statement_lines(source, numbers)
    return Place(file, fields.get("function", ""), frozenset(lines), fields.get("layer", ""))


def _statement_lines(source: str, numbers: list[int]) -> set[int]:
    """All lines of the statements that begin at these lines; of a loop its body too."""
    lines = set(numbers)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt) and node.lineno in numbers and not isinstance(node, ast.ClassDef):
            lines |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines
