"""The power model: linear where the load is known, an interval where it is not, and never among what was measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from energy_summary_cases import S, counter, keep
from fake_energy import FakeGpu, FakeNvml, Powercap
from sonda.analysis.energy.run import summarise_energy
from sonda.probes.energy.channels import EnergySources
from sonda.probes.energy.model import MidpointReader, ProcessorModelReader, UtilisationReader, open_model, parse_model
from sonda.probes.energy.sources import open_sources
from sonda.record.errors import SondaError
from sonda.record.samples import Sample
from sonda.report.words import describe

CLOCK = "sonda.probes.energy.model.perf_counter_ns"


def stat(root: Path, busy: int, idle: int) -> None:
    (root / "proc").mkdir(exist_ok=True)
    line = f"{busy - 10} 0 5 {idle} 7 3 2 900 0 0"
    (root / "proc/stat").write_text(f"cpu  {line}\ncpu0 {line}\ncpu1 {line}\nintr 5\n")


def channels(found: EnergySources) -> list[tuple[str, str, str, str]]:
    return [
        (one.device, one.sensor, one.source, one.covers)
        for reader in found.readers
        for one in reader.channels
        if one.total
    ]


@pytest.mark.parametrize("memory", [None, (4.0, 12.0)])
def test_the_model_is_linear_in_the_busy_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: tuple[float, float] | None
) -> None:
    moments = iter([0, 10_000_000_000])
    monkeypatch.setattr(CLOCK, lambda: next(moments))
    stat(tmp_path, 1000, 5000)
    reader = ProcessorModelReader(tmp_path, 20.0, 100.0, ticks=100, memory=memory)
    beside = [0.0] if memory else []
    assert reader.read() == (0, [0.0, *beside])
    stat(tmp_path, 1600, 6400)  # 600 ticks of 2 processors: 3 s of 10 s each, 30 % busy
    beside = [8.0 * 10] if memory else []  # halfway between 4 and 12 W
    assert reader.read()[1] == pytest.approx([10 * 20 + 0.3 * 10 * 80, *beside])
    assert {one.source for one in reader.channels} == {"estimated"}
    (tmp_path / "proc/stat").write_text("nonsense")
    monkeypatch.setattr(CLOCK, lambda: 0)
    assert reader.read()[1] == [None] * len(reader.channels)


def test_where_the_load_is_not_known_rest_and_full_load_are_the_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([5, 5 + 2 * S])
    monkeypatch.setattr(CLOCK, lambda: next(moments))
    reader = MidpointReader("modelled energy", "cuda:0", (50.0, 250.0), "GPU boards with their memory")
    assert reader.read()[1] == [0.0]
    joules = reader.read()[1][0]
    assert joules == 2 * 150.0
    uncertain = reader.channels[0].uncertain
    assert (joules * (1 - uncertain), joules * (1 + uncertain)) == pytest.approx((2 * 50.0, 2 * 250.0))


def test_a_gpu_by_the_load_that_its_driver_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 60..700 W: one second at half load, then two at full; a driver that fails once says nothing then."""
    moments, loads = iter([0, S, 3 * S, 4 * S]), iter([0.0, 50.0, 100.0])
    monkeypatch.setattr(CLOCK, lambda: next(moments))
    reader = UtilisationReader("cuda:1", (60.0, 700.0), lambda: next(loads))
    assert [reader.read()[1] for _ in range(4)] == [[0.0], [380.0], [380.0 + 1400.0], [None]]
    assert (reader.channels[0].device, reader.channels[0].uncertain) == ("cuda:1", 0.4)


@pytest.mark.parametrize(
    "text",
    ["", "cpu", "cpu=20", "cpu=95..20", "tpu=20..95", "cpu=20..", "cpu=-1..5", "cpu=20..95+", "cpu=1..2+cpu=3..4",
     "cpu=20..95+gpu=700..60", "cpu=20..95,ram=4..12"],
)  # fmt: skip
def test_what_is_no_model_is_one_line(text: str) -> None:
    with pytest.raises(SondaError, match="is not a power model; give watts at rest and under full load: cpu="):
        parse_model(text)


def test_a_model_has_the_parts_that_were_asked_for() -> None:
    assert parse_model("cpu=20..95W") == {"cpu": (20.0, 95.0)}
    assert parse_model("ram=4..12+gpu=60.5..700") == {"ram": (4.0, 12.0), "gpu": (60.5, 700.0)}


