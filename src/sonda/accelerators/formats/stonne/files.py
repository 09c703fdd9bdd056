"""STONNE's files: its `.cfg` read, its `.counters` and `.txt` written, so that scripts made for it go on working.

Written as STONNE writes them: names of files, sections, components, operations, keys of the JSON. Two things differ.
Sonda counts per component and not per instance, so in `.counters` the line of the first instance of a component has all
of its counts and those of the others only its name: sums, static energy and area, which STONNE's script forms over the
lines, are the same, in a quarter of the space.
In `.txt` what Sonda does not know is left out: the configuration and statistics of single switches, and the use of
single ports. Counts are whole; STONNE's wrap at 2^32.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sonda.accelerators.description.engine import EngineDescription
from sonda.accelerators.description.fields import DescriptionMistakes, Fields, parse_toml
from sonda.accelerators.description.hardware import CONTROLLERS, REDUCTIONS, Hardware
from sonda.accelerators.engines.result import INSTANCES, Result
from sonda.accelerators.operations.layer import StonneLayer, Tile
from sonda.record.errors import SondaError

KIND_OF = {
    "MAERI_DENSE_WORKLOAD": "flexible_dense",
    "SIGMA_SPARSE_GEMM": "bitmap_sparse",
    "MAGMA_SPARSE_DENSE": "compressed_row",
    "TPU_OS_DENSE": "mesh",
}
"""The kind of engine that STONNE's controllers drive."""
STONNE_KINDS = (*KIND_OF.values(), "outer_product", "gustavson")
"""Kinds of engine that STONNE has; the last two only in a variant of it."""
EFFECTIVE = {
    "MSNetwork": ("type", "ms_size", "ms_rows", "ms_cols"),
    "ReduceNetwork": ("type", "accumulation_buffer_enabled"),
    "SDMemory": ("dn_bw", "rn_bw", "controller_type"),
}
WITHOUT_EFFECT = {
    "DSNetwork": ("n_switches_traversed_by_cycle",),
    "DSwitch": ("latency", "input_ports", "output_ports", "port_width"),
    "MSwitch": ("latency", "input_ports", "output_ports", "forwarding_ports", "port_width", "buffers_capacity"),
    "ASwitch": ("latency", "input_ports", "output_ports", "forwarding_ports", "port_width", "buffers_capacity"),
    "LookUpTable": ("latency", "port_width"),
    "SDMemory": ("port_width",),
}
"""Keys that STONNE reads and does not use."""
STONNE_DEFAULTS = {
    "DSNetwork": {"n_switches_traversed_by_cycle": 23},
    "DSwitch": {"latency": 1, "input_ports": 1, "output_ports": 2, "port_width": 16},
    "MSwitch": {
        "latency": 1,
        "input_ports": 1,
        "output_ports": 1,
        "forwarding_ports": 1,
        "port_width": 16,
        "buffers_capacity": 2048,
    },
    "ASwitch": {
        "latency": 1,
        "input_ports": 2,
        "output_ports": 1,
        "forwarding_ports": 1,
        "port_width": 16,
        "buffers_capacity": 256,
    },
    "LookUpTable": {"latency": 1, "port_width": 1},
}
"""What STONNE prints for the settings that it does not use, unless its user changes them."""
SECTIONS = ("DSNetwork", "MSNetwork", "ReduceNetwork", "GlobalBuffer", "CollectionBus")
OPERATIONS_PRINTED = {
    "DN_WIRE": ("WRITE", "READ"),
    "SWITCH": ("ROUTE_UNICAST", "ROUTE_BROADCAST"),
    "MN_WIRE": ("WRITE", "READ"),
    "FIFO": ("PUSH", "POP", "FRONT"),
    "RN_WIRE": ("WRITE", "READ"),
    "ADDER": ("ADD_2_1", "ADD_3_1", "CONFIGURATION"),
    "ACCUMULATOR": ("READ", "WRITE", "ADD"),
    "GLOBALBUFFER": ("READ", "WRITE"),
    "CB_WIRE": ("WRITE", "READ"),
}
"""In STONNE's order; a mesh's MULTIPLIER lacks FORWARD_PSUM, so it is printed as it is counted."""
LAYER_TYPES = {"CONV": 0, "POOL": 1, "FC": 2, "GEMM": 3, "SPARSE_DENSE": 4}
"""STONNE prints the number."""
DATAFLOW_OF = {
    "MAERI_DENSE_WORKLOAD": "CNN_DATAFLOW",
    "TPU_OS_DENSE": "CNN_DATAFLOW",
    "MAGMA_SPARSE_DENSE": "SPARSE_DENSE_DATAFLOW",
}
"""SIGMA has two, so it must be said."""
STONNE_NAMES = {
    "multipliers": "MSNetwork.ms_size",
    "rows": "MSNetwork.ms_rows",
    "columns": "MSNetwork.ms_cols",
    "read_ports": "SDMemory.dn_bw",
    "write_ports": "SDMemory.rn_bw",
    "reduction": "ReduceNetwork.type",
    "accumulators": "ReduceNetwork.accumulation_buffer_enabled",
}


