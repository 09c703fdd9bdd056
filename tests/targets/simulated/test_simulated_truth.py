"""What is shown of a simulated run is what happened: useful products, bytes in bursts, nothing ignored or empty."""

from __future__ import annotations

import copy
import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from plain_runs import run_info, target_of
from simulated_examples import CLOCKED, FINITE, LAYER, SMALL_LAYER, nested_run, run_of
from sonda.accelerators.description.accelerator import load_accelerator
from sonda.accelerators.description.settings import with_settings
from sonda.accelerators.designs.work import EngineWork
from sonda.accelerators.mapping.placement import Placed, Placement
from sonda.accelerators.memory.traffic import with_memory
from sonda.accelerators.operations.program import (
    Bags,
    Call,
    ConvolutionShape,
    MatrixProduct,
    ModelProgram,
    Operation,
    ZeroPattern,
)
from sonda.analysis.comparison.runs import compare
from sonda.analysis.run_rows import run_row
from sonda.analysis.run_summary import summarise
from sonda.analysis.simulated.findings import NoArea
from sonda.record.errors import SondaError
from sonda.record.run import Run
from sonda.record.store import Store
from sonda.report.blocks import Detail
from sonda.report.page import page_text
from sonda.report.screen import render
from sonda.report.trace.chrome import write_trace
from sonda.report.views.listing import runs_blocks, runs_in_pieces
from sonda.report.views.steps.view import StepsView
from sonda.studies.explore.exploration import explore
from sonda.targets.job import Job
from sonda.targets.pipeline import measure
from sonda.targets.simulated.launcher import simulate

BARE = load_accelerator("maeri-256")
"""Without a clock."""


def one_operation(operation: Operation) -> ModelProgram:
    return ModelProgram((Call("", "Linear", 0, -1, 0),), (operation,), ("forward",))


def dense_pattern(*shape: int) -> ZeroPattern:
    return ZeroPattern.from_array(np.ones(shape, bool))


def placed(name: str, operation: Operation) -> Placed:
    found = Placement(load_accelerator(name)).place_operation(operation)
    assert isinstance(found, Placed)
    return found


# ---- products ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["magma-128", "maeri-256", "tpu-16x16", "sigma-128"])
def test_filling_a_tile_up_is_not_work(name: str, tmp_path: Path) -> None:
    """129 -> 64, 64 samples: 64 x 64 x 129 products, whatever the tile is."""
    operation = Operation("linear", "addmm", 0, MatrixProduct(64, 64, 129), dense_pattern(1, 64, 129),
                          dense_pattern(1, 64, 129))  # fmt: skip
    accelerator = load_accelerator(name)
    run = run_of(simulate(one_operation(operation), Placement(accelerator), curious=False), accelerator, tmp_path)
    whole = summarise(run).parts[0].simulated
    assert whole is not None
    assert whole.multiplications.value == 528_384
    engine = next(iter(accelerator.engines.values()))
    assert whole.utilisation.value == pytest.approx(528_384 / (engine.elements * (whole.cycles.value or 0)))


def test_products_by_compressed_rows_are_entries_times_columns() -> None:
    weights = np.zeros((1, 5, 8), bool)
    weights[0, :3, :3] = True  # two rows have no entry at all
    found = placed("magma-128", Operation("linear", "addmm", 0, MatrixProduct(7, 5, 8), dense_pattern(1, 7, 8),
                                          ZeroPattern.from_array(weights)))  # fmt: skip
    assert found.mapping["rows"] == "weights by rows"
    assert found.products == 9 * 7
    assert found.result.multiplications > 9 * 7
    bags = Bags(np.array([3, 1]), np.array([4, 5, 5, 6]), 100, 10)
    assert placed("magma-128", Operation("embedding_bag", "_embedding_bag", 0, bags)).products == 4 * 10


