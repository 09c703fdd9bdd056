"""What is published: built without the network, complete, and of use where nothing else is installed."""

from __future__ import annotations

import ast
import re
import shutil
import sys
import tarfile
import tomllib
from email.message import Message
from email.parser import Parser
from importlib import metadata
from pathlib import Path
from tempfile import gettempdir
from zipfile import ZipFile

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version
from tools.build_package import build_package

from installed_package import Environment, install_wheel
from places import DATA, REPOSITORY, TESTS
from sonda.record.errors import DISTRIBUTION, install_command
from sonda.version import VERSION

SOURCE = REPOSITORY / "src"
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
PYTHONS = ["3.11", "3.12", "3.13"]
NAME = f"{DISTRIBUTION.replace('-', '_')}-{VERSION}"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The source archive and the wheel."""
    if Version(metadata.version("setuptools")) < Version("77"):
        pytest.skip("building takes setuptools 77 or later, which `make test` installs")
    return build_package(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def base(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The wheel and what it needs, in an environment of its own, with stored runs to read."""
    environment = install_wheel(built[1], tmp_path_factory.mktemp("base"))
    shutil.copytree(TESTS / "corpus" / "runs", environment.desk / "store")
    return environment


def content(archive: Path) -> dict[str, bytes]:
    """Files by name, without the folder that all of a source archive are in."""
    if archive.suffix == ".whl":
        with ZipFile(archive) as wheel:
            return {name: wheel.read(name) for name in wheel.namelist()}
    with tarfile.open(archive) as source:
        opened = {member.name.partition("/")[2]: source.extractfile(member) for member in source}
        return {name: file.read() for name, file in opened.items() if file}


def kept_files() -> set[str]:
    """Every file of the package."""
    return {
        path.relative_to(SOURCE).as_posix()
        for path in (SOURCE / "sonda").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def about(built: tuple[Path, Path]) -> Message:
    return Parser().parsestr(content(built[1])[f"{NAME}.dist-info/METADATA"].decode())


# ---- What is in them ------------------------------------------------------------------------------------------------


def test_the_wheel_holds_every_file_of_the_package_and_no_other(built: tuple[Path, Path]) -> None:
    names = {name for name in content(built[1]) if not name.startswith(f"{NAME}.dist-info/")}
    assert names == kept_files()
    assert {Path(name).suffix for name in names} > {".py", ".toml", ".css", ".js", ".json"}


def test_the_source_archive_holds_what_the_wheel_is_made_of(built: tuple[Path, Path]) -> None:
    made = {"PKG-INFO", "setup.cfg"}
    names = {name for name in content(built[0]) if ".egg-info/" not in name}
    assert names == {f"src/{name}" for name in kept_files()} | {"pyproject.toml", "PYPI.md", "LICENSE"} | made


def test_nothing_tells_where_it_was_built(built: tuple[Path, Path]) -> None:
    for archive in built:
        kept = kept_files()
        made = {name: text for name, text in content(archive).items() if name.removeprefix("src/") not in kept}
        assert [name for name, text in made.items() if f"{gettempdir()}/".encode() in text] == []


def test_metadata_says_what_pypi_shows(built: tuple[Path, Path]) -> None:
    message = about(built)
    assert (message["Name"], message["Version"]) == ("sonda-profiler", VERSION)
    assert message["Author"] == "The Sonda developers"
    assert message["License-Expression"] == "Apache-2.0"
    assert message.get_all("Project-URL") is None, "there is no public home that an address could lead to"
    pythons = [line.rpartition(" ")[2] for line in message.get_all("Classifier", []) if re.search(r":: 3\.\d+$", line)]
    assert pythons == PYTHONS and message["Requires-Python"] == ">=3.11"


def test_the_description_follows_no_relative_link(built: tuple[Path, Path]) -> None:
    assert about(built)["Description-Content-Type"] == "text/markdown"
    text = str(about(built).get_payload())
    links = re.findall(r"\]\(([^)]*)|(?:href|src)=[\"']([^\"']*)", text)
    assert text.startswith("# Sonda")
    assert [link for pair in links for link in pair if link and not link.startswith("https://")] == []


def test_the_description_shows_the_screen_that_the_readme_shows() -> None:
    """That one is compared with what comes out."""
    (screen,) = re.findall(
        r"^```\n(ResNet.*?)```", (REPOSITORY / "PYPI.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    assert screen in (REPOSITORY / "README.md").read_text("utf-8"), "PYPI.md: copy the screen of README.md"


def test_the_changelog_begins_with_this_version() -> None:
    headings = [
        line for line in (REPOSITORY / "CHANGELOG.md").read_text("utf-8").splitlines() if line.startswith("## ")
    ]
    assert headings[0].split()[1] == VERSION


# ---- Extras ---------------------------------------------------------------------------------------------------------


def test_remedies_name_extras_that_are_there() -> None:
    named = set()
    for path in (SOURCE / "sonda").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                place = {"install_command": 0, "MissingExtraError": 1, "require_module": 2}.get(node.func.id, 9)
                if place < len(node.args) and isinstance(word := node.args[place], ast.Constant):
                    named.add(word.value)
    assert named >= {"torch", "numba", "images", "gpu", "cluster", "serving"}
    assert named <= set(PROJECT["optional-dependencies"])


def test_the_page_on_pypi_names_extras_that_are_there() -> None:
    page = (REPOSITORY / "PYPI.md").read_text("utf-8")
    named = set(re.findall(r"\[(\w+)\]`", page))
    assert named <= set(PROJECT["optional-dependencies"]) and named >= {"torch", "numba", "images"}


def test_nothing_installs_the_other_project_of_that_name() -> None:
    """`sonda` on PyPI is another project."""
    places = [SOURCE / "sonda", REPOSITORY / "docs", REPOSITORY / "examples"]
    files = [path for place in places for path in place.rglob("*") if path.suffix in (".py", ".md", ".toml", ".ipynb")]
    files += [REPOSITORY / "README.md", REPOSITORY / "PYPI.md"]
    wrong = re.compile(r"pip install [^\n`]*\bsonda\b(?![-/])|dependencies = .*\"sonda\"")
    assert [path.name for path in files if wrong.search(path.read_text("utf-8"))] == []
    assert wrong.search("pip install 'sonda[torch]'") and not wrong.search(f"{install_command('torch')}")


# ---- In an environment that has nothing else ------------------------------------------------------------------------


def test_what_is_installed_without_extras(base: Environment) -> None:
    """What is measured in README: none of the large packages that few need."""
    code = "import sonda, importlib.util as u; print(sonda.__file__, *(n for n in {} if u.find_spec(n)))"
    large = ("numba", "llvmlite", "PIL", "torch", "pandas", "scipy", "psutil")
    done = base.run("python", "-c", code.format(large))
    assert done.stdout.split() == [str(base.site / "sonda" / "__init__.py")], done.stderr
    assert base.run("sonda", "--version").stdout.split()[-1] == VERSION
    assert {Requirement(text).name for text in PROJECT["dependencies"]} & {"numba", "pillow", "torch"} == set()


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("--help",), "Usage: sonda"),
        (("ls",), "complete"),
        (("show", "cnn-train"), "Conv2d"),
        (("show", "sim-tpu", "-vv"), "cycles"),
        (("show", "import-jax"), "ms"),
        (("report", "cnn-train", "--output", "page.html"), "page.html"),
        (("compare", "sim-tpu", "sim-sigma"), "348 cycles"),
        (("export", "cnn-train", "--trace", "trace.json"), "trace.json"),
    ],
    ids=lambda words: " ".join(words[:2]) if isinstance(words, tuple) else "",
)
def test_stored_runs_are_read_without_extras(base: Environment, words: tuple[str, ...], shown: str) -> None:
    done = base.run("sonda", *words)
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout + done.stderr


