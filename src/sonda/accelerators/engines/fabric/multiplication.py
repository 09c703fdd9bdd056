"""The line of multipliers: what it has done, as counters.

Every multiplier has five queues: activations, weights, activations handed on by its neighbour, those it hands on
itself, and products. A weight that is used goes back to the end of its queue; new weights flush the old ones.
"""

from __future__ import annotations

from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.engines.fabric import instances


def activity(
    hardware: Hardware,
    *,
    weights: int,
    weights_left: int,
    products: int,
    configured: int,
    forwarded: int = 0,
    psums: int = 0,
    zeros: int = 0,
) -> dict[str, dict[str, int]]:
    """The counters of the section MSNetwork.

    `weights` were received, `weights_left` of them never flushed; `forwarded` activations went to the neighbour instead
    of coming from the buffer; `psums` came from the buffer and were passed on; `zeros` were made where a first psum was
    due; `configured` multipliers were given a virtual neuron.
    """
    entries = instances.multipliers(hardware)
    # A product: its activation comes in, its weight goes round, the product goes out.
    pushes = weights + 3 * products + forwarded + 2 * psums + zeros
    return {
        "MN_WIRE": {"entries": entries["MN_WIRE"], "WRITE": forwarded, "READ": 0},
        "MULTIPLIER": {
            "entries": entries["MULTIPLIER"],
            "MULTIPLICATION": products,
            "FORWARD_PSUM": psums,
            "CONFIGURATION": configured,
        },
        "FIFO": {"entries": entries["FIFO"], "PUSH": pushes, "POP": pushes - weights_left, "FRONT": 0},
    }
