"""Every instrument with every launcher: it adds to the run, or one line names the probe and the kind of run.

Sensors, events, second counters and Nsight Compute are stand-ins, since few machines have all of them; programs are
real.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from fake_energy import Powercap
from installed_parts import importable, lay_down
from light_programs import without_ceilings, without_compiler
from ncu_examples import asked, stand_in, table
from places import PROGRAMS, REPOSITORY
from sonda.analysis.energy.run import summarise_energy
from sonda.frameworks.collector.counters.perf_event import SOFTWARE, TYPE_SOFTWARE, Event
from sonda.probes.counters.command_counter import CountedCommand, EventCount, KernelCounter
from sonda.probes.counters.pmu import CountingPlan
from sonda.probes.machine.gpu import GpuDevice
from sonda.record.errors import SondaError
from sonda.record.run import ProbeState, Run
from sonda.record.spans import Spans, Words
from sonda.record.store import Store
from sonda.targets.corun import launcher as corun_module
from sonda.targets.corun.launcher import CorunLauncher
from sonda.targets.corun.plan import CorunSettings
from sonda.targets.instrument import AROUND, Contribution, EndedRun, Instrument, Launcher, RunPlan
from sonda.targets.instruments import callgrind, counters, energy, ncu, second_sources
from sonda.targets.instruments.callgrind_spans import Markers, ModelledStep
from sonda.targets.instruments.registry import BUILT_IN, instruments_for
from sonda.targets.job import Job
from sonda.targets.local.launcher import LocalLauncher
from sonda.targets.pipeline import make_run
from sonda.targets.program.launcher import ProgramLauncher, WatchSettings
from sonda.targets.ranks.launcher import RanksLauncher
from sonda.targets.serving.launcher import ServingLauncher
from sonda.targets.serving.traffic import ServingTraffic
from sonda.targets.simulated.launcher import SimulationLauncher

__all__ = ["without_ceilings", "without_compiler"]
pytestmark = pytest.mark.usefixtures("without_ceilings", "without_compiler")

OWN = ("machine", "open-files")
"""Probes of another package, by entry points."""
PROBES = (*BUILT_IN, *OWN)
READ = {
    "workload": PROBES,
    "program": PROBES,
    "ranks": PROBES,
    "corun": ("pmu", "os", "energy", "energy-model", *OWN),
    "serving": ("energy", "energy-model", *OWN),
    "simulated": (),
}
WATTS = 10.0
HALF = 0.5
"""How far energy may be off where it is power times time: the counter stands still where a busy machine has no time for
who moves it. A device or a window counted twice, or not at all, is off by more."""
OPTIONS = {"machine": ":0.05s", "open-files": ":0.05s", "energy-model": ":cpu=20..95"}
"""What stands behind the names of probes where they are read."""
ROOTS = {
    "workload": ["sonda.targets.local.worker"],
    "program": ["plain.py"],
    "ranks": ["sonda.targets.ranks.elastic_agent"],
    "corun": ["sonda.targets.corun.participant"] * 2,
    "serving": ["sonda.targets.local.worker"],
}
"""What the command lines of the processes hold that a launcher starts."""
needs_perf = pytest.mark.skipif(
    KernelCounter().state().state != "ok", reason=f"no events: {KernelCounter().state().reason}"
)


def launcher_of(kind: str) -> Launcher:
    job = Job(workload="mlp", options={"batch": "8"}, train=True, warmup=1, steps=3)
    changed = {"train": False, "steps": None, "warmup": 3}
    return {
        "workload": lambda: LocalLauncher(replaced(job, on="cpu/1")),
        "program": lambda: ProgramLauncher([sys.executable, str(PROGRAMS / "plain.py")], WatchSettings()),
        "ranks": lambda: RanksLauncher(replaced(job, on="ddp=cpu/1+cpu/1")),
        "corun": lambda: CorunLauncher(
            ["a=mlp --batch 8", "b=mlp --batch 8"],
            setting=CorunSettings(seconds=0.6, repeat=1, probe="pmu:page-faults"),
        ),
        "serving": lambda: ServingLauncher(
            replaced(job, on="cpu/1", options={}, **changed), ServingTraffic(scenario="single-stream", queries=5)
        ),
        "simulated": lambda: SimulationLauncher(Job(workload="dlrm", on="sim:maeri-256")),
    }[kind]()


def replaced(job: Job, **changes: Any) -> Job:
    import msgspec

    return msgspec.structs.replace(job, **changes)


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with importable(lay_down(REPOSITORY / "examples" / "11_own_parts", tmp_path_factory.mktemp("installed"))):
        yield


@pytest.fixture
def sensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package that always draws the same power, and events of the system in the place of the PMU's.

    How busy the processor is, by which a model estimates, is this machine's.
    """
    zone = Powercap(tmp_path / "root").zone("0", "package-0", 0)
    over, begin = threading.Event(), time.perf_counter()

    def draw() -> None:
        with zone.open("r+b", buffering=0) as file:
            while not over.wait(0.002):
                os.pwrite(file.fileno(), b"%015d\n" % round(1e6 * WATTS * (time.perf_counter() - begin)), 0)

    thread = threading.Thread(target=draw, daemon=True)
    thread.start()
    (tmp_path / "root" / "proc").symlink_to("/proc")
    settings = {"interval": 0.05, "idle": 0.0, "root": tmp_path / "root", "gpus": False}
    parse = energy.parse_energy_probes
    monkeypatch.setattr(energy, "parse_energy_probes", lambda probes: replace(parse(probes), **settings))
    faults = Event("instructions", TYPE_SOFTWARE, SOFTWARE["page-faults"], kernel=True)
    monkeypatch.setattr(counters, "plan_counting", lambda extra=(): CountingPlan([[faults]]))
    group = {"events": [{**faults._asdict()}], "whole": True}
    monkeypatch.setattr(corun_module, "event_groups", lambda extra: ([group], ProbeState("pmu", "ok")))
    yield
    over.set()
    thread.join()


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The words of programs that would have run under valgrind, and 1,000 instructions for each of two ranks."""
    words: list[tuple[str, ...]] = []

    def run(emulation: callgrind.Emulation, caches: Any, expected: float = 0.0) -> tuple[list[ModelledStep], float]:
        with emulation.store.scratch() as directory:
            command = emulation.again(directory, ("valgrind", "--tool=callgrind"))
        words.append((*command.words, *command.environment.values()))
        return [ModelledStep(_modelled(rank), "train", Markers(), True, "AVX2", 1, rank) for rank in (0, 1)], 1.0

    monkeypatch.setattr(callgrind.Emulation, "run", run)
    monkeypatch.setattr(callgrind, "valgrind_version", lambda: "3.19.0")
    monkeypatch.setattr(callgrind, "measure_penalties", lambda machine: None)
    return words


class StandInCounter:
    """Finds 1,000 page faults in every command, and runs none."""

    def __init__(self, name: str, commands: list[str]) -> None:
        self.name, self.commands = name, commands

    def state(self) -> ProbeState:
        return ProbeState(self.name, "ok")

    def count(self, command: Sequence[str], events: Sequence[str], environment: Mapping[str, str]) -> CountedCommand:
        self.commands.append(" ".join(command))
        return CountedCommand(0, {"page-faults": EventCount(1000.0, 1, 1)})


@pytest.fixture
def recounted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands that second sources, and Sonda beside them, would have counted once more."""
    commands: list[str] = []
    sources = {name: partial(StandInCounter, name, commands) for name in second_sources.SOURCES}
    monkeypatch.setattr(second_sources, "SOURCES", sources)
    monkeypatch.setattr(second_sources, "KernelCounter", lambda known: StandInCounter("sonda", commands))
    return commands


