"""Words for imported traces."""

from __future__ import annotations

import pytest

from sonda.analysis.findings import Finding
from sonda.analysis.traces.findings import (
    ComputingDevice,
    ExposedDevice,
    FunctionTraceCount,
    HostOnly,
    IdleDevice,
    LargestPart,
    LaunchesCounted,
    LongCompiling,
    LongHost,
    LongIdle,
    LongOperations,
    LongPart,
    NoCommonStep,
    OfRank,
    ProgramCounted,
    TimelessDevice,
    TracedDevice,
    TraceRemedy,
    TruncatedTrace,
    UnseenWaits,
)
from sonda.report.words import describe

GPU, ONE_OF_SEVERAL = TracedDevice("cuda:0", None), TracedDevice("cuda:0", 3)


@pytest.mark.parametrize(
    ("finding", "words"),
    [
        (HostOnly(0, (), 0), "No activity of a device is in the trace: it shows the host only."),
        (
            HostOnly(1e5, (("aten::mm", 0.7), ("aten::add", 0.3)), 3.5e5),
            "No activity of a device is in the trace: it shows the host only. Of 100 µs in operations, aten::mm 70 % "
            "and aten::add 30 %. Communication, which may run beside them, takes 350 µs.",
        ),
        (LaunchesCounted(1, 1), "1 launch of 1 kernel were counted."),
        (LaunchesCounted(2000, 3), "2,000 launches of 3 kernels were counted."),
        (ProgramCounted(4), "4 counts of a whole program."),
        (TimelessDevice(ONE_OF_SEVERAL), "cuda:0 of rank 3 did nothing that took time."),
        (
            IdleDevice(GPU, 0.7, 0.9, True),
            "cuda:0 is idle 70 % of the time: in 90 % of its gaps the next launch had not been made, so the host "
            "limits.",
        ),
        (
            IdleDevice(GPU, 0.7, 0.1, False),
            "cuda:0 is idle 70 % of the time, and its next work was mostly launched by then.",
        ),
        (
            ExposedDevice(GPU, "copies", 0.4),
            "cuda:0 spends 40 % of the time on copies that no computation hides.",
        ),
        (ComputingDevice(GPU, 0.9, 0.1), "cuda:0 computes 90 % of the time and is idle 10 %."),
        (OfRank(LargestPart("host", 0.2), 1), "Nothing takes most of the step: host takes 20 % (rank 1)."),
        (LongPart("input", 0.4, 2e6), "Input-bound: waiting for data takes 40 % of the step (2.0 ms)."),
        (
            LongPart("communication", 0.4, 2e6),
            "Communication-bound: exchanging with other ranks, or waiting for them, takes 40 % of the step (2.0 ms).",
        ),
        (
            LongPart("transfer", 0.4, 2e6),
            "Transfer-bound: copying between devices takes 40 % of the step (2.0 ms), in which nothing is computed.",
        ),
        (
            LongPart("launch", 0.4, 2e6),
            "Overhead-bound: launching work on a device takes 40 % of the step (2.0 ms), in which no device works.",
        ),
        (LongCompiling(0.4, ()), "Compile-bound: tracing and compiling takes 40 % of the steps."),
        (
            LongCompiling(0.4, (FunctionTraceCount("step", 3, 3, (0, 1)), FunctionTraceCount("loss", 1, 1, (0,)))),
            "Compile-bound: tracing and compiling takes 40 % of the steps: step in 3 of 3 calls on ranks 0 and 1 and "
            "loss in 1 of 1 call on rank 0.",
        ),
        (
            LongHost(0.6, 2e6, 0.1),
            "Overhead-bound: the framework's own work takes 60 % of the step (2.0 ms), operations take 10 %.",
        ),
        (
            LongOperations(0.9, 2e6, "aten::mm", 0.8),
            "Compute-bound on the host: operations take 90 % of the step (2.0 ms), 80 % of it aten::mm.",
        ),
        (
            LongIdle(0.6),
            "For 60 % of the step nothing was recorded: Python between the calls, or what the profiler does not see.",
        ),
        (TraceRemedy("profile later"), "begin the profile after the first steps"),
        (
            TruncatedTrace(),
            "the file ends in the middle: only what stands before that is shown; record it again",
        ),
        (
            UnseenWaits(1),
            "1 call made a stream wait for another, and the trace does not say which: the critical path does not see "
            "that; torch.profiler records it with enable_cuda_sync_events",
        ),
        (NoCommonStep(), "no step is in the traces of all ranks: they are not compared with each other"),
    ],
)
def test_each_finding_has_its_words(finding: Finding, words: str) -> None:
    assert describe(finding) == words
