"""Points with different clocks: what is fastest is what ends first, not what takes the fewest cycles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from charts import charts_of
from sonda.analysis.simulated.exploration import amount, explored
from sonda.analysis.summary import Value
from sonda.record.run import Run
from sonda.record.store import Store
from sonda.report.blocks import Detail
from sonda.report.charts.chart import Dots, Points
from sonda.report.section import section_of
from sonda.report.views.exploration import ExplorationView
from sonda.report.words import describe
from sonda.studies.explore.exploration import BY_CYCLES, BY_TIME, explore
from sonda.studies.explore.space import parse_space
from sonda.targets.job import Job
from sonda.targets.simulated import design_space as grid
from sonda.targets.simulated import exploration

DRAM = "memory.buffer_KiB=1 memory.dram=ddr4-2400"
CLOCKLESS = """
name = "plain"
[engines.dense]
kind = "flexible_dense"
multipliers = 64
read_ports = 64
write_ports = 64
accumulators = true
[route]
linear = "dense"
"""


def explored_dlrm(tmp_path: Path, *vary: str, changes: str = "", on: str = "") -> Run:
    options = {"arch-embedding-size": "1000-300", "batch": "8", "num-indices-per-lookup": "5"}
    job = Job(workload="dlrm", options=options, on=on, set=changes)
    return explore(job, parse_space(list(vary)), Store(tmp_path / "runs"))


def nanoseconds(point: dict[str, Any]) -> float:
    """Of a row that has its clock in GHz."""
    return float(point["cycles:simulated"] / point["clock_GHz"])


def test_a_faster_clock_takes_more_cycles_of_a_memory_and_less_time(tmp_path: Path) -> None:
    run = explored_dlrm(tmp_path, "clock_GHz=1,2,4", changes=DRAM)
    points = run.points.to_pylist()
    cycles = [point["cycles:simulated"] for point in points]
    assert cycles == sorted(set(cycles))
    assert nanoseconds(points[2]) < nanoseconds(points[1]) < nanoseconds(points[0])
    assert explored(run).best["cycles"].settings == {"clock_GHz": 4}
    assert points[2]["front"]
    assert BY_TIME in run.info.notes


def test_a_clock_that_varies_in_step_is_each_points_own(tmp_path: Path) -> None:
    """Ports before it, the mapping behind it: the clock stands in the midst of the grid."""
    vary = ("perceptrons.read_ports=16,64", "clock_GHz,memory.buffer_KiB=1:1,3:2", "mapping=stonne,best")
    run = explored_dlrm(tmp_path, *vary, changes="memory.dram=ddr4-2400")
    points = run.points.to_pylist()
    fastest = min(range(len(points)), key=lambda place: nanoseconds(points[place]))
    fewest = min(range(len(points)), key=lambda place: int(points[place]["cycles:simulated"]))
    assert fastest != fewest
    assert points[fastest]["clock_GHz"] == 3
    assert nanoseconds(points[explored(run).best["cycles"].number]) == nanoseconds(points[fastest])


@pytest.mark.parametrize("changes", ["", "clock_GHz=2"])
def test_points_of_one_clock_or_of_none_are_compared_by_cycles_without_a_word(tmp_path: Path, changes: str) -> None:
    run = explored_dlrm(tmp_path, "perceptrons.read_ports=16,64", changes=changes)
    assert not {BY_TIME, BY_CYCLES} & set(run.info.notes)
    assert explored(run).best["cycles"].settings == {"perceptrons.read_ports": 64}


def test_times_that_only_some_points_have_are_not_compared(tmp_path: Path) -> None:
    clocked = CLOCKLESS.replace('name = "plain"', 'name = "clocked"\nclock_GHz = 1')
    names = []
    for name, text in (("plain", CLOCKLESS), ("clocked", clocked)):
        (tmp_path / f"{name}.toml").write_text(text)
        names.append(f"sim:{tmp_path / name}.toml")
    run = explored_dlrm(tmp_path, f"on={','.join(names)}")
    assert BY_CYCLES in run.info.notes
    first, second = run.points.to_pylist()
    assert first["cycles:simulated"] == second["cycles:simulated"]


def test_screen_and_page_show_the_time_where_clocks_differ(tmp_path: Path) -> None:
    run = explored_dlrm(
        tmp_path, "clock_GHz=1,2,4", "perceptrons.read_ports=16,64", changes=f"{DRAM} energy_table=stonne"
    )
    points, found = run.points.to_pylist(), explored(run)
    assert "area" in found.objectives
    fastest = min(map(nanoseconds, points))
    assert describe(found.finding).startswith(f"Fastest ({amount(Value(fastest, 'ns', 'simulated'))})")
    shown = [point.values["time"].value for point in found.front]
    assert shown == sorted(shown) and shown[0] == pytest.approx(fastest)
    lines = [line.split() for line in ExplorationView(found).text(200, color=False, detail=Detail.ALL).splitlines()]
    assert any(line[:3] == ["clock_GHz", "perceptrons.read_ports", "time"] for line in lines)
    section = section_of(ExplorationView(found, run.points), 0, True)
    figure = charts_of(ExplorationView(found, run.points).full())["f0"]
    assert "<h3>Time and " in section.html
    assert figure.x.title == "time, ns (simulated)"
    others, front = figure.marks
    assert isinstance(others, Dots) and isinstance(front, Points)
    drawn = [point[0] for point in (*others.points, *front.points) if point is not None]
    # Equal points of the front are drawn once.
    assert {round(one, 6) for one in drawn} == {round(nanoseconds(point), 6) for point in points}


def test_a_page_of_one_clock_stays_in_cycles(tmp_path: Path) -> None:
    run = explored_dlrm(tmp_path, "perceptrons.read_ports=16,64", changes="clock_GHz=2 energy_table=stonne")
    section = section_of(ExplorationView(explored(run), run.points), 0, True)
    figure = charts_of(ExplorationView(explored(run), run.points).full())["f0"]
    assert figure.x.title == "cycles (simulated)"
    assert "<h3>Cycles and " in section.html


def test_compiling_is_over_before_the_clock_starts_even_where_the_first_point_cannot_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    possible = []

    def seen(*arguments: Any, **named: Any) -> Any:
        points = grid.explore(*arguments, **named)
        possible.append(bool((points.impossible == 0).any()))
        return points

    monkeypatch.setattr(exploration, "explore", seen)
    axes = {"perceptrons.multipliers": ("64", "256"), "perceptrons.read_ports": ("128",)}
    exploration.Explorer(Job(workload="dlrm", threads=1), ()).explore("sim:dlrm-hybrid", axes)
    *before, counted = possible
    assert before == [True, False]  # 128 ports are more than 64 multipliers
    assert counted
