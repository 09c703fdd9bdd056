"""Points of a study of operations: costs by formula, what is out of line, recorded results and their page."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from ncu_examples import asked, stand_in, table
from places import REPOSITORY
from sonda.probes.ncu.chips import find_chip
from sonda.probes.ncu.command import NcuSettings
from sonda.probes.ncu.replay import count_kernels
from sonda.record.errors import SondaError
from sonda.report.screen import render
from sonda.report.views.study.operations import operations_markdown, operations_table, write_recording
from sonda.report.views.study.screen import study_blocks
from sonda.report.words import describe
from sonda.studies.results.operations import OperationPoint, PrintedOperation, operation_points
from sonda.studies.results.outliers import FACTOR, find_outliers
from sonda.studies.results.recordings import load_recorded, recorded_names, recording
from sonda.targets.instruments.ncu import NcuInstrument
from sonda.targets.instruments.registry import instruments_for
from sonda.targets.job import Job, check_job
from sonda.targets.program.launcher import ProgramLauncher, WatchSettings
from sonda.workloads.operations.cost import operation_cost
from sonda.workloads.operations.ops import STUDIED, Operations

PAGE = REPOSITORY / "docs" / "studies" / "six-operations.md"
MIB = 2**20
PLAIN = OperationPoint(
    op="add", size=96 * MIB, inner=512, framework="torch", on="cuda:0", device="NVIDIA Example", precision="float32",
    runs=("a",), time=25_000.0, nominal=8e6, bytes=1e8, working=1e8, peak=60e12, theory=66e12, memory=4e12, cache=50e6,
    counted=16e6, tensor=0.0, dram=8e7, stalls={"long_scoreboard": 0.97},
)  # fmt: skip


def point(**changes: Any) -> OperationPoint:
    return dataclasses.replace(PLAIN, **changes)


# ---- formulas -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", STUDIED)
def test_costs_are_those_that_pytorch_counts(op: str) -> None:
    torch = pytest.importorskip("torch")
    from sonda.frameworks.torch.observe.formulas.cost import cost

    torch.set_num_threads(1)
    description = Operations(op=(op,), size=3 * 2**14, inner=32)
    seen: list[tuple[int, int]] = []

    class Seeing(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            counted = cost(str(func._overloadpacket), args, kwargs or {}, out)
            if counted.known and (counted.flops or counted.bytes):
                seen.append((counted.flops or 0, counted.bytes or 0))
            return out

    model = description.in_torch(False, 0).model
    with torch.no_grad(), Seeing():
        getattr(model, op)()
    found = operation_cost(op, description.operands(op))
    assert (sum(flops for flops, _ in seen), sum(size for _, size in seen)) == (found.flops, found.bytes)


def test_a_product_by_hand() -> None:
    found = operation_cost("dot", ((5, 7), (7, 3)))
    assert (found.flops, found.bytes) == (2 * 5 * 7 * 3, 4 * (35 + 21 + 15))
    assert operation_cost("dot", ((5, 7), (7, 3)), width=8).bytes == 8 * (35 + 21 + 15)


# ---- out of line --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", [{"op": "dot", "inner": 0}, {"working": 3e8}])
def test_what_differs_in_more_than_its_size_is_no_neighbour(other: dict[str, Any]) -> None:
    both = [point(op=other.get("op", "add")), point(**other, time=100_000.0)]
    assert find_outliers(both) == ()


def test_a_working_set_that_leaves_the_cache_is_found_and_named() -> None:
    """Bytes over time: 10 TB/s, more than memory's 4, then 4 TB/s."""
    small = point(size=6 * MIB, bytes=1e7, time=1_000.0, working=4e7)
    large = point(size=24 * MIB, bytes=4e7, time=10_000.0, working=1.6e8)
    (found,) = find_outliers([large, small])
    assert found.point is large and found.other is small and found.factor == pytest.approx(2.5)
    assert describe(found.finding) == (
        "add in PyTorch on cuda:0 falls to 4.0 TB/s at 24 MiB, 2.5 times less than at 6 MiB (10.0 TB/s): 6 MiB moved "
        "faster than memory gives (4.0 TB/s), so it was found in the cache of 50.0 MB; the 160 MB that take turns here "
        "are not"
    )


