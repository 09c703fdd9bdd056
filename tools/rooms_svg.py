"""What pictures of the rooms have in common: where the rooms are, their files, colours, and the frame of an SVG."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterable
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGE = REPOSITORY / "src" / "sonda"
FACES = ("api", "cli")
FOREGROUND, LINE, FILL = "#1b1f24", "#57606a", "#eef2f6"


def parse_package(package: Path) -> dict[Path, ast.Module]:
    """The syntax tree of every file of a package.

    Meanwhile nobody looks for garbage: none of the million nodes is any, and looking takes longer than parsing.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(package.rglob("*.py"))}
    finally:
        if collects:
            gc.enable()


def framed(width: float, height: float, title: str, small: str, pieces: Iterable[str]) -> str:
    """Pieces of SVG on white, with a title; `small` is the style of text that is no name."""
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img">',
            f"<title>{title}</title>",
            f"<style>text{{font-family:sans-serif;text-anchor:middle;fill:{FOREGROUND}}}"
            f".name{{font-size:16px;font-weight:bold}}.what{{{small}}}path{{fill:none;stroke:{LINE}}}</style>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
            f'<path d="M0,0 L8,4 L0,8 z" style="fill:{LINE}"/></marker></defs>',
            f'<rect width="{width:g}" height="{height:g}" fill="#ffffff"/>',
            *pieces,
            "</svg>",
            "",
        )
    )
