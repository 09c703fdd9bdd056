"""Words for energy."""

from __future__ import annotations

import pytest

from sonda.analysis.energy.findings import (
    FinishSooner,
    IntegralOff,
    LostCounters,
    NodeFindings,
    NodesEnergy,
    NoEnergy,
    OnNode,
    ReadingRate,
    SharedMachine,
    SourceEnergy,
    SpentEnergy,
    ThrottledShare,
    ThrottledTimes,
    UnreadCounter,
    WholeMachine,
)
from sonda.analysis.findings import Finding
from sonda.analysis.summary import Value
from sonda.report.words import describe

MEASURED = SourceEnergy(Value(400.0, "J", "measured", 390.0, 410.0))
ESTIMATED = SourceEnergy(Value(100.0, "J", "estimated", 60.0, 140.0))
DERIVED = SourceEnergy(Value(500.0, "J", "derived"), ("cuda:0",))
COVERS, LACKING = ("CPU packages (1 of 2)", "DRAM"), ("package-1", "disks")


@pytest.mark.parametrize(
    ("finding", "words"),
    [
        (NoEnergy("no counter"), "No energy is known: no counter."),
        (
            SpentEnergy((MEASURED,), 4e9, False, COVERS, LACKING, ""),
            "400 J measured in 4.0 s, 100 W on average: CPU packages (1 of 2) and DRAM; not package-1, disks.",
        ),
        (
            SpentEnergy((MEASURED, DERIVED, ESTIMATED), 4e9, True, COVERS, LACKING, "DRAM"),
            "400 J measured in 4.0 s of the whole run, 100 W on average: CPU packages (1 of 2) and DRAM; not "
            "package-1, disks. 500 J derived in 4.0 s of the whole run: CPU packages (1 of 2), DRAM and cuda:0 by the "
            "integral of its power. 100 J (60.0 J to 140 J) estimated in 4.0 s of the whole run: DRAM, by a power "
            "model.",
        ),
        (
            NodesEnergy((MEASURED, DERIVED, ESTIMATED), 10e9, 4, 2, COVERS, LACKING, "DRAM"),
            "400 J measured on 4 nodes of 2 machines, 10.0 s of the whole run on the first: CPU packages (1 of 2) and "
            "DRAM; not package-1, disks. 500 J derived on 4 nodes of 2 machines, 10.0 s of the whole run on the first: "
            "the same with GPUs that have no counter, by the integral of their power. 100 J (60.0 J to 140 J) "
            "estimated on 4 nodes of 2 machines, 10.0 s of the whole run on the first: DRAM, by a power model.",
        ),
        (
            NodesEnergy((SourceEnergy(Value(None, "J", "measured", reason="node b: gone")),), 1e9, 2, 2, (), (), ""),
            "The measured energy of all nodes is not known: node b: gone.",
        ),
        (
            NodeFindings((("a", NoEnergy("x")), ("b", NoEnergy("y")))),
            "Node a: No energy is known: x. Node b: No energy is known: y.",
        ),
        (OnNode("a", ThrottledTimes("cpu", 2)), "node a: cpu was throttled 2 times: too hot"),
        (
            SharedMachine(("a", "b")),
            "nodes a and b are processes of one machine and read the same sensors, so its energy counts once",
        ),
        (ReadingRate(1200, 0.5, None), "read 1,200 times, every 0.5 s"),
        (ReadingRate(3, 0.5, 0.02), "read 3 times, every 0.5 s; reading took 2.0 % of one processor"),
        (UnreadCounter("RAPL", "only root may", ""), "RAPL: only root may"),
        (UnreadCounter("RAPL", "only root may", "run as root"), "RAPL: only root may; run as root"),
        (
            WholeMachine(),
            "sensors measure the whole machine: what other programs did meanwhile is in these numbers",
        ),
        (LostCounters(("package-1",)), "the measured total is without package-1: it is too low"),
        (
            IntegralOff("cuda:0", 0.1),
            "cuda:0: the integral of power is 10 % off the energy counter: the load changes faster than power is "
            "sampled",
        ),
        (ThrottledTimes("cpu", 1), "cpu was throttled 1 time: too hot"),
        (ThrottledShare("cuda:0", 0.25, "power limit"), "cuda:0 was throttled for 25 % of the time: power limit"),
        (
            FinishSooner(Value(0.59, "1", "derived", 0.5, 0.7)),
            "finish sooner, or do more at once: idling as long would have taken 59 % (50 to 70 %) of it",
        ),
    ],
)
def test_each_finding_has_its_words(finding: Finding, words: str) -> None:
    assert describe(finding) == words
