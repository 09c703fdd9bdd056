"""Energy: STONNE's own figures reproduced; other tables by hand; every entry with its origin."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from places import DATA
from sonda.accelerators.description.fields import DescriptionMistakes
from sonda.accelerators.energy.estimate import dram_energy, energy_of
from sonda.accelerators.energy.table import (
    dram_presets,
    energy_tables,
    load_energy_table,
    parse_energy_table,
)
from sonda.record.errors import SondaError

GOLDEN = json.loads((DATA / "stonne" / "golden.json").read_text(encoding="utf-8"))
RUNS = [run for run in GOLDEN if "energy" in run]
PRINTED = Decimal("5e-7")
"""The reference's figures are rounded to six decimals."""
SMALL = {
    "MSNetwork": {"MULTIPLIER": {"entries": 4, "MULTIPLICATION": 1000, "CONFIGURATION": 4}},
    "GlobalBuffer": {"GLOBALBUFFER": {"entries": 1, "READ": 100, "WRITE": 10}},
}
TABLE = """
name = "mine"
unit = "pJ"
area_unit = "um2"
[sources]
me = "measured by me"
[[entry]]
component = "ADDER"
operation = "ADD_2_1"
value = 2
unit = "pJ"
node = "5 nm"
source = "me"
status = "checked"
uncertainty = 3
"""


def near(ours: float, theirs: float) -> bool:
    return abs(Decimal(repr(ours)) - Decimal(repr(theirs))) <= PRINTED


def test_all_runs_with_energy_are_there() -> None:
    assert sum(run["status"] == "ok" for run in RUNS) == 254


@pytest.mark.parametrize("run", RUNS, ids=lambda run: str(run["id"]))
def test_stonne_table_gives_stonnes_figures(run: dict) -> None:
    energy = energy_of(run["counters"], run["cycles"], "stonne")
    expected = run["energy"]
    assert set(energy.sections) == set(expected["by_section"])
    for section, part in energy.sections.items():
        for kind in ("static", "dynamic", "area"):
            figure = getattr(part, kind)
            # A section in which nothing was counted has no dynamic energy to speak of; STONNE prints 0.
            assert near(0.0 if figure is None else figure.value, expected["by_section"][section][kind])
    for kind in ("static", "dynamic", "area", "total"):
        assert near(getattr(energy, kind).value, expected[kind])
    assert energy.missing == ()


def test_stonne_table_is_said_to_be_implausible() -> None:
    table = load_energy_table("stonne")
    assert table.unit == "not stated" and "no unit" in table.implausible
    assert energy_of(SMALL, 10, table).implausible == table.implausible
    multiply, add = table.find("MULTIPLIER", "MULTIPLICATION"), table.find("ADDER", "ADD_2_1")
    assert multiply is not None and add is not None and add.value / multiply.value == pytest.approx(15, rel=0.01)


def test_45_nm_by_hand() -> None:
    energy = energy_of(SMALL, 50_000, "45nm", clock_hz=1e9, buffer_bytes=65536)
    # Horowitz: 3.7 pJ a multiply; CACTI, 64 KiB: 8.65327 a read, 5.62497 a write, 0.302024 mW for 50 us.
    buffer = 100 * 8.65327 + 10 * 5.62497
    assert energy.sections["MSNetwork"].dynamic.value == pytest.approx(3700)
    assert energy.sections["GlobalBuffer"].dynamic.value == pytest.approx(buffer)
    assert energy.static.value == pytest.approx(0.302024e-3 * 50e-6 * 1e12)
    assert energy.total.value == pytest.approx(3700 + buffer + energy.static.value)
    # Twice and half, and ten times for leakage.
    assert energy.dynamic.low == pytest.approx((3700 + buffer) / 2)
    assert energy.total.high == pytest.approx((3700 + buffer) * 2 + energy.static.value * 10)
    assert energy.sections["GlobalBuffer"].area.value == pytest.approx(0.453407 * 0.52651 * 1e6, rel=1e-5)


