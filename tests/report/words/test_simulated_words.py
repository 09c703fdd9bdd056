"""Words for simulated accelerators and explorations."""

from __future__ import annotations

import pytest

from sonda.analysis.findings import Finding
from sonda.analysis.simulated.findings import (
    BestDesign,
    BestDesigns,
    CycleBound,
    DesignChange,
    ImplausibleTable,
    NoArea,
    NoGain,
    NoSimulatedEnergy,
    NothingCompared,
    NothingOnEngines,
    SimulatedArea,
    SimulatedEnergy,
    UnknownGain,
    UsedEnergyTable,
    WidenBound,
)
from sonda.analysis.summary import Value
from sonda.report.words import describe

CHANGE = DesignChange("twice the ports", settings="read_ports=64")
CYCLES, ENERGY, AREA = (
    Value(number, unit, "simulated") for number, unit in ((1204.0, "cycle"), (2e-9, "J"), (4.1, "mm2"))
)


def design(number: int, **values: Value) -> BestDesign:
    return BestDesign(number, (("multipliers", 64), ("ports", number)), tuple(values.items()))


@pytest.mark.parametrize(
    ("finding", "words"),
    [
        (NothingOnEngines("maeri"), "Nothing to judge: no operation ran on an engine of maeri."),
        (
            CycleBound("memory", "linear layer", 0.89, Value(3060.0, "cycle", "simulated"), 0.6, Value(0.25, "1", "")),
            "Memory-bound in the linear layers: 89 % of 3,060 cycles, 60 % of them spent waiting for the memory behind "
            "the global buffer; the multipliers do useful work 25 % of the time.",
        ),
        (
            CycleBound("compute", "embedding", 1.0, Value(1.0, "cycle", "simulated"), 1.0, Value(None, "1", "")),
            "Compute-bound in the embeddings: 100 % of 1 cycle, 100 % of them spent multiplying.",
        ),
        (WidenBound("memory"), "a larger global buffer or more bandwidth"),
        (CHANGE, "--set read_ports=64 (twice the ports)"),
        (DesignChange("both", settings="a=1 b=2", besides=True), 'also --set "a=1 b=2" (both)'),
        (DesignChange("the best tiles", mapping="best"), "--mapping best (the best tiles)"),
        (
            UnknownGain(CHANGE, "too large"),
            "not known what it would bring: --set read_ports=64 (twice the ports); too large",
        ),
        (NoGain(CHANGE, 1.0), "would bring nothing: --set read_ports=64 (twice the ports), 1.00x (simulated)"),
        (NoGain(CHANGE, 0.9), "would take longer: --set read_ports=64 (twice the ports), 0.90x (simulated)"),
        (NoSimulatedEnergy("no table"), "no energy: no table"),
        (
            NoSimulatedEnergy("no unit", Value(12345.678, "", "simulated", 6000.0, 24000.0)),
            "no energy in joules: no unit; in the table's own numbers 12345.7 (6,000–24,000), bounds in brackets",
        ),
        (
            SimulatedEnergy(
                Value(3.2e-6, "J", "simulated", 1.6e-6, 6.4e-6), (("DRAM", 0.8), ("own", 0.2), ("x", 1e-5))
            ),
            "energy 3.2 µJ (1.6–6.4), bounds of its table in brackets: memory 80 %, own 20 %",
        ),
        (UsedEnergyTable("", (), None, "", (), (), False, ()), "energy table unknown (no node stated)"),
        (
            UsedEnergyTable("45nm", ("45 nm",), 2048.0, "DDR4", ("ADD",), ("Buffer",), True, ("MUL",)),
            "energy table 45nm (45 nm); as if the global buffer had 2 KiB; memory DDR4; no entry for ADD; no static "
            "energy (without a clock) of Buffer; recalled, not verified: MUL",
        ),
        (ImplausibleTable("two", "too small"), "energy table two is implausible: too small; set energy_table=45nm"),
        (NoArea("another version"), "no area: another version"),
        (NoArea("no entry", ("maeri", "mesh")), "no area of maeri, mesh: no entry"),
        (
            SimulatedArea((("mesh", 4.3),), Value(7.0, "mm²", "simulated", 1.9, 27.0), ("SRAM",), ("MUL",)),
            "area mesh 4.3, together 7 mm² (1.9–27), bounds of its table in brackets; no entry for SRAM; recalled, not "
            "verified: MUL",
        ),
        (NothingCompared(), "No two points can be compared: energy and area of none are known."),
        (
            BestDesigns((design(1, cycles=CYCLES, energy=ENERGY), design(2, area=AREA)), design(2, cycles=CYCLES)),
            "Fastest (1,204 cycles) and least energy (2 nJ): multipliers=64 ports=1; smallest (4.1 mm2): "
            "multipliers=64 ports=2; best trade: multipliers=64 ports=2.",
        ),
        (
            BestDesigns((design(1, cycles=CYCLES),), design(3, cycles=CYCLES, area=AREA)),
            "Fastest (1,204 cycles): multipliers=64 ports=1; best trade (1,204 cycles, 4.1 mm2): multipliers=64 "
            "ports=3.",
        ),
        (
            BestDesigns((design(1, cycles=CYCLES, area=AREA),), design(1, cycles=CYCLES)),
            "Fastest (1,204 cycles) and smallest (4.1 mm2): multipliers=64 ports=1.",
        ),
    ],
)
def test_each_finding_has_its_words(finding: Finding, words: str) -> None:
    assert describe(finding) == words
