"""A notebook run cell by cell in this process, and what each cell would display, by IPython's protocol."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any


def run_notebook(path: Path) -> list[dict[str, Any]]:
    """What every code cell displays: its last expression as a bundle of MIME types; {} where it displays nothing."""
    cells = json.loads(path.read_text())["cells"]
    space: dict[str, Any] = {"__name__": "__main__"}
    return [_run("".join(cell["source"]), f"cell {number}", space)
            for number, cell in enumerate(cells) if cell["cell_type"] == "code"]  # fmt: skip


def _run(source: str, name: str, space: dict[str, Any]) -> dict[str, Any]:
    tree = ast.parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), space)
    return displayed(eval(compile(ast.Expression(last.value), name, "eval"), space)) if last is not None else {}


def displayed(value: Any) -> dict[str, Any]:
    """What IPython's formatter would make of a value: its own bundle, else what its `_repr_*_` methods give."""
    if value is None:
        return {}
    own = getattr(value, "_repr_mimebundle_", None)
    if own is not None:
        return dict(own(include=None, exclude=None))
    kinds = {"text/html": "_repr_html_", "image/svg+xml": "_repr_svg_"}
    found = {kind: getattr(value, name)() for kind, name in kinds.items() if hasattr(value, name)}
    return {**found, "text/plain": repr(value)}