def test_what_a_table_lacks_is_missing_and_not_zero() -> None:
    energy = energy_of({"DSNetwork": {"SWITCH": {"entries": 2, "ROUTE_UNICAST": 5, "ROUTE_BROADCAST": 0}}}, 10, "45nm")
    assert (energy.dynamic, energy.static, energy.area, energy.total) == (None, None, None, None)
    assert "SWITCH ROUTE_UNICAST" in energy.missing
    assert "SWITCH ROUTE_BROADCAST" not in energy.missing  # it never happened


def test_static_power_needs_a_clock() -> None:
    energy = energy_of(SMALL, 10, "45nm")
    assert energy.static is None
    assert "GLOBALBUFFER STATIC (needs a clock)" in energy.missing


def test_7_nm_is_recalled_in_every_entry_and_says_so() -> None:
    table = load_energy_table("7nm")
    assert {entry.status for entry in table.entries} == {"recalled"}
    energy = energy_of(SMALL, 10, table)
    assert energy.recalled == ("MULTIPLIER MULTIPLICATION", "GLOBALBUFFER READ", "GLOBALBUFFER WRITE")
    assert energy.dynamic.value == pytest.approx(1000 * 1.31 + 110 * 7)


@pytest.mark.parametrize("name", [*energy_tables(), "dram"])
def test_every_entry_has_node_source_and_uncertainty(name: str) -> None:
    entries = dram_presets().values() if name == "dram" else load_energy_table(name).entries
    for entry in entries:
        assert entry.node and len(entry.source) > 10
        assert entry.uncertainty >= 2
        # Wider where nobody verified it.
        assert entry.uncertainty >= 4 or entry.status != "recalled"
        assert (entry.status == "recalled") == ("recalled" in entry.source)


def test_dram_by_hand() -> None:
    # DRAMsim3, HBM2, 64 bytes at random: 2.40 nJ an access.
    assert dram_energy("hbm2-random", 512).value == pytest.approx(2400, rel=0.01)
    assert dram_energy("ddr4-2400-random", 512).value == pytest.approx(10360, rel=0.01)
    assert dram_energy("lpddr4-2400-stream", 1024).value == pytest.approx(9950, rel=0.01)
    with pytest.raises(SondaError, match="did you mean 'hbm2-random'"):
        dram_energy("hbm2-randon", 8)
    with pytest.raises(SondaError):
        dram_energy("hbm2-random", -1)


def test_dram_by_the_rows_that_are_open() -> None:
    # 2.3 pJ/bit where all accesses hit, 4.7 where none does.
    for hits, expected in ((1.0, 2.3), (0.0, 4.7), (0.75, 0.75 * 2.3 + 0.25 * 4.7)):
        figure = dram_energy("hbm2", 1000, hits)
        assert figure.value == pytest.approx(1000 * expected)
        assert (figure.low, figure.high) == pytest.approx((500 * expected, 2000 * expected))
    # A memory of which one energy is known costs that, whatever its rows.
    assert dram_energy("hbm3", 1000, 0.0) == dram_energy("hbm3", 1000, 1.0) == dram_energy("hbm3", 1000)
    with pytest.raises(SondaError, match="memory 'hbm9' is unknown"):
        dram_energy("hbm9", 1000, 0.5)


def test_bigger_buffers_cost_more_and_huge_ones_are_refused() -> None:
    reads = [energy_of(SMALL, 1, "45nm", buffer_bytes=size).dynamic.value for size in (512, 513, 1 << 20, 1 << 22)]
    assert reads == sorted(reads) and len(set(reads)) == 4
    with pytest.raises(SondaError, match="4194304"):
        energy_of(SMALL, 1, "45nm", buffer_bytes=1 << 30)


@settings(deadline=None)
@given(
    counts=st.dictionaries(st.sampled_from(["MULTIPLICATION", "FORWARD_PSUM"]), st.integers(0, 1 << 50)),
    cycles=st.integers(0, 1 << 50),
    table=st.sampled_from(energy_tables()),
)
def test_bounds_hold_the_value(counts: dict[str, int], cycles: int, table: str) -> None:
    energy = energy_of({"MSNetwork": {"MULTIPLIER": {"entries": 8, **counts}}}, cycles, table, clock_hz=1e9)
    for figure in (energy.static, energy.dynamic, energy.area, energy.total):
        assert figure is None or figure.low <= figure.value <= figure.high


