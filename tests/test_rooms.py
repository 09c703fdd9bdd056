"""The rooms keep to the table in docs/architecture.md, and every file to the house rules."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent
PACKAGE = REPOSITORY / "src" / "sonda"
FILES = sorted(PACKAGE.rglob("*.py"))
NAMES = [str(path.relative_to(PACKAGE)) for path in FILES]
OUTSIDE_ROOMS = {"__init__", "__main__", "version"}
"""Doors of the package: they only lead to api and cli, and anybody may ask for the version."""
FACES = {"api", "cli"}
INSIDE_THE_PROGRAM = ("frameworks/collector/", "frameworks/inject/")

LONGEST = 400


def table() -> dict[str, set[str]]:
    """What each room may import, read from the page, so that page and code cannot drift apart."""
    page = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
    lines = page.split("| room | may import |\n|---|---|\n")[1].split("\n\n")[0].splitlines()
    allowed: dict[str, set[str]] = {}
    for line in lines:
        rooms, imports = (cell.strip() for cell in line.strip("|").split("|"))
        for room in rooms.split(", "):
            allowed[room] = set() if imports.startswith("nothing") else set(imports.split(", "))
    return allowed


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


def package_of(path: Path) -> str:
    return ".".join(("sonda", *path.relative_to(PACKAGE).parent.parts))


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def wrong_imports(room: str, package: str, source: str, allowed: dict[str, set[str]]) -> list[str]:
    found = []
    for line, name in imports(ast.parse(source), package):
        parts = name.split(".")
        if parts[0] != "sonda":
            continue
        other = parts[1] if len(parts) > 1 else "__init__"
        if (
            other == room
            or other == "version"
            or room in FACES
            or (room in OUTSIDE_ROOMS and other in FACES | {"record"})
        ):
            continue
        if other not in allowed.get(room, set()):
            found.append(f"line {line}: {room} imports {name}")
    return found


def test_the_table_names_every_room() -> None:
    assert {room_of(path) for path in FILES} - OUTSIDE_ROOMS <= set(table())
    assert table()["record"] == set()
    assert "everything" in table()["api"]
    known = set(table()) | {"everything", "and hold no logic"}
    for room, allowed in table().items():
        assert allowed <= known, f"{room} may import a room that the table does not have"


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_imports_keep_to_the_table(path: Path) -> None:
    assert wrong_imports(room_of(path), package_of(path), path.read_text(encoding="utf-8"), table()) == []


@pytest.mark.parametrize(
    ("room", "source", "wrong"),
    [
        ("record", "import sonda.analysis.summary", True),
        ("record", "from sonda import analysis", True),
        ("record", "import sonda", True),
        ("record", "from ..analysis import summary", True),
        ("record", "from .. import analysis", True),
        ("record", "from . import span", False),
        ("analysis", "from sonda.record import span", False),
        ("analysis", "def f():\n from sonda.probes import machine", True),
        ("report", "if TYPE_CHECKING:\n from sonda.probes.machine import x", True),
        ("workloads", "importlib.import_module('sonda.probes.clock')", True),
        ("probes", "from sonda.cli import main", True),
        ("probes", "from sonda.version import VERSION", False),
        ("api", "from sonda.studies import plan", False),
    ],
)
def test_the_check_itself_sees_wrong_imports(room: str, source: str, wrong: bool) -> None:
    assert bool(wrong_imports(room, f"sonda.{room}", source, table())) == wrong


# ---- inside the observed program --------------------------------------------------------------------------------


FRAMEWORKS = ("torch", "tensorflow", "keras", "jax", "pytensor", "numba")
"""What an observed program may have; Numba belongs to PyTensor."""


def strangers(name: str, source: str) -> list[str]:
    """What the collector may not import: anything but the standard library, the framework and its own files."""
    package = "_sonda_collector"
    tree = ast.parse(source)
    inner = {id(node) for function in ast.walk(tree) if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
             for node in ast.walk(function)}  # fmt: skip
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        for line, imported in imports(ast.Module([node], []), package):
            top = imported.split(".")[0]
            if top == package or top in sys.stdlib_module_names:
                continue
            if top in FRAMEWORKS and (id(node) in inner or name.startswith(f"{top}_")):
                continue
            found.append(f"line {line}: imports {imported}")
    return found


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith(INSIDE_THE_PROGRAM)])
def test_the_collector_needs_nothing_but_python_and_the_framework(name: str) -> None:
    assert strangers(Path(name).name, (PACKAGE / name).read_text(encoding="utf-8")) == []


def test_the_check_itself_sees_strangers() -> None:
    assert strangers("start.py", "import numpy")
    assert strangers("start.py", "def f():\n from sonda.record import span")
    assert strangers("start.py", "import torch")
    assert strangers("torch_x.py", "from ..events import match")
    assert not strangers("torch_x.py", "import torch\nfrom .recorder import Recorder")
    assert not strangers("start.py", "import os\ndef f():\n import torch.nn")
    assert not strangers("watch.py", "def f():\n from numba.core import event")
    assert strangers("torch_x.py", "import jax")


# ---- house rules ------------------------------------------------------------------------------------------------

UNFINISHED = re.compile("|".join(("TO" + "DO", "FIX" + "ME", r"\bXX" + r"X\b")))
HOMES = re.compile(
    "|".join(rf"(?<![\w.])/{top}/\w" for top in ("ho" + "me", "ro" + "ot", "wo" + "rk", "Us" + "ers", "mn" + "t"))
)
"""Directories of somebody's own machine. /proc, /sys and /etc are the same on every Linux."""
DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "tests/*.py", "benchmarks/*.py", "src/sonda/**/*.*")
    for path in REPOSITORY.glob(pattern)
    if path.suffix in (".py", ".md", ".toml", ".js", ".css")
)


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_a_file_holds_one_noun(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= LONGEST, "a file this long has two nouns in it"


@pytest.mark.parametrize("path", DOCUMENTS, ids=[str(path.relative_to(REPOSITORY)) for path in DOCUMENTS])
def test_nothing_is_unfinished_and_nothing_names_a_machine(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert [found[0] for found in UNFINISHED.finditer(text)] == []
    assert [found[0] for found in HOMES.finditer(text)] == []


def dangerous(source: str) -> list[str]:
    """Ways to run what came in as data."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for line, name in imports(ast.Module([node], []), "sonda"):
                if name.split(".")[0] in ("pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"):
                    found.append(f"line {line}: {name}")
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in ("eval", "exec"):
                found.append(f"line {node.lineno}: {node.func.id}")
            for keyword in node.keywords:
                value = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
                if (keyword.arg, value) in (("allow_pickle", True), ("weights_only", False), ("shell", True)):
                    found.append(f"line {node.lineno}: {keyword.arg}={value}")
            if isinstance(node.func, ast.Attribute) and ast.unparse(node.func) == "torch.load":
                found.append(f"line {node.lineno}: torch.load")
    return found


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_nothing_runs_that_came_in_as_data(path: Path) -> None:
    assert dangerous(path.read_text(encoding="utf-8")) == []


def test_the_rules_themselves_can_be_broken() -> None:
    for source in ("import pickle", "from pickle import loads", "x = eval('1')", "np.load(f, allow_pickle=True)",
                   "torch.load(f)", "run(c, shell=True)"):  # fmt: skip
        assert dangerous(source), source
    assert not dangerous("model.eval()\nnp.load(f)")
    assert UNFINISHED.search("# TO" + "DO: later")
    assert HOMES.search('Path("/ho' + 'me/ada/x")')
    assert not HOMES.search("https://example.org/ho" + "me/x")
