"""Training by shares (ddp, hybrid, localsgd): calibration, forecast, then every rank trains its share of each batch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from sonda.frameworks.torch.parallel.balance import Balance
from sonda.frameworks.torch.parallel.outlook import Outlook, choose_outlook, describe_outlook, predict_outlook
from sonda.frameworks.torch.parallel.shares import Line, equal_shares
from sonda.targets.ranks.plan import check_chosen_ranks

if TYPE_CHECKING:
    from sonda.frameworks.torch.parallel.calibration import Exchange
    from sonda.frameworks.torch.parallel.group import Communicator
    from sonda.frameworks.torch.parallel.shared_task import SharedTask
    from sonda.targets.ranks.rank import Rank

FEWEST_STEPS, MOST_STEPS = 6, 20
"""Bounds of the timed steps where the user gave no number: as many as are expected to fit into the seconds given.
Every rank computes the number from the same outlook, so all take as many."""


def train_shares(rank: Rank) -> None:
    """Calibrate, choose who takes part, and train."""
    from sonda.frameworks.torch.parallel.calibration import gather_lines
    from sonda.frameworks.torch.parallel.group import make_group

    plan, group = rank.plan, rank.group
    batch = rank.check_batch()
    own_line, alone, exchange = _calibrate(rank, batch)
    lines = gather_lines(own_line, group)
    communication = exchange.gradients / plan.h if plan.mode == "localsgd" else exchange.seconds
    shares = plan.shares or (equal_shares(plan.ranks, batch) if plan.equal else None)
    whole = predict_outlook(lines, batch, communication, shares=shares, alone=alone)
    chosen = choose_outlook(lines, batch, communication, alone) if plan.auto else whole
    names = [plan.name(number) for number in range(plan.ranks)]
    rank.show_forecast(
        describe_outlook(whole, chosen, names, plan.auto), _forecast_numbers(whole, chosen, exchange, lines)
    )
    if rank.job.epochs:
        check_chosen_ranks(plan, chosen.ranks)
    if len(chosen.ranks) < group.size:
        group = make_group(chosen.ranks, rank.meter, plan.timeout)
    if group.me < 0:
        rank.outcome.left_out = True
        return
    if plan.backend == "shared" and group.memory is None:
        group.use_shared_memory(rank.task.model, rank.key_store(), plan.timeout)
    _train(rank, group, chosen, [lines[number] for number in chosen.ranks])


def _calibrate(rank: Rank, batch: int) -> tuple[Line, list[float], Exchange]:
    """This rank's line (time over samples), s of the whole batch on each rank alone, and the cost of exchanging."""
    from sonda.frameworks.torch.drive.steps import NoListener, make_loop
    from sonda.frameworks.torch.parallel.calibration import (
        TrialTask,
        count_norms,
        measure_alone,
        measure_exchange,
        measure_line,
        preserve_state,
    )

    trial = TrialTask(rank.task)
    how = replace(rank.driving(None), compile=False)
    with preserve_state(rank.task.model):
        loop = make_loop(trial, NoListener(), how)

        def step(size: int) -> None:
            trial.size = size
            loop.step()
            rank.synchronize()

        line = measure_line(step, rank.task.samples, rank.group, rank.key_store(), timeout_s=rank.plan.timeout)
        alone = measure_alone(step, rank.task.samples, rank.group, line, batch)
    if rank.plan.backend == "shared":
        rank.group.use_shared_memory(rank.task.model, rank.key_store(), rank.plan.timeout)
    shares_norms = rank.plan.mode != "localsgd" and rank.plan.shared_norms
    norms = count_norms(rank.task.model) if shares_norms else 0
    return line, alone, measure_exchange(rank.task.model, rank.group, norms)


