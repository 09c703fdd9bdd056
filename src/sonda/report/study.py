"""Studies in the terminal: which there are, what one would measure, what it found beside what was published."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sonda.report import quantities
from sonda.report.labels import plain
from sonda.report.operations import operations_table
from sonda.report.screen import GAP, Screen
from sonda.report.table import LAST, Cell, Column, Table, build, words

Document = Mapping[str, Any]


def render_studies(studies: Sequence[Document], width: int | None = None, *, color: bool | None = None) -> str:
    """The studies that ship with Sonda."""
    screen = Screen(width, color)
    table = build(
        [
            (Column("study", right=False), words([str(one["name"]) for one in studies])),
            (Column("runs"), words([f"{one['runs']:,}" for one in studies])),
            (Column("scales", right=False), words([", ".join(one["scales"]) for one in studies])),
            (Column("question", right=False, wrap=True), words([str(one["question"]) for one in studies])),
        ]
    )
    screen.table(table, indent=0, reasons=False)
    screen.line()
    screen.line("Carry one out with: sonda study NAME --scale small", "dim")
    return screen.text()


def render_plan(plan: Document, width: int | None = None, *, color: bool | None = None) -> str:
    """What a study would measure, in order."""
    screen = Screen(width, color)
    runs = plan["runs"]
    simulated = all(str(run.get("on", "")).startswith("sim:") for run in runs)
    how = "simulated" if simulated else "each a process of its own"
    screen.line(f"{plain(plan['study'])}{_at_scale(plan)}: {len(runs):,} runs, {how}", "bold")
    for text in plan.get("lacks", ()):
        screen.line(plain(text), "yellow", 2, 2)
    keys = list(dict.fromkeys(key for run in runs for key in run if key != "identity"))
    fixed = [key for key in keys if len({run.get(key) for run in runs}) == 1] if len(runs) > 1 else []
    variants = list(dict.fromkeys(run[VARIANT] for run in runs if VARIANT in run))
    by_variant = {name: [run for run in runs if run.get(VARIANT) == name] for name in variants}
    # What a variant has and others have not, or have otherwise, needs no column either.
    own = [key for key in keys if key not in (*fixed, VARIANT)
           and variants and all(len({run.get(key) for run in part}) == 1 for part in by_variant.values())]  # fmt: skip
    _settings(screen, "all" if variants else "", runs[:1], fixed)
    for name, part in by_variant.items():
        _settings(screen, name, part[:1], own)
    shown = [key for key in keys if key not in (*fixed, *own)]
    columns = [(Column(key, right=False), words([_written(run.get(key, "")) for run in runs])) for key in shown]
    if columns:
        screen.line()
        screen.table(build(columns), reasons=False)
    return screen.text()


UNMEASURED = "not measured yet"
FEW = 3
"""Failures for one reason that are listed one by one."""


def _place(study: Document, row: Document) -> str:
    """`cnn, stress-cache`: where in the study a row stands."""
    return ", ".join(_written(row["configuration"][axis]) for axis in study["axes"] if axis in row["configuration"])


def _failures(study: Document) -> list[str]:
    """What failed and why; where many rows failed for one reason, it is said once with how many."""
    places: dict[str, list[str]] = {}
    lines: dict[str, list[str]] = {}
    for row in study["rows"]:
        for failure in row["failures"]:
            if failure.endswith(UNMEASURED):  # the notes say how many there are
                continue
            reason = failure.partition(": ")[2]
            place = _place(study, row)
            places.setdefault(reason, []).append(str(row["configuration"].get(VARIANT, "")))
            lines.setdefault(reason, []).append(": ".join([*([place] if place else []), failure]))
    found = []
    for reason, said in lines.items():
        if len(said) > FEW:
            which = ", ".join(dict.fromkeys(place for place in places[reason] if place))
            found.append(f"{which + ': ' if which else ''}{len(said):,} runs: {reason}")
        else:
            found += said
    return found


def _settings(screen: Screen, name: str, runs: list[dict[str, Any]], keys: list[str]) -> None:
    """`miss curve: batch 4, probe callgrind:256KiB+1MiB`, where there is anything to say."""
    items = [f"{plain(key)} {plain(_written(run[key]))}" for run in runs for key in keys if key in run]
    if items:
        screen.items(f"{plain(name)}: " if name else "", items, ", ")


def _written(value: object) -> str:
    """A value as the study's file has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def render_study(study: Document, width: int | None = None, *, color: bool | None = None) -> str:
    """A study's table: our figures with their intervals, the published ones beside them, variants, deviations below.

    Where there are variants, the first is shown whole and all of them by the figures that the study compares.
    """
    screen = Screen(width, color)
    screen.line(f"{plain(study['study'])}{_at_scale(study)}", "bold")
    if study["question"]:
        screen.line(plain(study["question"]), "", 2, 2)
    for sentence in study.get("verdicts", ()):
        screen.line(plain(f"Out of line: {sentence}."), "yellow", 4, 2)
    variants = _variants(study)
    whole = _of_variant(study, variants[0]) if variants else study
    for number, (title, columns) in enumerate(_families(_known(whole))):
        screen.line()
        words_of = [plain(word) for word in (variants[0] if variants and not number else "", title) if word]
        if words_of:
            screen.line(": ".join(words_of), "bold", 2)
        screen.table(_ours(whole, columns, title))
    for variant in variants[1:]:
        for title, columns in _families({**study, "columns": _only_here(study, variants[0], variant)}):
            screen.line()
            screen.line(plain(f"{variant}: {title}" if title else variant), "bold", 2)
            screen.table(_ours(_of_variant(study, variant), columns, title))
    for column in study["columns"]:
        if column["figure"] == SLOWDOWN and {"workload", WITH} <= set(study["axes"]):
            screen.line()
            screen.line("Slowdown: a row suffers from a column", "bold", 2)
            screen.table(_matrix(whole, column), reasons=False)
        beside = _beside(study, column)
        if beside is not None:
            screen.line()
            screen.line(f"{_name(column)}, ours beside what was published", "bold", 2)
            screen.table(beside, reasons=False)
    for column in study["columns"]:
        if column["figure"] in study.get("compare", ()):
            for number, table in enumerate(_side_by_side(study, column, variants, screen.width)):
                screen.line()
                screen.line("(continued)" if number else f"{_name(column)}, variants side by side", "bold", 2)
                screen.table(table, reasons=False)
    operations = study.get("operations", ())
    if len(operations) > len(study["rows"]) or any(row["counted"] is not None for row in operations):
        screen.line()
        screen.line("Operations one by one", "bold", 2)
        screen.table(operations_table(operations))
    for reason, names in _unmeasured(study).items():
        screen.line()
        screen.line(plain(f"– {', '.join(names)}: {reason}"), "dim", 2, 2)
    for title, lines in (("Failed", _failures(study)), ("Deviations", study["deviations"]), ("Notes", study["notes"])):
        if lines:
            screen.line()
            screen.line(title, "bold", 2)
            for line in lines:
                screen.line(plain(str(line)), "", 4, 2)
    return screen.text()