def test_more_than_memory_gives_does_not_mean_the_cache_where_it_does_not_fit() -> None:
    """Measured bandwidths differ by a per cent or so: 4.1 TB/s of 4 in 400 MB was not found in 50 MB."""
    small = point(size=6 * MIB, bytes=4.1e7, time=10_000.0, working=4e8, stalls={}, dram=4e7)
    large = point(size=24 * MIB, bytes=4e7, time=20_000.0, working=1.6e9, stalls={}, dram=4e7)
    (found,) = find_outliers([large, small])
    assert "cache" not in describe(found.finding) and describe(found.finding).endswith(
        "nothing that was counted explains it"
    )
    # What fits there in both cannot have left it either.
    both = [dataclasses.replace(small, working=3e7), dataclasses.replace(large, working=4e7)]
    assert "cache" not in describe(find_outliers(both)[0].finding)


def dip(stalls: dict[str, float], usual: dict[str, float], **changes: Any) -> str:
    """The sentence of a dot that falls from 3 to 1 TFLOP/s between two sizes that do not."""
    line = [
        point(op="dot", size=size * MIB, counted=1e9, nominal=1e9, time=1e9 * 1e9 / rate, bytes=1e6, stalls=waiting,
              dram=1e6, **changes)
        for size, rate, waiting in ((33, 3e12, usual), (65, 1e12, stalls), (513, 3e12, usual))
    ]  # fmt: skip
    (found,) = find_outliers(line)
    assert found.point is line[1] and "dips to 1.0 TFLOP/s at 65 MiB, 3.0 times less than at 33 MiB" in describe(
        found.finding
    )
    return describe(found.finding).partition("): ")[2]


def test_a_dip_is_explained_by_what_its_warps_wait_for_more_than_its_neighbours() -> None:
    said = dip({"no_instruction": 0.35, "wait": 0.24, "barrier": 0.12}, {"wait": 0.21, "no_instruction": 0.05,
               "drain": 0.03})  # fmt: skip
    assert said == (
        "its warps wait 35 % for instructions to be fetched (no_instruction), 5.0 % at 33 MiB, "
        "12 % at a barrier for other warps of their block (barrier), at most 3.0 % at 33 MiB"
    )


def test_stalls_that_are_as_large_in_the_neighbour_explain_nothing() -> None:
    waiting = {"no_instruction": 0.35, "wait": 0.24}
    assert dip(waiting, waiting) == "nothing that was counted explains it"
    assert dip({"no_instruction": 0.35}, {"no_instruction": 0.31}) == "nothing that was counted explains it"


def test_waiting_for_memory_that_could_give_more_is_told_from_memory_at_its_limit() -> None:
    """100 MB in 25 µs are 4 TB/s, all that memory gives; in 50 µs they are half of it, with the same stalls."""
    beyond = {"working": 1e9, "dram": 1e8}
    fast, slow = point(size=96 * MIB, **beyond), point(size=384 * MIB, time=50_000.0, **beyond)
    (found,) = find_outliers([fast, slow])
    assert describe(found.finding).endswith(
        "both wait for memory above all, but memory moves 50 % of what it can here and 100 % at 96 MiB: too few loads "
        "are under way at once, or each takes longer"
    )
    # Within the cache the bytes that were counted with emptied caches say nothing, and with other waits neither.
    for changes in ({"working": 4e7}, {"stalls": {"wait": 0.97}}, {"dram": None}):
        pair = [dataclasses.replace(one, memory=8e12, **changes) for one in (fast, slow)]
        assert "loads" not in describe(find_outliers(pair)[0].finding)


def test_rows_of_an_odd_length_are_named_where_loads_are_few() -> None:
    """Two matrices in 96 MiB have rows of 3,547 numbers, in 32 MiB of 2,048."""
    beyond = {"op": "scalar", "working": 1e9, "dram": 1e8}
    fast, slow = point(size=32 * MIB, **beyond), point(size=96 * MIB, time=50_000.0, **beyond)
    said = describe(find_outliers([fast, slow])[0].finding)
    assert said.endswith("(rows of 3,547 numbers cannot be loaded in twos or fours; 2,048 at 32 MiB can)")
    other = find_outliers([dataclasses.replace(fast, size=96 * MIB), dataclasses.replace(slow, framework="jax")])[0]
    assert describe(other.finding).endswith("(rows of 3,547 numbers cannot be loaded in twos or fours)")
    # Rows of 3,547 and of 3,565 are both odd, those in 128 MiB are not: 4,096.
    for quick, late in ((96, 97), (96, 128)):
        pair = [dataclasses.replace(fast, size=quick * MIB), dataclasses.replace(slow, size=late * MIB)]
        assert "twos" not in describe(find_outliers(pair)[0].finding)


