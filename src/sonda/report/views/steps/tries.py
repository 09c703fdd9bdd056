"""Remedies that were tried on a program: a row for each, what brought most first, and how to apply what helped."""

from __future__ import annotations

from pathlib import Path

from sonda.analysis import wording
from sonda.analysis.trials import TOLERANCE, TrialsSummary, TriedRemedy
from sonda.report import quantities
from sonda.report.blocks import Block, Gap, Panel, Paragraph, TableBlock
from sonda.report.table import Cell, Column, Table, build, words
from sonda.report.values import Document, finite, value_document

NAMES = {
    "tf32": "TF32", "channels_last": "channels last", "autocast": "autocast to bfloat16", "compile": "torch.compile",
    "pin": "pinned memory", "fused": "fused optimizer", "foreach": "foreach optimizer",
}  # fmt: skip
MOST_ROWS = 10
TRIED_MEANS = (
    "Each remedy was applied from outside, a few steps in processes of their own that took turns with the program as "
    "it is. Times are per sample, with 95 % intervals that hold for all remedies at once. Losses are within tolerance "
    f"where they differ by no more than those of the program as it is and {TOLERANCE:.0%} of the loss."
)


def trials_blocks(trials: TrialsSummary | None) -> list[Block]:
    """The table and what stands below it."""
    return [Gap(), *_trials(trials)] if trials is not None else []


def trials_panels(trials: TrialsSummary | None) -> list[Block]:
    """The same on a page."""
    return [Panel("Remedies that were tried", _trials(trials), TRIED_MEANS)] if trials is not None else []


def _trials(trials: TrialsSummary) -> list[Block]:
    if trials.refused:
        return [Paragraph(f"No remedy was tried: {trials.refused}.", "quiet")]
    blocks: list[Block] = []
    if trials.remedies:
        blocks.append(TableBlock(trials_table(trials), reasons=False))
        rounds = wording.plural(trials.rounds, "round")
        steps = wording.plural(trials.steps, "step")
        blocks.append(Paragraph(f"{rounds} of {steps} each, in {trials.seconds:.0f} s", "quiet"))
    blocks += [Paragraph(text) for text in apply_sentences(trials)]
    if trials.untried:
        blocks.append(Paragraph(f"not tried: {untried_words(trials)}", "quiet"))
    return blocks


def name_remedy(name: str, value: int | None) -> str:
    """`2 threads`, `torch.compile`."""
    match name:
        case "threads":
            return wording.plural(value or 1, "thread")
        case "workers":
            return wording.plural(value or 1, "worker")
        case "batch":
            return f"batch {value} times as large"
    return NAMES.get(name, name)


def trials_table(trials: TrialsSummary) -> Table:
    """What every remedy brought, what losses did, and where its patch is."""
    rows = trials.remedies[:MOST_ROWS]
    names = [Cell(name_remedy(remedy.name, remedy.value), remedy.name, tone="name") for remedy in rows]
    brought = [
        Cell(quantities.factor(speedup), speedup.value, quantities.provenance(speedup))
        for speedup in (remedy.speedup for remedy in rows)
    ]
    return build(
        [
            (Column("tried", right=False), names),
            (Column("losses", right=False), words([remedy.losses for remedy in rows])),
            (Column("patch", right=False), words([_patch_word(remedy) for remedy in rows])),
            (Column("brought", right=False, wrap=True), brought),
        ],
        "tried",
    )  # fmt: skip


def _patch_word(remedy: TriedRemedy) -> str:
    return remedy.patch.place if remedy.patch is not None and remedy.patch.text else ""


def apply_sentences(trials: TrialsSummary) -> list[str]:
    """How to apply what helped: a command, or what to change."""
    sentences = []
    for remedy in trials.remedies:
        if remedy.patch is None:
            continue
        name = name_remedy(remedy.name, remedy.value)
        if remedy.patch.text:
            where = "" if Path(remedy.patch.folder) == Path.cwd() else f"cd {remedy.patch.folder} && "
            checked = "" if remedy.patch.runs else " (not tried)"
            sentences.append(f"{name}: {where}patch -p1 < {Path(trials.directory) / remedy.patch.file}{checked}")
        else:
            at = f" at {remedy.patch.place}" if remedy.patch.place else ""
            sentences.append(f"{name}: write {remedy.patch.change}{at}")
    return sentences


def untried_words(trials: TrialsSummary) -> str:
    """`TF32 and pinned memory: no GPU; …`"""
    by_reason: dict[str, list[str]] = {}
    for remedy in trials.untried:
        by_reason.setdefault(remedy.reason, []).append(NAMES.get(remedy.name, remedy.name))
    return "; ".join(f"{wording.join(names)}: {reason}" for reason, names in by_reason.items())


def trials_fields(trials: TrialsSummary | None) -> Document:
    """For `--json`."""
    if trials is None:
        return {}
    rows = [
        {
            "remedy": remedy.name,
            "value": remedy.value,
            "text": name_remedy(remedy.name, remedy.value),
            "speedup": value_document(remedy.speedup),
            "losses": remedy.losses or None,
            "loss_change": finite(remedy.loss_change),
            "patch": None if remedy.patch is None else {
                "text": remedy.patch.text, "folder": remedy.patch.folder, "runs": remedy.patch.runs,
                "file": str(Path(trials.directory) / remedy.patch.file) if remedy.patch.file else "",
                "change": remedy.patch.change, "place": remedy.patch.place,
            },
        }
        for remedy in trials.remedies
    ]  # fmt: skip
    return {
        "tried": {
            "remedies": rows,
            "untried": [{"remedy": remedy.name, "reason": remedy.reason} for remedy in trials.untried],
            "refused": trials.refused or None,
            "rounds": trials.rounds,
            "warmup": trials.warmup,
            "steps": trials.steps,
            "seconds": finite(trials.seconds),
        }
    }
