"""What searching for mappings gains over rules, and what it costs: ResNet-50, DLRM and a transformer, whole.

A gain is the cycles of an operation under STONNE's rules over those of the best mapping found, and the geometric mean
is over all operations of one inference step. STONNE has no rule of its own for convolutions on the flexible dense
engine, where Sonda's rule stands in (`mapping.convolution_tile`); the table also has them as matrix products under the
tiles of STONNE's mapper. On sparse engines the search also chooses which operand stays, or is compressed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from time import process_time

from benchmarks.bar import Bar, Interval, at_most
from sonda.accelerators.description.accelerator import Accelerator, load_accelerator
from sonda.accelerators.description.settings import with_settings
from sonda.accelerators.mapping.placement import Placed, Placement
from sonda.accelerators.operations.program import ConvolutionShape, ModelProgram, Operation
from sonda.targets.simulated.program import program_from_description
from sonda.workloads.catalogue import describe

DLRM = {
    "arch-embedding-size": "-".join(["1000"] * 10), "arch-sparse-feature-size": "32",
    "arch-mlp-bot": "128-64-64-32", "arch-mlp-top": "128-64-1", "mini-batch-size": "20", "data-size": "20",
    "num-indices-per-lookup": "100",
}  # fmt: skip
"""The published study's perceptrons and bags, ten tables; their rows make no difference to cycles."""
WORKLOADS = {
    "resnet50": ("resnet50", {}),
    "resnet50 224x224": ("resnet50", {"image": "224x224", "batch": "1"}),
    "dlrm": ("dlrm", DLRM),
    "transformer": ("transformer", {}),
}
NARROW = "read_ports=16 write_ports=16"
ACCELERATORS = (
    ("maeri-256", ""), ("maeri-256", NARROW), ("sigma-128", ""), ("magma-128", ""), ("magma-128", NARROW),
    ("tpu-16x16", ""), ("tpu-16x16", NARROW), ("tpu-128x128", ""), ("dlrm-hybrid", ""),
)  # fmt: skip
"""Described accelerators, and changes of them: STONNE's rules know nothing of bandwidths."""
LIMIT_SECONDS = 10.0


def run() -> list[Bar]:
    """Search, print gains and what they cost, and hold both promises against it: never worse, and soon enough."""
    programs: dict[tuple[str, bool], ModelProgram] = {}
    bars = []
    worse = 0
    print(f"{'accelerator':17} {'workload':17} {'operations':>10} {'gain over':>10} {'over the':>12} {'of all':>7}"
          f" {'tried':>6} {'proved':>9} {'tiles/s':>8} {'CPU s':>6}")  # fmt: skip
    print(f"{'':46} {'STONNE':>9} {'description':>12} {'cycles':>7}")
    for name, changes in ACCELERATORS:
        accelerator = with_settings(load_accelerator(name), changes) if changes else load_accelerator(name)
        patterns = Placement(accelerator).patterns()
        for workload in ("dlrm",) if name == "dlrm-hybrid" else WORKLOADS:
            key = (workload, bool(patterns))
            if key not in programs:
                programs[key] = _program(workload, patterns)
            program = programs[key]
            given, ruled = (_placed(accelerator, how, program) for how in ("", "stonne"))
            begin = process_time()
            best = _placed(accelerator, "best", program)
            seconds = process_time() - begin
            worse += sum(one.cycles > min(two.cycles, three.cycles)
                         for one, two, three in zip(best, given, ruled, strict=True))  # fmt: skip
            tried = sum(one.tried for one in {id(one.result): one for one in best}.values())
            shown = f"{name} 16/16" if changes else name
            print(f"{shown:17} {workload:17} {len(best):10} {_gain(ruled, best):9.3f}x {_gain(given, best):11.3f}x"
                  f" {_total(ruled) / _total(best):6.3f}x {tried:6} {sum(one.proved for one in best):4}/{len(best):<4}"
                  f" {tried / seconds:8.0f} {seconds:6.2f}", flush=True)  # fmt: skip
            if (name, changes, workload) == ("maeri-256", "", "resnet50"):
                interval = Interval(seconds, seconds, seconds)
                bars.append(at_most("ResNet-50 on maeri-256 searched", interval, LIMIT_SECONDS, " CPU s"))
            if name == "maeri-256" and workload.startswith("resnet50"):
                products = _placed(accelerator, "stonne", _as_products(program))
                print(f"{'':17} {'':17} {'':10} {_gain(products, best):9.3f}x   over convolutions as matrix products "
                      "under STONNE's tiles")  # fmt: skip
    bars.append(Bar("mappings found that are worse than a rule's or the description's", str(worse),
                    "FAIL" if worse else "PASS"))  # fmt: skip
    return bars


def _program(workload: str, patterns: frozenset[str]) -> ModelProgram:
    import torch

    from sonda.accelerators.operations.capture import capture

    name, options = WORKLOADS[workload]
    described = describe(name, options)
    program = None if patterns else program_from_description(described)
    if program is not None:
        return program
    torch.set_num_threads(1)
    task = described.build("torch", False, 0)
    task.model.eval()
    return capture(task.model, task.infer, patterns).program


def _as_products(program: ModelProgram) -> ModelProgram:
    return replace(program, operations=tuple(_as_product(one) for one in program.operations))


def _as_product(operation: Operation) -> Operation:
    shape = operation.shape
    return replace(operation, shape=shape.product()) if isinstance(shape, ConvolutionShape) else operation


def _placed(accelerator: Accelerator, how: str, program: ModelProgram) -> list[Placed]:
    found = Placement(accelerator, how).place(program)
    return [one for one in found if isinstance(one, Placed)]


def _gain(before: list[Placed], after: list[Placed]) -> float:
    """The geometric mean over operations."""
    logarithms = [math.log(one.cycles / two.cycles) for one, two in zip(before, after, strict=True)]
    return math.exp(sum(logarithms) / len(logarithms))


def _total(placed: Iterable[Placed]) -> int:
    return sum(one.cycles for one in placed)
