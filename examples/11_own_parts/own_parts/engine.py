"""An engine of one's own, `kind = "ideal"` in a description: every multiplier busy in every cycle."""

from sonda.accelerators.hardware import Hardware
from sonda.accelerators.operation import Convolution, MatrixProduct
from sonda.accelerators.result import Result


def simulate(hardware: Hardware, shape: MatrixProduct | Convolution) -> Result:
    """What one operation takes where every operand is read once and nothing waits."""
    products = shape.multiplications
    product = shape.product() if isinstance(shape, Convolution) else shape
    cycles = -(-products // hardware.multipliers)
    return Result(
        cycles=cycles,
        weight_reads=product.count * product.k * product.n,
        input_reads=product.count * product.m * product.k,
        psum_reads=0,
        writes=product.count * product.m * product.n,
        multiplications=products,
        stack={"compute": cycles},
    )
