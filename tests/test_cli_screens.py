"""Every screen of the command line at 80, 100 and 200 columns: no line is longer, and the order is always the same."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from rich.cells import cell_len

from command_line import run_command
from sonda.record.run import Run

DATA = Path(__file__).parent / "data"
WIDTHS = (80, 100, 200)
SMALL = ("dlrm", "--batch", "2")
STUDY = """[study]
name = "lookups"
question = "How do the cycles of DLRM grow with the batch, and what does a wider mesh save in a long question?"
repeat = 1
[workload]
name = "dlrm"
[axes]
batch = [1, 2]
on = ["sim:tpu-16x16", "sim:tpu-128x128"]
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A directory whose store has a run of every kind that costs little, and recorded ones of an H200."""
    directory = tmp_path_factory.mktemp("screens")
    store = directory / "store"
    for kept in sorted((DATA / "gpu" / "runs").iterdir()):
        if (kept / "run.json").exists():
            shutil.copytree(kept, store / kept.name)
    (directory / "study.toml").write_text(STUDY)
    for words in (
        ("run", *SMALL, "--on", "sim:maeri-256", "--tag", "narrow"),
        ("run", *SMALL, "--on", "sim:maeri-256", "--set", "read_ports=64", "--tag", "changed"),
        ("explore", *SMALL, "--vary", "multipliers=64,128,256", "--vary", "read_ports=16,64", "--tag", "explored"),
        ("import", str(DATA / "gpu" / "kineto" / "mlp.json.gz"), "--tag", "traced"),
        ("import", str(DATA / "ranks"), "--tag", "ranks"),
        ("energy", "--idle", "0", "--model", "cpu=20..95", "--tag", "metered", "--", "sleep", "0.1"),
        ("study", "study.toml"),
        ("data", "make", "fish", "fish", "--count", "2", "--image", "24x18"),
        ("data", "prepare", "fish", "--out", "prepared"),
    ):  # fmt: skip
        done = run_command(directory, *words)
        assert done.returncode == 0, (words, done.stderr)
    return directory


SCREENS: dict[str, tuple[tuple[str, ...], str, str, str]] = {
    "a simulated run": (("show", "narrow"), "-bound in the", "layer", "Page: sonda report"),
    "an exploration": (("show", "explored"), "Fastest", "multipliers", "Page: sonda report"),
    "a trace": (("show", "traced"), "cuda:0 is idle", "kernel", "Page: sonda report"),
    "traces of ranks": (("show", "ranks"), "Rank 2 is slow", "keeps others waiting", "Page: sonda report"),
    "energy of a command": (("show", "metered"), "estimated", "device", "Page: sonda report"),
    "a comparison": (("compare", "narrow", "changed"), "slower", "forward", "Page of both: sonda report"),
    "a study": (("study", "study.toml", "--show"), "long question?", "sim:tpu-128x128", "Page: sonda study study.toml"),
    "a plan": (("study", "study.toml", "--plan"), "4 runs", "sim:tpu-128x128", "with: sonda study study.toml"),
    "the studies": (("study",), "", "six-operations", "sonda study NAME"),
    "the runs": (("ls",), "", "mlp.json.gz", "Next: sonda show RUN"),
    "the machine": (("doctor",), "checks are fine", "processor", "Next: sonda doctor --validate"),
    "targets side by side": (
        ("run", *SMALL, "--on", "sim:maeri-256", "--on", "sim:tpu-16x16", "--on", "sim:dlrm-hybrid"),
        "sim:tpu-16x16: ", "utilisation", "Page: sonda report",
    ),
    "a data set": (("data", "show", "prepared", "--split", "0.5/0.25/0.25"), "18 images", "together", "sonda run"),
}  # fmt: skip
"""Words of a command; then of its verdict, of its table, and of where to look next, in this order."""


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_fits_and_goes_from_verdict_to_table_to_what_is_next(place, monkeypatch, name, width):
    monkeypatch.setenv("COLUMNS", str(width))
    words, *expected = SCREENS[name]
    done = run_command(place, *words)
    assert done.returncode == 0, done.stderr
    fits(done.stdout, width)
    flowing = " ".join(done.stdout.split())
    places = [flowing.find(word) for word in expected if word]
    assert -1 not in places and places == sorted(places), (expected, places, done.stdout)


def recorded() -> list[Run]:
    return [Run.load(path) for path in sorted((DATA / "gpu" / "runs").iterdir()) if (path / "run.json").exists()]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("number", range(len(recorded())))
def test_recorded_runs_of_a_gpu_fit(place, monkeypatch, number, width):
    monkeypatch.setenv("COLUMNS", str(width))
    done = run_command(place, "show", recorded()[number].id)
    assert done.returncode == 0, done.stderr
    fits(done.stdout, width)


@pytest.mark.parametrize("width", WIDTHS)
def test_no_colours_are_sent_into_a_pipe(place, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    for words in (("show", "narrow"), ("ls",), ("doctor",), ("compare", "narrow", "changed")):
        assert "\033" not in run_command(place, *words).stdout


def fits(text: str, width: int) -> None:
    """No line is longer than the terminal is wide."""
    long = [line for line in text.splitlines() if cell_len(line) > width]
    assert not long, long
