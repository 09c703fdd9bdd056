"""Energy and area of a simulated program, by hand; with their bounds on every screen."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simulated_examples import CLOCKED, LAYER, nested, nested_run
from sonda.accelerators.description.accelerator import Accelerator, load_accelerator
from sonda.accelerators.energy.spending import Spending
from sonda.accelerators.energy.table import load_energy_table
from sonda.accelerators.mapping.placement import Placed, Placement
from sonda.accelerators.memory.hierarchy import Memory, MemoryTraffic
from sonda.accelerators.operations.program import Bags, MatrixProduct, Operation
from sonda.analysis.run_summary import summarise
from sonda.analysis.summary import Value
from sonda.record.errors import SondaError
from sonda.report.blocks import Detail
from sonda.report.page import page_text
from sonda.report.views.steps.view import StepsView
from sonda.report.words import describe
from sonda.report.words.simulated import bounded
from sonda.targets.simulated.launcher import simulate

TWO_ENTRIES = """
name = "two"
unit = "pJ"
area_unit = "um2"
[sources]
hand = "chosen for this test"
[[entry]]
component = "MULTIPLIER"
operation = "MULTIPLICATION"
value = 1
unit = "pJ"
node = "3 nm"
source = "hand"
status = "checked"
uncertainty = 2
[[entry]]
component = "GLOBALBUFFER"
operation = "WRITE"
value = 10
unit = "pJ"
node = "3 nm"
source = "hand"
status = "recalled"
uncertainty = 4
"""
MEMORY = Memory(buffer_bytes=65536, bytes_per_cycle=16, latency_cycles=40, row_bytes=2048, row_miss_cycles=28)


@pytest.fixture
def two(tmp_path: Path) -> Accelerator:
    """An accelerator whose energy table knows products and writes only."""
    path = tmp_path / "two.toml"
    path.write_text(TWO_ENTRIES, encoding="utf-8")
    return replace(load_accelerator("maeri-256"), energy_table=str(path))


def product(accelerator: Accelerator) -> Placed:
    """20 samples, 64 outputs of 128 inputs: 163840 products, 1280 results."""
    placed = Placement(accelerator).place_operation(Operation("linear", "addmm", -1, MatrixProduct(20, 64, 128)))
    assert isinstance(placed, Placed)
    return placed


def test_a_product_by_hand(two: Accelerator) -> None:
    spent = Spending(two).charge(product(two))
    assert spent is not None
    products, writes = 20 * 64 * 128 * 1e-12, 20 * 64 * 10e-12
    assert spent.value == pytest.approx(products + writes)
    assert spent.low == pytest.approx(products / 2 + writes / 4)
    assert spent.high == pytest.approx(products * 2 + writes * 4)


def test_a_product_at_45_nm_is_the_sum_of_counts_by_their_energies() -> None:
    placed = product(CLOCKED)
    counters = placed.result.counters
    buffer, multipliers = counters["GlobalBuffer"]["GLOBALBUFFER"], counters["MSNetwork"]["MULTIPLIER"]
    adders, registers = counters["ReduceNetwork"]["ADDER"], counters["ReduceNetwork"]["ACCUMULATOR"]
    queues = [counters[section]["FIFO"] for section in ("MSNetwork", "ReduceNetwork", "CollectionBus")]
    # Horowitz: multiply 3.7, add 0.9; a register of 32 bits 0.288; CACTI for 128 KiB: 10.3838, 7.317, 0.597572 mW.
    expected = (
        3.7 * multipliers["MULTIPLICATION"]
        + 0.288 * multipliers["FORWARD_PSUM"]
        + 0.9 * adders["ADD_2_1"]
        + 1.8 * adders["ADD_3_1"]
        + 0.9 * registers["ADD"]
        + 0.288 * (registers["READ"] + registers["WRITE"])
        + 0.288 * sum(one["PUSH"] + one["POP"] + one["FRONT"] for one in queues)
        + 10.3838 * buffer["READ"]
        + 7.317 * buffer["WRITE"]
        + 0.597572 * LAYER  # mW x ns
    )
    spent = Spending(CLOCKED).charge(placed)
    assert spent is not None
    assert spent.value == pytest.approx(expected * 1e-12, rel=1e-9)


def test_energies_of_spans_add_up_to_the_record() -> None:
    simulation = simulate(nested(), Placement(CLOCKED), curious=False)
    spans = simulation.spans
    for column, bound in (("energy", "value"), ("energy_low", "low"), ("energy_high", "high")):
        values = spans.metric(column, "simulated")
        operations = spans.where(kind="op")
        (step,) = np.flatnonzero(spans.where(kind="step"))
        assert np.nansum(values[operations]) == pytest.approx(values[step])
        assert values[step] == pytest.approx(simulation.energy["total"][bound])
        # relu runs on the host: missing, not 0.
        assert np.isnan(values[operations]).sum() == 1


def test_what_the_table_lacks_and_what_was_recalled_is_said(two: Accelerator, tmp_path: Path) -> None:
    run = nested_run(two, tmp_path)
    energy = run.info.target.energy
    assert "ADDER ADD_2_1" in energy.missing
    assert not any(name.endswith("AREA") for name in energy.missing)
    assert energy.recalled == ["GLOBALBUFFER WRITE"]
    assert (energy.table, energy.nodes) == ("two", ["3 nm"])
    text = " ".join(map(describe, summarise(run).notes))
    assert "energy table two (3 nm)" in text
    assert "recalled, not verified: GLOBALBUFFER WRITE" in text
    assert "no area of maeri, global buffer: the energy table two has no area for it" in text


def test_area_by_hand() -> None:
    spending = Spending(CLOCKED)
    spending.charge(product(CLOCKED))
    areas = spending.areas()
    # 256 multipliers, 255 adders, 255 accumulators, recalled, hence four times either way; 128 KiB, twice.
    logic, buffer = 256 * 7700 + 255 * 4184 + 255 * 4184, 461614.0
    expected = {
        "maeri": (logic, logic / 4, logic * 4),
        "buffer": (buffer, buffer / 2, buffer * 2),
        "together": (logic + buffer, logic / 4 + buffer / 2, logic * 4 + buffer * 2),
    }
    found = {"maeri": areas["engines"]["maeri"], "buffer": areas["global_buffer"], "together": areas["together"]}
    for name, figures in expected.items():
        assert [found[name][key] for key in ("value", "low", "high")] == pytest.approx([1e-6 * one for one in figures])
    assert found["maeri"]["recalled"] == ["MULTIPLIER", "ADDER", "ACCUMULATOR"]
    assert "SWITCH" in found["maeri"]["missing"]
    assert found["buffer"]["missing"] == []


def test_engines_share_one_global_buffer() -> None:
    hybrid = replace(load_accelerator("dlrm-hybrid"), energy_table="45nm")
    alone, both = Spending(hybrid), Spending(hybrid)
    bags = Bags(np.array([2]), np.array([0, 1]), rows=10, columns=4)
    looked_up = Placement(hybrid).place_operation(Operation("embedding_bag", "_embedding_bag", -1, bags))
    assert isinstance(looked_up, Placed)
    alone.charge(product(hybrid))
    both.charge(product(hybrid))
    both.charge(looked_up)
    one, two = alone.areas(), both.areas()
    engine = two["engines"]["embeddings"]["value"]
    assert engine == pytest.approx((128 * 7700 + 127 * 4184 + 127 * 4184) * 1e-6)
    assert one["global_buffer"] == two["global_buffer"]
    assert two["together"]["value"] == pytest.approx(one["together"]["value"] + engine)


def test_the_finite_buffer_counts_with_its_own_size() -> None:
    finite = replace(CLOCKED, memory=MEMORY)
    spending = Spending(finite)
    spending.charge(product(finite))
    entry = load_energy_table("45nm").find("GLOBALBUFFER", "AREA", MEMORY.buffer_bytes)
    assert entry is not None
    assert spending.areas()["global_buffer"]["value"] == pytest.approx(entry.value * 1e-6)


def test_a_buffer_is_assumed_only_where_no_memory_is_described() -> None:
    assert Spending(CLOCKED).record()["buffer_assumed"] is True
    described = Spending(replace(CLOCKED, memory=MEMORY)).record()
    assert (described["buffer_assumed"], described["buffer_bytes"]) == (False, MEMORY.buffer_bytes)


def test_a_run_in_which_no_engine_worked_says_so() -> None:
    record = Spending(load_accelerator("maeri-256")).record()
    assert (record["total"], record["reason"]) == (None, "nothing ran on an engine")


NO_COUNTERS = "engines of kind flexible_dense give no counters; their author must fill in Result.counters"


def without_counters(accelerator: Accelerator) -> Placed:
    """A product on an engine whose author counts cycles only."""
    placed = product(accelerator)
    return replace(placed, result=replace(placed.result, counters={}))


def test_an_engine_without_counters_has_no_energy_and_its_author_is_told_why() -> None:
    spending = Spending(CLOCKED)
    assert spending.charge(without_counters(CLOCKED)) is None
    record, areas = spending.record(), spending.areas()
    assert (record["total"], record["reason"]) == (None, NO_COUNTERS)
    unknown = {"value": None, "unit": "mm2", "reason": NO_COUNTERS}
    assert areas["engines"]["maeri"] == areas["global_buffer"] == areas["together"] == unknown


def test_a_total_says_which_engine_is_not_in_it() -> None:
    hybrid = replace(load_accelerator("dlrm-hybrid"), energy_table="45nm")
    alone, both = Spending(hybrid), Spending(hybrid)
    bags = Bags(np.array([2]), np.array([0, 1]), rows=10, columns=4)
    looked_up = Placement(hybrid).place_operation(Operation("embedding_bag", "_embedding_bag", -1, bags))
    assert isinstance(looked_up, Placed)
    alone.charge(looked_up)
    both.charge(looked_up)
    both.charge(without_counters(hybrid))
    record = both.record()
    assert record["total"] == alone.record()["total"] and record["reason"] == ""
    assert "perceptrons (kind flexible_dense gives no counters)" in record["missing"]
    assert both.areas()["engines"]["perceptrons"]["reason"] == NO_COUNTERS


def test_counts_that_the_table_does_not_know_are_not_nothing(two: Accelerator) -> None:
    placed = product(two)
    spending = Spending(two)
    spending.charge(replace(placed, result=replace(placed.result, counters={"Own": {"PIPE": {"entries": 1, "GO": 3}}})))
    assert spending.record()["reason"] == "the energy table two has no entry for anything that the engines count"


def test_an_engine_that_did_nothing_has_no_area() -> None:
    hybrid = load_accelerator("dlrm-hybrid")
    spending = Spending(hybrid)
    nothing = {"value": None, "unit": "mm2", "reason": "nothing ran on it"}
    assert spending.areas()["together"] == spending.areas()["global_buffer"] == nothing
    spending.charge(product(hybrid))
    areas = spending.areas()
    assert areas["engines"]["embeddings"] == nothing
    assert areas["engines"]["perceptrons"]["value"] > 0


def test_memory_is_charged_by_bursts_and_rows() -> None:
    # Seven bursts of 64 bytes, though only 40 bytes are wanted of each; six find their row open.
    traffic = MemoryTraffic(read_bytes=280, write_bytes=0, row_hits=6, row_misses=1, stall_cycles=0)
    accelerator = replace(CLOCKED, memory=replace(MEMORY, dram="hbm2"))
    spending = Spending(accelerator)
    spending.charge(replace(product(accelerator), traffic=traffic))
    # DRAMsim3: 2.3 pJ/bit in a stream, 4.7 where every access opens a row.
    expected = (6 * 2.3 + 1 * 4.7) * 64 * 8 * 1e-12
    assert spending.record()["parts"]["DRAM"]["value"] == pytest.approx(expected)
    assert spending.record()["dram"] == "hbm2"


def test_stalls_cost_static_energy() -> None:
    accelerator = replace(CLOCKED, memory=MEMORY)
    placed = product(accelerator)
    idle, waiting = (
        Spending(accelerator).charge(replace(placed, traffic=MemoryTraffic(0, 0, 0, 0, stalls))) for stalls in (0, 1000)
    )
    assert idle is not None and waiting is not None
    # A buffer of 64 KiB: 0.302024 mW for 1000 ns.
    assert waiting.value - idle.value == pytest.approx(0.302024e-3 * 1e-6)


def test_a_memory_of_unknown_energy_is_missing_and_said() -> None:
    accelerator = replace(CLOCKED, memory=MEMORY)
    spending = Spending(accelerator)
    spending.charge(replace(product(accelerator), traffic=MemoryTraffic(64, 0, 0, 1, 0)))
    record = spending.record()
    assert "DRAM" not in record["parts"]
    assert "DRAM (the description names no dram)" in record["missing"]


def test_stonnes_table_has_numbers_and_no_joules(tmp_path: Path) -> None:
    run = nested_run(replace(CLOCKED, energy_table="stonne"), tmp_path)
    summary = summarise(run)
    assert np.isnan(run.spans.metric("energy", "simulated")).all()
    whole = summary.parts[0].simulated
    assert whole is not None
    assert whole.energy.value is None
    assert whole.energy.reason == "the energy table stonne has no unit of energy (not stated)"
    assert run.info.target.energy.unit == "not stated"
    assert run.info.target.energy.total.value > 0
    text = StepsView(summary).text(120, color=False, detail=Detail.ALL)
    assert "no energy in joules: the energy table stonne" in text
    assert "! energy table stonne is implausible: STONNE's table states no unit" in text
    document = StepsView(summary).document()["parts"][0]["metrics"]["energy:simulated"]
    assert document == {"value": None, "unit": "J", "source": "simulated", "reason": whole.energy.reason}


def test_a_buffer_that_no_table_knows_leaves_cycles_without_energy(tmp_path: Path) -> None:
    huge = replace(CLOCKED, memory=replace(MEMORY, buffer_bytes=1 << 30))
    run = nested_run(huge, tmp_path)
    whole = summarise(run).parts[0].simulated
    assert whole is not None
    assert whole.cycles.value
    assert whole.energy.reason == "energy table 45nm knows buffers of up to 4194304 bytes, not of 1073741824"


def test_a_table_that_is_not_there_is_told_before_anything_is_simulated() -> None:
    with pytest.raises(SondaError, match=r"missing\.toml"):
        simulate(nested(), Placement(replace(CLOCKED, energy_table="missing.toml")))


def test_every_screen_has_the_energy_with_its_bounds(two: Accelerator, tmp_path: Path) -> None:
    summary = summarise(nested_run(two, tmp_path))
    # 2 x 163840 + 40960 products, (2 x 1280 + 640) writes at 10 pJ: 400.64 nJ, 192.32 to 865.28.
    text = StepsView(summary).text(120, color=False, detail=Detail.ALL)
    assert "401 nJ (192–865)" in text
    assert "<dt>energy of a step</dt><dd>401 nJ (192–865)</dd>" in page_text([summary])
    document = json.loads(json.dumps(StepsView(summary).document()))
    energy = document["parts"][0]["metrics"]["energy:simulated"]
    assert energy["unit"] == "J"
    assert [energy[key] for key in ("value", "low", "high")] == pytest.approx([400.64e-9, 192.32e-9, 865.28e-9])
    layer = next(row for row in document["parts"][0]["layers"] if row["path"] == "block.layer")
    assert layer["metrics"]["energy:simulated"]["value"] == pytest.approx(2 * (163840 + 12800) * 1e-12)
    assert document["simulation"]["energy"]["table"] == "two"
    assert document["simulation"]["area"]["engines"]["maeri"]["value"] is None


@pytest.mark.parametrize(
    ("value", "text"),
    [(3.2e-6, "3.2 µJ (1.6–6.4)"), (0.9999e-3, "1 mJ (0.5–2)"), (4e-13, "0.4 pJ (0.2–0.8)"), (2.0, "2 J (1–4)")],
)
def test_bounded_amounts(value: float, text: str) -> None:
    assert bounded(Value(value, "J", "simulated", value / 2, value * 2)) == text