def _at_scale(document: Document) -> str:
    return f" at scale {plain(document['scale'])}" if document["scale"] else ""


Columns = list[tuple[Column, Sequence[Cell]]]
Rows = Sequence[Document]
VARIANT = "variant"
WITH, SLOWDOWN = "with", "slowdown"
RELATIVE = "geometric mean"
"""Names the row of ratios to the first variant."""
NUMBER = 11
"""Cells of a large number."""


def _variants(study: Document) -> list[str]:
    """Names of the variants in their order; none where the study has none."""
    return list(dict.fromkeys(str(row["configuration"][VARIANT]) for row in study["rows"] if VARIANT in study["axes"]))


def _of_variant(study: Document, variant: str) -> Document:
    """The same study with one variant only, which its title names."""
    rows = [row for row in study["rows"] if row["configuration"][VARIANT] == variant]
    return {**study, "rows": rows, "axes": [axis for axis in study["axes"] if axis != VARIANT]}


def _only_here(study: Document, first: str, variant: str) -> list[Document]:
    """Columns that this variant has and the first has not, and that are not shown side by side."""

    def has(name: str, column: Document) -> bool:
        rows = _of_variant(study, name)["rows"]
        return any(row["figures"][column["figure"]]["value"] is not None for row in rows)

    return [column for column in study["columns"] if column["figure"] not in study.get("compare", ())
            and has(variant, column) and not has(first, column)]  # fmt: skip


