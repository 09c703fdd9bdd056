"""Reference runs: how one is repeated on the oracle, and how two sets of counters are compared."""

from __future__ import annotations

import base64
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from . import dense, mesh, sparse, spgemm
from .machine import Outcome

PATH = Path(__file__).parents[2] / "data" / "stonne" / "golden.json"
Run = dict[str, Any]


@cache
def runs() -> tuple[Run, ...]:
    return tuple(json.loads(PATH.read_text()))


def bitmap(pattern: dict[str, Any]) -> np.ndarray:
    rows, columns = pattern["shape"]
    raw = np.frombuffer(base64.b64decode(pattern["packbits_b64"]), np.uint8)
    return np.unpackbits(raw)[: rows * columns].reshape(rows, columns)


def tile_of(run: Run) -> dict[str, int]:
    if run["tile"] is not None:
        return dict(run["tile"])
    return {key.strip(): int(value) for key, value in (part.split("=") for part in run["generated_tile"].split(","))}


def ports_of(run: Run) -> dict[str, int]:
    config = run["config"]
    return {"multipliers": config["num_ms"], "read_ports": config["dn_bw"], "write_ports": config["rn_bw"]}


def multi_hot(run: Run, key: str) -> np.ndarray:
    """Operand of a run whose ones are listed row by row."""
    matrix = np.zeros((run["dims"]["M"], run["dims"]["K"]), np.uint8)
    for row, columns in zip(matrix, run["data"][key], strict=True):
        row[columns] = 1
    return matrix


def repeat(run: Run) -> tuple[Outcome, np.ndarray]:
    """The reference run on the oracle, and the right result for the values used."""
    mode, dims, config = run["mode"], run["dims"], run["config"]
    if mode == "TPU":
        tile = tile_of(run)
        return mesh.run(
            rows=config["ms_rows"],
            columns=config["ms_cols"],
            read_ports=config["dn_bw"],
            write_ports=config["rn_bw"],
            multipliers=config.get("num_ms", 64),
            T_M=tile["T_M"],
            T_N=tile["T_N"],
            **{key: dims[key] for key in "MNK"},
        )
    ports = ports_of(run)
    if mode == "SparseGEMM":
        data = run["data"]
        if "MK_bitmap" in data:
            mk, kn = bitmap(data["MK_bitmap"]), bitmap(data["KN_bitmap"])
        else:
            mk, kn = multi_hot(run, "rows_of_MK_nonzero_columns"), np.ones((dims["K"], dims["N"]), np.uint8)
        return sparse.run_bitmap(mk, kn, dataflow=run["options"]["dataflow"], **ports)
    if mode == "SparseDense":
        data, tile = run["data"], tile_of(run)
        listed = "MK_nonzero" not in data
        operand = multi_hot(run, "rows_of_MK_nonzero_columns") if listed else bitmap(data["MK_nonzero"])
        return sparse.run_rows(operand, dims["N"], T_N=tile["T_N"], T_K=tile["T_K"], **ports)
    if mode in ("OuterProduct_SST", "Gustavson_SST"):
        a, b = bitmap(run["data"]["A_nonzero"]), bitmap(run["data"]["B_nonzero"])
        return (spgemm.run_outer if mode == "OuterProduct_SST" else spgemm.run_gustavson)(a, b, **ports)
    tile = tile_of(run)
    options: dict[str, Any] = {
        "reduction": config["rn_type"],
        "accumulators": bool(config["accumulation_buffer"]),
        **ports,
    }
    if mode == "CONV":
        groups = dims["G"]
        layer = dense.Layer(
            C=dims["C"] // groups,
            K=dims["K"] // groups,
            stride=dims["strides"],
            **{key: dims[key] for key in ("R", "S", "G", "N", "X", "Y")},
        )
        keys = ("T_R", "T_S", "T_C", "T_K", "T_G", "T_N", "T_X_", "T_Y_")
        shape = dense.Tile(*(tile.get(key, 1) for key in keys))
        return dense.run_layer(layer, shape, reference_bounds=True, **options)
    return dense.run(**{key: dims[key] for key in "MNK"}, **{k: tile[k] for k in ("T_M", "T_N", "T_K")}, **options)


def differences(mine: dict[str, Any], theirs: dict[str, Any], path: str = "") -> dict[str, tuple[Any, Any]]:
    """Leaves that differ, by dotted path; a missing leaf is None."""
    found: dict[str, tuple[Any, Any]] = {}
    for key in sorted(set(mine) | set(theirs)):
        here, there = mine.get(key), theirs.get(key)
        if isinstance(here, dict) or isinstance(there, dict):
            found.update(differences(here or {}, there or {}, f"{path}{key}."))
        elif here != there:
            found[path + key] = (here, there)
    return found


def record(run: Run) -> dict[str, Any]:
    """What a reference run says, in the shape of `summary`."""
    memory = run["sdmemory"]
    return {
        "cycles": run["cycles"],
        "weight_reads": memory["N_SRAM_weight_reads"],
        "input_reads": memory["N_SRAM_input_reads"],
        "psum_reads": memory["N_SRAM_psum_reads"],
        "writes": memory["N_SRAM_psum_writes"],
        "counters": run["counters"],
    }


def summary(outcome: Any) -> dict[str, Any]:
    """The same of an outcome, or of anything with these attributes."""
    keys = ("cycles", "weight_reads", "input_reads", "psum_reads", "writes", "counters")
    return {key: getattr(outcome, key) for key in keys}
