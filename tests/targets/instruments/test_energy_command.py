"""`sonda energy -- command` and the probe `energy` of other targets, on a fake tree that the command itself moves."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fake_energy import INTEL_RANGE, FakeGpu, Powercap
from plain_runs import target_of
from sonda.analysis.energy.run import summarise_energy
from sonda.analysis.run_summary import summarise
from sonda.probes.energy import sources as energy_sources
from sonda.probes.energy.attribution import attribute_energy
from sonda.probes.energy.channels import PACKAGES, Channel
from sonda.probes.energy.meter import EnergyMeasurement
from sonda.probes.energy.readings import ChannelSeries, EnergyReadings
from sonda.record.errors import SondaError
from sonda.record.readings import StoredEnergy
from sonda.record.run import ProbeState
from sonda.record.samples import Sample
from sonda.record.spans import Spans, Words
from sonda.record.store import Store
from sonda.record.target import WorkloadTarget
from sonda.record.workload import Workload
from sonda.report.blocks import Detail
from sonda.report.views.steps.view import StepsView
from sonda.targets import circumstances
from sonda.targets.instrument import Circumstances, Observation, RunPlan
from sonda.targets.instruments import energy as energy_instrument
from sonda.targets.instruments.energy import (
    EnergyInstrument,
    EnergySettings,
    devices_used,
    parse_energy_options,
    parse_energy_probes,
)
from sonda.targets.instruments.registry import instruments_for
from sonda.targets.pipeline import draft_run
from sonda.targets.program import launcher as command
from sonda.targets.program.energy import measure_energy

S = 1_000_000_000
MS = 1_000_000


# ---- the command ----------------------------------------------------------------------------------------------------


def test_a_command_is_measured_kept_and_its_exit_code_passed_on(tmp_path: Path) -> None:
    root = tmp_path / "root"
    package = Powercap(root).zone("0", "package-0", INTEL_RANGE - 20_000_000)
    store = Store(tmp_path / "store")
    # 50 J of the package, across the wrap; the region holds 40 of them. The counter stands still until the sampler has
    # read it twice and has seen the marks, however late: what lies between two readings is spread over them.
    script = f"""
        rows="$(dirname "$SONDA_REGIONS")/energy.rows"
        lines() {{ grep -c "$1" "$rows"; }}
        settle() {{ n=$(lines readings); while [ "$(lines readings)" -lt $((n + 2)) ]; do sleep 0.01; done; }}
        marked() {{ while [ "$(lines '"hot"')" -lt "$1" ]; do sleep 0.01; done; settle; }}
        echo begin hot >> "$SONDA_REGIONS"; marked 1
        echo 20000000 > {package}; settle
        echo end hot >> "$SONDA_REGIONS"; marked 2
        echo 30000000 > {package}; settle
        exit 7
    """
    wanted = EnergySettings(interval=0.01, idle=0.05, root=root, gpus=False)
    run, code = measure_energy(["sh", "-c", script], store, wanted, redact=True)
    assert code == run.info.exit_code == 7
    assert run.info.status == "incomplete"
    assert run.info.workload.command == ["sh"]
    found = summarise_energy(run)
    assert found is not None
    assert found.all["measured"].energy.value == pytest.approx(50.0)
    assert found.covers == ("CPU packages",)
    assert found.not_covered[0] == "DRAM"
    (hot,) = found.regions
    assert hot.name == "hot"
    assert hot.total.value == pytest.approx(40.0)
    assert run.spans.metric("energy", "measured")[0] == pytest.approx(50.0)
    assert {sample.sensor for sample in run.samples} == {"package-0 energy"}
    assert {probe.name: probe.state for probe in run.info.probes} == {"clock": "ok", "energy": "ok"}
    # It is a run like any other: it lists, and shows itself without PyTorch having been seen.
    assert store.one("last").id == run.id
    assert "sh" in StepsView(summarise(run)).text(detail=Detail.ALL)


def test_without_a_sensor_the_command_is_not_started(tmp_path: Path) -> None:
    flag = tmp_path / "started"
    store = Store(tmp_path / "store")
    with pytest.raises(
        SondaError, match=r"no energy can be read: .*no RAPL zones under /sys/class/powercap"
    ) as refused:
        measure_energy(["touch", str(flag)], store, EnergySettings(0.5, 0.0, root=tmp_path, gpus=False))
    assert "bare-metal" in refused.value.remedy
    assert not flag.exists()
    assert list(store.runs()) == []


def test_a_counter_that_is_dead_while_idling_is_refused_before_the_command(tmp_path: Path) -> None:
    Powercap(tmp_path).zone("0", "package-0", 0)
    flag = tmp_path / "started"
    with pytest.raises(SondaError, match="stood at the same value"):
        measure_energy(["touch", str(flag)], Store(tmp_path / "s"), EnergySettings(0.1, 0.7, root=tmp_path, gpus=False))
    assert not flag.exists()


@pytest.mark.parametrize("words", [[], ["there-is-no-such-program"]])
def test_a_command_that_cannot_be_started_is_one_line(tmp_path: Path, words: list[str]) -> None:
    Powercap(tmp_path).zone("0", "package-0", 0)
    store = Store(tmp_path / "store")
    with pytest.raises(SondaError, match=r"no command after --|cannot start the command"):
        measure_energy(words, store, EnergySettings(0.5, 0.0, root=tmp_path, gpus=False))
    assert list(store.runs()) == []


def test_the_command_line_passes_output_and_exit_code_on(tmp_path: Path) -> None:
    """By the power model, which any Linux has; a child, because it is the real command line."""

    def sonda(*words: str) -> subprocess.CompletedProcess[str]:
        home = {"SONDA_HOME": str(tmp_path / "store"), "PATH": "/usr/bin:/bin"}
        return subprocess.run(
            [sys.executable, "-P", "-m", "sonda", *words], capture_output=True, text=True, env=home, check=False
        )

    done = sonda("energy", "--idle", "0", "--model", "cpu=20..95", "--json", "--", "sh", "-c", "echo hello; exit 3")
    assert done.returncode == 3
    document = json.loads(done.stdout)
    assert document["kind"] == "energy"
    estimate = document["all_devices"]["estimated"]["energy"]
    assert estimate["low"] < estimate["value"] < estimate["high"]
    assert estimate["source"] == "estimated"
    assert "hello" in done.stderr


def test_times_out_of_range_are_refused_before_anything_starts() -> None:
    with pytest.raises(SondaError, match=r"an interval of 0\.001 s is out of range; give 10ms to 10s"):
        parse_energy_options("1ms", "2s", "")
    assert parse_energy_options("10ms", "0", "cpu=20..95") == EnergySettings(0.01, 0.0, "cpu=20..95")


# ---- the probe of other targets -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", None),
        ("pmu,callgrind:512KiB+2MiB", None),
        ("energy", EnergySettings()),
        (("pmu", "energy:10ms+idle=0"), EnergySettings(interval=0.01, idle=0.0)),
        ("energy:idle=5s", EnergySettings(idle=5.0)),
        ("energy-model:cpu=20..95", EnergySettings(model="cpu=20..95")),
        ("energy:100ms,energy-model:cpu=20..95", EnergySettings(interval=0.1, model="cpu=20..95")),
    ],
)
def test_how_the_probe_is_asked_for(words: Any, expected: EnergySettings | None) -> None:
    assert parse_energy_probes(words) == expected


@pytest.mark.parametrize("words", ["energy:fast", "energy:idle=", "energy:1ms", "energy-model", "energy-model:65"])
def test_what_cannot_be_asked_for_is_one_line(words: str) -> None:
    with pytest.raises(SondaError):
        parse_energy_probes(words)


def test_a_run_without_the_probe_has_no_energy_instrument() -> None:
    launcher = command.ProgramLauncher(["true"], command.WatchSettings())
    assert instruments_for("", launcher) == []
    assert not any(isinstance(one, EnergyInstrument) for one in instruments_for("os,pmu", launcher))
    (found,) = instruments_for("energy:idle=0,energy-model:cpu=20..95", launcher)
    assert isinstance(found, EnergyInstrument) and found.settings == EnergySettings(idle=0.0, model="cpu=20..95")


def test_the_probe_replaces_what_the_run_said_of_energy(tmp_path: Path) -> None:
    states = [ProbeState("energy", "missing", "no folder")]
    energy = EnergyMeasurement([], StoredEnergy(interval=0.5), ["a note"], states, EnergyReadings(), 0, [("hot", 1, 2)])
    instrument = EnergyInstrument(EnergySettings())
    instrument.sampler = SimpleNamespace(result=lambda begin, end: energy)  # type: ignore[assignment]
    probes = [ProbeState("energy", "off"), ProbeState("clock", "ok")]
    observation = Observation(
        Spans({"start": np.array([0])}, {}),
        Workload(),
        target_of({"spec": "cpu"}),
        Circumstances("", {}, {}, probes, ["before"]),
    )
    made = draft_run(RunPlan("local", Store(tmp_path), tmp_path, str), observation, instruments=[instrument]).info
    assert [(one.name, one.state) for one in made.probes] == [("clock", "ok"), ("energy", "missing")]
    assert made.notes == ["before", "a note"]
    metered = StoredEnergy(interval=0.5, used=["cpu"], regions=[("hot", 1, 2)])
    assert made.target == WorkloadTarget(spec="cpu", device="", metered=metered)


def test_devices_in_use_are_the_processor_and_busy_gpus() -> None:
    samples = [
        Sample(-S, "utilisation", 90.0, "%", "measured", device="cuda:0"),
        Sample(S, "utilisation", 0.0, "%", "measured", device="cuda:0"),
        Sample(S, "utilisation", 4.0, "%", "measured", device="cuda:1"),
    ]
    assert devices_used(EnergyMeasurement(samples, StoredEnergy(), [], [], EnergyReadings(), 0), None, {}) == [
        "cpu",
        "cuda:1",
    ]


def test_a_run_of_a_command_carries_its_energy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(circumstances, "load_or_measure", lambda root, threads, machine: {})
    file = Powercap(tmp_path / "root").zone("0", "package-0", 1_000_000)
    fake = EnergySettings(interval=0.01, idle=0.0, root=tmp_path / "root", gpus=False)
    monkeypatch.setattr(energy_instrument, "parse_energy_probes", lambda probes: fake if "energy" in probes else None)
    script = f'echo begin hot >> "$SONDA_REGIONS"; sleep 0.2; echo 31000000 > {file}; sleep 0.2'
    store = Store(tmp_path / "store")
    run, code = command.run_command(["sh", "-c", script], store, command.WatchSettings(probe=("energy",)))
    assert code == 0
    assert run.spans.metric("energy", "measured")[0] == pytest.approx(30.0)
    assert ("energy", "ok") in [(one.name, one.state) for one in run.info.probes]
    energy = summarise(run).energy
    assert energy is not None and energy.regions[0].name == "hot"
    assert "30.0 J" in StepsView(summarise(run)).text(detail=Detail.ALL) or "30 J" in StepsView(summarise(run)).text(
        detail=Detail.ALL
    )
    bare, _ = command.run_command(["true"], store, command.WatchSettings())
    assert bare.info.target.metered is None and summarise(bare).energy is None


def test_a_run_goes_on_without_a_sensor_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(circumstances, "load_or_measure", lambda root, threads, machine: {})
    monkeypatch.setattr(
        energy_instrument, "parse_energy_probes", lambda probes: EnergySettings(idle=0.0, root=tmp_path, gpus=False)
    )
    run, code = command.run_command(["true"], Store(tmp_path / "store"), command.WatchSettings(probe=("energy",)))
    assert code == 0
    (state,) = [one for one in run.info.probes if one.name == "energy"]
    assert state.state == "missing"
    assert "no RAPL zones" in state.reason
    assert summarise(run).energy is not None
    assert "No energy is known: no RAPL zones" in StepsView(summarise(run)).text(detail=Detail.ALL)


# ---- spans ----------------------------------------------------------------------------------------------------------


def reading(watts: float, device: str = "cpu", source: str = "measured", **more: Any) -> ChannelSeries:
    """A counter read every 100 ms for 10 s, from 5 s before the run's beginning at 100 s."""
    settings: dict[str, Any] = {"covers": PACKAGES, "total": True, "highest": 480.0, "source": source, **more}
    channel = Channel(sensor=f"{device} energy", device=device, unit="J", kind="counter", origin="", **settings)
    times = 95 * S + np.arange(101) * 100 * MS
    return ChannelSeries(channel, times, watts * (times - times[0]) / S)


