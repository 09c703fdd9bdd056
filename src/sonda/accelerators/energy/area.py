"""The area of an accelerator: its engines that work, without a buffer, and once the global buffer that they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sonda.accelerators.energy.charges import Charges, charge_counts
from sonda.accelerators.engines.result import INSTANCES, Counters

Numbers = NDArray[np.float64]
BUFFER = "GLOBALBUFFER"
"""The component that all engines of an accelerator share."""


def instances_of(counters: Counters) -> dict[str, int]:
    """Instances of every component, over all sections of the machine; the global buffer is among them."""
    instances: dict[str, int] = {}
    for components in counters.values():
        for component, counts in components.items():
            instances[component] = instances.get(component, 0) + counts.get(INSTANCES, 0)
    return instances


def engine_areas(designs: Sequence[Mapping[str, int]], charges: Charges) -> Numbers:
    """Designs x figures, of engines by their instances, without the buffer; NaN where no area is known."""
    components = list(
        dict.fromkeys(name for instances in designs for name, count in instances.items() if count and name != BUFFER)
    )
    counts = np.array([[instances.get(name, 0) for name in components] for instances in designs], np.float64)
    return charge_counts(counts.reshape(len(designs), len(components)), charges.area(components, None))


def buffer_area(buffer_bytes: int | None, charges: Charges) -> Numbers:
    """Figures of the global buffer of this size; of the table's own size where it is unlimited.

    Raises SondaError where the table knows no buffer of this size.
    """
    area: Numbers = charges.area([BUFFER], buffer_bytes)[0]
    return area
