"""The end of a run's section: what could not be measured and why, what the words mean, where the numbers come from."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sonda.analysis.figure_names import figure_words, meaning
from sonda.analysis.summary import Summary, Value
from sonda.record.quantities import SOURCES
from sonda.record.run import RunInfo
from sonda.record.target import SimulatedTarget
from sonda.report import quantities
from sonda.report.blocks import Block, Facts, Items, Panel, Paragraph, TableBlock
from sonda.report.table import Cell, Column, Table, build, words
from sonda.report.words import in_words

COUNTED = ("mapping", "energy", "area", "what_if", "outside", "second", "shown", "metered", "alone", "nodes",
           "no_kernels")  # fmt: skip
"""What a simulated target says of every operation: in tables and notes, and in `sonda show --json`."""
STATES = {"ok": "worked", "missing": "not there", "dead": "there, but says nothing", "off": "not asked for"}
PROBES = {"pmu": "hardware counters (pmu)", "energy": "energy, in joules", "os": "counts of the operating system (os)"}
"""Names of probes for those who do not know them."""
WORDS = {
    "step": "one batch of data through the network and, in training, one change of its weights",
    "phase": "a part of a step: fetching data, forward, loss, backward, optimizer; what belongs to none is other",
    "layer": "a module of the model; times of a layer hold those of the layers inside, own times do not",
    "FLOP": "a floating-point operation; a multiply-add is two. MFLOP, GFLOP: a million, a thousand million",
    "roof": "the least time that this machine's measured peak and bandwidth allow; 50 % of roof is twice that time",
    "limit": "compute, memory or overhead, whichever explains at least half of the time; otherwise –",
    "overhead": "time that the framework needs to start operations, whatever they compute",
    "median": "half of the steps are faster, half slower; ± is half of its 95 % interval, of fewer than six steps half "
    "of what lies between the least and the most",
}
"""What a page of a measured run takes for granted."""
SIMULATED = {
    "cycle": "one tick of the simulated accelerator's clock",
    "utilisation": "products that the network asks for, over those that all multipliers could have computed meanwhile",
    "mapping": "which part of an operation is on the multipliers at one time",
    "distribution, compute, reduction, writeback": "bringing operands to the multipliers, multiplying, adding up, and "
    "bringing results back",
}
SLOTS = {
    "slot": "room for one operation in the processor's pipeline in one cycle",
    "Top-Down": "where slots go: retiring is useful work; frontend bound waits for instructions, backend bound for "
    "data or arithmetic units; bad speculation is work on a wrong path",
    "MPKI": "misses per 1,000 instructions",
}
ENERGY = {
    "J, W": "joule, of energy; watt, of power: a joule a second",
    "idle": "power that the machine takes while the program does not run, read before it began",
    "EDP": "energy-delay product: energy times time, so that slow and frugal does not beat fast and hungry for nothing",
}
KERNELS = {
    "kernel": "a program that runs on the GPU",
    "launch": "the host's call that starts a kernel",
    "stall": "a reason for which threads of a kernel wait",
    "stream": "a queue of kernels that run one after the other",
}
STUDY = {
    "configuration": "one way to run it: a value for each thing that the study varies",
    "repetition": "the same configuration once more, in a process of its own; a figure is their median",
    "variant": "one of several ways to do the same work, which stand side by side",
    "±": "half of an interval, in percent of the figure; hover over the number for its ends and what they are",
    "published": "printed in the paper or thesis that the study repeats, measured on the machine named there",
}
SOURCE = ("source", "; ".join(f"{name}: {meaning}" for name, meaning in SOURCES.items()))


def study_words(text: str, columns: Sequence[tuple[str, str]], simulated: bool) -> tuple[tuple[str, str], ...]:
    """Meanings of the words that occur in the text of a study's section, and of its figures, which are given by key and
    unit."""
    known = STUDY | {word: WORDS[word] for word in ("step", "phase", "layer", "FLOP", "roof")} | SLOTS
    known |= SIMULATED if simulated else {}
    # A GPU that is idle has nothing to do with power that is taken meanwhile.
    known |= ENERGY if any(word in key for key, _ in columns for word in ("energy", "edp", "power")) else {}
    occurring = {
        words: meant for words, meant in known.items() if any(_occurs(word, text) for word in words.split(", "))
    }
    figures = {figure_words(*column): meant for column in columns if (meant := meaning(*column))}
    return (*occurring.items(), *figures.items(), SOURCE)


def _occurs(word: str, text: str) -> bool:
    return re.search(rf"(?<![A-Za-z-])[kMGT]?{re.escape(word)}s?(?![A-Za-z-])", text) is not None


def lacking_table(summary: Summary, info: RunInfo | None) -> Table | None:
    """What could not be measured, why, and what would help; None where nothing is missing."""
    rows: list[tuple[str, str, str]] = []
    for probe in info.probes if info is not None else ():
        if probe.state != "ok":
            rows.append(
                (PROBES.get(probe.name, probe.name), probe.reason or STATES.get(probe.state, probe.state), probe.remedy)
            )
    # What a simulated accelerator has no notion of is not missing.
    measured = not isinstance(summary.target, SimulatedTarget)
    reason = summary.ceilings.get("reason")
    if reason and measured and summary.parts:  # what has no steps is not held against them
        rows.append(("ceilings of the machine", str(reason), ""))
    for part in summary.parts if measured else ():
        missing: dict[tuple[str, str], list[str]] = {}
        for row in part.phases:
            values = {"FLOPs": row.cost.flops, "bytes": row.cost.bytes, "% of roof": row.cost.roof,
                      "peak memory": row.peak_memory}  # fmt: skip
            for name, value in values.items():
                if not quantities.known(value) and value.reason:
                    missing.setdefault((row.name, value.reason), []).append(name)
        prefix = f"{part.name}: " if len(summary.parts) > 1 else ""
        phases: dict[tuple[str, str], list[str]] = {}
        for (phase, why), names in missing.items():
            phases.setdefault((", ".join(names), why), []).append(phase)
        rows += [(f"{prefix}{names} of {', '.join(of)}", why, "") for (names, why), of in phases.items()]
    energy = summary.energy
    if energy is not None and energy.not_covered:
        rows.append(("energy of " + ", ".join(energy.not_covered), "no sensor that could be read here covers it", ""))
    if not rows:
        return None
    return build(
        [
            (Column("not measured", right=False), [Cell(name, name, tone="name") for name, _, _ in rows]),
            (Column("why", right=False), words([why for _, why, _ in rows])),
            (Column("what would help", right=False, wrap=True), words([help_ for _, _, help_ in rows])),
        ],
        "not measured",
    )


def lacking_blocks(summary: Summary, info: RunInfo | None) -> list[Block]:
    """What could not be measured, where anything could not."""
    table = lacking_table(summary, info)
    return [Panel("What could not be measured", [TableBlock(table, look="sortable prose")])] if table else []


def summary_words(summary: Summary) -> tuple[tuple[str, str], ...]:
    """What the words of this section mean, and what sources there are."""
    simulated = any(part.simulated is not None for part in summary.parts)
    meanings = {"step": WORDS["step"], "layer": WORDS["layer"], **SIMULATED} if simulated else dict(WORDS)
    if not summary.parts:
        meanings = {}
    if any(part.topdown is not None or part.counted is not None for part in summary.parts):
        meanings |= SLOTS
    if any(part.device is not None for part in summary.parts) or summary.device_work is not None:
        meanings |= KERNELS
    if summary.energy is not None:
        meanings |= ENERGY
    return (*meanings.items(), SOURCE)


def origin_blocks(summary: Summary, info: RunInfo | None) -> list[Block]:
    """Where the numbers come from: notes, the machine with its ceilings and versions, the probes that worked."""
    facts: list[tuple[str, str]] = []
    for name, value in summary.ceilings.items():
        # Peaks of other precisions are there for remedies; the one that applied is `flops`.
        if name not in ("reason", "peaks"):
            shown = quantities.provenance(value) if isinstance(value, Value) else str(value)
            facts.append((f"ceiling: {name.replace('_', ' ')}", shown))
    if info is not None:
        facts += [(f"version: {name}", version) for name, version in info.versions.items()]
        targets = {name: value for name, value in info.target.plain().items() if name not in COUNTED}
        for about, known in (("target", targets), ("workload", info.workload.plain())):
            facts += [(f"{about}: {name}", text) for name, value in known.items() if (text := _in_words(value))]
        facts += [_overhead_fact(name, value) for name, value in info.overhead.items()]
        facts.append(("created", info.created))
    blocks: list[Block] = [Items(in_words(summary.notes), tone="")] if summary.notes else []
    if facts:
        blocks.append(Facts("Machine, ceilings and versions", facts))
    working = [probe.name for probe in info.probes if probe.state == "ok"] if info is not None else []
    if working:
        blocks.append(Paragraph(f"Probes that worked: {', '.join(working)}", "small"))
    return [Panel("Where the numbers come from", blocks)] if blocks else []


def _in_words(value: object) -> str:
    """A plain value as a reader writes it: `matmul: no, convolution: no` for a mapping; '' for an empty one."""
    if isinstance(value, dict):
        texts = {name: _in_words(inside) for name, inside in value.items()}
        return ", ".join(
            f"{name} ({text})" if isinstance(value[name], dict | list) else f"{name}: {text}"
            for name, text in texts.items() if text
        )  # fmt: skip
    if isinstance(value, list | tuple):
        between = "; " if any(isinstance(inside, dict | list) for inside in value) else ", "
        return between.join(filter(None, map(_in_words, value)))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


def _overhead_fact(name: str, value: float) -> tuple[str, str]:
    """What observing costs: `span_ns` was measured, `spans_per_step` a mean count, `step_share` follows from both."""
    title = f"observing: {name.removesuffix('_ns').replace('_', ' ')}"
    if name.endswith("_ns"):
        return title, f"{quantities.amount(value, 'ns')}, measured"
    if name.endswith("_share"):
        return title, f"{quantities.percent(value, 2)} %, derived"
    return title, f"{quantities.number(value)}, counted"
