"""Which probes can be trusted on this machine, in the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sonda.report.blocks import Block, Gap, Heading, Paragraph, TableBlock
from sonda.report.table import Cell, Column, Table, build, words

TONES = {"trusted": "good", "differs": "bad", "missing": "quiet"}
SHOWN = {"trusted": "trusted", "differs": "differs", "missing": "not available"}

Document = Mapping[str, Any]


def validation_blocks(document: Document) -> list[Block]:
    """First what may be thought of each probe, then every trial, then what would make more of them possible."""
    blocks: list[Block] = [
        Heading(_verdict(document["probes"])),
        Gap(),
        TableBlock(probes_table(document["probes"]), indent=0),
        Gap(),
        Heading("Known work and what was counted"),
        TableBlock(trials_table([trial for trial in document["trials"] if trial["state"] != "missing"]), reasons=False),
    ]
    untried = [trial for trial in document["trials"] if trial["state"] == "missing"]
    if untried:
        blocks += [Gap(), Heading("Not tried")]
        for probe, reason in dict.fromkeys((trial["probe"], trial["reason"]) for trial in untried):
            checks = [trial["check"] for trial in untried if (trial["probe"], trial["reason"]) == (probe, reason)]
            blocks.append(Paragraph(f"{probe}: {', '.join(checks)}: {reason}", "quiet"))
    remedies = dict.fromkeys((trial["probe"], trial["remedy"]) for trial in document["trials"] if trial["remedy"])
    if remedies:
        blocks += [
            Gap(),
            Heading("What would change that"),
            *(Paragraph(f"{probe}: {remedy}") for probe, remedy in remedies),
        ]
    blocks += [
        Gap(),
        Paragraph(
            "Next: sonda run resnet18 --train; sonda doctor says what else this machine can measure", "quiet", 0, 0
        ),
    ]
    return blocks


def _verdict(probes: Sequence[Document]) -> str:
    counts = {state: sum(probe["state"] == state for probe in probes) for state in SHOWN}
    return (
        ", ".join(f"{count} {SHOWN[state]}" for state, count in counts.items() if count) + f", of {len(probes)} probes"
    )


def probes_table(probes: Sequence[Document]) -> Table:
    """One row for each probe."""
    return build([
        (Column("probe", right=False), [Cell(probe["probe"], probe["probe"], tone="name") for probe in probes]),
        (Column("state", right=False), _states(probes)),
        (Column("how far", right=False, wrap=True), words([probe["sentence"] for probe in probes])),
    ])  # fmt: skip


def trials_table(trials: Sequence[Document]) -> Table:
    """One row for each trial that took place."""
    return build([
        (Column("probe", right=False), words([trial["probe"] for trial in trials])),
        (Column("state", right=False), _states(trials)),
        (Column("expected"), words([trial["expected"] for trial in trials])),
        (Column("counted"), words([trial["found"] for trial in trials])),
        (Column("off by"), words([_deviation_text(trial["deviation"]) for trial in trials])),
        (Column("work", right=False, wrap=True), words([_work_text(trial) for trial in trials])),
    ])  # fmt: skip


def _work_text(trial: Document) -> str:
    return ", ".join(text for text in (trial["check"], trial["reason"]) if text)


def _deviation_text(deviation: float | None) -> str:
    if deviation is None:
        return ""
    return "0" if deviation == 0 else f"{100 * deviation:.2g} %"


def _states(rows: Sequence[Document]) -> list[Cell]:
    return [Cell(SHOWN[row["state"]], row["state"], tone=TONES[row["state"]]) for row in rows]
