"""The collection bus and the write side of the global buffer: results on their way out.

The bus has one line per write port. A line takes every result that is offered in a cycle and forwards one per cycle,
in that cycle at the earliest; the buffer sees it in the next cycle. The buffer keeps the arrivals of all lines in one
queue and consumes ceil(n/2) of its n entries per cycle, those that have just arrived included. When the last result is
consumed, the engines' kernels find out; here is what the bus did.
"""

from __future__ import annotations

from sonda.accelerators.description.hardware import Hardware


def activity(hardware: Hardware, results: int) -> dict[str, dict[str, int]]:
    """The counters of the section CollectionBus after `results` results."""
    lines, inputs = hardware.write_ports, hardware.multipliers // hardware.write_ports
    return {
        "CB_WIRE": {"entries": lines * (inputs + 2), "WRITE": 2 * results, "READ": 0},
        "FIFO": {"entries": lines * (inputs + 1), "PUSH": results, "POP": results, "FRONT": 0},
    }
