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
from sonda.targets.adapters.registry import require
from sonda.targets.applicability import applied
from sonda.targets.circumstances import gpus, identities, observed_circumstances
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
from sonda.targets.local.launcher import MEASURING, WHOLE_TRAINING, lasting
from sonda.targets.local.worker import REPLAYED
from sonda.targets.pipeline import Place, make_run
from sonda.targets.profiles.kernels import with_kernels
from sonda.targets.ranks.agent import Agent, agent_command
from sonda.targets.ranks.elastic_agent import UNDER
from sonda.targets.ranks.outcomes import RankOutcome, Report
from sonda.targets.ranks.plan import crowding, plan_of, record
from sonda.targets.ranks.strategy_plan import strategy_plan
from sonda.targets.target import STRATEGIES, anywhere, available_threads, parse_target, slowness
from sonda.targets.training.supervisor import Training
from sonda.workloads.catalogue import describe

LATE_S = 3600.0
"""s that a rank which is run once more waits for the others."""


def measure(job: Job, store: Store, place: Place | None = None, say: Say = lambda text: None) -> Run:
    """Train on several devices and keep what all ranks saw as one run, on several nodes that of the first.

    Raises SondaError when it cannot be done, and KeptElsewhereError where another node keeps the run.
    """
    launcher = RanksLauncher(job)
    return make_run(launcher, instruments_for(job.probe, launcher), store, place, say)


class RanksLauncher(Launcher):
    """Trains a job on several devices, a process for each. Raises SondaError for what cannot be trained so."""

    kind = "ranks"

    def __init__(self, job: Job) -> None:
        self.job, self.without = applied(check_job(job))
        self.spec = parse_target(self.job.on)
        planned = strategy_plan if self.spec.mode in STRATEGIES else plan_of
        self.ranks = planned(self.job, self.spec)
        require(self.job.framework)
        if ":" not in self.job.workload:  # a file of the user's is read by the ranks
            describe(self.job.workload, self.job.options)
        self.threads = max(1, sum(self.ranks.threads))
        self.agent: Agent | None = None
        self.report = Report()
        self.offers = frozenset({AROUND, INSIDE, AGAIN, REPLAY})
        if self.ranks.backend == "nccl" and self.ranks.ranks > 1:
            # One of its kernels waits for those of other ranks, which do not come as often as it is repeated.
            self.where, self.offers = " whose GPUs exchange by nccl", self.offers - {REPLAY}
        if self.ranks.nodes > 1 or self.spec.mode in STRATEGIES:
            # The agents of several nodes meet once; TensorFlow's processes do not mark a step for others.
            self.where = " on several nodes" if self.ranks.nodes > 1 else f" by {self.spec.mode}="
            self.offers = frozenset({AROUND, INSIDE})
        if self.job.epochs:
            self.where, self.offers = WHOLE_TRAINING, frozenset({AROUND, INSIDE})

    def plan(self, store: Store, directory: Path, say: Say) -> RunPlan:
        self.crowded = [sentence] if (sentence := crowding(self.ranks, available_threads())) else []
        for sentence in self.crowded:
            say(Lasting(sentence))
        on_gpu = any(device.kind == "cuda" for device in self.spec.devices)
        return RunPlan(self.kind, store, directory, say, self.job, on_gpu=on_gpu)

    @contextmanager
    def around(self, plan: RunPlan) -> Iterator[None]:
        """What the machine can do is measured first, and the data of a whole training made ready."""
        self.training = Training.of(self.job, plan.store, plan.say)
        plan.say(MEASURING)
        load_or_measure(plan.store.root, [self.threads])
        plan.say(lasting(self.job))
        with self.training.held(plan.directory, plan.say, self.ranks.nodes):
            yield

    def launch(self, plan: RunPlan, environment: Mapping[str, str]) -> None:
        self.agent = Agent(self.training.job, self.ranks, plan.directory, plan.say, environment)
        with ContaminationWatch() as watch:
            self.begin = perf_counter_ns()
            self.report, self.foreseen = self.training.run(self.agent.run, plan.directory, plan.say)
            self.end = perf_counter_ns()
        self.before, self.after = watch.before, _with_cpu(watch.after, self.report)

    def observe(self, plan: RunPlan) -> Observation:
        job, training, foreseen = self.job, self.training, self.foreseen
        assembly = assemble(plan.directory, self.begin, self.end)
        kernels = with_kernels(assembly, plan.directory, self.begin)
        trained = [rank for rank in self.report.ranks if not rank.left_out] or self.report.ranks
        spans = _of_ranks(training.added(kernels.spans, plan.directory, self.begin), trained)
        # Kernels of ranks are recorded only where their counts are asked for.
        kernel_notes = kernels.notes if assembly.kernels or assembly.no_kernels else []
        return Observation(
            spans,
            workload=Workload.of(
                {**trained[0].workload, "framework": job.framework, **job.how(), **training.about()}
            ),
            target=RanksTarget.of(
                spec=anywhere(job.on),
                device="cuda" if any(rank.device.startswith("cuda") for rank in trained) else "cpu",
                threads=self.threads,
                **record(self.ranks),
                ranks=[_kept(rank) for rank in self.report.ranks],
                **({"outlook": foreseen.numbers} if foreseen else {}),
                **gpus(assembly),
            ),
            circumstances=observed_circumstances(
                assembly, self.threads, plan.store.root, self.before, self.after, job.redact
            ),
            begin=self.begin,
            end=self.end,
            assembly=assembly,
            used=tuple(devices_used(trained)),
            identities=identities(assembly),
            notes=[
                *self.without, *self.crowded, *slowness(self.spec.devices), *(foreseen.sentences if foreseen else []),
                *kernel_notes, *training.notes(),
            ],
        )  # fmt: skip

    def again(self, plan: RunPlan, rerun: Rerun) -> Command:
        given = {"warmup": rerun.warmup, "steps": rerun.steps}
        job = msgspec.structs.replace(self.job, probe="", **{name: value for name, value in given.items() if value})
        threads = self.ranks.threads
        if rerun.threads:
            threads = tuple(own and (device.threads or rerun.threads)
                            for own, device in zip(threads, self.spec.devices, strict=True))  # fmt: skip
        # Under an emulator ranks come late; whoever runs them again ends them where they take too long.
        ranks = msgspec.structs.replace(self.ranks, threads=threads, timeout=max(LATE_S, self.ranks.timeout))
        shares = tuple(rank.samples[-1] for rank in self.report.ranks if rank.samples)
        if ranks.moving and len(shares) == ranks.ranks:
            # What a tool slows down must not change who does what.
            ranks = msgspec.structs.replace(ranks, shares=shares, moving=False, auto=False)
        variables = {**({UNDER: msgspec.json.encode(rerun.under).decode()} if rerun.under else {}),
                     **({REPLAYED: "1"} if rerun.replay else {})}  # fmt: skip
        return Command(job.workload, tuple(agent_command(job, ranks, rerun.directory)), environment=variables)

    def keep(self, plan: RunPlan, draft: Draft) -> Run:
        """Write the run; with several nodes, that of all, on the first. Raises KeptElsewhereError on the others."""
        agent, training, store = self.agent, self.training, plan.store
        assert agent is not None
        own = NodePart(agent.node, draft.info, draft.spans, draft.samples)
        if len(agent.nodes) > 1 and not agent.first:
            elsewhere = agent.deliver(write_run(plan.directory / "nodes", own.info, own.spans, own.samples))
            training.done()
            raise elsewhere

        def keep() -> Run:
            others, lost = agent.gather()
            whole = merge_nodes([own, *others], lost, agent.same)
            return write_run(store.root, whole.info, whole.spans, whole.samples, files=training.files())

        if len(agent.nodes) == 1:
            run = write_run(store.root, own.info, own.spans, own.samples, files=training.files())
        else:
            run = agent.told(keep)
        training.done()
        return run

    def close(self) -> None:
        if self.agent is not None:
            self.agent.close()