class ProcessWatch(Instrument):
    """Remembers the command lines of the program's processes."""

    needs = frozenset({AROUND})

    def __init__(self) -> None:
        self.roots: dict[int, str] = {}
        self.living: dict[int, str] = {}
        self.before = self.after = [-1]

    @contextmanager
    def around(self, plan: RunPlan) -> Iterator[None]:
        self.before, ended = plan.processes.living(), threading.Event()

        def look() -> None:
            while not ended.wait(0.02):
                self.roots |= _command_lines(plan.processes.roots())
                self.living |= _command_lines(plan.processes.living())

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def collect(self, ended_run: EndedRun) -> Contribution:
        self.after = ended_run.plan.processes.living()
        return Contribution()


def _command_lines(pids: list[int]) -> dict[int, str]:
    """The command lines of those that have not ended meanwhile."""
    lines = {}
    for pid in pids:
        with suppress(OSError):
            lines[pid] = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return {pid: line for pid, line in lines.items() if line}


def _modelled(rank: int) -> Spans:
    return Spans(
        {"start": np.zeros(1), "rank": np.full(1, rank)},
        {"kind": Words.of(["step"]), "pass": Words.of(["modelled"])},
        {"instructions:modelled": np.full(1, 1000.0)},
    )


def states(run: Run) -> dict[str, str]:
    return {probe.name: probe.state for probe in run.info.probes}


@pytest.mark.parametrize("probe", PROBES)
@pytest.mark.parametrize("kind", READ)
def test_what_makes_no_sense_is_one_line_that_names_probe_and_kind(kind: str, probe: str) -> None:
    launcher, word = launcher_of(kind), probe + OPTIONS.get(probe, "")
    if probe in READ[kind]:
        assert len(instruments_for([word], launcher)) == 1
        return
    with pytest.raises(SondaError) as refused:
        instruments_for([word], launcher)
    line = str(refused.value)
    assert line.startswith(f"--probe {word} cannot be read of a {kind} run; ") and "\n" not in line
    remedy = ", ".join(name for name in PROBES if name in READ[kind])
    assert all(name in line for name in READ[kind]) if remedy else line.endswith("nothing of it is measured")


