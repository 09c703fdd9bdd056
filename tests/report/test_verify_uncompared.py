"""What a reference file holds beyond what is compared is named, so that nobody takes it for checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from places import DATA
from sonda.accelerators.formats.stonne.verification import verify_stonne
from sonda.report.screen import render
from sonda.report.views.verification import stonne_blocks

GOLDEN = DATA / "stonne" / "golden.json"


@pytest.fixture(scope="module")
def run() -> dict[str, Any]:
    """The first reference run: a small dense product."""
    found: dict[str, Any] = json.loads(GOLDEN.read_bytes())[0]
    return found


def verified(place: Path, *runs: dict[str, Any]) -> Any:
    (place / "runs.json").write_text(json.dumps(runs))
    return verify_stonne(place / "runs.json")


def test_results_without_a_counterpart_are_named_with_their_runs(tmp_path: Path, run: dict[str, Any]) -> None:
    ports = {key: value for key, value in run.items() if key != "energy"}
    report = verified(tmp_path, run, ports, {**run, "status": "timeout"})
    memory = {"Dataflow", "STA_sparsity", "STR_sparsity", "STA_vectors_at_once_avg", "STA_vectors_at_once_max",
              "N_reconfigurations"}  # fmt: skip
    assert report.not_compared == {
        "energy": 1, "sdmemory_ports": 2, **{f"sdmemory.{name}": 2 for name in memory},
    }  # fmt: skip
    assert report.exact == 2
    text = " ".join(render(stonne_blocks(report.to_document()), 200, False).split())
    assert "not compared: " in text and "sdmemory_ports (2 runs)" in text and "energy (1 run)" in text


def test_a_new_result_of_another_reference_is_not_passed_over(tmp_path: Path, run: dict[str, Any]) -> None:
    report = verified(tmp_path, {**run, "stalls": 12})
    assert report.not_compared["stalls"] == 1


def test_the_cycles_of_the_memory_are_compared_too(tmp_path: Path, run: dict[str, Any]) -> None:
    changed = {**run, "sdmemory": {**run["sdmemory"], "Total_cycles": run["cycles"] + 1}}
    report = verified(tmp_path, changed)
    assert [(one.what, one.expected, one.found) for one in report.differences] == [
        ("memory.total_cycles", run["cycles"] + 1, run["cycles"])
    ]


def test_nothing_is_said_where_everything_is_compared(tmp_path: Path, run: dict[str, Any]) -> None:
    bare = {key: run[key] for key in ("id", "mode", "config", "dims", "tile", "status", "cycles", "counters")}
    report = verified(tmp_path, bare)
    assert report.not_compared == {}
    assert "not compared" not in render(stonne_blocks(report.to_document()), 200, False)
