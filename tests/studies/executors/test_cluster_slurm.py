"""What is sent to Slurm: scripts that a stand-in for it takes and runs as real processes. There is no Slurm here."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import cluster_work
import node_cases
from fake_slurm import directives, fake_slurm
from sonda.record.errors import SondaError
from sonda.studies.executors.choice import executor_for
from sonda.studies.executors.executor import ExecutorTask
from sonda.studies.executors.slurm import settings_of
from sonda.studies.executors.training_jobs import run_on_nodes

pytestmark = pytest.mark.slow


def test_workers_that_a_queue_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed")
    fake_slurm(tmp_path, monkeypatch)
    monkeypatch.chdir(tmp_path)
    asked = "slurm:partition=short,account=me,time=00:10:00,memory=3GB,constraint=avx512,setup=export SAID=yes"
    with executor_for(1, f"{asked},host=127.0.0.1", exclusive=True) as executor:
        tasks = [ExecutorTask(number, number) for number in (3, 4)]
        assert sorted(done.value for done in executor.run(cluster_work.square, tasks)) == [9, 16]
    (script,) = tmp_path.glob("job-*.sh")
    wanted = {"-p short", "-A me", "-t 00:10:00", "-n 1", "--cpus-per-task=1", "--mem=3G", "--exclusive"}
    assert wanted | {"--constraint=avx512"} <= directives(script)
    assert "export SAID=yes" in script.read_text().splitlines()
    assert "tcp://127.0.0.1:" in script.read_text() and "--tls" not in script.read_text()


def test_a_job_on_two_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """submitit's script, its two tasks, and what they answer."""
    pytest.importorskip("submitit", reason="submitit is not installed")
    fake_slurm(tmp_path, monkeypatch)
    cluster = "slurm:partition=short,time=01:30:00,account=me,cores=8,memory=16GB,setup=export SAID=yes"
    said: list[str] = []
    answers = run_on_nodes(node_cases.answer, (str(tmp_path), ""), 2, cluster, tmp_path / "jobs", said.append, gpus=2)
    assert [answer["number"] for answer in answers] == ["0", "1"]
    assert answers[0]["port"] == answers[1]["port"]
    assert said[0].startswith("job 4242 for 2 nodes: ")
    wanted = {"--partition=short", "--account=me", "--time=90", "--nodes=2", "--ntasks-per-node=1", "--exclusive"}
    assert wanted | {"--cpus-per-task=8", "--mem=16GB", "--gpus-per-node=2"} <= directives(tmp_path / "job-4242.sh")


def test_what_the_queue_refuses_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("submitit", reason="submitit is not installed")
    fake_slurm(tmp_path, monkeypatch)
    (tmp_path / "sbatch").write_text(
        "#!/bin/sh\necho 'sbatch: error: invalid partition specified: short' >&2\nexit 1\n"
    )
    with pytest.raises(SondaError, match="invalid partition specified: short"):
        run_on_nodes(node_cases.answer, (str(tmp_path), ""), 2, "slurm:partition=short", tmp_path / "jobs", str)


def test_a_study_that_the_queue_refuses_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed")
    fake_slurm(tmp_path, monkeypatch)
    (tmp_path / "sbatch").write_text("#!/bin/sh\necho 'sbatch: error: invalid partition specified: nope' >&2\nexit 1\n")
    with pytest.raises(SondaError, match="Slurm refuses the job: sbatch: error: invalid partition specified: nope; "):
        with executor_for(1, "slurm:partition=nope,host=127.0.0.1"):
            pass


def test_the_stand_in_refuses_what_slurm_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_slurm(tmp_path, monkeypatch)
    (tmp_path / "wrong.sh").write_text("#!/bin/sh\n#SBATCH --nodse=2\n")
    done = subprocess.run(["sbatch", str(tmp_path / "wrong.sh")], capture_output=True, text=True)
    assert done.returncode == 1 and "unrecognized option '--nodse=2'" in done.stderr


@pytest.mark.parametrize(("text", "words"), [("cores=eight", "cores=eight"), ("memory=lots", "memory=lots")])
def test_settings_that_are_no_numbers(text: str, words: str) -> None:
    with pytest.raises(SondaError, match=f"--on-cluster {words} is no"):
        settings_of(f"slurm:{text}")
