"""A run of STONNE as reference files record it: what was run, as a call of one of Sonda's engines, and what came out.

An entry names hardware (`config`), sizes (`dims`), mapping (`tile` or `generated_tile`) and zero patterns (`data`);
or only the command line (`argv`), whose sparse operands are drawn as STONNE draws them. Letters and names are
STONNE's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sonda.accelerators import operands
from sonda.accelerators.engines import (
    bitmap_sparse,
    compressed_row,
    flexible_dense,
    gustavson,
    mesh,
    outer_product,
    sparse_product,
)
from sonda.accelerators.hardware import Hardware
from sonda.accelerators.layer import Layer, Tile
from sonda.accelerators.library_random import LibraryRandom
from sonda.accelerators.result import Result
from sonda.record.errors import SondaError

Entry = dict[str, Any]
Simulation = Callable[[], Result]
COMMANDS = ("CONV", "FC", "DenseGEMM", "SparseGEMM", "SparseDense")
CONTROLLERS = {"SparseGEMM": "SIGMA_SPARSE_GEMM", "SparseDense": "MAGMA_SPARSE_DENSE", "TPU": "TPU_OS_DENSE"}
MAPPED = re.compile(r"(T_[A-Z]+_?)'?\s*=\s*(\d+)")


@dataclass(frozen=True)
class ReferenceRun:
    """One entry, its operands ready."""

    name: str
    mode: str
    status: str
    simulate: Simulation
    """Raises SondaError where the machine cannot do it."""
    expected: dict[str, int]
    """By dotted names: `cycles`, `reads`, `writes`, `memory.*`, `counters.*`; only what the entry has."""

    def differences(self, result: Result) -> dict[str, tuple[int | None, int | None]]:
        """Names whose values differ: the reference's and Sonda's; None where one has no such thing."""
        mine = {
            "cycles": result.cycles,
            "reads": result.reads,
            "writes": result.writes,
            "memory.weight_reads": result.weight_reads,
            "memory.input_reads": result.input_reads,
            "memory.psum_reads": result.psum_reads,
            **_flat(result.counters, "counters."),
        }
        names = dict.fromkeys(self.expected)
        if any(name.startswith("counters.") for name in names):
            names.update(dict.fromkeys(name for name in mine if name.startswith("counters.")))
        pairs = {name: (self.expected.get(name), mine.get(name)) for name in names}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def reference_run(entry: Entry, place: int) -> ReferenceRun:
    """The entry at this place of a file, ready to be simulated; raises SondaError naming what it lacks."""
    name = f"{entry.get('tag', 'run')} {entry.get('id', place)}" if isinstance(entry, dict) else f"run {place}"
    try:
        given = entry if "mode" in entry else from_command(entry["argv"])
        mode, status = str(given["mode"]), str(entry["status"])
        return ReferenceRun(name, mode, status, _simulation(given), _expected(entry))
    except KeyError as missing:
        raise SondaError(f"{name}: {missing.args[0]!r} is missing", "complete the reference file") from None
    except (TypeError, ValueError, AttributeError, IndexError) as error:
        raise SondaError(f"{name} cannot be read ({error})", "check the reference file") from None


def from_command(argv: str | list[str]) -> Entry:
    """The entry that a command line of STONNE stands for, with STONNE's defaults; sparse operands are drawn."""
    words = argv.split() if isinstance(argv, str) else list(argv)
    given = dict(word.lstrip("-").partition("=")[::2] for word in words)
    command = next((one for one in COMMANDS if one in given), None)
    if command is None:
        raise ValueError(f"the command line has none of -{', -'.join(COMMANDS)}")
    if "generate_tile" in given:
        raise ValueError("the command line leaves the tile to STONNE")
    numbers = {key: int(value) for key, value in given.items() if value.isdigit()}
    mode = "TPU" if given.get("mem_ctrl") == CONTROLLERS["TPU"] else command
    entry: Entry = {
        "mode": mode,
        "config": {
            "accumulation_buffer": int(mode == "SparseDense"),
            **numbers,
            "rn_type": given.get("rn_type", "ASNETWORK"),
        },
        "dims": numbers,
        "tile": numbers,
        "options": {"dataflow": given.get("dataflow", bitmap_sparse.DATAFLOWS[0])},
        "data": {},
    }
    if mode in ("SparseGEMM", "SparseDense"):
        entry["data"] = {"drawn": (numbers["MK_sparsity"], numbers.get("KN_sparsity", 0), numbers.get("optimize", 0))}
    return entry


def _simulation(entry: Entry) -> Simulation:
    """The call; where the operands themselves are impossible, one that says so."""
    prepare = {
        "CONV": _convolution,
        "TPU": _mesh,
        "SparseGEMM": _bitmap,
        "SparseDense": _rows,
        "OuterProduct_SST": _merging,
        "Gustavson_SST": _merging,
        "DenseGEMM": _dense,
        "FC": _dense,
    }
    if entry["mode"] not in prepare:
        raise ValueError(f"mode {entry['mode']!r} is none of {', '.join(prepare)}")
    try:
        return prepare[entry["mode"]](entry, _hardware(entry))
    except SondaError as error:
        refusal = error

    def refuse() -> Result:
        raise refusal

    return refuse


def _hardware(entry: Entry) -> Hardware:
    config = entry["config"]
    return Hardware(
        multipliers=config.get("num_ms", 64),
        rows=config.get("ms_rows", 0),
        columns=config.get("ms_cols", 0),
        read_ports=config.get("dn_bw", 4),
        write_ports=config.get("rn_bw", 4),
        reduction="ASNETWORK" if entry["mode"].endswith("_SST") else config["rn_type"],
        accumulators=bool(config.get("accumulation_buffer", 0)),
        controller=CONTROLLERS.get(entry["mode"], "MAERI_DENSE_WORKLOAD"),
    )


