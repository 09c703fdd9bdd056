"""Served traffic on a terminal, as JSON and on a page: percentiles, histogram, search."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from sonda.analysis.serving import WIDE, Percentile, ServingSummary
from sonda.analysis.summary import Value
from sonda.report import quantities
from sonda.report.blocks import (
    FEW_ROWS,
    ROWS,
    Bar,
    Bars,
    Block,
    FigureBlock,
    Gap,
    Heading,
    Items,
    Panel,
    Paragraph,
    TableBlock,
    View,
    answer,
    doubts,
    opening,
    paragraphs,
)
from sonda.report.charts.axes import log_ticks
from sonda.report.charts.chart import Axis, Boxes, Chart, Guide, Plot
from sonda.report.palette import BLUE
from sonda.report.table import Cell, Column, Table, build, numbers, percents, words
from sonda.report.values import plain_data, value_document
from sonda.report.views.counters.sensors import (
    PROBED_MEANS,
    probed_blocks,
    probed_fields,
    probed_line,
    probed_table,
)
from sonda.report.views.energy import energy_blocks, energy_fields, energy_panels
from sonda.report.words import describe

COUNTED = "queries, counted"
BAR = 30
"""Cells of the longest bar of a histogram."""
HEIGHT = 260


def serving_glance(found: ServingSummary, rows: int) -> list[Block]:
    """The sentence, how much was answered, and latencies by percentile."""
    answered = quantities.amount(found.throughput.value, found.throughput.unit)
    facts = [f"{found.queries:,} queries", f"{answered} answered"]
    if found.samples != 1 or found.scenario == "offline":
        facts.append(quantities.amount(found.sample_rate.value, found.sample_rate.unit))
    facts.append(f"the model is busy {quantities.percent(found.busy.value)} % of the time")
    if quantities.known(found.per_query):
        facts.append(f"{quantities.amount(found.per_query.value, 'J')} a query")
    shown = found.percentiles[:rows] if found.scenario != "offline" else ()
    slowest = max((percentile.latency.value or 0.0 for percentile in shown), default=0.0) or 1.0
    bars = [
        Bar(
            f"{100 * percentile.percentile:g} of 100 within",
            (percentile.latency.value or 0.0) / slowest,
            quantities.amount(percentile.latency.value, "ns"),
            note=_said_of(percentile, found),
        )
        for percentile in shown
    ]
    traffic: list[Block] = [Gap(), Items(facts), *([Bars(bars)] if bars else [])]
    blocks = opening(f"{found.title} · {found.subtitle}", found.finding, found.remedy)
    return [*blocks, *traffic, *probed_line(found.probed), *doubts(found.warnings)]


def _said_of(percentile: Percentile, serving: ServingSummary) -> str:
    """Whether it is the percentile that was asked for, and whether it may be quoted."""
    asked = ["asked for"] if percentile.percentile == serving.asked.percentile else []
    return ", ".join([*asked, *([] if percentile.quotable else ["too few queries to quote"])])


def serving_blocks(found: ServingSummary) -> list[Block]:
    """The sentence, traffic, percentiles, histogram, rates that were tried, and what a reader must know."""
    blocks: list[Block] = [
        Paragraph(f"{found.title} · {found.subtitle}", "first", 0, 2),
        Gap(),
        Paragraph(describe(found.finding), "first"),
    ]
    if found.remedy:
        blocks.append(Paragraph(f"Try: {describe(found.remedy)}", hang=5))
    blocks += [Gap(), TableBlock(totals_table(found))]
    if found.scenario != "offline":
        blocks += [
            Gap(),
            TableBlock(percentiles_table(found), reasons=False),
            Gap(),
            TableBlock(histogram_table(found)),
        ]
    if found.trials:
        blocks += [Gap(), TableBlock(trials_table(found))]
    if found.loadgen:
        blocks += [Gap(), TableBlock(loadgen_table(found))]
    blocks += [Gap(), *paragraphs(map(describe, found.warnings), "warning"), *paragraphs(map(describe, found.notes))]
    if found.energy is not None:
        blocks += energy_blocks(found.energy)
    return [*blocks, *probed_blocks(found.probed)]


def totals_table(serving: ServingSummary) -> Table:
    """One row: how many, how fast, how busy, what a query cost."""
    columns: list[tuple[Column, list[Cell]]] = [(Column("queries"), [Cell(f"{serving.queries:,}", serving.queries)])]
    for name, value, keep in (
        ("time", serving.time, 3), ("planned rate", serving.rate, 5), ("answered", serving.throughput, 9),
        ("samples", serving.sample_rate, 4), ("mean latency", serving.mean, 6), ("mean wait", serving.wait, 2),
        ("energy per query", serving.per_query, 7 if quantities.known(serving.per_query) else 1),
    ):  # fmt: skip
        unplanned = name == "planned rate" and value.value is None
        if unplanned or (name.startswith("mean") and serving.scenario == "offline"):
            continue
        columns.append((Column(name, keep=keep), numbers([value], suffix=True)[1]))
    columns.append((Column("busy", keep=3), percents([serving.busy])))
    columns.append((Column("queries per inference", keep=1), numbers([serving.batch])[1]))
    return build(columns, "traffic")


def percentiles_table(serving: ServingSummary) -> Table:
    """A row per percentile: as counted with its interval, early stopping's estimate, and whether one may be quoted."""
    rows = serving.percentiles

    def scaled_alone(values: Sequence[Value]) -> list[Cell]:
        # Each in a unit of its own: a median of 52 µs must not become 0.1 ms beside a slowest query of 25 ms.
        return [numbers([value], suffix=True)[1][0] for value in values]

    return build(
        [
            (Column("percentile", right=False), words([_name(percentile, serving) for percentile in rows])),
            (Column("latency"), scaled_alone([percentile.latency for percentile in rows])),
            (Column("95 % interval", keep=6), words([_ends(percentile.latency) for percentile in rows])),
            (Column("early stopping", keep=5), scaled_alone([percentile.estimate for percentile in rows])),
            (
                Column("may be quoted", right=False, wrap=True),
                words([_quotable(percentile, serving.queries) for percentile in rows]),
            ),
        ],
        "percentiles",
    )


