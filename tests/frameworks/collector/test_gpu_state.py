"""How a GPU stands while a program uses it, and which one it is: fake NVML, no GPU."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np

import fake_energy
from gpu_spans_cases import FakeDevice, facts, fake_torch
from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.reconstruction.assembly import Assembly
from sonda.frameworks.torch.observe.device.device_marks import DeviceMarks
from sonda.probes.availability import probe_states
from sonda.probes.energy.nvml import open_nvml
from sonda.record.readings import DeviceStand
from sonda.record.run import ProbeState
from sonda.record.spans import Spans
from sonda.report.views.device.overview import state_phrases
from sonda.targets.circumstances import describe_gpus
from sonda.targets.instruments.energy import devices_used


class FakeNvml:
    """`pynvml` with one card at its power limit."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def nvmlInit(self) -> None: ...  # noqa: N802

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        self.asked.append(uuid)
        return uuid

    def nvmlDeviceGetClockInfo(self, _: str, which: int) -> int:  # noqa: N802
        return {1: 1980, 2: 3201}[which]

    def nvmlDeviceGetTemperature(self, _: str, sensor: int) -> int:  # noqa: N802
        return 61

    def nvmlDeviceGetPowerUsage(self, _: str) -> int:  # noqa: N802
        return 690_400

    def nvmlDeviceGetCurrentClocksEventReasons(self, _: str) -> int:  # noqa: N802
        return 0x4


def test_clocks_temperature_and_throttling_are_kept() -> None:
    nvml = FakeNvml()
    device, recorder = FakeDevice(), Recorder("")
    device.pynvml = nvml  # type: ignore[attr-defined]
    device.get_device_properties = lambda index: SimpleNamespace(uuid="12ab")  # type: ignore[attr-defined]
    marks = DeviceMarks(recorder, fake_torch(device))
    marks.mark()
    marks.note_states()
    marks.finish()
    about = facts(recorder)[-1]["devices"]["0"]
    assert nvml.asked == ["GPU-12ab"]
    expected = {"clock": 1.98e9, "memory_clock": 3.201e9, "temperature": 61.0, "power": 690.4, "throttle_reasons": 4.0}
    assert about["state"] == expected
    said = state_phrases(msgspec.convert(about["state"], DeviceStand))
    assert said == ["after the timed steps 1.98 GHz, 61 °C, 690 W, held back: power limit"]
    kept = describe_gpus(Assembly(spans=Spans({"start": np.zeros(0)}, {}), devices={"0": about}))
    assert "uuid" not in kept["devices"]["cuda:0"]


def test_without_nvml_the_reason_is_kept_and_nothing_shown() -> None:
    recorder = Recorder("")
    marks = DeviceMarks(recorder, fake_torch(FakeDevice()))
    marks.mark()
    marks.finish()
    state = facts(recorder)[-1]["devices"]["0"]["state"]
    assert state == {"missing": "nvidia-ml-py is not installed"}
    kept = msgspec.convert(state, DeviceStand)
    assert kept.missing == state["missing"] and state_phrases(kept) == []


def test_an_older_driver_is_asked_for_throttling_by_its_older_name() -> None:
    class Older(fake_energy.FakeNvml):
        def nvmlDeviceGetCurrentClocksEventReasons(self, _: Any) -> int:  # noqa: N802
            raise OSError("Function Not Found")

        def nvmlDeviceGetCurrentClocksThrottleReasons(self, _: Any) -> int:  # noqa: N802
            return 0x40

    found = open_nvml(Older([fake_energy.FakeGpu()]).load, {})
    channels = [channel.sensor for channel in found.readers[0].channels]
    assert found.readers[0].read()[1][channels.index("throttle reasons")] == 0x40


def test_energy_that_a_gpu_counts_is_not_called_missing_for_want_of_rapl(tmp_path: Path) -> None:
    def energy() -> ProbeState:
        return next(one for one in probe_states(tmp_path) if one.name == "energy")

    assert energy().state == "missing"
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04")
    assert (energy().state, "--probe energy" in energy().reason) == ("off", True)


def test_energy_is_that_of_the_card_the_program_used_whatever_it_calls_it() -> None:
    """A program that hides the first card from itself calls the second one cuda:0."""
    readings = SimpleNamespace(identities={"cuda:0": "GPU-a", "cuda:1": "GPU-b"})
    energy: Any = SimpleNamespace(readings=readings)
    assert devices_used(energy, ("cpu", "cuda:0"), {"cuda:0": "GPU-b"}) == ["cpu", "cuda:1"]
    assert devices_used(energy, ("cpu", "cuda:0"), {"cuda:0": ""}) == ["cpu", "cuda:0"]
