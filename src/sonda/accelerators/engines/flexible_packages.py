"""Which packages of a tile go to which read port, in which order, and what they cost on the way."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Whole = NDArray[np.int64]


def packages(cases: Whole, room: Whole, count: Whole, place: Whole, routing: Whole) -> int:
    """Deals out the packages of many tiles: kind 0 weights, 1 all inputs, 2 only the last column of inputs.

    A row of `cases` holds how many kinds are dealt (of two, the inputs count as the last column too), how many
    multipliers share a port, 1 where every virtual neuron begins with a multiplier for partial sums, the stride, the
    ports, the multipliers, and T_R, T_S, T_C, T_K, T_G, T_N, T_X', T_Y'. Fills for each case and kind `count` (packages
    per port), `place` (per multiplier: the place of its package in the queue of its port; -1 where it gets none) and
    `routing` (entries, wires, switches passed to one side, switches passed to both), all but `place` given as 0.
    Row 3 of `count` numbers the ports' loads: ports with equal ones have the same number, unused ones -1. Returns the
    most different loads of a case. `room` is for own use, given as 0: a row and one for each level of the ports' trees.
    """
    # Counters begin as np.int64, because a plain 0 costs the compiler a round of typing for each loop around it.
    package = np.int64(0)
    most: Any = np.int64(0)
    used = room[0]
    for case_number in range(len(cases)):
        case = cases[case_number]
        kinds = case[0]
        span = case[1]
        extra = case[2]
        stride = case[3]
        ports = case[4]
        multipliers = case[5]
        t_r = case[6]
        t_s = case[7]
        t_c = case[8]
        t_k = case[9]
        t_g = case[10]
        t_n = case[11]
        t_x = case[12]
        t_y = case[13]
        size = t_r * t_s * t_c + extra
        levels = np.int64(0)
        while (1 << levels) < span:
            levels += 1
        for kind in range(3):
            sent = count[case_number, kind]
            places = place[case_number, kind]
            routed = routing[case_number, kind]
            if kind == kinds:
                # All windows get what the first of a row gets.
                for port in range(ports):
                    sent[port] = count[case_number, 1, port]
                for m in range(multipliers):
                    places[m] = place[case_number, 1, m]
                continue
            for level in range(levels + 1):
                used[level] = 0
            for m in range(multipliers):
                places[m] = -1
            # Weights are dealt by filter and element, inputs by position; each goes to the copies inside.
            height = t_r if kind == 0 else t_r + (t_x - 1) * stride
            width = t_s if kind == 0 else t_s + (t_y - 1) * stride
            outer = t_g * t_k * t_c if kind == 0 else 1
            inner = 1 if kind == 0 else t_n * t_g * t_c
            copies = t_n if kind == 0 else t_k
            for gkc in range(outer):
                for ix in range(height):
                    x_first = 0
                    x_last = t_x - 1
                    if kind:
                        x_first = max(0, (ix - t_r + stride) // stride)
                        x_last = min(x_last, ix // stride)
                    for iy in range(width - 1 if kind == 2 else 0, width):
                        y_first = 0
                        y_last = t_y - 1
                        if kind:
                            y_first = max(0, (iy - t_s + stride) // stride)
                            y_last = min(y_last, iy // stride)
                        for ngc in range(inner):
                            # Nodes of the ports' trees remember the package that last passed; none has number 0.
                            package += 1
                            c = (ngc if kind else gkc) % t_c
                            for copy in range(copies):
                                above = copy * t_g * t_k + gkc // t_c
                                if kind:
                                    above = ngc // t_c * t_k + copy
                                for x in range(x_first, x_last + 1):
                                    for y in range(y_first, y_last + 1):
                                        element = c * t_r * t_s + ix * t_s + iy
                                        if kind:
                                            element -= x * stride * t_s + y * stride
                                        m = ((above * t_x + x) * t_y + y) * size + extra + element
                                        node = m
                                        for level in range(levels + 1):
                                            if room[level + 1, node] == package:
                                                break
                                            room[level + 1, node] = package
                                            used[level] += 1
                                            if level == levels:
                                                sent[node] += 1
                                            node >>= 1
                                        places[m] = sent[m >> levels] - 1
            routed[0] = routed[1] = used[levels]
            for level in range(levels):
                routed[1] += used[level]
                routed[2] += 2 * used[level + 1] - used[level]
                routed[3] += used[level] - used[level + 1]
        loads = count[case_number]
        distinct = np.int64(0)
        for port in range(ports):
            loads[3, port] = -1
            if loads[0, port]:
                loads[3, port] = distinct
                for other in range(port):
                    if (
                        loads[0, other] == loads[0, port]
                        and loads[1, other] == loads[1, port]
                        and loads[2, other] == loads[2, port]
                    ):
                        loads[3, port] = loads[3, other]
                        break
                if loads[3, port] == distinct:
                    distinct += 1
        most = max(most, distinct)
    return most
