"""The command line as a user meets it: in a process of its own where output, signals or modules depend on that."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from builders import stepped
from command_line import Done, run_command
from places import DATA
from sonda.record.run import write_run
from sonda.record.store import Store

SMALL = ("run", "mlp", "--on", "cpu/1", "--steps", "12", "--train")
PROGRAM = [sys.executable, "-P", "-m", "sonda"]
SCRIPT = """
import torch, torch.nn as nn
torch.manual_seed(0); torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(8):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(torch.randn(8, 16)), torch.randint(0, 4, (8,))).backward()
    optimizer.step()
print("done")
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """One store for the module: the machine's ceilings are measured once."""
    return tmp_path_factory.mktemp("store")


def sonda(home: Path, *words: str) -> Done:
    """`sonda WORDS` in this process."""
    return run_command(home, *words, home=home)


def start_sonda(home: Path, *words: str, **settings) -> subprocess.CompletedProcess[str]:
    """`sonda WORDS` in a process of its own."""
    environment = {**os.environ, "SONDA_HOME": str(home), "COLUMNS": "120", **settings.pop("env", {})}
    return subprocess.run([*PROGRAM, *words], capture_output=True, text=True, env=environment, timeout=300, **settings)


@pytest.fixture(scope="module")
def first(home) -> dict:
    """A small run with its JSON document."""
    done = sonda(
        home, "run", "mlp", "--batch", "4", "--on", "cpu/1", "--steps", "12", "--train", "--tag", "base", "--json"
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_run_gives_one_json_document_with_units_and_sources(first):
    part = first["parts"][0]
    assert part["name"] == "train"
    step = next(value for name, value in part["metrics"].items() if name.startswith("step"))
    assert step["unit"] == "ns" and step["source"] == "measured" and step["value"] > 0
    assert {phase["name"] for phase in part["phases"]} >= {"data", "forward", "loss", "backward", "optimizer", "other"}
    # 784-192-10: forward is 2*784*192 + 192 (bias) + sigmoid 4*192 + 2*192*10 + 10 + what the output does, per sample
    layers = {layer["path"]: layer for layer in part["layers"]}
    linear = layers["0"]
    flops = next(value["value"] for name, value in linear["metrics"].items() if name.startswith("flops"))
    forward = 4 * (2 * 784 * 192 + 192)
    weight_gradient = 4 * 2 * 784 * 192
    bias_gradient = 4 * 192
    assert flops == forward + weight_gradient + bias_gradient  # the first layer's input needs no gradient


@pytest.mark.slow
def test_runs_are_listed_shown_tagged_and_removed(home, first):
    listing = json.loads(start_sonda(home, "ls", "--json").stdout)
    assert any("base" in run["tags"] for run in listing["runs"])
    assert "MLP" in sonda(home, "show", "base").stdout
    assert sonda(home, "tag", "base", "other").returncode == 0
    again = sonda(home, *SMALL, "--batch", "4", "--tag", "gone")
    assert again.returncode == 0 and "tables: sonda show" in again.stdout
    assert "removed 1 run" in sonda(home, "rm", "gone").stdout
    missing = sonda(home, "show", "gone")
    assert missing.returncode == 2 and "sonda ls" in missing.stderr


def test_compare_fails_above_a_limit_only(tmp_path):
    # Constructed runs: steps of 100 ms and of 120 ms, each with half a per cent of noise.
    for name, factor in (("main", 1.0), ("head", 1.2)):
        steps = [factor * (100 + 0.5 * (step % 3 - 1)) for step in range(20)]
        made = stepped(steps, id=f"{name.encode().hex():0<12}")
        write_run(tmp_path, made.info, made.spans)
        assert sonda(tmp_path, "tag", made.id, name).returncode == 0
    slower = sonda(tmp_path, "compare", "main", "head", "--fail-above", "5%")
    assert slower.returncode == 1 and "1.20x slower" in slower.stdout
    assert sonda(tmp_path, "compare", "main", "head", "--fail-above", "25%").returncode == 0
    assert sonda(tmp_path, "compare", "head", "main", "--fail-above", "5%").returncode == 0
    document = json.loads(sonda(tmp_path, "compare", "main", "head", "--json").stdout)
    assert document["slowdown"]["value"] == pytest.approx(0.2, rel=0.01)


def test_runs_that_cannot_be_read_are_named_of_both_sides(tmp_path):
    store = Store(tmp_path / "store")
    for tag, number in (("main", 1), ("main", 2), ("head", 3), ("head", 4)):
        made = stepped([100.0, 101.0, 102.0] * 4, id=f"{number}" * 12)
        kept = write_run(store.root, made.info, made.spans)
        store.tag(made.id, tag)
        if number in (2, 4):
            (kept.directory / "run.json").write_text("damaged")
    done = run_command(tmp_path, "compare", "main", "head")
    assert done.returncode == 0
    lines = [line for line in done.stderr.splitlines() if line.startswith("sonda: skipped: ")]
    assert len(lines) == 2 and "2" * 12 in lines[0] and "4" * 12 in lines[1]


@pytest.mark.slow
def test_an_unmodified_script_keeps_its_output_and_its_exit_code(home, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT + "import sys; sys.exit(3)\n")
    done = start_sonda(home, "run", "--", sys.executable, str(script))
    assert done.returncode == 3
    assert done.stdout == "done\n"
    assert "incomplete" in done.stderr and "backward" in done.stderr
    plain = start_sonda(home, "run", "--json", "--", sys.executable, "-c", "print('done'); raise SystemExit(3)")
    document = json.loads(plain.stdout)
    assert document["status"] == "incomplete" and "done" in plain.stderr


@pytest.mark.slow
def test_page_and_trace_are_written(home, first, tmp_path):
    page, trace = tmp_path / "page.html", tmp_path / "trace.json"
    assert sonda(home, "report", "base", "-o", str(page)).returncode == 0
    assert page.stat().st_size < 1_000_000 and "<svg" in page.read_text()
    assert sonda(home, "export", "base", "--trace", str(trace)).returncode == 0
    assert json.loads(trace.read_text())["traceEvents"]


@pytest.mark.slow
def test_repetitions_are_runs_of_their_own(home):
    done = sonda(home, "run", "mlp", "--on", "cpu/1", "--steps", "5", "--repeat", "3", "--tag", "thrice")
    assert done.returncode == 0, done.stderr
    assert "3 processes" in done.stdout
    tagged = [run for run in json.loads(sonda(home, "ls", "--json").stdout)["runs"] if "thrice" in run["tags"]]
    assert len(tagged) == 3


BAD = {
    "a workload that does not exist": (("run", "resnt34"), "did you mean"),
    "an option that does not exist": (("run", "mlp", "--bach", "3"), "did you mean 'batch'"),
    "a shape that does not parse": (("run", "{file}:build", "--input", "8xx3"), "8x3x224x224"),
    "a file that is not there": (("run", "nowhere.py:build", "--input", "8x3"), "nowhere.py"),
    "a file that does not import": (("run", "{broken}:build", "--input", "8x3"), "NameError"),
    "a factory that raises": (("run", "{file}:fails", "--input", "8x3"), "no weights today"),
    "shapes that do not fit": (("run", "{file}:build", "--input", "8x5"), "8x5"),
    "a factory that is not there": (("run", "{file}:bild", "--input", "8x3"), "build"),
    "a GPU that is not there": (("run", "mlp", "--on", "cuda:0"), "cuda:0"),
    "a target that is none": (("run", "mlp", "--on", "cpx"), "not a device"),
    "no workload": (("run",), "nothing to run"),
    "an isolated interpreter": (("run", "--", sys.executable, "-I", "x.py"), "-I"),
    "a program that is not there": (("run", "--", "no-such-program"), "no-such-program"),
    "a target for a program": (("run", "--on", "cpu", "--", "true"), "own devices"),
    "a run that is not there": (("show", "ffffffff"), "sonda ls"),
    "a command that is not there": (("frobnicate",), "--help"),
    "an age that is none": (("rm", "--older-than", "soon"), "30d"),
    "a percentage that is none": (("compare", "last", "last", "--fail-above", "much"), "percentage"),
    "a precision that is none": (("run", "mlp", "--precision", "int3"), "precision"),
    "no repetitions": (("run", "mlp", "--repeat", "0"), "--repeat 0"),
    "an option of a workload for a program": (("run", "--threads", "1", "--", "true"), "--threads"),
    "an option of a program for a workload": (("run", "mlp", "--no-count"), "--no-count"),
    "an unknown option before a program": (("run", "--frob", "--", "true"), "--frob"),
    "threads that do not agree": (("run", "mlp", "--on", "cpu/2", "--threads", "1"), "do not agree"),
    "a tag that cannot be": (("run", "mlp", "--tag", "../x"), "cannot be a tag"),
    "no steps": (("run", "mlp", "--steps", "0"), "steps"),
    "a study that is not there": (("study", "six-operatons"), "six-operations"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_with_cause_and_remedy(case, home, tmp_path, capfd):
    words, expected = BAD[case]
    file, broken = tmp_path / "model.py", tmp_path / "broken.py"
    file.write_text(
        "import torch.nn as nn\ndef build():\n    return nn.Linear(3, 2)\n"
        "def fails():\n    raise RuntimeError('no weights today')\n"
    )
    broken.write_text("undefined_name\n")
    before = sorted(path.name for path in home.iterdir())
    done = run_command(tmp_path, *(word.format(file=file, broken=broken) for word in words), home=home)
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert capfd.readouterr() == ("", ""), "a child said something itself"
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("sonda: "), done.stderr
    assert expected in lines[0]
    assert "Traceback" not in done.stderr and done.stdout == ""
    after = sorted(path.name for path in home.iterdir())
    assert [name for name in after if name not in before and name not in ("machines",)] == []


@pytest.mark.cold
def test_a_worker_that_is_started_runs_on_the_cores_that_it_is_bound_to(home, tmp_path):
    (tmp_path / "model.py").write_text(
        "import os, torch\n"
        "def build():\n"
        "    places = os.environ['OMP_PLACES'], sorted(os.sched_getaffinity(0)), torch.get_num_threads()\n"
        "    if places != ('{%s}' % os.environ['CORE'], [int(os.environ['CORE'])], 1):\n"
        "        raise RuntimeError(f'bound to {places}')\n"
        "    return torch.nn.Linear(3, 2)\n"
    )
    core = str(max(os.sched_getaffinity(0)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CORE", core)
        words = ("run", "model.py:build", "--input", "8x3", "--bind", core, "--steps", "3", "--json")
        done = run_command(tmp_path, *words, home=home)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == "complete"


def test_a_store_that_cannot_be_written_is_one_line(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    done = start_sonda(blocked / "store", "run", "--", "true")
    assert done.returncode == 125
    assert len(done.stderr.strip().splitlines()) == 1 and "SONDA_HOME" in done.stderr


def test_a_program_ended_by_a_signal_gives_128_plus_its_number(home):
    done = start_sonda(home, "run", "--", "sh", "-c", "kill -TERM $$")
    assert done.returncode == 128 + 15
    assert "SIGTERM" in done.stderr


def test_doctor_says_what_is_there_and_what_is_not(home):
    text = sonda(home, "doctor")
    assert text.returncode == 0 and "processor" in text.stdout and "What would change that" in text.stdout
    checks = json.loads(sonda(home, "doctor", "--json").stdout)
    assert checks


def test_studies_are_listed_and_planned_without_running(home):
    assert "six-operations" in sonda(home, "study").stdout
    plan = json.loads(sonda(home, "study", "six-operations", "--scale", "small", "--plan", "--json").stdout)
    assert len({run["identity"] for run in plan["runs"]}) == len(plan["runs"]) > 0
    words = ("study", "dlrm-accelerator", "--scale", "small", "--workers", "2", "--on-cluster", "tcp://a b:1")
    said = sonda(home, *words, "--plan").stdout.splitlines()[-1].strip()
    prefix = "Carry it out with: sonda "
    assert said.startswith(prefix) and tuple(shlex.split(said.removeprefix(prefix))) == words


def test_the_page_of_a_study_is_that_of_the_options_it_was_shown_with(home):
    """Other data, or fewer repetitions, are other runs: without their options the page would be empty."""
    words = ("study", "framework-mnist", "--scale", "small", "--repeat", "2", "--data", "my digits")
    said = " ".join(sonda(home, *words, "--show", "-v").stdout.splitlines()[-2:])
    _, _, typed = said.partition("Page: sonda ")
    assert tuple(shlex.split(typed)) == (*words, "--show", "--page", "study.html")


def test_a_study_lists_every_mistake_with_its_line(home, tmp_path):
    file = tmp_path / "study.toml"
    file.write_text('[study]\nname = "x"\nrepeet = 3\n[workload]\nname = "mpl"\n[axes]\nbatch = []\n')
    done = sonda(home, "study", str(file))
    assert done.returncode == 2
    assert all(place in done.stderr for place in ("study.toml:3:", "study.toml:5:", "study.toml:7:")), done.stderr


@pytest.mark.slow
def test_verify_prints_per_mode_and_fails_when_a_number_differs(home, tmp_path):
    reference = DATA / "stonne" / "golden.json"
    runs = [run for run in json.loads(reference.read_text()) if run["mode"] == "TPU"][:4]
    kept, changed = tmp_path / "kept.json", tmp_path / "changed.json"
    kept.write_text(json.dumps(runs))
    good = sonda(home, "verify", "stonne", str(kept), "--json")
    assert good.returncode == 0, good.stderr
    document = json.loads(good.stdout)
    assert document["exact"] == document["total"] == sum(run["status"] == "ok" for run in runs)
    next(run for run in runs if run["status"] == "ok")["cycles"] += 1
    changed.write_text(json.dumps(runs))
    bad = sonda(home, "verify", "stonne", str(changed))
    assert bad.returncode == 1 and "cycles" in bad.stdout


def test_verify_of_something_else_is_one_line(home, tmp_path):
    done = sonda(home, "verify", "stonne", str(tmp_path / "nowhere.json"))
    assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1


def test_no_option_of_run_hides_an_option_of_a_workload():
    import typer

    from sonda.cli import app
    from sonda.record.errors import SondaError
    from sonda.workloads.catalogue import describe, workload_names

    command = typer.main.get_command(app).commands["run"]
    for option in (word[2:] for parameter in command.params for word in parameter.opts if word.startswith("--")):
        for workload in workload_names():
            with pytest.raises(SondaError, match="no option"):
                describe(workload, {option: "1"})


@pytest.mark.slow
def test_a_file_in_the_users_directory_does_not_stand_in_for_a_module(home, tmp_path):
    (tmp_path / "numpy.py").write_text("raise RuntimeError('not the real one')")
    done = start_sonda(home, "run", "mlp", "--on", "cpu/1", "--steps", "5", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_compiled_model_has_the_counts_of_the_model_itself(home, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")  # processes that would compile import PyTorch each
    done = sonda(home, "run", "mlp", "--on", "cpu/1", "--steps", "6", "--batch", "4", "--compile", "--json")
    if "compiler" in done.stderr:
        pytest.skip("torch.compile needs a C++ compiler")
    assert done.returncode == 0, done.stderr
    part = json.loads(done.stdout)["parts"][0]
    forward = next(phase for phase in part["phases"] if phase["name"] == "forward")
    flops = next(value["value"] for name, value in forward["metrics"].items() if name.startswith("flops"))
    # two dense layers, a sigmoid (4 per element) and a softmax (4 per element, its maximum aside)
    assert flops >= 4 * (2 * 784 * 192 + 192 + 4 * 192 + 2 * 192 * 10 + 10)


def test_an_interrupt_that_only_sonda_gets_is_passed_on_to_the_program(tmp_path):
    script = (
        "import sys, time\n"
        "try:\n    print('ready', flush=True)\n    time.sleep(600)\nexcept KeyboardInterrupt:\n    sys.exit(5)"
    )
    started = subprocess.Popen(
        [*PROGRAM, "run", "--", sys.executable, "-c", script],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        env={**os.environ, "SONDA_HOME": str(tmp_path)},
        # a job that a shell starts in the background ignores interrupts, and so would its children
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert started.stdout.readline() == b"ready\n"
    os.kill(started.pid, signal.SIGINT)
    assert started.wait(timeout=300) == 5
