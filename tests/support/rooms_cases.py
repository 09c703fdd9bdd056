"""Helpers of `test_rooms.py` that other tests use too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from places import REPOSITORY

PACKAGE = REPOSITORY / "src" / "sonda"


FILES = sorted(PACKAGE.rglob("*.py"))


def imports(tree: ast.AST, package: str) -> Iterator[tuple[int, str]]:
    """Every import, wherever it stands (`if TYPE_CHECKING`, inside a function), as line and absolute name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{name}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in (
            "import_module",
            "__import__",
        ):
            first = node.args[0] if node.args else None
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield node.lineno, first.value


@cache
def imports_in(source: str, package: str) -> tuple[tuple[int, str], ...]:
    """The imports of a text, which is read once for all who ask."""
    return tuple(imports(ast.parse(source), package))


def package_of(path: Path) -> str:
    return ".".join(("sonda", *path.relative_to(PACKAGE).parent.parts))


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")
