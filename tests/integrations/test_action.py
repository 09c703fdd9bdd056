"""The action of GitHub: what its steps do with each exit code of `sonda compare`, and that no input becomes a command.

Its shell steps run as they stand, with a command `sonda` that plays the real one.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from places import REPOSITORY

yaml = pytest.importorskip("yaml", reason="PyYAML reads the action")
ACTION: dict[str, Any] = yaml.safe_load((REPOSITORY / "action.yml").read_text(encoding="utf-8"))
COMPARE: dict[str, Any] = next(step for step in ACTION["runs"]["steps"] if step.get("id") == "compare")


@dataclass(frozen=True)
class Ended:
    code: int
    printed: str
    outputs: str
    summary: str
    commands: list[str]
    """What was asked of sonda, a line each."""


def run_step(folder: Path, code: int, **inputs: str) -> Ended:
    """Run the step that compares, in a folder of its own; the played `sonda compare` ends with this code."""
    played = folder / "bin" / "sonda"
    played.parent.mkdir()
    played.write_text(
        '#!/bin/bash\necho "$SONDA_HOME|$*" >> asked.txt\n[ "$1" = compare ] || exit 0\n'
        f'echo "B is 1.20x slower than A"; echo "  ::add-mask::layer"; echo "::error title=t::m"; exit {code}\n'
    )
    played.chmod(0o755)
    given = {"base": "main", "head": "head", "store": "runs", "fail-above": "5%", "report": "", **inputs}
    settings = {name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda match: given[match[1]], text)
                for name, text in COMPARE["env"].items()}  # fmt: skip
    files = {name: folder / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    environment = {
        **os.environ, **settings, **{name: str(path) for name, path in files.items()},
        "PATH": f"{played.parent}{os.pathsep}{os.environ['PATH']}",
    }  # fmt: skip
    # As GitHub starts the shell `bash`.
    words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", COMPARE["run"]]
    ended = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    asked = (folder / "asked.txt").read_text().splitlines()
    texts = [path.read_text() if path.exists() else "" for path in files.values()]
    return Ended(ended.returncode, ended.stdout, *texts, asked)


@pytest.mark.parametrize(
    ("code", "ended", "verdict"),
    [(0, 0, "within"), (1, 1, "slower"), (3, 0, "cannot tell"), (2, 2, ""), (125, 125, "")],
)
def test_only_a_real_slowdown_and_a_mistake_fail_the_job(tmp_path: Path, code: int, ended: int, verdict: str) -> None:
    step = run_step(tmp_path, code)
    assert step.code == ended
    assert step.outputs == f"verdict={verdict}\n"
    assert ("::error title=Sonda failed::" in step.printed) == (not verdict)


def test_it_compares_with_annotations_and_writes_a_page_where_it_is_asked_to(tmp_path: Path) -> None:
    step = run_step(tmp_path, 1, report="page.html")
    assert step.commands == [
        "runs|compare --fail-above 5% --annotations github -- main head",
        "runs|report --output page.html -- main head",
    ]
    assert "::error title=t::m\n" in step.printed


def test_the_summary_of_the_job_has_the_screen_without_annotations(tmp_path: Path) -> None:
    assert run_step(tmp_path, 0).summary == "```\nB is 1.20x slower than A\n  ::add-mask::layer\n```\n"


def test_commands_in_names_of_layers_are_not_obeyed(tmp_path: Path) -> None:
    first, *screen, end, annotation = run_step(tmp_path, 0).printed.splitlines()
    token = first.removeprefix("::stop-commands::")
    assert re.fullmatch("[0-9a-f]{32}", token)
    assert "  ::add-mask::layer" in screen
    assert (end, annotation) == (f"::{token}::", "::error title=t::m")


def test_text_of_an_input_is_never_a_command(tmp_path: Path) -> None:
    step = run_step(tmp_path, 0, head="$(touch stolen); `touch stolen`", report="a b.html")
    assert not (tmp_path / "stolen").exists()
    assert (
        step.commands[0] == "runs|compare --fail-above 5% --annotations github -- main $(touch stolen); `touch stolen`"
    )
    for part in ACTION["runs"]["steps"]:
        assert "${{" not in part["run"], "an expression in a script is text of a stranger"


def test_every_input_that_is_used_is_described_and_every_described_one_is_used() -> None:
    used = set(re.findall(r"inputs\.([\w-]+)", str(ACTION["runs"])))
    assert used == set(ACTION["inputs"])
    assert all(described["description"] for described in ACTION["inputs"].values())
