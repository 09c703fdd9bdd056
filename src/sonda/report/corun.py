"""Programs side by side: the slowdown matrix, how each fared, and what partitions changed; terminal, page, document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sonda.analysis.interference import Company, Interference, times
from sonda.analysis.summary import Value
from sonda.report import quantities
from sonda.report.corun_details import (
    PAGE_LAYERS,
    counters_table,
    figure_cell,
    layer_document,
    layers_table,
    not_counted,
    phases_table,
    slowdown_cell,
)
from sonda.report.corun_figures import slowdown_map
from sonda.report.figures import Figure
from sonda.report.labels import markup
from sonda.report.markup import answer_panel, panel, place_figure, table_html
from sonda.report.screen import Screen
from sonda.report.sections import Section
from sonda.report.table import Cell, Column, Table, build, numbers, percents, words
from sonda.report.values import SCHEMA, value_document

ALL = "all others"
GREYED = "what is not significant, or has no interval, is grey."


def render_corun(found: Interference, width: int | None = None, *, short: str = "", color: bool | None = None) -> str:
    """One screen; `short` is the id to type."""
    screen = Screen(width, color)
    show_corun(screen, found)
    screen.saved(short or found.run)
    return screen.text()


def show_corun(screen: Screen, found: Interference) -> None:
    """The sentence, who slows whom, what each lost, what was counted, and what a reader must know."""
    screen.line(found.title, "bold")
    screen.line(found.subtitle, "dim")
    screen.line()
    screen.line(found.sentence, "bold", 2, 2)
    if found.remedy:
        screen.line(f"Try: {found.remedy}", "", 2, 5)
    screen.line()
    screen.line("Time per step beside others over time per step alone; a row suffers from a column:", "dim", 2, 2)
    screen.table(matrix_table(found))
    screen.line()
    screen.line("A step alone and with all others:", "dim", 2)
    screen.table(participants_table(found))
    phases = phases_table(found)
    if phases is not None:
        screen.line()
        screen.line("Slowdown by phase, all together:", "dim", 2)
        screen.table(phases)
    layers = layers_table(found)
    if layers is not None:
        screen.line()
        screen.line("Layers that lose most to company, all together, a step:", "dim", 2)
        screen.table(layers)
    screen.line()
    screen.line("Counted:", "dim", 2)
    screen.table(counters_table(found))
    for line in not_counted(found):
        screen.line(f"– {line}", "dim", 2, 2)
    screen.line()
    screen.table(companies_table(found))
    if found.partition_reason:
        screen.line(f"– partitions: {found.partition_reason}", "dim", 2, 2)
    screen.line()
    for warning in found.warnings:
        screen.line(f"! {warning}", "yellow", 2, 2)
    for note in found.notes:
        screen.line(note, "dim", 2, 2)


def matrix_table(found: Interference, cpu: bool = False) -> Table:
    """Who suffers from whom."""
    names = found.participants
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (Column("slowed", right=False), [Cell(name, name, tone="name") for name in names])
    ]
    for other in names:
        columns.append((Column(f"by {other}"), [slowdown_cell(found.slowdown(name, other, cpu)) for name in names]))
    if len(names) > 2:
        all_of_them = found.together.cpu_slowdowns if cpu else found.together.slowdowns
        columns.append((Column(f"by {ALL}"), [slowdown_cell(all_of_them[name]) for name in names]))
    return build(columns, "slowdown")


def participants_table(found: Interference) -> Table:
    """How each fared alone and with all others, and what the system counted."""
    names = found.participants
    whole = found.together
    alone = [found.alone[name].steps[name] for name in names]
    together = [whole.steps[name] for name in names]
    unit, cells = numbers([*alone, *together])
    cores = ["+".join(map(str, one["cores"])) for one in found.described]

    def counted(name: str, company: Company | None = None) -> list[Value]:
        return [(company or found.alone[one]).counters[one][name] for one in names]

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


def companies_table(found: Interference) -> Table:
    """Weighted speed-up, harmonic mean and fairness of every company, and of all together under every partition."""
    rows = [*(one for one in found.pairs if one is not found.together), found.together, *found.partitions]
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (Column("together", right=False), words([one.label for one in rows]))
    ]
    if found.partitions:
        columns.append((Column("partition", right=False), words([one.partition or "none" for one in rows])))
        for name in found.participants:
            cells = [slowdown_cell(one.slowdowns[name]) if name in one.slowdowns else Cell("") for one in rows]
            columns.append((Column(name, keep=7), cells))
    columns += [
        (Column("weighted speed-up", hint="sum of the speeds beside others over those alone"),
         [figure_cell(one.weighted_speedup) for one in rows]),
        (Column("harmonic mean", keep=5, hint="of the same speeds; 1 is as fast as alone"),
         [figure_cell(one.harmonic_mean) for one in rows]),
        (Column("fairness", hint="smallest slowdown over the largest; 1: all suffer alike"),
         [figure_cell(one.fairness) for one in rows]),
    ]  # fmt: skip
    return build(columns, "companies")


def corun_document(found: Interference) -> dict[str, Any]:
    """As a JSON object."""
    return {
        "schema": SCHEMA,
        "kind": "corun",
        "run": found.run,
        "title": found.title,
        "sentence": found.sentence,
        "remedy": found.remedy or None,
        "participants": list(found.described),
        "matrix": {
            row: {column: value_document(found.slowdown(row, column)) for column in found.participants if column != row}
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
        "alone": {name: _company(company) for name, company in found.alone.items()},
        "pairs": [_company(one) for one in found.pairs],
        "together": _company(found.together),
        "partitions": [_company(one) for one in found.partitions],
        "partition_reason": found.partition_reason or None,
        "monitor_reason": found.monitor_reason or None,
        "pmu_reason": found.pmu_reason or None,
        "warnings": list(found.warnings),
        "notes": list(found.notes),
    }


def corun_section(found: Interference, index: int, alone: bool) -> Section:
    """The experiment on a page: the sentence, the matrix as a heat map and as a table, everything else as tables."""
    place = f"run{index}"
    level = "h1" if alone else "h2"
    drawn: list[Figure] = []
    phases = phases_table(found)
    layers = layers_table(found, PAGE_LAYERS)
    counted = "".join(f'<p class="soft small">{markup(line)}</p>' for line in not_counted(found))
    reason = f'<p class="soft small">Partitions: {markup(found.partition_reason)}</p>' if found.partition_reason else ""
    notes = "".join(f'<p class="soft small">{markup(one)}</p>' for one in found.notes)
    pieces = [
        f"<{level}>{markup(found.title)}</{level}>",
        f'<p class="soft">{markup(found.subtitle)} · run {markup(found.run)}</p>',
        answer_panel(found.sentence, found.remedy, found.warnings),
        panel(
            "Slowdown: a row suffers from a column",
            place_figure(_heat_map(found), f"{place}heat", drawn, "") + table_html(matrix_table(found), "sortable"),
            f"Time per step beside another program over time per step alone; {GREYED}",
        ),
        panel(
            "The same of CPU time, without waiting for a core",
            table_html(matrix_table(found, cpu=True), "sortable"),
            f"CPU time per step beside another program over that alone; {GREYED}",
        ),
        panel("Programs", table_html(participants_table(found), "sortable")),
        panel("Slowdown by phase, all together", table_html(phases, "sortable")) if phases is not None else "",
        panel("Layers that lose most to company, all together", table_html(layers, "sortable")) if layers else "",
        panel("Counted", table_html(counters_table(found), "sortable") + counted),
        panel("Together", table_html(companies_table(found), "sortable") + reason),
        panel("Notes", notes) if notes else "",
    ]
    html = "\n".join(piece for piece in pieces if piece)
    return Section(f"{found.title} ({found.run})", place, html, tuple(drawn))


def _heat_map(found: Interference) -> Figure:
    """The matrix; what is not significant, or has no interval, has the colour of no slowdown, as in the table."""
    names = found.participants
    fields = [[found.slowdown(row, column) for column in found.participants] for row in found.participants]
    values = [[value.value if _sure(value) or value.value is None else 1.0 for value in line] for line in fields]
    texts = [["" if value.value is None else f"{times(value)}{_doubt(value)}" for value in line] for line in fields]
    hints = [[quantities.provenance(value) for value in line] for line in fields]
    return slowdown_map(names, names, values, texts, hints)


def _sure(value: Value) -> bool:
    return value.low is not None and value.high is not None and not value.low <= 1 <= value.high


def _doubt(value: Value) -> str:
    return "" if value.low is None or _sure(value) else ", not significant"


def _company(company: Company) -> dict[str, Any]:
    return {
        "members": list(company.members),
        "partition": company.partition or None,
        "steps": {name: value_document(value) for name, value in company.steps.items()},
        "slowdowns": {name: value_document(value) for name, value in company.slowdowns.items()},
        "cpu_slowdowns": {name: value_document(value) for name, value in company.cpu_slowdowns.items()},
        "phases": {
            name: {phase: value_document(value) for phase, value in by.items()} for name, by in company.phases.items()
        },
        "layers": {name: [layer_document(one) for one in layers] for name, layers in company.layers.items()},
        "counters": {
            name: {counter: value_document(value) for counter, value in by.items()}
            for name, by in company.counters.items()
        },
        "weighted_speedup": value_document(company.weighted_speedup),
        "harmonic_mean": value_document(company.harmonic_mean),
        "fairness": value_document(company.fairness),
    }
