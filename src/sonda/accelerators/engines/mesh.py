"""Output-stationary mesh (TPU): every processing element keeps one output and sums K products into it.

Each tile of T_M x T_N outputs is configured (1 cycle), streamed (one step of K per cycle: a weight for each column from
above, an activation for each row from the left) and waited for until its last result is written; then the next starts.

Element (i, j) multiplies step k once both operands are there, passes them on and is busy for that cycle:
x(i, j, k) = max(left, top, x(i, j, k-1) + 1). A read port sends one operand a cycle, so operands of one edge input
are at least one cycle apart, waiting for the previous step never decides, and the recurrence closes: x(i, j, k) = i +
j + max(max over i' <= i of row arrival - i', max over j' <= j of column arrival - j').
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sonda.accelerators.hardware import Hardware
from sonda.accelerators.result import Counters, Result
from sonda.record.errors import SondaError


@dataclass(frozen=True)
class Product:
    """A dense matrix product, M x K by K x N."""

    m: int
    n: int
    k: int


@dataclass(frozen=True)
class MeshTile:
    """Outputs computed at once: `rows` of the first matrix by `columns` of the second."""

    rows: int
    columns: int


def simulate(hardware: Hardware, product: Product, tile: MeshTile) -> Result:
    """Cycles, accesses and counters of a product on a mesh; not data dependent. Raises SondaError where it cannot be.

    The stack: `configuration`, 1 cycle a tile; `compute`, K cycles a tile, one for each step that is streamed;
    `distribution`, what the last product waits beyond that (shared ports, skew through the mesh);
    `reduction`, from the last product until its sum is offered to the collection bus; `writeback`, the rest.
    """
    _check(hardware, product, tile)
    shapes = _tile_shapes(product, tile)
    cycles = distribution = writeback = weight_reads = input_reads = hops = 0
    for rows, columns, count in shapes:
        last_product, length = _tile_length(hardware, rows, columns, product.k)
        cycles += count * length
        distribution += count * (last_product - 1 - product.k)
        writeback += count * (length - last_product - 2)
        weight_reads += count * product.k * columns
        input_reads += count * product.k * rows
        hops += count * product.k * ((rows - 1) * columns + (columns - 1) * rows)
    tiles = sum(count for _, _, count in shapes)
    outputs = product.m * product.n
    return Result(
        cycles=cycles,
        weight_reads=weight_reads,
        input_reads=input_reads,
        psum_reads=0,
        writes=outputs,
        multiplications=outputs * product.k,
        counters=_counters(hardware, product.k, tiles, weight_reads + input_reads, outputs, hops),
        stack={
            "distribution": distribution,
            "compute": tiles * product.k,
            "reduction": 2 * tiles,
            "writeback": writeback,
            "configuration": tiles,
        },
    )


def _check(hardware: Hardware, product: Product, tile: MeshTile) -> None:
    hardware.check()
    if hardware.rows < 1 or hardware.columns < 1:
        raise SondaError(
            f"rows = {hardware.rows}, columns = {hardware.columns} is not a mesh", "give at least 1 of each"
        )
    inputs = hardware.rows + hardware.columns
    per_port, rest = divmod(inputs, hardware.read_ports)
    if rest or per_port & (per_port - 1):
        raise SondaError(
            f"read_ports = {hardware.read_ports} does not share the {inputs} inputs of the mesh by a power of two",
            "make rows + columns a power of two times read_ports",
        )
    elements = hardware.rows * hardware.columns
    bus_inputs = hardware.multipliers // hardware.write_ports + 1
    if -(-elements // hardware.write_ports) > bus_inputs:
        raise SondaError(
            f"write_ports = {hardware.write_ports} and multipliers = {hardware.multipliers} give {bus_inputs} inputs "
            f"per bus line, too few for {elements} processing elements",
            f"set multipliers = {1 << (elements - 1).bit_length()}",
        )
    for name, value in (("M", product.m), ("N", product.n), ("K", product.k)):
        if not 1 <= value <= 1 << 40:
            raise SondaError(f"{name} = {value} is not a size from 1 to 2^40", f"change {name}")
    for name, value, limit in (("T_M", tile.rows, hardware.rows), ("T_N", tile.columns, hardware.columns)):
        if not 1 <= value <= limit:
            raise SondaError(f"{name} = {value} does not fit the mesh's {limit}", f"give {name} from 1 to {limit}")


def _tile_shapes(product: Product, tile: MeshTile) -> list[tuple[int, int, int]]:
    """(rows, columns, number of tiles) of the at most four shapes: full tiles and those cut at the borders."""
    full_m, rest_m = divmod(product.m, tile.rows)
    full_n, rest_n = divmod(product.n, tile.columns)
    sides_m = [(tile.rows, full_m), (rest_m, 1)]
    sides_n = [(tile.columns, full_n), (rest_n, 1)]
    return [(r, c, a * b) for r, a in sides_m for c, b in sides_n if r and c and a and b]


def _tile_length(hardware: Hardware, rows: int, columns: int, k: int) -> tuple[int, int]:
    """(cycle of the tile's last product, cycle in which its last result is written), the tile starting in cycle 1."""
    per_port = (hardware.rows + hardware.columns) // hardware.read_ports
    used = np.concatenate((np.arange(columns), hardware.columns + np.arange(rows)))
    port = used // per_port
    sent_per_step = np.bincount(port)
    first_of_port = np.concatenate(([0], np.cumsum(sent_per_step)[:-1]))
    place = np.arange(used.size) - first_of_port[port]
    arrival = 2 + (k - 1) * sent_per_step[port] + place + (per_port > 1)
    column = np.maximum.accumulate(arrival[:columns] - np.arange(columns))
    row = np.maximum.accumulate(arrival[columns:] - np.arange(rows))
    fired = np.maximum(row[:, None], column) + np.arange(rows)[:, None] + np.arange(columns)
    lines = (np.arange(rows)[:, None] * hardware.columns + np.arange(columns)) % hardware.write_ports
    return int(fired[-1, -1]), _written(fired.ravel() + 2, lines.ravel(), hardware.write_ports)


def _written(offered: np.ndarray, lines: np.ndarray, n_lines: int) -> int:
    """Cycle in which the memory takes the last of the results offered to the bus in these cycles on these lines.

    A line forwards one result a cycle; the memory, a cycle later, takes half of what waits, rounded up.
    """
    first = int(offered.min())
    if offered.size > n_lines or int(np.bincount(lines).max()) > 1:
        order = np.lexsort((offered, lines))
        offered, lines = offered[order], lines[order]
        begins = np.flatnonzero(np.concatenate(([True], lines[1:] != lines[:-1])))
        place = np.arange(lines.size) - np.repeat(begins, np.diff(np.append(begins, lines.size)))
        # n-th departure of a line = n + max over m <= n of (offered - m); lines kept apart by a big step per line.
        apart = np.cumsum(np.concatenate(([0], lines[1:] != lines[:-1]))) * (
            int(offered.max()) - first + lines.size + 1
        )
        offered = np.maximum.accumulate(offered - place + apart) - apart + place
    waiting = 0
    cycle = first
    for arriving in np.bincount(offered - first).tolist():
        cycle += 1
        waiting = (waiting + arriving) >> 1
    return cycle + waiting.bit_length()


def _counters(hardware: Hardware, k: int, tiles: int, packages: int, outputs: int, hops: int) -> Counters:
    rows, columns = hardware.rows, hardware.columns
    elements = rows * columns
    products = outputs * k
    per_port = (rows + columns) // hardware.read_ports
    levels = per_port.bit_length() - 1
    bus_inputs = hardware.multipliers // hardware.write_ports + 1
    wires = hardware.read_ports * (2 * per_port - 1)
    distribution = {"DN_WIRE": {"entries": wires, "WRITE": packages * (1 + levels), "READ": 0}}
    if per_port > 1:
        distribution["SWITCH"] = {
            "entries": hardware.read_ports * (per_port - 1),
            "ROUTE_UNICAST": packages * levels,
            "ROUTE_BROADCAST": 0,
        }
    mesh_wires = rows * (columns - 1) + columns * (rows - 1)
    passed = 3 * products + hops
    return {
        "DSNetwork": distribution,
        "MSNetwork": {
            "MN_WIRE": {"entries": mesh_wires, "WRITE": hops, "READ": 0},
            "MULTIPLIER": {"entries": elements, "MULTIPLICATION": products, "CONFIGURATION": elements * tiles},
            "FIFO": {"entries": 5 * elements, "PUSH": passed, "POP": passed, "FRONT": 0},
        },
        "ReduceNetwork": {
            "RN_WIRE": {"entries": elements, "WRITE": products, "READ": 0},
            "ACCUMULATOR": {
                "entries": elements,
                "READ": products - outputs,
                "WRITE": products,
                "ADD": products - outputs,
            },
            "FIFO": {"entries": 2 * elements, "PUSH": products + outputs, "POP": products + outputs, "FRONT": 0},
        },
        "GlobalBuffer": {"GLOBALBUFFER": {"entries": 1, "READ": packages, "WRITE": outputs}},
        "CollectionBus": {
            "CB_WIRE": {"entries": hardware.write_ports * (bus_inputs + 1), "WRITE": 2 * outputs, "READ": 0},
            "FIFO": {"entries": hardware.write_ports * bus_inputs, "PUSH": outputs, "POP": outputs, "FRONT": 0},
        },
    }
