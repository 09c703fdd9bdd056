"""Every kind of limit in words: names, numbers with their units, singular and plural."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sonda.analysis.bounds import CEILINGS, BoundedRatio
from sonda.analysis.code.summary import CodeLead, CodePlace, CodeTime
from sonda.analysis.device.findings import WarpsWait
from sonda.analysis.findings import Finding
from sonda.analysis.rules.code_findings import (
    CodeTakes,
    CollectsGarbage,
    ComputesMetrics,
    CopiesData,
    HeldByThread,
    LoopsInPython,
    PreparesInput,
    ProgramWaits,
    SavesState,
    WritesRecords,
)
from sonda.analysis.rules.limit_findings import (
    AboveCeiling,
    BetweenPhases,
    CommunicationBound,
    ComputeBound,
    HeldByOthers,
    HostBound,
    InputBound,
    KernelStalled,
    LongestPhase,
    MemoryBound,
    MinorSteps,
    MoreArithmetic,
    NoClearLimit,
    NoLimitNamed,
    NoSteps,
    NothingToJudge,
    OutsideLayers,
    OverheadBound,
    Oversubscribed,
    Pieces,
    Retraced,
    SlotsLost,
    StageShare,
    TooNoisy,
    TransferBound,
    UnevenInput,
    UnexplainedWork,
    WaitsOutside,
)
from sonda.analysis.summary import Value
from sonda.report.words import describe

MS = 1e6
NEITHER = "Neither arithmetic, memory traffic, overhead nor input explains half of that."


def part(value: float | None) -> Value:
    return Value(value, "1", "derived")


def ns(value: float) -> Value:
    return Value(value, "ns", "measured")


def ratio(value: float, low: float | None = None, high: float | None = None) -> BoundedRatio:
    return BoundedRatio(Value(value, "1", "derived", low, high), doubt=CEILINGS)


CONVOLUTIONS = Pieces(("Conv2d", "Conv2d"))
OPTIMIZER = Pieces(phases=("optimizer",))
LEAD = CodeLead(
    CodePlace("train.py", "Watch.__call__", 41), "json.dumps(rows)", "json.dumps", CodeTime(python=31e6), part(0.62)
)
IMPORTS = StageShare("imports", part(0.62), ns(55.8e9))
RETRACED = Retraced(
    "step", "train.py:12", False, 20, 20, part(0.8636), False, "shape", "x", ("float32[3]", "float32[4]")
)
WAITS = replace(LEAD, text="", called="", time=CodeTime(waiting=31e6, calls=(("futex", 31e6),)), share=part(0.3))
NAMELESS = replace(LEAD, text="")
TAKES = "train.py:41 Watch.__call__ takes 62 % of the step (31.0 ms)"


SENTENCES: list[tuple[Finding, str]] = [
    (
        ComputeBound(CONVOLUTIONS, part(0.71), ratio(0.791), on_gpu=False),
        "Compute-bound in the convolutions: 71 % of the step at 79 % of this CPU's peak.",
    ),
    (
        ComputeBound(Pieces(("Conv2d",), ("optimizer", "fused")), part(0.71), ratio(0.79, 0.74, 0.83), on_gpu=True),
        "Compute-bound in the convolutions, the optimizer and the fused function: 71 % of the step at 79 % (74 to 83 "
        "%) of this GPU's peak.",
    ),
    (
        ComputeBound(Pieces(tuple(f"Kind{at}" for at in range(20))), part(0.8), ratio(1.03), on_gpu=False),
        "Compute-bound in 20 kinds of layers: 80 % of the step at all of this CPU's peak as far as can be told.",
    ),
    (
        MemoryBound(
            Pieces(("BatchNorm2d",) * 20 + ("ReLU",) * 16), part(0.18), Value(3.1e9, "B", "nominal"), ratio(0.91), False
        ),
        "Memory-bound: 36 normalisations and activations move 3.1 GB a step at 91 % of DRAM bandwidth, 18 % of the "
        "step.",
    ),
    (
        MemoryBound(OPTIMIZER, part(0.3), Value(8e6, "B", "nominal"), ratio(0.7), cached=True),
        "Memory-bound: the optimizer moves 8.0 MB a step at 70 % of last-level cache bandwidth, 30 % of the step.",
    ),
    (
        OverheadBound(Pieces(("Linear",)), part(0.61), part(412), ns(118e3), ns(148e3), ratio(0.8)),
        "Overhead-bound in the linear layers: 61 % of the step goes to 412 operations that cost 118 µs each, however "
        "small.",
    ),
    (
        OverheadBound(Pieces(("Linear",)), part(0.61), part(1), ns(118e3), ns(100e3), ratio(1.18)),
        "Overhead-bound in the linear layers: 61 % of the step goes to 1 operation that takes 100 µs, no longer "
        "than small ones do here.",
    ),
    (
        AboveCeiling(
            "compute", CONVOLUTIONS, part(0.8), Value(3e12, "FLOP/s", "derived"), Value(2e12, "FLOP/s", "measured")
        ),
        "Faster than this machine was measured to be: 2 convolutions compute 3.0 TFLOP/s where the peak is 2.0 "
        "TFLOP/s. What limits 80 % of the step cannot be said.",
    ),
    (
        AboveCeiling("memory", OPTIMIZER, part(0.2), Value(3e9, "B/s", "derived"), Value(2e9, "B/s", "measured")),
        "Faster than this machine was measured to be: the optimizer moves 3.0 GB/s where the bandwidth is 2.0 GB/s. "
        "What limits 20 % of the step cannot be said.",
    ),
    (
        MoreArithmetic(("Conv2d", "Linear", "ReLU"), part(3e9), part(2e9), part(0.25)),
        "More arithmetic than needed: convolutions and linear layers count 1.5 times the FLOPs of their formulas, 25 % "
        "of the step.",
    ),
    (
        SlotsLost(("forward", "backward"), "backend bound", "memory bound", part(0.4), "slots"),
        "Slots are lost: by Top-Down forward and backward are backend bound (40 % of their slots), mostly memory "
        "bound.",
    ),
    (
        SlotsLost(("forward",), "bad speculation", "", part(0.4), "cycles"),
        "Slots are lost: by Top-Down forward is bad speculation (40 % of its cycles).",
    ),
    (
        KernelStalled("gemm", part(0.1), None, WarpsWait("wait", part(0.82))),
        "In gemm, 10 % of the step, warps wait 82 % of the time a fixed time for the instruction before (wait); how "
        "near it comes to the device's peaks is not known.",
    ),
    (
        KernelStalled("gemm", part(0.1), part(0.38), WarpsWait("long_scoreboard", part(0.82))),
        "Out of line: gemm, 10 % of the step, reaches 38 % of what the device could do; warps wait 82 % of the time "
        "for data from memory (long_scoreboard).",
    ),
    (
        InputBound(part(0.21), ns(21 * MS), workers=0),
        "Input-bound: waiting for data takes 21 % of the step (21.0 ms).",
    ),
    (
        InputBound(part(0.3), ns(30 * MS), workers=2),
        "Input-bound: waiting for data with 2 workers takes 30 % of the step (30.0 ms).",
    ),
    (
        UnevenInput(part(0.3), ns(30 * MS)),
        "Input-bound: waiting for data takes 30 % of the time of all steps (30.0 ms a step, some wait long and others "
        "do not).",
    ),
    (
        WaitsOutside(part(0.6), ns(60 * MS)),
        "The program waits for 60 % of the steps' time (60.0 ms a step) before its forward, outside of a loader: for a "
        "file, a socket, a lock, a process or a sleep.",
    ),
    (
        CodeTakes((LEAD,)),
        "train.py:41 Watch.__call__ takes 62 % of the step (31.0 ms, Python in json.dumps).",
    ),
    (
        CodeTakes((LEAD, WAITS)),
        "train.py:41 Watch.__call__ takes 62 % of the step (31.0 ms, Python in json.dumps) and train.py:41 "
        "Watch.__call__ 30 % (31.0 ms, waiting for a lock (futex)).",
    ),
    (
        InputBound(part(0.3), ns(30 * MS), workers=2, leads=(LEAD,), in_workers=True),
        "Input-bound: waiting for data with 2 workers takes 30 % of the step (30.0 ms); train.py:41 Watch.__call__ "
        "takes 62 % of the workers' time: 31.0 ms, Python in json.dumps.",
    ),
    (
        ProgramWaits((WAITS,)),
        "train.py:41 Watch.__call__ takes 30 % of the step (31.0 ms): waiting for a lock (futex).",
    ),
    (
        HeldByThread((LEAD,), part(0.4)),
        "train.py:41 Watch.__call__ runs Python code in another thread, and the step waits 40 % of its time for the "
        "interpreter's lock.",
    ),
    (
        CollectsGarbage((LEAD,), True, part(2), part(0.4)),
        "train.py:41 Watch.__call__: garbage collection takes 40 % of the step, 2.0 collections a step; the program "
        "calls it.",
    ),
    (
        WritesRecords((replace(LEAD, text="json.dumps(rows)"), WAITS)),
        "train.py:41 Watch.__call__ takes 62 % of the step (31.0 ms): printing, logging or writing records "
        "(json.dumps(rows)); train.py:41 Watch.__call__ 30 %.",
    ),
    (SavesState((NAMELESS,)), f"{TAKES}: saving weights or other state."),
    (CopiesData((NAMELESS,)), f"{TAKES}: copying or converting data."),
    (ComputesMetrics((NAMELESS,)), f"{TAKES}: computing what neither the backward nor the next step needs."),
    (LoopsInPython((NAMELESS,)), f"{TAKES}: a loop in Python."),
    (PreparesInput((NAMELESS,)), f"{TAKES}: preparing the input of the forward, outside of a loader."),
    (
        CommunicationBound(part(0.2), ns(20 * MS)),
        "Communication-bound: exchanging with other ranks, or waiting for them, takes 20 % of the step (20.0 ms).",
    ),
    (
        TransferBound(part(0.2), ns(20 * MS), pageable=True),
        "Transfer-bound: copying input to the GPU from pageable memory takes 20 % of the step (20.0 ms), in which it "
        "computes nothing.",
    ),
    (
        HostBound(part(0.96), part(5), ns(5 * MS), ns(0.2 * MS)),
        "Host-bound: for 96 % of the step the GPU waits for the program, which makes 5 launches in 5.0 ms, 1.0 ms "
        "each, and the GPU needs 40.0 µs for one.",
    ),
    (
        HostBound(part(0.96), part(1), ns(5 * MS), ns(0.2 * MS)),
        "Host-bound: for 96 % of the step the GPU waits for the program, which makes 1 launch in 5.0 ms, 5.0 ms each, "
        "and the GPU needs 200 µs for one.",
    ),
    (
        RETRACED,
        "Re-traced: step (train.py:12) was traced 20 times in 20 calls, 86 % of their time: argument x changes its "
        "shape: float32[3], float32[4].",
    ),
    (
        replace(RETRACED, by_xla=True, at_most=True, where=""),
        "Re-compiled: step was compiled by XLA 20 times in 20 calls, up to 86 % of their time: argument x changes its "
        "shape: float32[3], float32[4].",
    ),
    (
        replace(RETRACED, share=part(None), cause="new"),
        "Re-traced: step (train.py:12) was traced 20 times in 20 calls: the function is made anew each time.",
    ),
    (
        MinorSteps(ns(90e9), IMPORTS, 20, part(0.006)),
        "The 20 steps take 0.6 % of the program's 90.0 s; imports take 62 % (55.8 s).",
    ),
    (
        MinorSteps(ns(90e9), replace(IMPORTS, package="torch"), 1, part(0.05)),
        "The only step takes 5.0 % of the program's 90.0 s; imports take 62 % (55.8 s, most of it torch).",
    ),
    (
        MinorSteps(ns(90e9), StageShare("validate", part(0.8), ns(72e9)), 20, part(0.05), "train"),
        "Training takes 5.0 % of the program's 90.0 s; validation takes 80 % (72.0 s).",
    ),
    (
        NoSteps(ns(90e9), StageShare("running", part(0.7), ns(63e9))),
        "Nothing to judge: no step was seen. Of the program's 90.0 s its own code takes 70 % (63.0 s).",
    ),
    (
        HeldByOthers(part(0.5), ns(100 * MS), ns(50 * MS), 2, part(1.04)),
        "Other programs held the cores: they used 1.0 of 2 cores, and threads of the step waited for a core 50 % of "
        "the time that they wanted one. Without them a step of 100 ms would take 50.0 ms or less, estimated from that "
        "wait.",
    ),
    (
        Oversubscribed(part(0.75), part(8.0), 2, processes=False),
        "Too many threads: 8.0 threads share 2 cores, and each waits 75 % of the time that it wants one.",
    ),
    (
        Oversubscribed(part(0.5), part(1.0), 2, processes=True),
        "Too many processes: the program's others hold 2 cores, and threads of the step wait 50 % of the time that "
        "they want one.",
    ),
    (TooNoisy(part(0.6), ns(MS)), "Too noisy to judge: the step is known only to ±60 %."),
    (
        TooNoisy(part(3.44), Value(5 * MS, "ns", "measured", 1.2 * MS, 8 * MS)),
        "Too noisy to judge: the step lasts anything from 1.2 ms to 8.0 ms.",
    ),
    (TooNoisy(part(3.44), ns(MS)), "Too noisy to judge: the step is not known to a factor of two."),
    (NothingToJudge("no step was seen"), "Nothing to judge: no step was seen."),
    (NoLimitNamed("nothing was counted", None), "No limit can be named: nothing was counted."),
    (
        NoLimitNamed("nothing was counted", LongestPhase(part(0.6), "forward")),
        "No limit can be named: nothing was counted. 60 % of the step is forward.",
    ),
    (NoClearLimit(None), "No clear limit: no phase of the step was timed."),
    (
        NoClearLimit(UnexplainedWork(part(0.9), CONVOLUTIONS, ratio(0.4), at_least=False)),
        f"No clear limit: the convolutions take 90 % of the step and reach 40 % of the roof. {NEITHER}",
    ),
    (
        NoClearLimit(UnexplainedWork(part(0.9), OPTIMIZER, ratio(0.4), at_least=True)),
        f"No clear limit: the optimizer takes 90 % of the step and reaches at least 40 % of the roof. {NEITHER}",
    ),
    (
        NoClearLimit(UnexplainedWork(part(0.9), OPTIMIZER, None, at_least=True)),
        f"No clear limit: the optimizer takes 90 % of the step. {NEITHER}",
    ),
    (
        NoClearLimit(OutsideLayers(part(0.9), ("forward", "backward"))),
        "No clear limit: 90 % of the step is code in forward and backward outside the layers that were seen. "
        + NEITHER,
    ),
    (
        NoClearLimit(BetweenPhases(part(0.7), saves_files=False)),
        "No clear limit: 70 % of the step lies between the phases: Python code, and the observing itself. " + NEITHER,
    ),
    (
        NoClearLimit(BetweenPhases(part(0.7), saves_files=True)),
        "No clear limit: 70 % of the step lies between the phases: files of weights, which most steps save, and the "
        f"observing itself. {NEITHER}",
    ),
]


@pytest.mark.parametrize(("finding", "sentence"), SENTENCES, ids=lambda case: getattr(case, "kind", ""))
def test_a_limit_is_said_with_its_names_and_numbers(finding: Finding, sentence: str) -> None:
    assert describe(finding) == sentence


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        ("type", "argument x changes its type: float32[3], float32[4]."),
        ("python", "argument x is a value of Python that changes: float32[3], float32[4]."),
        ("object", "argument x is another object each time."),
        ("structure", "argument x is there only at times."),
        ("other", "its arguments do not tell why."),
    ],
)
def test_why_a_function_is_traced_again_is_said(cause: str, words: str) -> None:
    assert describe(replace(RETRACED, cause=cause)).endswith(f"of their time: {words}")
