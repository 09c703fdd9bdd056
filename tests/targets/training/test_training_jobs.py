"""Trainings over nodes as jobs of a queue: submitted through submitit, which here starts processes of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

import node_cases
from places import SUPPORT
from record_examples import an_info, two_spans
from sonda.record.errors import SondaError
from sonda.record.files.partial import NODE
from sonda.record.run import Run, write_run
from sonda.record.store import Store
from sonda.studies.executors import training_jobs
from sonda.studies.executors.training_jobs import TrainingOrder, minutes_of, run_on_nodes, submit_training, train_here
from sonda.targets.job import Job
from sonda.targets.pipeline import RunLabels
from sonda.targets.ranks.agent import KeptElsewhereError
from sonda.version import VERSION
from warm_worker import server_socket

JOB = Job(workload="mlp", train=True, on="ddp=cpu/1@nodes=2")


def silent(text: str) -> None:
    """Say nothing."""


def refused(cluster: str, job: Job, root: Path) -> str:
    with pytest.raises(SondaError) as caught:
        submit_training(cluster)(job, Store(root), None, silent)
    return str(caught.value)


def test_what_cannot_be_submitted_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SondaError, match="--on-cluster 'tcp://here:1' starts no nodes for a training"):
        submit_training("tcp://here:1")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "submitit", None)
        lacking = "submitit is not installed; install it with: pip install 'sonda-profiler[cluster]'"
        assert refused("local", JOB, tmp_path) == lacking
    pytest.importorskip("submitit", reason="submitit is not installed")
    alone = msgspec.structs.replace(JOB, on="cpu")
    assert refused("local", alone, tmp_path).startswith("--on-cluster is for a training over nodes, not for cpu; write")
    met = msgspec.structs.replace(JOB, on="ddp=cpu/1@nodes=2,at=here:1")
    assert "the queue decides where nodes meet; leave out at=" in refused("local", met, tmp_path)
    strategy = msgspec.structs.replace(JOB, on="multiworker=cpu+cpu@nodes=2")
    assert refused("local", strategy, tmp_path).startswith("--on-cluster is for a training over nodes, not for multiw")
    monkeypatch.setattr(training_jobs, "run_on_nodes", lambda *_: pytest.fail("a queue is waited for"))
    twice = msgspec.structs.replace(JOB, on="pipeline=cpu/1@nodes=2,replicas=2")
    assert "'pipeline=cpu/1@nodes=2,replicas=2': 2 devices on 2 nodes are not 2 pip" in refused(
        "local", twice, tmp_path
    )
    other = msgspec.structs.replace(JOB, on="ddp=cuda:0@nodes=2", options={"batches": "8"})
    assert "batches" in refused("local", other, tmp_path), "not that this machine has no GPU"


@pytest.mark.parametrize(
    ("text", "minutes"),
    [("", 60), ("90", 90), ("90:00", 90), ("90:01", 91), ("01:30:00", 90), ("1-12", 2160), ("2-00:30", 2910),
     ("00:00:10", 1)],
)  # fmt: skip
def test_times_are_read_as_slurm_writes_them(text: str, minutes: int) -> None:
    assert minutes_of(text) == minutes


def test_a_time_that_is_none_is_refused() -> None:
    with pytest.raises(SondaError, match="time=soon is no time"):
        minutes_of("soon")


def test_slurm_is_asked_for_whole_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    submitit = pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refused("slurm:partition=short", JOB, tmp_path / "store").startswith(
        "there is no Slurm here: no command sba"
    )
    for name in ("sbatch", "srun"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    cluster = "slurm:partition=short,time=01:30:00,account=me,cores=8,memory=16GB,setup=source here"
    text = training_jobs._executor(submitit, 2, cluster, tmp_path / "job", 2)._make_submission_file_text("work", "1")
    wanted = {
        "--nodes=2", "--ntasks-per-node=1", "--exclusive", "--partition=short", "--time=90", "--account=me",
        "--cpus-per-task=8", "--mem=16GB", "--gpus-per-node=2",
    }  # fmt: skip
    assert wanted <= {line.removeprefix("#SBATCH ") for line in text.splitlines()}
    assert "source here" in text
    assert "host is for studies" in refused("slurm:host=here", JOB, tmp_path / "store")


def test_every_node_answers_and_they_meet_at_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("submitit")
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))
    answers = run_on_nodes(node_cases.answer, (str(tmp_path), ""), 2, "local", tmp_path, silent)
    assert [answer["number"] for answer in answers] == ["0", "1"]
    assert answers[0]["port"] == answers[1]["port"]


def test_a_node_that_is_killed_is_named_and_its_output_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    submitit = pytest.importorskip("submitit")
    # So long it waits for a result that a network's disk may show late.
    monkeypatch.setattr(submitit.core.core.Job, "_results_timeout_s", 1)
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))
    answers = run_on_nodes(node_cases.answer, (str(tmp_path), "1"), 2, "local", tmp_path, silent)
    assert answers[0]["number"] == "0"
    assert answers[1]["cause"].startswith("task 1 of job ") and "ended without a result" in answers[1]["cause"]
    assert answers[1]["remedy"] == f"see its output in {tmp_path}"


SITE = """
import warm_worker
import sonda.probes.ceilings.processor as ceilings

