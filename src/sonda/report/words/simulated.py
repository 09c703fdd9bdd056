"""Words for simulated accelerators and explorations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sonda.analysis import wording
from sonda.analysis.simulated.exploration import amount
from sonda.analysis.simulated.findings import (
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
from sonda.report import quantities
from sonda.report.words.describe import describe
from sonda.report.words.names import name_family

SPENT = {
    "distribution": "spent bringing operands to the multipliers",
    "compute": "spent multiplying",
    "reduction": "spent adding up products",
    "writeback": "spent writing results back",
    "configuration": "spent setting the engine up",
    "memory": "spent waiting for the memory behind the global buffer",
}
UNTRIED = {
    "distribution": "more read ports",
    "compute": "more multipliers",
    "reduction": "more write ports",
    "writeback": "more write ports",
    "configuration": "larger tiles",
    "memory": "a larger global buffer or more bandwidth",
}
SECTIONS = {
    "DSNetwork": "distribution network",
    "MSNetwork": "multiplier network",
    "ReduceNetwork": "reduction network",
    "GlobalBuffer": "global buffer",
    "CollectionBus": "collection bus",
    "DRAM": "memory",
}
"""Sections of the machine in words."""
SUPERLATIVES = {"cycles": "fastest", "energy": "least energy", "area": "smallest"}
BEST_TRADE = "best trade"


def bounded(value: Value) -> str:
    """`3.2 µJ (1.6–6.4)`; a number without a unit that anybody knows keeps its six digits."""
    middle, low, high = (float(end or 0.0) for end in (value.value, value.low, value.high))
    if value.unit != "J":
        return f"{middle:.6g} ({_digits(low)}–{_digits(high)}){f' {value.unit}' if value.unit else ''}"
    for factor, name in ((1.0, "J"), (1e-3, "mJ"), (1e-6, "µJ"), (1e-9, "nJ"), (1e-12, "pJ")):
        if middle >= 0.9995 * factor or name == "pJ":
            break
    return f"{_digits(middle / factor)} {name} ({_digits(low / factor)}–{_digits(high / factor)})"


def _digits(value: float) -> str:
    """Three digits, `1,950` and not `1.95e+03`."""
    digits = quantities.significant(value)
    return quantities.whole(float(digits)) if 1000 <= abs(value) < 1e9 else digits


# ---- Cycles ---------------------------------------------------------------------------------------------------------


@describe.register
def _(finding: NothingOnEngines) -> str:
    return f"Nothing to judge: no operation ran on an engine of {finding.accelerator}."


@describe.register
def _(finding: CycleBound) -> str:
    sentence = (
        f"{finding.bound.capitalize()}-bound in the {name_family(finding.family)}: {wording.percent(finding.share)} of "
        f"{wording.plural(finding.cycles.value or 0.0, 'cycle')}, {wording.percent(finding.spent)} of them "
        f"{SPENT[finding.bound]}"
    )
    if finding.utilisation.value is not None:
        useful = wording.percent(finding.utilisation.value)
        sentence += f"; the multipliers do useful work {useful} of the time"
    return f"{sentence}."


@describe.register
def _(finding: WidenBound) -> str:
    return UNTRIED[finding.bound]


@describe.register
def _(finding: DesignChange) -> str:
    if finding.mapping:
        return f"--mapping {finding.mapping} ({finding.description})"
    settings = f'"{finding.settings}"' if " " in finding.settings else finding.settings
    return f"{'also ' if finding.besides else ''}--set {settings} ({finding.description})"


@describe.register
def _(finding: UnknownGain) -> str:
    return f"not known what it would bring: {describe(finding.change)}; {finding.reason}"


@describe.register
def _(finding: NoGain) -> str:
    lead = "would bring nothing" if finding.speedup > 0.995 else "would take longer"
    return f"{lead}: {describe(finding.change)}, {quantities.times(finding.speedup)} (simulated)"


# ---- Energy and area ------------------------------------------------------------------------------------------------


@describe.register
def _(finding: NoSimulatedEnergy) -> str:
    if finding.in_table is None:
        return f"no energy: {finding.reason}"
    own = bounded(finding.in_table)
    return f"no energy in joules: {finding.reason}; in the table's own numbers {own}, bounds in brackets"


@describe.register
def _(finding: SimulatedEnergy) -> str:
    spent = ", ".join(
        f"{SECTIONS.get(name, name)} {wording.percent(share)}" for name, share in finding.shares if share >= 5e-4
    )
    return f"energy {bounded(finding.total)}, bounds of its table in brackets: {spent}"


@describe.register
def _(finding: UsedEnergyTable) -> str:
    sentences = [f"energy table {finding.table or 'unknown'} ({', '.join(finding.nodes) or 'no node stated'})"]
    if finding.assumed_buffer is not None:
        sentences.append(f"as if the global buffer had {finding.assumed_buffer / 1024:g} KiB")
    if finding.dram:
        sentences.append(f"memory {finding.dram}")
    if finding.lacking:
        sentences.append(f"no entry for {', '.join(finding.lacking)}")
    if finding.static:
        clock = " (without a clock)" if finding.no_clock else ""
        sentences.append(f"no static energy{clock} of {', '.join(finding.static)}")
    if finding.recalled:
        sentences.append(f"recalled, not verified: {', '.join(finding.recalled)}")
    return "; ".join(sentences)


@describe.register
def _(finding: ImplausibleTable) -> str:
    return f"energy table {finding.table} is implausible: {finding.reason}; set energy_table=45nm"


@describe.register
def _(finding: NoArea) -> str:
    of = f" of {', '.join(finding.parts)}" if finding.parts else ""
    return f"no area{of}: {finding.reason}"


@describe.register
def _(finding: SimulatedArea) -> str:
    """`area perceptrons 4.3, embeddings 2.3, global buffer 0.4, together 7 mm² (1.9–27)`."""
    listed = "".join(f"{name} {_digits(area)}, " for name, area in finding.parts)
    value, low, high = (_digits(end or 0.0) for end in _ends(finding.together))
    return (
        f"area {listed}together {value} mm² ({low}–{high}), bounds of its table in brackets"
        + (f"; no entry for {', '.join(finding.lacking)}" if finding.lacking else "")
        + (f"; recalled, not verified: {', '.join(finding.recalled)}" if finding.recalled else "")
    )


def _ends(value: Value) -> tuple[float | None, float | None, float | None]:
    return value.value, value.low, value.high


# ---- Explorations ---------------------------------------------------------------------------------------------------


@describe.register
def _(finding: NothingCompared) -> str:
    return "No two points can be compared: energy and area of none are known."


@describe.register
def _(finding: BestDesigns) -> str:
    sentences = [
        f"{wording.join([f'{SUPERLATIVES[name]} ({amount(value)})' for name, value in design.values])}: "
        f"{settings_words(design.settings)}"
        for design in finding.best
    ]
    knee = finding.knee
    if knee.number not in {design.number for design in finding.best}:
        costs = ", ".join(amount(value) for _, value in knee.values)
        sentences.append(f"{BEST_TRADE} ({costs}): {settings_words(knee.settings)}")
    elif len(finding.best) > 1:
        sentences.append(f"{BEST_TRADE}: {settings_words(knee.settings)}")
    text = "; ".join(sentences)
    return f"{text[:1].upper()}{text[1:]}."


def settings_words(settings: Iterable[tuple[str, Any]]) -> str:
    """`multipliers=64 read_ports=16`."""
    return " ".join(f"{key}={value}" for key, value in settings)
