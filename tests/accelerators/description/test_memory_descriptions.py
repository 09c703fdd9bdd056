"""Descriptions of a finite memory: what is read, presets, and mistakes."""

from __future__ import annotations

import textwrap
from dataclasses import replace

import pytest

from sonda.accelerators.description import accelerator as description
from sonda.accelerators.description.accelerator import Accelerator, parse_accelerator
from sonda.accelerators.description.fields import DescriptionMistakes
from sonda.accelerators.description.memory import FIELDS, memory_presets, memory_table
from sonda.accelerators.memory.hierarchy import Memory

PLAIN = """
name = "mine"
clock_GHz = 2.0
[engines.dense]
kind = "flexible_dense"
multipliers = 256
read_ports = 128
write_ports = 128
accumulators = true
[route]
linear = "dense"
[memory]
"""
GIVEN = {"buffer_KiB": "64", "bytes_per_cycle": "16", "latency_cycles": "50", "row_bytes": "2048",
         "row_miss_cycles": "30"}  # fmt: skip


def described(fields: dict[str, str], clock: bool = True) -> Accelerator:
    text = PLAIN if clock else PLAIN.replace("clock_GHz = 2.0", "")
    return parse_accelerator(text + "\n".join(f"{key} = {value}" for key, value in fields.items()), "mine.toml")


def test_a_memory_is_read() -> None:
    assert described(GIVEN, clock=False).memory == Memory(65536, 16, 50, 2048, 30)
    more = GIVEN | {"buffer_KiB": "0.5e1", "double_buffering": "false", "element_bytes": "2", "burst_bytes": "32",
                    "banks": "8", "dram": '"hbm3"'}  # fmt: skip
    assert described(more).memory == Memory(5120, 16, 50, 2048, 30, 2, False, "hbm3", 32, 8)
    assert parse_accelerator(PLAIN.removesuffix("[memory]\n"), "mine.toml").memory is None


def test_the_example_of_the_descriptions_docstring_is_complete_and_true() -> None:
    example = textwrap.dedent((description.__doc__ or "").split("TOML file:\n")[1].split("STONNE's own")[0])
    found = parse_accelerator(example, "example.toml").memory
    assert found == Memory(512 * 1024, 16, 50, 8192, 27)
    for name in FIELDS:
        assert f"{name} = " in example


def test_a_preset_is_in_cycles_of_the_clock() -> None:
    # 256 GB/s at 2 GHz; 44 and 28 ns.
    hbm = Memory(65536, 128.0, 88, 2048, 56, dram="hbm2", burst_bytes=64, banks=128)
    assert described({"buffer_KiB": "64", "dram": '"hbm2"'}).memory == hbm
    stream = described({"buffer_KiB": "64", "dram": '"hbm2-stream"', "banks": "4"}).memory
    assert stream == replace(hbm, dram="hbm2-stream", banks=4)


def test_every_preset_has_an_energy_and_could_be_built() -> None:
    for name, preset in memory_presets().items():
        found = described({"buffer_KiB": "64", "dram": f'"{name}"'}).memory
        assert found is not None
        assert found.bytes_per_cycle == pytest.approx(preset.GB_per_s / 2)
        assert found.row_bytes % found.burst_bytes == 0
        assert preset.source
        assert preset.status in ("checked", "derived", "recalled")


@pytest.mark.parametrize(
    ("changes", "clock", "mistake"),
    [
        ({"buffer_KB": "1"}, True, "memory.buffer_KB: unknown; did you mean 'buffer_KiB'?"),
        ({"buffer_KiB": "0"}, True, "memory.buffer_KiB: 0 is not a number from 1 to"),
        ({"buffer_KiB": "nan"}, True, "memory.buffer_KiB: nan is not a number"),
        ({"buffer_KiB": "true"}, True, "memory.buffer_KiB: True is not a number"),
        ({"bytes_per_cycle": "0"}, True, "memory.bytes_per_cycle: 0 is not a number from 1e-06"),
        ({"latency_cycles": "-1"}, True, "memory.latency_cycles: -1 is not a whole number from 0"),
        ({"latency_cycles": "1.5"}, True, "memory.latency_cycles: 1.5 is not a whole number"),
        ({"row_bytes": "1000"}, True, "memory.row_bytes: 1000 is not a multiple of burst_bytes = 64"),
        ({"banks": "0"}, True, "memory.banks: 0 is not a whole number from 1 to"),
        ({"element_bytes": "64"}, True, "memory.element_bytes: 64 is not a whole number from 1 to 16"),
        ({"double_buffering": "1"}, True, "memory.double_buffering: 1 is not true or false"),
        ({"dram": '"hmb2"'}, True, "memory.dram: 'hmb2' is unknown; did you mean 'hbm2'?"),
        ({"dram": '"hbm2"', "row_miss_cycles": ""}, False, "memory.dram: 'hbm2' is in GB/s and ns; give clock_GHz, or"),
        ({"row_bytes": ""}, True, "memory.row_bytes: missing; give a whole number"),
        ({"dram": '"hbm3"', "row_bytes": ""}, True, "memory.row_bytes: missing; give a whole number"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_field(changes: dict[str, str], clock: bool, mistake: str) -> None:
    fields = {key: value for key, value in (GIVEN | changes).items() if value}
    with pytest.raises(DescriptionMistakes) as raised:
        described(fields, clock)
    assert len(raised.value.mistakes) == 1
    assert mistake in str(raised.value)


def test_a_memory_that_is_no_table_is_a_mistake() -> None:
    with pytest.raises(DescriptionMistakes, match="memory: 5 is not a table"):
        parse_accelerator("memory = 5\n" + PLAIN.removesuffix("[memory]\n"), "mine.toml")


@pytest.mark.parametrize("clock", [True, False])
@pytest.mark.parametrize(
    "fields", [GIVEN, GIVEN | {"dram": '"ddr4-2400"', "banks": "3"}, GIVEN | {"buffer_KiB": "1.5"}]
)
def test_a_memory_reads_back_from_its_table(fields: dict[str, str], clock: bool) -> None:
    accelerator = described(fields, clock)
    assert accelerator.memory is not None
    table = {key: str(value).lower() for key, value in memory_table(accelerator.memory, accelerator.clock_hz).items()}
    table = {key: f'"{value}"' if key == "dram" else value for key, value in table.items()}
    assert described(table, clock).memory == accelerator.memory


def test_what_a_preset_gives_follows_another_clock() -> None:
    accelerator = described({"buffer_KiB": "64", "dram": '"hbm2"', "banks": "4"})
    assert accelerator.memory is not None
    table = memory_table(accelerator.memory, accelerator.clock_hz)
    assert {"bytes_per_cycle", "latency_cycles"}.isdisjoint(table)
    assert (table["banks"], table["dram"], table["buffer_KiB"]) == (4, "hbm2", 64)