ceilings.load_or_measure = lambda *places, **settings: {{}}  # measured elsewhere, and takes seconds
warm_worker.use_server({server!r})
"""


@pytest.mark.slow
def test_a_command_trains_on_nodes_that_submitit_starts(tmp_path: Path) -> None:
    """Nothing stands aside: two tasks, their agents and ranks are processes that meet, and one run comes home. Agents
    are forked from a process that has PyTorch in memory."""
    pytest.importorskip("submitit")
    pytest.importorskip("torch")
    (tmp_path / "sitecustomize.py").write_text(SITE.format(server=server_socket()))
    (tmp_path / "temporary").mkdir()
    paths = [str(tmp_path), str(SUPPORT), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ, "SONDA_HOME": str(tmp_path / "store"), "TMPDIR": str(tmp_path / "temporary"),
        "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    environment.pop(NODE, None)  # each task has a name of its own
    on = "ddp=cpu/1@nodes=2,timeout=600"
    words = ["run", "mlp", "--train", "--steps", "3", "--warmup", "1", "--on", on, "--on-cluster", "local", "--json"]
    ended = subprocess.run(
        [sys.executable, "-m", "sonda", *words], capture_output=True, text=True, env=environment, timeout=800
    )
    assert ended.returncode == 0, ended.stderr
    store = Store(tmp_path / "store")
    (run,) = store.runs()
    assert run.info.target.spec == on, "wherever they met"
    names = [node.node for node in run.info.target.nodes]
    assert sorted(name.rpartition("-")[2] for name in names) == ["0", "1"], "whichever was at their place first"
    spans = run.spans
    for rank, name in enumerate(names):
        steps = spans.where(kind="step", pass_="timed") & spans.words("node").equal(name)
        assert steps.sum() == 3 and set(spans.number("rank")[steps].tolist()) == {rank}
    assert not (store.root / "jobs").exists()
    left = [path.name for path in (tmp_path / "temporary").iterdir()]
    assert not [name for name in left if name.startswith("torchelastic_")], left
    assert not Store(tmp_path / "temporary" / f"sonda-node-{os.getuid()}").directories(), "the run has come home"


# ---- on a node --------------------------------------------------------------------------------------------------


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The first of two nodes; what `measured` gives or raises is its measurement, `asked` the jobs it was given."""
    state: dict[str, Any] = {"asked": []}
    (tmp_path / "disk").mkdir()
    environment = SimpleNamespace(global_rank=0, num_nodes=2, hostname="one", hostnames=["one", "two"])
    monkeypatch.setitem(sys.modules, "submitit", SimpleNamespace(JobEnvironment=lambda: environment))
    monkeypatch.setattr(training_jobs.tempfile, "gettempdir", lambda: str(tmp_path / "disk"))

    def measured(job: Job, store: Store, place: RunLabels, say: Any) -> Run:
        state["asked"].append((job, place))
        if isinstance(state.get("raises"), SondaError):
            raise state["raises"]
        return write_run(store.root, an_info(), two_spans())

    monkeypatch.setattr(training_jobs, "measure", measured)
    return state


