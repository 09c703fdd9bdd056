"""Stages of real programs: seen, and without a trace in what the program prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from observed import Nursery
from places import PROGRAMS
from sonda.analysis.doubts import NoStepSeen
from sonda.analysis.rules.limit_findings import MinorSteps, NoSteps
from sonda.analysis.run_summary import summarise
from sonda.analysis.steps.program import summarise_program
from sonda.frameworks import INJECT
from sonda.frameworks.collector.stages import FILES
from sonda.frameworks.reconstruction.stages import PROCESS, read_stages
from sonda.record.store import Store
from sonda.report.blocks import Detail
from sonda.report.views.steps.view import StepsView
from sonda.targets import circumstances
from sonda.targets.program.launcher import WatchSettings, run_command

S = 1e9

MODULES = {
    "circle_one": "import circle_two\nvalue = 1\n",
    "circle_two": "import circle_one\ntry:\n    circle_one.value\nexcept AttributeError as error:\n    print(error)\n",
    "failing_module": "def fail():\n    raise ValueError('while it is imported')\n\n\nfail()\n",
    "importing_failing": "import failing_module\n",
    "bad_syntax": "def wrong(:\n",
    "circle_from": "from circle_back import one\n",
    "circle_back": "from circle_from import two\none = 1\n",
    "warning_module": "import warnings\n\nwarnings.warn('old', DeprecationWarning, stacklevel=2)\n"
    "warnings.warn('older', UserWarning, stacklevel=3)\n",
    "waits_one": "import time\n\ntime.sleep(0.02)\nimport waits_two\n",
    "waits_two": "import time\n\ntime.sleep(0.02)\nimport waits_one\n",
    "slow_to_import": "import time\n\ntime.sleep(0.2)\n",
    "slow_as_well": "import time\n\ntime.sleep(0.2)\n",
}


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    folder = tmp_path / "modules"
    folder.mkdir()
    for name, text in MODULES.items():
        (folder / f"{name}.py").write_text(text)
    return folder


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(circumstances, "load_or_measure", lambda root, threads, machine: {})
    return Store(tmp_path / "store")


def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **variables}
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environment, check=False)


def lines(directory: Path) -> list[dict]:
    return [json.loads(text) for path in directory.glob("*.stages") for text in path.read_text().splitlines()]


def test_imports_that_fail_say_what_they_would_have_said(modules: Path, tmp_path: Path) -> None:
    program = str(PROGRAMS / "importing.py")
    bare = run(program, str(modules))
    seen = tmp_path / "seen"
    seen.mkdir()
    observed = run(program, str(modules), PYTHONPATH=str(INJECT), SONDA_COLLECT=json.dumps({"directory": str(seen)}))
    assert bare.stdout.count("Traceback") > 8 and "ValueError" in bare.stderr
    assert (observed.stdout, observed.stderr, observed.returncode) == (bare.stdout, bare.stderr, 1)
    imported = {line["what"] for line in lines(seen) if line.get("name") == "import"}
    assert {"circle_one", "failing_module", "not_there", "bad_syntax", "finder_fails", "waits_one"} <= imported
    assert not imported & {"circle_two", "circle_back"}, "inside the import of another"


def test_a_forked_child_has_stages_of_its_own(modules: Path, tmp_path: Path) -> None:
    code = (
        f"import os, sys\nsys.path.insert(0, {str(modules)!r})\nimport decimal\n"
        "child = os.fork()\nimport slow_to_import\nif child:\n    os.waitpid(child, 0)\nelse:\n    os._exit(0)\n"
    )
    done = run("-c", code, PYTHONPATH=str(INJECT), SONDA_COLLECT=json.dumps({"directory": str(tmp_path)}))
    assert done.returncode == 0, done.stderr
    slow = [line["thread"] for line in lines(tmp_path) if line.get("what") == "slow_to_import"]
    begun = [line["process"] for line in lines(tmp_path) if "begun" in line]
    assert sorted(slow) == sorted(begun) and len(set(begun)) == 2
    assert sum(line.get("what") == "decimal" for line in lines(tmp_path)) == 1


@pytest.mark.parametrize("leaving", ["os._exit(0)", "sys.exit(0)", "Process"])
def test_a_child_that_leaves_early_ends_there(modules: Path, tmp_path: Path, leaving: str) -> None:
    """However it leaves: a second later its parent goes on without it."""
    inside = f"    import slow_to_import\n    {leaving}\n"
    forks = f"child = os.fork()\nif not child:\n{inside}os.waitpid(child, 0)\n"
    works = "def work():\n    import slow_to_import\nworker = get_context('fork').Process(target=work)\n"
    started = f"from multiprocessing import get_context\n{works}worker.start()\nworker.join()\n"
    code = (
        f"import os, sys, time\nsys.path.insert(0, {str(modules)!r})\n"
        f"{started if 'Process' in leaving else forks}time.sleep(1)\n"
    )
    done = run("-c", code, PYTHONPATH=str(INJECT), SONDA_COLLECT=json.dumps({"directory": str(tmp_path)}))
    assert done.returncode == 0, done.stderr
    processes = [one for one in read_stages(tmp_path, 0, 1 << 62) if one.name == PROCESS]
    parent, child = sorted(processes, key=lambda one: one.start)
    assert child.end - child.start >= 0.2 * S, "its import"
    assert parent.end - child.end >= 1 * S


def test_leaving_wrongly_is_refused_as_ever(tmp_path: Path) -> None:
    refused = "try:\n    os._exit('now')\nexcept TypeError as error:\n    print(error, flush=True)\n"
    code = f"import os\n{refused}os._exit(status=3)\n"
    bare = run("-c", code)
    words = {"PYTHONPATH": str(INJECT), "SONDA_COLLECT": json.dumps({"directory": str(tmp_path)})}
    observed = run("-c", code, **words)
    assert bare.stdout and bare.returncode == 3
    assert (observed.stdout, observed.stderr, observed.returncode) == (bare.stdout, bare.stderr, 3)


def test_a_program_without_a_framework_has_its_table(store: Store, capfd: pytest.CaptureFixture[str]) -> None:
    kept, code = run_command([sys.executable, str(PROGRAMS / "no_torch.py")], store, WatchSettings())
    assert code == 0 and capfd.readouterr() == ("45 False\n", "")
    found = summarise(kept)
    assert found.program is not None and found.program.steps == 0
    assert {"start", "running", "ending"} <= {stage.name for stage in found.program.stages}
    assert isinstance(found.verdicts[0].finding, NoSteps)
    assert not any(isinstance(warning, NoStepSeen) for warning in found.warnings)
    assert "whole program" in StepsView(found).text(100, color=False, detail=Detail.ALL)


def test_every_stage_of_a_training_is_told(
    modules: Path, store: Store, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    bare = Nursery().run("staged", str(modules), directory=tmp_path / "bare", observe=False)
    assert bare.code == 0, bare.output
    kept, code = run_command([sys.executable, str(PROGRAMS / "staged.py"), str(modules)], store, WatchSettings())
    printed = capfd.readouterr()
    assert (code, printed.out, printed.err) == (0, bare.output, "")
    found = summarise_program(kept)
    assert found is not None and found.whole.value is not None
    times = {stage.name: stage.time.value or 0.0 for stage in found.stages}
    assert sum(times.values()) == pytest.approx(found.whole.value)
    assert found.whole.value == kept.spans.number("duration")[0]
    for name in ("preparation", "checkpoints", "ending"):
        assert times[name] > 0.2 * S, name
    assert times["imports"] > 2 * 0.2 * S, "the early one and the late one"
    steps = kept.spans.number("duration")[kept.spans.where(kind="step")].sum()
    assert steps - times["train"] > 2 * 0.2 * S, "neither the import nor the file between two steps is in them"
    counts = {stage.name: stage.count for stage in found.stages}
    assert (counts["train"], counts["checkpoints"]) == (7, 3)
    (minor,) = (verdict.finding for verdict in summarise(kept).verdicts if isinstance(verdict.finding, MinorSteps))
    assert minor.steps == 7


@pytest.mark.parametrize("package", sorted(FILES))
def test_functions_that_save_and_load_are_where_they_are_looked_for(package: str) -> None:
    """In the versions that are installed; a package that is not has nothing to time."""
    import importlib

    pytest.importorskip(package.partition(".")[0])
    places, functions = FILES[package]
    importlib.import_module(package)
    for function in functions:
        held = [importlib.import_module(place) for place in places]
        for name in function.split("."):
            held = [getattr(owner, name) for owner in held if hasattr(owner, name)]
        assert held, function
