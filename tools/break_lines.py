"""Breaks random lines of the source, one at a time, and tells how many the tests notice.

    python tools/break_lines.py --count 40 --jobs 2 --seed 1 --seconds 300

Each break is made in a copy of the tree of its own. Tests that import the broken module run first, then those of the
same folder, of the room, and all others, until one fails or the time is up. Tests that fail without a break are left
out.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "sonda"
COPIED = ("src", "tests", "benchmarks", "examples", "docs", "tools", "pyproject.toml", "README.md", "mkdocs.yml",
          "CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "constraints.txt", "LICENSE")  # fmt: skip
COMPARISONS = {
    ast.Lt: ">=", ast.GtE: "<", ast.Gt: "<=", ast.LtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not",
    ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
ARITHMETIC = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*"}
NO_TESTS = 5
"""pytest's exit code where it found nothing to run."""


@dataclass(frozen=True)
class Break:
    """A piece of a file that is replaced by another."""

    file: Path
    line: int
    begin: int
    end: int
    text: str

    def describe(self) -> str:
        old = self.file.read_text()[self.begin : self.end]
        return f"{self.file.relative_to(ROOT)}:{self.line}: {' '.join(old.split())} -> {' '.join(self.text.split())}"


def breaks_of(file: Path) -> list[Break]:
    """Everything in a file that can be broken."""
    source = file.read_text()
    starts = [0]
    for row in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(row))

    def offset(line: int, column: int) -> int:
        row = source[starts[line - 1] :].split("\n", 1)[0].encode()
        return starts[line - 1] + len(row[:column].decode())

    def text_of(node: ast.AST) -> tuple[int, int, str]:
        begin, end = offset(node.lineno, node.col_offset), offset(node.end_lineno, node.end_col_offset)
        return begin, end, source[begin:end]

    found: list[Break] = []

    def add(node: ast.AST, text: str) -> None:
        begin, end, old = text_of(node)
        if text != old:
            found.append(Break(file, node.lineno, begin, end, text))

    for node in _executed(ast.parse(source)):
        match node:
            case ast.Compare(ops=[operator]) if type(operator) in COMPARISONS:
                left, right = text_of(node.left)[2], text_of(node.comparators[0])[2]
                add(node, f"(({left}) {COMPARISONS[type(operator)]} ({right}))")
            case ast.BinOp() if type(node.op) in ARITHMETIC and not isinstance(node.left, ast.Constant | ast.JoinedStr):
                add(node, f"(({text_of(node.left)[2]}) {ARITHMETIC[type(node.op)]} ({text_of(node.right)[2]}))")
            case ast.BoolOp():
                word = " or " if isinstance(node.op, ast.And) else " and "
                add(node, "(" + word.join(f"({text_of(value)[2]})" for value in node.values) + ")")
            case ast.UnaryOp(op=ast.Not()):
                add(node, f"({text_of(node.operand)[2]})")
            case ast.If() | ast.While() | ast.IfExp():
                add(node.test, f"(not ({text_of(node.test)[2]}))")
            case ast.Constant(value=bool()):
                add(node, str(not node.value))
            case ast.Constant(value=int()):
                add(node, f"({node.value!r} + 1)")
            case ast.Constant(value=float()):
                add(node, f"(2 * {node.value!r})")
            case ast.Return(value=ast.expr()) if not (isinstance(node.value, ast.Constant) and not node.value.value):
                add(node, "return None")
            case ast.Expr(value=ast.Call()):
                add(node, "pass")
    return found


def _executed(tree: ast.AST) -> list[ast.AST]:
    """The nodes that run: no annotations, no code for type checkers, no declarations of slots."""
    nodes: list[ast.AST] = []

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            return
        if isinstance(node, ast.JoinedStr):
            return
        nodes.append(node)
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    visit(child)

    visit(tree)
    return nodes


def draw_breaks(count: int, seed: int, rooms: list[str]) -> list[Break]:
    """So many breaks, every line of the source as likely as another."""
    files = [file for file in sorted(SOURCE.rglob("*.py")) if not rooms or file.relative_to(SOURCE).parts[0] in rooms]
    lines = [(file, breaks) for file in files for breaks in _by_line(file)]
    chance = random.Random(seed)
    return [chance.choice(breaks) for _, breaks in chance.sample(lines, count)]