def test_another_kernel_for_a_size_is_seen_by_what_it_counts() -> None:
    line = [point(size=96 * MIB, stalls={}), point(size=97 * MIB, time=50_000.0, counted=18e6, stalls={})]
    (found,) = find_outliers(line)
    assert describe(found.finding).endswith(
        "other code runs here: 2.25 FLOP are counted for each of the formula, 2 at 96 MiB"
    )


def test_bytes_that_are_read_twice_explain_a_fall() -> None:
    line = [point(size=96 * MIB), point(size=192 * MIB, time=100_000.0, bytes=2e8, dram=5e8)]
    (found,) = find_outliers(line)
    assert "500 MB of memory were moved for 200 MB of operands and result" in describe(found.finding)


def test_frameworks_that_differ_are_named_with_what_differs() -> None:
    torch = point(op="dot", counted=2e9, time=3_000_000.0)
    jax = point(op="dot", counted=2e9, time=400_000.0, framework="jax", tensor=2e9, stalls={})
    (found,) = find_outliers([torch, jax])
    assert found.point is torch and found.factor == pytest.approx(7.5)
    assert "takes 7.5 times as long in PyTorch (3.0 ms) as in JAX: JAX uses tensor cores" in describe(found.finding)


def test_rates_that_rise_or_stay_are_in_line() -> None:
    rising = [point(size=size * MIB, bytes=size * 1e6, time=2_000 + 250.0 * size) for size in (6, 24, 96, 1024)]
    assert find_outliers(rising) == ()
    just_below = point(time=PLAIN.time * (FACTOR - 0.01), framework="jax")
    assert find_outliers([PLAIN, just_below]) == ()
    assert len(find_outliers([PLAIN, point(time=PLAIN.time * FACTOR, framework="jax")])) == 1


def test_a_fall_without_counts_or_under_disturbance_says_so() -> None:
    line = [point(on="cpu", counted=None, stalls=None, dram=None, missing="no GPU", disturbed=True, memory=None,
                  size=size * MIB, time=time) for size, time in ((6, 1_000.0), (12, 9_000.0))]  # fmt: skip
    (found,) = find_outliers(line)
    assert describe(found.finding).endswith(
        "why is not known, because nothing was counted in it; other programs ran meanwhile, and it may be their doing"
    )


# ---- recorded results ---------------------------------------------------------------------------------------------


def test_the_recorded_results_of_an_h200_agree_with_theory() -> None:
    """Counted per element on an H200, by hand from its instructions; times no shorter than ceilings allow."""
    found = load_recorded("six-operations-h200")
    rows = found["operations"]
    assert {row["op"] for row in rows} == set(STUDIED) and found["provenance"]["devices"] == ["NVIDIA H200"]
    # PyTorch's add is a + alpha · b, a multiply-add; odd sizes leave a few threads of the last block at work.
    exact = {("torch", "add"): 2, ("jax", "add"): 1} | dict.fromkeys(
        [(framework, op) for framework in ("torch", "jax") for op in ("mul", "scalar")], 1
    )
    # A polynomial, a reciprocal and their corrections: the instructions depend on the values and on the vector width.
    functions = {("torch", "sigmoid"): (16, 17.5), ("jax", "sigmoid"): (13, 17.5),
                 ("torch", "tanh"): (13.5, 14.5), ("jax", "tanh"): (21, 23.5)}  # fmt: skip
    formula = {"add": 1, "mul": 1, "scalar": 1, "sigmoid": 4, "tanh": 1}
    for row in rows:
        where = (row["framework"], row["op"])
        expected = operation_cost(row["op"], _operands(row))
        assert (row["nominal"], row["bytes"]) == (expected.flops, expected.bytes), where
        if row["counted"] is None:
            assert row["missing"], where
            continue
        assert row["of_theory"] <= 1.0, where
        if row["op"] == "dot":
            # Small ones are cut along the inner dimension as well, and the parts are added up.
            most = 1.01 if row["size"] > 64 << 20 else 1.05
            assert 1.0 <= row["counted"] / row["nominal"] <= most, where
            continue
        per_element = row["counted"] / (row["nominal"] / formula[row["op"]])
        if where in exact:
            assert per_element == pytest.approx(exact[where], rel=0.003), where
        else:
            least, most = functions[where]
            assert least <= per_element <= most, where