def use_stonne_names(text: str) -> str:
    """A message about hardware, its fields named as in a `.cfg`."""
    fields = "|".join(STONNE_NAMES)
    return re.sub(rf"\b({fields})(?= = )|(?<=; change )({fields})\b", lambda match: STONNE_NAMES[match[0]], text)


def read_configuration(text: str, file: str) -> tuple[str, Hardware]:
    """Kind of engine and hardware of a `.cfg` of STONNE; what it does not give has STONNE's default.

    Raises DescriptionMistakes with a line for each mistake. Settings without effect are accepted, unknown ones are not.
    """
    mistakes: list[str] = []
    top = Fields(parse_toml(text, file), "", mistakes)
    top.note_unknown(("print_stats_enabled", *EFFECTIVE, *WITHOUT_EFFECT))
    for section in {**EFFECTIVE, **WITHOUT_EFFECT}:
        table = top.table(section)
        if table is not None:
            table.note_unknown((*EFFECTIVE.get(section, ()), *WITHOUT_EFFECT.get(section, ())))
    multiplication, reduction, memory = (top.table(name) or Fields({}, f"{name}.", mistakes) for name in EFFECTIVE)
    network = multiplication.one_of("type", ("LINEAR", "OS_MESH"), "LINEAR")
    controller = memory.one_of("controller_type", CONTROLLERS, "MAERI_DENSE_WORKLOAD")
    values = {
        "multipliers": multiplication.whole("ms_size", 64),
        "rows": multiplication.whole("ms_rows", 0),
        "columns": multiplication.whole("ms_cols", 0),
        "read_ports": memory.whole("dn_bw", 4),
        "write_ports": memory.whole("rn_bw", 4),
        "reduction": reduction.one_of("type", REDUCTIONS, "ASNETWORK"),
        "accumulators": _accumulators(reduction, controller == "MAGMA_SPARSE_DENSE"),
        "controller": controller,
    }
    if network is None or controller is None:
        raise DescriptionMistakes(file, mistakes)
    if (network == "OS_MESH") != (controller == "TPU_OS_DENSE"):
        reason = f"{network} does not go with SDMemory.controller_type = {controller}"
        raise DescriptionMistakes(file, [*mistakes, f"MSNetwork.type: {reason}; a mesh is OS_MESH with TPU_OS_DENSE"])
    if network == "LINEAR":
        values |= {"rows": 0, "columns": 0}
    unknown = [name for name, value in values.items() if value is None]
    hardware = Hardware(**{name: value for name, value in values.items() if value is not None})
    engine = EngineDescription("", KIND_OF[controller], hardware)
    mistakes += [use_stonne_names(str(problem)) for problem in engine.problems(unknown)]
    if mistakes:
        raise DescriptionMistakes(file, mistakes)
    return KIND_OF[controller], hardware


def write_stonne_files(
    folder: Path | str,
    name: str,
    hardware: Hardware,
    result: Result,
    *,
    layer: StonneLayer | None = None,
    tile: Tile | None = None,
    layer_type: str | None = None,
    dataflow: str | None = None,
    timestamp: int | None = None,
) -> tuple[Path, Path]:
    """Write `.counters` and `.txt` of one operation into a folder; returns their paths, in this order.

    Files are named as STONNE names them, by layer, hardware and the second of writing. Where that file is already
    there, which STONNE would overwrite, the next free second is taken.
    """
    place = Path(folder)
    clean = "".join(character if character.isalnum() or character in "._-" else "_" for character in name) or "layer"
    second = int(time.time()) if timestamp is None else timestamp
    try:
        place.mkdir(parents=True, exist_ok=True)
        while True:
            base = (
                f"output_stats_layer_{clean}_architecture_MSes_{hardware.multipliers}_dnbw_{hardware.read_ports}"
                f"_rn_bw_{hardware.write_ports}timestamp_{second}"
            )
            counters, statistics = place / f"{base}.counters", place / f"{base}.txt"
            if not counters.exists() and not statistics.exists():
                break
            second += 1
        counters.write_text(counters_text(result), encoding="utf-8")
        document = statistics_document(
            hardware, result, layer=layer, tile=tile, layer_type=layer_type, dataflow=dataflow
        )
        statistics.write_text(json.dumps(document, indent=4) + "\n", encoding="utf-8")
    except OSError as error:
        raise SondaError(f"{place} cannot be written ({error.strerror})", "give another folder") from None
    return counters, statistics


