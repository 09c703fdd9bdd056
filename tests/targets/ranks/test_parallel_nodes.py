"""Nodes meet, agree, hear of each other's end and bring one run together; two agents on the loopback play two nodes."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

pytest.importorskip("torch")

import node_cases
import training_cases
from parallel_ranks import CONTEXT, free_port, on_ranks
from sonda.analysis.energy.run import summarise_energy
from sonda.analysis.steps.training import summarise_training
from sonda.record.errors import SondaError
from sonda.record.run import Run
from sonda.record.store import Store
from sonda.record.training import FINAL
from sonda.targets.job import JOB, Job
from sonda.targets.ranks import nodes as parallel_nodes
from sonda.targets.ranks.elastic_agent import PLAN
from sonda.targets.ranks.nodes import LOCATION, LOST, PART, NodeMeeting, RunLocation, meet_nodes
from sonda.targets.ranks.outcomes import BEGUN, AgentReport, read_outcome
from sonda.targets.ranks.plan import Plan, make_plan
from sonda.targets.target import parse_target
from sonda.targets.training.trainer import Keeper, open_training, training_settings
from sonda.version import VERSION
from torch_modules import MODULES
from warm_worker import IMPORTED, server_socket

NAMES = ("left", "right")
LIMIT_S = 600
"""What takes so long will not come, however busy the machine is."""
SIZE = 3 * parallel_nodes.CHUNK + 17


def job_at(port: int, timeout: int = LIMIT_S, **settings: Any) -> Job:
    on = f"ddp=cpu/1@nodes=2,at=localhost:{port},timeout={timeout}"
    return Job(**{"workload": "mlp", "train": True, "on": on, "warmup": 1, **settings})


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread plays a node of the thread's name."""
    monkeypatch.setattr(parallel_nodes, "node_name", lambda: threading.current_thread().name)


def both(work: Callable[[NodeMeeting], Any], jobs: list[Job]) -> dict[str, Any]:
    """What `work` gave on two nodes that have met, or the error of each, by name."""
    found: dict[str, Any] = {}

    def play(job: Job) -> None:
        try:
            with meet_nodes(make_plan(job, parse_target(job.on)), job) as nodes:
                found[threading.current_thread().name] = work(nodes)
        except SondaError as error:
            found[threading.current_thread().name] = error

    threads = [
        threading.Thread(target=play, args=(job,), name=name, daemon=True)
        for name, job in zip(NAMES, jobs, strict=True)
    ]
    for thread in threads:
        thread.start()
    limit = time.monotonic() + LIMIT_S
    for thread in threads:
        thread.join(max(0, limit - time.monotonic()))
    assert set(found) == set(NAMES) and not any(thread.is_alive() for thread in threads)
    return found


def test_nodes_of_two_versions_are_refused_and_both_are_named(named: None) -> None:
    """The other node says what another Sonda would say."""
    job = job_at(free_port())
    said: list[str] = []

    def play() -> None:
        with pytest.raises(SondaError) as caught, meet_nodes(make_plan(job, parse_target(job.on)), job):
            pass
        said.append(str(caught.value))

    node = threading.Thread(target=play, name="left", daemon=True)
    node.start()
    store, number = parallel_nodes._join_store(make_plan(job, parse_target(job.on)), time.monotonic() + LIMIT_S)
    facts = parallel_nodes.NodeGreeting(node="right", version="0.0", job={})
    store.set(f"facts/{number}", msgspec.json.encode(facts))
    store.add("left", 1)
    node.join(LIMIT_S)
    ours, theirs = (f"node left has Sonda {VERSION}", "node right has Sonda 0.0")
    assert said and said[0] in (
        f"{ours}, and node right has 0.0; install the same version on every node",
        f"{theirs}, and node left has {VERSION}; install the same version on every node",
    )


def test_different_commands_are_refused(named: None) -> None:
    port = free_port()
    found = both(lambda nodes: None, [job_at(port, options={"batch": "8"}), job_at(port, options={"batch": "16"})])
    for error in found.values():
        assert "was started with batch" in str(error) and "start the same command on every node" in str(error)


