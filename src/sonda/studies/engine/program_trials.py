"""Tries remedies on an unmodified program, from outside: `sonda run --try train.py`.

After the program has run once, a process surveys what it asks of PyTorch. The remedies that can change something take
turns with the program as it is, a few steps each, in processes of their own. What helped becomes a patch.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any

import msgspec

from sonda.analysis.trials import summarise_trials
from sonda.record.progress import Say
from sonda.record.trials import RemedyTrial, SourcePatch, TrialProcess, Trials, UntriedRemedy
from sonda.targets.instrument import AGAIN, Contribution, EndedRun, Instrument, Observation
from sonda.targets.program.source_patch import concerns_loader, make_patch, patched_sources
from sonda.targets.program.trial import LEAST_BLOCKS, TOO_LONG, TrialOutcome, TrialPlan, run_patched, run_trial
from sonda.targets.target import available_threads

SECONDS = 300.0
"""For all tries together, unless the user says otherwise."""
ROUNDS, MOST_ROUNDS = 3, 5
FREEDOM = 6
"""Remedies times rounds but one: fewer remedies get more rounds, so that their noise is known."""
WARMUP = 3
TIMED_S = 1.5
"""Timed steps of a process take about so long."""
LEAST_STEPS, MOST_STEPS = 6, 60
SHORT_STEP_S = 0.02
"""Operations of a shorter step may be too small for several threads."""
MOST_WORKERS = 8
PATCHES = 2
"""Processes for which time is set aside, to run the program with its patches."""
COMPILING_S = 60.0
"""What compiling may take; about."""
NO_TIME = "no time is left for it: give more by --seconds"
INTERRUPTED = "interrupted"
EAGER = ("workers", "threads", "batch", "fused", "foreach", "tf32", "autocast", "channels_last", "pin", "compile")
"""All remedies; what is likely to bring most, or costs least to try, first."""


@dataclass(frozen=True)
class Candidate:
    """A remedy that could change something in this program."""

    name: str
    value: int | None = None


@dataclass
class ProgramTrials(Instrument):
    """Tries remedies once the program has run. `command` is the program, `seconds` the time for all tries together."""

    command: Sequence[str]
    seconds: float = SECONDS
    needs = frozenset({AGAIN})

    def collect(self, ended_run: EndedRun) -> Contribution:
        plan, observation = ended_run.plan, ended_run.observation
        refused = refuse_program(observation)
        if refused:
            trials = Trials(refused=refused)
        else:
            steps = int(observation.spans.where(kind="step").sum())
            optimizes = bool(observation.spans.where(kind="phase", name="optimizer").any())
            trials = _Experiment(self.command, self.seconds, plan.say, plan.directory).carry_out(steps, optimizes)
        return Contribution(target={"trials": msgspec.to_builtins(trials)})


def refuse_program(observation: Observation) -> str:
    """Why nothing can be tried on a program that was observed; '' where something can."""
    target: Any = observation.target
    if observation.exit_code:
        return "the program failed as it is"
    if observation.assembly is None or (observation.workload.framework or "torch") != "torch":
        return "remedies are tried on programs of PyTorch only"
    if (target.processes or 1) > 1 or int(os.environ.get("WORLD_SIZE") or 1) > 1:
        return "several of its processes compute: ranks wait for each other, and a try would end one of them"
    if not observation.spans.where(kind="step").any():
        return "no step was seen"
    return ""


def choose_candidates(
    survey: dict[str, Any], step_s: float, cores: int, flags: str, compiler: bool
) -> tuple[list[Candidate], list[UntriedRemedy]]:
    """What makes sense to try, and why the rest does not.

    `flags` are the processor's, in words; `compiler` says whether there is one of C++.
    """
    loaders, optimizers, models = survey["loaders"], survey["optimizers"], survey["models"]
    cuda, workers = survey["cuda"], min(MOST_WORKERS, cores)
    reasons: dict[str, str] = {}
    values: dict[str, int] = {}

    def judge(name: str, *objections: tuple[bool, str]) -> None:
        reasons[name] = next((reason for holds, reason in objections if holds), "")

    no_loader = (not loaders, "no DataLoader")
    no_gpu = (not cuda, "no GPU")
    no_model = (not models, "no module is called as a whole")
    values |= {"threads": cores if survey["threads"] < cores else 1, "workers": workers, "batch": 2}
    judge(
        "threads",
        (cores == 1, "one core"),
        (cuda and survey["threads"] >= cores, "a GPU computes"),
        (survey["threads"] > cores, "more threads than cores"),
        (survey["threads"] == cores and step_s > SHORT_STEP_S, "it uses all cores"),
    )
    judge("workers", no_loader, (cores == 1 and not cuda, "one core"),
          (not any(concerns_loader("workers", workers, one) for one in loaders), "it has enough"))  # fmt: skip
    judge("pin", no_gpu, no_loader, (all(one["pin"] for one in loaders), "it pins already"))
    judge("batch", no_loader,
          (not any(concerns_loader("batch", 2, one) for one in loaders),
           "no loader with a batch size and data for larger batches"))  # fmt: skip
    fusible = [one for one in optimizers if one["can_fuse"]]
    judge("fused", (not optimizers, "no optimizer of torch.optim"), (not fusible, "its optimizer cannot"),
          (all(one["fused"] for one in fusible), "it is fused already"))  # fmt: skip
    judge("foreach", (bool(fusible), "fused is tried in its place"), (cuda, "a GPU's optimizer does so already"),
          (not any(one["can_foreach"] and not one["foreach"] for one in optimizers), "none that can"))  # fmt: skip
    judge("tf32", no_gpu, (not survey["tensor_cores"], "the GPU has no TF32"),
          (survey["matmul"] != "highest", "it is on already"))  # fmt: skip
    short = any(word in flags.split() for word in ("amx_bf16", "avx512_bf16"))
    judge("autocast", no_model, (survey["autocast"], "it is on already"),
          (any(one["bits"] != 32 for one in models), "the model is not in float32"),
          (not cuda and not short, "the processor has no bfloat16"))  # fmt: skip
    judge("channels_last", no_model, (not any(one["images"] for one in models), "no convolution"),
          (any(one["channels_last"] for one in models), "it is on already"))  # fmt: skip
    judge("compile", no_model, (survey["compiles"], "it compiles already"),
          (not cuda and not compiler, "there is no compiler of C++"))  # fmt: skip
    chosen = [Candidate(name, values.get(name)) for name in EAGER if not reasons[name]]
    return chosen, [UntriedRemedy(name=name, reason=reasons[name]) for name in EAGER if reasons[name]]


@dataclass
class _Experiment:
    """All tries on one program."""

    command: Sequence[str]
    seconds: float
    say: Say
    directory: Path
    begin: float = field(default_factory=monotonic)

    @property
    def left(self) -> float:
        """s."""
        return self.seconds - (monotonic() - self.begin)

    def carry_out(self, steps: int, optimizes: bool) -> Trials:
        """Survey, choose, take turns, make patches."""
        self.say("trying remedies: what the program asks of PyTorch")
        first = TrialPlan(WARMUP, min(LEAST_STEPS, max(LEAST_BLOCKS, steps - WARMUP)), optimizes)
        try:
            survey = run_trial(self.command, first, limit=max(1.0, self.left))
        except KeyboardInterrupt:
            return self._refuse(INTERRUPTED)
        if survey.process is None:
            return self._refuse(_explain(survey))
        step_s = median(survey.process.ns) * 1e-9
        most = survey.seen - WARMUP if survey.refused else max(LEAST_BLOCKS, steps - WARMUP - 1)
        timed = max(LEAST_BLOCKS, min(most, MOST_STEPS, max(LEAST_STEPS, round(TIMED_S / step_s))))
        plan = TrialPlan(WARMUP, timed, optimizes)
        candidates, untried = choose_candidates(
            survey.survey, step_s, available_threads(), _processor_flags(), shutil.which("g++") is not None
        )
        each = survey.starting_s + 1.0 + 1.2 * step_s * (WARMUP + timed)
        candidates, late = self._fit(candidates, each)
        untried += late
        trials = self._take_turns(candidates, plan, each)
        trials = msgspec.structs.replace(trials, untried=untried, warmup=WARMUP, steps=timed)
        trials = self._with_patches(trials, survey.survey, plan)
        return msgspec.structs.replace(trials, seconds=round(monotonic() - self.begin, 1))

    def _refuse(self, reason: str) -> Trials:
        return Trials(refused=reason, seconds=round(monotonic() - self.begin, 1))

    def _fit(self, candidates: list[Candidate], each: float) -> tuple[list[Candidate], list[UntriedRemedy]]:
        """As many candidates as there is time for, and the others."""
        kept: list[Candidate] = []
        late: list[UntriedRemedy] = []
        needed = (ROUNDS + PATCHES) * each
        for candidate in candidates:
            cost = ROUNDS * each + (COMPILING_S if candidate.name == "compile" else 0.0)
            if needed + cost <= self.left:
                kept.append(candidate)
                needed += cost
            else:
                late.append(UntriedRemedy(name=candidate.name, reason=NO_TIME))
        return kept, late

    def _take_turns(self, candidates: list[Candidate], plan: TrialPlan, each: float) -> Trials:
        """Rounds in which the bare program and every remedy run once, in an order that is drawn anew."""
        bare: list[TrialProcess] = []
        measured: dict[Candidate, list[TrialProcess]] = {candidate: [] for candidate in candidates}
        failures: dict[Candidate, str] = {}
        rounds = min(MOST_ROUNDS, max(ROUNDS, 1 + -(-FREEDOM // max(1, len(candidates)))))
        try:
            for number in range(rounds if candidates else 0):
                turns: list[Candidate | None] = [None, *(one for one in candidates if one not in failures)]
                if len(turns) == 1 or (number >= ROUNDS and len(turns) * each > self.left):
                    break
                random.Random(number).shuffle(turns)
                outcomes = {}
                for turn in turns:
                    name = f"trying {turn.name}" if turn else "the program as it is"
                    self.say(f"{name} ({number + 1} of {rounds}; {max(0.0, self.left):.0f} s left)")
                    if self.left <= 1:
                        break
                    outcome = run_trial(
                        self.command, plan, turn.name if turn else "", turn.value if turn else None, self.left
                    )
                    outcomes[turn] = outcome
                    if turn is not None and (outcome.process is None or not outcome.applied):
                        failures[turn] = _explain(outcome) if outcome.process is None else "it changes nothing here"
                    elif turn is None and outcome.process is None:
                        break
                processes = {turn: outcome.process for turn, outcome in outcomes.items()}
                if processes.get(None) is None or any(
                    processes.get(turn) is None for turn in turns if turn is not None and turn not in failures
                ):
                    break  # a round that is not complete does not count
                for turn, process in processes.items():
                    if process is not None and turn not in failures:
                        (measured[turn] if turn is not None else bare).append(process)
        except KeyboardInterrupt:
            pass
        return Trials(
            bare=bare,
            remedies=[
                RemedyTrial(name=one.name, value=one.value, processes=of if one not in failures else [],
                            failure=failures.get(one, "" if bare else NO_TIME))
                for one, of in measured.items()
            ],
        )  # fmt: skip

    def _with_patches(self, trials: Trials, survey: dict[str, Any], plan: TrialPlan) -> Trials:
        """Patches of the remedies that helped, each run once where there is time; files in the run's directory."""
        helped = {(one.name, one.value) for one in summarise_trials(trials).remedies if one.helps}
        remedies = []
        for remedy in trials.remedies:
            if (remedy.name, remedy.value) in helped:
                remedy = msgspec.structs.replace(remedy, patch=self._patch(remedy, survey, plan))
            remedies.append(remedy)
        return msgspec.structs.replace(trials, remedies=remedies)

    def _patch(self, remedy: RemedyTrial, survey: dict[str, Any], plan: TrialPlan) -> SourcePatch:
        patch = make_patch(remedy.name, remedy.value, survey, Path.cwd().resolve())
        if not patch.text:
            return patch
        file = f"{remedy.name}.patch"
        runs = None
        try:
            if self.left > 1:
                self.say(f"trying the patch of {remedy.name}")
                sources = patched_sources(remedy.name, remedy.value, survey)
                outcome = run_patched(self.command, sources, plan, self.left)
                late = outcome is not None and outcome.failure == TOO_LONG
                runs = None if outcome is None or late else outcome.process is not None
        except KeyboardInterrupt:
            pass
        if runs is False:
            return msgspec.structs.replace(patch, text="", runs=False)
        (self.directory / file).write_text(patch.text, encoding="utf-8")
        return msgspec.structs.replace(patch, file=file, runs=runs)


def _explain(outcome: TrialOutcome) -> str:
    """Why a process was not measured."""
    if outcome.refused:
        return f"{outcome.refused} {f'after {outcome.seen} steps' if outcome.seen else 'before its first step'}"
    return outcome.failure


def _processor_flags() -> str:
    """The processor's features, as Linux lists them; '' where it does not."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2] for line in lines if line.startswith(("flags", "Features"))), "")
