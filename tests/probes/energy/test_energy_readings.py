"""From readings to counters that can be believed: wraps, gaps, dead counters, short windows, dies, states."""

from __future__ import annotations

import gzip
import json
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from places import DATA
from sonda.probes.energy.channels import BOARD, PACKAGES, Channel, Lack
from sonda.probes.energy.meter import _describe_doubts, _judge_probe, _make_samples
from sonda.probes.energy.readings import ChannelSeries, EnergyReadings, read_rows, unwrap
from sonda.probes.energy.regions import Mark
from sonda.probes.energy.sampler import SamplerHeader, SamplerRow
from sonda.record.conventions.counter_series import CounterSeries
from sonda.record.errors import SondaError

S = 1_000_000_000
RECORDED = DATA / "gpu" / "nvml" / "h200.json.gz"


def package(name: str = "package-0", **more: Any) -> Channel:
    settings: dict[str, Any] = {
        "device": "cpu", "unit": "J", "kind": "counter", "origin": "energy_uj", "covers": PACKAGES, "total": True,
        "wraps_at": 262_143.0, "update": 0.001, "highest": 480.0, **more,
    }  # fmt: skip
    return Channel(sensor=f"{name} energy", **settings)


def lines(channels: list[Channel], rows: list[list[float | None]], lacks: list[Lack] | None = None) -> list[bytes]:
    """The sampler's file for one reader: rows are a time in s and the values."""
    found: list[Any] = [SamplerHeader(channels=[channels], lacks=lacks or [])]
    found += [SamplerRow(readings=[[(row[0] or 0.0) * S, *row[1:]]]) for row in rows]
    found.append(SamplerRow(cpu=0.001))
    return [msgspec.json.encode(one) + b"\n" for one in found]


def read(channel: Channel, rows: list[list[float | None]], interval: float = 0.5) -> ChannelSeries:
    return read_rows(lines([channel], rows), interval).series[0]


# ---- wraps and gaps -------------------------------------------------------------------------------------------------


def test_a_wrap_between_two_readings_is_undone() -> None:
    # 100 J: 43 up to the top and 57 behind it. Two differences without unwrapping would give -262,043 J.
    found = read(package(), [[0, 262_100.0], [0.5, 57.0], [1.0, 157.0]])
    assert found.values.tolist() == pytest.approx([0.0, 100.0, 200.0])
    assert (found.state, found.wraps) == ("ok", 1)


