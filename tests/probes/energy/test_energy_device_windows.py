"""A GPU's joules of steps and phases are those of the time in which the GPU worked on them, not the host."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from energy_summary_cases import counter, found_in, keep
from sonda.analysis.reasons import GPU_TIME_UNKNOWN
from sonda.probes.energy.attribution import attribute_energy
from sonda.probes.energy.channels import Channel
from sonda.probes.energy.readings import ChannelSeries, EnergyReadings
from sonda.record.samples import Sample
from sonda.record.spans import Spans, Words

S, MS = 1_000_000_000, 1_000_000
START = 100 * S
"""When the run began."""
GPU_WATTS = ((0.5, 100.0), (1.5, 200.0), (3.5, 400.0), (6.0, 100.0))
"""Until each second since then: idle, forward, backward, idle."""
CPU_WATTS = 50.0


def gpu_joules(seconds: float) -> float:
    """Spent since the run began."""
    total, before = 0.0, 0.0
    for until, watts in GPU_WATTS:
        total += watts * max(0.0, min(seconds, until) - before)
        before = until
    return total


def spans(known: bool = True, launching: int = 200) -> Spans:
    """The host launches forward and backward within 0.4 s and waits; the GPU begins 0.5 s in and works for 3 s.

    `launching`: ms that the host takes for forward. `known`: whether the GPU was marked in the last phase.
    """
    nothing = np.nan
    start = np.array([0, 0, 0, 200, 400]) * MS
    duration = np.array([6000, 4000, launching, 200, 200]) * MS
    on_device = np.array([nothing, 0.5, 0.5, 1.5, nothing if not known else 3.5]) * S
    lasted = np.array([nothing, 3.05, 1.0, 2.0, 0.05]) * S
    return Spans(
        {"parent": np.array([-1, 0, 1, 1, 1]), "start": start, "duration": duration},
        {
            "kind": Words.of(["run", "step", "phase", "phase", "phase"]),
            "name": Words.of(["", "", "forward", "backward", "optimizer"]),
            "pass": Words.of(["timed"] * 5),
        },
        {"device_start:derived": on_device, "device_time:measured": lasted},
    )


def readings(gpu: bool = True, cpu: bool = True) -> EnergyReadings:
    """Counters read every 100 ms from 1 s before the run to its end."""
    seconds = np.arange(-10, 61) / 10
    times = START + np.round(seconds * S).astype(np.int64)

    def channel(device: str) -> Channel:
        return Channel(
            sensor=f"{device} energy", device=device, unit="J", kind="counter", origin="", covers="", total=True,
            highest=700.0,
        )  # fmt: skip

    found = []
    if cpu:
        found.append(ChannelSeries(channel("cpu"), times, CPU_WATTS * (seconds + 1)))
    if gpu:
        found.append(ChannelSeries(channel("cuda:0"), times, np.array([gpu_joules(one) for one in seconds])))
    return EnergyReadings(found)


def test_spans_have_the_gpus_energy_of_the_gpus_time() -> None:
    energy = attribute_energy(spans(), readings(), START)["energy:measured"]
    run, step, forward, backward, optimizer = energy
    # 50 + 200 + 800 + 250 J of the GPU, 300 of the processor.
    assert run == pytest.approx(1300 + 300)
    # The step: 3.05 s of the GPU's time, 200 + 800 + 5 J, and 4 s of the processor's, 200 J.
    assert step == pytest.approx(1005 + 200)
    # 1 s at 200 W, while the host was in it for 0.2 s: 10 J of the processor. Host windows would give 20 + 10 J.
    assert forward == pytest.approx(200 + 10)
    assert backward == pytest.approx(800 + 10)
    assert np.isnan(optimizer), "50 ms on the GPU are shorter than the 100 ms between readings"


def test_without_a_gpus_counter_nothing_changes() -> None:
    energy = attribute_energy(spans(), readings(gpu=False), START)["energy:measured"]
    assert energy.tolist() == pytest.approx([300.0, 200.0, 10.0, 10.0, 10.0])


def test_a_phase_that_the_host_leaves_at_once_has_energy_where_the_gpu_is_long_in_it() -> None:
    energy = attribute_energy(spans(launching=5), readings(cpu=False), START)["energy:measured"]
    assert energy[2] == pytest.approx(200.0)


def summary(tmp_path: Path, known: bool = True) -> dict[str, dict[str, float | str]]:
    samples = [
        Sample(round(at * S), "energy", gpu_joules(at), "J", "measured", device="cuda:0")
        for at in (np.arange(-10, 61) / 10).tolist()
    ]
    about = {"interval": 0.1, "readings": 71, "used": ["cuda:0"], "counters": [counter("energy", "cuda:0")]}
    found = found_in(keep(tmp_path, about, samples, spans=spans(known)))
    return {
        window.name or window.kind: {
            device: value.reason if value.value is None else value.value for device, value in window.devices.items()
        }
        for window in found.windows
    }


def test_windows_of_a_summary_are_the_gpus(tmp_path: Path) -> None:
    found = summary(tmp_path)
    assert found["step"]["cuda:0"] == pytest.approx(1005.0)
    assert found["forward"]["cuda:0"] == pytest.approx(200.0)
    assert found["backward"]["cuda:0"] == pytest.approx(800.0)
    assert "shorter than the time between readings" in str(found["optimizer"]["cuda:0"])


def test_a_phase_whose_time_on_the_gpu_is_not_known_says_so(tmp_path: Path) -> None:
    found = summary(tmp_path, known=False)
    assert found["forward"]["cuda:0"] == pytest.approx(200.0)
    assert GPU_TIME_UNKNOWN in str(found["optimizer"]["cuda:0"])