def _by_line(file: Path) -> list[list[Break]]:
    lines: dict[int, list[Break]] = {}
    for place in breaks_of(file):
        lines.setdefault(place.line, []).append(place)
    return list(lines.values())


def nearest_tests(file: Path) -> list[list[str]]:
    """Files of tests, the nearest to this file first."""
    tests = ROOT / "tests"
    folders = sorted({path.parent.relative_to(ROOT) for path in tests.rglob("test_*.py")})
    parts = file.relative_to(SOURCE).parts[:-1]
    room = Path("tests", *parts[:1])
    own = Path("tests", *parts)
    near = [folder for folder in folders if folder == own or own in folder.parents]
    same_room = [folder for folder in folders if folder not in near and (folder == room or room in folder.parents)]
    corpus = [folder for folder in folders if folder.parts[1] == "corpus"]
    rest = [folder for folder in folders if folder not in near + same_room + corpus]
    named = sorted(
        str(path.relative_to(ROOT)) for path in tests.rglob("test_*.py")
        if file.stem in path.stem or _imports(path, file)
    )  # fmt: skip
    files = [[str(path.relative_to(ROOT)) for folder in group for path in sorted((ROOT / folder).glob("test_*.py"))]
             for group in (near, same_room, corpus, rest)]  # fmt: skip
    return [group for group in (named, *files) if group]


def _imports(test: Path, file: Path) -> bool:
    """Whether a test imports this module by its name."""
    module = file.relative_to(SOURCE.parent).with_suffix("")
    package, text = ".".join(module.parts[:-1]), test.read_text()
    beside = re.search(rf"from {re.escape(package)} import [^\n]*\b{module.name}\b", text)
    return f"{package}.{module.name}" in text or beside is not None


def try_break(place: Break, seconds: float, failing: list[str]) -> tuple[str, float, str]:
    """Whether the tests notice a break: `caught`, `missed` or `late`, after how many seconds, and the test that did."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sonda-break-") as folder:
        copy = Path(folder, "tree")
        copy.mkdir()
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, copy / name)
        broken = copy / place.file.relative_to(ROOT)
        text = broken.read_text()
        broken.write_text(text[: place.begin] + place.text + text[place.end :])
        environment = os.environ | {
            # An empty entry would be the current directory of every program that a test starts.
            "PYTHONPATH": os.pathsep.join(filter(None, [str(copy / "src"), os.environ.get("PYTHONPATH", "")])),
            "TMPDIR": folder,
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        for group in nearest_tests(place.file):
            left = seconds - (time.monotonic() - begin)
            if left <= 0:
                return "late", time.monotonic() - begin, ""
            command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *group]
            command += [word for test in failing for word in ("--deselect", test)]
            code, output = _run(command, copy, environment, left)
            if code is None:
                return "late", time.monotonic() - begin, ""
            if code not in (0, NO_TESTS):
                lines = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
                return "caught", time.monotonic() - begin, lines[0] if lines else output.strip().splitlines()[-1][:200]
    return "missed", time.monotonic() - begin, ""


def _run(command: list[str], folder: Path, environment: dict[str, str], seconds: float) -> tuple[int | None, str]:
    """The exit code of a command and what it printed; None where its time was up."""
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None, ""
    return process.returncode, output


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--count", type=int, default=40)
    options.add_argument("--jobs", type=int, default=2)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--seconds", type=float, default=600.0, help="for each break")
    options.add_argument("--failing", type=Path, help="file of tests that fail without a break, one a line")
    options.add_argument("rooms", nargs="*", help="folders of src/sonda; all without")
    given = options.parse_args()
    failing = given.failing.read_text().split("\n") if given.failing else []
    failing = [test for test in failing if test]
    results: dict[str, int] = {}
    with ThreadPoolExecutor(given.jobs) as pool:
        places = draw_breaks(given.count, given.seed, given.rooms)
        for place, (answer, spent, test) in zip(
            places, pool.map(lambda place: try_break(place, given.seconds, failing), places), strict=True
        ):
            results[answer] = results.get(answer, 0) + 1
            print(f"{answer:7} {spent:5.0f} s  {place.describe()}  {test}", flush=True)
    print(", ".join(f"{count} {answer}" for answer, count in sorted(results.items())))


if __name__ == "__main__":
    main()
