"""Exploring: every point of a grid is what a run of its own would give, and the front is what no point beats."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sonda
from sonda.accelerators.description.accelerator import load_accelerator
from sonda.accelerators.description.settings import with_settings
from sonda.accelerators.designs.work import EngineWork
from sonda.accelerators.mapping.placement import Placed, Placement
from sonda.accelerators.memory.hierarchy import Memory
from sonda.accelerators.memory.traffic import Memories, Movement, stalls_of
from sonda.accelerators.operations.program import Bags, Call, ModelProgram, Operation
from sonda.analysis.simulated.exploration import explored
from sonda.record.errors import SondaError
from sonda.record.run import Run
from sonda.record.store import Store
from sonda.record.stored import plain
from sonda.studies.explore.exploration import explore
from sonda.studies.explore.space import parse_space
from sonda.targets.job import Job
from sonda.targets.pipeline import measure
from sonda.targets.simulated.design_space import explore as explore_grid
from sonda.targets.simulated.design_space import values_by_field
from sonda.targets.simulated.program import make_program

DLRM = {"arch-embedding-size": "1000-300", "batch": "8", "num-indices-per-lookup": "5"}
MEMORY = "clock_GHz=1 memory.dram=ddr4-2400"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs")


def dlrm(**changes: Any) -> Job:
    return Job(workload="dlrm", options=DLRM, **{"on": "", **changes})


def rows(run: Run) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = run.points.to_pylist()
    return found


# ---- waiting for memory ------------------------------------------------------------------------------------------

SIZES = st.integers(0, 10**7)
MOVEMENTS = st.builds(
    lambda reads, writes, accesses, misses, first, last, starts: Movement(
        reads, writes, accesses, min(misses, accesses), first, last, starts, 0, 0
    ),
    SIZES, SIZES, SIZES, SIZES, SIZES, SIZES, st.integers(1, 9),
)  # fmt: skip
TIMES = st.tuples(
    st.floats(1e-3, 1e4), st.integers(0, 10**4), st.integers(0, 10**4), st.integers(1, 64)
)  # fmt: skip


def waited(moved: Movement, cycles: int, memory: Memory) -> int:
    """One memory and one operation, in plain numbers."""

    def alone(size: int, ports: int) -> float:
        moving = max(0.0, size / memory.bytes_per_cycle - size / (memory.element_bytes * ports))
        return moving + -(-size // memory.row_bytes) * memory.row_miss_cycles / memory.banks

    fillings = -(-moved.reads // memory.resident_bytes)
    moving = moved.accesses * memory.burst_bytes / memory.bytes_per_cycle
    busy = fillings * memory.latency_cycles + (moving + moved.row_misses * memory.row_miss_cycles / memory.banks)
    if not memory.double_buffering:
        return math.ceil(busy)
    around = min(fillings, 1) * memory.latency_cycles + alone(moved.first, 128) + alone(moved.last, 128)
    if moved.starts > 1 and moved.first > memory.resident_bytes:
        around += (moved.starts - 1) * alone(moved.first - memory.resident_bytes, 128)
    return math.ceil(max(min(around, busy), busy - cycles))


@settings(deadline=None)
@given(
    st.lists(st.tuples(MOVEMENTS, SIZES), min_size=1, max_size=5),
    st.lists(TIMES, min_size=1, max_size=5),
    st.integers(1, 1 << 24),
    st.booleans(),
)
def test_many_memories_wait_as_one_by_one(
    work: list[tuple[Movement, int]], times: list[tuple[float, int, int, int]], buffer: int, double: bool
) -> None:
    engine = load_accelerator("maeri-256").engines["maeri"]
    memories = [Memory(buffer, speed, latency, 1024, miss, 4, double, "", 64, banks)
                for speed, latency, miss, banks in times]  # fmt: skip
    together = Movement(
        *(np.array(column)[:, None] for column in zip(*(movement for movement, _ in work), strict=True))
    )
    found = stalls_of(engine, together, np.array([[cycles] for _, cycles in work]), Memories(memories))
    expected = [[waited(movement, cycles, memory) for memory in memories] for movement, cycles in work]
    assert found.tolist() == expected


# ---- many tables at once -----------------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 40), min_size=1, max_size=6), st.integers(1, 70), st.integers(50, 9000)),
        min_size=1, max_size=5,
    ),
    st.sampled_from(["", "multipliers=16 read_ports=4 write_ports=2", "read_ports=16", "tile.T_N=3 tile.T_K=5"]),
    st.sampled_from(["", "stonne"]),
)  # fmt: skip
def test_many_tables_at_once_are_those_one_by_one(
    tables: list[tuple[list[int], int, int]], changes: str, mapping: str
) -> None:
    hybrid = with_settings(load_accelerator("dlrm-hybrid"), " ".join(f"embeddings.{one}" for one in changes.split()))
    bags = [Bags(np.array(sizes), np.arange(sum(sizes)) % rows_, rows_, columns) for sizes, columns, rows_ in tables]
    operations = [Operation("embedding_bag", "bag", -1, one) for one in bags]
    together = Placement(hybrid, mapping).place(ModelProgram((), tuple(operations), ("forward",) * len(operations)))
    one_by_one = Placement(hybrid, mapping)
    assert together == [one_by_one.place_operation(one) for one in operations]
    engine = hybrid.engines["embeddings"]
    chosen = engine.simulator.choose_many(engine, operations, mapping == "")
    assert [chosen[one].result for one in operations] == [one.result for one in together]


def test_bags_that_cannot_be_are_told_one_by_one(store: Store) -> None:
    """100 columns of two entries each are more than 128 multipliers; which table it was is said."""
    engine = load_accelerator("dlrm-hybrid").engines["embeddings"]
    small = replace(engine, tile={"T_N": 100, "T_K": 2})
    operation = Operation("embedding_bag", "bag", -1, Bags(np.array([3]), np.arange(3), 50, 200))
    with pytest.raises(SondaError, match="does not fit multipliers = 128"):
        small.simulator.choose_many(small, [operation], given=True)
    work = EngineWork(
        ModelProgram((Call("table", "EmbeddingBag", 0, -1, 0),), (replace(operation, caller=0),), ("forward",))
    )
    work.prepare(load_accelerator("dlrm-hybrid"), [small], "")
    found = work.work_on(load_accelerator("dlrm-hybrid"), small, "", None)
    assert isinstance(found, SondaError)
    assert found.cause.startswith("table (bag) on embeddings: T_N x T_K = 100 x 2 does not fit")


# ---- points ------------------------------------------------------------------------------------------------------


def totals(run: Run) -> tuple[int, int, dict[str, float] | None]:
    """Cycles, those spent waiting, and energy of a run of its own."""
    spans = run.spans
    steps = spans.where(kind="step")
    cycles = spans.metric("cycles", "simulated")[steps].sum()
    waiting = np.nansum(spans.metric("memory_cycles", "simulated")[steps])
    total = run.info.target.energy.total
    return int(cycles), int(waiting), plain(total) if total is not None else None


GRIDS: dict[str, tuple[Job, list[str]]] = {
    "engines apart": (
        dlrm(set="perceptrons.dn_bw=8"),
        ["perceptrons.multipliers=8..64*2", "embeddings.dn_bw=4,16", "rn_bw=8,16"],
    ),
    "engines together": (dlrm(set="clock_GHz=0.5"), ["multipliers=64,128,256", "dn_bw=16,128", "rn_bw=64"]),
    "memory": (
        dlrm(set=MEMORY),
        ["memory.buffer_KiB=1,16,1024", "memory.bytes_per_cycle=1,32", "dn_bw=16,128",
         "memory.double_buffering=true,false"],
    ),
    "clock, table and routes": (
        dlrm(set="memory.buffer_KiB=64 memory.dram=hbm2"),
        ["clock_GHz=0.5,1", "energy_table=45nm,7nm", "route.gemm=host,perceptrons", "multipliers=128,256"],
    ),
    "mappings": (
        dlrm(set=f"{MEMORY} memory.bytes_per_cycle=2"),
        ["mapping=default,stonne,best", "memory.buffer_KiB=2,256", "perceptrons.dn_bw=16,64"],
    ),
    "tiles": (dlrm(), ["perceptrons.tile.T_N=1,4,64", "embeddings.tile.T_K=1,2,8,256", "perceptrons.tile.T_M=1,2"]),
    "a mesh in step": (
        dlrm(on="sim:dlrm-hybrid-tpu"),
        ["rows,columns,perceptrons.read_ports=4:4:8,8:24:16,16:16:32,8:8:3", "embeddings.dn_bw,rn_bw=16:32,128:64"],
    ),
    "engine and memory in step": (
        dlrm(set=MEMORY),
        ["perceptrons.dn_bw,memory.buffer_KiB=8:64,16:1,64:2", "clock_GHz,memory.bytes_per_cycle=0.5:8,1:16"],
    ),
    "accelerators": (dlrm(), ["on=sim:dlrm-hybrid,sim:maeri-256,sim:tpu-16x16", "read_ports=32,16"]),
}  # fmt: skip


@pytest.mark.parametrize("name", GRIDS)
def test_points_are_those_of_runs_of_their_own(name: str, store: Store) -> None:
    job, vary = GRIDS[name]
    space = parse_space(vary)
    all_points = rows(explore(job, space, store))
    assert len(all_points) == math.prod(map(len, space.values()))
    sample = random.Random(7).sample(all_points, min(8, len(all_points)))
    impossible = 0
    for point in sample:
        given_here = {field: str(point[field]) for field in values_by_field(space) if field not in ("on", "mapping")}
        varied = " ".join(f"{key}={value}" for key, value in given_here.items())
        # What varies wins over what is fixed.
        held = " ".join(one for one in job.set.split() if one.partition("=")[0] not in given_here)
        mapping = str(point.get("mapping", "")).replace("default", "")
        alone = Job(workload="dlrm", options=DLRM, on=point["on"], set=f"{held} {varied}", mapping=mapping)
        try:
            run = measure(alone, store)
        except SondaError as error:
            impossible += 1
            assert point["impossible"] in str(error).replace("set: ", "")
            assert point["cycles:simulated"] is None
            continue
        cycles, waiting, energy = totals(run)
        assert point["impossible"] is None
        assert (point["cycles:simulated"], point["memory_cycles:simulated"]) == (cycles, waiting)
        assert energy is not None
        for figure, column in (("value", "energy"), ("low", "energy_low"), ("high", "energy_high")):
            assert point[f"{column}:simulated"] == pytest.approx(energy[figure], rel=1e-12)
        together = run.info.target.area.together.value
        assert point["area:simulated"] == (None if together is None else pytest.approx(together, rel=1e-12))
    assert impossible < len(sample)


def test_rows_come_in_the_order_of_targets_and_axes(store: Store) -> None:
    space = parse_space(["rn_bw=8,4", "on=sim:maeri-256,sim:dlrm-hybrid", "multipliers=16,8"])
    found = rows(explore(Job(workload="dlrm", options=DLRM, on="", set="dn_bw=8"), space, store))
    expected = list(itertools.product(["sim:maeri-256", "sim:dlrm-hybrid"], [8, 4], [16, 8]))
    assert [(point["on"], point["rn_bw"], point["multipliers"]) for point in found] == expected


def test_the_same_exploration_gives_the_same_rows(store: Store) -> None:
    space = parse_space(["multipliers=64..512*2", "dn_bw=16,64", "mapping=stonne,best"])
    first, second = (explore(dlrm(), space, store).points for _ in range(2))
    assert first.equals(second)


def test_impossible_points_are_counted_by_reason(store: Store) -> None:
    """Ports beyond multipliers: (16, 32), (16, 64) and (32, 64) of reads; those of writes are all 16."""
    space = parse_space(["multipliers=16,32,64", "read_ports=16,32,64"])
    run = explore(dlrm(on="sim:maeri-256", set="write_ports=16"), space, store)
    found = explored(run)
    assert (found.points, found.possible) == (9, 6)
    (group,) = found.impossible
    assert (group.reason, group.points) == ("maeri.read_ports = N is more than multipliers = N", 3)
    why = [point["impossible"] for point in rows(run)]
    assert [reason is not None for reason in why] == [False, True, True, False, False, True, False, False, False]
    assert why[5] == "maeri.read_ports = 64 is more than multipliers = 32; give at most 32"


def test_a_buffer_that_the_table_does_not_know_has_cycles_and_no_energy(store: Store) -> None:
    run = explore(dlrm(set=MEMORY), parse_space(["memory.buffer_KiB=64,1048576"]), store)
    known, unknown = rows(run)
    assert known["energy:simulated"] is not None
    assert unknown["cycles:simulated"] is not None
    assert unknown["energy:simulated"] is None
    assert unknown["area:simulated"] is None
    assert "knows buffers of up to" in unknown["unpriced"]
    assert (known["front"], unknown["front"]) == (True, False)


def test_a_table_without_areas_is_not_compared_with_one_that_has_them(store: Store) -> None:
    found = explored(explore(dlrm(), parse_space(["energy_table=45nm,7nm", "multipliers=128,256"]), store))
    (group,) = found.unpriced
    assert (group.points, group.reason) == (2, "the energy table has no area for anything there")
    assert {point.settings["energy_table"] for point in found.front} == {"45nm"}


def test_a_field_that_a_target_does_not_have_is_taken_once(store: Store) -> None:
    space = parse_space(["on=sim:maeri-256,sim:tpu-16x16", "multipliers=128,256,512"])
    run = explore(Job(workload="dlrm", options=DLRM, on=""), space, store)
    assert [point["multipliers"] for point in rows(run)] == [128, 256, 512, None]
    assert any("sim:tpu-16x16 does not have multipliers" in note for note in run.info.notes)


def test_points_that_leave_more_to_the_host_do_not_win(store: Store) -> None:
    """maeri-256 has no engine for bags, so it does less; the hybrid leaves the interaction to the host."""
    run = explore(dlrm(), parse_space(["on=sim:dlrm-hybrid,sim:maeri-256"]), store)
    hybrid, maeri = rows(run)
    assert (hybrid["on_host"], maeri["on_host"]) == ("gemm 1", "embedding_bag 2")
    assert maeri["area:simulated"] < hybrid["area:simulated"]
    assert hybrid["front"]
    assert maeri["front"]
    assert explored(run).best["area"].settings["on"] == "sim:dlrm-hybrid"


def test_a_searched_mapping_is_never_slower(store: Store) -> None:
    space = parse_space(["mapping=stonne,best", "perceptrons.multipliers=128,512", "memory.buffer_KiB=1,64"])
    points = rows(explore(dlrm(set=MEMORY), space, store))
    half = len(points) // 2
    for ruled, searched in zip(points[:half], points[half:], strict=True):
        assert searched["cycles:simulated"] <= ruled["cycles:simulated"]


def test_designs_are_simulated_once_whatever_else_varies() -> None:
    """Two designs of one engine with 5 layers, three of the other with 2 tables: 16, and memories add none."""
    job = dlrm()
    work = EngineWork(make_program(job, frozenset()))
    layers = {one.shape for one in make_program(job, frozenset()).operations if one.kind == "linear"}
    fixed = dict(one.split("=") for one in MEMORY.split())
    axes = {"perceptrons.rn_bw": ("8", "16"), "embeddings.dn_bw": ("16", "32", "64"),
            "memory.buffer_KiB": ("1", "2", "4"), "clock_GHz": ("1", "2")}  # fmt: skip
    points = explore_grid(work, load_accelerator("dlrm-hybrid"), axes, fixed=fixed)
    assert len(points.cycles) == 2 * 3 * 3 * 2
    assert work.simulations == 2 * len(layers) + 3 * 2


@pytest.mark.parametrize("name", ["maeri-256", "sigma-128"])
def test_a_captured_model_is_explored_with_its_shapes_and_zeros(name: str, store: Store) -> None:
    job = Job(workload="mlp", options={"layers": "64-32-16", "batch": "4"}, on=f"sim:{name}", threads=1)
    found = rows(explore(job, parse_space(["multipliers=128,256"]), store))
    for point, multipliers in zip(found, (128, 256), strict=True):
        placement = Placement(with_settings(load_accelerator(name), f"multipliers={multipliers}"))
        placed = placement.place(make_program(job, placement.patterns()))
        assert point["cycles:simulated"] == sum(one.cycles for one in placed if isinstance(one, Placed))


def refused(said: str, act: Callable[[], Any]) -> None:
    with pytest.raises(SondaError) as caught:
        act()
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("vary", "changes", "said"),
    [
        ([], {}, "nothing varies; give for example --vary"),
        (["multiplers=64"], {}, "setting 'multiplers' is unknown; did you mean 'multipliers'?"),
        (["multipliers=64"], {"set": "clock=1"}, "setting 'clock' is unknown"),
        (["multipliers=64"], {"on": "cpu"}, "cpu is not a simulated accelerator"),
        (["multipliers=64"], {"on": "sim:maerl-256"}, "accelerator 'maerl-256' is unknown; did you mean 'maeri-256'?"),
        (["on=sim:maeri-256,cpu/2", "multipliers=64"], {}, "cpu/2 is not a simulated accelerator"),
        (["mapping=fastest"], {}, "mapping 'fastest' is unknown"),
        (["multipliers=64"], {"mapping": "fastest"}, "mapping 'fastest' is unknown"),
        (["multipliers=64,128", "ms_size=256"], {}, "'multipliers' and 'ms_size' vary the same field"),
        (["multipliers=3,5"], {}, "no point is possible: perceptrons.multipliers = 3 is not a power of two"),
        (["memory.buffer_KiB=64"], {}, "no point is possible: memory.bytes_per_cycle: missing"),
        (["multipliers=64"], {"train": True}, "only inference in float32 can be explored"),
        (["energy_table=45nm,stonne"], {}, "do not count in the same units"),
        (["multipliers=64"], {"workload": "dlrn"}, "there is no workload 'dlrn'"),
        (["multipliers=64"], {"options": {"bach": "3"}}, "bach"),
    ],
)
def test_what_cannot_be_explored_is_said_in_one_line(
    vary: list[str], changes: dict[str, Any], said: str, store: Store
) -> None:
    job = Job(**{"workload": "dlrm", "options": DLRM, "on": "", **changes})
    refused(said, lambda: explore(job, parse_space(vary), store))
    assert store.directories() == []


def test_a_wrong_tag_is_refused_before_anything_is_simulated(store: Store) -> None:
    refused("cannot be a tag", lambda: explore(dlrm(), parse_space(["multipliers=64"]), store, ["a b"]))


def test_a_model_that_fails_is_one_line(tmp_path: Path, store: Store) -> None:
    (tmp_path / "model.py").write_text("def broken():\n    raise ValueError('no weights here')\n")
    job = Job(workload=f"{tmp_path / 'model.py'}:broken", options={"input": "1x4"}, on="sim:maeri-256")
    refused("no weights here", lambda: explore(job, parse_space(["multipliers=64"]), store))


def test_python_explores_as_the_command_line_does(store: Store) -> None:
    run = sonda.explore("dlrm", {"multipliers": "128..256*2", "dn_bw": [16, 128]}, store=store, batch=8)
    assert run.info.kind == "exploration"
    assert run.info.target.spec == "sim:dlrm-hybrid"
    assert [(point["multipliers"], point["dn_bw"]) for point in rows(run)] == [(128, 16), (128, 128), (256, 16),
                                                                               (256, 128)]  # fmt: skip
    assert run.points.num_rows == explored(run).points == 4