def counters_text(result: Result) -> str:
    """The text of a `.counters` file: cycles, then a line for every instance of every component."""
    return "".join(f"{line}\n" * times for line, times in _counters_lines(result))


def counters_size(result: Result) -> int:
    """Bytes of a `.counters` file."""
    return sum((len(line) + 1) * times for line, times in _counters_lines(result))


def _counters_lines(result: Result) -> Iterator[tuple[str, int]]:
    """Lines, and how often each is repeated."""
    yield f"CYCLES={result.cycles}", 1
    for section in SECTIONS:
        yield f"[{section}]", 1
        for component, counts in result.counters.get(section, {}).items():
            operations = OPERATIONS_PRINTED.get(component) or tuple(key for key in counts if key != INSTANCES)
            if counts[INSTANCES]:
                yield " ".join([component, *(f"{key}={counts.get(key, 0)}" for key in operations)]), 1
                yield component, counts[INSTANCES] - 1
    yield "", 1


def statistics_document(
    hardware: Hardware,
    result: Result,
    *,
    layer: StonneLayer | None = None,
    tile: Tile | None = None,
    layer_type: str | None = None,
    dataflow: str | None = None,
) -> dict[str, Any]:
    """The JSON of a `.txt` file, without what Sonda does not know. `layer_type` is one of LAYER_TYPES."""
    document: dict[str, Any] = {"hardwareConfiguration": _hardware(hardware)}
    if layer is not None:
        kind = {} if layer_type is None else {"Layer_Type": LAYER_TYPES[layer_type]}
        document["LayerConfiguration"] = {**kind, **_layer(layer)}
    if tile is not None:
        folding = layer is not None and tile.folds_through_memory(hardware, layer)
        document["TileConfiguration"] = {
            **{f"T_{letter}": getattr(tile, letter) for letter in "RSCKGN"},
            "T_X_": tile.X,
            "T_Y_": tile.Y,
            "VN_Size": tile.neuron + folding,
            "Num_VNs": tile.neurons,
            "folding_enabled": int(folding),
        }
    document["GlobalStats"] = {"N_cycles": result.cycles}
    document["SDMemoryStats"] = {
        "Total_cycles": result.cycles,
        "N_SRAM_weight_reads": result.weight_reads,
        "N_SRAM_input_reads": result.input_reads,
        "N_SRAM_psum_reads": result.psum_reads,
        "N_SRAM_psum_writes": result.writes,
    }
    used = dataflow or DATAFLOW_OF.get(hardware.controller)
    if used is not None:
        document["SDMemoryStats"]["Dataflow"] = used
    return document


def _accumulators(reduction: Fields, usual: bool) -> bool | None:
    if reduction.is_switch("accumulation_buffer_enabled"):
        return bool(reduction.switch("accumulation_buffer_enabled"))
    value = reduction.whole("accumulation_buffer_enabled", int(usual))
    if value not in (0, 1, None):
        reduction.note_mistake("accumulation_buffer_enabled", f"{value} is not 0 or 1")
    return None if value is None else bool(value)


def _hardware(hardware: Hardware) -> Mapping[str, Any]:
    mesh = hardware.controller == "TPU_OS_DENSE"
    return {
        "print_stats_enabled": 1,
        "DSNetwork": STONNE_DEFAULTS["DSNetwork"],
        "DSwitch": STONNE_DEFAULTS["DSwitch"],
        "MSNetwork": {
            "multiplier_network_type": "OS_MESH" if mesh else "LINEAR",
            "ms_rows": hardware.rows,
            "ms_columns": hardware.columns,
            "ms_size": hardware.multipliers,
        },
        "MSwitch": STONNE_DEFAULTS["MSwitch"],
        "ReduceNetwork": {
            "reduce_network_type": hardware.reduction,
            "accumulation_buffer_enabled": int(hardware.accumulators),
        },
        "ASwitch": STONNE_DEFAULTS["ASwitch"],
        "LookUpTable": STONNE_DEFAULTS["LookUpTable"],
        "SDMemory": {
            "mem_controller_type": hardware.controller,
            "write_buffers_capacity": 256,
            "dn_bw": hardware.read_ports,
            "rn_bw": hardware.write_ports,
            "port_width": 16,
        },
    }


def _layer(layer: StonneLayer) -> dict[str, int]:
    """C and K per group, as STONNE prints them."""
    per_group = {"C": layer.C // layer.G, "K": layer.K // layer.G}
    sizes = {letter: per_group.get(letter, getattr(layer, letter)) for letter in "RSCKGNXY"}
    return {**sizes, "X_": layer.rows, "Y_": layer.columns}
