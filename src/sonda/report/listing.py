"""Listings: the runs of a store, and the checks of a machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from sonda.analysis.run_rows import RunRow
from sonda.analysis.summary import Value
from sonda.report import quantities
from sonda.report.screen import Screen
from sonda.report.table import Cell, Column, Table, build, tone_of, words

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


def render_runs(
    rows: Sequence[RunRow],
    width: int | None = None,
    *,
    damaged: Sequence[str] = (),
    more: int = 0,
    color: bool | None = None,
) -> str:
    """The listing of a store; `damaged` names what was skipped, `more` counts older runs that are not shown."""
    screen = Screen(width, color)
    if rows:
        screen.table(runs_table(rows), indent=0, reasons=False)
    else:
        screen.line("No runs yet. Make one with: sonda run mlp")
    if more:
        screen.line(f"{more:,} older, shown with --all", "dim")
    for cause in damaged:
        screen.line(f"! skipped: {cause}", "yellow", 0, 2)
    if rows:
        screen.line()
        screen.line("Next: sonda show RUN; sonda compare RUN RUN; sonda report RUN", "dim")
    return screen.text()


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


def _step_words(step: Value) -> str:
    if step.unit in ("cycle", "point") and step.value is not None:
        return f"{step.value:,.0f} {step.unit}{'' if step.value == 1 else 's'}"
    return quantities.amount(step.value, step.unit)


def _moment(created: str) -> str:
    try:
        moment = datetime.fromisoformat(created)
    except ValueError:
        return created
    return (moment.astimezone(UTC) if moment.tzinfo else moment).strftime("%Y-%m-%d %H:%M")


def _state_tone(state: str) -> str:
    return _STATE_TONES.get(state, "")
