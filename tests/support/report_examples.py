"""Constructed summaries for the tests of the report room. No number here was measured; they are consistent by design.

The machine is invented: peak 50 GFLOP/s, DRAM 20 GB/s, last-level cache 80 GB/s. A layer is given by its times, its
FLOPs and its bytes; shares, rates and percent of roof follow from them by the conventions of the record.
"""

from __future__ import annotations

from sonda.analysis.comparison.summary import ComparedRow, Comparison, PartComparison
from sonda.analysis.findings import Remark
from sonda.analysis.roofline import Ceilings
from sonda.analysis.run_rows import RunRow
from sonda.analysis.summary import (
    Cost,
    LayerRow,
    PartSummary,
    PhaseRow,
    Remedy,
    Summary,
    Value,
    Verdict,
)

PEAK = 50e9
DRAM = 20e9
CACHE = 80e9

MS = 1e6

CEILINGS: dict[str, object] = Ceilings(
    flops=PEAK, dram_bandwidth=DRAM, cache_bandwidth=CACHE, cache_bytes=16e6, cached_bytes=8e6, operation_ns=900.0,
    training_operation_ns=2100.0, precision="float32", threads=1, measured="2026-11-15", library="invented",
).as_dict()  # fmt: skip
NO_COUNT = "no operation was counted in this phase"


def cost(time: float, step: float, flops: float | None, moved: float | None, operations: float = 12.0) -> Cost:
    """A cost from ns, FLOP and bytes per step; None is missing."""
    counted = flops is not None and moved is not None
    ideal = max((flops or 0) / PEAK, (moved or 0) / DRAM) * 1e9
    roof = ideal / time if counted and time else None
    bound = ""
    if counted and roof is not None and roof >= 0.5:
        bound = "compute" if (flops or 0) / PEAK >= (moved or 0) / DRAM else "memory"
    reason = "" if counted else NO_COUNT
    return Cost(
        Value(time, "ns", "measured", time * 0.985, time * 1.02),
        time / step,
        Value(flops, "FLOP", "nominal", reason=reason),
        Value(moved, "B", "nominal", reason=reason),
        Value(flops / time * 1e9 if flops is not None and time else None, "FLOP/s", "derived", reason=reason),
        Value(moved / time * 1e9 if moved is not None and time else None, "B/s", "derived", reason=reason),
        Value(roof, "1", "derived", reason=reason),
        bound,
        Value(operations if counted else None, "1", "counted", reason=reason),
    )


def layer(
    path: str, name: str, forward: float, backward: float, own: float, flops: float, moved: float, step: float,
    leaf: bool = True, calls: int = 1, activations: float | None = 8e6,
) -> LayerRow:  # fmt: skip
    return LayerRow(
        path,
        name,
        depth=0 if not path else path.count(".") + 1,
        leaf=leaf,
        calls=calls,
        forward=Value(forward, "ns", "measured", forward * 0.98, forward * 1.03),
        backward=Value(backward, "ns", "measured", backward * 0.98, backward * 1.03),
        own=Value(own, "ns", "derived"),
        cost=cost(forward + backward, step, flops, moved),
        activations=Value(activations, "B", "counted", reason="" if activations is not None else "nothing is kept"),
    )


def network(step: float, blocks: int = 4, per_block: int = 6) -> tuple[LayerRow, ...]:
    """A small residual network: convolution, normalisation, activation; containers cost 0.2 ms of their own."""
    rows: list[LayerRow] = []
    totals = [0.0, 0.0, 0.0, 0.0]
    for block in range(blocks):
        inner: list[LayerRow] = []
        for unit in range(per_block):
            at = f"layer{block + 1}.{unit}"
            scale = 1.0 + 0.15 * block - 0.04 * unit
            inner.append(layer(f"{at}.conv", "Conv2d", 12.1 * MS * scale, 24.6 * MS * scale, 36.7 * MS * scale,
                               1.46e9 * scale, 0.11e9, step))  # fmt: skip
            inner.append(layer(f"{at}.norm", "BatchNorm2d", 1.9 * MS, 3.2 * MS, 5.1 * MS, 0.02e9, 0.094e9, step))
            inner.append(layer(f"{at}.act", "ReLU", 0.02 * MS, 0.03 * MS, 0.05 * MS, 0.0, 0.0002e9, step,
                               activations=None))  # fmt: skip
        sums = [
            sum(row.forward.value or 0 for row in inner) + 0.1 * MS,
            sum(row.backward.value or 0 for row in inner) + 0.1 * MS,
            sum(row.cost.flops.value or 0 for row in inner),
            sum(row.cost.bytes.value or 0 for row in inner),
        ]
        rows.append(layer(f"layer{block + 1}", "Sequential", sums[0], sums[1], 0.2 * MS, sums[2], sums[3], step,
                          leaf=False, activations=96e6))  # fmt: skip
        rows += inner
        totals = [total + part for total, part in zip(totals, sums, strict=True)]
    model = layer("", "ResNet", totals[0] + 0.1 * MS, totals[1] + 0.1 * MS, 0.2 * MS, totals[2], totals[3], step,
                  leaf=False, activations=384e6)  # fmt: skip
    return (model, *rows)


