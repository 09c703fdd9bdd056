"""A run of STONNE as reference files record it: what was run, as a call of one of Sonda's engines, and what came out.

An entry names hardware (`config`), sizes (`dims`), mapping (`tile` or `generated_tile`) and zero patterns (`data`).
What it lacks follows from the command line (`argv`): sparse operands are then drawn as STONNE draws them, and a tile
that STONNE chose is chosen as STONNE's mapper does. Letters and names are STONNE's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sonda.accelerators.description.hardware import DATAFLOWS, Hardware
from sonda.accelerators.engines import bitmap_sparse, compressed_row, flexible_dense, gustavson, mesh, outer_product
from sonda.accelerators.engines import merge_tree as sparse_product
from sonda.accelerators.engines.kinds.flexible_dense import FULLY_CONNECTED
from sonda.accelerators.engines.result import Result
from sonda.accelerators.formats.stonne.command import NO_GENERATOR, parse_command
from sonda.accelerators.formats.stonne.glibc_random import LibraryRandom
from sonda.accelerators.mapping import stonne as stonne_mapper
from sonda.accelerators.operations import patterns as operands
from sonda.accelerators.operations.layer import StonneLayer, Tile, check_sizes
from sonda.record.errors import SondaError

Entry = dict[str, Any]
Simulation = Callable[[], Result]
CONTROLLER_OF_MODE = {"SparseGEMM": "SIGMA_SPARSE_GEMM", "SparseDense": "MAGMA_SPARSE_DENSE", "TPU": "TPU_OS_DENSE"}
MAPPED = re.compile(r"(T_[A-Z]+_?)'?\s*=\s*(\d+)")
WRAP = 1 << 32
"""The reference counts in 32 bits, each instance for itself, and begins again at 0."""
TREE_WIRES = "counters.ReduceNetwork.RN_WIRE.WRITE"
MEMORY = ("weight_reads", "input_reads", "psum_reads", "psum_writes")
ABOUT = frozenset((
    "id", "tag", "mode", "group", "source", "config", "dims", "tile", "generated_tile", "sparsity", "options", "data",
    "argv", "status", "assertion", "stdout_tail", "timing_model_agrees", "wall_seconds", "user_seconds", "max_rss_kb",
    "user_s", "cyc_per_user_s",
))  # fmt: skip
"""What an entry says of the run and of the computer that did it, rather than of the machine that was simulated."""
RESULTS = frozenset(("cycles", "globalbuffer_reads", "globalbuffer_writes", "counters"))
TOTAL = "Total_cycles"
MOST_DRAWN = 1 << 28
"""Elements of an operand that is drawn."""


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
    trailing: int = 0
    """Hops of the zeros that partial sums through memory send in vain after the last one, at most."""

    def differences(self, result: Result) -> dict[str, tuple[int | None, int | None]]:
        """Names whose values differ: the reference's and Sonda's; None where one has no such thing."""
        mine = {
            "cycles": result.cycles,
            "reads": result.reads,
            "writes": result.writes,
            "memory.total_cycles": result.cycles,
            "memory.weight_reads": result.weight_reads,
            "memory.input_reads": result.input_reads,
            "memory.psum_reads": result.psum_reads,
            "memory.psum_writes": result.writes,
            **_flatten(result.counters, "counters."),
        }
        # A run without cycles has nothing that it could be exact in.
        names = dict.fromkeys(("cycles", *self.expected))
        sections = {_section(name) for name in names if name.startswith("counters.")}
        names.update(dict.fromkeys(name for name in mine if _section(name) in sections))
        pairs = {name: (self.expected.get(name), mine.get(name)) for name in names}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}

    def known_differences(self, differing: Mapping[str, tuple[int | None, int | None]]) -> dict[str, str]:
        """Which of these differences are the reference's own and known, and why."""
        reasons = {}
        for name, (expected, mine) in differing.items():
            if expected is None or mine is None:
                continue
            if mine > expected and (mine - expected) % WRAP == 0:
                reasons[name] = "the reference counts in 32 bits"
            elif name == TREE_WIRES and len(differing) == 1 and abs(mine - expected) <= self.trailing:
                reasons[name] = "zeros after the last partial sum"
        return reasons


