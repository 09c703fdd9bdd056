"""The rooms keep to the table in docs/architecture.md, and every file to the house rules."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import pytest

from rooms_cases import FILES, PACKAGE, REPOSITORY, imports, imports_in, package_of, room_of

NAMES = [str(path.relative_to(PACKAGE)) for path in FILES]
OUTSIDE_ROOMS = {"__init__", "__main__", "version"}
"""Doors of the package: they only lead to api and cli, and anybody may ask for the version."""
FACES = {"api", "cli"}
TRAVELLING = re.compile(r"frameworks/(collector/|inject/|(torch|tensorflow|jax|pytensor)/(observe/|__init__\.py))")
"""Files that run inside an observed program."""

LONGEST = 500


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


def name_room(name: str) -> str:
    return room_of(PACKAGE / name)


def wrong_imports(room: str, package: str, source: str, allowed: dict[str, set[str]]) -> list[str]:
    found = []
    for line, name in imports_in(source, package):
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


def broken_by(check: Callable[[str, str], list[str]], names: Iterable[str] = NAMES) -> dict[str, list[str]]:
    """What a check finds in each file, by its name, where it finds anything."""
    wrong = {name: check(name, (PACKAGE / name).read_text(encoding="utf-8")) for name in names}
    return {name: lines for name, lines in wrong.items() if lines}


def test_imports_keep_to_the_table() -> None:
    allowed = table()
    assert not broken_by(
        lambda name, source: wrong_imports(name_room(name), package_of(PACKAGE / name), source, allowed)
    )


# ---- doors --------------------------------------------------------------------------------------------------------


@cache
def doors_of(room: str) -> set[str]:
    """Modules of a room that its `__init__` lets others import."""
    path = PACKAGE / room / "__init__.py"
    for node in ast.parse(path.read_text(encoding="utf-8")).body if path.exists() else []:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "DOORS":
            return set(ast.literal_eval(node.value))
    return set()


def used_modules(room: str, package: str, source: str) -> dict[str, int]:
    """Modules of other rooms that a file imports, with a line."""
    used = {}
    for line, name in imports_in(source, package):
        parts = name.split(".")
        while len(parts) > 2 and not (module := PACKAGE.joinpath(*parts[1:])).with_suffix(".py").is_file():
            if module.is_dir():
                break
            parts.pop()
        if parts[0] == "sonda" and len(parts) > 2 and parts[1] != room:
            used[".".join(parts[1:])] = line
    return used


def past_doors(room: str, package: str, source: str) -> list[str]:
    used = used_modules(room, package, source)
    return [f"line {line}: {name}" for name, line in used.items()
            if name.partition(".")[2] not in doors_of(name.partition(".")[0])]  # fmt: skip


def test_imports_go_through_doors() -> None:
    assert not broken_by(lambda name, source: past_doors(name_room(name), package_of(PACKAGE / name), source))


def test_every_door_is_used() -> None:
    used = {
        name
        for file in NAMES
        for name in used_modules(name_room(file), package_of(PACKAGE / file), (PACKAGE / file).read_text("utf-8"))
    }
    listed = {f"{room}.{door}" for room in table() for door in doors_of(room)}
    assert listed - used == set(), "nobody goes through them: take them off the list"


def test_the_check_itself_sees_who_goes_past_a_door() -> None:
    assert past_doors("report", "sonda.report", "from sonda.analysis.steps.costs import Scale")
    assert past_doors("report", "sonda.report", "from sonda.analysis.steps import costs")
    assert not past_doors("report", "sonda.report", "from sonda.analysis.summary import Summary")
    assert not past_doors("analysis", "sonda.analysis", "from sonda.analysis.steps import costs")


# ---- names --------------------------------------------------------------------------------------------------------


def public_classes(source: str) -> set[str]:
    """Classes that a file defines outside of functions, also inside another class or under a condition."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    classes, waiting = set(), [ast.parse(source).body]
    while waiting:
        for node in waiting.pop():
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes.add(node.name)
            if not isinstance(node, functions):
                waiting += [getattr(node, field) for field in ("body", "orelse") if hasattr(node, field)]
    return classes