def _tile(entry: Entry) -> dict[str, int]:
    if entry["tile"] is not None:
        return dict(entry["tile"])
    return {name: int(size) for name, size in MAPPED.findall(entry["generated_tile"])}


def _dense(entry: Entry, hardware: Hardware) -> Simulation:
    sizes, tile = entry["dims"], _tile(entry)
    layer = Layer.product(sizes["M"], sizes["N"], sizes["K"])
    mapping = Tile.product(tile["T_M"], tile["T_N"], tile["T_K"])
    return lambda: flexible_dense.simulate(hardware, layer, mapping)


def _convolution(entry: Entry, hardware: Hardware) -> Simulation:
    sizes, tile = entry["dims"], _tile(entry)
    layer = Layer(**{name: sizes[name] for name in "RSCKGNXY"}, stride=sizes["strides"])
    outputs = {"X": tile.get("T_X_", tile.get("T_X", 1)), "Y": tile.get("T_Y_", tile.get("T_Y", 1))}
    mapping = Tile(**{name: tile.get(f"T_{name}", 1) for name in "RSCKGN"}, **outputs)
    return lambda: flexible_dense.simulate(hardware, layer, mapping)


def _mesh(entry: Entry, hardware: Hardware) -> Simulation:
    sizes, tile = entry["dims"], _tile(entry)
    product = mesh.Product(sizes["M"], sizes["N"], sizes["K"])
    mapping = mesh.MeshTile(tile["T_M"], tile["T_N"])
    return lambda: mesh.simulate(hardware, product, mapping)


def _merging(entry: Entry, hardware: Hardware) -> Simulation:
    patterns = (operands.read_pattern(entry["data"][name]) for name in ("A_nonzero", "B_nonzero"))
    product = sparse_product.SparseProduct(*(operands.compressed_rows(one) for one in patterns))
    engine = outer_product if entry["mode"] == "OuterProduct_SST" else gustavson
    return lambda: engine.simulate(hardware, product)


def _bitmap(entry: Entry, hardware: Hardware) -> Simulation:
    sizes, data, dataflow = entry["dims"], entry["data"], entry["options"]["dataflow"]
    if "rows_of_MK_nonzero_columns" in data:
        rows = operands.rows_from_lists(data["rows_of_MK_nonzero_columns"], sizes["K"])
        product = bitmap_sparse.BitmapProduct(rows, sizes["N"])
        if dataflow != bitmap_sparse.DATAFLOWS[0]:
            before = np.concatenate(([0], np.cumsum(np.bincount(rows.indices, minlength=sizes["K"]))))
            product = bitmap_sparse.BitmapProduct(bitmap_sparse.DenseRows(sizes["N"], sizes["K"]), rows.rows, before)
        return lambda: bitmap_sparse.simulate(hardware, product)
    if "drawn" in data:
        mk, kn = _drawn_bitmaps(sizes, data["drawn"], dataflow, hardware.multipliers)
    else:
        mk, kn = operands.read_pattern(data["MK_bitmap"]), operands.read_pattern(data["KN_bitmap"])
    drawn = bitmap_sparse.bitmap_product(mk, kn, dataflow)
    return lambda: bitmap_sparse.simulate(hardware, drawn)


def _drawn_bitmaps(
    sizes: dict[str, int], drawn: tuple[int, int, int], dataflow: str, multipliers: int
) -> tuple[np.ndarray, np.ndarray]:
    mk_sparsity, kn_sparsity, optimize = drawn
    random = LibraryRandom()
    mk = random.sparse_matrix(sizes["M"], sizes["K"], mk_sparsity)
    kn = random.sparse_matrix(sizes["K"], sizes["N"], kn_sparsity)
    if optimize and dataflow == bitmap_sparse.DATAFLOWS[0]:
        mk = mk[bitmap_sparse.packed_order(mk.sum(axis=1), multipliers)]
    elif optimize:
        kn = kn[:, bitmap_sparse.packed_order(kn.sum(axis=0), multipliers)]
    return mk, kn


def _rows(entry: Entry, hardware: Hardware) -> Simulation:
    sizes, data, tile = entry["dims"], entry["data"], _tile(entry)
    if "rows_of_MK_nonzero_columns" in data:
        rows = operands.rows_from_lists(data["rows_of_MK_nonzero_columns"], sizes["K"])
    elif "drawn" in data:
        rows = operands.compressed_rows(LibraryRandom().sparse_matrix(sizes["M"], sizes["K"], data["drawn"][0]))
    else:
        rows = operands.compressed_rows(operands.read_pattern(data["MK_nonzero"]))
    product = compressed_row.rows_by_dense(rows, sizes["N"])
    mapping = compressed_row.RowTile(tile["T_N"], tile["T_K"])
    return lambda: compressed_row.simulate(hardware, product, mapping)


def _expected(entry: Entry) -> dict[str, int]:
    memory = entry.get("sdmemory", {})
    named = {
        "cycles": entry.get("cycles"),
        "reads": entry.get("globalbuffer_reads"),
        "writes": entry.get("globalbuffer_writes"),
        "memory.weight_reads": memory.get("N_SRAM_weight_reads"),
        "memory.input_reads": memory.get("N_SRAM_input_reads"),
        "memory.psum_reads": memory.get("N_SRAM_psum_reads"),
    }
    present = {name: int(value) for name, value in named.items() if value is not None}
    return {**present, **_flat(entry.get("counters", {}), "counters.")}


def _flat(tree: dict[str, Any], prefix: str) -> dict[str, int]:
    leaves: dict[str, int] = {}
    for name, value in tree.items():
        leaves.update(_flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value})
    return leaves
