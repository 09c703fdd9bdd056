"""A study of simulated runs on two workers makes the runs that one makes: ids, seeds and results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from sonda.record.errors import SondaError
from sonda.record.run import SPANS, Run
from sonda.record.store import Store
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


def test_what_is_measured_is_not_shared_by_processes_of_one_machine(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(FILE.format(on="cpu").replace('"cycles", "energy_uJ"', '"step_ms"'))
    for workers, said in ((2, "2 measurements at once would disturb each other on this machine"), (-1, "is too small")):
        with pytest.raises(SondaError, match=said):
            carry_out(str(file), "", None, False, Store(tmp_path), lambda _: None, workers=workers)