def reference_run(entry: Entry, place: int) -> ReferenceRun:
    """The entry at this place of a file, ready to be simulated; raises SondaError naming what it lacks."""
    name = run_name(entry, place)
    try:
        given = _complete_entry(entry)
        status, expected = run_status(entry), _expected(entry)
        simulate, trailing = _prepare_simulation(given)
        return ReferenceRun(name, str(given["mode"]), status, simulate, expected, trailing)
    except KeyError as missing:
        raise SondaError(f"{name}: {missing.args[0]!r} is missing", "complete the reference file") from None
    except (TypeError, ValueError, AttributeError, IndexError, OverflowError, MemoryError) as error:
        raise SondaError(f"{name} cannot be read ({error})", "check the reference file") from None


def run_name(entry: Any, place: int) -> str:
    """How a run is called where it is listed."""
    return f"{entry.get('tag', 'run')} {entry.get('id', place)}" if isinstance(entry, dict) else f"run {place}"


def uncompared_results(entry: Entry) -> list[str]:
    """Results that an entry has and Sonda has no number for, so that nobody takes them for checked."""
    compared = {TOTAL, *(f"N_SRAM_{name}" for name in MEMORY)}
    memory = entry.get("sdmemory")
    inner = [f"sdmemory.{name}" for name in memory if name not in compared] if isinstance(memory, dict) else []
    others = [name for name, value in entry.items() if name not in ABOUT | RESULTS | {"sdmemory"} and value is not None]
    return [*others, *inner]


def run_status(entry: Entry) -> str:
    """How the run ended in the reference; one that says nothing and has cycles ended well. Raises KeyError."""
    if entry.get("status") is not None:
        return str(entry["status"]).lower()
    if "cycles" not in entry:
        raise KeyError("status")
    return "ok"


def _complete_entry(entry: Entry) -> Entry:
    """The entry with what it lacks taken from its command line."""
    if not isinstance(entry, dict):
        raise ValueError(f"{type(entry).__name__} is not a run")
    known = {key: value for key, value in entry.items() if value is not None}
    if "argv" in known:
        command_entry = parse_command(known["argv"])
        merged = {key: command_entry[key] | known.get(key, {}) for key in ("config", "dims", "options", "sparsity")}
        return command_entry | known | merged
    return {"config": {}, "options": {}, "mode": known["mode"], **known}


def _prepare_simulation(entry: Entry) -> tuple[Simulation, int]:
    """The call, and hops of trailing zeros; where the operands themselves are impossible, a call that says so."""
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

    return refuse, 0


def _hardware(entry: Entry) -> Hardware:
    config = entry["config"]
    compressed = entry["mode"] == "SparseDense"
    return Hardware(
        multipliers=int(config.get("num_ms", 64)),
        rows=int(config.get("ms_rows", 0)),
        columns=int(config.get("ms_cols", 0)),
        read_ports=int(config.get("dn_bw", 4)),
        write_ports=int(config.get("rn_bw", 4)),
        reduction="ASNETWORK" if entry["mode"].endswith("_SST") else str(config.get("rn_type", "ASNETWORK")),
        accumulators=bool(int(config.get("accumulation_buffer", compressed))),
        controller=CONTROLLER_OF_MODE.get(entry["mode"], "MAERI_DENSE_WORKLOAD"),
    )


def _sizes(entry: Entry, letters: str) -> dict[str, int]:
    sizes = {letter: int(entry["dims"][letter]) for letter in letters}
    check_sizes(sizes)
    return sizes