def _unmeasured(study: Document) -> dict[str, list[str]]:
    """Figures that no row has, neither measured nor published, by reason."""
    found: dict[str, list[Document]] = {}
    for column in study["columns"]:
        cells = [row["figures"][column["figure"]] for row in study["rows"]]
        if cells and all(cell["value"] is None and not cell.get("published") for cell in cells):
            variants: dict[str, dict[str, None]] = {}
            for cell, row in zip(cells, study["rows"], strict=True):
                variants.setdefault(_bare_reason(cell), {})[str(row["configuration"].get(VARIANT, ""))] = None
            # A reason that all variants share is said once; others name theirs.
            one = len(variants) == 1 or VARIANT not in study["axes"]
            said = [reason if one else f"{reason} ({', '.join(of)})" for reason, of in variants.items()]
            found.setdefault("; ".join(said), []).append(column)
    return {reason: _joined(columns) for reason, columns in found.items()}


def _joined(columns: Sequence[Document]) -> list[str]:
    """Names of figures, one that is missing at several places once: `ipc (whole, forward, backward)`."""
    stems: dict[str, list[Document]] = {}
    for column in columns:
        stems.setdefault(_name({**column, "of": ""}), []).append(column)
    return [_name(of[0]) if len(of) == 1 else f"{name} ({', '.join(str(one['of']) or 'whole' for one in of)})"
            for name, of in stems.items()]  # fmt: skip


def _known(study: Document) -> Document:
    """The same study with the figures that some row has."""
    columns = [column for column in study["columns"]
               if any(row["figures"][column["figure"]]["value"] is not None for row in study["rows"])]  # fmt: skip
    return {**study, "columns": columns or study["columns"][:1]}


def _bare_reason(cell: Document) -> str:
    return str(cell["reason"]).removeprefix("not measured: ")


def _matrix(study: Document, column: Document) -> Table:
    """A figure with a row for each workload and a column for each neighbour, where nothing else varies."""
    found: dict[str, dict[str, Document]] = {}
    for row in study["rows"]:
        others = [str(value) for key, value in row["configuration"].items() if key not in ("workload", WITH, VARIANT)]
        name = " ".join([str(row["configuration"]["workload"]), *others])
        found.setdefault(name, {})[str(row["configuration"][WITH])] = row["figures"][column["figure"]]
    neighbours = dict.fromkeys(name for by in found.values() for name in by)
    columns: Columns = [(Column("slowed", right=False), words(list(found)))]
    for name in neighbours:
        cells = [_cell(by[name]) if name in by else Cell(quantities.MISSING) for by in found.values()]
        columns.append((Column(f"by {name}"), cells))
    return build(columns)


def _families(study: Document) -> list[tuple[str, list[Document]]]:
    """Columns by table: the same figure of several modules has a table of its own, all other figures share one."""
    stems: dict[str, list[Document]] = {}
    for column in study["columns"]:
        stems.setdefault(str(column["figure"]).partition("@")[0], []).append(column)
    families: dict[str, list[Document]] = {}
    for columns in stems.values():
        title = _name({**columns[0], "of": ""}) if len(columns) > 1 else ""
        families.setdefault(title, []).extend(columns)
    return list(families.items())


def _axes(axes: Sequence[str], rows: Rows) -> Columns:
    return [
        (Column(axis, right=False), words([str(row["configuration"].get(axis, "")) for row in rows])) for axis in axes
    ]


def _ours(study: Document, of: Sequence[Document], title: str) -> Table:
    """Every figure that was measured; in a table of modules they are named by module."""
    columns = _axes(study["axes"], study["rows"])
    for index, column in enumerate(of):
        figures = [row["figures"][column["figure"]] for row in study["rows"]]
        if any(figure["value"] is not None for figure in figures):
            name = (str(column["of"]) or "whole") if title else _name(column)
            columns.append((Column(name, keep=max(1, LAST - index)), [_cell(one) for one in figures]))
    return build(columns)


def _beside(study: Document, column: Document) -> Table | None:
    """One figure of ours with the published ones, a column for each machine; None where nothing was published."""
    rows = [row for row in study["rows"] if row["figures"][column["figure"]].get("published")]
    if not rows:
        return None
    figures = [row["figures"][column["figure"]] for row in rows]
    machines = dict.fromkeys(one["hardware"] for figure in figures for one in figure.get("published", ()))
    alike = len({row["configuration"].get(VARIANT) for row in rows}) == 1
    axes = [axis for axis in study["axes"] if axis != VARIANT or not alike]
    columns = [*_axes(axes, rows), (Column("ours"), [_cell(one) for one in figures])]
    columns += [(Column(machine or "published"), [_printed(one, machine) for one in figures]) for machine in machines]
    return build(columns)


