"""Energy sources on fake sensors: which counters are there, which may be added, what is missing in a line each."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from fake_energy import FakeEvent, FakeGpu, FakeNvml, NvmlError, Powercap, deny, power_pmu, processor
from sonda.frameworks.collector.counters.perf_event import PerfEventError
from sonda.probes.energy.channels import BOARD, MEMORY, PACKAGES, EnergySources
from sonda.probes.energy.nvml import device_names, open_nvml
from sonda.probes.energy.rapl_perf import open_perf_power
from sonda.probes.energy.rapl_powercap import open_powercap
from sonda.probes.energy.sources import open_sources
from sonda.probes.energy.thermal import open_processor_states


def no_event(*_: Any, **__: Any) -> Any:
    raise PerfEventError(errno.EACCES, "Permission denied")


def channels(found: EnergySources) -> dict[str, Any]:
    return {channel.sensor: channel for reader in found.readers for channel in reader.channels}


def added(found: EnergySources) -> list[str]:
    """Sensors that sums are made of."""
    return [name for name, channel in channels(found).items() if channel.total]


def lacks(found: EnergySources) -> list[str]:
    return [f"{lack.what}: {lack.reason}" for lack in found.lacks]


# ---- powercap -------------------------------------------------------------------------------------------------------


def test_packages_and_dram_are_added_and_what_lies_inside_a_package_is_not(tmp_path: Path) -> None:
    files = Powercap(tmp_path).server()
    found = open_powercap(tmp_path)
    assert added(found) == [f"{name} energy" for name in ("package-0", "package-0/dram", "package-1", "package-1/dram")]
    assert set(channels(found)) == {f"{name} energy" for name in files}
    assert channels(found)["package-1/dram energy"].covers == MEMORY
    assert channels(found)["package-1 energy"].covers == PACKAGES
    assert lacks(found) == []


def test_counters_are_read_in_joules_as_they_are_now(tmp_path: Path) -> None:
    files = Powercap(tmp_path).server()
    found = open_powercap(tmp_path)
    (reader,) = found.readers
    assert reader.read()[1] == [1.0, 0.5, 2.0, 1.0, 0.5, 2.0]
    files["package-1/dram"].write_text("123456789\n")
    first, again = reader.read(), reader.read()
    assert first[1] == [1.0, 0.5, 2.0, 1.0, 0.5, 123.456789]
    assert first[0] < again[0]
    found.close()


def test_psys_holds_the_packages_and_is_not_added_to_them(tmp_path: Path) -> None:
    tree = Powercap(tmp_path)
    tree.zone("0", "package-0")
    tree.zone("1", "psys")
    found = open_sources(tmp_path, gpus=False, open_event=no_event)
    assert added(found) == ["package-0 energy"]
    assert "psys energy" in channels(found)


def test_psys_alone_is_a_total(tmp_path: Path) -> None:
    Powercap(tmp_path).zone("0", "psys")
    found = open_sources(tmp_path, gpus=False, open_event=no_event)
    assert added(found) == ["psys energy"]
    assert channels(found)["psys energy"].covers == "the platform (psys)"


def test_a_package_that_mmio_shows_again_is_there_once(tmp_path: Path) -> None:
    tree = Powercap(tmp_path)
    tree.zone("mmio:0", "package-0", 7_000_000)
    tree.zone("0", "package-0", 3_000_000)
    found = open_powercap(tmp_path)
    assert list(channels(found)) == ["package-0 energy"]
    assert channels(found)["package-0 energy"].origin == "/sys/class/powercap/intel-rapl:0/energy_uj"
    assert found.readers[0].read()[1] == [3.0]


def test_a_zone_number_is_no_package_number(tmp_path: Path) -> None:
    tree = Powercap(tmp_path)
    tree.zone("0", "package-1")
    tree.zone("0:0", "dram")
    tree.zone("1", "package-0")
    assert list(channels(open_powercap(tmp_path))) == ["package-1 energy", "package-1/dram energy", "package-0 energy"]


def test_amd_has_no_memory_counter_and_that_is_said(tmp_path: Path) -> None:
    tree = Powercap(tmp_path)
    tree.zone("0", "package-0", most=65_532_610_987)
    tree.zone("0:0", "core")
    processor(tmp_path, "AuthenticAMD")
    found = open_powercap(tmp_path)
    assert added(found) == ["package-0 energy"]
    assert lacks(found) == ["DRAM: AMD processors have no energy counter for memory"]
    assert channels(found)["package-0 energy"].wraps_at == pytest.approx(65_532.610987)


def test_no_folder_is_one_line_with_a_remedy(tmp_path: Path) -> None:
    found = open_powercap(tmp_path)
    assert found.readers == []
    (lack,) = found.lacks
    assert lack.reason == "no RAPL zones under /sys/class/powercap"
    assert "bare-metal" in lack.remedy


def test_a_counter_that_only_root_may_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = Powercap(tmp_path).server()
    deny(files["package-1"], monkeypatch)
    found = open_powercap(tmp_path)
    assert added(found) == ["package-0 energy", "package-0/dram energy", "package-1/dram energy"]
    assert lacks(found) == ["RAPL (powercap) package-1: only root may read energy_uj"]
    assert "chmod a+r" in found.lacks[0].remedy
    assert (found.lacks[0].covers, found.lacks[0].sensor) == (PACKAGES, "package-1 energy"), "sums lack it"


def test_missing_and_damaged_files_leave_the_other_zones(tmp_path: Path) -> None:
    tree = Powercap(tmp_path)
    tree.zone("0", "package-0").unlink()
    tree.zone("0:0", "dram").write_text("none\n")
    (tree.zone("1", "package-1").parent / "name").unlink()
    tree.zone("2", "package-2")
    found = open_powercap(tmp_path)
    assert added(found) == ["package-2 energy"]
    assert lacks(found) == [
        "RAPL (powercap) package-0: energy_uj: No such file or directory",
        "RAPL (powercap) package-0/dram: energy_uj holds no number",
    ]


def test_a_counter_that_stops_answering_gives_nothing_instead_of_zero(tmp_path: Path) -> None:
    file = Powercap(tmp_path).zone("0", "package-0", 5_000_000)
    reader = open_powercap(tmp_path).readers[0]
    assert reader.read()[1] == [5.0]
    file.write_text("")
    assert reader.read()[1] == [None]


# ---- states ---------------------------------------------------------------------------------------------------------


def test_temperature_and_throttling_of_each_package_once(tmp_path: Path) -> None:
    for number, (driver, labels) in enumerate((("acpitz", []), ("coretemp", ["Core 0", "Package id 0"]))):
        folder = tmp_path / f"sys/class/hwmon/hwmon{number}"
        folder.mkdir(parents=True)
        (folder / "name").write_text(f"{driver}\n")
        for at, label in enumerate(labels, start=1):
            (folder / f"temp{at}_label").write_text(f"{label}\n")
            (folder / f"temp{at}_input").write_text(f"{40_000 + at * 1000}\n")
    for cpu, package in ((0, 0), (1, 0), (2, 1)):
        for name, text in (("thermal_throttle/package_throttle_count", "7"), ("topology/physical_package_id", package)):
            file = tmp_path / f"sys/devices/system/cpu/cpu{cpu}" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{text}\n")
    found = open_processor_states(tmp_path)
    values = dict(zip(channels(found), found.readers[0].read()[1], strict=True))
    assert values == {
        "package-0 temperature": 42.0, "package-0 throttle count": 7.0, "package-1 throttle count": 7.0,
    }  # fmt: skip
    assert added(found) == []
    assert open_processor_states(tmp_path / "nothing").readers == []


# ---- perf -----------------------------------------------------------------------------------------------------------


def test_perf_reads_one_processor_of_each_package_in_joules(tmp_path: Path) -> None:
    power_pmu(tmp_path, {"energy-cores": 1, "energy-pkg": 2, "energy-ram": 3, "energy-psys": 5}, "0,18")
    FakeEvent.opened.clear()
    found = open_perf_power(tmp_path, FakeEvent)
    names = ["package-0", "package-1", "package-0/dram", "package-1/dram"]
    assert added(found) == [f"{name} energy" for name in names]
    assert [event.asked for event in FakeEvent.opened[:2]] == [(24, 2, -1, 0, False), (24, 2, -1, 18, False)]
    FakeEvent.opened[1].count = 2**32 * 40  # 40 J: the scale is 2^-32
    values = dict(zip(channels(found), found.readers[0].read()[1], strict=True))
    assert values["package-1 energy"] == 40.0
    assert values["package-0 energy"] == 0.0
    assert channels(found)["package-0 energy"].wraps_at == 0
    found.close()
    assert all(event.closed for event in FakeEvent.opened)


def test_perf_tells_the_dies_of_a_package_apart_as_powercap_does(tmp_path: Path) -> None:
    """Two entries of the mask in package 0, one in package 1: three counters, none of which may be mixed."""
    power_pmu(tmp_path, {"energy-pkg": 2}, "0,18,36")
    for cpu, package, die in ((0, 0, 0), (18, 0, 1), (36, 1, 0)):
        topology = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology"
        topology.mkdir(parents=True, exist_ok=True)
        (topology / "physical_package_id").write_text(f"{package}\n")
        (topology / "die_id").write_text(f"{die}\n")
    found = open_perf_power(tmp_path, FakeEvent)
    names = ["package-0-die-0 energy", "package-0-die-1 energy", "package-1-die-0 energy"]
    assert [channel.sensor for channel in found.readers[0].channels] == names
    # An old kernel has no die_id: processors are then told apart by themselves.
    for cpu in (0, 18, 36):
        (tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology/die_id").unlink()
    bare = [channel.sensor for channel in open_perf_power(tmp_path, FakeEvent).readers[0].channels]
    assert bare == ["package-0-die-0 energy", "package-0-die-1 energy", "package-1-die-0 energy"]


@pytest.mark.parametrize(("vendor", "package"), [("AuthenticAMD", "package-0"), ("GenuineIntel", "")])
def test_a_die_names_its_package_on_amd_only(tmp_path: Path, vendor: str, package: str) -> None:
    tree = Powercap(tmp_path)
    tree.zone("0", "package-0-die-1")
    tree.zone("1", "package-1")
    processor(tmp_path, vendor)
    found = channels(open_powercap(tmp_path))
    assert [found[f"{name} energy"].package for name in ("package-0-die-1", "package-1")] == [package, ""]
    power_pmu(tmp_path, {"energy-pkg": 2, "energy-psys": 5}, "0,18")
    for cpu in (0, 18):
        topology = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology"
        topology.mkdir(parents=True, exist_ok=True)
        (topology / "physical_package_id").write_text("0\n")
    (reader,) = open_perf_power(tmp_path, FakeEvent).readers
    assert [channel.package for channel in reader.channels] == [package, package, ""]


def test_perf_names_every_package_that_is_refused(tmp_path: Path) -> None:
    power_pmu(tmp_path, {"energy-pkg": 2}, "0,18")

    def second_refused(kind: int, config: int, process: int, cpu: int, user: bool = True) -> FakeEvent:
        return no_event() if cpu == 18 else FakeEvent(kind, config, process, cpu, user)

    found = open_perf_power(tmp_path, second_refused)
    assert added(found) == ["package-0 energy"]
    assert [(lack.covers, lack.sensor) for lack in found.lacks if lack.covers] == [(PACKAGES, "package-1 energy")]


def test_perf_takes_over_where_powercap_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = Powercap(tmp_path).zone("0", "package-0")
    power_pmu(tmp_path, {"energy-pkg": 2})
    deny(file, monkeypatch)
    found = open_sources(tmp_path, gpus=False, open_event=FakeEvent)
    assert channels(found)["package-0 energy"].origin == "power/energy-pkg/ on processor 0"
    assert lacks(found) == ["DRAM: the power PMU has no energy-ram event"]


def test_powercap_and_perf_are_never_added(tmp_path: Path) -> None:
    Powercap(tmp_path).zone("0", "package-0")
    power_pmu(tmp_path, {"energy-pkg": 2})
    found = open_sources(tmp_path, gpus=False, open_event=FakeEvent)
    assert added(found) == ["package-0 energy"]
    assert channels(found)["package-0 energy"].origin.endswith("energy_uj")


def test_perf_refused_says_the_level_and_the_remedy(tmp_path: Path) -> None:
    power_pmu(tmp_path, {"energy-pkg": 2})
    level = tmp_path / "proc/sys/kernel/perf_event_paranoid"
    level.parent.mkdir(parents=True)
    level.write_text("2\n")
    found = open_perf_power(tmp_path, no_event)
    assert lacks(found) == ["RAPL (perf) energy-pkg: refused: kernel.perf_event_paranoid is 2"]
    assert found.lacks[0].remedy == "set it to 0 or lower, or give CAP_PERFMON"


@pytest.mark.parametrize("scale", ["", "nothing\n", "-1\n"])
def test_an_event_without_a_scale_is_not_guessed(tmp_path: Path, scale: str) -> None:
    power_pmu(tmp_path, {"energy-pkg": 2})
    (tmp_path / "sys/bus/event_source/devices/power/events/energy-pkg.scale").write_text(scale)
    found = open_perf_power(tmp_path, FakeEvent)
    assert found.readers == []
    assert lacks(found) == ["RAPL (perf): the power PMU has no energy event"]


# ---- NVML -----------------------------------------------------------------------------------------------------------


def test_a_gpu_gives_counter_power_clocks_temperature_and_reasons(tmp_path: Path) -> None:
    gpu = FakeGpu(energy=9_663_366, instant=123_997, average=129_520, reasons=0x4, utilisation=97)
    nvml = FakeNvml([gpu])
    found = open_nvml(nvml.load, {})
    values = dict(zip(channels(found), found.readers[0].read()[1], strict=True))
    assert values == {
        "energy": 9663.366, "power": 123.997, "average power": 129.52, "clock": 1.98e9, "memory clock": 3.201e9,
        "temperature": 41.0, "throttle reasons": 4.0, "utilisation": 97.0,
    }  # fmt: skip
    assert added(found) == ["energy"]
    assert channels(found)["energy"].covers == BOARD
    assert found.about == {"cuda:0": "NVIDIA H200"}
    assert nvml.running == 1
    found.close()
    assert nvml.running == 0


def test_a_gpu_without_the_counter_still_gives_power(tmp_path: Path) -> None:
    gpu = FakeGpu(energy=NvmlError("Not Supported"), instant=70_000)
    found = open_nvml(FakeNvml([gpu]).load, {})
    assert added(found) == []
    assert "power" in channels(found)
    assert lacks(found) == ["NVML cuda:0 energy: refused (Not Supported)"]
    assert (found.lacks[0].covers, found.lacks[0].device) == (BOARD, "cuda:0"), "sums lack it"


def test_an_old_gpu_gives_its_power_usage() -> None:
    gpu = FakeGpu(energy=NvmlError("Not Supported"), instant=NvmlError("Not Supported"), usage=55_000)
    found = open_nvml(FakeNvml([gpu]).load, {})
    values = dict(zip(channels(found), found.readers[0].read()[1], strict=True))
    assert values["power"] == 55.0
    # Its source is what was called, not the field that the card refused.
    assert channels(found)["power"].origin == "nvmlDeviceGetPowerUsage"
    newer = open_nvml(FakeNvml([FakeGpu(energy=NvmlError("Not Supported"), instant=1000)]).load, {})
    assert channels(newer)["power"].origin == "NVML_FI_DEV_POWER_INSTANT"


def test_a_gpu_that_falls_off_the_bus_gives_nothing_instead_of_zero() -> None:
    gpu = FakeGpu(energy=1000, instant=100_000)
    reader = open_nvml(FakeNvml([gpu]).load, {}).readers[0]
    gpu.energy = NvmlError("GPU is lost")
    values = dict(zip((one.sensor for one in reader.channels), reader.read()[1], strict=True))
    assert values["energy"] is None
    assert values["power"] == 100.0


def missing(name: str) -> Any:
    raise ImportError(name)


@pytest.mark.parametrize(
    ("load", "reason"),
    [
        (missing, "nvidia-ml-py is not installed"),
        (FakeNvml(refuses=NvmlError("Library Not Found")).load, "no NVIDIA driver (Library Not Found)"),
        (FakeNvml([]).load, "the driver shows no device"),
        (FakeNvml([FakeGpu(uuid=NvmlError("Unknown Error"))]).load, "the driver answers: Unknown Error"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_why_there_is_no_gpu(load: Any, reason: str) -> None:
    found = open_nvml(load, {})
    assert lacks(found) == [f"NVML: {reason}"]
    assert found.lacks[0].remedy
    assert channels(found) == {}


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        (None, ["cuda:0", "cuda:1", "cuda:2"]),
        ("2,0", ["cuda:1", "gpu:1", "cuda:0"]),
        ("GPU-cc", ["gpu:0", "gpu:1", "cuda:0"]),
        ("", ["gpu:0", "gpu:1", "gpu:2"]),
        ("1,-1,0", ["gpu:0", "cuda:0", "gpu:2"]),
        ("1,7,0", ["gpu:0", "cuda:0", "gpu:2"]),
    ],
)
def test_gpus_have_the_names_that_the_program_has_for_them(visible: str | None, names: list[str]) -> None:
    assert device_names(["GPU-aa", "GPU-bb", "GPU-cc"], visible) == names


def test_different_models_may_be_numbered_differently_by_cuda() -> None:
    gpus = [FakeGpu("NVIDIA A100", "GPU-a"), FakeGpu("NVIDIA T4", "GPU-b")]
    assert any("another order" in line for line in lacks(open_nvml(FakeNvml(gpus).load, {})))
    assert lacks(open_nvml(FakeNvml(gpus).load, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})) == []
