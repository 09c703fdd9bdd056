"""Every command that README, docs and help show is run: as it stands, or with lighter settings, or to its one line."""

from __future__ import annotations

import os
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from command_line import Done, run_command
from docs_commands import (
    ELSEWHERE,
    FIRST,
    FRAMEWORKS,
    LACKING,
    MAY_FAIL,
    PAGES,
    REPOSITORY,
    SMALLER,
    Shown,
    lacks_test,
    lighter,
    mentioned,
    own_options,
    shown,
)
from docs_desk import laid
from help_cases import ALL, examples
from sonda.cli import app
from sonda.targets.target import parse_target
from sonda.workloads.catalogue import describe, workload_names

pytestmark = pytest.mark.timeout(900)


def distinct() -> dict[str, list[Shown]]:
    """What is run here, each with the places that show it; the same words in another order are the same command."""
    found: dict[tuple[str, ...], list[Shown]] = {}
    for command in [*shown(), *helped()]:
        if not re.search(FRAMEWORKS, command.text) and not elsewhere(command):
            found.setdefault(tuple(sorted(lighter(command.words))), []).append(command)
    return {shlex.join(lighter(commands[0].words)): commands for commands in found.values()}


def helped() -> list[Shown]:
    """The examples of every command's help, those that remove something last."""
    found = [Shown(f"sonda {name} --help", place, shlex.join(words))
             for name, command in ALL.items() for place, words in enumerate(examples(command), 1)]  # fmt: skip
    return sorted(found, key=lambda one: one.words[1] == "rm")


def elsewhere(command: Shown) -> str:
    text = shlex.join(command.words[1:])
    return next((file for pattern, file in ELSEWHERE.items() if re.search(pattern, text)), "")


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return laid(tmp_path_factory.mktemp("desk"))


