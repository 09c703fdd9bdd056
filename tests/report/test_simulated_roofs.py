"""A simulated accelerator in a roofline: its ceilings follow from its description, beside a machine's measured ones."""

from __future__ import annotations

from pathlib import Path

import pytest

import sonda
from builders import trained
from charts import across, charts_of, name_of, series_of, upright
from sonda.analysis.reasons import SIMULATED_HAS_NO_ROOF
from sonda.analysis.roofline import lines
from sonda.analysis.run_summary import summarise
from sonda.analysis.simulated.run import simulated_roofs
from sonda.analysis.summary import Summary
from sonda.record.simulated import DescribedAccelerator, DescribedEngine, DescribedMemory, EngineParts
from sonda.report.blocks import Panel
from sonda.report.figures import ceiling_lines
from sonda.report.section import section_of
from sonda.report.views.compare.rooflines import targets_panels
from sonda.report.views.steps.view import StepsView

PARTS = {"small": EngineParts(multipliers=64), "mesh": EngineParts(multipliers=128, rows=8, columns=16)}
ENGINES = {name: DescribedEngine(name=name, kind="flexible", hardware=parts) for name, parts in PARTS.items()}


def described(clock_hz: float | None = None, memory: DescribedMemory | None = None) -> DescribedAccelerator:
    return DescribedAccelerator(name="two", clock_hz=clock_hz, engines=ENGINES, memory=memory)


def test_ceilings_by_hand() -> None:
    found = simulated_roofs(described(1.5e9, DescribedMemory(buffer_bytes=65_536, bytes_per_cycle=32.0)))
    # Engines take turns: 8 x 16 multipliers, a product and a sum each, 1.5 billion times a second.
    assert found["theoretical_flops"].value == 2 * 128 * 1.5e9
    assert found["theoretical_dram_bandwidth"].value == 48e9
    assert found["theoretical_peak_is"] == "2 FLOP x 128 multipliers x 1.5 GHz"
    assert [(name, value.unit, value.source) for name, value in lines(found)] == [
        ("peak in theory", "FLOP/s", "derived"), ("DRAM in theory", "B/s", "derived"),
    ]  # fmt: skip


def test_without_a_clock_or_a_memory_there_is_less() -> None:
    assert simulated_roofs(described()) == simulated_roofs(None) == {"reason": SIMULATED_HAS_NO_ROOF}
    assert lines({"reason": SIMULATED_HAS_NO_ROOF}) == ()
    unlimited = simulated_roofs(described(1e9))
    assert [name for name, _ in lines(unlimited)] == ["peak in theory"]


@pytest.fixture(scope="module")
def on_accelerator(tmp_path_factory: pytest.TempPathFactory) -> Summary:
    settings = "clock_GHz=1 memory.buffer_KiB=64 memory.dram=hbm2"
    return sonda.run("mlp", on="sim:maeri-256", set=settings, store=tmp_path_factory.mktemp("store")).summary


def test_layers_lie_below_the_ceilings_of_the_description(on_accelerator: Summary) -> None:
    roofs = {name: value.value or 0.0 for name, value in lines(on_accelerator.ceilings)}
    assert roofs["peak in theory"] == 2 * 256 * 1e9
    costs = [row.cost for row in on_accelerator.parts[0].layers if row.leaf and row.cost.flops.value]
    assert costs
    for cost in costs:
        flops, moved, achieved = cost.flops.value or 0.0, cost.bytes.value or 0.0, cost.achieved.value or 0.0
        # Additions of a bias are among the FLOPs and take no multiplier: one in 2 x 784 products.
        assert 0 < achieved <= 1.001 * min(roofs["peak in theory"], flops / moved * roofs["DRAM in theory"])


def test_alone_it_has_a_roofline_too(on_accelerator: Summary, tmp_path: Path) -> None:
    section = section_of(StepsView(on_accelerator, name="sim"), 0, alone=True)
    figure = charts_of(StepsView(on_accelerator, name="sim").full())["p0roof"]
    leaves = [row for row in on_accelerator.parts[0].layers if row.leaf and row.cost.achieved.value]
    assert sum(len(one.points) for one in series_of(figure) if one.symbols) == len(leaves) > 0
    assert {name_of(line) for line in series_of(figure) if line.line} == {
        "peak in theory 512 GFLOP/s", "DRAM in theory 256 GB/s",
    }  # fmt: skip
    assert "description allows" in section.html


def test_a_memory_without_limit_leaves_the_peak_alone() -> None:
    roofs = lines(simulated_roofs(described(1e9)))
    (line,) = ceiling_lines(roofs, 2.0, 8.0)
    assert across(line) == [1.0, 16.0] and upright(line) == [2 * 128e9] * 2


def test_a_machine_and_an_accelerator_stand_in_one_picture(on_accelerator: Summary) -> None:
    blocks = targets_panels([summarise(trained()), on_accelerator], ["cpu", "sim:maeri-256"])
    (figure,) = charts_of(blocks).values()
    roofs = {name_of(line): line.line for line in series_of(figure) if line.line}
    # 2 x 256 multipliers at 1 GHz; hbm2 brings 256 bytes a cycle. Not measured, so dashed.
    own = {name: dash for name, dash in roofs.items() if name.startswith("sim:")}
    peak, memory = "sim:maeri-256: peak in theory 512 GFLOP/s", "sim:maeri-256: DRAM in theory 256 GB/s"
    assert own == {peak: "dash", memory: "dash"}
    assert [dash for name, dash in roofs.items() if name.startswith("cpu:")] == ["solid"] * 3
    assert [one.name for one in series_of(figure) if one.symbols] == ["cpu", "sim:maeri-256"]


def test_a_target_that_has_no_place_in_it_is_named_with_the_reason(tmp_path: Path) -> None:
    timeless = sonda.run("mlp", on="sim:maeri-256", store=tmp_path).summary
    summaries = [summarise(trained()), summarise(trained()), timeless]
    (panel,) = targets_panels(summaries, ["cpu/1", "cpu/2", "sim:maeri-256"])
    assert isinstance(panel, Panel)
    assert "sim:maeri-256 is not in it: the description of maeri-256 gives no clock." in panel.caption