def _with_cpu(conditions: MachineConditions, report: Report) -> MachineConditions:
    """With the processor time of ranks whose agent still runs, which the system does not count as ours yet."""
    return replace(conditions, cpu_time=conditions.cpu_time + report.cpu_s)


def devices_used(ranks: Sequence[RankOutcome]) -> list[str]:
    """The devices that these ranks trained on: the processor, which serves every GPU, and the GPUs."""
    devices = [device for rank in ranks for device in rank.about.get("devices") or [rank.device]]
    return ["cpu", *sorted({device for device in devices if device.startswith("cuda")})]


def _of_ranks(spans: Spans, ranks: Sequence[RankOutcome]) -> Spans:
    """The spans; what is of no rank, as the whole run, counts as the first one's, which speaks for all of its node."""
    rank = spans.number("rank")
    known = [one.rank for one in ranks]
    rank[~np.isin(rank, known)] = min(known)
    return spans


def _kept(rank: RankOutcome) -> dict[str, Any]:
    """A rank for `run.json`: medians over its timed steps, and the shares it had."""
    kept: dict[str, Any] = {"rank": rank.rank, "device": rank.device, "threads": rank.threads}
    if rank.left_out:
        return {**kept, "left_out": True}
    if rank.samples:
        kept |= {"samples": rank.samples[-1], "shares": rank.changes}
    if rank.worked_ns:
        kept |= {"worked_ns": median(rank.worked_ns), "waited_ns": median(rank.waited_ns)}
    return {**kept, **rank.about}