@given(
    steps=st.lists(st.floats(0.0, 240.0), min_size=1, max_size=60),
    start=st.floats(0.0, 262_142.0),
    most=st.sampled_from([262_143.0, 65_532.0, 1_000.0]),
)
@settings(max_examples=60, deadline=None)
def test_unwrapping_gives_back_what_was_spent(steps: list[float], start: float, most: float) -> None:
    spent = np.concatenate(([0.0], np.cumsum(steps)))
    shown = (start % most + spent) % most
    values, wraps, fault = unwrap(np.arange(len(spent)) * S, shown, most)
    assert fault == ""
    assert values - values[0] == pytest.approx(spent, abs=1e-6)
    assert wraps == int((start % most + spent[-1]) // most)


def test_a_pause_in_which_more_than_one_wrap_fits_loses_the_counter() -> None:
    # 262,143 J at 480 W take 546 s: after 600 s nobody knows how often it wrapped.
    found = read(package(), [[0, 10.0], [0.5, 60.0], [600.5, 30.0], [601.0, 80.0]])
    assert found.state == "lost"
    assert found.reason == "it was not read for 600 s, and may have wrapped more than once meanwhile (at 262,143 J)"
    believed = read(package(), [[0, 10.0], [0.5, 60.0], [500.5, 30.0], [501.0, 80.0]])
    assert (believed.state, believed.wraps) == ("ok", 1)
    assert believed.values[-1] == pytest.approx(70.0 + 262_143.0)


def test_a_sampler_that_was_suspended_is_told() -> None:
    found = read_rows(lines([package()], [[0, 0.0], [0.5, 50.0], [10.5, 1050.0], [11.0, 1100.0]]), 0.5)
    assert found.largest_gap == pytest.approx(10.0)
    assert _describe_doubts(found, 11.0) == [
        "energy was not read for 10.0 s, though it was to be every 0.5 s: the sampler was suspended, or the machine "
        "overloaded"
    ]
    assert found.series[0].values[-1] == 1100.0  # the counter went on: nothing is lost


def test_a_counter_that_falls_and_cannot_wrap_was_reset() -> None:
    found = read(package(wraps_at=0.0), [[0, 500.0], [0.5, 550.0], [1.0, 3.0]])
    assert (found.state, found.reason) == ("lost", "the counter fell: it was reset while the program ran")


# ---- dead, short, unreadable ----------------------------------------------------------------------------------------


def test_a_counter_that_does_not_move_is_dead_and_never_zero() -> None:
    # perf's energy-psys on the host of an H200 reads 0, always.
    channel = package("psys", covers="", total=False, wraps_at=0.0)
    found = read_rows(lines([channel], [[0, 0.0], [0.5, 0.0], [1.0, 0.0]]), 0.5)
    assert found.series[0].state == "dead"
    assert _make_samples(found.series[0], 0) == []
    assert _describe_doubts(found, 1.0) == ["cpu psys energy is dead: the counter stood at the same value for 1.0 s"]
    state = _judge_probe(found)
    assert (state.name, state.state) == ("energy", "dead")
    assert "hypervisor" in state.remedy


def test_a_window_shorter_than_the_update_is_short_and_not_dead() -> None:
    gpu = package("board", update=0.1, wraps_at=0.0, device="cuda:0", covers=BOARD)
    found = read_rows(lines([gpu], [[0, 900.0], [0.3, 900.0]]), 0.5)
    assert found.series[0].state == "short"
    assert found.series[0].reason.startswith("the program ended before the counter was updated: 300 ms")
    assert _judge_probe(found).state == "missing"
    assert read(gpu, [[0, 900.0], [0.6, 900.0]]).state == "dead"


def test_few_updates_in_a_window_are_told() -> None:
    gpu = package("board", update=0.1, wraps_at=0.0, device="cuda:0", covers=BOARD)
    found = read_rows(lines([gpu], [[0, 900.0], [0.4, 920.0], [0.5, 940.0]]), 0.5)
    (note,) = _describe_doubts(found, 0.35)
    assert "ran for 350 ms, 10 updates of the counter or fewer (every 100 ms)" in note
    assert _describe_doubts(found, 3.0) == []


def test_a_counter_that_stops_answering_is_lost_and_single_failures_are_bridged() -> None:
    assert read(package(), [[0, 1.0], [0.5, 2.0], [1.0, None]]).reason == "it could not be read any more"
    assert read(package(), [[0, 1.0], [0.5, None], [1.0, None]]).reason == "it could be read once at most"
    bridged = read(package(), [[0, 1.0], [0.5, None], [1.0, 5.0]])
    assert (bridged.state, bridged.values.tolist(), bridged.times.tolist()) == ("ok", [0.0, 4.0], [0, S])


def test_dies_of_an_amd_package_that_show_the_whole_package_count_once() -> None:
    dies = [package("package-0-die-0"), package("package-0-die-1")]
    amd = [msgspec.structs.replace(die, package="package-0") for die in dies]
    same = [[0, 10.0, 900.0], [0.5, 60.0, 950.02], [1.0, 110.0, 1000.03]]
    found = read_rows(lines(amd, same), 0.5)
    assert [series.channel.total for series in found.series] == [True, False]
    assert found.lacks[-1].reason == "every die shows the energy of the whole package: one is counted"
    apart = [[0, 10.0, 900.0], [0.5, 60.0, 930.0], [1.0, 110.0, 960.0]]
    assert [series.channel.total for series in read_rows(lines(amd, apart), 0.5).series] == [True, True]
    assert [series.channel.total for series in read_rows(lines(dies, same), 0.5).series] == [True, True]


# ---- the file -------------------------------------------------------------------------------------------------------


def test_a_sampler_that_was_killed_leaves_what_it_wrote() -> None:
    whole = lines([package()], [[0, 1.0], [0.5, 2.0], [1.0, 4.0]])
    found = read_rows([*whole[:3], whole[3][:-9]], 0.5)
    assert (found.rows, found.cpu) == (2, None)
    assert found.series[0].values.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("text", [[], [b""], [b"{}\n"], [b"nonsense\n"], [b'{"channels": 3}\n']])
def test_a_file_without_a_header_is_one_line(text: list[bytes]) -> None:
    with pytest.raises(SondaError, match="the energy sampler wrote nothing that can be read"):
        read_rows(text, 0.5)


def test_marks_and_a_longer_interval_are_taken_from_the_rows() -> None:
    rows = [
        SamplerRow(mark=Mark(True, "training", 7)),
        SamplerRow(interval=1.0),
        SamplerRow(mark=Mark(False, "training", 9)),
    ]
    whole = lines([package()], [[0, 1.0], [0.5, 2.0]])
    found = read_rows([*whole, *(msgspec.json.encode(row) + b"\n" for row in rows)], 0.5)
    assert found.marks == [Mark(True, "training", 7), Mark(False, "training", 9)]
    assert found.interval == 1.0


def test_states_are_kept_where_they_change_and_counters_always() -> None:
    heat = Channel(sensor="temperature", device="cuda:0", unit="°C", kind="state", origin="")
    rows: list[list[float | None]] = [[0, 41.0, 1.0], [1, 41.0, 2.0], [2, 45.0, 3.0], [3, 45.0, 4.0], [4, 45.0, 5.0]]
    found = read_rows(lines([heat, package()], rows), 1.0)
    kept = [(one.time // S, one.value) for one in _make_samples(found.series[0], S)]
    assert kept == [(-1, 41.0), (1, 45.0), (3, 45.0)]
    assert len(_make_samples(found.series[1], 0)) == 5
    assert {one.source for one in _make_samples(found.series[1], 0)} == {"measured"}


# ---- a counter between two moments ----------------------------------------------------------------------------------


def test_windows_between_readings_are_interpolated_and_bounded() -> None:
    series = CounterSeries(np.array([0, 10, 20, 30]), np.array([0.0, 100.0, 100.0, 400.0]))
    value, low, high = series.between(np.array([0, 5, 10, 12, 0, -1]), np.array([30, 10, 20, 15, 31, 5]))
    # A straight line from 10 to 30 would give 12 to 15 45 J, but at 20 the counter still showed what it did at 10.
    assert value[:4].tolist() == pytest.approx([400.0, 50.0, 0.0, 0.0])
    assert low[:4].tolist() == [400.0, 0.0, 0.0, 0.0]
    assert high[:4].tolist() == [400.0, 100.0, 0.0, 0.0]
    assert np.isnan(value[4:]).all()  # before the first and after the last reading nothing is known


def test_a_late_counter_widens_the_bounds_by_one_update() -> None:
    series = CounterSeries(np.array([0, 100, 200, 300]), np.array([0.0, 10.0, 20.0, 30.0]), update=100)
    value, low, high = series.between(np.array([100]), np.array([200]))
    assert value.tolist() == [10.0]
    # At 100 the truth is between 10 (shown then) and 20 (shown one update later), at 200 between 20 and 30.
    assert (low.tolist(), high.tolist()) == ([0.0], [20.0])


def test_close_to_a_reading_the_highest_power_bounds_it() -> None:
    series = CounterSeries(np.array([0, S, 2 * S]), np.array([0.0, 100.0, 200.0]), highest=480.0)
    moment = S + S // 1000  # 1 ms behind a reading, in which 0.48 J at most are spent
    _, low, high = series.between(np.array([S]), np.array([moment]))
    assert low[0] == 0.0
    assert high[0] == pytest.approx(0.48)


def test_a_highest_power_that_the_readings_disprove_bounds_nothing() -> None:
    series = CounterSeries(np.array([0, S, 2 * S]), np.array([0.0, 1000.0, 1000.0]), highest=480.0)
    value, low, high = series.between(np.array([S // 2]), np.array([3 * S // 2]))
    assert (low[0], high[0]) == (0.0, 1000.0) and low[0] <= value[0] <= high[0]


@given(
    readings=st.lists(st.integers(1, 400), min_size=3, max_size=30, unique=True).map(sorted),
    window=st.tuples(st.integers(0, 400), st.integers(0, 400)).map(sorted),
    update=st.sampled_from([0, 1, 10, 50]),
    load=st.lists(st.integers(0, 9), min_size=450, max_size=450),
)
@settings(max_examples=150, deadline=None)
def test_the_bounds_hold_the_truth_whatever_the_load(
    readings: list[int], window: list[int], update: int, load: list[int]
) -> None:
    spent = np.concatenate(([0.0], np.cumsum(load)))
    shown = [spent[(time // update) * update if update else time] for time in readings]
    series = CounterSeries(np.array(readings), np.array(shown), update, highest=9e9)
    value, low, high = (float(one[0]) for one in series.between(np.array(window[:1]), np.array(window[1:])))
    if np.isnan(value) or window[1] + update > readings[-1]:
        return
    truth = float(spent[window[1]] - spent[window[0]])
    assert low - 1e-9 <= truth <= high + 1e-9
    assert low <= value <= high


# ---- an H200, recorded ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    with gzip.open(RECORDED) as file:
        return dict(json.load(file))


def h200(recorded: dict[str, Any], every: int) -> EnergyReadings:
    """The recording as the sampler would have written it, taking each so-manieth reading."""
    channels = [
        package("board", update=0.1, wraps_at=0.0, device="cuda:0", covers=BOARD, highest=2800.0),
        Channel(sensor="power", device="cuda:0", unit="W", kind="power", origin="", update=0.1),
    ]
    rows: list[list[float | None]] = [
        [row["t"] / S, row["energy_mJ"] / 1e3, row["instant"] / 1e3] for row in recorded["rows"][::every]
    ]
    return read_rows(lines(channels, rows), 0.01)


def test_the_counter_of_an_h200_climbs_in_stairs_of_a_tenth_of_a_second(recorded: dict[str, Any]) -> None:
    found = h200(recorded, 1).series[0]
    changes = np.flatnonzero(np.diff(found.values))
    seconds = (found.times[-1] - found.times[0]) / S
    assert 9 < len(changes) / seconds < 11


@pytest.mark.parametrize("every", [1, 5, 30])
def test_busy_and_idle_power_of_an_h200_whatever_the_interval(recorded: dict[str, Any], every: int) -> None:
    found = h200(recorded, every).series[0]
    (_, busy), (_, idle) = recorded["marks"]
    first, last = found.times[0], found.times[-1]
    begin, end = np.array([first, busy + S, idle + S]), np.array([busy - S // 2, idle - S // 2, last - S // 5])
    value, low, high = found.counter_series.between(begin, end)
    watts = value / ((end - begin) / S)
    # A second source: NVML's own average power in the same windows, by an independent field.
    average = [
        np.mean([row["average"] for row in recorded["rows"] if a <= row["t"] <= b]) / 1e3
        for a, b in zip(begin, end, strict=True)
    ]
    assert watts[:2] == pytest.approx(average[:2], rel=0.05)
    assert (low <= value).all() and (value <= high).all()
    assert watts[1] > 3 * watts[0]


def test_counter_and_power_integral_of_an_h200_agree(recorded: dict[str, Any]) -> None:
    counter, power = h200(recorded, 1).series
    integral = float(np.trapezoid(power.values, power.times) / S)
    assert counter.counter_series.growth() == pytest.approx(integral, rel=0.05)
