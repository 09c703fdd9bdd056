"""Training by stages: the model is cut where measured times say, and every rank trains its piece (pipeline)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sonda.record.errors import SondaError
from sonda.targets.parallel_training import FEWEST_STEPS, MOST_STEPS

if TYPE_CHECKING:
    from sonda.targets.parallel_rank import Rank


def train_stages(rank: Rank) -> None:
    """Measure the modules of the chain on every rank, cut, and train."""
    from sonda.frameworks.parallel.calibration import untouched
    from sonda.frameworks.parallel.chain import chain_of, cut_chain, measure_chain
    from sonda.frameworks.parallel.pipeline import Neighbours, Stage, StageTask, split

    plan, task, group = rank.plan, rank.task, rank.group
    if plan.microbatches > task.samples:
        raise SondaError(
            f"a batch of {task.samples} cannot be cut into {plan.microbatches} parts", "use fewer @microbatches"
        )
    values = _given(rank)
    parts = split(values, plan.microbatches)
    with untouched(task.model):
        chain = chain_of(task.model, parts[0])
        # All ranks at once, for they will also run at once.
        group.barrier()
        times, outputs = measure_chain(chain, parts[0], rank.finished)
        shorter = [output[: len(parts[-1])] for output in outputs]
    measured = group.numbers(times)
    bounds = cut_chain(measured)
    begin, end = bounds[group.me], bounds[group.me + 1]
    work = [sum(measured[stage][bounds[stage] : bounds[stage + 1]]) for stage in range(group.size)]
    names = [path for path, _ in chain]
    _foresee(rank, names, bounds, work, [sum(row) for row in measured], outputs)
    received = []
    if group.me:
        received = [outputs[begin - 1] if len(part) == len(parts[0]) else shorter[begin - 1] for part in parts]
    stage = Stage(chain[begin:end], Neighbours(group, plan.microbatches), received)
    stage.train()
    steps = rank.job.steps
    if steps is None:
        step = max(work) * (plan.microbatches + group.size - 1)
        steps = max(FEWEST_STEPS, min(MOST_STEPS, int(rank.job.seconds / step)))
    rank.outcome.about = {"modules": names[begin:end]}
    rank.drive(lambda _waiting: StageTask(task, stage), steps)


def _given(rank: Rank) -> Any:
    """The inputs of one batch as the model will be given them. Raises SondaError where there are several."""
    from sonda.frameworks.parallel.trial import TrialTask
    from sonda.frameworks.torch_driver import loop_of
    from sonda.targets.parallel_training import Silent

    loop_of(TrialTask(rank.task), Silent(), rank.driving(None))  # the model on its device, in its precision
    inputs, _ = next(rank.task.batches(0))
    if len(inputs) != 1 or not hasattr(inputs[0], "shape") or len(inputs[0]) != rank.task.samples:
        raise SondaError(
            "a pipeline needs a model of one input with one row per sample", "use ddp= or hybrid= for this workload"
        )
    values = inputs[0].to(rank.device)
    return values.double() if rank.job.precision == "float64" and values.is_floating_point() else values


def _foresee(
    rank: Rank, names: list[str], bounds: list[int], work: list[float], alone: list[float], outputs: list[Any]
) -> None:
    """Say where the model was cut and what that can bring."""
    parts, stages = rank.plan.microbatches, len(work)
    step = max(work) * (parts + stages - 1)
    fastest = min(alone) * parts
    crossing = [outputs[bound - 1] for bound in bounds[1:-1]]
    size = sum(value.numel() * value.element_size() for value in crossing) * parts
    cuts = " and ".join(names[bound] for bound in bounds[1:-1])
    shown = " + ".join(f"{1e3 * parts * one:.3g}" for one in work)
    rank.foreseen(
        [
            f"cut before {cuts}: {shown} ms of work a step, {100 * (stages - 1) / (parts + stages - 1):.3g} % of it "
            f"waiting while the pipeline of {parts} parts fills and drains",
            f"{2 * size / 1e6:.3g} MB cross the cut a step, predicted {fastest / step:.3g} times the fastest alone "
            "without what sending takes",
        ],
        {
            "cut": bounds[1:-1],
            "work_ns": [round(1e9 * parts * one) for one in work],
            "bytes": 2 * size,
            "speedup": fastest / step,
        },
    )
