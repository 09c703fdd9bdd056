"""Settings change a description field by field, and every mistake is one line that names the field."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonda.accelerators.description.accelerator import (
    Accelerator,
    built_in_accelerators,
    load_accelerator,
    parse_accelerator,
)
from sonda.accelerators.description.settings import (
    apply_settings,
    change_engine,
    change_memory,
    describe_memory,
    field_paths,
    parse_settings,
    with_settings,
)
from sonda.record.errors import SondaError

FINITE = """
name = "finite"
clock_GHz = 0.7
energy_table = "7nm"
[engines.dense]
kind = "flexible_dense"
multipliers = 64
read_ports = 16
write_ports = 16
accumulators = true
tile = { T_M = 1, T_N = 4, T_K = 8 }
[engines.zeros]
kind = "bitmap_sparse"
multipliers = 32
read_ports = 32
write_ports = 32
dataflow = { linear = "MK_STR_KN_STA" }
[route]
linear = "dense"
embedding_bag = "zeros"
[memory]
buffer_KiB = 512
dram = "hbm2"
"""


@pytest.fixture(scope="module")
def finite() -> Accelerator:
    return parse_accelerator(FINITE, "finite.toml")


def bare(accelerator: Accelerator) -> Accelerator:
    """Without notes, to which every change adds."""
    return dataclasses.replace(accelerator, notes=())


@pytest.mark.parametrize("name", built_in_accelerators())
def test_an_accelerator_reads_back_as_it_was(name: str) -> None:
    accelerator = load_accelerator(name)
    assert bare(apply_settings(accelerator, {})) == bare(accelerator)


def test_a_memory_and_a_clock_read_back_as_they_were(finite: Accelerator) -> None:
    assert finite.clock_hz == 0.7e9
    assert bare(apply_settings(finite, {})) == bare(finite)


def test_an_stonne_configuration_can_be_changed(tmp_path: Path) -> None:
    path = tmp_path / "one.cfg"
    path.write_text('[MSNetwork]\nms_size=16\n[ReduceNetwork]\ntype="ASNETWORK"\naccumulation_buffer_enabled=1\n'
                    '[SDMemory]\ndn_bw=8\nrn_bw=8\ncontroller_type="MAERI_DENSE_WORKLOAD"\n')  # fmt: skip
    accelerator = with_settings(load_accelerator(str(path)), "ms_size=32 dn_bw=16")
    hardware = accelerator.engines["one"].hardware
    assert (hardware.multipliers, hardware.read_ports, hardware.write_ports) == (32, 16, 8)


def test_nothing_given_changes_nothing(finite: Accelerator) -> None:
    assert with_settings(finite, "") is finite
    assert with_settings(finite, "  ") is finite


def test_fields_of_engines_memory_and_routes_change(finite: Accelerator) -> None:
    found = with_settings(
        finite,
        "dense.multipliers=128 dense.tile.T_N=8 memory.buffer_KiB=64 memory.double_buffering=false "
        "route.gemm=dense clock_GHz=2 energy_table=45nm zeros.dataflow=MK_STA_KN_STR",
    )
    assert found.engines["dense"].hardware.multipliers == 128
    assert found.engines["dense"].tile == {"T_M": 1, "T_N": 8, "T_K": 8}
    assert found.engines["zeros"].hardware == finite.engines["zeros"].hardware
    assert set(found.engines["zeros"].dataflow.values()) == {"MK_STA_KN_STR"}
    assert found.memory is not None
    assert (found.memory.buffer_bytes, found.memory.double_buffering) == (64 * 1024, False)
    # 256 GB/s of the preset at 2 GHz.
    assert found.memory.bytes_per_cycle == pytest.approx(128)
    assert found.route == {"linear": "dense", "gemm": "dense", "embedding_bag": "zeros"}
    assert (found.clock_hz, found.energy_table) == (2e9, "45nm")
    assert "dense.multipliers = 128" in found.notes[-1]


def test_a_bare_field_changes_every_engine_that_has_it(finite: Accelerator) -> None:
    found = with_settings(finite, "read_ports=8 multipliers=64")
    assert [one.hardware.read_ports for one in found.engines.values()] == [8, 8]
    assert [one.hardware.multipliers for one in found.engines.values()] == [64, 64]
    assert field_paths(finite, "tile.T_M") == [("engines", "dense", "tile", "T_M")]
    assert field_paths(finite, "dataflow") == [("engines", "zeros", "dataflow")]
    assert field_paths(finite, "dn_bw") == field_paths(finite, "read_ports")
    assert field_paths(finite, "buffer_KiB") == field_paths(finite, "memory.buffer_KiB") == [("memory", "buffer_KiB")]


def test_none_takes_away_and_host_leaves_to_the_host(finite: Accelerator) -> None:
    found = with_settings(finite, "tile=none memory=none route.embedding_bag=host")
    assert found.engines["dense"].tile == {}
    assert found.memory is None
    assert found.route == {"linear": "dense"}


def test_a_mesh_has_as_many_multipliers_as_its_sides_ask_for() -> None:
    found = with_settings(load_accelerator("tpu-16x16"), "rows=32 columns=32 read_ports=64 tile=none")
    assert found.engines["mesh"].hardware.multipliers == 1024
    with pytest.raises(SondaError, match="'multipliers': no engine of tpu-16x16 has it; it has mesh"):
        with_settings(load_accelerator("tpu-16x16"), "multipliers=256")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("multiplers=64", "setting 'multiplers' is unknown; did you mean 'multipliers'?"),
        ("dense.readports=8", "setting 'dense.readports' is unknown; did you mean 'read_ports'?"),
        ("dens.read_ports=8", "setting 'dens.read_ports' is unknown; did you mean 'dense.read_ports'?"),
        ("memory.buffer_kib=8", "setting 'memory.buffer_kib' is unknown; did you mean 'buffer_KiB'?"),
        ("route.lineal=dense", "setting 'route.lineal' is unknown; did you mean 'linear'?"),
        ("route.linear=danse", "set: route.linear: 'danse' is unknown; did you mean 'dense'?"),
        ("multipliers=48", "dense.multipliers = 48 is not a power of two"),
        ("multipliers=8", "dense.read_ports = 16 is more than multipliers = 8"),
        ("multipliers=many", "dense.multipliers: 'many' is not a whole number"),
        ("multipliers=" + "9" * 5000, "is not a whole number"),
        ("multipliers=1e2", "is not a whole number"),
        ("clock_GHz=0", "clock_GHz: 0 is not a number from"),
        ("energy_table=45mm", "energy_table: '45mm' is unknown; did you mean '45nm'?"),
        ("dense.tile.T_K=512", "tile takes 2048 multipliers"),
        ("rows=4", "no engine of finite has it"),
        ("multipliers", "'multipliers' has no key and value"),
        ("=64", "'=64' has no key and value"),
        ("multipliers=", "'multipliers=' has no key and value"),
        ("multipliers='64", "cannot be read (no closing quotation)"),
        ("multipliers=64 multipliers=64", "'multipliers' is given twice"),
        ("multipliers=64 dense.multipliers=64", "'multipliers' and 'dense.multipliers' change the same field"),
        ("dn_bw=8 read_ports=8", "'dn_bw' and 'read_ports' change the same field"),
        ("memory.buffer_KiB=0", "memory.buffer_KiB: 0 is not a number from 1"),
        ("dense=3", "setting 'dense' is unknown"),
    ],
)  # fmt: skip
def test_a_mistake_names_the_field(finite: Accelerator, text: str, said: str) -> None:
    with pytest.raises(SondaError) as caught:
        with_settings(finite, text)
    assert said in str(caught.value)


def test_an_engine_may_have_a_name_that_means_something_else() -> None:
    text = FINITE.replace("engines.dense", "engines.memory").replace('"dense"', '"memory"')
    accelerator = parse_accelerator(text, "odd.toml")
    assert field_paths(accelerator, "memory.buffer_KiB") == [("memory", "buffer_KiB")]
    found = with_settings(accelerator, "engines.memory.multipliers=128")
    assert found.engines["memory"].hardware.multipliers == 128


def test_a_value_with_spaces_stands_in_quotes() -> None:
    assert parse_settings("energy_table='my table.toml' clock_GHz=1") == {
        "energy_table": "my table.toml",
        "clock_GHz": "1",
    }


@settings(deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    accelerator = load_accelerator("maeri-256")
    try:
        found = with_settings(accelerator, text)
    except SondaError as error:
        assert all(line for line in str(error).splitlines())
    else:
        assert found is accelerator or found.notes


def test_parts_change_as_the_whole_does(finite: Accelerator) -> None:
    """The exploration changes engines and memory on their own; `changed` is the second opinion."""
    settings = {"dense.multipliers": "256", "read_ports": "32", "memory.buffer_KiB": "64", "memory.banks": "4"}
    whole = apply_settings(finite, settings)
    paths = {path: value for key, value in settings.items() for path in field_paths(finite, key)}
    for name, engine in finite.engines.items():
        assert change_engine(engine, paths) == whole.engines[name]
    assert change_memory(describe_memory(finite), finite.clock_hz, paths) == whole.memory
    assert change_memory(None, None, {}) is None
