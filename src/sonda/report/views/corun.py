"""Programs side by side: the slowdown matrix, how each fared, and what partitions changed; terminal, page, document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sonda.analysis import reasons
from sonda.analysis.corun.interference import Company, Interference
from sonda.analysis.corun.layers import LayerSlowdown, order
from sonda.analysis.summary import Value
from sonda.report import quantities
from sonda.report.blocks import (
    FEW_ROWS,
    ROWS,
    Aside,
    Bar,
    Bars,
    Block,
    FigureBlock,
    Gap,
    Heading,
    Panel,
    Paragraph,
    TableBlock,
    View,
    answer,
    doubts,
    opening,
    paragraphs,
)
from sonda.report.charts.chart import Chart
from sonda.report.table import Cell, Column, Table, build, numbers, percents, quantity, words
from sonda.report.values import value_document
from sonda.report.views.corun_figures import slowdown_map
from sonda.report.views.counters.sensors import (
    PROBED_MEANS,
    probed_blocks,
    probed_fields,
    probed_line,
    probed_table,
)
from sonda.report.views.energy import energy_blocks, energy_fields, energy_panels
from sonda.report.words import describe
from sonda.report.words.corun import times

# ---- Programs side by side in detail: phases and layers that company slows, and counters alone and together ---------

LEAST, MOST = 0.1, 10
"""Ends of an interval beyond these are not printed: nothing is known then."""
SHOWN_LAYERS = 8
PAGE_LAYERS = 100
TITLES = {
    "ipc": "IPC",
    "cache_misses": "cache misses",
    "cores_used": "cores used",
    "page_faults": "faults",
    "context_switches": "switches",
    "occupancy": "cache held",
    "memory_traffic": "memory traffic",
}
BASES = {"page_faults": " a step", "context_switches": " a step", "cache_misses": " /1000"}
"""What counters are divided by, where their titles say it. Other events of the PMU have the base of cache misses."""
HINTS = {
    "ipc": "instructions per cycle",
    "cache_misses": "misses of the last-level cache per 1000 instructions; on AMD those of a level before it",
    "cores_used": "CPU time over time",
    "page_faults": "page faults per step",
    "context_switches": "context switches per step",
    "occupancy": "of the last-level cache, at the end of a window",
    "memory_traffic": "to and from memory",
}
LEVELS = ("occupancy", "memory_traffic")
"""Counters that are shown for all programs together only."""


def counters_table(interference: Interference) -> Table:
    """What was counted of each program alone and with all others; what nobody has is in `uncounted_lines`."""
    names = interference.participants
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (Column("program", right=False), [Cell(name, name, tone="name") for name in names])
    ]
    for place, counter in enumerate(_counter_names(interference)):
        alone, together = _counter_values(interference, counter)
        if not any(map(quantities.known, [*alone, *together])):
            continue
        keep, hint = max(2, 8 - place), HINTS.get(counter, "per 1000 instructions")
        if counter in LEVELS:
            unit, cells = numbers(together)
            columns.append((Column(f"{_title(counter)}, {unit}", keep=keep, hint=hint), cells))
            continue
        columns.append((Column(f"{_title(counter)} alone", keep=keep, hint=hint), plain_cells(alone)))
        columns.append(
            (Column(f"{TITLES.get(counter, counter)} together", keep=keep, hint=hint), plain_cells(together))
        )
    return build(columns, "counters")


def uncounted_lines(interference: Interference) -> list[str]:
    """`IPC, cache misses /1000: no PMU in this virtual machine`, for what no program has."""
    titles_by_reason: dict[str, list[str]] = {}
    for counter in _counter_names(interference):
        values = [value for when in _counter_values(interference, counter) for value in when]
        if not any(map(quantities.known, values)):
            titles_by_reason.setdefault(values[0].reason, []).append(_title(counter))
    return [f"{', '.join(titles)}: {reason}" for reason, titles in titles_by_reason.items()]


def _counter_names(interference: Interference) -> list[str]:
    """All but what stands in the table of programs; what the processor says comes first."""
    known = dict.fromkeys(
        name for program in interference.participants for name in interference.together.counters[program]
    )
    last = ["cores_used", "page_faults", "context_switches", *LEVELS]
    return [*(name for name in known if name not in (*last, "waiting")), *(name for name in last if name in known)]


def _title(counter: str) -> str:
    base = BASES.get(counter, "") if counter in TITLES else BASES["cache_misses"]
    return f"{TITLES.get(counter, counter)}{base}"


def _counter_values(interference: Interference, counter: str) -> tuple[list[Value], list[Value]]:
    missing = Value(None, "1", "counted", reason="not counted")
    alone = [
        interference.alone[program].counters[program].get(counter, missing) for program in interference.participants
    ]
    return alone, [
        interference.together.counters[program].get(counter, missing) for program in interference.participants
    ]


def phases_table(interference: Interference) -> Table | None:
    """Slowdown of every phase with all together; None where no participant has phases."""
    phases = list(dict.fromkeys(phase for by in interference.together.phases.values() for phase in by))
    if not phases:
        return None
    names = [name for name in interference.participants if interference.together.phases.get(name)]
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (Column("program", right=False), [Cell(name, name, tone="name") for name in names])
    ]
    for phase in phases:
        cells = [
            slowdown_cell(by[phase]) if phase in by else Cell("")
            for by in (interference.together.phases[name] for name in names)
        ]
        columns.append((Column(phase), cells))
    return build(columns, "phases")


def layers_table(interference: Interference, most: int = SHOWN_LAYERS) -> Table | None:
    """The layers that lose most time per step to company, of all programs; None where none loses any."""
    seen = [(name, layer) for name, layers in interference.together.layers.items() for layer in layers if _loses(layer)]
    rows = sorted(seen, key=lambda row: order(row[1]))[:most]
    if not rows:
        return None
    layers = [layer for _, layer in rows]
    unit, times = numbers([*(layer.alone for layer in layers), *(layer.together for layer in layers)])
    lost_unit, lost = numbers([layer.lost for layer in layers])
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (Column("program", right=False), [Cell(name, name, tone="name") for name, _ in rows]),
        (Column("layer", right=False, path=True), words([layer.layer or "(model)" for layer in layers])),
        (Column("type", right=False, keep=4), words([layer.kind for layer in layers])),
        (Column("direction", right=False, keep=7), words([layer.direction for layer in layers])),
        (Column(f"alone, {unit}", hint="a step"), times[: len(layers)]),
        (Column(f"together, {unit}", hint="a step"), times[len(layers) :]),
        (Column("slowdown"), [slowdown_cell(layer.slowdown) for layer in layers]),
        (Column(f"lost, {lost_unit}", keep=6, hint="a step"), lost),
    ]
    return build(columns, "layers")


def _loses(layer: LayerSlowdown) -> bool:
    return layer.lost.value is not None and layer.lost.value > 0


def layer_fields(layer: LayerSlowdown) -> dict[str, Any]:
    """As a JSON object."""
    return {
        "layer": layer.layer,
        "type": layer.kind,
        "direction": layer.direction,
        "alone": value_document(layer.alone),
        "together": value_document(layer.together),
        "slowdown": value_document(layer.slowdown),
        "lost": value_document(layer.lost),
    }


def slowdown_cell(value: Value) -> Cell:
    """A slowdown; quiet where its interval holds 1, so that nothing can be said for sure."""
    if value.value is None:
        return _missing_cell(value)
    tone = "quiet"
    if value.low is not None and value.high is not None:
        tone = "bad" if value.low > 1 else "good" if value.high < 1 else "quiet"
    return quantity(value, _with_interval(value), tone)


def figure_cell(value: Value) -> Cell:
    if value.value is None:
        return _missing_cell(value)
    return quantity(value, _with_interval(value))


def plain_cells(values: Sequence[Value]) -> list[Cell]:
    return [
        _missing_cell(value) if value.value is None else quantity(value, quantities.brief(value.value))
        for value in values
    ]


def _missing_cell(value: Value) -> Cell:
    # That a program has no slowdown by itself needs no word below the table.
    return Cell(
        quantities.MISSING, None, value.reason, "" if value.reason == reasons.NO_NEIGHBOUR else value.reason, "quiet"
    )


def _with_interval(value: Value) -> str:
    """`1.42 (1.35–1.50)`."""
    middle = quantities.ratio(value.value or 0.0)
    if value.low is None or value.high is None:
        return middle
    return f"{middle} ({quantities.ratio(value.low, least=LEAST)}–{quantities.ratio(value.high, most=MOST)})"


# ----------------------------------------------------------------------------------------------------------------------

ALL = "all others"
GREYED = "what is not significant, or has no interval, is grey."


def corun_blocks(found: Interference) -> list[Block]:
    """The sentence, who slows whom, what each lost, what was counted, and what a reader must know."""
    blocks: list[Block] = [
        Heading(found.title),
        Paragraph(found.subtitle, "quiet", 0, 0),
        Gap(),
        Paragraph(describe(found.finding), "first"),
    ]
    if found.remedy:
        blocks.append(Paragraph(f"Try: {describe(found.remedy)}", hang=5))
    blocks += [
        Gap(),
        Paragraph("Time per step beside others over time per step alone; a row suffers from a column:", "quiet"),
        TableBlock(matrix_table(found)),
        Gap(),
        Paragraph("A step alone and with all others:", "quiet", hang=0),
        TableBlock(participants_table(found)),
    ]
    phases = phases_table(found)
    if phases is not None:
        blocks += [Gap(), Paragraph("Slowdown by phase, all together:", "quiet", hang=0), TableBlock(phases)]
    layers = layers_table(found)
    if layers is not None:
        blocks += [
            Gap(),
            Paragraph("Layers that lose most to company, all together, a step:", "quiet", hang=0),
            TableBlock(layers),
        ]
    uncounted = [Paragraph(f"– {line}", "quiet") for line in uncounted_lines(found)]
    counted = TableBlock(counters_table(found))
    blocks.append(Aside([Gap(), Paragraph("Counted:", "quiet", hang=0), counted, *uncounted]))
    blocks += [Gap(), TableBlock(companies_table(found))]
    if found.partition_reason:
        blocks.append(Paragraph(f"– partitions: {found.partition_reason}", "quiet"))
    blocks += energy_blocks(found.energy) if found.energy is not None else []
    blocks += probed_blocks(found.probed)
    blocks += [Gap(), *paragraphs(map(describe, found.warnings), "warning"), *paragraphs(map(describe, found.notes))]
    return blocks


def matrix_table(interference: Interference, cpu: bool = False) -> Table:
    """Who suffers from whom."""
    names = interference.participants
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (Column("slowed", right=False), [Cell(name, name, tone="name") for name in names])
    ]
    for other in names:
        columns.append(
            (Column(f"by {other}"), [slowdown_cell(interference.slowdown(name, other, cpu)) for name in names])
        )
    if len(names) > 2:
        all_of_them = interference.together.cpu_slowdowns if cpu else interference.together.slowdowns
        columns.append((Column(f"by {ALL}"), [slowdown_cell(all_of_them[name]) for name in names]))
    return build(columns, "slowdown")


def participants_table(interference: Interference) -> Table:
    """How each fared alone and with all others, and what the system counted."""
    names = interference.participants
    whole = interference.together
    alone = [interference.alone[name].steps[name] for name in names]
    together = [whole.steps[name] for name in names]
    unit, cells = numbers([*alone, *together])
    cores = ["+".join(map(str, program.cores)) for program in interference.described]

    def counted(name: str, company: Company | None = None) -> list[Value]:
        return [(company or interference.alone[program]).counters[program][name] for program in names]

    columns: list[tuple[Column, Sequence[Cell]]] = [
        (Column("program", right=False), [Cell(name, name, tone="name") for name in names]),
        (Column("cores", right=False, keep=4), words(cores)),
        (Column(f"alone, {unit}", hint="a step"), cells[: len(names)]),
        (Column(f"together, {unit}", hint="a step"), cells[len(names) :]),
        (Column("slowdown"), [slowdown_cell(whole.slowdowns[name]) for name in names]),
        (Column("of CPU time", keep=8, hint="CPU time per step together over alone: without waiting for a core"),
         [slowdown_cell(whole.cpu_slowdowns[name]) for name in names]),
        (Column("waiting alone", keep=6, hint="share of the time that its threads waited for a core"),
         percents(counted("waiting"))),
        (Column("waiting together", keep=6), percents(counted("waiting", whole))),
    ]  # fmt: skip
    return build(columns, "participants")


def corun_glance(found: Interference, rows: int) -> list[Block]:
    """How much each program is slowed by all others, and the layers that lose most."""
    slowed = [(name, found.together.slowdowns[name]) for name in found.participants]
    largest = max((value.value or 0.0 for _, value in slowed), default=0.0) or 1.0
    programs = []
    for name, value in slowed[:rows]:
        alone, together = (company.steps[name].value for company in (found.alone[name], found.together))
        steps = f"{quantities.amount(alone, 'ns')} alone, {quantities.amount(together, 'ns')} together"
        doubt = "" if _is_significant(value) else "may be chance: "
        factor = quantities.times(value.value) if value.value is not None else quantities.MISSING
        programs.append(Bar(name, (value.value or 0.0) / largest, factor, note=f"{doubt}{steps}"))
    lost = [(name, layer) for name, layers in found.together.layers.items() for layer in layers if _loses(layer)]
    layers = sorted(lost, key=lambda row: order(row[1]))[: max(0, rows - len(programs))]
    most = max((layer.lost.value or 0.0 for _, layer in layers), default=0.0) or 1.0
    bars = [
        Bar(f"{name}: {layer.layer or '(model)'}", (layer.lost.value or 0.0) / most,
            f"+{quantities.amount(layer.lost.value, 'ns')}", layer.kind, layer.direction)
        for name, layer in layers
    ]  # fmt: skip
    blocks = opening(f"{found.title} · {found.subtitle}", found.finding, found.remedy)
    blocks += [Gap(), Bars(programs)]
    if bars:
        blocks += [Gap(), Bars(bars)]
    return [*blocks, *probed_line(found.probed), *doubts(found.warnings)]


def companies_table(interference: Interference) -> Table:
    """Weighted speed-up, harmonic mean and fairness of every company, and of all together under every partition."""
    rows = [
        *(company for company in interference.pairs if company is not interference.together),
        interference.together,
        *interference.partitions,
    ]
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (Column("together", right=False), words([company.label for company in rows]))
    ]
    if interference.partitions:
        columns.append((Column("partition", right=False), words([company.partition or "none" for company in rows])))
        for name in interference.participants:
            cells = [
                slowdown_cell(company.slowdowns[name]) if name in company.slowdowns else Cell("") for company in rows
            ]
            columns.append((Column(name, keep=7), cells))
    columns += [
        (Column("weighted speed-up", hint="sum of the speeds beside others over those alone"),
         [figure_cell(company.weighted_speedup) for company in rows]),
        (Column("harmonic mean", keep=5, hint="of the same speeds; 1 is as fast as alone"),
         [figure_cell(company.harmonic_mean) for company in rows]),
        (Column("fairness", hint="smallest slowdown over the largest; 1: all suffer alike"),
         [figure_cell(company.fairness) for company in rows]),
    ]  # fmt: skip
    return build(columns, "companies")


def _heat_map(interference: Interference) -> Chart:
    """The matrix; what is not significant, or has no interval, has the colour of no slowdown, as in the table."""
    names = interference.participants
    fields = [
        [interference.slowdown(row, column) for column in interference.participants]
        for row in interference.participants
    ]
    values = [
        [value.value if _is_significant(value) or value.value is None else 1.0 for value in line] for line in fields
    ]
    texts = [["" if value.value is None else f"{times(value)}{_doubt(value)}" for value in line] for line in fields]
    hints = [[quantities.provenance(value) for value in line] for line in fields]
    return slowdown_map(names, names, values, texts, hints)


def _is_significant(value: Value) -> bool:
    return value.low is not None and value.high is not None and not value.low <= 1 <= value.high


def _doubt(value: Value) -> str:
    return "" if value.low is None or _is_significant(value) else ", not significant"


def _company_fields(company: Company) -> dict[str, Any]:
    return {
        "members": list(company.members),
        "partition": company.partition or None,
        "steps": {name: value_document(value) for name, value in company.steps.items()},
        "slowdowns": {name: value_document(value) for name, value in company.slowdowns.items()},
        "cpu_slowdowns": {name: value_document(value) for name, value in company.cpu_slowdowns.items()},
        "phases": {
            name: {phase: value_document(value) for phase, value in by.items()} for name, by in company.phases.items()
        },
        "layers": {name: [layer_fields(layer) for layer in layers] for name, layers in company.layers.items()},
        "counters": {
            name: {counter: value_document(value) for counter, value in by.items()}
            for name, by in company.counters.items()
        },
        "weighted_speedup": value_document(company.weighted_speedup),
        "harmonic_mean": value_document(company.harmonic_mean),
        "fairness": value_document(company.fairness),
    }


class CorunView(View):
    """Who slows whom; all programs are listed."""

    kind = "corun"

    def __init__(self, found: Interference) -> None:
        self.found = found
        self.run, self.title = found.run, found.title

    def glance(self, rows: int = FEW_ROWS) -> list[Block]:
        return corun_glance(self.found, rows)

    def tables(self, rows: int = ROWS) -> list[Block]:
        return corun_blocks(self.found)

    def full(self) -> list[Block]:
        found = self.found
        phases, layers = phases_table(found), layers_table(found, PAGE_LAYERS)
        reason = [f"Partitions: {found.partition_reason}"] if found.partition_reason else []
        blocks: list[Block] = [
            Heading(found.title, f"{found.subtitle} · run {found.run}"),
            answer(found.finding, found.remedy, found.warnings),
            Panel(
                "Slowdown: a row suffers from a column",
                [FigureBlock(_heat_map(found), "heat", matrix_table(found))],
                f"Time per step beside another program over time per step alone; {GREYED}",
                opened=True,
            ),
            Panel(
                "The same of CPU time, without waiting for a core",
                [TableBlock(matrix_table(found, cpu=True))],
                f"CPU time per step beside another program over that alone; {GREYED}",
            ),
            Panel("Programs", [TableBlock(participants_table(found))]),
        ]
        if phases is not None:
            blocks.append(Panel("Slowdown by phase, all together", [TableBlock(phases)]))
        if layers is not None:
            blocks.append(Panel("Layers that lose most to company, all together", [TableBlock(layers)]))
        blocks += [
            Panel("Counted", [TableBlock(counters_table(found)), *paragraphs(uncounted_lines(found))]),
            Panel("Together", [TableBlock(companies_table(found)), *paragraphs(reason)]),
        ]
        if found.energy is not None:
            blocks += [Heading("Energy", level=3), *energy_panels(found.energy, "energy")]
        probed = probed_table(found.probed)
        if probed is not None:
            blocks.append(Panel("Read meanwhile", [TableBlock(probed)], PROBED_MEANS))
        return [*blocks, Panel("Notes", paragraphs(map(describe, found.notes)))] if found.notes else blocks

    def fields(self) -> dict[str, Any]:
        found = self.found
        return {
            "sentence": describe(found.finding),
            "remedy": describe(found.remedy) if found.remedy else None,
            "participants": [program.plain() for program in found.described],
            "matrix": {
                row: {
                    column: value_document(found.slowdown(row, column))
                    for column in found.participants
                    if column != row
                }
                for row in found.participants
            },
            "cpu_matrix": {
                row: {
                    column: value_document(found.slowdown(row, column, cpu=True))
                    for column in found.participants
                    if column != row
                }
                for row in found.participants
            },
            "alone": {name: _company_fields(company) for name, company in found.alone.items()},
            "pairs": [_company_fields(company) for company in found.pairs],
            "together": _company_fields(found.together),
            "partitions": [_company_fields(company) for company in found.partitions],
            "partition_reason": found.partition_reason or None,
            "monitor_reason": found.monitor_reason or None,
            "pmu_reason": found.pmu_reason or None,
            **({"energy": energy_fields(found.energy)} if found.energy is not None else {}),
            **probed_fields(found.probed),
            "warnings": list(map(describe, found.warnings)),
            "notes": list(map(describe, found.notes)),
        }