def test_the_cause_is_heard_from_the_node_that_knows_it(named: None) -> None:
    def end(nodes: NodeMeeting) -> AgentReport:
        if nodes.names[nodes.number] == "left":
            return nodes.exchange_reports(
                AgentReport(cause="cpu/1 (rank 0) was ended by SIGKILL", remedy="see above", lost=True)
            )
        return nodes.exchange_reports(AgentReport(cause="the connection was reset", lost=True, heard=True))

    job = job_at(free_port())
    found = both(end, [job, job])
    assert found["left"].cause == "cpu/1 (rank 0) was ended by SIGKILL"
    assert found["right"].cause == "node left: cpu/1 (rank 0) was ended by SIGKILL"
    assert found["right"].lost, "a whole training goes on from its checkpoint, on all nodes"


def test_a_node_that_says_nothing_is_gone(named: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_nodes, "GONE_S", 0.3)
    asks = threading.Event()

    def end(nodes: NodeMeeting) -> AgentReport | None:
        if nodes.names[nodes.number] == "left":
            assert asks.wait(LIMIT_S), "the other has met it"
            return None
        asks.set()
        return nodes.exchange_reports(AgentReport(cause="the connection was reset", lost=True, heard=True))

    job = job_at(free_port())
    found = both(end, [job, job])
    assert found["right"].cause == "node left went away; the ranks of right were stopped"
    assert not found["right"].lost, "nobody would come to a second meeting"


def test_parts_of_any_size_come_to_the_first_node_and_the_others_hear_where_the_run_is(
    named: None, tmp_path: Path
) -> None:
    content = np.random.default_rng(0).bytes(SIZE)

    def hand_over(nodes: NodeMeeting) -> int:
        place = tmp_path / str(nodes.number)
        place.mkdir()
        if nodes.number:
            (place / PART).write_bytes(content)
        else:
            (place / LOCATION).write_bytes(msgspec.json.encode(RunLocation(run="ab12", node="first")))
        nodes.gather_run(place)
        return nodes.number

    job = job_at(free_port())
    assert sorted(both(hand_over, [job, job]).values()) == [0, 1]
    assert (tmp_path / "0" / f"{PART}-1").read_bytes() == content
    assert msgspec.json.decode((tmp_path / "0" / LOST).read_bytes()) == []
    assert msgspec.json.decode((tmp_path / "1" / LOCATION).read_bytes(), type=RunLocation).run == "ab12"


def test_a_part_that_never_comes_is_not_waited_for(
    named: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel_nodes, "GONE_S", 0.3)
    lost: list[str] = []

    def hand_over(nodes: NodeMeeting) -> None:
        if nodes.number == 0:
            lost.append(nodes.names[1])
            (tmp_path / LOCATION).write_bytes(msgspec.json.encode(RunLocation(run="ab12", node="first")))
            nodes.gather_run(tmp_path)

    job = job_at(free_port())
    both(hand_over, [job, job])
    assert msgspec.json.decode((tmp_path / LOST).read_bytes()) == lost


