"""What limits the steps of an imported profile, in the words and with the thresholds of the other rules."""

from __future__ import annotations

from dataclasses import replace

from sonda.analysis import wording
from sonda.analysis.findings import Remark
from sonda.analysis.rules.input import ALWAYS
from sonda.analysis.rules.work import WORTH
from sonda.analysis.summary import Remedy, Value, Verdict
from sonda.analysis.traces.profile import ProfileSummary, StepTimes
from sonda.analysis.traces.step_breakdown import PARTS
from sonda.record.conventions.profile_names import GET_NEXT, communicates

PREFETCH = Remedy(
    Remark("prefetch, map with num_parallel_calls, or cache the data set: what is loaded ahead is not waited for")
)
SAME_SHAPES = Remedy(
    Remark("call it with the same shapes and types, and with tensors instead of Python numbers: then it is traced once")
)
LESS_OFTEN = Remedy(Remark("larger batches: a step exchanges as much, and computes more"))
STAY = Remedy(Remark("keep tensors on one device, or copy the next batch while this one is computed"))
LATER = Remedy(Remark("begin the profile after the first steps"))
FEWER_CALLS = Remedy(
    Remark(
        "larger batches, one tf.function or jit around the whole step, or steps_per_execution in Keras: fewer calls "
        "for the same work"
    )
)


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
    sentence = f"Nothing takes most of the step: {largest} takes {wording.percent(steps.share(largest))}."
    return [_of_rank(Verdict("none", Remark(sentence), _evidence(steps), (), steps.share(largest)), steps, several)]


def _worst(profile: ProfileSummary, part: str) -> StepTimes:
    """Of the steps that take longest on each rank, those of the rank that spends the largest share on this part."""
    chief: dict[int, StepTimes] = {}
    for step in profile.steps:
        chief.setdefault(step.rank, step)
    return max(chief.values(), key=lambda step: step.share(part))


def _of_rank(verdict: Verdict, steps: StepTimes, several: bool) -> Verdict:
    if not several or not isinstance(verdict.finding, Remark):
        return verdict
    return replace(verdict, finding=Remark(f"{verdict.finding.text[:-1]} (rank {steps.rank})."))


def _evidence(steps: StepTimes) -> dict[str, Value]:
    return {part: Value(steps.share(part), "1", "derived") for part in PARTS if steps.parts[part].value is not None}


def _largest(steps: StepTimes, part: str) -> bool:
    return steps.share(part) >= WORTH and steps.share(part) >= max(steps.share(name) for name in PARTS)


def _mean(steps: StepTimes, part: str) -> str:
    return wording.duration((steps.parts[part].value or 0.0) / len(steps.durations))


def _input(steps: StepTimes) -> Verdict | None:
    share = steps.share("input")
    if share <= ALWAYS and not _largest(steps, "input"):
        return None
    sentence = f"Input-bound: waiting for data takes {wording.percent(share)} of the step ({_mean(steps, 'input')})."
    return Verdict("input", Remark(sentence), _evidence(steps), (PREFETCH,), share)


def _compile(profile: ProfileSummary, steps: StepTimes) -> Verdict | None:
    share = steps.share("compile")
    if share < WORTH:
        return None
    again = {name: counts for name, counts in profile.traced.items() if counts[1] > 1}
    named = again or profile.traced
    which = [
        f"{name} in {traced} of {wording.plural(calls, 'call')}{_ranks(profile.traced_on.get(name, ()))}"
        for name, (calls, traced) in named.items()
    ]
    whom = f": {wording.join(which[:3])}" if which else ""
    sentence = f"Compile-bound: tracing and compiling takes {wording.percent(share)} of the steps{whom}."
    return Verdict("compile", Remark(sentence), _evidence(steps), (SAME_SHAPES if again else LATER,), share)


def _ranks(ranks: tuple[int, ...]) -> str:
    words = f"{'ranks' if len(ranks) > 1 else 'rank'} {wording.join([str(rank) for rank in ranks])}"
    return f" on {words}" if ranks else ""


def _communication(steps: StepTimes) -> Verdict | None:
    share = steps.share("communication")
    if share < WORTH:
        return None
    sentence = (
        f"Communication-bound: exchanging with other ranks, or waiting for them, takes {wording.percent(share)} of the "
        f"step ({_mean(steps, 'communication')})."
    )
    return Verdict("communication", Remark(sentence), _evidence(steps), (LESS_OFTEN,), share)


def _transfer(steps: StepTimes) -> Verdict | None:
    share = steps.share("transfer")
    if share < WORTH:
        return None
    sentence = (
        f"Transfer-bound: copying between devices takes {wording.percent(share)} of the step "
        f"({_mean(steps, 'transfer')}), in which nothing is computed."
    )
    return Verdict("transfer", Remark(sentence), _evidence(steps), (STAY,), share)


def _launch(steps: StepTimes) -> Verdict | None:
    if not _largest(steps, "launch"):
        return None
    sentence = (
        f"Overhead-bound: launching work on a device takes {wording.percent(steps.share('launch'))} of the step "
        f"({_mean(steps, 'launch')}), in which no device works."
    )
    return Verdict("overhead", Remark(sentence), _evidence(steps), (FEWER_CALLS,), steps.share("launch"))


def _host(steps: StepTimes) -> Verdict | None:
    if not _largest(steps, "host"):
        return None
    sentence = (
        f"Overhead-bound: the framework's own work takes {wording.percent(steps.share('host'))} of the step "
        f"({_mean(steps, 'host')}), operations take {wording.percent(steps.share('operations'))}."
    )
    return Verdict("overhead", Remark(sentence), _evidence(steps), (FEWER_CALLS,), steps.share("host"))


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
    sentence = (
        f"Compute-bound on the host: operations take {wording.percent(steps.share('operations'))} of the step "
        f"({_mean(steps, 'operations')}), {wording.percent(time / max(sum(longest.values()), 1))} of it {name}."
    )
    return Verdict("compute", Remark(sentence), _evidence(steps), (), steps.share("operations"))


def _idle(steps: StepTimes) -> Verdict | None:
    if not _largest(steps, "idle"):
        return None
    sentence = (
        f"For {wording.percent(steps.share('idle'))} of the step nothing was recorded: Python between the calls, or "
        "what the profiler does not see."
    )
    return Verdict("overhead", Remark(sentence), _evidence(steps), (), steps.share("idle"))
