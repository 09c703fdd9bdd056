"""One try of a real program: what is measured, what it is ended before, and that its patch makes it run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sonda.targets.program.source_patch import make_patch, patched_sources
from sonda.targets.program.trial import TOO_LONG, TrialPlan, run_patched, run_trial

PROGRAM = """\
import time
import torch
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
torch.set_num_threads(1)


class Slow(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.full((4,), float(index)), index % 2


class Net(torch.nn.Linear):
    def forward(self, x):
        if self._compiled_call_impl is not None:
            raise RuntimeError("this network cannot be compiled")
        return super().forward(x)


net = Net(4, 2)
optimizer = torch.optim.Adam(net.parameters())
loader = DataLoader(Slow(), batch_size=4)
for _ in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
torch.save(net.state_dict(), "weights.pt")
"""
PLAN = TrialPlan(warmup=2, steps=5)


@pytest.fixture
def program(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    return path


def command(path: Path) -> list[str]:
    return [sys.executable, str(path)]


def test_a_try_times_steps_keeps_losses_and_ends_before_the_program_saves(program):
    outcome = run_trial(command(program), PLAN, limit=120)
    assert outcome.failure == outcome.refused == ""
    assert len(outcome.process.ns) == 5
    assert min(outcome.process.ns) > 4 * 2e6  # four samples, each of which sleeps 2 ms
    assert outcome.process.samples == 4
    assert len(outcome.process.losses) == 7
    assert None not in outcome.process.losses
    assert not (program.parent / "weights.pt").exists()
    lines = PROGRAM.splitlines()
    noted = outcome.survey
    assert "DataLoader(" in lines[noted["loaders"][0]["line"] - 1]
    assert "Adam(" in lines[noted["optimizers"][0]["line"] - 1]
    assert "net = " in lines[noted["models"][0]["line"] - 1]
    assert "set_num_threads" in lines[noted["set_threads"]["line"] - 1]
    assert noted["threads"] == 1

    # The patch of two workers applies to the file, and the program runs with it.
    patch = make_patch("workers", 2, noted, program.parent)
    patched = run_patched(command(program), patched_sources("workers", 2, noted), PLAN, limit=120)
    assert patched.process is not None, patched.failure
    assert patched.survey["loaders"][0]["workers"] == 2
    subprocess.run(["git", "apply", "--check", "-"], input=patch.text, text=True, check=True, cwd=program.parent)
    subprocess.run(
        ["patch", "-p1"], input=patch.text, text=True, check=True, cwd=program.parent, stdout=subprocess.DEVNULL
    )
    assert "batch_size=4, num_workers=2, persistent_workers=True)" in program.read_text()


def test_a_program_that_fails_under_a_remedy_says_why(program):
    outcome = run_trial(command(program), PLAN, "compile", limit=120)
    assert outcome.process is None
    assert outcome.failure == "RuntimeError: this network cannot be compiled"


def test_a_program_without_steps_is_no_measurement(program):
    program.write_text("import torch\n")
    outcome = run_trial(command(program), PLAN, limit=120)
    assert outcome.process is None
    assert outcome.failure == "it made 0 steps, too few"


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("open('log.txt', 'a')", "it writes log.txt"),
        ("os.remove('kept.txt')", "it writes kept.txt"),
        ("os.rename('kept.txt', 'other.txt')", "it writes kept.txt"),
        ("os.mkdir('out')", "it writes out"),
        ("subprocess.run(['true'])", "it starts true"),
        ("os.fork()", "it forks"),
        ("socket.create_connection(('192.0.2.1', 80), 1)", "it connects to 192.0.2.1"),
    ],
)
def test_a_try_ends_before_what_cannot_be_undone(tmp_path, monkeypatch, line, refused):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kept.txt").write_text("kept")
    (tmp_path / "train.py").write_text(f"import os, socket, subprocess\n{line}\nopen('/dev/null', 'w')\n")
    outcome = run_trial(command(tmp_path / "train.py"), PLAN, limit=60)
    assert outcome.refused == refused
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept.txt", "train.py"]
    assert (tmp_path / "kept.txt").read_text() == "kept"


def test_what_only_reads_or_writes_elsewhere_goes_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(
        "import os, tempfile\nopen(__file__).read()\nos.makedirs('.', exist_ok=True)\n"
        "tempfile.NamedTemporaryFile('w').write('x')\nopen(os.devnull, 'w')\n"
        "with tempfile.TemporaryDirectory() as place:\n    open(place + '/file', 'w')\n"
    )
    outcome = run_trial(command(tmp_path / "train.py"), PLAN, limit=60)
    assert outcome.refused == ""


def test_a_try_that_takes_too_long_is_ended_with_all_it_started(tmp_path):
    (tmp_path / "train.py").write_text("import time\ntime.sleep(60)\n")
    outcome = run_trial(command(tmp_path / "train.py"), PLAN, limit=0.5)
    assert outcome.failure == TOO_LONG