def test_explicit_zeros_that_fill_a_bitmap_up_are_no_work() -> None:
    """Vectors of fewer than three ones are filled up to three: that is the machine's need, not the network's."""
    weights = np.zeros((1, 5, 8), bool)
    weights[0, :2, 0] = True
    found = placed("sigma-128", Operation("linear", "addmm", 0, MatrixProduct(7, 5, 8), dense_pattern(1, 7, 8),
                                          ZeroPattern.from_array(weights)))  # fmt: skip
    assert found.products == 2 * 7
    assert found.result.multiplications == 5 * 3 * 7
    bags = Bags(np.array([3, 1]), np.array([4, 5, 5, 6]), 100, 10)
    # The first bag has rows 4 and 5, the second row 6: three distinct entries, of ten columns each.
    assert placed("sigma-128", Operation("embedding_bag", "_embedding_bag", 0, bags)).products == 3 * 10


@settings(max_examples=40, deadline=None)
@given(
    some.integers(0, 1000), some.integers(1, 3), some.integers(1, 3), some.integers(1, 2), some.integers(0, 2),
    some.integers(1, 2), some.integers(1, 2),
)  # fmt: skip
def test_products_of_a_convolution_by_rows_are_counted_window_by_window(
    seed: int, high: int, wide: int, stride: int, padding: int, dilation: int, groups: int
) -> None:
    draws = np.random.RandomState(seed)
    shape = ConvolutionShape(high, wide, 2, 4, groups, 2, 7, 6, (stride, 1), (padding, 1), (1, dilation))
    inputs = draws.rand(2, 2, 7, 6) < 0.2
    found = placed(
        "magma-128",
        Operation("convolution", "convolution", 0, shape, ZeroPattern.from_array(inputs),
                  dense_pattern(4, 2 // groups, high, wide)),
    )  # fmt: skip
    assert found.mapping["rows"] == "inputs by rows"
    rows, columns = shape.outputs
    entries = 0
    for sample, channel, row, column, down, across in np.ndindex(2, 2, rows, columns, high, wide):
        x, y = row * stride + down - padding, column + across * dilation - 1
        entries += bool(0 <= x < 7 and 0 <= y < 6 and inputs[sample, channel, x, y])
    assert found.products == entries * (4 // groups)


# ---- bytes ---------------------------------------------------------------------------------------------------------


def test_shown_bytes_are_those_that_bursts_move(tmp_path: Path) -> None:
    """Two lookups of rows of 63 words that begin 4 bytes before the end of a burst: five bursts each, one of indices,
    and 252 bytes of results in four."""
    bags = Bags(np.array([2]), np.array([1, 17]), 100, 63)
    accelerator = with_settings(replace(load_accelerator("magma-128"), memory=FINITE.memory), "memory.buffer_KiB=1024")
    program = one_operation(Operation("embedding_bag", "_embedding_bag", 0, bags))
    placement = Placement(accelerator)
    summary = summarise(run_of(simulate(program, placement, curious=False), accelerator, tmp_path))
    whole = summary.parts[0].simulated
    assert whole is not None
    assert whole.traffic is not None
    assert whole.traffic.reads.value == 64 * 11
    assert whole.traffic.writes.value == 64 * 4
    counters = summary.parts[0].phases[0].counters
    assert counters["dram_wanted_bytes:simulated"].value == 4 * (2 * 63 + 2 + 63)
    hits, misses = (counters[f"row_{one}:simulated"].value or 0.0 for one in ("hits", "misses"))
    assert 64 * (hits + misses) == 64 * 15


@pytest.mark.parametrize("name", ["maeri-256", "magma-128"])
def test_exploring_counts_the_same_bytes(name: str) -> None:
    base = replace(load_accelerator(name), memory=FINITE.memory)
    bags = Bags(np.array([30, 5]), np.arange(35) * 7, 1000, 9)
    operations = {
        "maeri-256": Operation("linear", "addmm", 0, MatrixProduct(7, 33, 65)),
        "magma-128": Operation("embedding_bag", "_embedding_bag", 0, bags),
    }
    program = one_operation(operations[name])
    assert base.memory is not None
    memories = [replace(base.memory, buffer_bytes=size) for size in (64, 1024, 1 << 20)]
    work = EngineWork(program)
    (engine,) = base.engines.values()
    taken = work.work_on(base, engine, "", base.memory)
    assert not isinstance(taken, SondaError)
    found = work.work_traffic(taken, memories)
    for place, memory in enumerate(memories):
        accelerator = replace(base, memory=memory)
        (one,) = with_memory(Placement(accelerator).place(program), accelerator)
        assert isinstance(one, Placed)
        assert one.traffic is not None
        assert found.bytes[place] == one.traffic.moved_read_bytes + one.traffic.moved_write_bytes


# ---- nothing is ignored --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [{"steps": 5}, {"warmup": 1}, {"seconds": 2.0}, {"channels_last": True}, {"workers": 2}],
)
def test_settings_of_measuring_are_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    name = next(iter(changes)).replace("_", "-")
    with pytest.raises(SondaError, match=f"--{name} means nothing on sim:tpu-16x16"):
        measure(Job(workload="dlrm", on="sim:tpu-16x16", **changes), Store(tmp_path))


@pytest.mark.parametrize(("name", "given"), [("on", "sim:maeri-256"), ("mapping", "best")])
def test_what_is_given_does_not_vary_too(name: str, given: str, tmp_path: Path) -> None:
    job = Job(workload="dlrm", **{"on": "", name: given})
    with pytest.raises(SondaError, match=f"{name} is given as {given} and varies"):
        explore(job, {name: ("sim:magma-128" if name == "on" else "stonne",)}, Store(tmp_path))


# ---- runs of other versions ----------------------------------------------------------------------------------------


def test_a_key_that_a_stored_target_lacks_is_missing_or_the_run_is_damaged_but_no_crash(tmp_path: Path) -> None:
    run = nested_run(FINITE, tmp_path)
    target = msgspec.to_builtins(run.info.target)
    shown = []

    def paths(table: Any, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        if not isinstance(table, dict):
            return []
        return [one for key, value in table.items() for one in ((*before, key), *paths(value, (*before, key)))]

    tried = [path for path in paths(target) if path[0] != "mapping" and path != ("device",)]
    assert ("area", "engines") in tried
    for path in tried:
        lacking = copy.deepcopy(target)
        table = lacking
        for key in path[:-1]:
            table = table[key]
        del table[path[-1]]
        try:
            other = Run(tmp_path, msgspec.structs.replace(run.info, target=target_of(lacking)))
        except msgspec.ValidationError as error:
            assert f"`{path[-1]}`" in str(error)
            continue
        shown.append(path)
        other.__dict__["spans"] = run.spans
        summary = summarise(other)
        assert StepsView(summary).text(120, color=False, detail=Detail.ALL), path
        json.dumps(StepsView(summary).document())
        compare([run], [other])
    assert {("energy",), ("area",), ("area", "engines"), ("what_if",), ("description",)} <= {*shown}


def test_an_area_without_engines_says_why_it_is_missing(tmp_path: Path) -> None:
    run = nested_run(FINITE, tmp_path)
    lacking = copy.deepcopy(msgspec.to_builtins(run.info.target))
    del lacking["area"]["engines"]
    other = nested_run(FINITE, tmp_path, area=lacking["area"])
    assert NoArea("another version of Sonda kept the run, without it") in summarise(other).notes


# ---- without a clock, without an engine ----------------------------------------------------------------------------


def test_a_trace_without_a_clock_draws_cycles(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "trace.json.gz", nested_run(BARE, tmp_path))
    document = json.loads(gzip.decompress(path.read_bytes()))
    assert "cycles, one drawn as 1 ns" in document["otherData"]["times"]
    spans = [one for one in document["traceEvents"] if one["ph"] == "X"]
    drawn = [(one["name"], round(1000 * one["ts"]), round(1000 * one["dur"])) for one in spans if one["cat"] == "op"]
    whole = 2 * LAYER + SMALL_LAYER
    assert drawn[:2] == [("addmm", 0, LAYER), ("addmm", LAYER, LAYER)]
    assert ("mm", 2 * LAYER, SMALL_LAYER) in drawn
    assert ("relu", whole, 0) in drawn
    (step,) = (one for one in spans if one["cat"] == "step")
    assert (step["ts"], round(1000 * step["dur"])) == (0, whole)
    second = [one for one in spans if one["cat"] == "layer" and one["args"].get("path") == "block.layer"][1]
    assert round(1000 * second["ts"]) == LAYER
    assert not [one for one in document["traceEvents"] if one["ph"] == "C"]
    timed = json.loads(write_trace(tmp_path / "timed.json", nested_run(CLOCKED, tmp_path)).read_bytes())
    assert "times" not in timed["otherData"]


def test_a_page_of_runs_without_a_clock_draws_cycles(tmp_path: Path) -> None:
    runs = [nested_run(BARE, tmp_path, "aaaa1111aaaa"), nested_run(CLOCKED, tmp_path, "bbbb2222bbbb")]
    page = page_text([summarise(run) for run in runs], runs)
    assert "Cycles per step by phase" in page
    assert "Time per step by phase" not in page
    for run in runs:
        assert f"{run.id}\\nforward: {(2 * LAYER + SMALL_LAYER) / 1e3:.2f} kcycle, simulated" in page, "its bar's hint"


FOUND = {
    "axes": {}, "points": 12, "possible": 12, "impossible": [], "unpriced": [], "objectives": [], "best": {},
    "knee": -1, "on_host": [], "simulations": 12, "seconds": 1.0,
}  # fmt: skip


def explored(tmp_path: Path) -> Run:
    info = run_info(id="eeee3333eeee", created="2026-11-15T00:00:00", status="complete", workload={"name": "own"},
                   target={"spec": "sim:maeri-256", "device": "exploration",
                           "exploration": FOUND})  # fmt: skip
    return Run(tmp_path, info)


def test_listings_have_cycles_and_points(tmp_path: Path) -> None:
    run, points = nested_run(CLOCKED, tmp_path), explored(tmp_path)
    rows = [run_row(run.info, "abcd", (), summarise(run)), run_row(points.info, "eeee")]
    text = render(runs_blocks(rows), 120)
    assert f"{2 * LAYER + SMALL_LAYER:,} cycles" in text
    assert "12 points" in text
    first, second = (one["metrics"] for one in json.loads(b"".join(runs_in_pieces(rows, list)))["runs"])
    assert first["cycles:simulated"]["value"] == 2 * LAYER + SMALL_LAYER
    assert second["points:counted"]["value"] == 12


def test_an_exploration_is_neither_compared_nor_exported_as_a_run(tmp_path: Path) -> None:
    from sonda.accelerators.formats.stonne.export import export_run

    with pytest.raises(SondaError, match="eeee3333eeee is an exploration, which has points and no step"):
        compare([explored(tmp_path)], [nested_run(CLOCKED, tmp_path)])
    with pytest.raises(SondaError, match="is an exploration, which keeps no counters"):
        export_run(explored(tmp_path), tmp_path / "out")


def test_a_model_on_the_host_alone_is_one_sentence(tmp_path: Path) -> None:
    program = ModelProgram((Call("", "ReLU", 0, -1, 0),), (), (), {(0, "relu"): 1})
    run = run_of(simulate(program, Placement(CLOCKED), curious=False), CLOCKED, tmp_path)
    summary = summarise(run)
    text = StepsView(summary).text(120, color=False, detail=Detail.ALL)
    assert "no operation ran on an engine of maeri-256" in text
    assert "phase" not in text
    assert "<table" not in page_text([summary]).split("Where the numbers come from")[0].split("<main")[1]


# ---- the command line ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--repeat", "3"], "--repeat means nothing on a simulated accelerator"),
        (["--try"], "--try means nothing on a simulated accelerator"),
        (["--seconds", "10"], "--seconds means nothing on a simulated accelerator"),
        (["--channels-last"], "--channels-last means nothing on a simulated accelerator"),
    ],
)
def test_the_command_line_refuses_what_it_would_ignore(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from sonda import cli

    monkeypatch.setenv("SONDA_HOME", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["sonda", "run", "dlrm", "--on", "sim:dlrm-hybrid", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_no_name_lists_the_accelerators(tmp_path: Path) -> None:
    with pytest.raises(SondaError) as refused:
        measure(Job(workload="dlrm", on="sim:"), Store(tmp_path))
    assert "known: dlrm-hybrid," in str(refused.value)
    assert "tpu-16x16." in str(refused.value)
