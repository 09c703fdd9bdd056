"""What limits the steps of an imported profile, with the thresholds of the other rules."""

from __future__ import annotations

from dataclasses import replace

from sonda.analysis.rules.code.input import ALWAYS
from sonda.analysis.rules.work import WORTH
from sonda.analysis.summary import Remedy, Value, Verdict
from sonda.analysis.traces.findings import (
    FunctionTraceCount,
    LargestPart,
    LongCompiling,
    LongHost,
    LongIdle,
    LongOperations,
    LongPart,
    OfRank,
    TraceRemedy,
)
from sonda.analysis.traces.profile import ProfileSummary, StepTimes
from sonda.analysis.traces.step_breakdown import PARTS
from sonda.record.conventions.profile_names import GET_NEXT, communicates

PREFETCH = Remedy(TraceRemedy("prefetch"))
SAME_SHAPES = Remedy(TraceRemedy("same shapes"))
LESS_OFTEN = Remedy(TraceRemedy("communicate less"))
STAY = Remedy(TraceRemedy("copy less"))
LATER = Remedy(TraceRemedy("profile later"))
FEWER_CALLS = Remedy(TraceRemedy("fewer calls"))


def profile_verdicts(profile: ProfileSummary, devices: bool) -> list[Verdict]:
    """Verdicts about the steps that take longest in all, the largest share first; empty where there are none.

    With `devices`, what the device's timeline says stands before, and only input and compiling are added. Ranks wait
    for each other in their steps: of several, these two are of the one that spends most on them.
    """
    if not profile.steps or not profile.steps[0].total:
        return []
    steps = profile.steps[0]
    waiting, compiling = _worst(profile, "input"), _worst(profile, "compile")
    candidates = [(waiting, _input(waiting)), (compiling, _compile(profile, compiling))]
    if not devices:
        rules = (_communication, _transfer, _launch, _host, _idle)
        candidates += [(steps, _operations(profile, steps)), *((steps, rule(steps)) for rule in rules)]
    several = len({step.rank for step in profile.steps}) > 1
    verdicts = [_of_rank(verdict, of, several) for of, verdict in candidates if verdict is not None]
    verdicts.sort(key=lambda verdict: -verdict.share)
    if verdicts or devices:
        return verdicts
    largest = max(PARTS, key=steps.share)
    verdict = Verdict("none", LargestPart(largest, steps.share(largest)), _evidence(steps), (), steps.share(largest))
    return [_of_rank(verdict, steps, several)]


def _worst(profile: ProfileSummary, part: str) -> StepTimes:
    """Of the steps that take longest on each rank, those of the rank that spends the largest share on this part."""
    chief: dict[int, StepTimes] = {}
    for step in profile.steps:
        chief.setdefault(step.rank, step)
    return max(chief.values(), key=lambda step: step.share(part))


def _of_rank(verdict: Verdict, steps: StepTimes, several: bool) -> Verdict:
    return replace(verdict, finding=OfRank(verdict.finding, steps.rank)) if several else verdict


def _evidence(steps: StepTimes) -> dict[str, Value]:
    return {part: Value(steps.share(part), "1", "derived") for part in PARTS if steps.parts[part].value is not None}


def _largest(steps: StepTimes, part: str) -> bool:
    return steps.share(part) >= WORTH and steps.share(part) >= max(steps.share(name) for name in PARTS)


def _mean(steps: StepTimes, part: str) -> float:
    """ns a step."""
    return (steps.parts[part].value or 0.0) / len(steps.durations)


def _long_part(steps: StepTimes, part: str) -> LongPart:
    return LongPart(part, steps.share(part), _mean(steps, part))


def _input(steps: StepTimes) -> Verdict | None:
    share = steps.share("input")
    if share <= ALWAYS and not _largest(steps, "input"):
        return None
    return Verdict("input", _long_part(steps, "input"), _evidence(steps), (PREFETCH,), share)


def _compile(profile: ProfileSummary, steps: StepTimes) -> Verdict | None:
    share = steps.share("compile")
    if share < WORTH:
        return None
    again = {name: counts for name, counts in profile.traced.items() if counts[1] > 1}
    functions = tuple(
        FunctionTraceCount(name, traced, calls, profile.traced_on.get(name, ()))
        for name, (calls, traced) in (again or profile.traced).items()
    )
    remedy = SAME_SHAPES if again else LATER
    return Verdict("compile", LongCompiling(share, functions), _evidence(steps), (remedy,), share)


def _communication(steps: StepTimes) -> Verdict | None:
    share = steps.share("communication")
    if share < WORTH:
        return None
    return Verdict("communication", _long_part(steps, "communication"), _evidence(steps), (LESS_OFTEN,), share)


def _transfer(steps: StepTimes) -> Verdict | None:
    share = steps.share("transfer")
    if share < WORTH:
        return None
    return Verdict("transfer", _long_part(steps, "transfer"), _evidence(steps), (STAY,), share)


def _launch(steps: StepTimes) -> Verdict | None:
    if not _largest(steps, "launch"):
        return None
    return Verdict("overhead", _long_part(steps, "launch"), _evidence(steps), (FEWER_CALLS,), steps.share("launch"))


def _host(steps: StepTimes) -> Verdict | None:
    if not _largest(steps, "host"):
        return None
    finding = LongHost(steps.share("host"), _mean(steps, "host"), steps.share("operations"))
    return Verdict("overhead", finding, _evidence(steps), (FEWER_CALLS,), steps.share("host"))


def _operations(profile: ProfileSummary, steps: StepTimes) -> Verdict | None:
    if not _largest(steps, "operations"):
        return None
    longest: dict[str, int] = {}
    placed = any(operation.path for operation in profile.operations)
    for operation in profile.operations:
        of_model = bool(operation.path) == placed and not operation.name.startswith(GET_NEXT)
        of_model = of_model and not communicates(operation.name)
        if operation.place == "host" and of_model and not operation.in_pipeline:
            longest[operation.name] = longest.get(operation.name, 0) + operation.in_steps
    name, time = max(longest.items(), key=lambda item: item[1])
    share, of_operations = steps.share("operations"), time / max(sum(longest.values()), 1)
    finding = LongOperations(share, _mean(steps, "operations"), name, of_operations)
    return Verdict("compute", finding, _evidence(steps), (), share)


def _idle(steps: StepTimes) -> Verdict | None:
    if not _largest(steps, "idle"):
        return None
    return Verdict("overhead", LongIdle(steps.share("idle")), _evidence(steps), (), steps.share("idle"))