def _side_by_side(study: Document, column: Document, variants: Sequence[str], width: int) -> Iterator[Table]:
    """One figure, a column for each variant that has it; the last row says how they compare with the first variant.

    Where not all fit beside each other, there are several tables, each with the first variant.
    """
    axes = [axis for axis in study["axes"] if axis != VARIANT]
    found: dict[str, dict[str, Document]] = {}
    rows: dict[str, Document] = {}
    for row in study["rows"]:
        place = repr([row["configuration"].get(axis) for axis in axes])
        rows.setdefault(place, row)
        found.setdefault(place, {})[row["configuration"][VARIANT]] = row["figures"][column["figure"]]
    having = [one for one in variants if any(_has(found[place], one) for place in rows)]
    ratios = {one["variant"]: one["ratio"] for one in study["compared"] if one["figure"] == column["figure"]}
    columns = _axes(axes, list(rows.values()))
    if ratios:
        ratios[variants[0]] = 1.0
        columns = [
            (head, [*cells, Cell("" if at else RELATIVE, tone="quiet")]) for at, (head, cells) in enumerate(columns)
        ]
    for shown in _fitting(having, width - sum(max(len(cell.text) for cell in cells) for _, cells in columns)):
        beside = []
        for variant in shown:
            cells = [_bare(found[place].get(variant)) for place in rows]
            if ratios:
                said = f"{quantities.number(ratios[variant])}×" if variant in ratios else quantities.MISSING
                cells.append(Cell(said, tone="quiet"))
            beside.append((Column(variant), cells))
        yield build([*columns, *beside])


def _has(figures: Mapping[str, Document], variant: str) -> bool:
    return variant in figures and figures[variant]["value"] is not None


def _fitting(variants: Sequence[str], room: int) -> list[list[str]]:
    """The variants by table, the first in every one of them."""
    tables: list[list[str]] = []
    left = 0
    for variant in variants[1:] or variants:
        need = max(len(variant), NUMBER) + GAP
        if not tables or need > left:
            tables.append([variants[0]] if len(variants) > 1 else [])
            left = room - GAP - max(len(variants[0]), NUMBER) - GAP
        tables[-1].append(variant)
        left -= need
    return tables


def _name(column: Document) -> str:
    """`step ms`, `MFLOP/s`, `accuracy`, `embeddings share %`."""
    key, unit, of = str(column["figure"]).partition("@")[0], str(column["unit"]), str(column.get("of", ""))
    stem, _, word = key.rpartition("_")
    name = key if not unit else f"{stem.replace('_', ' ')} {unit}" if stem and not word.startswith("second") else unit
    return f"{of} {name}".lstrip()


def _bare(figure: Document | None) -> Cell:
    """A figure without its interval."""
    return Cell(quantities.MISSING) if figure is None else _cell({**figure, "low": None, "high": None})


def _cell(figure: Document) -> Cell:
    value = figure["value"]
    if value is None:
        return Cell(quantities.MISSING, missing=str(figure["reason"]))
    low, high = figure["low"], figure["high"]
    if low is None or high is None or not value:
        spread = ""
    elif figure["source"] == "simulated":
        # Bounds of a table of energies, which are factors: they do not lie evenly around the value.
        spread = f" ({quantities.number(low)}–{quantities.number(high)})"
    else:
        spread = f" ±{50 * (high - low) / value:.0f} %"
    return Cell(quantities.number(value) + spread, value)


def _printed(figure: Document, hardware: str) -> Cell:
    """A published figure with the digits that were printed."""
    for one in figure.get("published", ()):
        if one["hardware"] == hardware:
            value, low, high = (one["value"].get(key) for key in ("value", "low", "high"))
            if value is not None:
                return Cell(f"{value:,.10g}", value, tone="quiet")
            return Cell(f"{low:,.10g}–{high:,.10g}" if low else f"up to {high:,.10g}", high, tone="quiet")
    return Cell(quantities.MISSING)
