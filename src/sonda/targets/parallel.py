"""Several devices that train together: `ddp=`, `hybrid=`, `localsgd=`, `pipeline=`, `dp=`; TensorFlow's strategies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from typing import Any

import numpy as np

from sonda.frameworks.assembly import assemble
from sonda.probes.ceilings import load_or_measure
from sonda.probes.contamination import Conditions, Watch
from sonda.record.nodes import NodePart, brought_together
from sonda.record.run import Run, RunInfo, new_id, write_run
from sonda.record.saying import Lasting, Say
from sonda.record.span import Spans
from sonda.record.store import Store
from sonda.targets.adapters import require
from sonda.targets.applicable import applied
from sonda.targets.counting import ask
from sonda.targets.energy_sampling import asked as asked_energy
from sonda.targets.energy_sampling import sampling
from sonda.targets.job import Job, check_job
from sonda.targets.keeping import Place, gpus, identities, observed
from sonda.targets.local import MEASURING, lasting
from sonda.targets.parallel_plan import crowding, plan_of, record
from sonda.targets.parallel_report import RankOutcome, Report
from sonda.targets.parallel_start import Agent
from sonda.targets.spec import STRATEGIES, anywhere, available_threads, parse_target
from sonda.targets.tensorflow_plan import strategy_plan
from sonda.targets.training import Training
from sonda.workloads.catalogue import describe


def measure(job: Job, store: Store, place: Place | None = None, say: Say = lambda text: None) -> Run:
    """Train on several devices and keep what all ranks saw as one run, on several nodes that of the first.

    Raises SondaError when it cannot be done, and KeptElsewhereError where another node keeps the run.
    """
    place = place or Place()
    job, without = applied(check_job(job))
    spec = parse_target(job.on)
    plan = strategy_plan(job, spec) if spec.mode in STRATEGIES else plan_of(job, spec)
    require(job.framework)
    if ":" not in job.workload:  # a file of the user's is read by the ranks
        describe(job.workload, job.options)
    threads = max(1, sum(plan.threads))
    crowded = [sentence] if (sentence := crowding(plan, available_threads())) else []
    for sentence in crowded:
        say(Lasting(sentence))
    training = Training.of(job, store, say)
    with store.scratch() as directory:
        counters = ask(job.probe, directory)
        say(MEASURING)
        load_or_measure(store.root, [threads])
        say(lasting(job))
        with training.held(directory, say, plan.nodes), sampling(asked_energy(job.probe), directory, say) as energy:
            agent = Agent(training.job, plan, directory, say, energy.environment)
            with Watch() as watch:
                begin = perf_counter_ns()
                report, foreseen = training.run(agent.run, directory, say)
                end = perf_counter_ns()
            after = _with_cpu(watch.after, report)
        try:
            assembly = assemble(directory, begin, end)
            trained = [rank for rank in report.ranks if not rank.left_out] or report.ranks
            energy.finish(begin, end, devices_used(trained), identities(assembly))
            spans = _of_ranks(training.added(assembly.spans, directory, begin), trained)
            fields = observed(assembly, threads, store.root, watch.before, after, job.redact)
            fields["notes"] += [*without, *crowded, *(foreseen.sentences if foreseen else []), *training.notes()]
            info = RunInfo(
                id=place.identity or new_id(),
                status="complete",
                workload={**trained[0].workload, "framework": job.framework, **job.how(), **training.about()},
                target={
                    "spec": anywhere(job.on),
                    "device": "cuda" if any(rank.device.startswith("cuda") for rank in trained) else "cpu",
                    "threads": threads,
                    **record(plan),
                    "ranks": [_kept(rank) for rank in report.ranks],
                    **({"outlook": foreseen.numbers} if foreseen else {}),
                    **gpus(assembly),
                    **counters.target,
                    **energy.target,
                },
                seed=job.seed,
                group=place.group,
                study=place.study,
                point=place.point,
                **energy.said(counters.said(fields)),
            )
            own = NodePart(agent.node, info, energy.added(spans), energy.samples)
            run = _keep(agent, own, store, training, directory)
        finally:
            agent.close()
    training.done()
    return run


def _keep(agent: Agent, own: NodePart, store: Store, training: Training, directory: Path) -> Run:
    """Write the run; with several nodes, that of all, on the first. Raises KeptElsewhereError on the others."""
    if len(agent.nodes) == 1:
        return write_run(store.root, own.info, own.spans, own.samples, files=training.files())
    if not agent.first:
        elsewhere = agent.deliver(write_run(directory / "nodes", own.info, own.spans, own.samples))
        training.done()
        raise elsewhere

    def keep() -> Run:
        others, lost = agent.gather()
        whole = brought_together([own, *others], lost, agent.same)
        return write_run(store.root, whole.info, whole.spans, whole.samples, files=training.files())

    return agent.told(keep)


def _with_cpu(conditions: Conditions, report: Report) -> Conditions:
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
