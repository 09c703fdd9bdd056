"""Several devices that train together: `ddp=`, `hybrid=`, `localsgd=`, `pipeline=`, `dp=`; TensorFlow's strategies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from typing import Any

import msgspec
import numpy as np

from sonda.frameworks.reconstruction.assembly import assemble
from sonda.probes.ceilings.processor import load_or_measure
from sonda.probes.machine.contamination import ContaminationWatch, MachineConditions
from sonda.record.nodes import NodePart, merge_nodes
from sonda.record.progress import Lasting, Say
from sonda.record.run import Run, write_run
from sonda.record.spans import Spans
from sonda.record.store import Store
from sonda.record.target import RanksTarget
from sonda.record.workload import Workload
from sonda.targets.adapters.registry import require_framework
from sonda.targets.applicability import drop_inapplicable
from sonda.targets.circumstances import describe_gpus, gpu_identities, observed_circumstances
from sonda.targets.instrument import (
    AGAIN,
    AROUND,
    INSIDE,
    REPLAY,
    Command,
    Draft,
    Launcher,
    Observation,
    Rerun,
    RunPlan,
)
from sonda.targets.instruments.registry import instruments_for
from sonda.targets.job import Job, check_job
from sonda.targets.local.launcher import MEASURING_CEILINGS, WHOLE_TRAINING, describe_running
from sonda.targets.local.worker import REPLAY_VARIABLE
from sonda.targets.pipeline import RunLabels, make_run
from sonda.targets.profiles.kernels import with_kernels
from sonda.targets.ranks.agent import Agent, agent_command
from sonda.targets.ranks.elastic_agent import UNDER_VARIABLE
from sonda.targets.ranks.outcomes import AgentReport, RankOutcome
from sonda.targets.ranks.plan import describe_crowding, describe_plan, make_plan
from sonda.targets.ranks.strategy_plan import make_strategy_plan
from sonda.targets.target import (
    STRATEGIES,
    available_threads,
    describe_slow_devices,
    parse_target,
    without_meeting_place,
)
from sonda.targets.training.supervisor import SupervisedTraining
from sonda.workloads.catalogue import describe

LATE_S = 3600.0
"""s that a rank which is run once more waits for the others."""


def measure_ranks(job: Job, store: Store, labels: RunLabels | None = None, say: Say = lambda text: None) -> Run:
    """Train on several devices and keep what all ranks saw as one run; with several nodes the first keeps it.

    Raises SondaError when it cannot be done, and KeptElsewhereError where another node keeps the run.
    """
    launcher = RanksLauncher(job)
    return make_run(launcher, instruments_for(job.probe, launcher), store, labels, say)


class RanksLauncher(Launcher):
    """Trains a job on several devices, a process for each. Raises SondaError for what cannot be trained so."""

    kind = "ranks"

    def __init__(self, job: Job) -> None:
        self.job, self.inapplicable_notes = drop_inapplicable(check_job(job))
        self.spec = parse_target(self.job.on)
        planned = make_strategy_plan if self.spec.mode in STRATEGIES else make_plan
        self.ranks = planned(self.job, self.spec)
        require_framework(self.job.framework)
        if ":" not in self.job.workload:  # a file of the user's is read by the ranks
            describe(self.job.workload, self.job.options)
        self.threads = max(1, sum(self.ranks.threads))
        self.agent: Agent | None = None
        self.report = AgentReport()
        self.offers = frozenset({AROUND, INSIDE, AGAIN, REPLAY})
        if self.ranks.backend == "nccl" and self.ranks.ranks > 1:
            # A kernel of nccl waits for those of other ranks. Replaying it would wait for launches that never come.
            self.where, self.offers = " whose GPUs exchange by nccl", self.offers - {REPLAY}
        if self.ranks.nodes > 1 or self.spec.mode in STRATEGIES:
            # The agents of several nodes meet once; TensorFlow's processes do not mark a step for others.
            self.where = " on several nodes" if self.ranks.nodes > 1 else f" by {self.spec.mode}="
            self.offers = frozenset({AROUND, INSIDE})
        if self.job.epochs:
            self.where, self.offers = WHOLE_TRAINING, frozenset({AROUND, INSIDE})

    def plan(self, store: Store, directory: Path, say: Say) -> RunPlan:
        self.crowded = [sentence] if (sentence := describe_crowding(self.ranks, available_threads())) else []
        for sentence in self.crowded:
            say(Lasting(sentence))
        on_gpu = any(device.kind == "cuda" for device in self.spec.devices)
        return RunPlan(self.kind, store, directory, say, self.job, on_gpu=on_gpu)

    @contextmanager
    def around(self, plan: RunPlan) -> Iterator[None]:
        """Measure the machine's ceilings and prepare the data of a whole training; lock its checkpoints meanwhile."""
        self.training = SupervisedTraining.prepare(self.job, plan.store, plan.say)
        plan.say(MEASURING_CEILINGS)
        load_or_measure(plan.store.root, [self.threads])
        plan.say(describe_running(self.job))
        with self.training.lock_checkpoints(plan.directory, plan.say, self.ranks.nodes):
            yield

    def launch(self, plan: RunPlan, environment: Mapping[str, str]) -> None:
        self.agent = Agent(self.training.job, self.ranks, plan.directory, plan.say, environment, plan.processes.add)
        with ContaminationWatch() as watch:
            self.begin = perf_counter_ns()
            self.report, self.forecast = self.training.run_with_restarts(self.agent.run, plan.directory, plan.say)
            self.end = perf_counter_ns()
        self.before, self.after = watch.before, _add_agent_time(watch.after, self.report)

    def observe(self, plan: RunPlan) -> Observation:
        job, training, forecast = self.job, self.training, self.forecast
        assembly = assemble(plan.directory, self.begin, self.end)
        kernels = with_kernels(assembly, plan.directory, self.begin)
        trained = [rank for rank in self.report.ranks if not rank.left_out] or self.report.ranks
        spans = _assign_unranked(training.add_walks(kernels.spans, plan.directory, self.begin), trained)
        # Kernels of ranks are recorded only where their counts are asked for.
        kernel_notes = kernels.notes if assembly.kernels or assembly.no_kernels else []
        return Observation(
            spans,
            workload=Workload.of(
                {**trained[0].workload, "framework": job.framework, **job.settings_record(), **training.describe()}
            ),
            target=RanksTarget.of(
                spec=without_meeting_place(job.on),
                device="cuda" if any(rank.device.startswith("cuda") for rank in trained) else "cpu",
                threads=self.threads,
                **describe_plan(self.ranks),
                ranks=[_describe_rank(rank) for rank in self.report.ranks],
                **({"outlook": forecast.numbers} if forecast else {}),
                **describe_gpus(assembly),
            ),
            circumstances=observed_circumstances(
                assembly, self.threads, plan.store.root, self.before, self.after, job.redact
            ),
            begin=self.begin,
            end=self.end,
            assembly=assembly,
            used=tuple(devices_used(trained)),
            identities=gpu_identities(assembly),
            notes=[
                *self.inapplicable_notes, *self.crowded, *describe_slow_devices(self.spec.devices),
                *(forecast.sentences if forecast else []), *kernel_notes, *training.notes(),
            ],
        )  # fmt: skip

    def again(self, plan: RunPlan, rerun: Rerun) -> Command:
        changes = {"warmup": rerun.warmup, "steps": rerun.steps}
        job = msgspec.structs.replace(self.job, probe="", **{name: value for name, value in changes.items() if value})
        threads = self.ranks.threads
        if rerun.threads:
            threads = tuple(count and (device.threads or rerun.threads)
                            for count, device in zip(threads, self.spec.devices, strict=True))  # fmt: skip
        # Under an emulator ranks come late. The instrument that runs them again has a time limit of its own.
        ranks = msgspec.structs.replace(self.ranks, threads=threads, timeout=max(LATE_S, self.ranks.timeout))
        shares = tuple(rank.samples[-1] for rank in self.report.ranks if rank.samples)
        if ranks.moving and len(shares) == ranks.ranks:
            # Shares must not change because a tool slows some ranks down.
            ranks = msgspec.structs.replace(ranks, shares=shares, moving=False, auto=False)
        variables = {**({UNDER_VARIABLE: msgspec.json.encode(rerun.under).decode()} if rerun.under else {}),
                     **({REPLAY_VARIABLE: "1"} if rerun.replay else {})}  # fmt: skip
        return Command(job.workload, tuple(agent_command(job, ranks, rerun.directory)), environment=variables)

    def keep(self, plan: RunPlan, draft: Draft) -> Run:
        """Write the run. Of several nodes the first writes that of all; the others raise KeptElsewhereError."""
        agent, training, store = self.agent, self.training, plan.store
        assert agent is not None
        own_part = NodePart(agent.node, draft.info, draft.spans, draft.samples)
        if len(agent.nodes) > 1 and not agent.first:
            elsewhere = agent.deliver_part(
                write_run(plan.directory / "nodes", own_part.info, own_part.spans, own_part.samples)
            )
            training.discard_checkpoints()
            raise elsewhere

        def keep() -> Run:
            others, lost = agent.gather_parts()
            whole = merge_nodes([own_part, *others], lost, agent.same)
            return write_run(store.root, whole.info, whole.spans, whole.samples, files=training.files())

        if len(agent.nodes) == 1:
            run = write_run(store.root, own_part.info, own_part.spans, own_part.samples, files=training.files())
        else:
            run = agent.publish(keep)
        training.discard_checkpoints()
        return run

    def close(self) -> None:
        if self.agent is not None:
            self.agent.close()