def histogram_table(serving: ServingSummary) -> Table:
    """Latencies by bin, with bars."""
    most = max(serving.counts)
    bars = ["█" * max(1, round(BAR * count / most)) if count else "" for count in serving.counts]
    return build(
        [
            (Column("up to"), [Cell(quantities.amount(edge, "ns"), edge, unit="ns") for edge in serving.edges[1:]]),
            (Column("queries"), [Cell(f"{count:,}", count, COUNTED) for count in serving.counts]),
            (Column("", right=False), [Cell(bar) for bar in bars]),
        ],
        "histogram",
    )


def trials_table(serving: ServingSummary) -> Table:
    """The rates that were tried, in order; the last is the run that counts."""
    rows = serving.trials
    rates = [Cell(quantities.number(trial.rate), trial.rate, unit="queries/s") for trial in rows]
    return build(
        [
            (Column("tried queries/s"), rates),
            (Column("queries"), [Cell(f"{trial.queries:,}", trial.queries, COUNTED) for trial in rows]),
            (Column("late"), [Cell(f"{trial.late:,}", trial.late, COUNTED) for trial in rows]),
            (Column("bound", right=False), words(["held" if trial.held else "did not hold" for trial in rows])),
        ],
        "search",
    )


def loadgen_table(serving: ServingSummary) -> Table:
    """What LoadGen said itself, key by key."""
    rows = [(key, value) for key, value in serving.loadgen.items() if key != "errors"]
    return build(
        [
            (Column("LoadGen says", right=False), words([str(key) for key, _ in rows])),
            (Column("value", right=False), words([str(value) for _, value in rows])),
        ],
        "loadgen",
    )


def _name(percentile: Percentile, serving: ServingSummary) -> str:
    return f"{100 * percentile.percentile:g}" + (
        " (asked)" if percentile.percentile == serving.asked.percentile else ""
    )


def _ends(value: Value) -> str:
    if value.low is None or value.high is None:
        return "too few queries"
    return f"{quantities.amount(value.low, 'ns')} to {quantities.amount(value.high, 'ns')}"


def _quotable(percentile: Percentile, queries: int) -> str:
    if percentile.quotable == "counted":
        return "as counted"
    if percentile.quotable == "estimate":
        return f"early stopping; as counted after {percentile.needed - queries:,} more"
    return f"no: {percentile.missing:,} queries are missing"


