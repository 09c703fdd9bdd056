"""Descriptions of accelerators: the built-in ones, users' own, STONNE's, and every mistake in them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonda.accelerators.description.accelerator import (
    OPERATIONS,
    built_in_accelerators,
    load_accelerator,
    parse_accelerator,
)
from sonda.accelerators.description.fields import DescriptionMistakes
from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.engines.registry import OWN, engine_of
from sonda.accelerators.operations.program import MatrixProduct, Operation, ZeroPattern
from sonda.record.errors import SondaError

MINE = """
name = "mine"
clock_GHz = 0.5
energy_table = "7nm"
notes = ["for a test"]
[engines.dense]
kind = "flexible_dense"
multipliers = 64
read_ports = 16
write_ports = 8
accumulators = true
tile = { T_M = 2, T_N = 4, T_K = 8 }
convolution_tile = { T_R = 3, T_S = 3, T_K = 2 }
[engines.sparse]
kind = "bitmap_sparse"
multipliers = 32
read_ports = 32
write_ports = 32
dataflow = "MK_STA_KN_STR"
[route]
linear = "dense"
convolution = "dense"
embedding_bag = "sparse"
"""
MESH = """
name = "m"
[engines.m]
kind = "mesh"
rows = 8
columns = 8
read_ports = 16
write_ports = 64
[route]
linear = "m"
"""


def mistakes(text: str) -> list[str]:
    with pytest.raises(DescriptionMistakes) as caught:
        parse_accelerator(text, "x.toml")
    lines = str(caught.value).splitlines()
    assert all(line.startswith("x.toml: ") for line in lines)
    return [line.removeprefix("x.toml: ") for line in lines]


def test_built_in_names() -> None:
    assert built_in_accelerators() == (
        "dlrm-hybrid", "dlrm-hybrid-sigma", "dlrm-hybrid-tpu", "maeri-256", "magma-128", "sigma-128", "tpu-128x128",
        "tpu-16x16",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "engine", "hardware"),
    [
        # STONNE's maeri_256mses_64_bw.cfg (which holds 128), sigma_128mses_128_bw.cfg, magma_128mses_128_bw.cfg,
        # tpu_16_16_pes.cfg; the last is scaled from that.
        ("maeri-256", "maeri", Hardware(256, 0, 0, 128, 128, "ASNETWORK", True, "MAERI_DENSE_WORKLOAD")),
        ("sigma-128", "sigma", Hardware(128, 0, 0, 128, 128, "ASNETWORK", False, "SIGMA_SPARSE_GEMM")),
        ("magma-128", "magma", Hardware(128, 0, 0, 128, 128, "ASNETWORK", True, "MAGMA_SPARSE_DENSE")),
        ("tpu-16x16", "mesh", Hardware(256, 16, 16, 32, 256, "TEMPORALRN", True, "TPU_OS_DENSE")),
        ("tpu-128x128", "mesh", Hardware(16384, 128, 128, 256, 16384, "TEMPORALRN", True, "TPU_OS_DENSE")),
    ],
)
def test_built_in_hardware(name: str, engine: str, hardware: Hardware) -> None:
    accelerator = load_accelerator(name)
    assert accelerator.name == name
    assert accelerator.engines[engine].hardware == hardware
    assert accelerator.clock_hz is None  # no source gives one
    assert set(accelerator.route) <= set(OPERATIONS)


def test_hybrid_of_the_dlrm_study() -> None:
    hybrid = load_accelerator("dlrm-hybrid")
    perceptrons, bags = hybrid.engine_for("linear"), hybrid.engine_for("embedding_bag")
    assert perceptrons is not None and bags is not None
    assert perceptrons.hardware == Hardware(256, 0, 0, 128, 128, "ASNETWORK", True, "MAERI_DENSE_WORKLOAD")
    assert bags.hardware == Hardware(128, 0, 0, 128, 128, "ASNETWORK", True, "MAGMA_SPARSE_DENSE")
    # T_S = 4, T_K = 2, T_N = 1 in STONNE's fully connected letters: four inputs, two outputs, one row of the batch.
    assert perceptrons.tile == {"T_M": 1, "T_N": 2, "T_K": 4}
    assert bags.tile == {"T_N": 1, "T_K": 2}
    assert hybrid.engine_for("gemm") is None and hybrid.engine_for("attention") is None


def test_own_description(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(MINE, encoding="utf-8")
    mine = load_accelerator(str(path))
    assert (mine.name, mine.clock_hz, mine.energy_table, mine.notes) == ("mine", 5e8, "7nm", ("for a test",))
    dense, sparse = mine.engines["dense"], mine.engines["sparse"]
    assert dense.hardware == Hardware(64, 0, 0, 16, 8, "ASNETWORK", True, "MAERI_DENSE_WORKLOAD")
    assert dense.convolution_tile == {
        "T_R": 3, "T_S": 3, "T_C": 1, "T_K": 2, "T_G": 1, "T_N": 1, "T_X_": 1, "T_Y_": 1,
    }  # fmt: skip
    assert sparse.dataflow == dict.fromkeys(OPERATIONS, "MK_STA_KN_STR")
    assert mine.engine_for("linear") is dense and mine.engine_for("attention") is None
    with pytest.raises(SondaError, match="did you mean 'linear'"):
        mine.engine_for("liner")


def test_mesh_has_as_many_multipliers_as_elements() -> None:
    engine = parse_accelerator(MESH, "x.toml").engines["m"]
    assert engine.elements == 64 and engine.hardware.multipliers == 64
    assert engine.hardware.reduction == "TEMPORALRN" and engine.hardware.accumulators


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("clock_GHz", "clock_Ghz"), "clock_Ghz: unknown; did you mean 'clock_GHz'?"),
        (("multipliers = 64", "multiplier = 64"), "engines.dense.multiplier: unknown; did you mean 'multipliers'?"),
        (("multipliers = 64", "multipliers = 48"), "engines.dense.multipliers = 48 is not a power of two"),
        (("multipliers = 64", "multipliers = -64"), "engines.dense.multipliers = -64 is not"),
        (("multipliers = 64", "multipliers = 1_000_000_000_000"), "engines.dense.multipliers = 1000000000000 is not"),
        (("multipliers = 64", 'multipliers = "64"'), "engines.dense.multipliers: '64' is not a whole number"),
        (("multipliers = 64", "multipliers = true"), "engines.dense.multipliers: True is not a whole number"),
        (("read_ports = 16", "read_ports = 12"), "engines.dense.read_ports = 12 is not a power of two"),
        (("write_ports = 8", "write_ports = 128"), "engines.dense.write_ports = 128 is more than multipliers = 64"),
        (("write_ports = 8\n", ""), "engines.dense.write_ports: missing; give a whole number"),
        (("accumulators = true\n", ""), "engines.dense.accumulators: missing; give true or false"),
        (("flexible_dense", "flexibel_dense"), "'flexibel_dense' is unknown; did you mean 'flexible_dense'?"),
        (("clock_GHz = 0.5", "clock_GHz = 0"), "clock_GHz: 0 is not a number from 1e-06 to 1000"),
        (("clock_GHz = 0.5", "clock_GHz = nan"), "clock_GHz: nan is not a number"),
        (('energy_table = "7nm"', 'energy_table = "7mm"'), "energy_table: '7mm' is unknown; did you mean '7nm'?"),
        (('"for a test"', "3"), "notes: [3] is not a list of texts"),
        (("T_K = 8 }", "T_K = 16 }"), "engines.dense.tile takes 128 multipliers (T_M x T_N x T_K), there are 64"),
        (("T_M = 2", "T_m = 2"), "engines.dense.tile.T_m: unknown; did you mean 'T_M'?"),
        (("T_M = 2", "T_M = 0"), "engines.dense.tile.T_M: 0 is not a size from 1"),
        (("T_R = 3, T_S = 3", "T_R = 9, T_S = 9"), "engines.dense.convolution_tile takes 162 multipliers"),
        (("kind = \"flexible_dense\"", "kind = \"flexible_dense\"\nrows = 8"), "rows: flexible_dense has no mesh"),
        (("MK_STA_KN_STR", "MK_STA_KNSTR"), "'MK_STA_KNSTR' is unknown; did you mean 'MK_STA_KN_STR'?"),
        (('linear = "dense"', 'linear = "dens"'), "route.linear: 'dens' is unknown; did you mean 'dense'?"),
        (('linear = "dense"', 'linaer = "dense"'), "route.linaer: unknown; did you mean 'linear'?"),
        (('bag = "sparse"', 'bag = "dense"'), "route.embedding_bag: flexible_dense does not take it"),
        (('name = "mine"\n', ""), "name: missing; give a text"),
        (("[route]", "[engines.other]"), "route: missing"),
    ],
)  # fmt: skip
def test_mistakes_name_field_and_reason(change: tuple[str, str], expected: str) -> None:
    assert change[0] in MINE
    assert any(expected in line for line in mistakes(MINE.replace(*change, 1)))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("rows = 8", "rows = -8"), "engines.m.rows = -8 is not a size from 1 to 1024"),
        (("rows = 8", "rows = 1000000000"), "engines.m.rows = 1000000000 is not a size"),
        (("rows = 8", "rows = 7"), "engines.m.read_ports = 16 does not share the 15 inputs"),
        (("read_ports = 16", "read_ports = 16\nmultipliers = 1"), "engines.m.multipliers = 1 is too few for 64"),
        (("read_ports = 16", "read_ports = 16\naccumulators = false"), "cannot sum on a mesh"),
        (("read_ports = 16", "read_ports = 16\ntile = { T_M = 9, T_N = 8 }"), "tile.T_M = 9 is more than the mesh's 8"),
        (("read_ports = 16", "read_ports = 16\ndataflow = 'MK_STA_KN_STR'"), "dataflow: mesh has no choice"),
    ],
)
def test_mistakes_of_a_mesh(change: tuple[str, str], expected: str) -> None:
    # One processing element per bus line suffices with multipliers = 1 only where there are as many lines.
    text = MESH.replace("write_ports = 64", "write_ports = 4") if "multipliers" in change[1] else MESH
    assert any(expected in line for line in mistakes(text.replace(*change, 1)))


@pytest.mark.parametrize(
    ("kind", "fields", "expected"),
    [
        ("bitmap_sparse", "multipliers = 2\nread_ports = 2", "multipliers = 2 is too few for bitmap_sparse"),
        ("bitmap_sparse", "multipliers = 8\nread_ports = 8\nreduction = 'FENETWORK'", "reduction = 'FENETWORK' cannot"),
        ("bitmap_sparse", "multipliers = 8\nread_ports = 8\ntile = { T_K = 2 }", "tile: bitmap_sparse has none"),
        ("compressed_row", "multipliers = 8\nread_ports = 8\naccumulators = false", "accumulators = false cannot sum"),
        ("compressed_row", "multipliers = 8\nread_ports = 8\ntile = {T_N = 2, T_K = 1}", "T_K = 1 puts two sums"),
        ("outer_product", "multipliers = 8\nread_ports = 4", "read_ports = 4 brings elements"),
        ("gustavson", "multipliers = 2\nread_ports = 2", "multipliers = 2 is too few for gustavson"),
    ],
)
def test_mistakes_of_sparse_engines(kind: str, fields: str, expected: str) -> None:
    text = f"name = 's'\n[engines.e]\nkind = '{kind}'\nwrite_ports = 2\n{fields}\n[route]\nlinear = 'e'\n"
    assert any(expected in line for line in mistakes(text))


def test_all_mistakes_at_once() -> None:
    text = MINE.replace("clock_GHz", "clok").replace("multipliers = 64", "multipliers = 6").replace("linear", "lin")
    assert len(mistakes(text)) >= 3


@pytest.mark.parametrize("text", ["name = ", "=", "\x00", "a = [" * 3000])
def test_what_is_not_toml_is_one_line(text: str) -> None:
    with pytest.raises(SondaError) as caught:
        parse_accelerator(text, "x.toml")
    assert "x.toml is not TOML" in str(caught.value) and "\n" not in str(caught.value)


def test_unknown_names_and_files(tmp_path: Path) -> None:
    with pytest.raises(SondaError, match="did you mean 'maeri-256'"):
        load_accelerator("maeri-265")
    with pytest.raises(SondaError, match="cannot be read"):
        load_accelerator(str(tmp_path / "none.toml"))
    with pytest.raises(SondaError, match="cannot be read"):
        load_accelerator("a\x00b.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SondaError, match="not text"):
        load_accelerator(str(tmp_path / "binary.toml"))
    (tmp_path / "big.toml").write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(SondaError, match="bigger than"):
        load_accelerator(str(tmp_path / "big.toml"))


def test_names_from_a_file_cannot_command_the_terminal() -> None:
    assert "\x1b" not in "\n".join(mistakes(MINE + '[engines."\\u001b[31m"]\nkind = "x"\n'))


@settings(deadline=None)
@given(
    kind=st.sampled_from(list(OWN)),
    reduction=st.sampled_from(["ASNETWORK", "FENETWORK", "TEMPORALRN"]),
    accumulators=st.booleans(),
    sizes=st.tuples(*(st.sampled_from([1, 2, 3, 4, 8, 16]) for _ in range(5))),
)
def test_what_is_accepted_can_run(kind: str, reduction: str, accumulators: bool, sizes: tuple[int, ...]) -> None:
    """A description is refused when it is read, not when the engine is first used."""
    multipliers, reading, writing, rows, columns = sizes
    network = f"rows = {rows}\ncolumns = {columns}" if engine_of(kind).has_mesh else f"multipliers = {multipliers}"
    text = f"""
        name = "x"
        [engines.e]
        kind = "{kind}"
        {network}
        read_ports = {reading}
        write_ports = {writing}
        reduction = "{reduction}"
        accumulators = {str(accumulators).lower()}
        [route]
        linear = "e"
    """
    try:
        engine = parse_accelerator(text, "x.toml").engines["e"]
    except DescriptionMistakes:
        return
    ones = ZeroPattern.from_array(np.ones((1, 4, 4), bool))
    product = Operation("linear", "addmm", -1, MatrixProduct(4, 4, 4), ones, ones)
    assert engine.simulator.choose(engine, product, False).result.cycles > 0