@needs_perf
@pytest.mark.parametrize("kind", [kind for kind in READ if READ[kind]])
def test_what_makes_sense_is_in_the_run(
    kind: str, tmp_path: Path, sensors: None, emulated: list[tuple[str, ...]], recounted: list[str]
) -> None:
    launcher = launcher_of(kind)
    words = [name + OPTIONS.get(name, "") for name in READ[kind] if name != "ncu"]
    run = make_run(launcher, instruments_for(words, launcher), Store(tmp_path / "store"))
    stating = [name for name in READ[kind] if name not in ("os", "ncu", "energy-model")]
    assert all(states(run)[name] == "ok" for name in stating), run.info.probes
    # Energy is the power that was drawn, for as long as the run took.
    spent, lasted = run.spans.metric("energy", "measured")[0], run.spans.number("duration")[0] * 1e-9
    assert spent == pytest.approx(WATTS * lasted, rel=HALF)
    assert run.info.target.metered.used[0] == "cpu"
    # The model says 20 W at rest and 95 W under full load.
    estimated = run.spans.metric("energy", "estimated")[0]
    assert 20.0 * lasted * 0.9 < estimated < 95.0 * lasted * 1.1 and run.info.target.metered.model == "cpu=20..95"
    if kind == "corun":
        found = summarise_energy(run)
        assert found is not None and [window.name for window in found.windows] == ["a", "b", "a + b"]
        for window in found.windows:
            assert window.total.value == pytest.approx(WATTS * window.time.value * 1e-9, rel=HALF)
    assert any(sample.sensor == "machine: load" for sample in run.samples)
    assert max(sample.value for sample in run.samples if sample.sensor == "open files") > 0
    if "pmu" in READ[kind]:
        assert np.nanmax(run.spans.metric("instructions", "counted")) > 0
        assert run.info.target.shown == ["os"]
    if "callgrind" in READ[kind]:
        (command,) = emulated
        assert "callgrind" in " ".join(command) and run.info.target.modelled.ranks == [0, 1]
        modelled = run.spans.where(kind="step", pass_="modelled")
        assert run.spans.number("rank")[modelled].tolist() == [0, 1]
    if "papi" in READ[kind]:
        # Sonda counts a program as a whole anyway, and all others once more beside the two.
        assert len(recounted) == (2 if kind == "program" else 3)
        agains = {"workload": "sonda.targets.local.command", "program": "plain.py", "ranks": "ranks.elastic_agent"}
        assert all(agains[kind] in command for command in recounted)
        for name in ("perf-stat", "papi"):
            assert run.info.target.second[name].counts["page_faults"].value == 1000.0


@pytest.mark.parametrize("kind", ROOTS)
def test_an_instrument_knows_the_processes_of_the_program_while_it_runs(kind: str, tmp_path: Path) -> None:
    launcher, watch = launcher_of(kind), ProcessWatch()
    run = make_run(launcher, [watch, *instruments_for("open-files:0.05s", launcher)], Store(tmp_path))
    assert watch.before == watch.after == [] and os.getpid() not in watch.living
    assert len(watch.roots) == len(ROOTS[kind]) and watch.roots.keys() <= watch.living.keys()
    assert all(words in line for words, line in zip(ROOTS[kind], watch.roots.values(), strict=True))
    ranks = [line for line in watch.living.values() if "sonda.targets.ranks.rank " in line]
    assert len(ranks) == (2 if kind == "ranks" else 0)
    # Standard input, output and error of each.
    most = max(sample.value for sample in run.samples if sample.sensor == "open files")
    assert most >= 3 * len(ROOTS[kind]) + 3 * len(ranks) and states(run)["open-files"] == "ok"


@pytest.mark.parametrize("kind", [kind for kind in READ if "ncu" in READ[kind]])
def test_kernels_are_counted_in_a_run_of_their_own(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in runs nothing; a program is not run again where no kernel was recorded, which is said."""
    launcher = launcher_of(kind)
    counted = table({"gpu__time_duration.sum": "ns"}, ("k", ("5",)))
    monkeypatch.setenv("PATH", str(Path(stand_in(tmp_path, counted)).parent), prepend=":")
    plan = launcher.plan
    monkeypatch.setattr(launcher, "plan", lambda *words: replace(plan(*words), on_gpu=True))
    card = SimpleNamespace(device=GpuDevice(name="NVIDIA H200", capability="9.0"))
    monkeypatch.setattr(ncu, "load_or_measure_gpu", lambda root, index: card)
    run = make_run(launcher, instruments_for("ncu", launcher), Store(tmp_path / "store"))
    if kind == "program":
        assert states(run)["ncu"] == "missing"
        return
    assert states(run)["ncu"] == "ok" and run.info.target.ncu.chip == "GH100"
    (line,) = asked(tmp_path)
    agent = "sonda.targets.ranks.elastic_agent" if kind == "ranks" else "sonda.targets.local.worker"
    assert "--target-processes all" in line and agent in line


def test_a_launcher_without_a_gpu_has_no_kernels_to_count(tmp_path: Path) -> None:
    for kind in ("workload", "ranks"):
        launcher = launcher_of(kind)
        with pytest.raises(SondaError, match=f"^--probe ncu counts kernels of a GPU, and this {kind} run has none; "):
            make_run(launcher, instruments_for("ncu", launcher), Store(tmp_path))
