"""The slowdown matrix as a map, misses by size of cache, and all points of an exploration as a table."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from charts import series_of
from sonda.analysis.simulated.exploration import Exploration
from sonda.report.charts.chart import Boxes
from sonda.report.palette import SKY, VERMILION
from sonda.report.views.corun_figures import miss_curve, misses_table, slowdown_map
from sonda.report.views.exploration import MOST_POINTS, points_table


def test_twice_as_slow_and_twice_as_fast_are_equally_far_from_white() -> None:
    drawn = slowdown_map(["a <b>", "c"], ["a <b>", "c"], [[None, 2.0], [0.5, None]], [["", "2.00"], ["0.50", ""]],
                         [["", "2, measured"], ["0.5, measured", ""]])  # fmt: skip
    (boxes,), scale = drawn.marks, drawn.scale
    assert isinstance(boxes, Boxes) and scale is not None
    slow, fast = boxes.places
    assert slow[:3] == (0.5, 1.5, -0.5) and fast[:3] == (-0.5, 0.5, 0.5), "only what was measured has a field"
    assert (scale.low, scale.high) == (-1.0, 1.0) and boxes.colors == (VERMILION, SKY)
    assert drawn.fields[0].y.names == ("a <b>", "c") and drawn.x.names == ("by a <b>", "by c")
    assert boxes.hints[0] == "a <b> by c: 2, measured"
    assert [2**tick for tick, _ in scale.ticks] == pytest.approx([float(text) for _, text in scale.ticks])


def test_small_slowdowns_are_not_made_to_look_large() -> None:
    scale = slowdown_map(["a"], ["b"], [[1.01]], [["1.01"]], [[""]]).scale
    assert scale is not None and scale.high == pytest.approx(math.log2(1.1))


def test_misses_fall_with_the_size_of_the_cache() -> None:
    misses = {"mlp": {2.0**20: 400.0, 2.0**18: 900.0}, "cnn": {2.0**18: 5000.0}}
    drawn = miss_curve(misses)
    assert drawn is not None
    assert series_of(drawn)[0].points == ((2.0**18, 900.0), (2.0**20, 400.0))
    assert [text for _, text in drawn.x.ticks] == ["256 KiB", "1 MiB"]
    assert [[cell.text for cell in row] for row in misses_table(misses).rows] == [
        ["mlp", "900", "400"],
        ["cnn", "5,000", "–"],
    ]
    assert miss_curve({"mlp": {1.0: 2.0}}) is None, "one size is no curve"


def explored(count: int) -> tuple[Exploration, pa.Table]:
    """Points by number: every tenth is on the front, the last is impossible."""
    numbers = list(range(count))
    columns = {
        "multipliers": pa.array(numbers),
        "cycles:simulated": pa.array([None if one == count - 1 else 1000 + one for one in numbers]),
        "energy:simulated": pa.array([None if one == count - 1 else 2e-6 for one in numbers]),
        "energy_low:simulated": pa.array([None if one == count - 1 else 1e-6 for one in numbers]),
        "energy_high:simulated": pa.array([None if one == count - 1 else 4e-6 for one in numbers]),
        "front": pa.array([one % 10 == 0 for one in numbers]),
        "impossible": pa.array([None] * (count - 1) + ["no tile fits"]),
        "unpriced": pa.array([None] * count, pa.string()),
    }
    fields = [pa.field(name, value.type, metadata={"unit": "J"} if name.startswith("energy") else None)
              for name, value in columns.items()]  # fmt: skip
    found = Exploration(
        run="abcd12345678", title="DLRM", subtitle="sim:dlrm-hybrid", axes={"multipliers": list(map(str, numbers))},
        points=count, possible=count - 1, impossible=(), unpriced=(), objectives=("cycles", "energy"), front=(),
        best={}, on_host=("",), seconds=0.1, simulations=count, notes=(),
    )  # fmt: skip
    return found, pa.table(list(columns.values()), schema=pa.schema(fields))


def test_all_points_are_listed_with_their_bounds_the_front_first() -> None:
    table = points_table(*explored(21))
    assert [column.name for column in table.columns] == ["multipliers", "cycles", "energy µJ", "on the front"]
    assert [row[0].text for row in table.rows[:4]] == ["0", "10", "20", "1"]
    assert [row[3].text for row in table.rows].count("yes") == 3
    second = table.rows[1]
    assert (second[1].text, second[2].text) == ("1,010", "2.00")
    assert second[2].hint.endswith("; bounds of the tables it comes from: 1.00 µJ to 4.00 µJ") and second[2].estimated
    impossible = next(row for row in table.rows if row[0].text == "20")
    assert (impossible[1].text, impossible[1].hint, impossible[2].text) == ("–", "no tile fits", "–")


def test_of_too_many_points_the_front_stays_whole() -> None:
    table = points_table(*explored(5001))
    assert len(table.rows) == MOST_POINTS
    assert sum(row[3].text == "yes" for row in table.rows) == 501
    rest = [int(row[0].text) for row in table.rows if row[3].text == "no"]
    assert rest == sorted(rest) and rest[0] == 1 and rest[-1] == 4999, "an even sample from end to end"
