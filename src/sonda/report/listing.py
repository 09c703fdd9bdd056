"""Listings: the runs of a store, and the checks of a machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sonda.analysis.summary import Summary, Value
from sonda.record.run import RunInfo
from sonda.report import quantities
from sonda.report.labels import plain
from sonda.report.summary_tables import tone_of
from sonda.report.table import Cell, Column, Table, build, words

_STATE_TONES = {
    "complete": "", "incomplete": "strong", "failed": "bad",
    "ok": "good", "missing": "strong", "dead": "bad", "off": "quiet",
}  # fmt: skip


@dataclass(frozen=True)
class RunRow:
    """One run in a listing."""

    id: str
    """The shortest beginning of the id that names this run."""
    created: str
    """UTC, ISO 8601."""
    workload: str
    target: str
    step: Value
    status: str
    tags: tuple[str, ...] = ()
    verdict: str = ""
    """Kind of the first verdict; '' where none was asked for."""


def run_row(info: RunInfo, short: str = "", tags: Sequence[str] = (), summary: Summary | None = None) -> RunRow:
    """The row of a run; without its summary, step and verdict stay open."""
    part = summary.parts[0] if summary and summary.parts else None
    step = part.step if part else Value(None, "ns", "measured", reason="the run holds no step" if summary else "")
    if part and part.simulated is not None:
        step = part.simulated.cycles
    points = (info.target.get("exploration") or {}).get("points")
    if points:
        step = Value(float(points), "point", "counted")
    verdict = summary.verdicts[0].kind if summary and summary.verdicts else ""
    return RunRow(
        short or info.id, info.created, _workload_words(info), str(info.target.get("spec", "")), step, info.status,
        tuple(tags), verdict,
    )  # fmt: skip


def runs_table(rows: Sequence[RunRow]) -> Table:
    """Runs in the order given."""
    steps = [Cell(_step_words(row.step), row.step.value, quantities.provenance(row.step)) for row in rows]
    return build(
        [
            (Column("run", right=False), [Cell(plain(row.id), row.id, tone="name") for row in rows]),
            (Column("when (UTC)", right=False, keep=3), words([_moment(row.created) for row in rows])),
            (Column("workload", right=False), words([plain(row.workload) for row in rows])),
            (Column("target", right=False, keep=4), words([plain(row.target) for row in rows])),
            # Runs of different workloads share this column, so every step has the scale that suits it.
            (Column("step", keep=6), steps),
            (Column("limited by", right=False, keep=2), words([row.verdict for row in rows], tone_of)),
            (Column("status", right=False, keep=5), words([row.status for row in rows], _state_tone)),
            (Column("tags", right=False, keep=1), words([plain(", ".join(row.tags)) for row in rows])),
        ],
        "runs",
    )


def checks_table(checks: Iterable[tuple[str, str, str]]) -> Table:
    """Checks as (name, state, detail): ok, missing, dead or off."""
    rows = list(checks)
    return build(
        [
            (Column("check", right=False), [Cell(plain(name), name, tone="name") for name, _, _ in rows]),
            (Column("state", right=False), words([plain(state) for _, state, _ in rows], _state_tone)),
            (Column("detail", right=False, wrap=True), words([plain(detail) for _, _, detail in rows])),
        ],
        "checks",
    )


def _step_words(step: Value) -> str:
    if step.unit in ("cycle", "point") and step.value is not None:
        return f"{step.value:,.0f} {step.unit}{'' if step.value == 1 else 's'}"
    return quantities.amount(step.value, step.unit)


def _workload_words(info: RunInfo) -> str:
    workload = info.workload
    command = workload.get("command")
    if command:
        return " ".join(command) if isinstance(command, list | tuple) else str(command)
    described = [str(workload.get("name", ""))]
    if workload.get("train"):
        described.append("train")
    if workload.get("batch"):
        described.append(f"batch {workload['batch']}")
    return ", ".join(word for word in described if word)


def _moment(created: str) -> str:
    try:
        moment = datetime.fromisoformat(created)
    except ValueError:
        return plain(created)
    return (moment.astimezone(UTC) if moment.tzinfo else moment).strftime("%Y-%m-%d %H:%M")


def _state_tone(state: str) -> str:
    return _STATE_TONES.get(state, "")
