"""Every screen of the command line at 80, 100 and 200 columns: no line is longer, and the order is always the same."""

from __future__ import annotations

import json
import shutil
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from rich.cells import cell_len

from command_line import run_command
from interference_cases import experiment, pieces
from places import DATA, TESTS
from serving_run_cases import evenly, synthetic
from sonda.record.run import Run
from sonda.report.blocks import Detail
from sonda.report.screen import render
from sonda.report.views.corun import CorunView
from sonda.report.views.serving import ServingView
from sonda.report.views.validation import validation_blocks

WIDTHS = (80, 100, 200)
RUNS = TESTS / "corpus" / "runs"
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
    for kept in RUNS.glob("20261115T*"):
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
    "a simulated run": (("show", "narrow", "-v"), "-bound in the", "layer", "Page: sonda report"),
    "an exploration": (("show", "explored", "-v"), "Fastest", "multipliers", "Page: sonda report"),
    "a trace": (("show", "traced", "-v"), "cuda:0 is idle", "kernel", "Page: sonda report"),
    "traces of ranks": (("show", "ranks", "-v"), "Rank 2 is slow", "keeps others waiting", "Page: sonda report"),
    "energy of a command": (("show", "metered", "-v"), "estimated", "device", "Page: sonda report"),
    "a comparison": (("compare", "narrow", "changed", "-v"), "slower", "forward", "Page of both: sonda report"),
    "a study": (
        ("study", "study.toml", "--show", "-v"), "long question?", "sim:tpu-128x128", "Page: sonda study study.toml"
    ),
    "a plan": (("study", "study.toml", "--plan"), "4 runs", "sim:tpu-128x128", "with: sonda study study.toml"),
    "the studies": (("study",), "", "six-operations", "sonda study NAME"),
    "the runs": (("ls",), "", "mlp.json.gz", "Next: sonda show RUN"),
    "the machine": (("doctor",), "checks are fine", "processor", "Next: sonda doctor --validate"),
    "targets side by side": (
        ("run", *SMALL, "--on", "sim:maeri-256", "--on", "sim:tpu-16x16", "--on", "sim:dlrm-hybrid", "-v"),
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


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", [name for name, (words, *_) in SCREENS.items() if "-v" in words])
def test_a_glance_fits_and_says_where_the_tables_are(place, monkeypatch, name, width):
    monkeypatch.setenv("COLUMNS", str(width))
    words, found, *_ = SCREENS[name]
    done = run_command(place, *(word for word in words if word != "-v"))
    assert done.returncode == 0, done.stderr
    fits(done.stdout, width)
    flowing = " ".join(done.stdout.split())
    assert found in flowing and "tables: sonda" in flowing and flowing.index(found) < flowing.index("tables: sonda")
    assert width < 100 or len(done.stdout.splitlines()) <= 20


def recorded() -> list[Run]:
    return [Run.load(path) for path in sorted(RUNS.glob("20261115T*"))]


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


def validated() -> dict:
    """A validation as `sonda doctor --validate` has it, with long words."""
    trial = {"probe": "kernel counters", "check": "fills of 4,096 pages", "state": "trusted", "expected": "4,096",
             "found": "4,098", "deviation": 0.0005, "reason": "", "remedy": ""}  # fmt: skip
    missing = {**trial, "probe": "pmu", "state": "missing", "reason": "no PMU in this virtual machine",
               "remedy": "use a bare-metal machine, or one whose host passes the PMU through"}  # fmt: skip
    probes = [{"probe": "kernel counters", "state": "trusted", "sentence": "counts known work to within 0.05 %"},
              {"probe": "pmu", "state": "missing", "sentence": "no PMU in this virtual machine"}]  # fmt: skip
    return {"probes": probes, "trials": [trial, missing]}


@pytest.mark.parametrize("width", WIDTHS)
def test_screens_of_what_costs_much_to_make_fit(tmp_path, width):
    from sonda.analysis.corun.interference import interference
    from sonda.analysis.serving import served

    measured = lambda members, turn, slot: pieces(1.0 + 3.0 * (len(members) > 1 and slot == 1))  # noqa: E731
    corun = CorunView(interference(experiment(tmp_path, measured, repeat=3))).text(
        width, color=False, detail=Detail.ALL
    )
    fits(corun, width)
    assert corun.index("All 3 together") < corun.index("Counted:") < corun.index("Page: sonda report")
    serving = ServingView(served(synthetic(tmp_path, evenly(np.full(100, 2_000_000)), scenario="single-stream"))).text(
        width, color=False, detail=Detail.ALL
    )
    fits(serving, width)
    assert serving.index("quer") < serving.index("Page: sonda report")
    validation = render(validation_blocks(validated()), width, False)
    fits(validation, width)
    assert validation.startswith("1 trusted, 1 not available, of 2 probes")
    assert validation.index("4,098") < validation.index("What would change that")


@pytest.mark.parametrize("width", WIDTHS)
def test_screens_of_verifications_fit(tmp_path, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    runs = [run for run in json.loads((DATA / "stonne" / "golden.json").read_text()) if run["mode"] == "TPU"][:2]
    (tmp_path / "golden.json").write_text(json.dumps(runs))
    for words in (("stonne", "golden.json"), ("scalesim",)):
        done = run_command(tmp_path, "verify", *words)
        assert done.returncode == 0, done.stderr
        fits(done.stdout, width)


def test_a_file_whose_name_would_act_is_a_run_whose_name_does_not(tmp_path):
    """Escape sequences, a carriage return and a change of direction: all legal in names of files."""
    names = ["a\x1b[2J\x1b]0;owned\x07\r\u202ea.json.gz", "b\x1b[31mb.json.gz"]
    for name, tag in zip(names, "ab", strict=True):
        shutil.copy(DATA / "gpu" / "kineto" / "mlp.json.gz", tmp_path / name)
        assert run_command(tmp_path, "import", name, "--tag", tag).returncode == 0
    (tmp_path / "store" / "20261101T000000-\x1b[31mdead").mkdir()
    commands = (("show", "a"), ("ls",), ("compare", "a", "b"), ("study", names[0]), ("show", names[0] + "x"))
    shown = [run_command(tmp_path, *words) for words in commands]
    assert [done.returncode for done in shown] == [0, 0, 0, 2, 2]
    for done in shown:
        said = done.stdout + done.stderr
        assert said and not [char for char in said if char != "\n" and unicodedata.category(char) in ("Cc", "Cf")], said
    assert "a�[2J�]0;owned���a.json.gz" in shown[0].stdout
