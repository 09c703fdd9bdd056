"""Which verdicts are said, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from sonda.analysis.doubts import WrongVerdict
from sonda.analysis.findings import Finding, Remark
from sonda.analysis.rules import work
from sonda.analysis.rules.cause_findings import ChannelsFirst
from sonda.analysis.rules.code import (
    busy_line,
    copied_data,
    garbage_collection,
    input,
    logging,
    metrics,
    per_sample_python,
    waiting,
)
from sonda.analysis.rules.code_findings import PreparesInput
from sonda.analysis.rules.device import slow_products, synchronisation, transfer
from sonda.analysis.rules.limit_findings import UNNAMED, Oversubscribed
from sonda.analysis.rules.limits import (
    ceilings,
    communication,
    compute,
    counted_flops,
    good,
    host,
    memory,
    noise,
    none,
    overhead,
    retracing,
    stalls,
    topdown,
)
from sonda.analysis.rules.operations import (
    allocation,
    copies,
    denormals,
    dominating_layer,
    double_precision,
    graph_breaks,
    memory_bound,
    memory_format,
    micro_batch,
    optimizer,
    recompilation,
    repeated_forward,
    tiny_operations,
    unused_gradients,
)
from sonda.analysis.rules.places import StepPlace
from sonda.analysis.rules.program import (
    between,
    checkpointing,
    cores,
    imbalance,
    single_thread,
    validation,
    whole_program,
)
from sonda.analysis.steps import program as stages
from sonda.analysis.summary import CausePlace, Remedy, Summary, Verdict
from sonda.record.errors import SondaError
from sonda.record.plugins import RULES, call_entry, plugin_entries

BUILT_IN: tuple[Callable[[Summary], Verdict | None], ...] = (
    input.rule, busy_line.rule, waiting.rule, communication.rule, transfer.rule, host.rule, compute.rule, memory.rule,
    overhead.rule, cores.own, ceilings.rule, topdown.rule, stalls.rule, counted_flops.rule, retracing.rule, none.rule,
)  # fmt: skip
CAUSES: tuple[Callable[[Summary], Verdict | None], ...] = (
    waiting.at_lines, waiting.for_threads, garbage_collection.rule, logging.rule, copied_data.rule,
    allocation.at_lines, metrics.rule,
    per_sample_python.rule, input.by_hand,
    synchronisation.rule, slow_products.rule, single_thread.rule,
    unused_gradients.rule, repeated_forward.rule, tiny_operations.rule, micro_batch.rule, optimizer.rule,
    imbalance.rule, double_precision.rule, dominating_layer.rule, memory_bound.rule, copies.rule, memory_format.rule,
    validation.rule, checkpointing.rule, allocation.rule, denormals.rule, recompilation.rule, graph_breaks.rule,
)  # fmt: skip
"""What a program does and need not do; the share of such a verdict is what is saved without it."""
LIMITS = frozenset({"compute", "memory", "overhead"}) | UNNAMED
"""Kinds that say what limits the work as it is: a cause that can be removed comes before them."""
CROWDED = 0.2
"""Part of the time that threads wait for each other's cores, from which on that is said before all else; so it is at
less where the program has asked for more threads than there are cores."""
HALF = 0.5
"""A GPU waits for its program because of a cause that takes half of that time or more."""
NO_CAUSES = frozenset({"good", "noisy"})
"""Kinds that name nothing which takes time."""
STARTING = frozenset({stages.START, stages.IMPORTS, stages.COMPILE})
"""Stages that take as long however long the program runs: what every step does comes before them."""
NO_FUNCTIONS: Mapping[str, str] = MappingProxyType({})
BY_DEVICE_LINES = frozenset({"synchronisation", "transfer", "allocation"})
BY_OPERATIONS = frozenset({"denormals", "memory_bound", "memory_format", "copies", "allocation", "double_precision",
                           "tiny_operations"})  # fmt: skip
"""Causes that counted operations show."""
LONGEST = 40
"""Lines of a function of usual length."""
BY_SAMPLES = frozenset({"copies", "metrics", "waiting", "code", "per_sample_python"})
OF_PROGRAM = {"validate": "validation", "test": "validation", "checkpoints": "checkpointing"}
"""Stages of the program that are causes where they come too often."""
SAID_BY = {
    "overhead": {"tiny_operations", "micro_batch"},
    "memory": {"memory_bound"},
    "host": {"synchronisation", "tiny_operations", "micro_batch", "allocation", "transfer", "optimizer"},
}
"""Limits that a cause says more exactly."""


def verdicts(summary: Summary) -> tuple[tuple[Verdict, ...], tuple[Finding, ...]]:
    """What limits the run, the largest share first, never empty; and a warning for every rule that failed.

    Where other programs held the cores for more of the step than any cause takes, nothing else is said: every time is
    theirs as much as the program's. Where the steps are a minor part of the program, that comes first; where it is
    the start that takes longer, it comes last. A remedy is offered once, by the first verdict that has it.
    """
    crowded = cores.others(summary)
    whole = whole_program.rule(summary)
    outside = between.rule(summary)
    if crowded is None and whole is not None and work.first_part(summary) is None:
        return ((outside, whole) if outside is not None else (whole,)), ()
    spoken, failures = _of_a_step(summary)
    if crowded is not None:
        causes = [verdict for verdict in spoken if verdict.kind not in LIMITS | NO_CAUSES]
        if crowded.share >= max((cause.share for cause in causes), default=0.0):
            return (crowded,), ()
        spoken = sorted([*causes, crowded], key=_rank)
    if outside is not None:
        spoken = _put_in(spoken, outside, between.share_of_steps(summary))
        if whole is not None and whole.kind == stages.BETWEEN:
            whole = None
    if whole is not None and OF_PROGRAM.get(whole.kind) in {verdict.kind for verdict in spoken}:
        whole = None
    offered: set[Remedy] = set()
    functions = {line: name for step in summary.workload.evidence or () for line, name in step.functions.items()}
    ordered = []
    every = spoken
    if whole is not None:
        behind = whole.kind in STARTING and spoken[0].kind not in UNNAMED
        every = [*spoken, whole] if behind else [whole, *spoken]
    for verdict in every:
        fresh = tuple(remedy for remedy in verdict.remedies if remedy not in offered)
        offered.update(fresh)
        ordered.append(replace(verdict, remedies=fresh, place=verdict.place or _place(verdict.finding, functions)))
    return tuple(ordered), tuple(failures)


def _place(finding: Finding, functions: Mapping[str, str] = NO_FUNCTIONS) -> CausePlace | None:
    """The place that a finding speaks of, where it does; `functions` are those around known lines."""
    place = getattr(finding, "place", None)
    if not isinstance(place, StepPlace) or not (place.layer or place.line):
        return None
    file, _, line = place.line.rpartition(":")
    function = functions.get(place.line, "")
    return CausePlace(file=file, line=int(line) if line.isdigit() else 0, function=function, layer=place.layer)


def _of_a_step(summary: Summary) -> tuple[list[Verdict], list[Finding]]:
    """What all rules say of a step, the largest share first; of one that is hardly known that, and what is known
    without it."""
    noisy = noise.rule(summary)
    if noisy is not None:
        # Steps that trace differ from others, and so do steps that wait for input or for their own threads. What was
        # counted or sampled is known of all steps together. So all these are known without a median.
        rules = (retracing.rule, input.uneven, cores.own, busy_line.rule, *CAUSES)
        known = _keep_one([verdict for rule in rules if (verdict := rule(summary)) is not None])
        return [*sorted(known, key=_rank), noisy], []
    causes = _keep_one([verdict for rule in CAUSES if (verdict := rule(summary)) is not None])
    needless = [cause for cause in causes if not _is_default(cause)]
    fine = good.rule(summary) if not needless else None
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
    ordered = _order(causes, _without_repetitions(spoken))
    # Something that takes more than a tenth of the step for nothing, as waiting does, is not good.
    if fine is not None:
        others = [verdict for verdict in ordered if not good.is_network(summary, verdict)]
        if all(verdict.kind in LIMITS or verdict in causes for verdict in others):
            ordered = [fine, *(verdict for verdict in others if verdict.kind not in UNNAMED)]
    return ordered, failures


def _is_default(verdict: Verdict) -> bool:
    """Whether a cause is a choice of the framework's that costs some, and that the program left as it is."""
    return isinstance(verdict.finding, ChannelsFirst) and not verdict.finding.crawls