def test_a_third_node_finds_the_meeting_closed(named: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """And says so, though at its last attempt nobody answered and its time was up."""
    port = free_port()
    job, third = job_at(port), job_at(port, timeout=LIMIT_S + 1)
    said: list[str] = []
    attempts: list[float] = []
    late: set[int] = set()
    join = parallel_nodes._join_store

    def joined(plan: Plan, limit: float) -> tuple[Any, int]:
        if plan.timeout > LIMIT_S:
            attempts.append(limit)
            if len(attempts) > 1:
                late.add(threading.get_ident())
                raise TimeoutError("timed out")
        return join(plan, limit)

    def clock() -> float:
        return time.monotonic() + (2 * LIMIT_S if threading.get_ident() in late else 0)

    def stay(nodes: NodeMeeting) -> None:
        if nodes.number == 0:
            with pytest.raises(SondaError) as caught, meet_nodes(make_plan(third, parse_target(third.on)), third):
                pass
            late.clear()
            said.append(str(caught.value))

    monkeypatch.setattr(parallel_nodes, "_join_store", joined)
    monkeypatch.setattr(parallel_nodes, "monotonic", clock)
    both(stay, [job, job])
    assert said[0].startswith("2 nodes did not meet at localhost:") and "2 nodes have met there already" in said[0]


def test_nodes_of_one_kernel_share_a_machine() -> None:
    """Whatever they are called; of a node that cannot say, nothing is known."""
    names = ["a", "b", "c", "d", "e"]
    found = parallel_nodes._first_on_machine(["one", "two", "one", "", ""], names)
    assert found == {"a": "a", "c": "a"}


# ---- real agents and ranks --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(training_cases.small_set(tmp_path_factory.mktemp("data") / "thirds"))


@pytest.fixture
def playing() -> Iterator[Callable[..., Any]]:
    """Start a process that plays a node."""
    started: list[Any] = []
    CONTEXT.set_forkserver_preload([*MODULES, *IMPORTED])

    def play(work: Callable[..., Any], *arguments: Any) -> Any:
        started.append(CONTEXT.Process(target=work, args=arguments))
        started[-1].start()
        return started[-1]

    yield play
    for process in started:
        process.kill()
        process.join()


def test_other_data_than_the_first_nodes_are_refused(tmp_path: Path, data: str) -> None:
    job = job_at(1, workload="cnn", options=training_cases.OPTIONS, data=data, split=training_cases.SPLIT, epochs=2,
                 checkpoint=str(tmp_path))  # fmt: skip
    Keeper(job, open_training(job), tmp_path, rank=1)
    with pytest.raises(SondaError, match="are not those of the first node; give the same set to every node"):
        Keeper(job, open_training(job), tmp_path, rank=1, agree=lambda own: own + 1)


def small_training(data: str, place: Path, **settings: Any) -> dict[str, Any]:
    """Settings of the training that `training_cases.alone` does in one process."""
    return {
        "workload": "cnn", "options": training_cases.OPTIONS, "data": data, "split": training_cases.SPLIT, "epochs": 2,
        "precision": "float64", "checkpoint": str(place / "checkpoints"), **settings,
    }  # fmt: skip


def is_that_of_one_process(weights: Path, data: str) -> bool:
    """Whether these weights are those of a single process, within 1e-12 of the largest."""
    wanted = training_cases.alone(data)["weights"]
    with np.load(weights, allow_pickle=False) as found:
        assert set(found) == set(wanted)
        apart = max(float(np.abs(found[name] - wanted[name]).max()) for name in wanted)
    return apart < 1e-12 * max(float(np.abs(values).max()) for values in wanted.values())


def test_a_training_is_the_same_wherever_its_nodes_meet() -> None:
    """A queue starts them elsewhere, and the checkpoint must fit."""
    first, other = (training_settings(job_at(port), "") for port in (1, 2))
    assert first == other and first["on"] == f"ddp=cpu/1@nodes=2,timeout={LIMIT_S}"


def test_a_pipeline_on_each_of_two_nodes_trains_as_one_process_does(tmp_path: Path, data: str) -> None:
    on = "pipeline=cpu/1+cpu/1@nodes=2,at=localhost:1,replicas=2,microbatches=2"
    job = Job(**small_training(data, tmp_path, train=True, on=on))
    for node in NAMES:
        (tmp_path / node).mkdir()
        (tmp_path / node / JOB).write_bytes(msgspec.json.encode(job))
        (tmp_path / node / PLAN).write_bytes(msgspec.json.encode(make_plan(job, parse_target(on))))
    assert on_ranks(4, node_cases.whole_rank, [str(tmp_path / node) for node in NAMES]) == [0, 0, 0, 0]
    outcomes = [read_outcome(tmp_path / NAMES[rank // 2], rank) for rank in range(4)]
    stages = [outcome.about.modules for outcome in outcomes if outcome is not None]
    assert stages[:2] == stages[2:] and not set(stages[0]) & set(stages[1])
    assert is_that_of_one_process(tmp_path / "checkpoints" / FINAL, data)


def test_two_nodes_train_and_the_first_keeps_one_run(tmp_path: Path, data: str, playing: Callable[..., Any]) -> None:
    """A stage of a pipeline on each."""
    port = free_port()
    job = job_at(
        port, on=f"pipeline=cpu/1@nodes=2,at=localhost:{port},timeout={LIMIT_S}",
        **small_training(data, tmp_path, probe="energy-model:cpu=20..95,energy:100ms+idle=0s"),
    )  # fmt: skip
    results = CONTEXT.Queue()
    for name in NAMES:
        playing(node_cases.measured, name, job, tmp_path / name, results, server_socket())
    said = dict(results.get(timeout=LIMIT_S) for _ in NAMES)
    stores = {name: [Run.load(path) for path in Store(tmp_path / name).directories()] for name in NAMES}
    first = next((name for name in NAMES if stores[name]), "")
    other = NAMES[1 - NAMES.index(first)] if first else ""
    assert first and not stores[other], said
    (run,) = stores[first]
    assert said == {first: run.id, other: f"run {run.id} of all nodes is kept on node {first}"}
    spans = run.spans
    for rank, name in enumerate((first, other)):
        mine = spans.words("node").equal(name) & ~spans.where(kind="run")
        assert set(spans.number("rank")[mine].tolist()) == {rank}
        epochs = np.flatnonzero(mine & spans.where(kind="epoch", name="train"))
        steps = mine & spans.where(kind="step", pass_="timed") & np.isin(spans.number("parent"), epochs)
        assert steps.sum() == 12, "2 epochs of 42 images in batches of 8"
        assert (mine & spans.where(kind="epoch")).sum() == 5, "two of training, two of validation, the test"
    assert [node.node for node in run.info.target.nodes] == [first, other]
    assert run.info.target.spec == f"pipeline=cpu/1@nodes=2,timeout={LIMIT_S}", "wherever they met"
    assert {sample.node for sample in run.samples} == set(NAMES)
    assert run.info.target.same_machine == dict.fromkeys(NAMES, first)
    energy, training = summarise_energy(run), summarise_training(run)
    # Beside the load, a machine may have a counter of its own.
    loads = [device.name for device in energy.devices if "modelled energy" in device.counters] if energy else []
    assert loads == ["cpu"], "both read the same load"
    assert training is not None and len(training.epochs) == 2 and training.devices == 2
    assert is_that_of_one_process(run.directory / "weights.npz", data)
    modules = [module for rank in run.info.target.ranks for module in rank.modules]
    assert all(run.info.target.ranks[at].modules for at in (0, 1)) and len(set(modules)) == len(modules)
    assert not list((tmp_path / "checkpoints").glob("epoch-*")), "the run is kept: nothing is left to go on from"


def test_a_node_that_is_killed_ends_the_others(tmp_path: Path, playing: Callable[..., Any]) -> None:
    job = job_at(free_port(), steps=100_000)
    results = CONTEXT.Queue()
    processes = {}
    for name in NAMES:
        (tmp_path / name).mkdir()
        (tmp_path / name / JOB).write_bytes(msgspec.json.encode(job))
        (tmp_path / name / PLAN).write_bytes(msgspec.json.encode(make_plan(job, parse_target(job.on))))
        processes[name] = playing(node_cases.agent, name, tmp_path / name, results)
    limit = time.monotonic() + LIMIT_S
    while not all(list((tmp_path / name).glob("*.events")) for name in NAMES):
        assert time.monotonic() < limit and all(process.is_alive() for process in processes.values())
        time.sleep(0.05)
    assert (tmp_path / "left" / BEGUN).exists()
    processes["right"].kill()
    name, report = results.get(timeout=LIMIT_S)
    assert (name, report.cause) == ("left", "node right went away; the ranks of left were stopped")
    processes["right"].join()
    assert processes["right"].exitcode == -signal.SIGKILL
