"""Files of pytest-benchmark: its numbers by hand, what is read back, and what it reads itself where it is installed."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sonda.integrations.benchmark_file import describe_times, read_benchmarks, write_benchmarks
from sonda.record.errors import SondaError

FIELDS = {
    "min", "max", "mean", "stddev", "rounds", "median", "iqr", "q1", "q3", "iqr_outliers", "stddev_outliers",
    "outliers", "ld15iqr", "hd15iqr", "ops", "total",
}  # fmt: skip
"""Of `stats` in a file that pytest-benchmark 5.3.1 wrote, beside `data` and `iterations`."""


def test_the_numbers_of_eight_rounds_by_hand() -> None:
    """Of 1 to 7 and 100: halves 1 2 3 4 and 5 6 7 100, so quartiles 2.5 and 6.5; the fence ends at 6.5 + 6 = 12.5."""
    found = describe_times(np.array([3.0, 1, 2, 100, 4, 5, 7, 6]))
    assert set(found) == FIELDS
    assert (found["q1"], found["median"], found["q3"], found["iqr"]) == (2.5, 4.5, 6.5, 4.0)
    assert (found["ld15iqr"], found["hd15iqr"], found["iqr_outliers"]) == (1, 7, 1)
    assert (found["total"], found["mean"], found["ops"], found["rounds"]) == (128, 16, 8 / 128, 8)
    assert found["stddev"] == pytest.approx(statistics.stdev([1, 2, 3, 4, 5, 6, 7, 100]))
    assert found["outliers"] == "1;1"


@pytest.mark.parametrize(
    ("times", "first", "third"),
    [([1, 2, 3, 4, 5], 1.75, 4.25), ([1, 2, 3, 4, 5, 6, 7], 2.25, 5.75), ([1, 2], 1, 2), ([3], 3, 3)],
)
def test_quartiles_of_odd_numbers_lie_between_two_values(times: list[float], first: float, third: float) -> None:
    """Of 4k+1 values a quarter of one and three of the next, of 4k+3 the reverse: Wikipedia's third method."""
    found = describe_times(np.array(times, dtype=np.float64))
    assert (found["q1"], found["q3"]) == (first, third)


def test_what_is_written_is_read_back_in_ns(tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    write_benchmarks(
        path, {"t.py::test_a[x-1]": [1e6, 2e6], "t.py::test_none": []}, {"t.py::test_a[x-1]": {"part": "train"}}
    )
    (benchmark,) = json.loads(path.read_text())["benchmarks"]
    assert (benchmark["name"], benchmark["param"], benchmark["extra_info"]) == ("test_a[x-1]", "x-1", {"part": "train"})
    assert benchmark["stats"]["data"] == [0.001, 0.002]
    assert read_benchmarks(path) == {"t.py::test_a[x-1]": pytest.approx([1e6, 2e6])}


def with_times(data: str) -> str:
    return f'{{"benchmarks": [{{"fullname": "t.py::test_a", "stats": {{"data": {data}}}}}]}}'


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"benchmarks": [1]}', '{"benchmarks": 7}', *map(with_times, ('["a"]', "5", "[[]]"))],
)
def test_another_file_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(SondaError, match="no file of pytest-benchmark"):
        read_benchmarks(path)


@pytest.mark.parametrize("time", ["0", "-1", "NaN", "Infinity"])
def test_times_that_no_step_takes_are_refused(tmp_path: Path, time: str) -> None:
    path = tmp_path / "times.json"
    path.write_text(with_times(f"[0.001, {time}]"))
    with pytest.raises(SondaError, match="has a time that is not above 0"):
        read_benchmarks(path)


def test_a_file_without_single_rounds_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    path.write_text('{"benchmarks": [{"fullname": "t.py::test_a", "stats": {"mean": 1.0}}]}')
    with pytest.raises(SondaError, match="no times of single rounds"):
        read_benchmarks(path)


def test_pytest_benchmark_itself_reads_it(tmp_path: Path) -> None:
    pytest.importorskip("pytest_benchmark", reason="pytest-benchmark is not installed")
    path = tmp_path / "times.json"
    write_benchmarks(path, {"t.py::test_a": [1e6, 2e6, 3e6]}, {})
    words = [sys.executable, "-m", "pytest_benchmark", "compare", str(path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "test_a" in done.stdout
    assert "2.0000" in done.stdout