def _rank(verdict: Verdict) -> tuple[bool, float]:
    """What the program does comes before a layout that it leaves as it is, then the largest share first."""
    return _is_default(verdict), -verdict.share


def _put_in(spoken: list[Verdict], outside: Verdict, steps: float) -> list[Verdict]:
    """These verdicts with that on the time between steps, which take this part of all; the largest share of all first.

    What limits the work as it is, and what is good, is said of steps that are most of the time.
    """
    last = LIMITS | NO_CAUSES if outside.share > steps else NO_CAUSES | UNNAMED
    ahead = [verdict for verdict in spoken if verdict.kind not in last and verdict.share * steps >= outside.share]
    return [*ahead, outside, *(verdict for verdict in spoken if verdict not in ahead)]


def _keep_one(causes: list[Verdict]) -> list[Verdict]:
    """One verdict for each cause that several rules have seen: the one that knows the place, or the larger share."""
    best: dict[str, Verdict] = {}
    for cause in sorted(causes, key=lambda cause: (cause.place is None, -cause.share)):
        best.setdefault(cause.kind, cause)
    return [cause for cause in causes if cause is best[cause.kind]]


def _without_repetitions(spoken: list[Verdict]) -> list[Verdict]:
    """Without what samples say of a line that is known to speak with a GPU: that says more exactly what it does."""
    exact = {
        (verdict.place.file.rpartition("/")[2], verdict.place.function or verdict.place.line)
        for verdict in spoken if verdict.kind in BY_DEVICE_LINES and verdict.place is not None
    }  # fmt: skip
    return [
        verdict for verdict in spoken
        if verdict.kind not in BY_SAMPLES or verdict.place is None
        or (verdict.place.file.rpartition("/")[2], verdict.place.function or verdict.place.line) not in exact
    ]  # fmt: skip


