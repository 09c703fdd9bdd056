"""Waiting between runs until the machine is cool again, on a clock and sensors of a test's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fake_energy import FakeGpu, FakeNvml, NvmlError
from sonda.probes.energy.thermal import read_temperatures
from sonda.targets.cooling import NO_SENSOR, Cooling


@dataclass
class Oven:
    """A machine that cools by a degree every second that is waited, down to 40 °C."""

    temperature: float = 40.0
    now: float = 0.0
    said: list[str] = field(default_factory=list)

    def read(self) -> dict[str, float]:
        return {"cpu package-0 temperature": self.temperature}

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.temperature = max(40.0, self.temperature - seconds)

    def cooling(self, most: float = 60.0, rest: float = 10.0, start: dict[str, float] | None = None) -> Cooling:
        return Cooling(most, rest, start, self.said.append, self.read, lambda: self.now, self.sleep)


def test_the_first_run_waits_for_nothing_and_sets_the_mark() -> None:
    oven = Oven()
    assert oven.cooling().wait() == {
        "waited_s": 0.0, "start": oven.read(), "before": oven.read(), "after": oven.read(),
    }  # fmt: skip


def test_a_run_waits_until_it_is_within_two_degrees_of_the_beginning() -> None:
    oven = Oven()
    cooling = oven.cooling()
    cooling.wait()
    oven.temperature = 55.0
    waited = cooling.wait()
    # 55 °C falls to 42 °C in 13 s.
    assert waited["waited_s"] == 13.0
    assert [waited[key]["cpu package-0 temperature"] for key in ("start", "before", "after")] == [40.0, 55.0, 42.0]
    assert "reason" not in waited
    assert oven.said[0] == "cooling down: cpu package-0 temperature 55 °C, 40 °C at the beginning"


def test_waiting_has_an_end_and_says_that_it_was_still_warm() -> None:
    oven = Oven()
    cooling = oven.cooling(most=7.5)
    cooling.wait()
    oven.temperature = 80.0
    waited = cooling.wait()
    assert waited["waited_s"] == 7.5
    assert waited["after"] == {"cpu package-0 temperature": 72.5}
    assert waited["reason"] == ("not back after 7.5 s: cpu package-0 temperature 72.5 °C, 40 °C at the beginning")


def test_a_session_that_begins_warm_cools_to_where_an_earlier_one_began() -> None:
    oven = Oven(temperature=50.0)
    waited = oven.cooling(start={"cpu package-0 temperature": 41.0}).wait()
    assert waited["waited_s"] == 7.0  # to 43 °C
    assert waited["start"] == {"cpu package-0 temperature": 41.0}


def test_a_sensor_that_was_not_there_at_the_beginning_is_not_waited_for() -> None:
    readings: Iterator[dict[str, float]] = iter([{"a": 40.0}, {"a": 41.0, "b": 90.0}])
    cooling = Cooling(60.0, 10.0, read=lambda: next(readings), clock=lambda: 0.0, sleep=lambda seconds: None)
    cooling.wait()
    assert cooling.wait()["waited_s"] == 0.0


def test_without_a_sensor_there_is_a_rest_between_runs_and_a_reason() -> None:
    oven = Oven()
    cooling = Cooling(60.0, 10.0, say=oven.said.append, read=dict, clock=lambda: oven.now, sleep=oven.sleep)
    assert cooling.wait() == {"waited_s": 0.0, "reason": NO_SENSOR}
    assert cooling.wait() == {"waited_s": 10.0, "reason": NO_SENSOR}
    assert oven.said == [f"resting 10 s: {NO_SENSOR}"]


def test_a_study_that_does_not_cool_reads_nothing() -> None:
    def read() -> dict[str, float]:
        raise AssertionError("nobody asked")

    assert Cooling(0.0, 0.0, read=read).wait() == {}


def sensor(root: Path, number: int, driver: str, **inputs: tuple[str, int]) -> None:
    folder = root / f"sys/class/hwmon/hwmon{number}"
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{driver}\n")
    for name, (label, millidegrees) in inputs.items():
        (folder / f"{name}_label").write_text(f"{label}\n")
        (folder / f"{name}_input").write_text(f"{millidegrees}\n")


def test_temperatures_are_those_of_packages_and_gpus(tmp_path: Path) -> None:
    sensor(tmp_path, 0, "coretemp", temp1=("Package id 0", 47_000), temp2=("Core 0", 51_000))
    sensor(tmp_path, 1, "nvme", temp1=("Composite", 33_000))
    nvml = FakeNvml([FakeGpu(temperature=61), FakeGpu(uuid="GPU-0b", temperature=NvmlError("not supported"))])
    assert read_temperatures(tmp_path, load=nvml.load) == {
        "cpu package-0 temperature": 47.0, "cuda:0 temperature": 61.0,
    }  # fmt: skip
    assert nvml.running == 0, "a session of NVML stayed open"


def test_a_machine_without_sensors_shows_nothing(tmp_path: Path) -> None:
    def load(name: str) -> None:
        raise ImportError(name)

    assert read_temperatures(tmp_path, load=load) == {}


@pytest.mark.parametrize("broken", ["", "warm", "-"])
def test_a_sensor_that_cannot_be_read_is_left_out(tmp_path: Path, broken: str) -> None:
    sensor(tmp_path, 0, "k10temp", temp1=("Tctl", 0))
    (tmp_path / "sys/class/hwmon/hwmon0/temp1_input").write_text(broken)
    assert read_temperatures(tmp_path, gpus=False) == {}
