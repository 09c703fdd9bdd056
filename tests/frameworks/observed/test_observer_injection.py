"""`sonda run -- command` on real interpreters: injection is silent, complete and leaves the program its own world.

Programs that start processes of their own are compared with a cold run of themselves: a copy of a process that has
PyTorch in memory may hang when it is copied again.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from observed import PROGRAMS, Nursery, check_structure, seen
from sonda.frameworks import INJECT
from sonda.record.store import Store
from sonda.targets import circumstances
from sonda.targets.program.launcher import WatchSettings, run_command

FRAMEWORKS = INJECT.parent


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store for programs whose machine needs no measuring."""
    monkeypatch.setattr(circumstances, "load_or_measure", lambda root, threads, machine: {})
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return Store(tmp_path / "store")


def bare(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    return subprocess.run(words, capture_output=True, text=True, env=environment, check=False)


def program(name: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, str(PROGRAMS / f"{name}.py"), *arguments)


def injected(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run with the injected directory on PYTHONPATH, and the settings that a target would give."""
    path = os.pathsep.join(entry for entry in (str(INJECT), variables.pop("PYTHONPATH", "")) if entry)
    return bare(*words, PYTHONPATH=path, SONDA_COLLECT='{"directory": "/nonexistent"}', **variables)


def test_an_unmodified_script_keeps_its_output_and_exit_code(
    store: Store, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    alone = Nursery().run("leaving", "exit", directory=tmp_path / "bare", observe=False)
    run, code = run_command(program("leaving", "exit"), store, WatchSettings())
    assert code == alone.code == 3
    assert capfd.readouterr().out == alone.output
    assert run.info.status == "incomplete" and run.info.exit_code == 3
    check_structure(run.spans)
    assert seen(run.spans).parts == [("train", 5)]
    assert run.info.overhead["span_ns"] > 0


@pytest.mark.slow
def test_a_program_that_replaces_itself_is_seen_before_and_after(store: Store) -> None:
    pytest.importorskip("torch")
    run, code = run_command(program("leaving", "again"), store, WatchSettings())
    assert code == 3
    check_structure(run.spans)
    assert sum(steps for part, steps in seen(run.spans).parts if part == "train") == 10
    assert int(run.spans.where(kind="phase", name="optimizer").sum()) >= 10
    assert run.info.overhead["span_ns"] > 0


@pytest.mark.slow
def test_spawned_workers_compute_and_are_no_part_of_the_training(
    store: Store, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    alone = bare(*program("workers", "spawn", "1"))
    run, code = run_command(program("workers", "spawn", "1"), store, WatchSettings())
    assert code == alone.returncode == 0
    assert capfd.readouterr().out == alone.stdout
    check_structure(run.spans)
    assert seen(run.spans).parts == [("train", 4)]
    assert run.info.notes == []


@pytest.mark.slow
def test_two_processes_that_train_together_are_two_ranks(
    store: Store, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    # gloo aborts now and then when its processes end, observed or not.
    trials = (bare(*program("distributed", str(tmp_path))) for _ in range(5))
    alone = next(done for done in trials if not done.returncode)
    run, code = run_command(program("distributed", str(tmp_path)), store, WatchSettings())
    assert code == alone.returncode == 0, alone.stderr
    assert capfd.readouterr().out == alone.stdout
    check_structure(run.spans)
    found = seen(run.spans)
    assert found.parts == [("train", 4)] * 2
    assert found.forward["0"] == found.backward["0"] == 8
    assert set(run.spans.number("rank")[run.spans.where(kind="step")].tolist()) == {0, 1}


def test_a_program_without_pytorch_is_left_alone(store: Store, capfd: pytest.CaptureFixture[str]) -> None:
    run, code = run_command(program("no_torch"), store, WatchSettings())
    assert code == 0
    assert capfd.readouterr() == ("45 False\n", "")
    assert set(run.spans.words("kind").decoded()) == {"run", "stage"}
    assert "nothing was observed" in run.info.notes[0]


def test_injection_is_silent_where_there_is_no_pytorch(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    python = str(tmp_path / "bare" / "bin" / "python")
    done = injected(python, "-c", "try:\n import torch\nexcept ImportError as error:\n print(error)")
    assert (done.stdout, done.stderr, done.returncode) == ("No module named 'torch'\n", "", 0)


def test_the_collector_needs_nothing_but_the_standard_library() -> None:
    files = [*FRAMEWORKS.glob("collector/**/*.py"), *FRAMEWORKS.glob("*/observe/**/*.py")]
    modules = [".".join(file.relative_to(FRAMEWORKS).with_suffix("").parts) for file in files]
    assert "torch.observe.observer" in modules and "collector.start" in modules
    code = f"""
import importlib, importlib.machinery, importlib.util, sys
spec = importlib.machinery.ModuleSpec("_sonda", None, is_package=True)
spec.submodule_search_locations = [{str(FRAMEWORKS)!r}]
sys.modules["_sonda"] = importlib.util.module_from_spec(spec)
for name in {modules!r}:
    importlib.import_module("_sonda." + name)
foreign = {{name.partition(".")[0] for name in sys.modules}} - set(sys.stdlib_module_names) - {{"_sonda"}}
own = {{"__main__", "__mp_main__"}}  # the second is multiprocessing's name of the first
print(sorted(name for name in foreign - own if not name.startswith("_sysconfigdata_")))  # of the library sysconfig
"""
    # -I and -S: no installed package can be imported here.
    done = bare(sys.executable, "-I", "-S", "-c", code)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_the_program_finds_its_own_path_and_customisation(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.chained = __file__\n")
    (tmp_path / "usercustomize.py").write_text("import sys\nsys.user = True\n")
    code = "import sys, sitecustomize; print(sys.chained, sitecustomize.__file__, sys.path[1], hasattr(sys, 'user'))"
    alone = bare(sys.executable, "-c", code, PYTHONPATH=str(tmp_path))
    inside = injected(sys.executable, "-c", code, PYTHONPATH=str(tmp_path))
    assert alone.stdout.startswith(f"{tmp_path}/sitecustomize.py {tmp_path}/sitecustomize.py {tmp_path} ")
    assert (inside.stdout, inside.stderr) == (alone.stdout, "")


def test_sys_path_is_what_it_would_have_been() -> None:
    code = "import sys; print(sys.path)"
    assert injected(sys.executable, "-c", code).stdout == bare(sys.executable, "-c", code, PYTHONPATH="").stdout


FAKE_TORCH = """
import importlib.util, sys
assert importlib.util.find_spec("torch") is not None
print(importlib.util.find_spec("torch").loader.get_filename("torch") == importlib.util.find_spec("torch").origin)
import torch
print(type(torch.__loader__).__name__, torch.__spec__.loader is torch.__loader__, torch.answer)
print([type(finder).__name__ for finder in sys.meta_path if "Waiter" in type(finder).__name__])
print("_sonda.torch.observe.observer" in sys.modules)
"""


def test_a_program_may_ask_for_pytorch_before_it_imports_it(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("answer = 42\n")
    done = injected(sys.executable, "-c", FAKE_TORCH, PYTHONPATH=str(tmp_path))
    assert done.stderr == ""
    # The last line: the observer was started, although PyTorch was asked for three times before its import.
    assert done.stdout.splitlines() == ["True", "SourceFileLoader True 42", "['_ImportWaiter']", "True"]