def training_part(steps: int = 20, warmup: int = 3, layers: bool = True) -> PartSummary:
    step = 1263 * MS
    phases = (
        phase("data", 9 * MS, step, None, None, None),
        phase("forward", 402 * MS, step, 14.1e9, 3.1e9, 1.9e9, {"page_faults:counted": Value(1000, "1", "counted")}),
        phase("backward", 791 * MS, step, 28.2e9, 6.4e9, 2.2e9, {"page_faults:counted": Value(204, "1", "counted")}),
        phase("optimizer", 61 * MS, step, 0.043e9, 1.13e9, 2.2e9),
    )
    durations = [step * (1.9 - 0.3 * index) for index in range(warmup)]
    durations += [step * (1 + 0.012 * ((index * 7) % 5 - 2)) for index in range(steps)]
    return PartSummary(
        "train",
        Value(step, "ns", "measured", step * 0.982, step * 1.018),
        steps,
        warmup,
        tuple(durations),
        0.018,
        Value(16 / 1.263, "1/s", "derived"),
        Value(None, "1/s", "derived", reason="the workload has no tokens"),
        phases,
        network(step) if layers else (),
        {row.name: tuple(d * row.cost.share for d in durations) for row in phases},
        counters={"page_faults:counted": Value(1204, "1", "counted")},
    )


def phase(
    name: str, time: float, step: float, flops: float | None, moved: float | None, peak: float | None,
    counters: dict[str, Value] | None = None,
) -> PhaseRow:  # fmt: skip
    memory = Value(peak, "B", "counted", reason="" if peak is not None else NO_COUNT)
    return PhaseRow(name, cost(time, step, flops, moved), memory, counters or {})


def training(run: str = "7f3a9c21") -> Summary:
    """A network that trains, compute-bound, with tried and untried remedies."""
    measured = Value(1.12, "1", "measured", 1.10, 1.14)
    return Summary(
        run,
        "ResNet-34, training, batch 16",
        "AMD EPYC, 2 cores, no PMU · 20 steps after 3 warm-up, ±1.8 %",
        "complete",
        (training_part(),),
        (
            Verdict(
                "compute",
                Remark("Compute-bound in the convolutions: 71 % of the step at 79 % of this CPU's peak."),
                {"share": Value(0.71, "1", "derived"), "roof": Value(0.79, "1", "derived")},
                (
                    Remedy(Remark("keep channels last"), ("--channels-last",), measured),
                    Remedy(Remark("use both cores"), ("--threads", "2")),
                    Remedy(
                        Remark("half precision"),
                        ("--precision", "bf16"),
                        Value(None, "1", "measured", reason="not on this CPU"),
                    ),
                ),
            ),
            Verdict(
                "memory",
                Remark("Memory-bound: 24 normalisations move 2.3 GB a step at 91 % of DRAM bandwidth."),
                {"moved": Value(2.3e9, "B", "nominal")},
                (Remedy(Remark("fuse normalisation into the convolution")),),
            ),
        ),
        (Remark("the interval of validate is 9 % wide: repeat with --steps 50"),),
        CEILINGS,
        (Remark("FLOPs come from the first step of each input shape."),),
    )


def inference(run: str = "0badcafe", step: float = 3.2 * MS) -> Summary:
    """A tiny network, overhead-bound, one phase, one timed step, no counts at all."""
    part = PartSummary(
        "test",
        Value(step, "ns", "measured"),
        1,
        0,
        (step,),
        0.0,
        Value(1e9 / step, "1/s", "derived"),
        Value(None, "1/s", "derived", reason="the workload has no tokens"),
        (phase("forward", step, step, None, None, None),),
        (),
        {"forward": (step,)},
    )
    return Summary(
        run,
        "mlp, inference, batch 1",
        "AMD EPYC, 2 cores · 1 step",
        "incomplete",
        (part,),
        (Verdict("none", Remark("No limit explains half of the step."), {}),),
        (),
        {},
        (),
    )