def _tile(entry: Entry) -> dict[str, int] | None:
    """The tile that was given or recorded; nothing where STONNE's mapper chose one and nobody wrote it down."""
    if entry.get("tile") is not None:
        given = {name: int(size) for name, size in entry["tile"].items() if name.startswith("T_")}
        check_sizes(given)
        return given
    if "generated_tile" in entry:
        return {name: int(size) for name, size in MAPPED.findall(entry["generated_tile"])}
    asked = str(entry["options"].get("generate_tile", NO_GENERATOR[0])).lower() not in NO_GENERATOR
    if not asked:
        raise KeyError("tile")
    if entry["mode"] == "CONV" or str(entry["options"].get("generator", "")).lower() == "mrna":
        raise ValueError("its tile was chosen by mRNA, which is not repeated here: generated_tile is missing")
    return None


def _product_tile(entry: Entry, hardware: Hardware) -> dict[str, int]:
    tile = _tile(entry)
    if tile is None:
        mapped = stonne_mapper.product_tile(
            hardware, **{key.lower(): size for key, size in _sizes(entry, "MNK").items()}
        )
        return {"T_M": mapped.X, "T_N": mapped.K, "T_K": mapped.S}
    return {FULLY_CONNECTED[name]: size for name, size in tile.items()} if "T_S" in tile else tile


def _dense(entry: Entry, hardware: Hardware) -> tuple[Simulation, int]:
    sizes, tile = _sizes(entry, "MNK"), _product_tile(entry, hardware)
    layer = StonneLayer.product(sizes["M"], sizes["N"], sizes["K"])
    return _flexible(hardware, layer, Tile.product(tile["T_M"], tile["T_N"], tile["T_K"]))


def _convolution(entry: Entry, hardware: Hardware) -> tuple[Simulation, int]:
    dims, tile = entry["dims"], _tile(entry) or {}
    layer = StonneLayer(**_sizes(entry, "RSCKGNXY"), stride=int(dims.get("strides", dims.get("stride", 1))))
    outputs = {"X": tile.get("T_X_", tile.get("T_X", 1)), "Y": tile.get("T_Y_", tile.get("T_Y", 1))}
    return _flexible(hardware, layer, Tile(**{name: tile.get(f"T_{name}", 1) for name in "RSCKGN"}, **outputs))


def _flexible(hardware: Hardware, layer: StonneLayer, tile: Tile) -> tuple[Simulation, int]:
    tile.check(hardware.check(), layer.check())
    # Each virtual neuron sends a zero more than it needs, which one adder may pass on.
    trailing = 2 * tile.neurons if tile.folds_through_memory(hardware, layer) else 0
    return lambda: flexible_dense.simulate(hardware, layer, tile), trailing


def _mesh(entry: Entry, hardware: Hardware) -> tuple[Simulation, int]:
    sizes, tile = _sizes(entry, "MNK"), _product_tile(entry, hardware)
    product = mesh.Product(sizes["M"], sizes["N"], sizes["K"])
    mapping = mesh.MeshTile(tile["T_M"], tile["T_N"])
    return lambda: mesh.simulate(hardware, product, mapping), 0


def _merging(entry: Entry, hardware: Hardware) -> tuple[Simulation, int]:
    patterns = (operands.read_pattern(entry["data"][name]) for name in ("A_nonzero", "B_nonzero"))
    product = sparse_product.SparseProduct(*(operands.compressed_rows(pattern) for pattern in patterns))
    engine = outer_product if entry["mode"] == "OuterProduct_SST" else gustavson
    return lambda: engine.simulate(hardware, product), 0


def _bitmap(entry: Entry, hardware: Hardware) -> tuple[Simulation, int]:
    data = entry.get("data", {})
    dataflow = entry["options"].get("dataflow", DATAFLOWS[0])
    if "rows_of_MK_nonzero_columns" in data:
        sizes = _sizes(entry, "NK")
        rows = operands.rows_from_lists(data["rows_of_MK_nonzero_columns"], sizes["K"])
        product = bitmap_sparse.BitmapProduct(rows, sizes["N"])
        if dataflow != DATAFLOWS[0]:
            before = np.concatenate(([0], np.cumsum(np.bincount(rows.indices, minlength=sizes["K"]))))
            product = bitmap_sparse.BitmapProduct(bitmap_sparse.DenseRows(sizes["N"], sizes["K"]), rows.rows, before)
    elif "MK_bitmap" in data:
        mk, kn = (operands.read_pattern(data[name]) for name in ("MK_bitmap", "KN_bitmap"))
        product = bitmap_sparse.bitmap_product(mk, kn, dataflow)
    else:
        product = bitmap_sparse.bitmap_product(*_draw_bitmaps(entry, dataflow, hardware), dataflow)
    return lambda: bitmap_sparse.simulate(hardware, product), 0


