"""Listings: the runs of a store, and the checks of a machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime

from sonda.analysis.run_rows import RunRow
from sonda.analysis.summary import Value
from sonda.report import quantities
from sonda.report.blocks import Block, Gap, Heading, Paragraph, TableBlock
from sonda.report.json import document, encode
from sonda.report.table import Cell, Column, Table, build, tone_of, words
from sonda.report.values import Document, metrics

_STATE_TONES = {
    "complete": "", "incomplete": "strong", "failed": "bad",
    "ok": "good", "missing": "strong", "dead": "bad", "off": "quiet",
}  # fmt: skip


def runs_table(rows: Sequence[RunRow]) -> Table:
    """Runs in the order given."""
    steps = [Cell(_step_words(row.step), row.step.value, quantities.provenance(row.step)) for row in rows]
    return build(
        [
            (Column("run", right=False), [Cell(row.id, row.id, tone="name") for row in rows]),
            (Column("when (UTC)", right=False, keep=3), words([_moment(row.created) for row in rows])),
            (Column("workload", right=False), words([row.workload for row in rows])),
            (Column("target", right=False, keep=4), words([row.target for row in rows])),
            # Runs of different workloads share this column, so every step has the scale that suits it.
            (Column("step", keep=6), steps),
            (Column("limited by", right=False, keep=2), words([row.verdict for row in rows], tone_of)),
            (Column("status", right=False, keep=5), words([row.status for row in rows], _state_tone)),
            (Column("tags", right=False, keep=1), words([", ".join(row.tags) for row in rows])),
        ],
        "runs",
    )


def runs_blocks(rows: Sequence[RunRow], *, damaged: Sequence[str] = (), more: int = 0) -> list[Block]:
    """The listing of a store; `damaged` names what was skipped, `more` counts older runs that are not shown."""
    blocks: list[Block] = []
    if rows:
        blocks.append(TableBlock(runs_table(rows), indent=0, reasons=False))
    else:
        blocks.append(Paragraph("No runs yet. Make one with: sonda run mlp", "", 0, 0))
    if more:
        blocks.append(Paragraph(f"{more:,} older, shown with --all", "quiet", 0, 0))
    blocks += [Paragraph(f"skipped: {cause}", "warning", 0, 2) for cause in damaged]
    if rows:
        blocks += [Gap(), Paragraph("Next: sonda show RUN; sonda compare RUN RUN; sonda report RUN", "quiet", 0, 0)]
    return blocks


def checks_table(checks: Iterable[tuple[str, str, str]]) -> Table:
    """Checks as (name, state, detail): ok, missing, dead or off."""
    rows = list(checks)
    return build(
        [
            (Column("check", right=False), [Cell(name, name, tone="name") for name, _, _ in rows]),
            (Column("state", right=False), words([state for _, state, _ in rows], _state_tone)),
            (Column("detail", right=False, wrap=True), words([detail for _, _, detail in rows])),
        ],
        "checks",
    )


def doctor_blocks(checks: Iterable[tuple[str, str, str, str]]) -> list[Block]:
    """Checks as (name, state, detail, remedy); the remedies of what does not work stand below, one line each."""
    rows = list(checks)
    good = sum(state == "ok" for _, state, _, _ in rows)
    lacking = [name for name, state, _, _ in rows if state in ("missing", "dead", "off")]
    without = f" Without: {', '.join(lacking)}." if lacking else ""
    blocks: list[Block] = [
        Heading(f"{good} of {len(rows)} checks are fine.{without}"),
        Gap(),
        TableBlock(checks_table([row[:3] for row in rows]), indent=0),
    ]
    remedies = [(name, remedy) for name, _, _, remedy in rows if remedy]
    if remedies:
        blocks += [
            Gap(),
            Heading("What would change that"),
            *(Paragraph(f"{name}: {remedy}") for name, remedy in remedies),
        ]
    blocks += [
        Gap(),
        Paragraph(
            "Next: sonda doctor --validate counts known work with every probe; sonda run resnet18 --train",
            "quiet",
            0,
            0,
        ),
    ]
    return blocks


def _step_words(step: Value) -> str:
    if step.unit in ("cycle", "point") and step.value is not None:
        return f"{quantities.whole(step.value)} {step.unit}{'' if step.value == 1 else 's'}"
    return quantities.amount(step.value, step.unit)


def _moment(created: str) -> str:
    try:
        moment = datetime.fromisoformat(created)
    except ValueError:
        return created
    return (moment.astimezone(UTC) if moment.tzinfo else moment).strftime("%Y-%m-%d %H:%M")


def _state_tone(state: str) -> str:
    return _STATE_TONES.get(state, "")


def runs_in_pieces(rows: Iterable[RunRow], damaged: Callable[[], Sequence[str]]) -> Iterator[bytes]:
    """The listing of a store as text, piece by piece as the rows come; `damaged` is asked when all have come."""
    yield encode(document("runs", {})).removesuffix(b"}") + b',"runs":['
    for number, row in enumerate(rows):
        yield (b"," if number else b"") + encode(_run_fields(row))
    yield b'],"damaged":' + encode(list(damaged())) + b"}\n"


def _run_fields(row: RunRow) -> Document:
    return {
        "run": row.id,
        "created": row.created,
        "workload": row.workload,
        "target": row.target,
        "status": row.status,
        "verdict": row.verdict or None,
        "tags": list(row.tags),
        "metrics": metrics({{"cycle": "cycles", "point": "points"}.get(row.step.unit, "step_time"): row.step}),
    }


def checks_document(checks: Sequence[tuple[str, str, str, str]]) -> Document:
    """Checks as (name, state, detail, remedy)."""
    names = ("name", "state", "detail", "remedy")
    return document("doctor", {"checks": [dict(zip(names, row, strict=True)) for row in checks]})
