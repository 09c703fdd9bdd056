"""The target of `sonda run -- command`: what is refused, and what is passed on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.reconstruction.assembly import assemble
from sonda.record.errors import SondaError
from sonda.record.store import Store
from sonda.targets import circumstances
from sonda.targets.program.launcher import (
    WatchSettings,
    _observation_notes,
    parse_steps,
    refuse_isolated,
    run_command,
)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(circumstances, "load_or_measure", lambda root, threads, machine: {})
    return Store(tmp_path / "store")


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        ("-I train.py", "I"),
        ("-E train.py", "E"),
        ("-S train.py", "S"),
        ("-Es train.py", "E"),
        ("-IB train.py", "I"),
        ("-BI -m train", "I"),
        ("-X importtime -I train.py", "I"),
        ("-Ximporttime -u -S train.py", "S"),
        ("-W ignore -E -c pass", "E"),
    ],
)
def test_an_isolated_interpreter_is_refused(words: str, flag: str) -> None:
    with pytest.raises(SondaError) as refused:
        refuse_isolated([sys.executable, *words.split()])
    assert str(refused.value) == (
        f"python -{flag} ignores PYTHONPATH, so the program cannot be observed; run it without -{flag}"
    )


@pytest.mark.parametrize(
    "words", ["train.py -I", "-m train -E", "-c pass -S", "-u -B train.py", "-", "-W error::SomeWarning train.py", ""]
)
def test_flags_of_the_program_itself_are_its_own(words: str) -> None:
    refuse_isolated([sys.executable, *words.split()])


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("#!/usr/bin/python3 -Es", True),
        ("#!/usr/bin/env -S python3 -I", True),
        ("#!/usr/bin/env python3", False),
        ("#!/bin/sh -E", False),
        ("print('no shebang')", False),
    ],
)
def test_a_script_is_judged_by_its_first_line(tmp_path: Path, line: str, refused: bool) -> None:
    script = tmp_path / "train"
    script.write_text(f"{line}\n")
    script.chmod(0o755)
    if refused:
        with pytest.raises(SondaError, match="ignores PYTHONPATH"):
            refuse_isolated([str(script)])
    else:
        refuse_isolated([str(script)])


def test_no_command_and_no_such_command_are_refused() -> None:
    with pytest.raises(SondaError, match="no command after --"):
        refuse_isolated([])
    with pytest.raises(SondaError, match="there is no program 'no-such-program'"):
        refuse_isolated(["no-such-program"])


@pytest.mark.parametrize(
    ("text", "steps"), [("10:30", (10, 30)), ("10:", (10, 0)), ("30", (0, 30)), (":5", (0, 5)), ("", (0, 0))]
)
def test_ranges_of_steps(text: str, steps: tuple[int, int]) -> None:
    assert parse_steps(text) == steps


@pytest.mark.parametrize("text", ["30:10", "5:5", "a:b", "1:2:3", "-3", "1.5"])
def test_what_is_no_range_of_steps_is_refused(text: str) -> None:
    with pytest.raises(SondaError, match="is not a range of steps"):
        parse_steps(text)


@pytest.mark.parametrize(
    ("code", "passed_on", "note"),
    [
        ("raise SystemExit(0)", 0, ""),
        ("raise SystemExit(7)", 7, "ended with code 7"),
        ("raise SystemExit(-1)", 255, "ended with code 255"),
        ("raise SystemExit(137)", 137, "ended with code 137"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137, "was ended by SIGKILL"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", 143, "was ended by SIGTERM"),
        ("import os; os.kill(os.getpid(), 40)", 168, "was ended by signal 40"),
    ],
)
def test_the_programs_own_ending_is_passed_on(store: Store, code: str, passed_on: int, note: str) -> None:
    run, exit_code = run_command([sys.executable, "-c", code], store, WatchSettings())
    assert exit_code == run.info.exit_code == passed_on
    assert run.info.status == ("complete" if passed_on == 0 else "incomplete")
    assert any(note in one for one in run.info.notes)


def test_of_a_killed_program_is_said_what_was_not_written(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path))
    forward = recorder.define(kind="phase", name="forward")
    recorder.stream().push((forward, 1, forward + 1, 2))
    recorder.flush()
    killed, last = _observation_notes(assemble(tmp_path, 0, 9), -11, "", [])
    recorder.close()
    assert "SIGSEGV" in killed and "last half second" in last


def test_the_programs_output_can_go_to_stderr(store: Store, capfd: pytest.CaptureFixture[str]) -> None:
    run_command([sys.executable, "-c", "print('hello')"], store, WatchSettings(output_to_stderr=True))
    assert capfd.readouterr() == ("", "hello\n")


def test_a_redacted_run_keeps_the_scripts_name_only(store: Store, tmp_path: Path) -> None:
    script = tmp_path / "secret" / "train.py"
    script.parent.mkdir()
    script.write_text("pass\n")
    run, _ = run_command([sys.executable, str(script), "--token", "abc"], store, WatchSettings(redact=True))
    assert run.info.workload.command == ["train.py"]
    assert "secret" not in (run.directory / "run.json").read_text()


def test_why_a_program_ran_unobserved_is_said(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "torch.py").write_text("__version__ = 'not PyTorch'\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    run, code = run_command([sys.executable, "-c", "import torch; print(torch.__version__)"], store, WatchSettings())
    assert code == 0
    assert capfd.readouterr() == ("not PyTorch\n", "")
    assert run.info.notes[0].startswith("the program ran unobserved: ")


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("pass", ["", "reading what was observed"]),
        (
            "import torch; torch.nn.Linear(2, 2)(torch.ones(1, 2))",
            ["", "reading what was observed", "measuring what this machine can do, once"],
        ),
    ],
)
def test_what_goes_on_behind_a_program_is_said(store: Store, program: str, said: list[str]) -> None:
    """The machine's ceilings are measured then, where they are not known, which takes longer than reading."""
    heard: list[str] = []
    run_command([sys.executable, "-c", program], store, WatchSettings(), heard.append)
    assert heard == said