def _rows(entry: Entry, hardware: Hardware) -> tuple[Simulation, int]:
    data, tile, columns = entry.get("data", {}), _tile(entry), _sizes(entry, "N")["N"]
    if "row_nnz_effective" in data:
        product = compressed_row.RowsByDense(np.asarray(data["row_nnz_effective"], np.int64), columns)
    elif "rows_of_MK_nonzero_columns" in data:
        rows = operands.rows_from_lists(data["rows_of_MK_nonzero_columns"], _sizes(entry, "K")["K"])
        product = compressed_row.rows_by_dense(rows, columns)
    else:
        pattern = operands.read_pattern(data["MK_nonzero"]) if "MK_nonzero" in data else _draw_operands(entry)[0]
        product = compressed_row.rows_by_dense(operands.compressed_rows(pattern), columns)
    if tile is None:
        mapping = stonne_mapper.rows_tile(
            hardware, columns, _sizes(entry, "K")["K"], int(entry["sparsity"]["MK"]) / 100
        )
    else:
        mapping = compressed_row.RowTile(tile["T_N"], tile["T_K"])
    return lambda: compressed_row.simulate(hardware, product, mapping), 0


def _draw_operands(entry: Entry) -> tuple[np.ndarray, np.ndarray]:
    """Where the operands M x K and K x N are not zero, as the command line draws them."""
    sizes, sparsity = _sizes(entry, "MNK"), entry["sparsity"]
    for name in ("MK", "KN"):
        rows, columns = (sizes[letter] for letter in name)
        if not 1 <= rows * columns <= MOST_DRAWN or min(rows, columns) < 1:
            raise SondaError(f"{name} = {rows} x {columns} is not a matrix that can be drawn", "change the sizes")
    random = LibraryRandom()
    mk = random.sparse_matrix(sizes["M"], sizes["K"], int(sparsity["MK"]))
    return mk, random.sparse_matrix(sizes["K"], sizes["N"], int(sparsity.get("KN", 0)))


def _draw_bitmaps(entry: Entry, dataflow: str, hardware: Hardware) -> tuple[np.ndarray, np.ndarray]:
    mk, kn = _draw_operands(entry)
    hardware.check()
    if int(entry["options"].get("optimize", 0)) & 1:
        if dataflow == DATAFLOWS[0]:
            mk = mk[bitmap_sparse.packed_order(mk.sum(axis=1), hardware.multipliers)]
        else:
            kn = kn[:, bitmap_sparse.packed_order(kn.sum(axis=0), hardware.multipliers)]
    return mk, kn


def _expected(entry: Entry) -> dict[str, int]:
    memory = entry.get("sdmemory") or {}
    named = {
        "cycles": entry.get("cycles"),
        "reads": entry.get("globalbuffer_reads"),
        "writes": entry.get("globalbuffer_writes"),
        "memory.total_cycles": memory.get(TOTAL),
        **{f"memory.{name}": memory.get(f"N_SRAM_{name}") for name in MEMORY},
    }
    present = {name: int(value) for name, value in named.items() if value is not None}
    return {**present, **_flatten(entry.get("counters") or {}, "counters.")}


def _section(name: str) -> str:
    """`counters.MSNetwork` of `counters.MSNetwork.FIFO.POP`."""
    return ".".join(name.split(".")[:2])


def _flatten(tree: dict[str, Any], prefix: str) -> dict[str, int]:
    leaves: dict[str, int] = {}
    for name, value in tree.items():
        leaves.update(_flatten(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value})
    return leaves
