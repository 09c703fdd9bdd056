"""Which packages of a tile go to which read port, in which order, and what they cost on the way."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Whole = NDArray[np.int64]


def packages(
    kinds: int, span: int, extra: int, stride: int, tile: Whole, count: Whole, place: Whole, routing: Whole
) -> None:
    """Deals out the packages of one tile: row 0 weights, row 1 all inputs, row 2 only the last column of inputs.

    The first `kinds` rows are dealt. `tile` holds T_R, T_S, T_C, T_K, T_G, T_N, T_X', T_Y'; `extra` is 1 where every
    virtual neuron begins with a multiplier for partial sums; `span` multipliers share a port. Fills `count` (packages
    per port, given as 0), `place` (per multiplier: the place of its package in the queue of its port; -1 where it gets
    none) and `routing` (entries, wires, switches passed to one side, switches passed to both).
    """
    t_r, t_s, t_c, t_k = tile[0], tile[1], tile[2], tile[3]
    t_g, t_n, t_x, t_y = tile[4], tile[5], tile[6], tile[7]
    size = t_r * t_s * t_c + extra
    levels = 0
    while (1 << levels) < span:
        levels += 1
    place[:] = -1
    # The package that last passed each node of the ports' trees; level 0 the multipliers, the highest the ports.
    seen = np.full((levels + 1, place.shape[1]), -1, np.int64)
    used = np.zeros(levels + 1, np.int64)
    package = 0
    for kind in range(kinds):
        used[:] = 0
        # Weights are dealt by filter and element, inputs by position; each goes to the copies inside.
        height = t_r if kind == 0 else t_r + (t_x - 1) * stride
        width = t_s if kind == 0 else t_s + (t_y - 1) * stride
        outer = t_g * t_k * t_c if kind == 0 else 1
        inner = 1 if kind == 0 else t_n * t_g * t_c
        copies = t_n if kind == 0 else t_k
        for gkc in range(outer):
            for ix in range(height):
                x_first, x_last = 0, t_x - 1
                if kind:
                    x_first = max(0, (ix - t_r + stride) // stride)
                    x_last = min(t_x - 1, ix // stride)
                for iy in range(width - 1 if kind == 2 else 0, width):
                    y_first, y_last = 0, t_y - 1
                    if kind:
                        y_first = max(0, (iy - t_s + stride) // stride)
                        y_last = min(t_y - 1, iy // stride)
                    for ngc in range(inner):
                        c = (ngc if kind else gkc) % t_c
                        for copy in range(copies):
                            if kind:
                                above = ngc // t_c * t_k + copy
                            else:
                                above = copy * t_g * t_k + gkc // t_c
                            for x in range(x_first, x_last + 1):
                                for y in range(y_first, y_last + 1):
                                    element = c * t_r * t_s + ix * t_s + iy
                                    if kind:
                                        element -= x * stride * t_s + y * stride
                                    m = ((above * t_x + x) * t_y + y) * size + extra + element
                                    node = m
                                    for level in range(levels + 1):
                                        if seen[level, node] == package:
                                            break
                                        seen[level, node] = package
                                        used[level] += 1
                                        if level == levels:
                                            count[kind, node] += 1
                                        node >>= 1
                                    place[kind, m] = count[kind, m >> levels] - 1
                        package += 1
        routing[kind, 0] = routing[kind, 1] = used[levels]
        for level in range(levels):
            routing[kind, 1] += used[level]
            routing[kind, 2] += 2 * used[level + 1] - used[level]
            routing[kind, 3] += used[level] - used[level + 1]


def packages_all(
    span: int, kinds: Whole, extra: Whole, stride: Whole, tiles: Whole, count: Whole, place: Whole, routing: Whole
) -> None:
    """The packages of many tiles, one after the other: an element, or the first index of an array, for each."""
    for one in range(len(kinds)):
        packages(kinds[one], span, extra[one], stride[one], tiles[one], count[one], place[one], routing[one])
        if kinds[one] == 2:
            # All windows get what the first of a row gets.
            count[one, 2] = count[one, 1]
            place[one, 2] = place[one, 1]
