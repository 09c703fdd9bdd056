"""Verdicts: one rule per file, each finding what limits a run, or nothing.

A rule is a function from a `Summary` to a `Verdict` or None. Others join through the entry-point group `sonda.rules`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sonda.analysis.doubts import WrongVerdict
from sonda.analysis.findings import Finding, Remark
from sonda.analysis.rules import (
    ceilings,
    checkpointing,
    code,
    communication,
    compute,
    copied_data,
    counted_flops,
    garbage_collection,
    host,
    input,
    logging,
    memory,
    metrics,
    noise,
    none,
    overhead,
    per_sample_python,
    program,
    retracing,
    stalls,
    topdown,
    transfer,
    waiting,
    work,
)
from sonda.analysis.summary import Remedy, Summary, Verdict
from sonda.record.errors import SondaError
from sonda.record.plugins import RULES, call_entry, plugin_entries

BUILT_IN: tuple[Callable[[Summary], Verdict | None], ...] = (
    input.rule, code.rule, waiting.rule, communication.rule, transfer.rule, host.rule, compute.rule, memory.rule,
    overhead.rule, ceilings.rule, topdown.rule, stalls.rule, counted_flops.rule, retracing.rule, none.rule,
)  # fmt: skip
CAUSES: tuple[Callable[[Summary], Verdict | None], ...] = (
    waiting.at_lines, waiting.for_threads, garbage_collection.rule, logging.rule, checkpointing.rule, copied_data.rule,
    metrics.rule, per_sample_python.rule, input.by_hand,
)  # fmt: skip
"""What a program does and need not do; the share of such a verdict is what is saved without it."""
LIMITS = frozenset({"compute", "memory", "overhead", "none"})
"""Kinds that say what limits the work as it is: a cause that can be removed comes before them."""


def verdicts(summary: Summary) -> tuple[tuple[Verdict, ...], tuple[Finding, ...]]:
    """What limits the run, the largest share first, never empty; and a warning for every rule that failed.

    Where the steps are a minor part of the program, that comes first. A remedy is offered once, by the first verdict
    that has it.
    """
    whole = program.rule(summary)
    if whole is not None and work.first_part(summary) is None:
        return (whole,), ()
    spoken, failures = _of_a_step(summary)
    offered: set[Remedy] = set()
    ordered = []
    for verdict in [whole, *spoken] if whole is not None else spoken:
        fresh = tuple(remedy for remedy in verdict.remedies if remedy not in offered)
        offered.update(fresh)
        ordered.append(replace(verdict, remedies=fresh))
    return tuple(ordered), tuple(failures)


def _of_a_step(summary: Summary) -> tuple[list[Verdict], list[Finding]]:
    """What all rules say of a step, the largest share first; of one that is hardly known that, and what is known
    without it."""
    noisy = noise.rule(summary)
    if noisy is not None:
        # Steps that trace differ from others, and so do steps that wait for input, and what was sampled is known of all
        # steps together: these are known without a median.
        rules = (retracing.rule, input.uneven, *CAUSES, code.rule)
        known = [verdict for rule in rules if (verdict := rule(summary)) is not None]
        return [*sorted(known, key=lambda verdict: -verdict.share), noisy], []
    causes = [verdict for rule in CAUSES if (verdict := rule(summary)) is not None]
    spoken: list[Verdict] = list(causes)
    failures: list[Finding] = []
    for rule in BUILT_IN:
        verdict = rule(summary)
        if verdict is not None:
            spoken.append(verdict)
    for entry in plugin_entries(RULES).values():
        try:
            verdict = call_entry(entry, summary)
        except SondaError as error:
            failures.append(Remark(str(error)))
            continue
        if isinstance(verdict, Verdict):
            spoken.append(verdict)
        elif verdict is not None:
            failures.append(WrongVerdict(entry.name, entry.value, type(verdict).__name__))
    return sorted(spoken, key=lambda verdict: (bool(causes) and verdict.kind in LIMITS, -verdict.share)), failures