def test_what_is_said_of_the_recorded_results_is_what_follows_from_them() -> None:
    """XLA's kernels at some sizes: as many bytes, the same waits, and 38 % of what memory gives."""
    found = load_recorded("six-operations-h200")
    rows = found["operations"]
    sentences = [describe(one.finding) for one in find_outliers([_point_of(row) for row in rows])]
    assert found["verdicts"] == sentences
    (scalar,) = (one for one in sentences if one.startswith("scalar in JAX on cuda:0 falls to 1.7 TB/s at 1024 MiB"))
    slow, fast = (
        next(
            row for row in found["operations"] if (row["op"], row["framework"], row["size"]) == ("scalar", "jax", size)
        )
        for size in (1024 * MIB, 512 * MIB)
    )
    # Two matrices of 11,585 and of 8,192 squared, 4 bytes each, over the time and what memory gives.
    shares = [8 * side**2 / row["time"] * 1e9 / row["memory"] for side, row in ((11_585, slow), (8_192, fast))]
    assert f"memory moves {100 * shares[0]:.0f} % of what it can here and {100 * shares[1]:.0f} % at 512 MiB" in scalar
    assert scalar.endswith("(rows of 11,585 numbers cannot be loaded in twos or fours; 8,192 at 512 MiB can)")
    # Its largest wait is no larger than at the size that is fast.
    assert "long_scoreboard" not in scalar


def test_rows_of_an_odd_length_are_slow_in_xla_and_even_ones_are_not() -> None:
    """Of everything recorded that does not fit into the cache: the rule that the sentence above is made by."""
    shares: dict[bool, list[float]] = {True: [], False: []}
    for name in ("six-operations-h200", "six-operations-h200-together"):
        for row in load_recorded(name)["operations"]:
            if row["framework"] == "jax" and row["op"] != "dot" and row["size"] > 60 * MIB:
                shares[bool(_operands(row)[0][-1] % 2)].append(row["of_memory"])
    assert len(shares[True]) == 15 and max(shares[True]) < 0.6
    assert len(shares[False]) > 25 and min(shares[False]) > 0.85


def test_every_published_place_was_recorded() -> None:
    """5 sizes of add, mul and dot, 10 of the others, in both frameworks."""
    rows = load_recorded("six-operations-h200")["operations"]
    for op, sizes in {"add": 5, "mul": 5, "dot": 5, "scalar": 10, "sigmoid": 10, "tanh": 10}.items():
        beside = [row for row in rows if row["op"] == op and row["published"]]
        assert sorted(row["framework"] for row in beside) == ["jax"] * sizes + ["torch"] * sizes, op
        assert all({one["hardware"] for one in row["published"]} == {"GT710M", "K40", "GTX980"} for row in beside), op


def _point_of(row: dict[str, Any]) -> OperationPoint:
    fields = {name: value for name, value in row.items() if name in OperationPoint.__dataclass_fields__}
    beside = tuple(PrintedOperation(**one) for one in fields["published"])
    return OperationPoint(**{**fields, "runs": tuple(fields["runs"]), "published": beside})


def _operands(row: dict[str, Any]) -> tuple[tuple[int, ...], ...]:
    return Operations(op=(row["op"],), size=row["size"], inner=row["inner"]).operands(row["op"])


def test_the_page_shows_the_recorded_results() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert operations_markdown(load_recorded("six-operations-h200")) in page


def test_a_recording_is_written_and_a_missing_one_is_one_line(tmp_path: Path) -> None:
    row = point(published=(PrintedOperation("K40", 10_726.58, 0.25),)).to_row()
    assert row["rate"] == 16e6 / 25e-6 and row["bandwidth"] == 4e12 and row["of_memory"] == 1.0
    document = {"study": "x", "scale": "", "operations": [row], "verdicts": ["a | b"], "provenance": {
        "recorded": ["2026-11-15"], "devices": ["A"], "versions": {"torch": "2"}, "counted": []}}  # fmt: skip
    write_recording(tmp_path / "x.md", recording(document))
    text = (tmp_path / "x.md").read_text(encoding="utf-8")
    assert "| add | 96 | PyTorch | cuda:0 | 25.0 | 16.0 | 2 | 640 |" in text and "K40 10,727" in text
    with pytest.raises(SondaError, match="no operation that was measured"):
        recording({**document, "operations": []})
    with pytest.raises(SondaError, match="cannot write"):
        write_recording(tmp_path / "x.md" / "x.json", recording(document))
    with pytest.raises(SondaError, match=r"no recorded result 'six'.*six-operations-h200"):
        load_recorded("six")
    assert "six-operations-h200" in recorded_names()


