"""Two imported runs kernel by kernel: on a screen and as a document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sonda.analysis.comparison.kernels import ComparedKernel, KernelComparison, LoneKernel
from sonda.analysis.comparison.summary import describe as describe_ratio
from sonda.analysis.comparison.summary import factor_digits
from sonda.analysis.summary import Value
from sonda.report import quantities
from sonda.report.blocks import (
    FEW_ROWS,
    Bar,
    Bars,
    Block,
    Gap,
    Heading,
    Paragraph,
    TableBlock,
    doubts,
    next_of_two,
    paragraphs,
)
from sonda.report.json import document
from sonda.report.table import Cell, Column, Table, build, numbers, words
from sonda.report.values import value_document
from sonda.report.views.compare.document import limit_fields
from sonda.report.views.compare.tables import change_words, limit_words
from sonda.report.views.device.kernels import kernel_name
from sonda.report.words import describe


def kernel_comparison_glance(
    found: KernelComparison, *, rows: int = FEW_ROWS, fail_above: float | None = None
) -> list[Block]:
    """Whether B is faster, and the kernels that changed most."""
    blocks: list[Block] = [*_opening(found, fail_above), Gap()]
    totals = [(name, a, b) for name, a, b in found.totals if a.value and b.value is not None]
    most = max((max(a.value or 0.0, b.value or 0.0) for _, a, b in totals), default=0.0) or 1.0
    blocks.append(Bars([
        Bar(name, (b.value or 0.0) / most, _more_or_less((b.value or 0.0) / (a.value or 1.0)),
            note=f"{quantities.amount(a.value, a.unit)} to {quantities.amount(b.value, b.unit)}")
        for name, a, b in totals[:rows]
    ]))  # fmt: skip
    if found.rows and rows:
        table = compared_table(found.rows[:rows], found.on_host)
        kept = {"launches A", "launches B", "calls A", "calls B", "launch A", "launch B", "call A", "call B"}
        blocks += [Gap(), TableBlock(table.drop_columns(kept), reasons=False)]
    blocks += doubts(found.warnings)
    return [*blocks, next_of_two(f"{found.a} {found.b}")]


def _more_or_less(ratio: float) -> str:
    """`1.30x more`, `11.4x less`."""
    if ratio == 0:
        return "none in B"
    return f"{factor_digits(max(ratio, 1 / ratio))}x {'more' if ratio >= 1 else 'less'}"


def _opening(found: KernelComparison, fail_above: float | None) -> list[Block]:
    blocks: list[Block] = [
        Heading(f"B {found.b} against A {found.a}, {'per step' if found.per_step else 'in all'}"),
        Gap(),
        Paragraph(slowdown_words(found), "first"),
    ]
    if fail_above is not None:
        check = found.check(fail_above)
        blocks.append(Paragraph(limit_words(check, repetitions="steps"), "bad" if check.exit_code else ""))
    return blocks


def kernel_comparison_blocks(
    found: KernelComparison, *, rows: int = 10, fail_above: float | None = None
) -> list[Block]:
    """B against A in tables."""
    blocks = _opening(found, fail_above)
    blocks += [Gap(), TableBlock(totals_table(found))]
    if rows and found.rows:
        blocks += [
            Gap(),
            TableBlock(compared_table(found.rows[:rows], found.on_host)),
            *_more_blocks(len(found.rows) - rows),
        ]
    for side, lone in (("A", found.only_a), ("B", found.only_b)):
        if lone and rows:
            blocks += [Gap(), TableBlock(lone_table(lone[:rows], side, found.on_host)), *_more_blocks(len(lone) - rows)]
    blocks += [
        *paragraphs(map(describe, found.warnings), "warning"),
        Gap(),
        Paragraph(f"Page of both: sonda report {found.a} {found.b}"),
    ]
    return blocks


def _more_blocks(count: int) -> list[Block]:
    blocks: list[Block] = []
    if count > 0:
        blocks.append(Paragraph(f"and {count:,} more", "quiet", hang=0))
    return blocks


def slowdown_words(comparison: KernelComparison) -> str:
    """How much longer B takes, in the words of every comparison."""
    slowdown, (what, a, b) = comparison.slowdown, comparison.totals[0]
    if slowdown.value is None:
        return slowdown.reason
    low, high = (None if end is None else 1 + end for end in (slowdown.low, slowdown.high))
    ratio = Value(1 + slowdown.value, "1", "derived", low, high, slowdown.reason)
    times = (
        f"{quantities.amount(b.value, b.unit)} {_unit_of_work(what)} instead of {quantities.amount(a.value, a.unit)}"
    )
    if low is None or high is None:
        return f"B is {describe_ratio(1 + slowdown.value)} than A, without an interval: {times}."
    significant = not low <= 1 <= high
    return f"{change_words(ratio, significant, describe_ratio(1 + slowdown.value, low, high))}: {times}."


def _unit_of_work(what: str) -> str:
    return {"step": "per step", "window": "from the first activity to the last"}.get(what, "in all operations")


def totals_table(comparison: KernelComparison) -> Table:
    """Where the time of both sides went."""
    a, b = [row[1] for row in comparison.totals], [row[2] for row in comparison.totals]
    return build(
        [
            (Column("time", right=False), words([row[0] for row in comparison.totals])),
            (Column("A"), numbers(a, suffix=True)[1]),
            (Column("B"), numbers(b, suffix=True)[1]),
            (Column("B/A"), [_quotient(of_a, of_b) for of_a, of_b in zip(a, b, strict=True)]),
        ],
        "totals",
    )


def compared_table(rows: Sequence[ComparedKernel], on_host: bool = False) -> Table:
    """Kernels of both sides, or operations of the host."""
    noun, once, often = ("operation", "call", "calls") if on_host else ("kernel", "launch", "launches")
    return build(
        [
            (Column(f"{noun} (largest change first)", right=False), [kernel_name(row.name) for row in rows]),
            (Column(f"{often} A", keep=3), _counts([row.launches_a for row in rows])),
            (Column(f"{often} B", keep=3), _counts([row.launches_b for row in rows])),
            (Column("A"), numbers([row.a for row in rows], suffix=True)[1]),
            (Column("B"), numbers([row.b for row in rows], suffix=True)[1]),
            (Column(f"{once} A", keep=4), numbers([row.mean_a for row in rows], suffix=True)[1]),
            (Column(f"{once} B", keep=4), numbers([row.mean_b for row in rows], suffix=True)[1]),
            (Column(f"a {once} of B", right=False), [_verdict(row) for row in rows]),
        ],
        "operations" if on_host else "kernels",
    )


def lone_table(rows: Sequence[LoneKernel], side: str, on_host: bool = False) -> Table:
    """Kernels that only one side has, or operations of the host."""
    return build(
        [
            (Column(f"only in {side}", right=False), [kernel_name(row.name) for row in rows]),
            (Column("calls" if on_host else "launches"), _counts([row.launches for row in rows])),
            (Column("time"), numbers([row.time for row in rows], suffix=True)[1]),
        ],
        f"only {side}",
    )


def kernel_comparison_document(found: KernelComparison, fail_above: float | None = None) -> dict[str, Any]:
    """The comparison as plain JSON values; with a limit also whether it is passed."""
    fields = {
        "a": found.a, "b": found.b, "per_step": found.per_step,
        "on_host": found.on_host, "slowdown": value_document(found.slowdown),
        "totals": {name: {"a": value_document(a), "b": value_document(b)} for name, a, b in found.totals},
        "kernels": [
            {"name": row.name, "kind": row.kind, "launches_a": row.launches_a, "launches_b": row.launches_b,
             "a": value_document(row.a), "b": value_document(row.b), "mean_a": value_document(row.mean_a),
             "mean_b": value_document(row.mean_b), "ratio": value_document(row.ratio),
             "significant": row.significant, "text": row.text}
            for row in found.rows
        ],
        **({} if fail_above is None else limit_fields(found.check(fail_above))),
        "only_a": [_lone_fields(kernel) for kernel in found.only_a],
        "only_b": [_lone_fields(kernel) for kernel in found.only_b],
        "warnings": list(map(describe, found.warnings)),
    }  # fmt: skip
    return document("kernel comparison", fields)


def _lone_fields(kernel: LoneKernel) -> dict[str, Any]:
    return {"name": kernel.name, "kind": kernel.kind, "launches": kernel.launches, "time": value_document(kernel.time)}


def _verdict(row: ComparedKernel) -> Cell:
    value = row.ratio.value
    if value is None:
        return Cell(quantities.MISSING, None, row.ratio.reason, row.ratio.reason, "quiet")
    tone = ("bad" if value > 1 else "good") if row.significant else "quiet"
    return Cell(row.text or quantities.times(value), value, quantities.provenance(row.ratio), tone=tone)


def _quotient(a: Value, b: Value) -> Cell:
    if not a.value or b.value is None:
        return Cell(quantities.MISSING, tone="quiet")
    return Cell(quantities.ratio(b.value / a.value), b.value / a.value)


def _counts(values: Sequence[float]) -> list[Cell]:
    return numbers([Value(value, "1", "counted") for value in values])[1]