def test_own_table_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(TABLE, encoding="utf-8")
    energy = energy_of({"ReduceNetwork": {"ADDER": {"entries": 1, "ADD_2_1": 7}}}, 1, load_energy_table(str(path)))
    assert (energy.dynamic.value, energy.dynamic.high) == (14, 42)
    entry = load_energy_table(str(path)).entries[0]
    assert (entry.node, entry.source) == ("5 nm", "measured by me")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (("value = 2", "value = -2"), "entry 1: value: -2 is not a number from 0"),
        (("value = 2", "value = nan"), "entry 1: value: nan is not"),
        (("uncertainty = 3", "uncertainty = 0.5"), "entry 1: uncertainty"),
        (('node = "5 nm"\n', ""), "entry 1: node: missing"),
        (("value = 2", "value = 2\nbytes = 0"), "entry 1: bytes: 0 is not a whole number from 1"),
        (('source = "me"', 'source = "you"'), "entry 1: source: 'you' is unknown"),
        (('status = "checked"', 'status = "cheked"'), "did you mean 'checked'?"),
        (("operation =", "operations ="), "did you mean 'operation'?"),
        (('unit = "pJ"\narea', 'units = "pJ"\narea'), "did you mean 'unit'?"),
        (("[[entry]]", "[entry]"), "entry: missing; give at least one [[entry]]"),
    ],
)
def test_mistakes_in_a_table_name_the_field(change: tuple[str, str], line: str) -> None:
    with pytest.raises(DescriptionMistakes) as caught:
        parse_energy_table(TABLE.replace(*change), "mine.toml")
    assert line in str(caught.value)
    assert all(one.startswith("mine.toml: ") for one in str(caught.value).splitlines())


def test_units_of_entries_are_those_of_the_table() -> None:
    with pytest.raises(DescriptionMistakes, match="entry 1: unit: 'nJ' is not 'pJ'"):
        parse_energy_table(TABLE.replace('value = 2\nunit = "pJ"', 'value = 2\nunit = "nJ"'), "mine.toml")
    static = TABLE.replace('"ADD_2_1"', '"STATIC"').replace('value = 2\nunit = "pJ"', 'value = 2\nunit = "W"')
    with pytest.raises(DescriptionMistakes, match="entry 1: unit: 'W' is not 'pJ' or 'mW'"):
        parse_energy_table(static, "mine.toml")


def test_static_power_is_in_the_unit_of_the_table() -> None:
    text = TABLE.replace('"ADD_2_1"', '"STATIC"').replace('value = 2\nunit = "pJ"', 'value = 2\nunit = "mW"')
    adders = {"ReduceNetwork": {"ADDER": {"entries": 5}}}
    # Five adders of 2 mW for 3 us at 1 GHz: 30 nJ.
    for unit, expected in (("pJ", 30_000), ("nJ", 30)):
        table = parse_energy_table(text.replace('unit = "pJ"', f'unit = "{unit}"', 1), "mine.toml")
        assert energy_of(adders, 3000, table, clock_hz=1e9).static.value == pytest.approx(expected)
    unknown = parse_energy_table(text.replace('unit = "pJ"', 'unit = "grams"', 1), "mine.toml")
    assert energy_of(adders, 3000, unknown, clock_hz=1e9).static is None


def test_an_entry_given_twice_is_refused() -> None:
    twice = TABLE + TABLE[TABLE.index("[[entry]]") :]
    with pytest.raises(DescriptionMistakes, match="ADDER ADD_2_1 is given twice"):
        parse_energy_table(twice, "mine.toml")


def test_an_unknown_table_names_the_nearest() -> None:
    with pytest.raises(SondaError, match="did you mean 'stonne'"):
        load_energy_table("stone")
