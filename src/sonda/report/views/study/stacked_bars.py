"""What the figures of a study are made of, as stacked bars: phases, the breakdown of a step, components, slots."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from sonda.analysis.figure_names import figure_words
from sonda.report.charts.chart import Axis, BarPart, Chart, stacked_bars
from sonda.report.palette import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, SLOT_COLORS, VERMILION, YELLOW, part_colors
from sonda.report.table import Cell, Column, Table, build
from sonda.report.views.study.cells import figure_hint, study_cell
from sonda.report.views.study.facets import split_study
from sonda.report.views.study.tables import Document, place_name, row_names, select_variant, variants_of

PHASES = ("data", "transfer", "forward", "prefill", "decode", "loss", "backward", "optimizer", "fused", "communicate")
ON_PROCESSOR = ("input_ms", "operations_ms", "host_ms")
ON_DEVICE = ("device_compute_ms", "device_transfer_ms", "communication_ms", "idle_ms")
SLOTS = ("retiring", "frontend_bound", "bad_speculation", "backend_bound")
COLORS = {"input_ms": PURPLE, "operations_ms": BLUE, "host_ms": GREY, "device_compute_ms": BLUE,
          "device_transfer_ms": YELLOW, "communication_ms": VERMILION, "idle_ms": GREY}  # fmt: skip
PARTS = (BLUE, ORANGE, GREEN, SKY, PURPLE, VERMILION)
MOST_PICTURES = 6
"""Pictures of one kind."""
OF_A_BAR = 24
"""px of height."""


Bar = tuple[str, tuple[Document, ...]]


@dataclass(frozen=True)
class Stack:
    """Bars of one picture."""

    place: str
    """Element id."""
    title: str
    unit: str
    bars: tuple[Bar, ...]
    """Name and figures of each."""
    parts: tuple[tuple[str, str], ...]
    """Name and colour of what the bars are made of."""
    shares: bool = True
    """Whether every bar is as long as the others, in percent of itself."""


def stacks(study: Document) -> list[Stack]:
    """The pictures that the study's figures allow, several of one kind where one would be too long.

    Where variants stand for themselves and would need too many, the first speaks for all, which its title says.
    """
    keys = {str(column["figure"]): column for column in study["columns"]}
    seen = [name for name in PHASES if f"{name}_ms" in keys]
    phases = [(f"{name}_ms", name, color) for name, color in zip(seen, part_colors(seen), strict=True)]
    modules = [key for key in keys if key.startswith("cycles@")]
    components = [(key, place_name(keys[key]), PARTS[at % len(PARTS)]) for at, key in enumerate(modules)]
    wanted = (
        ("phases", "Time of a step by phase", "ms", phases),
        ("processor", "Where the time of a step goes", "ms", _breakdown_parts(ON_PROCESSOR, keys)),
        ("device", "Where the time of the device goes", "ms", _breakdown_parts(ON_DEVICE, keys)),
        ("cycles", "Cycles by component", "cycles", components),
    )
    drawn: list[Stack] = []
    for place, title, unit, made_of in wanted:
        if len(made_of) > 1:
            rows = partial(_bars_of_rows, keys=[key for key, _, _ in made_of])
            shown = tuple((name, color) for _, name, color in made_of)
            drawn += _stacks(study, Stack(place, title, unit, (), shown, shares=place != "cycles"), rows)
    counted = dict.fromkeys(str(keys[key].get("of", "")) for key in keys if key.startswith("backend_bound_percent"))
    slots = tuple((figure_words(f"{slot}_percent", "%").removesuffix(" %"), SLOT_COLORS[slot]) for slot in SLOTS)
    empty = Stack("slots", "Top-Down: what becomes of the slots", "%", (), slots)
    return drawn + list(_stacks(study, empty, partial(_bars_of_slots, of=list(counted))))


def _stacks(study: Document, empty: Stack, bars: Callable[[Document], list[Bar]]) -> Iterator[Stack]:
    """The same picture of every part of the study that has bars."""
    cut = split_study(study, lambda part: len(bars(part)))
    variants = variants_of(study) if not study.get("base") else []
    first = f": {variants[0]}" if len(variants) > 1 and len(cut) > MOST_PICTURES else ""
    if first:
        cut = split_study(select_variant(study, variants[0]), lambda part: len(bars(part)))
    drawn = 0
    for name, part in cut:
        made = bars(part)
        if made:
            place = f"{empty.place}{drawn or ''}"
            yield replace(empty, place=place, title=f"{empty.title}{first}{name and f': {name}'}", bars=tuple(made))
            drawn += 1


def stack_figure(stack: Stack) -> Chart:
    """Stacked bars, a row of the study each; what is estimated is hatched."""
    names = [name for name, _ in stack.bars]
    parts = []
    for at, (name, color) in enumerate(stack.parts):
        figures = [figures[at] for _, figures in stack.bars]
        hints = [f"{bar}\n{name}: {figure_hint(figure)}" if figure["value"] is not None else ""
                 for bar, figure in zip(names, figures, strict=True)]  # fmt: skip
        hatched = [figure["source"] == "estimated" for figure in figures]
        parts.append(BarPart(name, color, [figure["value"] for figure in figures], hints, hatched))
    axis = Axis("% of these together" if stack.shares else stack.unit)
    return replace(stacked_bars(names, parts, axis, OF_A_BAR, norm=stack.shares), legend=True)


def stack_table(stack: Stack) -> Table:
    """The table behind the bars."""
    columns = [(Column("where", right=False), [Cell(name, name) for name, _ in stack.bars])]
    for at, (name, _) in enumerate(stack.parts):
        columns.append((Column(f"{name} {stack.unit}"), [study_cell(figures[at]) for _, figures in stack.bars]))
    return build(columns, stack.title)


def _breakdown_parts(wanted: Sequence[str], keys: dict[str, Document]) -> list[tuple[str, str, str]]:
    return [(key, figure_words(key, "ms").removesuffix(" ms"), COLORS[key]) for key in wanted if key in keys]


def _bars_of_rows(study: Document, keys: Sequence[str]) -> list[Bar]:
    """Rows that have at least two of these figures."""
    bars = []
    for name, row in zip(row_names(study), study["rows"], strict=True):
        figures = tuple(row["figures"][key] for key in keys)
        if sum(figure["value"] is not None for figure in figures) > 1:
            bars.append((name, figures))
    return bars


def _bars_of_slots(study: Document, of: Sequence[str]) -> list[Bar]:
    """Level 1 of Top-Down, of the whole step and of every phase that was counted."""
    bars = []
    for name, row in zip(row_names(study), study["rows"], strict=True):
        for place in of:
            suffix = f"@{place}" if place else ""
            figures = [row["figures"].get(f"{slot}_percent{suffix}") for slot in SLOTS]
            if all(figure is not None and figure["value"] is not None for figure in figures):
                bars.append((f"{name}, {place or 'whole'}", tuple(figure for figure in figures if figure is not None)))
    return bars