def _add_agent_time(conditions: MachineConditions, report: AgentReport) -> MachineConditions:
    """The conditions with the processor time of the ranks: the kernel does not count it yet while their agent runs."""
    return replace(conditions, cpu_time=conditions.cpu_time + report.cpu_s)


def devices_used(ranks: Sequence[RankOutcome]) -> list[str]:
    """The devices that these ranks trained on: the processor, which serves every GPU, and the GPUs."""
    devices = [device for rank in ranks for device in rank.about.devices or [rank.device]]
    return ["cpu", *sorted({device for device in devices if device.startswith("cuda")})]


def _assign_unranked(spans: Spans, ranks: Sequence[RankOutcome]) -> Spans:
    """The spans, where those of no rank, such as the whole run, get the lowest rank among `ranks`."""
    rank = spans.number("rank")
    numbers = [outcome.rank for outcome in ranks]
    rank[~np.isin(rank, numbers)] = min(numbers)
    return spans


def _describe_rank(rank: RankOutcome) -> dict[str, Any]:
    """A rank for `run.json`: medians over its timed steps, and the shares it had."""
    record: dict[str, Any] = {"rank": rank.rank, "device": rank.device, "threads": rank.threads}
    if rank.left_out:
        return {**record, "left_out": True}
    if rank.samples:
        record |= {"samples": rank.samples[-1], "shares": rank.changes}
    if rank.worked_ns:
        record |= {"worked_ns": median(rank.worked_ns), "waited_ns": median(rank.waited_ns)}
    return {**record, **msgspec.to_builtins(rank.about)}