def spans() -> Spans:
    return Spans(
        {
            "start": np.array([0, 0, 0, 150, 150, 0, 4900]) * MS,
            "duration": np.array([5000, 1000, 150, 99, 2000, 1000, 200]) * MS,
            "rank": np.array([0, 0, 0, 0, 0, 1, 0]),
        },
        {
            "kind": Words.of(["run", "step", "phase", "phase", "kernel", "step", "phase"]),
            "name": Words.of(["", "", "forward", "loss", "k", "", "late"]),
        },
    )


def test_energy_on_spans_by_hand() -> None:
    readings = EnergyReadings([reading(100.0), reading(30.0, "cuda:0"), reading(7.0, "psys", total=False)])
    columns = attribute_energy(spans(), readings, 100 * S)
    assert set(columns) == {"energy:measured", "energy_low:measured", "energy_high:measured"}
    expected = [650.0, 130.0, 19.5, np.nan, np.nan, np.nan, np.nan]
    # 99 ms is less than the 100 ms between readings; kernels, a second rank and what was not read have nothing.
    assert columns["energy:measured"] == pytest.approx(expected, nan_ok=True)
    # The phase ends halfway between two readings: each counter may have added nothing since, or all that came until the
    # next, but no more than 480 W x 50 ms on either side.
    assert columns["energy_low:measured"][2] == pytest.approx(13.0)
    assert columns["energy_high:measured"][2] == pytest.approx(26.0)
    assert columns["energy_low:measured"][0] == columns["energy_high:measured"][0] == pytest.approx(650.0)


