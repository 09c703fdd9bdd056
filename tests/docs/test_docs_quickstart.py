"""The first five minutes: what README and quickstart tell somebody to type is typed, in a shell that has nothing yet.

`git`, `make` and `pip` are stand-ins that leave what the real ones leave: a clone, a virtual environment, no network.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from docs_commands import REPOSITORY, blocks

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
MAKE = """#!/bin/sh
echo "make $*" >> "$TYPED"
[ "$1" = demo ] || exit 0
"{python}" -m venv --without-pip {environment}
cp "{stubs}/command" {environment}/bin/{command}
cp "{stubs}/command" {environment}/bin/pip
"""
COMMAND = '#!/bin/sh\necho "$(basename "$0") $*" >> "$TYPED"\n'


def typed_lines(page: str) -> list[str]:
    """What the page says to type, in order: lines of shell blocks, without what is shown of their output."""
    found: list[str] = []
    for block in blocks():
        if block.page == page and block.language in ("", "sh"):
            asked = block.language == "sh" or block.lines[0].startswith(("sonda ", "make ", "pip "))
            found += block.lines if asked else ()
    return found


def type_in(place: Path, lines: list[str]) -> list[str]:
    """Type lines into a new shell whose home is `place`; returns which stand-ins it called."""
    stubs = place / "stubs"
    stubs.mkdir()
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (command,) = project["scripts"]
    (environment,) = re.findall(r"^\t\$\(PYTHON\) -m venv (\S+)$", makefile, re.MULTILINE)
    make = MAKE.format(python=sys.executable, environment=environment, command=command, stubs=stubs)
    contents = {"command": COMMAND, "make": make, "git": f'{COMMAND}mkdir "$3"\n'}
    for name, content in contents.items():
        (stubs / name).write_text(content)
        (stubs / name).chmod(0o755)
    log = place / "typed"
    log.touch()
    done = subprocess.run(
        ["/bin/sh", "-e"], input="\n".join(lines), cwd=place, text=True, capture_output=True,
        env={"PATH": f"{stubs}:/usr/bin:/bin", "HOME": str(place), "TYPED": str(log), "LANG": "C"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return log.read_text().splitlines()


def test_the_quickstart_can_be_typed_from_its_first_line_to_its_last(tmp_path: Path) -> None:
    called = type_in(tmp_path, typed_lines("docs/quickstart.md"))
    assert called[:2] == ["git clone REPOSITORY sonda", "make demo"]
    assert [line for line in called if line.startswith("sonda ")] == [
        "sonda run train.py --epochs 1",
        "sonda show -v",
        "sonda report last",
        "sonda run train.py --epochs 1",  # by its path, from another environment
        "sonda doctor",
        "sonda ls",
    ]


def test_the_first_command_of_the_readme_is_found(tmp_path: Path) -> None:
    lines = typed_lines("README.md")
    first = next(place for place, line in enumerate(lines) if line.startswith("sonda "))
    assert type_in(tmp_path, lines[: first + 1])[-1] == "sonda run train.py --epochs 1"


def test_the_check_itself_misses_a_command_that_was_not_activated(tmp_path: Path) -> None:
    lines = [line for line in typed_lines("docs/quickstart.md") if "activate" not in line]
    with pytest.raises(AssertionError, match=r"sonda.*not found"):
        type_in(tmp_path, lines)


def test_nothing_is_fetched_from_where_it_is_not() -> None:
    """Sonda is not on PyPI: no page installs it by its name."""
    for page in [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"pip install [^\n`]*\bsonda\b(?!-)", text), page.name


def test_pip_takes_the_build_for_processors_where_both_are_offered() -> None:
    """What the quickstart's second index rests on: the same release with a local label is newer, and is allowed."""
    assert CPU_INDEX in "\n".join(typed_lines("docs/quickstart.md"))
    pinned = [line for line in (REPOSITORY / "constraints.txt").read_text().splitlines() if line.startswith("torch==")]
    (torch,) = (Requirement(line) for line in pinned)
    (version,) = (Version(one.version) for one in torch.specifier)
    labelled = Version(f"{version.public}+cpu")
    assert labelled > version and torch.specifier.contains(labelled)