def test_operations_and_verdicts_are_on_the_screen() -> None:
    shown = operations_table([point().to_row(), point(counted=None, missing="no ncu").to_row()])
    assert [cell.text for cell in shown.rows[0]][:5] == ["add", "96", "PyTorch", "cuda:0", "25.0"]
    assert "no ncu" in shown.reasons()
    row = {"configuration": {"op": "add"}, "runs": [], "figures": {}, "failures": [f"repetition {n}: no GPU" for n in
           range(1, 6)]}  # fmt: skip
    text = render(study_blocks({
        "study": "x", "question": "", "scale": "", "axes": ["op"], "columns": [], "compare": [], "compared": [],
        "rows": [row], "deviations": [], "notes": [], "verdicts": ["add falls"], "operations": [point().to_row()],
    }, 200), 200)  # fmt: skip
    assert "Out of line: add falls." in text and "long_scoreboard 97 %" in text and "5 runs: no GPU" in text


def test_runs_of_other_workloads_have_no_points() -> None:
    assert operation_points([]) == ()


# ---- what is asked for --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"framework": "caffe"}, "framework 'caffe' is not there; known: jax, pytensor, tensorflow, torch"),
        (
            {"workload": "lstm"},
            "lstm is not there in JAX; in JAX there is ops, mlp, cnn, resnet18, resnet34, resnet50, "
            "transformer; or use --framework torch",
        ),
        ({"on": "sim:maeri-256"}, "JAX runs on cpu and cuda:N, not on sim:maeri-256; use --framework torch"),
        ({"train": True}, "ops cannot be trained in JAX; leave out --train, or use --framework torch"),
        ({"probe": "callgrind"}, "--probe callgrind is not there in JAX; leave it out, or use --framework torch"),
    ],
)
def test_what_jax_does_not_have_is_one_line(changes: dict[str, Any], line: str) -> None:
    with pytest.raises(SondaError) as raised:
        check_job(Job(**{"workload": "ops", "framework": "jax", **changes}))
    assert str(raised.value) == line


def test_stalls_of_every_kernel_can_be_asked_for() -> None:
    def settings_for(probe: str) -> NcuSettings:
        _, ncu = instruments_for(f"{probe},energy", ProgramLauncher(["true"], WatchSettings()))[::-1]
        assert isinstance(ncu, NcuInstrument)
        return ncu.settings

    found = settings_for("ncu:none+stalls")
    assert (found.cache, found.stalls) == ("none", True)
    found = settings_for("ncu:stalls")
    assert (found.cache, found.stalls) == ("all", True)
    for wrong in ("ncu:stals", "ncu:all+none", "ncu:"):
        with pytest.raises(SondaError, match=f"--probe {wrong.replace('+', '.')} is unknown"):
            settings_for(wrong)


def test_stalls_of_every_kernel_take_one_run_of_ncu(tmp_path: Path) -> None:
    reason = "smsp__warp_issue_stalled_long_scoreboard_per_warp_active.pct"
    units = {"gpu__time_duration.sum": "ns", reason: "%", "profiler__replayer_passes": "pass"}
    program = stand_in(tmp_path, table(units, ("loop_add_fusion", ("10", "97.5", "14"))))
    said: list[str] = []
    found = count_kernels(
        ["python", "step.py"], b"", find_chip(9, 0), said.append, lambda spans: [0],
        settings=NcuSettings(program=program, stalls=True),
    )  # fmt: skip
    assert found.launches[0].metrics["stall_long_scoreboard:counted"] == 97.5
    assert len(asked(tmp_path)) == len(said) == 1 and found.facts.passes == {"all": 14}
    words = asked(tmp_path)[0]
    assert reason in words and "dram__bytes" in words and words.count("gpu__time_duration.sum") == 1
    # 7 for the core set and 7 for the stalls of this chip.
    assert "14 passes each or one more" in said[0]
