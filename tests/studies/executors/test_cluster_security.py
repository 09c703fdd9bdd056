"""Who can reach a scheduler: the loopback alone unless asked otherwise; with certificates, only who has them."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

import psutil
import pytest

import cluster_work
from dask_nodes import Machinery
from fake_slurm import fake_slurm
from sonda.record.errors import SondaError
from sonda.studies.executors.choice import executor_for
from sonda.studies.executors.executor import ExecutorTask

pytestmark = pytest.mark.slow
dask = pytest.importorskip("dask", reason="Dask is not installed")
pytest.importorskip("distributed", reason="Dask is not installed")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate that is its own authority, of this hour."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make certificates")
    place = tmp_path_factory.mktemp("certificates")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
         "-subj", "/CN=sonda", "-keyout", str(place / "key.pem"), "-out", str(place / "cert.pem")],
        check=True, capture_output=True,
    )  # fmt: skip
    return place


def configured(place: Path) -> dict[str, str]:
    """Dask's own settings, as its file or environment would give them."""
    settings = {"distributed.comm.tls.ca-file": str(place / "cert.pem")}
    for role in ("client", "scheduler", "worker"):
        settings[f"distributed.comm.tls.{role}.cert"] = str(place / "cert.pem")
        settings[f"distributed.comm.tls.{role}.key"] = str(place / "key.pem")
    return settings


def listening() -> set[tuple[str, int]]:
    """Addresses and ports at which this process and those that it started listen."""
    found = set()
    own = psutil.Process()
    for process in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):  # one that has ended meanwhile
            found |= {(one.laddr.ip, one.laddr.port) for one in process.net_connections("inet")
                      if one.status == psutil.CONN_LISTEN}  # fmt: skip
    return found


def test_what_is_started_here_listens_on_the_loopback_alone_and_leaves_the_environment_as_it_was() -> None:
    before, environment = listening(), dict(os.environ)
    with executor_for(1, "local") as executor:
        assert [done.value for done in executor.run(cluster_work.square, [ExecutorTask(0, 3)])] == [9]
        started = listening() - before
        # Its nanny sets it here, for the worker.
        assert os.environ.get("MALLOC_TRIM_THRESHOLD_") == environment.get("MALLOC_TRIM_THRESHOLD_")
    assert started and {address for address, _ in started} == {"127.0.0.1"}
    assert dict(os.environ) == environment


def test_certificates_of_dask_are_used(certificates: Path, tmp_path: Path) -> None:
    words = ["--tls-ca-file", str(certificates / "cert.pem"), "--tls-cert", str(certificates / "cert.pem")]
    nodes = Machinery(tmp_path, [*words, "--tls-key", str(certificates / "key.pem"), "--protocol", "tls"])
    try:
        nodes.worker("one", "north")
        assert nodes.address.startswith("tls://")
        with pytest.raises(SondaError, match="asks for certificates, and Dask is configured with none"):
            with executor_for(cluster=nodes.address):
                pass
        with dask.config.set(configured(certificates)):
            nodes.wait_for_workers()
            with executor_for(cluster=nodes.address) as executor:
                assert [done.value for done in executor.run(cluster_work.square, [ExecutorTask(0, 3)])] == [9]
    finally:
        nodes.close()


def test_workers_of_a_queue_get_the_certificates(
    certificates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed")
    fake_slurm(tmp_path, monkeypatch)
    monkeypatch.chdir(tmp_path)
    with dask.config.set(configured(certificates)), executor_for(1, "slurm:host=127.0.0.1") as executor:
        assert [done.value for done in executor.run(cluster_work.square, [ExecutorTask(0, 3)])] == [9]
    (script,) = tmp_path.glob("job-*.sh")
    assert f"--tls-ca-file {certificates / 'cert.pem'}" in script.read_text()
    assert "tls://127.0.0.1:" in script.read_text()
