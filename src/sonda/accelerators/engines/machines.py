"""Many machines at once, for engines whose counts are arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sonda.accelerators.description.hardware import Hardware

Whole = NDArray[np.int64]


def family(hardware: Hardware) -> Hardware:
    """The hardware with 1 multiplier and 1 port of each kind. Machines that are then equal can be simulated at once."""
    return replace(hardware, multipliers=1, read_ports=1, write_ports=1)


def equalise_ports(hardware: Hardware) -> Hardware:
    """The hardware with 1 port of each kind. Machines that are then equal differ in their ports only."""
    return replace(hardware, read_ports=1, write_ports=1)


def stack_machines(machines: Sequence[Hardware], times: int) -> Hardware:
    """One machine for all machines of a family: its multipliers and ports are arrays.

    Every machine gives `times` elements, one machine after the other. Raises SondaError where one cannot be built.
    """
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
    """The machines of these numbers, out of stacked ones."""
    return replace(
        stacked,
        multipliers=stacked.multipliers[numbers],  # type: ignore[index]  # arrays
        read_ports=stacked.read_ports[numbers],  # type: ignore[index]
        write_ports=stacked.write_ports[numbers],  # type: ignore[index]
    )
