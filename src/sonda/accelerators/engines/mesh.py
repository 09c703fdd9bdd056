"""Output-stationary mesh (TPU): every processing element keeps one output and sums K products into it.

Each tile of T_M x T_N outputs is configured (1 cycle), streamed (one step of K per cycle: a weight for each column from
above, an activation for each row from the left) and waited for until its last result is written; then the next starts.

Element (i, j) multiplies step k once both operands are there, passes them on and is busy for that cycle:
x(i, j, k) = max(left, top, x(i, j, k-1) + 1). A read port sends one operand a cycle, so operands of one edge input
are at least one cycle apart, waiting for the previous step never decides, and the recurrence closes: x(i, j, k) = i +
j + max(max over i' <= i of row arrival - i', max over j' <= j of column arrival - j').
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.engines.fabric import collection, instances
from sonda.accelerators.engines.result import Count, Counters, Result
from sonda.record.errors import SondaError
from sonda.record.jit import compiled

Whole = NDArray[np.int64]


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
    lengths = _tile_lengths(hardware, np.array([(rows, columns, product.k) for rows, columns, _ in shapes], np.int64))
    return _result(hardware, product, _Tiles(*(sum(counts) for counts in zip(
        *(_sum_tiles(product.k, *shape, *length) for shape, length in zip(shapes, lengths.tolist(), strict=True)),
        strict=True,
    ))))  # fmt: skip


def simulate_all(hardware: Hardware, products: Whole, tiles: Whole) -> Result:
    """Many products (rows of an array: M, N, K), each under a tile of its own (rows and columns of outputs), at once.

    Every count is an array with an element for each product, as `simulate` gives it. Raises SondaError where the mesh
    cannot run one of them; which, only one by one can say.
    """
    m, n, k = products.T
    for extreme in (np.min, np.max):
        _check(hardware, Product(*extreme(products, axis=0).tolist()), MeshTile(*extreme(tiles, axis=0).tolist()))
    high, wide = (np.stack((part, whole % part)) for part, whole in ((tiles[:, 0], m), (tiles[:, 1], n)))
    down, across = (np.stack((whole // part, whole % part > 0)) for part, whole in ((tiles[:, 0], m), (tiles[:, 1], n)))
    # Sides x sides x products: full tiles, and those cut at the borders.
    sides = np.broadcast_arrays(high[:, None], wide[None], k)
    counts = down[:, None] * across[None]
    there = counts > 0
    given = np.stack([side[there] for side in sides], axis=1)
    shapes, which = _distinct_rows(given)
    lengths = _tile_lengths(hardware, shapes)
    timings = np.zeros((2, *there.shape), np.int64)
    timings[:, there] = lengths[which].T
    of_shapes = _sum_tiles(k, sides[0], sides[1], counts, timings[0], timings[1])
    sums = _Tiles(*(values.sum(axis=(0, 1)) for values in of_shapes))
    return _result(hardware, Product(m, n, k), sums)


class _Tiles(NamedTuple):
    """Sums over all tiles of a product."""

    cycles: Count
    distribution: Count
    writeback: Count
    weight_reads: Count
    input_reads: Count
    hops: Count
    tiles: Count


def _sum_tiles(k: Count, rows: Count, columns: Count, count: Count, last_product: Count, length: Count) -> _Tiles:
    """Sums over `count` tiles of one shape; a tile takes `length` cycles."""
    return _Tiles(
        cycles=count * length,
        distribution=count * (last_product - 1 - k),
        writeback=count * (length - last_product - 2),
        weight_reads=count * k * columns,
        input_reads=count * k * rows,
        hops=count * k * ((rows - 1) * columns + (columns - 1) * rows),
        tiles=count,
    )


def _result(hardware: Hardware, product: Product, sums: _Tiles) -> Result:
    outputs = product.m * product.n
    reads = sums.weight_reads + sums.input_reads
    return Result(
        cycles=sums.cycles,
        weight_reads=sums.weight_reads,
        input_reads=sums.input_reads,
        psum_reads=0 * outputs,
        writes=outputs,
        multiplications=outputs * product.k,
        counters=_counters(hardware, product.k, sums.tiles, reads, outputs, sums.hops),
        stack={
            "distribution": sums.distribution,
            "compute": sums.tiles * product.k,
            "reduction": 2 * sums.tiles,
            "writeback": sums.writeback,
            "configuration": sums.tiles,
        },
    )


def _distinct_rows(rows: Whole) -> tuple[Whole, Whole]:
    """Each row once, and which of them stands where."""
    places: dict[bytes, int] = {}
    which = [places.setdefault(row.tobytes(), len(places)) for row in rows]
    return np.frombuffer(b"".join(places), np.int64).reshape(-1, rows.shape[1]), np.array(which)


def _check(hardware: Hardware, product: Product, tile: MeshTile) -> None:
    hardware.check()
    if hardware.rows < 1 or hardware.columns < 1:
        raise SondaError(
            f"rows = {hardware.rows}, columns = {hardware.columns} is not a mesh", "give at least 1 of each"
        )
    hardware.check_mesh_ports()
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


def _tile_lengths(hardware: Hardware, shapes: Whole) -> Whole:
    """What `_lengths` says of tiles of these shapes."""
    lengths = np.zeros((len(shapes), 2), np.int64)
    sides = (hardware.rows, hardware.columns, hardware.read_ports, hardware.write_ports)
    compiled(_lengths, _ascend)(*sides, shapes, lengths)
    return lengths


def _ascend(keys: Whole, beside: Whole) -> None:
    """Put keys in ascending order, and what stands beside them along: by counting where they are close together, else
    as a heap.

    Not by numba's own sort: a kernel with it, kept in the cache, was once seen to order sixteen values wrongly.
    """
    count = len(keys)
    least = most = keys[0]
    for at in range(count):
        least = min(least, keys[at])
        most = max(most, keys[at])
    if most - least <= 8 * count + 1024:
        begin = np.zeros(most - least + 2, np.int64)
        for at in range(count):
            begin[keys[at] - least + 1] += 1
        for key in range(most - least + 1):
            begin[key + 1] += begin[key]
        ordered = np.empty(count, np.int64)
        along = np.empty(count, np.int64)
        for at in range(count):
            place = begin[keys[at] - least]
            begin[keys[at] - least] += 1
            ordered[place] = keys[at]
            along[place] = beside[at]
        for at in range(count):
            keys[at] = ordered[at]
            beside[at] = along[at]
        return
    start, end = count // 2, count
    while end > 1:
        if start > 0:
            start -= 1
        else:
            end -= 1
            keys[0], keys[end] = keys[end], keys[0]
            beside[0], beside[end] = beside[end], beside[0]
        root = start
        child = 2 * root + 1
        while child < end:
            if child + 1 < end and keys[child + 1] > keys[child]:
                child += 1
            if keys[root] >= keys[child]:
                break
            keys[root], keys[child] = keys[child], keys[root]
            beside[root], beside[child] = beside[child], beside[root]
            root = child
            child = 2 * root + 1


def _lengths(mesh_rows: int, mesh_columns: int, ports: int, lines: int, shapes: Whole, out: Whole) -> None:
    """Of tiles (rows, columns and steps of each): the cycle of the last product, and that in which the last result is
    written, the tile starting in cycle 1.

    A line of the bus forwards one result a cycle; the memory, a cycle later, takes half of what waits, rounded up.
    """
    per_port = (mesh_rows + mesh_columns) // ports
    later = 1 if per_port > 1 else 0
    for shape_number in range(len(shapes)):
        rows, columns, steps = shapes[shape_number]
        sent = np.zeros(ports, np.int64)
        for side in range(columns):
            sent[side // per_port] += 1
        for side in range(rows):
            sent[(mesh_columns + side) // per_port] += 1
        place = np.zeros(ports, np.int64)
        above = np.empty(columns, np.int64)
        left = np.empty(rows, np.int64)
        latest = 0
        for side in range(columns):
            port = side // per_port
            arrival = 2 + (steps - 1) * sent[port] + place[port] + later
            place[port] += 1
            latest = arrival - side if side == 0 else max(latest, arrival - side)
            above[side] = latest
        for side in range(rows):
            port = (mesh_columns + side) // per_port
            arrival = 2 + (steps - 1) * sent[port] + place[port] + later
            place[port] += 1
            latest = arrival - side if side == 0 else max(latest, arrival - side)
            left[side] = latest
        elements = rows * columns
        first = max(left[0], above[0]) + 2
        last = max(left[rows - 1], above[columns - 1]) + rows + columns
        out[shape_number, 0] = last - 2
        # Results in the order in which they are offered; by counting where they are close in time, else by sorting.
        offered = np.empty(elements, np.int64)
        line = np.empty(elements, np.int64)
        if last - first <= 8 * elements + 1024:
            begin = np.zeros(last - first + 2, np.int64)
            for i in range(rows):
                for j in range(columns):
                    begin[max(left[i], above[j]) + i + j + 3 - first] += 1
            for cycle in range(last - first + 1):
                begin[cycle + 1] += begin[cycle]
            for i in range(rows):
                for j in range(columns):
                    cycle = max(left[i], above[j]) + i + j + 2
                    at = begin[cycle - first]
                    begin[cycle - first] += 1
                    offered[at] = cycle
                    line[at] = (i * mesh_columns + j) % lines
        else:
            for i in range(rows):
                for j in range(columns):
                    offered[i * columns + j] = max(left[i], above[j]) + i + j + 2
                    line[i * columns + j] = (i * mesh_columns + j) % lines
            _ascend(offered, line)
        # The cycle from which on a line is free; results that find it busy leave later, so that order may change.
        free = np.zeros(lines, np.int64)
        waited = False
        for at in range(elements):
            if free[line[at]] > offered[at]:
                offered[at] = free[line[at]]
                waited = True
            free[line[at]] = offered[at] + 1
        if waited:
            _ascend(offered, line)
        waiting = arriving = 0
        before = first
        for at in range(elements):
            if offered[at] > before:
                waiting = (waiting + arriving) >> min(offered[at] - before, 62)
                before = offered[at]
                arriving = 0
            arriving += 1
        waiting = (waiting + arriving) >> 1
        cycle = before + 1
        while waiting > 0:
            waiting >>= 1
            cycle += 1
        out[shape_number, 1] = cycle


def _counters(hardware: Hardware, k: Count, tiles: Count, packages: Count, outputs: Count, hops: Count) -> Counters:
    rows, columns = hardware.rows, hardware.columns
    elements = rows * columns
    products = outputs * k
    per_port = (rows + columns) // hardware.read_ports
    levels = per_port.bit_length() - 1
    wires = hardware.read_ports * (2 * per_port - 1)
    distribution = {"DN_WIRE": {"entries": wires, "WRITE": packages * (1 + levels), "READ": 0}}
    if per_port > 1:
        distribution["SWITCH"] = {
            "entries": hardware.read_ports * (per_port - 1),
            "ROUTE_UNICAST": packages * levels,
            "ROUTE_BROADCAST": 0,
        }
    passed = 3 * products + hops
    multiplied = instances.multipliers(hardware)
    # A mesh sums in its accumulators, whatever network its description names.
    summed = instances.reduction(replace(hardware, reduction="TEMPORALRN"))
    return {
        "DSNetwork": distribution,
        "MSNetwork": {
            "MN_WIRE": {"entries": multiplied["MN_WIRE"], "WRITE": hops, "READ": 0},
            "MULTIPLIER": {
                "entries": multiplied["MULTIPLIER"],
                "MULTIPLICATION": products,
                "CONFIGURATION": elements * tiles,
            },
            "FIFO": {"entries": multiplied["FIFO"], "PUSH": passed, "POP": passed, "FRONT": 0},
        },
        "ReduceNetwork": {
            "RN_WIRE": {"entries": summed["RN_WIRE"], "WRITE": products, "READ": 0},
            "ACCUMULATOR": {
                "entries": summed["ACCUMULATOR"],
                "READ": products - outputs,
                "WRITE": products,
                "ADD": products - outputs,
            },
            "FIFO": {
                "entries": summed["FIFO"],
                "PUSH": products + outputs,
                "POP": products + outputs,
                "FRONT": 0,
            },
        },
        "GlobalBuffer": {"GLOBALBUFFER": {"entries": 1, "READ": packages, "WRITE": outputs}},
        "CollectionBus": collection.activity(hardware, outputs),
    }