@contextmanager
def on_one_core() -> Iterator[None]:
    """What a machine of one core can do is measured once, not with one and with all of its threads."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


@pytest.fixture(scope="module")
def ran(desk: Path) -> Callable[[str], Done]:
    """Runs a command once, after those that it stands on."""
    done: dict[str, Done] = {}
    python = str(Path(sys.executable).parent)

    def run(text: str) -> Done:
        if text not in done:
            for pattern, before in FIRST.items():
                if re.search(pattern, text):
                    for words in before:
                        run(next(other for other in distinct() if words in other))
            with pytest.MonkeyPatch.context() as patch:  # `python` is the one that has PyTorch
                patch.setenv("PATH", python, prepend=os.pathsep)
                patch.setenv("OMP_WAIT_POLICY", "PASSIVE")  # threads that wait must not take the machine from others
                patch.setattr("sonda.studies.executors.cluster.TIMEOUT_S", 2)  # nobody is there to be connected to
                with on_one_core() if "--measure" in text else nullcontext():
                    done[text] = run_command(desk, *shlex.split(text))
        return done[text]

    return run


COMMANDS = distinct()


@pytest.mark.parametrize("text", COMMANDS, ids=[f"{places[0].page}:{places[0].line}" for places in COMMANDS.values()])
def test_a_shown_command_does_what_it_should(text: str, ran: Callable[[str], Done]) -> None:
    done = ran(text)
    where = (
        f"sonda {text}\nshown at {', '.join(f'{place.page}:{place.line}' for place in COMMANDS[text])}\n{done.stderr}"
    )
    refused = 125 if text.startswith("energy ") else 2
    if done.returncode == refused and any(word in text for word in LACKING):
        last = done.stderr.strip().splitlines()[-1]
        assert last.startswith("sonda: ") and "; " in last and "a defect" not in last, where
    else:
        assert done.returncode in ((0, 1, 3) if re.search(MAY_FAIL, text) else (0,)), where
        assert "Traceback" not in done.stderr, where
        assert done.stdout.strip() or done.stderr.strip(), where


def test_commands_that_run_elsewhere_have_a_test_there() -> None:
    kept = [command for command in shown() if elsewhere(command)]
    assert kept, "nothing is run elsewhere: empty the table"
    for pattern, test in ELSEWHERE.items():
        assert lacks_test(test) == ""
        assert any(re.search(pattern, shlex.join(command.words[1:])) for command in kept), f"nothing shown is {pattern}"


def test_the_check_itself_sees_tests_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("@pytest.mark.skip('no')\ndef test_b(): ...\ndef test_c(): ...\n")
    assert lacks_test("test_z.py::test_b", tmp_path) == "there is no test_z.py"
    assert lacks_test("test_a.py::test_d", tmp_path) == "test_a.py has no test_d"
    assert lacks_test("test_a.py::test_b", tmp_path) == "test_a.py::test_b is skipped"
    assert lacks_test("test_a.py::test_c", tmp_path) == ""


def test_targets_of_commands_that_run_elsewhere_can_be_read() -> None:
    words = [command.words for command in shown() if elsewhere(command)]
    targets = [text for one in words for option, text in pairwise(one) if option == "--on"]
    assert any("+" in target for target in targets)
    for target in targets:
        parse_target(target)


def test_lighter_settings_keep_the_words_of_a_command() -> None:
    """A setting may only make a command smaller: what it is asked to do stays."""
    for command in shown():
        before = command.words[1:]
        after = lighter(command.words)
        assert before[0] == after[0]
        kept = {word for word in before if word.startswith("--") and word != "--"}
        assert kept <= set(after), f"{command.page}:{command.line}: {sorted(kept - set(after))} is lost"
    assert lighter(["sonda", "run", "cnn", "--batch", "64"])[3] == SMALLER["--batch"]


@cache
def options_of_workloads() -> set[str]:
    own = {option for name in workload_names() for option in describe(name, {}).parameters()}
    return {"--preset", *(f"--{option.replace('_', '-')}" for option in own)}  # dlrm's preset stands for several


@cache
def whole_command() -> Any:
    return get_command(app)


def unknown_words(command: Shown) -> list[str]:
    """The first word that is no command, or options that the command does not have. A workload has some of its own."""
    words = [word.strip("[]") for word in command.words[1:]]
    group: Any = whole_command()
    while words and not words[0].startswith("--") and hasattr(group, "commands"):
        if words[0] not in group.commands:
            return words[:1]
        group = group.commands[words.pop(0)]
    known = {option for parameter in group.params for option in (*parameter.opts, *parameter.secondary_opts)}
    known.add("--help")
    if group.name in ("run", "serve", "explore", "verify"):
        known |= options_of_workloads()
    if any(word.startswith("mine.py:") for word in words):
        known |= own_options()
    ours = words[: words.index("--")] if "--" in words else words
    return [word for word in ours if word.startswith("--") and word.split("=")[0] not in known]


def test_commands_have_words_that_there_are() -> None:
    """Also those in the text, and those that are run elsewhere."""
    found = [*mentioned(), *shown()]
    assert len(found) > 150
    wrong = {f"{one.page}:{one.line}: {one.text}": unknown_words(one) for one in found}
    assert {place: words for place, words in wrong.items() if words} == {}


def test_the_check_itself_sees_wrong_words() -> None:
    assert unknown_words(Shown("", 0, "sonda rum cnn")) == ["rum"]
    assert unknown_words(Shown("", 0, "sonda ls --everything")) == ["--everything"]
    assert unknown_words(Shown("", 0, "sonda --install-everything")) == ["--install-everything"]
    assert unknown_words(Shown("", 0, "sonda run cnn --lr 0.01")) == ["--lr"]
    assert unknown_words(Shown("", 0, "sonda run mine.py:build --lr 0.01 --rate 1")) == ["--rate"]
    assert unknown_words(Shown("", 0, "sonda data prepare FOLDER --colour rgb")) == []
    assert unknown_words(Shown("", 0, "sonda run resnet34 --image 8x8 -- python --version")) == []


def named(pattern: str) -> dict[str, str]:
    """What of that form the pages name, and the first that does."""
    found: dict[str, str] = {}
    for page in PAGES:
        for name in re.findall(pattern, page.read_text(encoding="utf-8"), re.MULTILINE):
            found.setdefault(name, page.name)
    return found


def test_what_make_is_asked_for_is_there() -> None:
    goals = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    asked = named(r"(?:^|`)(?:\$ |\S+=\S+ )?make ([a-z-]+)")
    assert {"demo", "test"} <= set(asked)
    assert {goal: page for goal, page in asked.items() if goal not in goals} == {}


def test_benchmarks_that_are_named_are_there() -> None:
    from benchmarks.__main__ import ALL

    asked = named(r"python -m benchmarks ([a-z_]+)")
    assert "importing" in asked
    assert {name: page for name, page in asked.items() if name not in ALL} == {}


def test_extras_that_are_installed_are_there() -> None:
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    asked = named(r"'\.\[([a-z]+)\]'")
    assert "torch" in asked
    assert {name: page for name, page in asked.items() if name not in extras} == {}
