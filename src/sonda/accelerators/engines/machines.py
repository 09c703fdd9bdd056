"""Many machines at once, for engines whose counts are arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sonda.accelerators.description.hardware import Hardware

Whole = NDArray[np.int64]


def family(hardware: Hardware) -> Hardware:
    """What machines must have in common to be simulated at once: all but multipliers and ports, which are 1 here."""
    return replace(hardware, multipliers=1, read_ports=1, write_ports=1)


def equalise_ports(hardware: Hardware) -> Hardware:
    """What machines have in common that differ in their ports only, which are 1 here."""
    return replace(hardware, read_ports=1, write_ports=1)


def stack_machines(machines: Sequence[Hardware], times: int) -> Hardware:
    """Machines of one family as one whose multipliers and ports are arrays: of every machine `times` elements, one
    machine after the other. Raises SondaError for one that cannot be built."""
    sizes = [
        (machine.multipliers, machine.read_ports, machine.write_ports) for machine in map(Hardware.check, machines)
    ]
    multipliers, read_ports, write_ports = np.repeat(np.array(sizes, np.int64), times, axis=0).T
    return replace(
        machines[0],
        multipliers=multipliers,
        read_ports=read_ports,
        write_ports=write_ports,
    )


def select_machines(stacked: Hardware, numbers: Whole) -> Hardware:
    """Of machines together those of these numbers."""
    return replace(
        stacked,
        multipliers=stacked.multipliers[numbers],  # type: ignore[index]  # arrays
        read_ports=stacked.read_ports[numbers],  # type: ignore[index]
        write_ports=stacked.write_ports[numbers],  # type: ignore[index]
    )
