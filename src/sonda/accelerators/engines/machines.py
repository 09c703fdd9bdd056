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


def without_ports(hardware: Hardware) -> Hardware:
    """What machines have in common that differ in their ports only, which are 1 here."""
    return replace(hardware, read_ports=1, write_ports=1)


def together(machines: Sequence[Hardware], times: int) -> Hardware:
    """Machines of one family as one whose multipliers and ports are arrays: of every machine `times` elements, one
    machine after the other. Raises SondaError for one that cannot be built."""
    sizes = [(one.multipliers, one.read_ports, one.write_ports) for one in map(Hardware.check, machines)]
    multipliers, read_ports, write_ports = np.repeat(np.array(sizes, np.int64), times, axis=0).T
    return replace(
        machines[0],
        multipliers=multipliers,
        read_ports=read_ports,
        write_ports=write_ports,
    )


def picked(every: Hardware, of: Whole) -> Hardware:
    """Of machines together those of these numbers."""
    return replace(
        every,
        multipliers=every.multipliers[of],  # type: ignore[index]  # arrays
        read_ports=every.read_ports[of],  # type: ignore[index]
        write_ports=every.write_ports[of],  # type: ignore[index]
    )
