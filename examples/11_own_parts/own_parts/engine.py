"""An engine of one's own, `kind = "ideal"` in a description: every multiplier busy in every cycle."""

from collections.abc import Mapping
from typing import Any

from sonda.accelerators.engines.contract import Engine, EngineDescription, Operation, Result, dense_product


class Ideal(Engine):
    """Every operand is read once and nothing waits; there is one mapping, and no memory behind the buffer."""

    def simulate(self, description: EngineDescription, operation: Operation, mapping: Mapping[str, Any]) -> Result:
        """What one operation takes."""
        product = dense_product(description.kind, operation.shape)
        cycles = -(-product.multiplications // description.hardware.multipliers)
        return Result(
            cycles=cycles,
            weight_reads=product.count * product.k * product.n,
            input_reads=product.count * product.m * product.k,
            psum_reads=0,
            writes=product.count * product.m * product.n,
            multiplications=product.multiplications,
            stack={"compute": cycles},
        )
