"""The command line starts without the libraries that only some commands need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from builders import stepped
from sonda.record.run import write_run
from sonda.record.samples import Sample

HEAVY = ("torch", "pyarrow", "numba", "numpy", "rich")


def imported(program: str, *arguments: str) -> tuple[set[str], str]:
    """Top-level names of every module that a program imports, and what it printed."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *program.split("\n", 1), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    names = [line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {name.split(".")[0] for name in names}, done.stdout


CONSOLE = "-c\nimport sys; sys.argv[0] = 'sonda'; from sonda.cli import main; main()"
"""What the installed `sonda` does."""


@pytest.mark.parametrize("program", [CONSOLE, "-m\nsonda"], ids=["sonda", "python -m sonda"])
@pytest.mark.parametrize(
    "words", [["--help"], ["run", "--help"], ["ls", "--help"], ["compare", "--help"]], ids=" ".join
)
def test_help_loads_nothing_heavy(program: str, words: list[str]) -> None:
    names, said = imported(program, *words)
    assert "typer" in names, "the list of imports is the one of this program"
    assert not names & set(HEAVY)
    assert "Usage: sonda" in said


def test_a_listing_loads_no_analysis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of runs are kept beside them: nothing is computed."""
    made = stepped([100.0, 101.0, 102.0] * 4)
    write_run(tmp_path, made.info, made.spans)
    monkeypatch.setenv("SONDA_HOME", str(tmp_path))
    imported(CONSOLE, "ls")
    names, said = imported(CONSOLE, "ls")
    assert "rich" in names and not names & {"torch", "pyarrow", "numba", "numpy"}
    assert "complete" in said


def test_the_check_itself_sees_what_is_imported() -> None:
    names, _ = imported("-c\nimport numpy.linalg")
    assert "numpy" in names


def test_importing_sonda_loads_nothing_heavy() -> None:
    names, _ = imported("-c\nimport sonda; sonda.SondaError")
    assert "sonda" in names
    assert not names & set(HEAVY)


def test_reading_what_a_run_is_loads_nothing_heavy() -> None:
    names, _ = imported("-c\nimport sonda.record.store")
    assert "msgspec" in names
    assert not names & set(HEAVY)


def test_showing_a_run_does_not_load_pandas_where_that_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyarrow would, for every conversion of its own."""
    run = stepped([10.0] * 8)
    write_run(tmp_path, run.info, run.spans, [Sample(0, "power", 99.0, "W", "measured")])
    monkeypatch.setenv("SONDA_HOME", str(tmp_path))
    names, said = imported(CONSOLE, "show", run.id)
    assert "pyarrow" in names and "step" in said
    assert "pandas" not in names
