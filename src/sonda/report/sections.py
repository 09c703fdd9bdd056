"""The section of one run on a page: HTML and the figures it places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sonda.analysis.counted_summary import Outside, SecondSources
from sonda.analysis.summary import PartSummary, Remedy, Summary, Value, Verdict
from sonda.record.run import RunInfo
from sonda.report import figures, quantities
from sonda.report.device_panels import device_panels
from sonda.report.figures import Figure
from sonda.report.labels import markup, plain
from sonda.report.listing import checks_table
from sonda.report.markup import panel, place_figure, table_html
from sonda.report.modelled_tables import titled_tables
from sonda.report.outside import outside_figure, outside_table, totals_words
from sonda.report.over_time import over_time_figure
from sonda.report.ranks import rank_phases_table
from sonda.report.simulated_tables import choose_simulated, energy_cell, is_idle, simulated_layer_table, stack_tables
from sonda.report.summary_tables import counter_phrases, layer_name, layer_table, phase_table
from sonda.report.system_tables import second_table, system_table
from sonda.report.table import Cell, Table
from sonda.report.topdown_figures import topdown_icicle, topdown_map, topdown_over_steps
from sonda.report.topdown_tables import choose_counted, counter_sentences, counter_table, topdown_tables
from sonda.report.tree import LIMIT, MAIN, Node, fold

COUNTED = ("mapping", "energy", "area", "what_if", "outside", "second", "shown", "metered", "alone", "nodes")
"""What a simulated target says of every operation: in tables and notes, and in `sonda show --json`."""


@dataclass(frozen=True)
class Section:
    name: str
    place: str
    """Element id."""
    html: str
    figures: tuple[Figure, ...] = ()


def run_section(summary: Summary, name: str, index: int, info: RunInfo | None, alone: bool) -> Section:
    """One run: verdict, parts with their tables and figures, where the numbers come from."""
    place = f"run{index}"
    drawn: list[Figure] = []
    level = "h1" if alone else "h2"
    status = "" if summary.status == "complete" else f" · {summary.status}"
    pieces = [
        f"<{level}>{markup(summary.title)}</{level}>",
        f'<p class="soft">{markup(summary.subtitle + status)} · run {markup(summary.run)}</p>',
        _verdict_panel(summary),
    ]
    for number, part in enumerate(summary.parts):
        pieces.append(_part(part, summary, f"{place}p{number}", drawn, named=len(summary.parts) > 1))
    if summary.modelled is not None:
        tables = titled_tables(summary.modelled)
        pieces += [panel(title, table_html(table, "sortable")) for title, table in tables]
        pieces.append("".join(f'<p class="soft small">{markup(one)}</p>' for one in summary.modelled.sentences))
    if summary.outside is not None:
        pieces.append(_outside_panel(summary.outside, place, drawn))
    if summary.second is not None:
        pieces.append(_second_panel(summary.second))
    pieces.append(_provenance(summary, info))
    label = name if name == summary.run else f"{name} ({summary.run})"
    return Section(label, place, "\n".join(pieces), tuple(drawn))


def _verdict_panel(summary: Summary) -> str:
    kind = summary.verdicts[0].kind if summary.verdicts else "none"
    lines = []
    for index, verdict in enumerate(summary.verdicts):
        lines.append(
            f'<p{" class=first" if index == 0 else ""} title="{_evidence(verdict)}">{markup(verdict.sentence)}</p>'
        )
    remedies = dict.fromkeys(remedy for verdict in summary.verdicts for remedy in verdict.remedies)
    if remedies:
        items = "".join(f"<li>{_remedy(remedy)}</li>" for remedy in remedies)
        lines.append(f'<p class="soft small">Try</p><ul class="plain">{items}</ul>')
    lines += [f'<p class="warning">{markup(warning)}</p>' for warning in summary.warnings]
    if summary.parts and not is_idle(summary, summary.parts[0]):
        lines.append(_facts(summary.parts[0]))
    return f'<div class="panel verdict {markup(kind)}">' + "\n".join(lines) + "</div>"


def _evidence(verdict: Verdict) -> str:
    return markup("; ".join(f"{name}: {quantities.provenance(value)}" for name, value in verdict.evidence.items()))


def _remedy(remedy: Remedy) -> str:
    options = f"<code>{markup(' '.join(remedy.options))}</code> " if remedy.options else ""
    result = f" <b>{markup(quantities.factor(remedy.speedup))}</b>" if remedy.speedup else ""
    return f"{options}{markup(remedy.text)}{result}"


def _facts(part: PartSummary) -> str:
    spread = f"±{quantities.percent(part.noise, 1)} %" if part.step.low is not None else ""
    facts = [("step", part.step, spread), ("samples/s", part.samples_per_second, "")]
    facts.append(("tokens/s", part.tokens_per_second, ""))
    boxes = [_fact(name, value, note) for name, value, note in facts if quantities.known(value)]
    if part.simulated is not None:
        whole = part.simulated
        boxes.insert(0, f"<div><dt>cycles</dt><dd>{whole.cycles.value or 0.0:,.0f}</dd></div>")
        energy = energy_cell(whole.energy)
        boxes.append(f'<div title="{markup(energy.hint)}"><dt>energy</dt><dd>{markup(energy.text)}</dd></div>')
        return f'<dl class="facts">{"".join(boxes)}</dl>'
    steps = f"{part.steps:,}" + (f" <small>after {part.warmup:,} warm-up</small>" if part.warmup else "")
    boxes.append(f"<div><dt>timed steps</dt><dd>{steps}</dd></div>")
    return f'<dl class="facts">{"".join(boxes)}</dl>'


def _fact(name: str, value: Value, note: str) -> str:
    unit = value.unit if value.unit == "ns" else "1"
    shown = quantities.amount(value.value, unit)
    small = f" <small>{markup(note)}</small>" if note else ""
    return f'<div title="{markup(quantities.provenance(value))}"><dt>{name}</dt><dd>{markup(shown)}{small}</dd></div>'


def _part(part: PartSummary, summary: Summary, place: str, drawn: list[Figure], named: bool) -> str:
    from sonda.analysis.roofline import lines

    if is_idle(summary, part):
        return ""
    if part.simulated is not None:
        return _simulated_part(part, place, drawn, named)
    views = fold(part.layers)
    heading = f"<h2>{markup(part.name)}</h2>" if named else ""
    steps = figures.phases_over_steps(part)
    tree = figures.icicle(views)
    roofs = lines(summary.ceilings)
    roof = figures.roofline(part.layers, roofs)
    counters = "".join(f"<li>{markup(phrase)}</li>" for phrase in counter_phrases(part))
    listed = f'<ul class="plain soft small">{counters}</ul>' if counters else ""
    no_roof = str(summary.ceilings.get("reason", "")) or "the ceilings of this machine were not measured"
    roof_note = "" if roofs else f'<p class="soft small">No ceilings are drawn: {markup(no_roof)}.</p>'
    tree_place = f"{place}tree"
    back = f'<button class="plain" type="button" data-back="{tree_place}" hidden>back to the larger layers</button>'
    legend = "".join(
        f'<span><span style="color:{color}">■</span> {bound or "no clear bound"}</span>'
        for bound, color in figures.BOUND_COLORS.items()
        if any(row.cost.bound == bound for row in part.layers)
    )
    pieces = [
        heading,
        panel("Phases of a step", table_html(phase_table(part), "phases sortable") + _by_rank(part) + listed),
        device_panels(part, summary, place, drawn),
        panel("Phases over steps", place_figure(steps, f"{place}steps", drawn, "no step was seen")),
        _over_time_panel(part, place, drawn),
        _counters_panel(part),
        _system_panel(part),
        _topdown_panels(part, place, drawn),
        panel(
            "Layers by time",
            f'<div class="tools">{legend}{back}</div>' + place_figure(tree, tree_place, drawn, "no layer was seen"),
            "Width is forward and backward time per step; click a layer to enlarge it.",
        ),
        panel(
            "Roofline",
            place_figure(roof, f"{place}roof", drawn, "no layer has FLOPs, bytes and time")
            + (roof_note if roof else ""),
            "Each point is a layer without layers inside, its area the time it took; lines are measured ceilings, "
            "dashed ones theoretical.",
        ),
        _layers_panel(views[MAIN], f"{place}layers"),
    ]
    return "\n".join(piece for piece in pieces if piece)


def _over_time_panel(part: PartSummary, place: str, drawn: list[Figure]) -> str:
    if part.over_time is None or not part.over_time.series:
        return ""
    said = "".join(f'<p class="warning">{markup(sentence)}</p>' for sentence in part.over_time.sentences)
    figure = place_figure(over_time_figure(part), f"{place}time", drawn, "no step was seen")
    return panel("Over time", said + figure, "Dashed lines are changes of level; beneath are the phases of each step.")


def _outside_panel(outside: Outside, place: str, drawn: list[Figure]) -> str:
    said = "".join(f'<p class="warning">{markup(sentence)}</p>' for sentence in outside.sentences)
    totals = f"<p>{markup(totals_words(outside))}</p>"
    if not outside.stretches:
        return panel("The whole program", totals)
    figure = place_figure(outside_figure(outside), f"{place}whole", drawn, "nothing could be counted")
    return panel(
        "The whole program over time",
        totals + said + figure + table_html(outside_table(outside), "sortable"),
        "Counted from outside; dashed lines are changes of level, phases of the first process are beneath.",
    )


def _counters_panel(part: PartSummary) -> str:
    if part.counted is None:
        return ""
    notes = "".join(f"<li>{markup(sentence)}</li>" for sentence in counter_sentences(part))
    listed = f'<ul class="plain soft small">{notes}</ul>' if notes else ""
    return panel("Hardware counters per step", table_html(counter_table(part.counted), "sortable") + listed)


def _system_panel(part: PartSummary) -> str:
    if part.system is None or not part.system.shown:
        return ""
    said = "".join(f'<p class="warning">{markup(remark)}</p>' for remark in part.system.remarks)
    return panel("What the operating system counted", said + table_html(system_table(part.system), "sortable"))


def _second_panel(second: SecondSources) -> str:
    return panel("Second sources", table_html(second_table(second)), "; ".join(second.sentences))


def _topdown_panels(part: PartSummary, place: str, drawn: list[Figure]) -> str:
    topdown = part.topdown
    if topdown is None:
        return ""
    title = "Top-Down, approximate" if topdown.definition.approximate else "Top-Down"
    tables = "".join(table_html(table, "sortable") for table in topdown_tables(topdown))
    icicle = place_figure(topdown_icicle(topdown), f"{place}levels", drawn, "level 1 was not counted")
    layers = choose_counted(part, LIMIT)
    pieces = [
        panel(title, tables + icicle, f"{topdown.definition.name}: shares of {topdown.definition.of}."),
        panel(
            f"{title} over steps",
            place_figure(topdown_over_steps(topdown), f"{place}slots", drawn, "level 1 was not counted"),
        ),
        panel(
            f"{title} by layer",
            place_figure(topdown_map(topdown, layers), f"{place}map", drawn, "layers were not read"),
            "Forward and backward together, without the layers inside; most time first.",
        ),
    ]
    return "\n".join(pieces)


def _simulated_part(part: PartSummary, place: str, drawn: list[Figure], named: bool) -> str:
    """Cycles in place of times: there is one step, and nothing about it varies."""
    choice = choose_simulated(part, LIMIT)
    listed = table_html(simulated_layer_table(choice.shown, "layer"), "sortable")
    left = choice.total - len(choice.shown)
    more = f'<p class="soft small">{left:,} more layers are in sonda show --json</p>' if left else ""
    pieces = [
        f"<h2>{markup(part.name)}</h2>" if named else "",
        panel("Cycles of a step", "".join(table_html(table, "sortable") for table in stack_tables(part))),
        panel(
            "What the cycles of layers are spent on",
            place_figure(figures.cycle_stacks(choice.shown), f"{place}stack", drawn, "no layer ran on an engine"),
            f"The {figures.MOST_STACKS} layers with the most cycles of their own, most first.",
        ),
        panel("Layers", listed.replace('class="scroll"', 'class="scroll tall"', 1) + more) if choice.shown else "",
    ]
    return "\n".join(piece for piece in pieces if piece)


def _layers_panel(nodes: Sequence[Node], place: str) -> str:
    """The layer tree as a table; the script folds it, without scripts every row is there."""
    if not nodes:
        return ""
    table = _tree_table(nodes)
    tools = f'<div class="tools"><label><input type="checkbox" data-flat="{place}"> innermost layers only</label></div>'
    html = table_html(table, "layers sortable tree").replace("<table ", f'<table id="{place}" ', 1)
    return panel("Layers", tools + html.replace('class="scroll"', 'class="scroll tall"', 1))


def _tree_table(nodes: Sequence[Node]) -> Table:
    rows = [node.row for node in nodes if node.row is not None]
    table = layer_table(rows, "layer", own=True)
    filled = iter(table.rows)
    own = next(index for index, column in enumerate(table.columns) if column.name.startswith("own"))
    body, attributes = [], []
    for node in nodes:
        if node.row is not None:
            cells = next(filled)
            # In a tree the path above is already told by the rows above.
            body.append(
                (replace(cells[0], text=plain(node.label), hint=f"{node.row.path} {cells[0].hint}".strip()), *cells[1:])
            )
        else:
            blank = [Cell("") for _ in table.columns]
            blank[0] = Cell(node.label, "~", tone="quiet")
            if node.view:
                blank[own] = Cell(quantities.amount(node.own, "ns"), node.own, "sum of own times, derived")
            body.append(tuple(blank))
        attributes.append(
            {
                "id": node.id,
                "parent": node.parent,
                "depth": str(node.depth),
                "leaf": "1" if node.row is not None and node.row.leaf else "0",
                "label": node.label,
                "path": layer_name(node.row) if node.row is not None else node.label,
            }
        )
    return replace(table, rows=tuple(body), attributes=tuple(attributes))


def _provenance(summary: Summary, info: RunInfo | None) -> str:
    notes = "".join(f"<li>{markup(note)}</li>" for note in summary.notes)
    pieces = [f'<ul class="plain small">{notes}</ul>'] if notes else []
    facts: list[tuple[str, str]] = []
    for name, value in summary.ceilings.items():
        # Peaks of other precisions are there for remedies; the one that applied is `flops`.
        if name not in ("reason", "peaks"):
            shown = quantities.provenance(value) if isinstance(value, Value) else str(value)
            facts.append((f"ceiling: {name.replace('_', ' ')}", shown))
    if info is not None:
        facts += [(f"version: {name}", version) for name, version in info.versions.items()]
        facts += [(f"target: {name}", str(value)) for name, value in info.target.items() if name not in COUNTED]
        facts += [(f"workload: {name}", str(value)) for name, value in info.workload.items()]
        facts += [
            (f"observing: {name.replace('_', ' ')}", f"{value:.4g}, measured") for name, value in info.overhead.items()
        ]
        facts.append(("created", info.created))
    if facts:
        rows = "".join(f"<tr><th>{markup(name)}</th><td>{markup(text)}</td></tr>" for name, text in facts)
        pieces.append(
            "<details><summary>Machine, ceilings and versions</summary>"
            f'<div class="scroll"><table>{rows}</table></div></details>'
        )
    if info is not None and info.probes:
        checks = [(probe.name, probe.state, _sentence(probe.reason, probe.remedy)) for probe in info.probes]
        pieces.append(f"<details><summary>Probes</summary>{table_html(checks_table(checks))}</details>")
    return panel("Where the numbers come from", "\n".join(pieces)) if pieces else ""


def _sentence(reason: str, remedy: str) -> str:
    return f"{reason}; {remedy}" if reason and remedy else reason or remedy


def _by_rank(part: PartSummary) -> str:
    return table_html(rank_phases_table(part), "sortable") if part.ranks else ""
