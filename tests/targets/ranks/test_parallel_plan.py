"""What may be written as a target of several devices, and what is said of what may not."""

from __future__ import annotations

import pytest

from sonda.record.errors import SondaError
from sonda.targets.job import Job
from sonda.targets.ranks import plan as parallel_plan
from sonda.targets.ranks.plan import Plan, check_batch, check_chosen_ranks, describe_crowding, describe_plan, make_plan
from sonda.targets.target import parse_target


def plan(on: str, **job: object) -> Plan:
    settings = {"workload": "mlp", "train": True, "on": on, **job}
    return make_plan(Job(**settings), parse_target(on))  # type: ignore[arg-type]


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_plan, "has_gpu", lambda: True)


def test_ddp_has_equal_shares_that_stay() -> None:
    found = plan("ddp=cpu/2+cpu/1")
    assert (found.equal, found.moving, found.backend, found.threads) == (True, False, "gloo", (2, 1))
    assert found.name(0) == "cpu/2"
    assert describe_plan(found) == {"mode": "ddp", "backend": "gloo", "batch": "all"}


def test_a_hybrid_of_processors_moves_shares_and_exchanges_through_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_plan, "reason_against", lambda ranks: "")
    found = plan("hybrid=cpu/1+cpu/1@auto")
    assert (found.auto, found.moving, found.equal, found.backend) == (True, True, False, "shared")
    assert found.name(1) == "cpu/1 (rank 1)"
    assert plan("hybrid=cpu/1+cpu/1@backend=gloo").backend == "gloo"
    monkeypatch.setattr(parallel_plan, "reason_against", lambda ranks: "not on this machine")
    assert plan("hybrid=cpu/1+cpu/1").backend == "gloo"


