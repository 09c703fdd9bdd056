"""Training by stages (pipeline): the model is cut by measured times, and every rank trains its stage."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from sonda.frameworks.torch.parallel.outlook import format_duration
from sonda.record.errors import SondaError
from sonda.targets.ranks.outcomes import RankParts
from sonda.targets.ranks.shares import FEWEST_STEPS, MOST_STEPS

if TYPE_CHECKING:
    from sonda.frameworks.torch.parallel.group import Communicator
    from sonda.targets.ranks.rank import Rank


@dataclass(frozen=True)
class _MeasuredChain:
    """The chain of a model's modules, cut into stages by the times that every rank measured."""

    modules: list[tuple[str, Any]]
    """Each with its path."""
    outputs: list[Any]
    """What each module gives for one part of a batch."""
    bounds: list[int]
    """The first module of every stage, and the number of modules."""
    work: list[float]
    """s of one part in each stage, on the slowest of its devices."""
    alone: list[float]
    """s of the whole batch on each device by itself; infinite where its memory does not hold it."""


def train_stages(rank: Rank) -> None:
    """Measure the modules of the chain on every rank, cut, and train; with replicas, several pipelines side by side.

    Raises SondaError where the batch or the model cannot be cut.
    """
    from sonda.frameworks.torch.parallel.gradients import distribute
    from sonda.frameworks.torch.parallel.pipeline import Neighbours, Stage, StagedLearner, StageTask
    from sonda.frameworks.torch.parallel.shares import equal_shares

    plan, task, group = rank.plan, rank.task, rank.group
    shares = equal_shares(plan.replicas, task.samples)
    if plan.microbatches > min(shares):
        raise SondaError(
            f"a batch of {min(shares)} cannot be cut into {plan.microbatches} parts", "use fewer @microbatches"
        )
    stages = group.size // plan.replicas
    replica, place = divmod(group.me, stages)
    pipeline, peers = _make_groups(rank, stages)
    chain = _measure_and_cut(rank, stages, shares[0])
    _show_forecast(rank, chain)
    begin, end = chain.bounds[place], chain.bounds[place + 1]
    neighbours = Neighbours(pipeline, plan.microbatches)
    stage = Stage(chain.modules[begin:end], neighbours, shares[replica], chain.outputs[begin - 1] if place else None)
    stage.train()
    rank.outcome.about = RankParts(modules=[path for path, _ in chain.modules[begin:end]])

    def make(waiting: Any) -> StageTask:
        model: Any = stage
        neighbours.waiting = waiting
        if peers.size > 1 and any(parameter.requires_grad for parameter in stage.parameters()):
            model = distribute(stage, peers, rank.device, waiting, deterministic=rank.job.deterministic)
        return StageTask(task, stage, model, shares, replica)

    if rank.job.epochs:
        tensors = [
            [tensor for _, module in chain.modules[low:high] for tensor in (*module.parameters(), *module.buffers())]
            for low, high in pairwise(chain.bounds)
        ]
        rank.drive_epochs(lambda waiting: StagedLearner(make(waiting), rank.data, group, peers, tensors))
        return
    steps = rank.job.steps
    if steps is None:
        step = max(chain.work) * (plan.microbatches + stages - 1)
        steps = max(FEWEST_STEPS, min(MOST_STEPS, int(rank.job.seconds / step)))
    rank.drive(make, steps)
    neighbours.waiting = nullcontext  # nobody observes any more
    neighbours.wait_for_sends()  # a rank that leaves takes with it what it has sent and nobody has read


def _measure_and_cut(rank: Rank, stages: int, samples: int) -> _MeasuredChain:
    """Measure the modules of the model on every rank and cut their chain into stages of equal work.

    `samples` are those of the first pipeline in a batch.
    """
    from sonda.frameworks.torch.drive.steps import autocast
    from sonda.frameworks.torch.parallel.calibration import preserve_state
    from sonda.frameworks.torch.parallel.chain import check_cut, cut_chain, find_chain, measure_chain, measure_whole
    from sonda.frameworks.torch.parallel.pipeline import split_rows

    group, model = rank.group, rank.task.model
    batch = _example_input(rank)
    first = split_rows(batch[:samples], rank.plan.microbatches)[0]
    calling = partial(autocast, rank.driving(None))
    with preserve_state(model):
        with calling():
            modules = find_chain(model, first)
        # All ranks at once, for they will also run at once.
        group.barrier()
        times, outputs = measure_chain(modules, first, rank.synchronize, calling)
        alone = 0.0
        for turn in range(group.size):  # the whole batch on one device, while the others wait
            group.barrier()
            if turn == group.me:
                alone = _measure_alone(modules, batch, rank.synchronize, calling)
        group.barrier()
    measured = group.gather_numbers(times)
    # Pipelines are cut alike, so the slowest device of a stage counts.
    by_stage = [[max(column) for column in zip(*measured[stage::stages], strict=True)] for stage in range(stages)]
    bounds = cut_chain(by_stage)
    check_cut(modules, bounds)
    place = group.me % stages
    begin, end = bounds[place], bounds[place + 1]
    with preserve_state(model):
        # A stage is waited for once for each part, so its modules together may take less than one by one.
        group.barrier()
        stage_input = first if begin == 0 else outputs[begin - 1]
        stage_times = group.gather_numbers([measure_whole(modules[begin:end], stage_input, rank.synchronize, calling)])
    work = [max(row[0] for row in stage_times[stage::stages]) for stage in range(stages)]
    return _MeasuredChain(modules, outputs, bounds, work, [row[0] for row in group.gather_numbers([alone])])


