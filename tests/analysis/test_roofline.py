"""The roofline, by hand: 100 GFLOP/s, DRAM 10 GB/s, 32 MB of cache at 40 GB/s, 1 µs per operation."""

from __future__ import annotations

import numpy as np
import pytest

from builders import CEILINGS, MACHINE, trained
from plain_runs import machine_of
from sonda.analysis.roofline import ceilings, lines, name_bound
from sonda.analysis.run_summary import summarise


def roofs():
    found, reason = ceilings(machine_of(MACHINE), 1, "float32")
    assert reason == ""
    return found


def test_arithmetic_takes_flops_over_peak():
    # 2e9 FLOP at 1e11 FLOP/s: 20 ms.
    assert roofs().bounds(np.array([2e9]), np.array([0.0]))[0] == pytest.approx([20e6])


def test_bytes_beyond_half_of_the_cache_come_from_dram():
    # Half of 32 MB is 16 MB: 16 MB at 40 GB/s take 0.4 ms, 17 MB at 10 GB/s take 1.7 ms.
    _, memory, cached = roofs().bounds(np.zeros(2), np.array([16e6, 17e6]))
    assert memory == pytest.approx([0.4e6, 1.7e6])
    assert cached.tolist() == [True, False]


def test_unknown_operations_take_no_time_at_least():
    arithmetic, memory, _ = roofs().bounds(np.array([np.nan]), np.array([np.nan]))
    assert (arithmetic[0], memory[0]) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("name", "peak"),
    [("float64", 50e9), ("bf16", 300e9), ("bfloat16", 300e9), ("mixed_bfloat16", 300e9), ("fp32", 100e9)],
)
def test_each_precision_has_its_own_peak(name, peak):
    assert ceilings(machine_of(MACHINE), 1, name)[0].flops == peak


def test_a_short_type_that_is_slower_here_can_still_be_computed_as_float32():
    """Products of float16 were measured at 2 GFLOP/s; a library that converts reaches more, up to float32's 100."""
    entry = {**CEILINGS["threads"]["1"], "flops": {"float32": 100e9, "float16": 2e9}}
    machine = {**MACHINE, "ceilings": {**CEILINGS, "threads": {"1": entry}}}
    found, _ = ceilings(machine_of(machine), 1, "mixed_float16")
    assert found.flops == 100e9 and found.peaks["float16"] == 2e9 and found.precision == "float16"


def test_missing_ceilings_have_a_reason():
    assert ceilings(machine_of({}), 1, "float32") == (None, "the machine's ceilings were not measured")
    assert ceilings(machine_of(MACHINE), 2, "float32") == (None, "no ceilings were measured with 2 threads")
    assert ceilings(machine_of(MACHINE), 1, "float16") == (None, "no peak was measured for float16")


def test_a_run_of_unknown_threads_is_held_against_the_largest():
    more = {"ceilings": {**CEILINGS, "threads": {**CEILINGS["threads"], "16": {**CEILINGS["threads"]["1"]}}}}
    assert ceilings(machine_of(more), None, "float32")[0].threads == 16


def test_ceilings_without_a_cache_use_dram_for_all():
    bare = {"ceilings": {"threads": {"1": {"flops": {"float32": 1e11}, "dram_bandwidth": 1e10}}}}
    found, _ = ceilings(machine_of(bare), 1, "float32")
    # 1 kB at 10 GB/s: 100 ns.
    assert found.bounds(np.zeros(1), np.array([1e3]))[1] == pytest.approx([100])


@pytest.mark.parametrize(
    ("limits", "bound"),
    [
        ({"compute": 50.0, "memory": 20.0, "overhead": 10.0}, "compute"),
        ({"compute": 20.0, "memory": 60.0, "overhead": 10.0}, "memory"),
        ({"compute": 20.0, "memory": 30.0, "overhead": 90.0}, "overhead"),
        ({"compute": 49.0, "memory": 40.0, "overhead": 10.0}, ""),
        ({}, ""),
    ],
)
def test_the_largest_limit_names_the_bound_if_it_explains_half(limits, bound):
    assert name_bound(limits, 100.0) == bound


def test_nothing_bounds_what_took_no_time():
    assert name_bound({"compute": 1.0}, 0.0) == ""


def test_a_layer_has_its_rate_and_its_share_of_the_roof():
    found = next(row.cost for row in summarise(trained()).parts[0].layers if row.path == "conv")
    # Convolution: 5e9 FLOP and 3e8 B in 60 ms; least time 50 ms.
    assert (found.flops.value, found.bytes.value) == (5e9, 3e8)
    assert found.achieved.value == pytest.approx(5e9 / 0.060)
    assert found.roof.value == pytest.approx(50 / 60)
    assert found.bound == "compute"


def test_lines_are_the_peak_and_both_bandwidths():
    drawn = lines(summarise(trained()).ceilings)
    assert [(name, value.value, value.unit) for name, value in drawn] == [
        ("float32 peak", 100e9, "FLOP/s"),
        ("DRAM", 10e9, "B/s"),
        ("last-level cache", 40e9, "B/s"),
    ]


def test_no_lines_without_ceilings():
    assert lines(summarise(trained(machine={})).ceilings) == ()


def test_the_measured_curve_says_how_much_of_the_cache_one_gets():
    # Between DRAM's 10 GB/s and the cache's 40 GB/s the geometric middle is 20 GB/s.
    curve = [[1e6, 40e9], [4e6, 35e9], [8e6, 21e9], [16e6, 12e9], [64e6, 10e9]]
    entry = {**CEILINGS["threads"]["1"], "bandwidth_curve": curve}
    found, _ = ceilings(machine_of({"ceilings": {**CEILINGS, "threads": {"1": entry}}}), 1, "float32")
    assert found.cached_bytes == 8e6
    _, memory, cached = found.bounds(np.array([0.0, 0.0]), np.array([8e6, 9e6]))
    assert cached.tolist() == [True, False]
    assert memory.tolist() == pytest.approx([8e6 / 40e9 * 1e9, 9e6 / 10e9 * 1e9])


def test_ceilings_that_others_disturbed_are_not_used():
    entry = {**CEILINGS["threads"]["1"], "bandwidth_curve": [[1e6, 40e9]], "disturbed": ["others"]}
    found, reason = ceilings(machine_of({"ceilings": {**CEILINGS, "threads": {"1": entry}}}), 1, "float32")
    assert found is None and "other programs ran while the machine's ceilings were measured" in reason


def test_ceilings_with_a_cache_slower_than_its_memory_are_not_used():
    entry = {**CEILINGS["threads"]["1"], "dram_bandwidth": 10e9, "cache_bandwidth": 9e9}
    found, reason = ceilings(machine_of({"ceilings": {**CEILINGS, "threads": {"1": entry}}}), 1, "float32")
    assert found is None and "last-level cache was measured to be slower" in reason


def test_a_cache_as_fast_as_its_memory_within_what_calls_differ_by_has_the_faster_bandwidth():
    entry = {**CEILINGS["threads"]["1"], "dram_bandwidth": 10e9, "cache_bandwidth": 9.8e9}
    found, _ = ceilings(machine_of({"ceilings": {**CEILINGS, "threads": {"1": entry}}}), 1, "float32")
    assert found.cache_bandwidth == 10e9