def hostile() -> Summary:
    """Names that would act if they were not escaped."""
    step = 10 * MS
    names = ("[red]x[/red]", "<b>bold</b>", "</script><script>alert(1)</script>", "\x1b[31mred", "a\u202eb", "x\ny")
    rows = tuple(layer(name, "<img src=x onerror=alert(2)>", 1 * MS, 2 * MS, 3 * MS, 1e6, 1e6, step) for name in names)
    part = training_part(steps=3, warmup=0)
    part = PartSummary(
        "[bold]train", part.step, 3, 0, part.durations, part.noise, part.samples_per_second, part.tokens_per_second,
        (phase("<i>forward", 10 * MS, step, 1e9, 1e8, 1e6),), rows, {"<i>forward": part.durations},
    )  # fmt: skip
    return Summary(
        "7f3a\"><script>alert(3)</script>", "[link=http://x]title</title><script>", "\x1b]0;owned\x07 <b>", "complete",
        (part,), (Verdict("none", Remark("<script>alert(4)</script> [red]"), {}, (Remedy(Remark("[b]<b>")),)),),
        (Remark("<u>[u]"),), {}, (Remark("<s>"),),
    )  # fmt: skip


def compared(name: str, path: str, a: float, ratio: float, spread: float = 0.01) -> ComparedRow:
    """A row whose interval is ratio ± spread; significant when that leaves out 1."""
    low, high = ratio - spread, ratio + spread
    significant = not low <= 1 <= high
    text = "not significant"
    if significant:
        text = f"{ratio:.2f}x slower" if ratio > 1 else f"{1 / ratio:.2f}x faster"
    return ComparedRow(
        name, path, Value(a, "ns", "measured"), Value(a * ratio, "ns", "measured"),
        Value(ratio, "1", "derived", low, high), significant, text,
    )  # fmt: skip


def comparison() -> Comparison:
    """B is 5 % faster in its convolutions and otherwise the same."""
    convolutions = [compared("Conv2d", f"layer{i}.conv", (40 + i) * MS, 0.92 + 0.002 * i) for i in range(1, 5)]
    others = [compared("BatchNorm2d", f"layer{i}.norm", 5 * MS, 1.002) for i in range(1, 5)]
    part = PartComparison(
        "train",
        compared("step", "", 1263 * MS, 0.952),
        (compared("forward", "", 402 * MS, 0.95), compared("backward", "", 791 * MS, 0.95),
         compared("optimizer", "", 61 * MS, 1.004), compared("data", "", 9 * MS, 1.04)),
        (*convolutions, *others),
        ("phase transfer",),
        ("layer5.conv (Conv2d)", "layer5.norm (BatchNorm2d)"),
    )  # fmt: skip
    return Comparison(
        ("7f3a9c21",), ("0badcafe", "1234abcd", "5678abcd", "9abcabcd"), (part,),
        Value(-0.048, "1", "derived", -0.058, -0.038),
        (Remark("the runs differ in threads (1, 2); give both sides the same --threads"),),
        (Remark("the intervals of 8 layers are widened so that all of them hold at once with 95 % (Bonferroni)"),),
    )  # fmt: skip


def run_rows() -> list[RunRow]:
    """A listing with every status."""
    absent = Value(None, "ns", "measured", reason="the run holds no step")
    return [
        RunRow("7f3a", "2026-11-15T03:30:12.123+00:00", "resnet34, train, batch 16", "cpu",
               Value(1263 * MS, "ns", "measured"), "complete", ("main", "baseline"), "compute"),
        RunRow("0bad", "2026-11-14T23:05:00+02:00", "python train.py --epochs 1", "",
               Value(3.2 * MS, "ns", "measured"), "incomplete", (), "none"),
        RunRow("1234", "2026-11-14T20:59:59+00:00", "[red]mlp", "cpu/8", absent, "failed"),
    ]  # fmt: skip


CHECKS = [
    ("processor", "ok", "AMD EPYC, 2 cores, AVX2; caches 32 kB, 512 kB, 16 MB", ""),
    ("energy", "dead", "RAPL is there and stays at 0 in this virtual machine", "measure on bare metal"),
    ("counters", "missing", "no PMU is passed through to this virtual machine, so cycles and misses cannot be counted",
     "`--probe callgrind` models them"),
    ("tensorflow", "off", "not installed", "pip install 'sonda-profiler[tensorflow]'"),
]  # fmt: skip
