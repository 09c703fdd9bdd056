"""The collection bus and the write side of the global buffer: results on their way out.

The bus has one line per write port. A line takes every result that is offered in a cycle and forwards one per cycle,
in that cycle at the earliest; the buffer sees it in the next cycle. The buffer keeps the arrivals of all lines in one
queue and consumes ceil(n/2) of its n entries per cycle, those that have just arrived included.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sonda.accelerators.compiled import compiled
from sonda.accelerators.hardware import Hardware

Whole = NDArray[np.int64]


def drained(hardware: Hardware, offered: Whole, line: Whole) -> int:
    """The cycle in which the last of these results is consumed, the bus and the queue being empty before.

    `offered` are the cycles in which results reach the bus, in any order, `line` their lines.
    """
    order = np.argsort(offered, kind="stable")
    return int(compiled(_drain)(offered[order], line[order], np.zeros(hardware.write_ports, np.int64)))


def _drain(offered: Whole, line: Whole, queued: Whole) -> int:
    """Steps only cycles in which a result is on its way."""
    active = np.empty(len(queued), np.int64)
    count = 0
    written = arriving = 0
    taken = 0
    cycle = 0
    while taken < len(offered) or count or written or arriving:
        cycle += 1
        if not count and not written and not arriving:
            cycle = max(cycle, offered[taken])
        written += arriving
        written //= 2
        while taken < len(offered) and offered[taken] <= cycle:
            if not queued[line[taken]]:
                active[count] = line[taken]
                count += 1
            queued[line[taken]] += 1
            taken += 1
        arriving = count
        kept = 0
        for place in range(count):
            queued[active[place]] -= 1
            if queued[active[place]]:
                active[kept] = active[place]
                kept += 1
        count = kept
    return cycle


def activity(hardware: Hardware, results: int) -> dict[str, dict[str, int]]:
    """The counters of the section CollectionBus after `results` results."""
    lines, inputs = hardware.write_ports, hardware.multipliers // hardware.write_ports
    return {
        "CB_WIRE": {"entries": lines * (inputs + 2), "WRITE": 2 * results, "READ": 0},
        "FIFO": {"entries": lines * (inputs + 1), "PUSH": results, "POP": results, "FRONT": 0},
    }