def histogram_figure(serving: ServingSummary) -> Chart:
    """Queries by latency; lines at the percentile that was asked for and at the bound."""
    # Bins that grow with the latency are drawn on an axis that does.
    grows = serving.edges[-1] > WIDE * serving.edges[0]
    unit = 1.0 if grows else 1e6
    edges = [edge / unit for edge in serving.edges]
    places = tuple((low, high, 0.0, float(count)) for (low, high), count in
                   zip(pairwise(edges), serving.counts, strict=True))  # fmt: skip
    hints = tuple(f"{quantities.amount(low, 'ns')} to {quantities.amount(high, 'ns')}: {count:,} queries, measured"
                  for (low, high), count in zip(pairwise(serving.edges), serving.counts, strict=True))  # fmt: skip
    lines = [(serving.asked.latency.value, f"{100 * serving.asked.percentile:g} %")]
    if serving.bound is not None:
        lines.append((serving.bound.bound.value, "bound"))
    known = sorted((value / unit, name) for value, name in lines if value is not None)
    # Of two lines that lie close by, each word stands on its own side.
    rules = [Guide(value, name, side=("left", "right")[at] if len(known) > 1 else "middle")
             for at, (value, name) in enumerate(known)]  # fmt: skip
    inside = [edges[0], edges[-1], *(value for value, _ in known)]
    axis = Axis("latency in ms", ends=(min(inside), max(inside)))
    if grows:
        ends = (min(inside) / 1.1, max(inside) * 1.1)
        axis = Axis("latency", log=True, ends=ends, ticks=tuple(log_ticks(ends, "ns")))
    field = Plot(Axis("queries", whole=True), (Boxes("", BLUE, places, hints), *rules))
    return Chart(axis, (field,), HEIGHT)


class ServingView(View):
    """Traffic: percentiles, histogram, the search of a rate."""

    kind = "serving"

    def __init__(self, found: ServingSummary) -> None:
        self.found = found
        self.run, self.title = found.run, found.title

    def glance(self, rows: int = FEW_ROWS) -> list[Block]:
        return serving_glance(self.found, rows)

    def tables(self, rows: int = ROWS) -> list[Block]:
        return [*serving_blocks(self.found), Gap()]

    def full(self) -> list[Block]:
        found = self.found
        blocks: list[Block] = [
            Heading(found.title, f"{found.subtitle} · run {found.run}"),
            answer(found.finding, found.remedy, found.warnings),
        ]
        if found.scenario != "offline":  # there a latency only says how many samples came before
            table = histogram_table(found).drop_columns({""})  # the bars are the picture
            histogram = FigureBlock(histogram_figure(found), "latency", table)
            blocks += [
                Panel("Latency", [histogram], opened=True), Panel("Percentiles", [TableBlock(percentiles_table(found))])
            ]  # fmt: skip
        blocks.append(Panel("Traffic", [TableBlock(totals_table(found))], opened=found.scenario == "offline"))
        if found.trials:
            blocks.append(Panel("Search of the rate", [TableBlock(trials_table(found))]))
        if found.loadgen:
            blocks.append(Panel("LoadGen", [TableBlock(loadgen_table(found))]))
        if found.notes:
            blocks.append(Panel("Notes", paragraphs(map(describe, found.notes))))
        if found.energy is not None:
            blocks += [Heading("Energy", level=3), *energy_panels(found.energy, "energy")]
        probed = probed_table(found.probed)
        if probed is not None:
            blocks.append(Panel("Read meanwhile", [TableBlock(probed)], PROBED_MEANS))
        return blocks

    def fields(self) -> dict[str, Any]:
        found = self.found
        bound = found.bound
        return {
            "subtitle": found.subtitle,
            "scenario": found.scenario,
            "sentence": describe(found.finding),
            "remedy": describe(found.remedy) if found.remedy else None,
            "queries": found.queries,
            "samples_per_query": found.samples,
            "duration": value_document(found.time),
            "planned_rate": value_document(found.rate),
            "throughput": value_document(found.throughput),
            "sample_rate": value_document(found.sample_rate),
            "busy": value_document(found.busy),
            "queries_per_inference": value_document(found.batch),
            "mean_latency": value_document(found.mean),
            "mean_wait": value_document(found.wait),
            "asked_percentile": found.asked.percentile,
            "percentiles": [
                {
                    "percentile": percentile.percentile,
                    "latency": value_document(percentile.latency),
                    "early_stopping": value_document(percentile.estimate),
                    "quotable": percentile.quotable or None,
                    "missing_queries": percentile.missing,
                    "queries_to_count": percentile.needed,
                }
                for percentile in found.percentiles
            ],
            "bound": None
            if bound is None
            else {
                "latency": value_document(bound.bound),
                "late": bound.late,
                "late_allowed": max(0, bound.allowed),
                "held": bound.held,
                "missing_queries": bound.missing,
            },
            "histogram": {"edges": list(found.edges), "unit": "ns", "counts": list(found.counts)},
            "energy_per_query": value_document(found.per_query),
            "trials": plain_data(found.trials),
            "loadgen": found.loadgen or None,
            "energy": energy_fields(found.energy) if found.energy is not None else None,
            **probed_fields(found.probed),
            "warnings": list(map(describe, found.warnings)),
            "notes": list(map(describe, found.notes)),
        }