def order(**more: Any) -> bytes:
    return msgspec.json.encode(TrainingOrder(JOB, {"group": "ab12"}, **more))


def test_the_first_node_leaves_the_run_where_it_is_fetched(tmp_path: Path, node: dict[str, Any]) -> None:
    found = train_here(str(tmp_path), order())
    ((job, place),) = node["asked"]
    assert job.on == f"ddp=cpu/1@nodes=2,at=one:{(tmp_path / 'port').read_text()}"
    assert place == RunLabels(group="ab12")
    home = Store(tmp_path / "home")
    run = home.adopt(found["run"], {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()})
    assert len(run.spans) == 2
    assert not list((tmp_path / "disk").glob("*/2*")), "nothing stays on the node"


def test_other_nodes_and_failures_are_answers_too(tmp_path: Path, node: dict[str, Any]) -> None:
    node["raises"] = KeptElsewhereError("ab12", "one")
    assert train_here(str(tmp_path), order()) == {"elsewhere": "run ab12 of all nodes is kept on node one"}
    node["raises"] = SondaError("there is no cuda:0", "use cpu")
    assert train_here(str(tmp_path), order()) == {"cause": "there is no cuda:0", "remedy": "use cpu"}
    said = train_here(str(tmp_path), order(version="0.0"))
    assert said["cause"] == f"one has Sonda {VERSION}, and the job was submitted by 0.0"


def test_a_job_without_a_run_is_said_and_one_that_is_seen_late_is_waited_for(
    tmp_path: Path, node: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [{"elsewhere": "run ab12 of all nodes is kept on node one"}]
    monkeypatch.setattr(training_jobs, "run_on_nodes", lambda *_: answers)
    assert refused("local", JOB, tmp_path / "home").startswith("no node of the job has a run, nor says why; see their ")
    folder = tmp_path / "job"
    folder.mkdir()
    monkeypatch.setattr(training_jobs, "SEEN_S", 0)
    monkeypatch.setattr(training_jobs, "POLL_S", 0)
    with pytest.raises(SondaError, match="is not seen here; give the store a place that all nodes see"):
        training_jobs._bring_home("some", folder, Store(tmp_path / "home"))
    monkeypatch.setattr(training_jobs, "SEEN_S", 600)
    run = write_run(tmp_path / "disk", an_info(), two_spans())
    monkeypatch.setattr(training_jobs, "sleep", lambda seconds: training_jobs._leave_run(run, folder / "run"))
    assert len(training_jobs._bring_home(run.directory.name, folder, Store(tmp_path / "home")).spans) == 2


def test_the_run_comes_home(tmp_path: Path, node: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue stands aside: every node does its work here, one after the other."""

    def here(
        work: Any, arguments: Any, nodes: int, cluster: str, folder: Path, say: Any, gpus: int
    ) -> list[dict[str, str]]:
        folder.mkdir(parents=True)
        first = work(*arguments)
        node["raises"] = KeptElsewhereError("ab12", "one")
        return [work(*arguments), first]

    monkeypatch.setattr(training_jobs, "run_on_nodes", here)
    store = Store(tmp_path / "home")
    job = msgspec.structs.replace(JOB, epochs=2)
    run = submit_training("local")(job, store, None, silent)
    assert [path.name for path in store.directories()] == [run.directory.name]
    assert not (store.root / "jobs").exists()
    kept = {Path(job.checkpoint).parent for job, _ in node["asked"]}
    assert kept == {(store.root / "checkpoints").resolve()}, "where all nodes, and the next attempt, find them"


def test_submitting_closes_no_handler_of_others() -> None:
    """submitit sets logging up anew when it is imported; a handler such as absl's closes the stream that it has."""
    pytest.importorskip("submitit")
    program = (
        "import io, logging\n"
        "class Closing(logging.StreamHandler):\n"
        "    def close(self):\n"
        "        self.stream.close()\n"
        "        super().close()\n"
        "handler = Closing(io.StringIO())\n"
        "from sonda.studies.executors.training_jobs import _submitit\n"
        "_submitit()\n"
        "print(handler.stream.closed)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("False\n", 0), done.stderr