PROGRAM = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(40):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(torch.randn(16, 64)), torch.zeros(16, 8)).backward()
    optimizer.step()
print("trained")
"""


@pytest.mark.slow
@pytest.mark.parametrize("network", [True, False], ids=["a training in another environment", "no network"])
def test_a_program_is_observed_without_extras(base: Environment, network: bool) -> None:
    """The training runs in the tests' own environment, which has PyTorch."""
    if network:
        pytest.importorskip("torch", reason="the observed program trains with PyTorch")
    (base.desk / "train.py").write_text(PROGRAM if network else "print('trained')\n")
    interpreter = sys.executable if network else str(base.place / "bin" / "python")
    done = base.run("sonda", "run", interpreter, "train.py")
    assert done.returncode == 0 and "trained" in done.stdout, done.stderr
    assert not network or ("forward" in done.stderr and "backward" in done.stderr)
    page = base.run("sonda", "report", "last", "--output", "program.html")
    assert page.returncode == 0 and (base.desk / "program.html").read_text().lower().startswith("<!doctype html>")


PROGRESS = "dlrm-accelerator: run 1 of "


def files_in(place: Path) -> list[Path]:
    """All that stands there, but for locks that nobody holds any more."""
    return sorted(path for path in place.rglob("*") if path.is_file() and path.suffix != ".lock")


@pytest.mark.parametrize(
    ("words", "package", "extra"),
    [
        (("run", "cnn", "--on", "sim:tpu-16x16"), "Numba", "numba"),
        (("explore", "mlp", "--on", "sim:maeri-256", "--vary", "multipliers=64,128"), "Numba", "numba"),
        (("verify", "scalesim"), "Numba", "numba"),
        (("verify", "stonne", str(DATA / "stonne" / "golden.json")), "Numba", "numba"),
        (("study", "dlrm-accelerator", "--scale", "small"), "Numba", "numba"),
        (("data", "make", "fish", "fish"), "Pillow", "images"),
        (("data", "prepare", "photos"), "Pillow", "images"),
        (("run", "mlp"), "PyTorch", "torch"),
    ],
    ids=lambda words: " ".join(words[:2]) if isinstance(words, tuple) else "",
)
def test_what_needs_an_extra_says_how_to_install_it(
    base: Environment, words: tuple[str, ...], package: str, extra: str
) -> None:
    (base.desk / "photos" / "cats").mkdir(parents=True, exist_ok=True)
    (base.desk / "photos" / "cats" / "one.png").touch()
    before = files_in(base.desk)
    done = base.run("sonda", *words)
    line = f"{package} is not installed; install it with: pip install 'sonda-profiler[{extra}]'"
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1] == f"sonda: {line}"
    assert [text for text in done.stderr.splitlines()[:-1] if not text.startswith(PROGRESS)] == []
    assert files_in(base.desk) == before


# ---- Where it is tested ---------------------------------------------------------------------------------------------


def test_hosted_checks_are_those_of_a_change_on_every_python() -> None:
    jobs = yaml.safe_load((REPOSITORY / ".github" / "workflows" / "ci.yml").read_text("utf-8"))["jobs"]
    commands = {name: [step.get("run", "") for step in job["steps"]] for name, job in jobs.items()}
    assert any(".ci/run" in command for command in commands["change"])
    assert any("make test" in command for command in commands["pythons"])
    (first,) = (step["with"]["python-version"] for step in jobs["change"]["steps"] if "with" in step)
    assert [first, *jobs["pythons"]["strategy"]["matrix"]["python"]] == PYTHONS