def _forecast_numbers(whole: Outlook, chosen: Outlook, exchange: Exchange, lines: list[Line]) -> dict[str, Any]:
    return {
        **whole.to_record(),
        "chosen": list(chosen.ranks),
        "chosen_shares": list(chosen.shares),
        "gradient_bytes": exchange.gradient_bytes,
        "all_reduce_ns": round(1e9 * exchange.gradients),
        "norm_exchange_ns": round(1e9 * exchange.small),
        "norms": exchange.norms,
        "fixed_ns": [round(1e9 * line.fixed) for line in lines],
        "each_ns": [round(1e9 * line.per_sample) for line in lines],
    }


def _train(rank: Rank, group: Communicator, outlook: Outlook, lines: list[Line]) -> None:
    from sonda.frameworks.torch.parallel.batchnorm import share_batch_norms
    from sonda.frameworks.torch.parallel.gradients import broadcast_tensors, distribute
    from sonda.frameworks.torch.parallel.local_sgd import WeightAverager
    from sonda.frameworks.torch.parallel.shared_task import RankLearner, RankLoaderLearner, SharedTask

    plan, task = rank.plan, rank.task
    balance = Balance(lines, outlook.batch, [share for share in outlook.shares if share])
    local = plan.mode == "localsgd"
    together = not local and (group.size > 1 or plan.mode == "ddp")
    moving = plan.moving and group.size > 1
    plain = task.model
    # Nothing waits for a device in whole epochs, or where a rank is alone, unless shares follow its speed.
    finished = rank.synchronize if moving or (group.size > 1 and not rank.job.epochs) else _do_nothing
    tasks: list[SharedTask] = []
    steps = rank.job.steps
    if steps is None:
        steps = max(FEWEST_STEPS, min(MOST_STEPS, int(rank.job.seconds / outlook.step)))
    equalise: list[Any] = [_do_nothing]
    """What makes the ranks' models equal at the end of an epoch."""

    def make(waiting: Any) -> SharedTask:
        model = plain
        after: Any = lambda step, samples: None  # noqa: E731
        if together:
            if plan.shared_norms:
                model = share_batch_norms(model, group)
            else:
                equalise[0] = lambda: broadcast_tensors(plain.buffers(), group, 0)
            model = distribute(model, group, rank.device, waiting, lambda: balance.shares, rank.job.deterministic)
        elif local:
            averager = WeightAverager(model, group, plan.h, waiting)
            after, equalise[0] = averager.end_step, averager.average_now
        tasks.append(SharedTask(task, model, group, balance, moving, together, after, finished, waiting))
        tasks[0].equal_weights = plan.equal_weights
        tasks[0].last = None if rank.job.epochs else rank.job.warmup + steps
        return tasks[0]

    if rank.job.epochs:
        rank.keeper.set_duties(group.me == 0, plan.reports_for_node(rank.outcome.rank, group.ranks))

        def learner(waiting: Any) -> RankLearner:
            shared, average = make(waiting), lambda: equalise[0]()
            if rank.own_model is None:
                built = RankLearner(shared, plain, rank.data, rank.job.workers, plan.everybody, average)
            else:
                criteria = rank.own_model.criteria(rank.driving(None))
                built = RankLoaderLearner(shared, plain, rank.data, criteria, plan.everybody, average)
            built.task.last = built.steps("train") * (rank.job.epochs - rank.keeper.trained.resumed)
            return built

        rank.drive_epochs(learner)
        _report(rank, tasks[0], slice(None), on_device=rank.device != "cpu" and not moving)
        return
    rank.drive(make, steps)
    _report(rank, tasks[0], slice(rank.job.warmup, rank.job.warmup + steps))


def _do_nothing() -> None:
    """Stands in where nothing is to be done or waited for."""


def _report(rank: Rank, task: SharedTask, timed: slice, on_device: bool = False) -> None:
    """Put the timed steps of this rank into its outcome; without times where only a device knows them."""
    log = task.log
    rank.outcome.samples = log.samples[timed]
    if not on_device:
        rank.outcome.worked_ns = [round(1e9 * seconds) for seconds in log.worked[timed]]
        rank.outcome.waited_ns = [round(1e9 * seconds) for seconds in log.waited[timed]]
    rank.outcome.changes = [msgspec.to_builtins(change) for change in task.balance.changes]