def _measure_alone(chain: Any, batch: Any, finished: Any, calling: Any) -> float:
    """s of a whole batch on this rank's device by itself; infinite where its memory does not hold it."""
    from sonda.frameworks.torch.parallel.chain import measure_whole

    try:
        return measure_whole(chain, batch, finished, calling)
    except MemoryError:
        return math.inf
    except RuntimeError as error:
        if type(error).__name__ != "OutOfMemoryError":
            raise
        import torch

        torch.cuda.empty_cache()
        return math.inf


def _make_groups(rank: Rank, stages: int) -> tuple[Communicator, Communicator]:
    """The group of this rank's pipeline, and the group of the ranks with the same stage in all pipelines."""
    from sonda.frameworks.torch.parallel.group import make_group

    replicas = rank.plan.replicas
    if replicas == 1:
        return rank.group, make_group([rank.group.me], rank.meter, rank.plan.timeout)
    lines = [range(number * stages, (number + 1) * stages) for number in range(replicas)]
    # Every rank takes part in making every group, in the same order.
    groups = [make_group(list(ranks), rank.meter, rank.plan.timeout) for ranks in (*lines, *zip(*lines, strict=True))]
    pipeline, peers = (group for group in groups if group.me >= 0)
    return pipeline, peers


def _example_input(rank: Rank) -> Any:
    """The input of one batch as the model will be given it. Raises SondaError for a model with several inputs."""
    from sonda.frameworks.torch.drive.steps import NoListener, adapt_batch, make_loop
    from sonda.frameworks.torch.parallel.calibration import TrialTask

    how = rank.driving(None)
    make_loop(TrialTask(rank.task), NoListener(), how)  # the model on its device, in its precision
    inputs, _ = next(rank.task.batches(0))
    if len(inputs) != 1 or not hasattr(inputs[0], "shape") or len(inputs[0]) != rank.task.samples:
        raise SondaError(
            "a pipeline needs a model of one input with one row per sample", "use ddp= or hybrid= for this workload"
        )
    return adapt_batch(inputs[0], how)


def _show_forecast(rank: Rank, chain: _MeasuredChain) -> None:
    """Say where the model was cut and what that can bring."""
    names, bounds, work, alone = [path for path, _ in chain.modules], chain.bounds, chain.work, chain.alone
    parts, stages, replicas = rank.plan.microbatches, len(work), rank.plan.replicas
    step = max(work) * (parts + stages - 1)
    speedup, brings = expected_speedup(alone, step)
    crossing = [chain.outputs[bound - 1] for bound in bounds[1:-1]]
    size = sum(value.numel() * value.element_size() for value in crossing) * parts * replicas
    several = f"{replicas} pipelines, each " if replicas > 1 else ""
    cuts = " and ".join(names[bound] for bound in bounds[1:-1])
    shown = " + ".join(format_duration(parts * seconds) for seconds in work)
    rank.show_forecast(
        [
            f"{several}cut before {cuts}: {shown} of work a step, {100 * (stages - 1) / (parts + stages - 1):.3g} % "
            f"of it waiting while the pipeline of {parts} parts fills and drains",
            f"{2 * size / 1e6:.3g} MB cross the cut a step, {brings}",
        ],
        {
            "cut": bounds[1:-1],
            "work_ns": [round(1e9 * parts * seconds) for seconds in work],
            "bytes": 2 * size,
            "alone_ns": [round(1e9 * seconds) if math.isfinite(seconds) else None for seconds in alone],
            "speedup": speedup,
        },
    )


def expected_speedup(alone: list[float], step: float) -> tuple[float | None, str]:
    """The speed-up over the fastest device alone, and a sentence on it; None where it cannot be told.

    `alone` are s of the whole batch on each device, `step` are s of a step of the pipeline. A speed-up above the number
    of devices is impossible: then the measurement of the fastest device was disturbed.
    """
    fastest = min(alone)
    if not math.isfinite(fastest):
        return None, "and no device holds the whole batch at once"
    took = f"({format_duration(fastest)} for the whole batch at once)"
    if fastest > len(alone) * step:
        return None, f"and what that brings cannot be told: the fastest alone {took} was disturbed by other programs"
    return fastest / step, f"predicted {fastest / step:.3g} times the fastest alone {took} without what sending takes"