def shared_names(classes: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """Names of classes that several rooms have, from pairs of a room and a name."""
    rooms: dict[str, set[str]] = {}
    for room, name in classes:
        rooms.setdefault(name, set()).add(room)
    return {name: homes for name, homes in rooms.items() if len(homes) > 1}


def test_a_class_name_means_one_thing_in_the_whole_house() -> None:
    assert not shared_names(
        (room_of(path), name) for path in FILES for name in public_classes(path.read_text(encoding="utf-8"))
    ), "give all but the best-fitting one the field's noun for what it is"


def test_the_check_itself_sees_a_name_in_two_rooms() -> None:
    assert public_classes("class A:\n class B: ...\nif x:\n class C: ...\nclass _D: ...\ndef f():\n class E: ...") == {
        "A", "B", "C",
    }  # fmt: skip
    assert shared_names([("record", "Run"), ("record", "Run"), ("targets", "Job")]) == {}
    assert shared_names([("record", "Run"), ("targets", "Run")]) == {"Run": {"record", "targets"}}


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
        ("report", "if TYPE_CHECKING:\n from sonda.probes.machine.record import x", True),
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
    """What a file that travels may not import: anything but the standard library, the collector and, in the folder of a
    framework, its observer; the framework itself only there or inside a function."""
    package = ".".join(("_sonda", *Path(name).parent.parts[1:]))
    own = Path(name).parts[1]
    known = {"tensorflow": ("tensorflow", "keras"), "pytensor": ("pytensor", "numba")}.get(own, (own,))
    tree = ast.parse(source)
    inner = {id(node) for function in ast.walk(tree) if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
             for node in ast.walk(function)}  # fmt: skip
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        for line, imported in imports(ast.Module([node], []), package):
            top = imported.split(".")[0]
            if imported.startswith(("_sonda.collector", f"_sonda.{own}.observe")) or top in sys.stdlib_module_names:
                continue
            if top in FRAMEWORKS and (id(node) in inner or top in known):
                continue
            found.append(f"line {line}: imports {imported}")
    return found


def test_what_travels_needs_nothing_but_python_and_the_framework() -> None:
    travelling = [name for name in NAMES if TRAVELLING.match(name)]
    assert len(travelling) > 80
    assert not broken_by(strangers, travelling)


def test_the_collector_knows_what_travels() -> None:
    """PyTorch's compiler leaves these modules alone, and JAX takes their lines for none of the program's."""
    from sonda.frameworks.collector import FOLDERS, PACKAGES

    for name in NAMES:
        if TRAVELLING.match(name) and not name.endswith("__init__.py") and "/inject/" not in name:
            module = ".".join(("sonda", *Path(name).with_suffix("").parts))
            assert module.startswith(PACKAGES), name
            assert any(str(PACKAGE / name).startswith(folder) for folder in FOLDERS), name


def test_the_check_itself_sees_strangers() -> None:
    start, layers = "frameworks/collector/start.py", "frameworks/torch/observe/layers.py"
    assert strangers(start, "import numpy")
    assert strangers(start, "def f():\n from sonda.record import span")
    assert strangers(start, "import torch")
    assert strangers(start, "from ..torch.observe import layers")
    assert strangers(layers, "from ..drive import steps")
    assert strangers(layers, "from ...reconstruction.events import match")
    assert strangers(layers, "import jax")
    assert not strangers(layers, "import torch\nfrom ...collector.recorder import Recorder\nfrom .data import Data")
    assert not strangers(start, "import os\ndef f():\n import torch.nn")
    assert not strangers("frameworks/collector/watch.py", "def f():\n from numba.core import event")
    assert not strangers("frameworks/tensorflow/observe/keras.py", "import keras")


# ---- house rules ------------------------------------------------------------------------------------------------

UNFINISHED = re.compile("|".join(("TO" + "DO", "FIX" + "ME", r"\bXX" + r"X\b")))
HOMES = re.compile(rf"/(?<![\w.]/)(?:{'|'.join(('ho' + 'me', 'ro' + 'ot', 'wo' + 'rk', 'Us' + 'ers', 'mn' + 't'))})/\w")
"""Directories of somebody's own machine. /proc, /sys and /etc are the same on every Linux."""
DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "tests/**/*.py", "benchmarks/*.py", "src/sonda/**/*.*")
    for path in REPOSITORY.glob(pattern)
    if path.suffix in (".py", ".md", ".toml", ".js", ".css")
)


def test_no_file_is_a_heap() -> None:
    assert not broken_by(lambda name, source: ["too long"] if len(source.splitlines()) > LONGEST else [])


def test_nothing_is_unfinished_and_nothing_names_a_machine() -> None:
    wrong = {}
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        if found := [*UNFINISHED.findall(text), *HOMES.findall(text)]:
            wrong[str(path.relative_to(REPOSITORY))] = found
    assert wrong == {}


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


def test_nothing_runs_that_came_in_as_data() -> None:
    assert not broken_by(lambda name, source: dangerous(source))


def test_the_rules_themselves_can_be_broken() -> None:
    for source in ("import pickle", "from pickle import loads", "x = eval('1')", "np.load(f, allow_pickle=True)",
                   "torch.load(f)", "run(c, shell=True)"):  # fmt: skip
        assert dangerous(source), source
    assert not dangerous("model.eval()\nnp.load(f)")
    assert UNFINISHED.search("# TO" + "DO: later")
    assert HOMES.search('Path("/ho' + 'me/ada/x")')
    assert not HOMES.search("https://example.org/ho" + "me/x")