def test_only_the_devices_of_the_run_count_and_a_model_has_columns_of_its_own() -> None:
    modelled = reading(50.0, source="estimated", uncertain=0.4)
    readings = EnergyReadings([reading(100.0), reading(30.0, "cuda:0"), modelled])
    columns = attribute_energy(spans(), readings, 100 * S, ["cpu"])
    assert columns["energy:measured"][0] == pytest.approx(500.0)
    assert columns["energy:estimated"][0] == pytest.approx(250.0)
    assert columns["energy_low:estimated"][0] == pytest.approx(150.0)
    assert columns["energy_high:estimated"][0] == pytest.approx(350.0)


def test_a_dead_counter_gives_no_column() -> None:
    dead = ChannelSeries(reading(0.0).channel, np.array([0, S]), np.array([0.0, 0.0]), "dead", "it stood still")
    assert attribute_energy(spans(), EnergyReadings([dead]), 100 * S) == {}


def test_sources_are_opened_in_the_sampler_with_the_programs_view_of_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of GPUs come from the environment that the sampler inherits with the program."""
    from fake_energy import FakeNvml

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    nvml = FakeNvml([FakeGpu(uuid="GPU-a"), FakeGpu(uuid="GPU-b")])
    found = energy_sources.open_sources(Path("/nowhere"), load=nvml.load)
    assert list(found.about) == ["gpu:0", "cuda:0"]
