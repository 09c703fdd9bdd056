"""Helpers of `test_ncu_findings.py` that other tests use too."""

from __future__ import annotations

from builders import RunBuilder
from sonda.imports.ncu.files import read_csv
from sonda.imports.ncu.metrics import counted_quantities, duration
from trace_examples import GPU

NCU = GPU / "ncu"


ELEMENTS = 2048**2


NOMINAL = {"Add": ELEMENTS, "Mul": ELEMENTS, "Dot": 2 * 2048**3, "Scalar": ELEMENTS, "Sigmoid": 4 * ELEMENTS,
           "Tanh": ELEMENTS}  # fmt: skip
"""FLOPs of the six operations at 2048² by their formulas: 4 for 1 / (1 + exp(-x)), 1 for tanh."""


def six_operations() -> RunBuilder:
    """A counted step by formulas, and a step whose kernels are those that an H200 counted."""
    builder = RunBuilder()
    part = builder.part("test")
    for _ in range(6):
        builder.step(part, 1, {"forward": 1})
    kernels = builder.step(part, 1, {"forward": 1}, pass_="kernels")
    for name, launch, stalled in zip(NOMINAL, read_csv(NCU / "raw.csv"), read_csv(NCU / "stalls.csv"), strict=True):
        layer = builder.layer(kernels["forward"], name.lower(), name, 0.1)
        metrics = {
            f"{key}:counted": float(value)
            for key, value in (counted_quantities(launch) | counted_quantities(stalled)).items()
        }
        builder.add("kernel", launch.kernel, layer, builder.rows[layer]["start"], duration(launch) or 0,
                    pass_="kernels", metrics=metrics)  # fmt: skip
    count = builder.step(part, 1, {"forward": 1}, pass_="count")
    for name, flops in NOMINAL.items():
        layer = builder.layer(count["forward"], name.lower(), name, 0.1)
        builder.op(layer, name.lower(), flops, 12 * ELEMENTS)
    return builder
