"""What a user types first: `sonda run train.py` runs it, and a mistake ends with the command that would have worked."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

import pytest

import sonda
from command_line import run_command
from help_cases import ALL
from plain_runs import run_info
from record_examples import two_spans
from sonda.cli import completion, running
from sonda.cli.program_words import describe_misplaced, split_program
from sonda.cli.running import COMMAND_OPTIONS
from sonda.record.errors import SondaError
from sonda.record.run import write_run

PYTHON = "python" if shutil.which("python") else sys.executable


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as a newcomer has it."""
    monkeypatch.chdir(tmp_path)
    for name in ("train.py", "go.sh", "notes.ipynb", "src/fit.py", "package/__main__.py", "package/train.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("print('done')\n")
    (tmp_path / "go.sh").write_text("echo done\n")
    (tmp_path / "tool").write_text("#!/bin/sh\necho done\n")
    (tmp_path / "tool").chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(
    ("typed", "own", "program"),
    [
        ("train.py --epochs 1 --help", "", f"{PYTHON} train.py --epochs 1 --help"),
        ("--steps 10:30 -v train.py --steps 3", "--steps 10:30 -v", f"{PYTHON} train.py --steps 3"),
        ("--steps=10: train.py", "--steps=10:", f"{PYTHON} train.py"),
        ("--try train.py", "--try", f"{PYTHON} train.py"),
        ("--tag train.py train.py", "--tag train.py", f"{PYTHON} train.py"),
        ("python -u train.py", "", "python -u train.py"),
        ("python3.11 train.py", "", "python3.11 train.py"),
        ("-m package.train --lr 1", "", f"{PYTHON} -m package.train --lr 1"),
        ("torchrun --nproc-per-node 2 train.py", "", "torchrun --nproc-per-node 2 train.py"),
        ("go.sh fast", "", f"{shutil.which('bash') or 'sh'} go.sh fast"),
        ("tool fast", "", "./tool fast"),
        ("./tool fast", "", "./tool fast"),
        ("--tag a -- ls -l", "--tag a", "ls -l"),
        ("train.py -- -x", "", f"{PYTHON} train.py -- -x"),
    ],
)
def test_a_program_is_run_as_it_is_typed(desk: Path, typed: str, own: str, program: str) -> None:
    assert split_program(shlex.split(typed), ALL["run"]) == (shlex.split(own), shlex.split(program))


@pytest.mark.parametrize("typed", ["", "mlp --train", "--on cpu mlp --batch 8", "model.py:build --input 8x3", "--help"])
def test_a_workload_is_no_program(desk: Path, typed: str) -> None:
    assert split_program(shlex.split(typed), ALL["run"]) == (shlex.split(typed), None)


def test_energy_takes_any_command(desk: Path) -> None:
    assert split_program(["--idle", "0", "ls", "-l"], ALL["energy"]) == (["--idle", "0"], ["ls", "-l"])


@pytest.mark.parametrize(
    ("typed", "command"),
    [
        ("run trian.py", "sonda run train.py"),
        ("run --tag x trian.py --lr 1", "sonda run --tag x train.py --lr 1"),
        ("run fit.py", "sonda run src/fit.py"),
        ("run crash.py", "give the path of your program: sonda run PATH/crash.py"),
        ("run train", "sonda run train.py"),
        ("run package", "sonda run -m package"),
        ("run src", "sonda run src/fit.py"),
        ("run ls", "sonda run -- ls"),
        ("run notes.ipynb", "jupyter nbconvert --to script notes.ipynb && sonda run notes.py"),
        ("train.py --epochs 1", "sonda run train.py --epochs 1"),
        ("python train.py", "sonda run python train.py"),
        ("run resnt34 --train", "sonda run resnet34 --train"),
        ("run mlp --trian", "sonda run mlp --train"),
        ("run mlp --bach 3", "sonda run mlp --batch 3"),
        ("rnu mlp", "sonda run mlp"),
        ("ls --al", "sonda ls --all"),
        ("run --on cpu train.py", f"sonda run -- {PYTHON} train.py"),
        ("run --train train.py", f"sonda run -- {PYTHON} train.py"),
        ("run --repeat 3 train.py", f"run it 3 times with one tag: sonda run --tag A -- {PYTHON} train.py"),
        ("run mlp --no-count --steps 5", "sonda run mlp --steps 5"),
        ("run mlp --max-time 5 --steps 5", "sonda run mlp --steps 5"),
        ("run -- train.py", "sonda run train.py"),
        ("run --", "sonda run train.py"),
        ("run", "sonda run mlp"),
        ("run --step 10 train.py", "did you mean '--steps'? Write: sonda run --steps 10 train.py"),
        ("run --jsn train.py", "did you mean '--json'? Write: sonda run --json train.py"),
        ("run --jsn=1 train.py", "did you mean '--json'? Write: sonda run --json=1 train.py"),
        ("compare main", "sonda compare main head"),
        ("show", "sonda run mlp"),
        ("run mlp --on gpu", "sonda run mlp --on cuda:0"),
        ("run mlp --on cup/2", "sonda run mlp --on cpu/2"),
    ],
)
def test_a_first_mistake_ends_with_the_command_that_would_have_worked(desk: Path, typed: str, command: str) -> None:
    done = run_command(desk, *shlex.split(typed))
    assert done.returncode in (2, 125)
    (line,) = done.stderr.splitlines()
    assert line.endswith(command)


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("tag slow d14b", "the order is sonda tag RUN NAME; write: sonda tag d14b slow"),
        ("tag slow nothing", "see: sonda ls"),
        ("explain train.py", "its newest run is 3333. Write: sonda explain 3333"),
        ("show src/train.py -v", "its newest run is 3333. Write: sonda show 3333 -v"),
        ("explain fit.py", "see: sonda ls"),
    ],
)
def test_a_name_in_the_place_of_a_run_ends_with_the_run(desk: Path, typed: str, line: str) -> None:
    programs = {"d14b": ["python", "other.py"], "2222": ["python", "train.py"], "3333": ["python", "src/train.py"]}
    for day, (identity, command) in enumerate(programs.items(), 1):
        info = run_info(id=identity, created=f"2026-11-{day:02}T03:30:12+00:00", workload={"command": command})
        write_run(desk / "store", info, two_spans())
    done = run_command(desk, *shlex.split(typed))
    assert done.returncode == 2 and done.stderr.rstrip().endswith(line)


