"""Processes of a program that cannot be observed: found from outside, and named in one line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sonda.record.store import Store
from sonda.targets.processes import MeasuredProcesses
from sonda.targets.program.launcher import WatchSettings, name_process, run_command
from sonda.targets.program.lookout import Lookout, UnobservedProcess, describe_unobserved

INJECTED = "/sonda/inject"
OBSERVED = f"PYTHONPATH={INJECTED}:src\0SONDA_COLLECT={{}}\0"
TORCH = "7f00 r-xp 0000 08:01 1 /venv/torch/lib/libtorch_cpu.so\n"


class FakeSystem:
    """A `/proc` with the files that a lookout reads."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def start(
        self, process: int, parent: int, *words: str, environment: str = OBSERVED, maps: str = TORCH, exe: str = ""
    ) -> None:
        place = self.root / str(process)
        place.mkdir(exist_ok=True)
        (place / "stat").write_text(f"{process} (a name) S {parent} 1 1")
        (place / "cmdline").write_text("".join(f"{word}\0" for word in words))
        (place / "environ").write_text(environment)
        (place / "maps").write_text(maps)
        (place / "exe").unlink(missing_ok=True)
        (place / "exe").symlink_to(exe or "/usr/bin/python3.12")

    def lookout(self, process: int) -> Lookout:
        def flags(words: list[str]) -> str:
            return "".join(word[1:] for word in words[1:] if word.startswith("-"))

        processes = MeasuredProcesses(self.root)
        processes.add(process)
        return Lookout(processes, INJECTED, flags, name_process, self.root)


@pytest.fixture
def system(tmp_path: Path) -> FakeSystem:
    return FakeSystem(tmp_path)


def found(lookout: Lookout) -> dict[int, tuple[str, str]]:
    for _ in range(3):
        lookout.look()
    return {process: (one.program, one.why) for process, one in lookout.found.items()}


HIDDEN = "started with an environment that hides PYTHONPATH"


def test_processes_that_cannot_observe_themselves_are_found_with_the_reason(system: FakeSystem) -> None:
    system.start(10, 1, "python", "launch.py")
    system.start(11, 10, "python", "-I", "alone.py")
    system.start(12, 10, "python", "cleaned.py", environment="HOME=/\0")
    system.start(13, 10, "python", "own_path.py", environment="PYTHONPATH=src\0SONDA_COLLECT={}\0")
    system.start(14, 10, "python", "seen.py")
    system.start(15, 14, "python", "-c", "import torch", environment="")
    assert found(system.lookout(10)) == {
        11: ("alone.py", "python -I ignores PYTHONPATH"),
        12: ("cleaned.py", HIDDEN),
        13: ("own_path.py", HIDDEN),
        15: ("python -c", HIDDEN),
    }


def test_what_loads_no_framework_or_is_no_python_is_not_worth_a_word(system: FakeSystem) -> None:
    system.start(10, 1, "python", "launch.py")
    system.start(11, 10, "python", "-I", "helper.py", maps="7f00 /usr/lib/libc.so\n")
    system.start(12, 10, "git", "status", environment="", exe="/usr/bin/git")
    system.start(13, 10, "served", environment="", exe="/opt/libtorch_server")
    system.start(14, 1, "python", "another_users.py", environment="")
    assert found(system.lookout(10)) == {}


def test_what_an_unobserved_process_forks_belongs_to_it(system: FakeSystem) -> None:
    system.start(10, 1, "python", "-E", "train.py")
    system.start(11, 10, "python", "-E", "train.py")
    assert list(found(system.lookout(10))) == [10]


def test_a_framework_that_is_loaded_later_and_a_process_that_becomes_another(system: FakeSystem) -> None:
    system.start(10, 1, "bash", "job.sh", environment="", exe="/bin/bash")
    lookout = system.lookout(10)
    assert found(lookout) == {}
    system.start(10, 1, "python", "job.py", environment="", maps="")
    assert found(lookout) == {}
    system.start(10, 1, "python", "job.py", environment="")
    assert found(lookout) == {10: ("job.py", HIDDEN)}


def test_processes_come_while_it_looks_and_some_are_gone(system: FakeSystem) -> None:
    system.start(10, 1, "python", "launch.py")
    lookout = system.lookout(10)
    assert found(lookout) == {}
    system.start(30, 20, "python", "-S", "late.py")  # its parent has the larger number of the two that come
    system.start(20, 10, "python", "between.py")
    (system.root / "99").mkdir()  # has ended before it was read
    assert found(lookout) == {30: ("late.py", "python -S ignores PYTHONPATH")}


def test_one_line_names_them(system: FakeSystem) -> None:
    one = UnobservedProcess("a.py", "PyTorch", "python -I ignores PYTHONPATH")
    assert describe_unobserved([]) == ""
    assert (
        describe_unobserved([one])
        == "a process that loaded PyTorch was not observed: a.py: python -I ignores PYTHONPATH"
    )
    others = [UnobservedProcess(f"{name}.py", "JAX", "reason") for name in "bcd"]
    assert describe_unobserved([one, one, *others]) == (
        "5 processes that loaded JAX and PyTorch were not observed: a.py (2 times): python -I ignores PYTHONPATH; "
        "b.py: reason; c.py: reason; and 1 more"
    )


def test_a_process_of_multiprocessing_is_called_so() -> None:
    assert name_process(["python", "-c", "from multiprocessing.spawn", "--multiprocessing-fork"]) == (
        "a process of multiprocessing"
    )
    assert name_process(["python", "-Ic", "1"]) == "python -c"
    assert name_process(["python", "-m", "train"]) == "train"


@pytest.mark.slow
def test_a_real_child_with_an_environment_of_its_own_is_named(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "alone.py").write_text("import time, torch\ntime.sleep(3)\n")
    (tmp_path / "launch.py").write_text(
        "import subprocess, sys\n"
        f"sys.exit(subprocess.run([sys.executable, {str(tmp_path / 'alone.py')!r}], env={{}}).returncode)\n"
    )
    run, code = run_command([sys.executable, str(tmp_path / "launch.py")], Store(tmp_path / "store"), WatchSettings())
    assert code == 0
    assert run.info.notes == [f"a process that loaded PyTorch was not observed: alone.py: {HIDDEN}"]
