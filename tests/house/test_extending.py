"""Parts of one's own: the package under examples/ laid down as an installer would, and used as its reader would."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from builders import RunBuilder
from command_line import Done, run_command
from installed_parts import importable, lay_down
from places import REPOSITORY
from sonda.record.run import Run
from sonda.record.samples import Reading
from sonda.record.store import Store
from sonda.targets.instruments.plugins import WatchedProbe

PACKAGE = REPOSITORY / "examples" / "11_own_parts"
DOCS = REPOSITORY / "docs" / "extending.md"
MOST_LINES = 50


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory):
    """The package, importable here and in child processes."""
    with importable(lay_down(PACKAGE, tmp_path_factory.mktemp("installed"))):
        yield


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("extending")


@pytest.fixture(scope="module")
def measured(home) -> Done:
    """The own workload, trained for a few steps, read by the own probe."""
    words = ("autoencoder", "--train", "--batch", "8", "--on", "cpu/1", "--steps", "12", "--probe", "machine:0.05s")
    done = run_command(home, "run", *words, "--tag", "own")
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.slow
def test_the_own_workload_has_the_table_of_any_other(home, measured):
    assert "backward" in measured.stdout and "Linear" in measured.stdout
    document = json.loads(run_command(home, "show", "own", "--json").stdout)
    layers = {layer["path"]: layer["metrics"] for layer in document["parts"][0]["layers"]}
    flops = next(value["value"] for name, value in layers["0"].items() if name.startswith("flops"))
    # forward and the gradient of the weights, 8 x 784 x 16 products each; bias forward and backward: 8 x 16 additions
    assert flops == 2 * (2 * 8 * 784 * 16) + 2 * (8 * 16)


@pytest.mark.slow
def test_the_own_probe_is_in_the_table_and_in_the_run(home, measured):
    assert "machine: context switches" in measured.stdout and "machine: load" in measured.stdout
    document = json.loads(run_command(home, "show", "own", "--json").stdout)
    switches, load = document["probed"]
    # A process was started and waited for meanwhile: the machine switched, and the counter never falls.
    assert switches["growth"]["value"] > 0 and switches["growth"]["source"] == "counted"
    assert load["least"]["value"] <= load["mean"]["value"] <= load["most"]["value"]
    run = Store(home / "store").one("own")
    series = [sample for sample in run.samples if sample.sensor == "machine: context switches"]
    assert len(series) == switches["readings"] >= 2 and series[0].time == 0
    assert series[-1].value - series[0].value == switches["growth"]["value"]
    assert [probe.state for probe in run.info.probes if probe.name == "machine"] == ["ok"]


@pytest.mark.slow
def test_the_own_probe_is_on_the_page_and_in_a_notebook(home, measured):
    assert run_command(home, "report", "own", "-o", "page.html").returncode == 0
    assert "machine: context switches" in (home / "page.html").read_text()
    from sonda.api import load

    assert "machine: context switches" in load("own", home / "store")._repr_html_()


@pytest.fixture(scope="module")
def made(home) -> Callable[[str], Run]:
    """Runs that are made once, when they are first asked for."""
    found: dict[str, Run] = {}

    def run(text: str) -> Run:
        if text not in found:
            done = run_command(home, *text.split())
            assert done.returncode == 0, done.stderr
            found[text] = Store(home / "store").one("last")
        return found[text]

    return run


RANKS = "run mlp --train --on ddp=cpu/1+cpu/1 --steps 3 --probe machine:0.05s --probe warm"


@pytest.mark.parametrize(
    "text",
    [RANKS, "serve mlp --threads 1 --scenario single-stream --queries 5 --probe machine:0.05s"],
    ids=["ranks", "served"],
)
def test_ranks_and_a_served_model_are_read_by_the_own_probe_too(made, text):
    run = made(text)
    assert [(probe.name, probe.state) for probe in run.info.probes if probe.name == "machine"] == [("machine", "ok")]
    switches, load = run.info.target.probed
    assert switches.growth > 0 and load.readings >= 2
    assert len([one for one in run.samples if one.sensor.startswith("machine: ")]) >= 4


def test_programs_side_by_side_are_read_by_the_own_probe_too(home):
    words = ("corun", "window:sleep 100", "b=window:sleep 100", "--seconds", "0.3", "--repeat", "1")
    done = run_command(home, *words, "--probe", "machine:0.05s")
    assert done.returncode == 0, done.stderr
    switches, load = Store(home / "store").one("last").info.target.probed
    assert switches.growth > 0 and load.readings >= 2


def test_an_unmodified_program_is_read_by_the_own_probe_and_the_own_instrument_too(home):
    done = run_command(home, "run", "-v", "--probe", "machine:0.05s", "--probe", "warm", "--", "sleep", "0.3")
    assert done.returncode == 0 and "machine: context switches" in done.stderr and "a second run took" in done.stderr
    warm = Store(home / "store").one("last").info.target.added["warm"]
    assert warm["first_s"] >= 0.3 and warm["second_s"] >= 0.3


@pytest.mark.slow
@pytest.mark.parametrize("text", ["run mlp --train --steps 3 --on cpu/1 --probe warm", RANKS], ids=["one", "ranks"])
def test_a_workload_and_ranks_are_run_again_by_the_own_instrument(made, text):
    # Both import PyTorch, which takes more than a tenth of a second anywhere.
    assert min(made(text).info.target.added["warm"].values()) > 0.1


def test_where_the_own_instrument_makes_no_sense_one_line_says_so(home):
    done = run_command(home, "serve", "mlp", "--scenario", "single-stream", "--queries", "5", "--probe", "warm")
    assert done.returncode == 2
    assert done.stderr.strip() == (
        "sonda: --probe warm cannot be read of a serving run; it can be read by energy, energy-model, machine, "
        "open-files"
    )


def test_the_own_launcher_makes_a_run_that_instruments_read(home, tmp_path):
    (tmp_path / "build.sh").write_text("sleep 0.2\nsleep 0.4\n")
    probes = ("machine:0.05s", "open-files:0.05s")
    words = [sys.executable, "-m", "own_parts.launcher", str(tmp_path / "build.sh"), *probes]
    done = subprocess.run(words, env={**os.environ, "SONDA_HOME": str(home / "store")}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    run = Store(home / "store").one(done.stdout.strip())
    whole, *steps = run.spans.number("duration")
    assert steps[0] >= 0.2e9 and steps[1] >= 0.4e9 and whole == sum(steps)
    assert run.info.target.probed and [probe.state for probe in run.info.probes] == ["ok", "ok"]
    assert max(sample.value for sample in run.samples if sample.sensor == "open files") > 0
    shown = run_command(home, "show", run.id)
    assert shown.returncode == 0 and "build.sh" in shown.stdout and "2 steps" in shown.stdout


SMALL = ("dlrm", "--batch", "4", "--arch-mlp-bot", "4-2", "--arch-mlp-top", "2-1", "--arch-embedding-size", "8",
         "--arch-sparse-feature-size", "2")  # fmt: skip
"""Its products: bottom 4 x 4 x 2, interaction 4 of 2 x 2 x 2, top 4 x 3 x 2 and 4 x 2 x 1; nothing is run for it."""


def test_the_own_accelerator_and_the_own_engine_stand_beside_others(home):
    done = run_command(home, "run", *SMALL, "--on", "sim:ideal-256", "--on", "sim:small-mesh", "--json")
    assert done.returncode == 0, done.stderr
    ideal, mesh = json.loads(done.stdout)["summaries"]
    cycles = [one["parts"][0]["metrics"]["cycles:simulated"]["value"] for one in (ideal, mesh)]
    assert cycles[0] == 4 < cycles[1]  # none of the four has more than 256 products


def test_designs_of_the_own_engine_can_be_explored(home):
    ports = ("--set", "read_ports=8", "--set", "write_ports=8")
    words = (*SMALL, "--on", "sim:ideal-256", *ports, "--vary", "multipliers=8,16", "--csv", "points.csv")
    done = run_command(home, "explore", *words)
    assert done.returncode == 0, done.stderr
    with (home / "points.csv").open() as file:
        cycles = {row["multipliers"]: int(row["cycles:simulated"]) for row in csv.DictReader(file)}
    assert cycles == {"8": 4 + 4 + 3 + 1, "16": 2 + 2 + 2 + 1}


def test_a_memory_behind_the_own_engine_is_refused_by_name(home):
    memory = ("--set", "memory.buffer_KiB=64", "--set", "memory.dram=hbm2")
    done = run_command(home, "run", *SMALL, "--on", "sim:ideal-256", *memory)
    assert done.returncode == 2 and "kind ideal says nothing of what moves" in done.stderr


def test_the_own_rule_speaks_where_it_should_and_is_silent_elsewhere():
    from sonda.analysis.run_summary import summarise
    from sonda.report.words import describe

    said = {verdict.kind: verdict for verdict in summarise(_trained(optimizer=50.0)).verdicts}
    sentence = describe(said["updates"].finding)
    assert sentence == "Bound by updates: 50 % of the step goes to the optimizer, whatever the batch."
    assert "updates" not in {verdict.kind for verdict in summarise(_trained(optimizer=10.0)).verdicts}


def _trained(optimizer: float) -> Run:
    """Twenty steps of 100 ms, of which the optimizer takes so many."""
    builder = RunBuilder()
    part = builder.part("train")
    for _ in range(20):
        builder.step(part, 100.0, {"forward": 90.0 - optimizer, "optimizer": optimizer})
    return builder.run()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("run", "autoencodr"), "did you mean 'autoencoder'?"),
        (("run", "autoencoder", "--widht", "3"), "autoencoder has no option 'widht'; known: batch, width"),
        (("run", "autoencoder", "--width", "wide"), "the workload autoencoder of own_parts.workload:Autoencoder fails"),
        (("run", "mlp", "--on", "sim:small-mash"), "did you mean 'small-mesh'?"),
        (("run", "mlp", "--probe", "machin"), "did you mean 'machine'?"),
        (
            ("run", "mlp", "--on", "cpu/1", "--probe", "machine:soon"),
            "the probe machine of own_parts.probe:Machine fails",
        ),
    ],
)
def test_mistakes_with_own_parts_are_one_line(home, words, expected):
    done = run_command(home, *words)
    assert done.returncode == 2 and expected in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_the_doctor_lists_parts_of_other_packages(home):
    checks = {one["name"]: one for one in json.loads(run_command(home, "doctor", "--json").stdout)["checks"]}
    parts = {name for name in checks if "own_parts" in checks[name]["detail"]}
    assert parts == {"workload autoencoder", "probe machine", "probe open-files", "probe warm",
                     "accelerator ideal-256", "accelerator small-mesh", "engine ideal", "rule updates"}  # fmt: skip
    assert {checks[name]["state"] for name in parts} == {"ok"}


def test_every_part_is_shown_whole_in_the_docs_and_short():
    text = DOCS.read_text()
    for file in sorted((PACKAGE / "own_parts").iterdir()):
        if file.suffix in (".py", ".toml") and file.name != "__init__.py":
            content = file.read_text()
            assert len(content.splitlines()) < MOST_LINES, file.name
            assert content in text, f"{file.name} is not in the docs as it is"
    assert (PACKAGE / "pyproject.toml").read_text() in text


def test_the_mean_of_equal_readings_is_none_other():
    class Level:
        def read(self) -> list[Reading]:
            return [Reading("load", 0.05, "1")]

    # 0.05 + 0.05 + 0.05 is 0.15000000000000002, a third of which is more than 0.05.
    watched = WatchedProbe("machine", Level())
    assert watched.read_once() and watched.read_once() and watched.read_once()
    (told,) = watched.summarise()
    assert told["mean"] == told["least"] == told["most"] == 0.05