def test_a_shell_offers_scripts_beside_networks(desk: Path) -> None:
    assert completion.runnable("tr") == ["transformer", "train.py"] and "train.py" not in completion.workloads("")


def test_python_says_how_a_program_is_run() -> None:
    with pytest.raises(SondaError, match=r"type: sonda run train\.py, or put `with sonda\.profile\(\)"):
        sonda.run("train.py")


def test_what_is_proposed_is_understood(desk: Path) -> None:
    with pytest.raises(SondaError) as raised:
        split_program(["trian.py"], ALL["run"])
    words = raised.value.remedy.removeprefix("write: sonda run ").split()
    assert split_program(words, ALL["run"])[1] == [PYTHON, "train.py"]


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ("train.py --tag x", "--tag stands behind train.py, so train.py got it; for Sonda write: "
         "sonda run --tag x train.py"),
        ("--steps 5: train.py --lr 1 -vv --json --epochs 2", "-v and --json stand behind train.py, so train.py got "
         "them; for Sonda write: sonda run --steps 5: -vv --json train.py --lr 1 --epochs 2"),
        ("-- python train.py --tag=x", "--tag stands behind train.py, so train.py got it; for Sonda write: "
         "sonda run --tag=x -- python train.py"),
        ("-m package.train --try", "--try stands behind package.train, so package.train got it; for Sonda write: "
         "sonda run --try -m package.train"),
        ("./tool --json out.py", "--json stands behind ./tool, so ./tool got it; for Sonda write: "
         "sonda run --json ./tool out.py"),
        ("--tag x train.py --lr 1", ""), ("train.py -- --tag x", ""), ("train.py --train", ""), ("mlp --tag x", ""),
    ],
)  # fmt: skip
def test_options_of_sonda_behind_the_program_are_found(desk: Path, typed: str, sentence: str) -> None:
    assert describe_misplaced(shlex.split(typed), ALL["run"], COMMAND_OPTIONS) == sentence


@pytest.mark.parametrize(("code", "told"), [(2, True), (0, False)])
def test_they_are_told_at_the_end_of_a_program_that_failed(
    desk: Path, monkeypatch: pytest.MonkeyPatch, code: int, told: bool
) -> None:
    monkeypatch.setattr(running, "_run_command", lambda *arguments: code)
    done = run_command(desk, "run", "train.py", "--json")
    assert done.returncode == code
    assert done.stderr.endswith("sonda run --json train.py\n") == told and bool(done.stderr) == told


@pytest.mark.slow
@pytest.mark.parametrize("typed", ["train.py", "python train.py", "-m package.train", "go.sh"])
def test_it_runs(desk: Path, typed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    done = run_command(desk, "run", *shlex.split(typed))
    assert done.returncode == 0, done.stderr
    assert "no step was seen" in done.stderr and "Run " in done.stderr