def _without_known_code(causes: list[Verdict], spoken: list[Verdict]) -> list[Verdict]:
    """Without what is said of code for an unknown purpose where a cause names an operation of the same lines; so it is
    with code that prepares input, in a line of which the operation is all, or takes half."""
    kept = []
    for verdict in spoken:
        known = [
            cause for cause in causes
            if cause.kind in BY_OPERATIONS and verdict.place is not None
            and (place := cause.place or _place(cause.finding)) is not None and _is_near(place, verdict.place)
        ]  # fmt: skip
        exact = [
            cause for cause in known if cause.kind != "tiny_operations"
            and (cause.share >= HALF * verdict.share or (verdict.place is not None and verdict.place.text))
        ]  # fmt: skip
        if not (known if verdict.kind == "code" else exact and isinstance(verdict.finding, PreparesInput)):
            kept.append(verdict)
    return kept


def _is_near(place: CausePlace, code: CausePlace) -> bool:
    """Whether a place lies at a line of code or, where that is the begin of a function, behind it."""
    same = place.file.rpartition("/")[2] == code.file.rpartition("/")[2]
    return same and (place.line == code.line or (not code.text and 0 <= place.line - code.line < LONGEST))


def _order(causes: list[Verdict], spoken: list[Verdict]) -> list[Verdict]:
    """The largest share first; where there are causes, limits of the work as it is stand behind all others, without
    those that a cause says more exactly."""
    kinds = {cause.kind for cause in causes}
    host = max((verdict.share for verdict in spoken if verdict.kind == "host"), default=0.0)
    largest = max((cause.share for cause in causes), default=0.0)
    limits = LIMITS | {"host"} if largest >= HALF * host else LIMITS
    spoken = _without_known_code(causes, spoken)
    left = [verdict for verdict in spoken if verdict in causes or not SAID_BY.get(verdict.kind, set()) & kinds]
    # Where threads wait for each other, every time is longer than it would be without. Other processes of the program
    # do work that a step may wait for: their part is one cause among others.
    first = [verdict for verdict in left if isinstance(verdict.finding, Oversubscribed)
             and not verdict.finding.processes and (verdict.finding.chosen or verdict.share >= CROWDED)]  # fmt: skip
    return sorted(left, key=lambda verdict: (
        verdict not in first, bool(causes) and verdict.kind in limits, *_rank(verdict),
    ))  # fmt: skip