def test_a_model_that_is_asked_for_stands_beside_the_counters(tmp_path: Path) -> None:
    stat(tmp_path, 1000, 5000)
    Powercap(tmp_path).zone("0", "package-0")
    cards = FakeNvml([FakeGpu(energy=5), FakeGpu(uuid="GPU-1b", energy=Exception("MIG"), utilisation=Exception("MIG"))])
    found = open_sources(tmp_path, model="cpu=20..95+ram=4..12+gpu=60..700", load=cards.load, environment={})
    boards = "GPU boards with their memory"
    assert channels(found) == [
        ("cpu", "package-0 energy", "measured", "CPU packages"),
        ("cuda:0", "energy", "measured", boards),
        ("cpu", "modelled energy", "estimated", "CPU packages"),
        ("cpu", "modelled memory energy", "estimated", "DRAM"),
        ("cuda:0", "modelled energy", "estimated", boards),
        ("cuda:1", "modelled energy", "estimated", boards),
    ]
    uncertain = [one.channels[0].uncertain for one in found.readers[-2:]]
    assert uncertain == [0.4, pytest.approx(640 / 760)], "the one that tells its load, and the one that does not"


def test_a_model_of_gpus_without_any_says_so(tmp_path: Path) -> None:
    found = open_model("ram=4..12+gpu=60..700", tmp_path)
    assert channels(found) == [("cpu", "modelled memory energy", "estimated", "DRAM")]
    assert [(one.what, one.reason) for one in found.lacks] == [("power model of GPUs", "NVML shows no GPU")]


def test_a_run_says_what_its_estimate_stands_for(tmp_path: Path) -> None:
    """50 W of a processor and 8 W of its memory for 4 s, and a GPU at 300 W."""
    watts = {
        ("cpu", "modelled energy"): 50.0,
        ("cpu", "modelled memory energy"): 8.0,
        ("cuda:0", "modelled energy"): 300.0,
    }
    covers = ("CPU packages", "DRAM", "GPU boards with their memory")
    samples = [
        Sample(at * S, sensor, power * (at + 2), "J", "estimated", device=device)
        for (device, sensor), power in watts.items()
        for at in range(-2, 6)
    ]
    counters = [
        {**counter(sensor, source="estimated", uncertain=share, covers=part), "device": device}
        for (device, sensor), share, part in zip(watts, (0.4, 0.5, 0.4), covers, strict=True)
    ]
    run = keep(tmp_path, {"counters": counters, "interval": 1.0, "readings": 8, "used": ["cpu", "cuda:0"]}, samples)
    found = summarise_energy(run)
    assert found is not None
    total = found.all["estimated"].energy
    assert total.value == pytest.approx(4 * 358) and total.source == "estimated"
    assert total.low is not None and total.high is not None
    assert total.low == pytest.approx(4 * (50 * 0.6 + 8 * 0.5 + 300 * 0.6), rel=0.01)
    assert total.high == pytest.approx(4 * (50 * 1.4 + 8 * 1.5 + 300 * 1.4), rel=0.01)
    assert found.modelled == "CPU packages, DRAM and GPU boards with their memory"
    assert describe(found.finding).endswith(f": {found.modelled}, by a power model.")
    assert found.covers == ()


def test_a_gpu_is_asked_once_for_its_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every question to NVML takes ms: the model takes what the reader of the GPU was told just before."""
    cards, asked = FakeNvml([FakeGpu(utilisation=50)]), []
    ask = FakeNvml.nvmlDeviceGetUtilizationRates

    def counted(self: FakeNvml, gpu: FakeGpu) -> object:
        asked.append(gpu)
        return ask(self, gpu)

    monkeypatch.setattr(FakeNvml, "nvmlDeviceGetUtilizationRates", counted)
    found = open_sources(tmp_path, model="gpu=60..700", load=cards.load, environment={})
    modelled = next(reader for reader in found.readers if isinstance(reader, UtilisationReader))
    assert modelled.read()[1] == [None], "nobody has read the GPU yet"
    asked.clear()
    values = [reader.read()[1] for reader in found.readers]
    assert len(asked) == 1
    assert values[found.readers.index(modelled)] == [0.0]
    cards.gpus[0].utilisation = Exception("lost")
    assert [reader.read()[1] for reader in found.readers][found.readers.index(modelled)] == [None]
