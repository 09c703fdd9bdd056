"""A study of simulated runs on two workers makes the runs that one makes: ids, seeds and results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from sonda.record.errors import SondaError
from sonda.record.run import SPANS, Run
from sonda.record.store import Store
from sonda.studies import catalogue
from sonda.studies.catalogue import carry_out

FILE = """
[study]
name = "two-workers"
question = "Are they the same?"
metrics = ["cycles", "energy_uJ"]
[workload]
name = "dlrm"
on = "{on}"
threads = 1
[axes]
preset = ["5-1M-2-100", "5-1M-20-100"]
seed = [7]
"""


def facts(run: Run) -> dict[str, Any]:
    """All that a simulated run says but when it was made."""
    table = pq.read_table(run.directory / SPANS)
    steady = [name for name in table.column_names if name not in ("start", "duration")]
    info = run.info
    said = {"seed": info.seed, "point": info.point, "workload": info.workload, "notes": info.notes}
    return {"id": run.id, **said, "spans": table.select(steady).to_pydict()}


@pytest.mark.slow
def test_two_workers_make_the_runs_of_one(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(FILE.format(on="sim:dlrm-hybrid"))
    documents, found = [], []
    for workers in (0, 2):
        store = Store(tmp_path / str(workers))
        documents.append(carry_out(str(file), "", None, False, store, lambda _: None, workers=workers))
        found.append(sorted((facts(run) for run in store.runs()), key=lambda one: one["id"]))
    assert len(found[0]) == 2 and found[0] == found[1]
    assert {one["seed"] for one in found[1]} == {7}
    assert documents[0]["rows"] == documents[1]["rows"] and documents[1]["measured"] == 2
    cycles = [row["figures"]["cycles"]["value"] for row in documents[0]["rows"]]
    assert 0 < cycles[0] < cycles[1], "twenty samples take longer than two"


@pytest.mark.parametrize(
    ("on", "cluster"),
    [
        ("ddp=cpu/1@nodes=2", "local"),
        ("ddp=cpu/1@nodes=2", ""),
        ("ddp=cpu/1@nodes=2,at=a:1", "local"),
        ("ddp=cpu/1@at=a:1,nodes=2", "local"),
    ],
)
def test_a_training_over_nodes_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on: str, cluster: str
) -> None:
    """Also where other points of the study could be measured: nobody would compare the rest."""
    monkeypatch.setattr(catalogue, "executor_for", lambda *_: pytest.fail("workers are started"))
    monkeypatch.setattr(catalogue, "run_study", lambda *_, **__: pytest.fail("it is measured"))
    file = tmp_path / "study.toml"
    text = FILE.format(on="cpu").replace('"cycles", "energy_uJ"', '"step_ms"').replace('on = "cpu"\n', "train = true\n")
    file.write_text(text.replace('"dlrm"', '"mlp"').split("[axes]")[0] + f'[axes]\non = ["cpu", "{on}"]\n')
    with pytest.raises(SondaError) as refused:
        carry_out(str(file), "", None, False, Store(tmp_path), lambda _: None, cluster=cluster)
    assert refused.value.cause == f"study two-workers: {on} is one training over 2 nodes, which no study starts"
    where = cluster or "slurm:…"
    assert refused.value.remedy == f"measure it alone: sonda run … --on ddp=cpu/1@nodes=2 --on-cluster {where}"


def test_what_is_measured_is_not_shared_by_processes_of_one_machine(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(FILE.format(on="cpu").replace('"cycles", "energy_uJ"', '"step_ms"'))
    with pytest.raises(SondaError, match="2 measurements at once would disturb each other on this machine"):
        carry_out(str(file), "", None, False, Store(tmp_path), lambda _: None, workers=2)