def test_gradients_that_every_rank_scales_back_are_not_those_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ranks would divide the same sums twice; where weights are averaged, each has gradients of its own."""
    monkeypatch.setattr(parallel_plan, "reason_against", lambda ranks: "")
    assert plan("hybrid=cpu/1+cpu/1", precision="mixed_float16").backend == "gloo"
    assert plan("hybrid=cpu/1+cpu/1", precision="mixed_bfloat16").backend == "shared"
    assert plan("localsgd=cpu/1+cpu/1@backend=shared", precision="mixed_float16").backend == "shared"
    with pytest.raises(SondaError, match=r"with mixed_float16 gradients are scaled, .*; use @backend=gloo"):
        plan("ddp=cpu/1+cpu/1@backend=shared", precision="mixed_float16")


def test_more_threads_than_processors_are_said() -> None:
    def said(on: str, processors: int) -> str:
        return describe_crowding(make_plan(Job(workload="mlp", train=True, on=on), parse_target(on)), processors)

    assert said("ddp=cpu/1+cpu/1", 2) == ""
    assert said("ddp=cpu/1+cpu/1+cpu/1", 2).startswith("ranks want 3 threads of 2 processors: they hold each other up")
    assert said("hybrid=cpu/2+cpu/1", 2).startswith("ranks want 3 threads")


def test_fixed_shares_stay() -> None:
    found = plan("hybrid=cpu/1+cpu/1@shares=24:8")
    assert (found.shares, found.moving) == ((24, 8), False)
    assert check_batch(found, 32) == 32
    with pytest.raises(SondaError, match="shares 24:8 make 32 samples, not 30"):
        check_batch(found, 30)
    assert plan("hybrid=cpu/1+cpu/1@shares=equal").equal


def test_the_batch_is_that_of_all_or_of_each() -> None:
    assert check_batch(plan("ddp=cpu/1+cpu/1"), 64) == 64
    assert check_batch(plan("ddp=cpu/1+cpu/1@batch=each"), 64) == 128
    with pytest.raises(SondaError, match="a batch of 1 cannot be shared by 2 ranks"):
        check_batch(plan("ddp=cpu/1+cpu/1"), 1)


def test_several_nodes_meet_at_one_place() -> None:
    found = plan("ddp=cpu/1+cpu/1@nodes=2,at=10.0.0.1:29400")
    assert (found.ranks, found.at, found.name(3)) == (4, "10.0.0.1:29400", "cpu/1 (rank 3)")


def test_pipelines_go_over_nodes() -> None:
    """Stages are devices of all nodes, those of the first one first."""
    found = plan("pipeline=cpu/1@nodes=2,at=here:1")
    assert (found.ranks, found.replicas) == (2, 1)
    found = plan("pipeline=cpu/1+cpu/1@nodes=3,at=here:1,replicas=3")
    assert (found.ranks, found.replicas) == (6, 3)
    assert plan("hybrid=cpu/1@nodes=2,at=here:1").backend == "gloo"
    with pytest.raises(SondaError, match="2 devices on 2 nodes are not 2 pipelines of two stages or more"):
        plan("pipeline=cpu/1@nodes=2,at=here:1,replicas=2")


def test_the_first_that_trains_speaks_for_its_node() -> None:
    """Of two nodes with two ranks each the first is left out, and the last."""
    found = plan("hybrid=cpu/1+cpu/1@nodes=2,at=here:1,auto")
    assert [found.reports_for_node(rank, (1, 2)) for rank in range(4)] == [False, True, True, False]
    assert [found.reports_for_node(rank, (0, 1, 2, 3)) for rank in range(4)] == [True, False, True, False]
    check_chosen_ranks(found, (1, 2))
    with pytest.raises(SondaError, match="@auto would leave out all devices of node 1 of 2: they do not pay here; tr"):
        check_chosen_ranks(found, (2, 3))


def test_gpus_use_nccl_and_a_mixture_gloo(gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert plan("ddp=cuda:0+cuda:1").backend == "nccl"
    assert plan("hybrid=cuda:0+cpu/2").backend == "gloo"
    assert plan("hybrid=cuda:0+cpu/2").threads == (0, 2)
    # The program that drives a GPU needs a processor too; where there is only one, they share it.
    monkeypatch.setattr(parallel_plan, "available_threads", lambda: 8)
    assert plan("hybrid=cuda:0+cpu").threads == (0, 7) and plan("hybrid=cuda:0+cuda:1+cpu").threads == (0, 0, 6)
    monkeypatch.setattr(parallel_plan, "available_threads", lambda: 1)
    assert plan("hybrid=cuda:0+cpu").threads == (0, 1)
    assert plan("dp=cuda:0+cuda:1").mode == "dp"
    assert plan("localsgd=cuda:0+cpu").h == 8
    assert plan("pipeline=cuda:0+cuda:1@microbatches=6").microbatches == 6


@pytest.mark.parametrize(
    ("on", "words"),
    [
        ("dp=cpu/1+cpu/1", "DataParallel is for GPUs only; use ddp= or hybrid="),
        ("hybrid=cpu/1", "hybrid needs two devices or more"),
        ("ddp=cpu/1+cpu/1@auto", "ddp has no option 'auto'; known: backend"),
        ("hybrid=cpu+cpu@auto=yes", "auto takes no value"),
        ("ddp=cpu+cpu@backend=mpi", "unknown backend 'mpi'"),
        ("ddp=cpu+cpu@backend=nccl", "nccl is for GPUs only"),
        ("ddp=cpu+cpu+cpu+cpu+cpu@backend=shared", "at most 4 ranks, not 5"),
        ("pipeline=cpu+cpu@backend=shared", "stages of a pipeline send to each other"),
        ("hybrid=cpu+cpu@shares=", "shares has no value"),
        ("hybrid=cpu+cpu@shares=24:0", "shares '24:0'"),
        ("hybrid=cpu+cpu@shares=1:2:3", "3 shares for 2 ranks"),
        ("hybrid=cpu+cpu@auto,shares=24:8", "auto chooses the shares; leave out shares, or auto"),
        ("localsgd=cpu+cpu@h=0", "h '0' is not a whole number from 1 on"),
        ("localsgd=cpu+cpu@h=²", "h '²' is not a whole number from 1 on"),
        ("ddp=cpu+cpu@nodes=2,at=here:²", "at 'here:²' is not a host and port"),
        ("ddp=cpu+cpu@batch=half", "batch cannot be 'half'"),
        ("ddp=cpu+cpu@nodes=2", "several nodes need both nodes and at"),
        ("ddp=cpu+cpu@nodes=2,at=here", "at 'here' is not a host and port"),
        ("ddp=cpu+sim:maeri-256", "a simulated accelerator cannot train with others"),
    ],
)
def test_mistakes_are_named_in_one_line(on: str, words: str) -> None:
    with pytest.raises(SondaError) as caught:
        plan(on)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_more_mistakes(monkeypatch: pytest.MonkeyPatch, gpus: None) -> None:
    with pytest.raises(SondaError, match="cuda:0 stands twice"):
        plan("ddp=cuda:0+cuda:0")
    with pytest.raises(SondaError, match="train together; add --train"):
        plan("ddp=cpu+cpu", train=False)
    with pytest.raises(SondaError, match="--threads does not say which rank"):
        plan("ddp=cpu+cpu", threads=2)
    monkeypatch.setattr(parallel_plan, "has_gpu", lambda: False)
    with pytest.raises(SondaError, match="no driver of a GPU is loaded"):
        plan("hybrid=cuda:0+cpu")
