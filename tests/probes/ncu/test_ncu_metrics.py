"""Every metric that Nsight Compute is asked for exists on its chip: by NVIDIA's own database, and by a copy of it."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import pytest

from sonda.imports.ncu import metrics as ncu_metrics
from sonda.probes.ncu.chips import Chip, count_passes, find_chip, known_chips
from sonda.probes.ncu.metric_database import PACKAGE, MetricDatabase, find_library
from sonda.record.errors import MissingExtraError, SondaError
from sonda.record.quantities import STALLS
from trace_examples import GPU

CHIPS = list(known_chips().values())
IDS = [chip.name for chip in CHIPS]
RECORDED: dict[str, Any] = json.loads(gzip.decompress((GPU / "ncu" / "metric_names.json.gz").read_bytes()))
ROLLUPS = {"sum", "avg", "min", "max"}
SUBMETRICS = {"", "peak_sustained", "per_second"}
"""Of those that counters have, the ones that are asked for (nvperf_host.h: NVPW_Submetric)."""

try:
    find_library()
    ABSENT = ""
except MissingExtraError as error:
    ABSENT = str(error)
needs_database = pytest.mark.skipif(bool(ABSENT), reason=ABSENT)


def in_copy(metric: str, chip: str) -> bool:
    """Whether a name with its suffix is one that the recorded database gives this chip."""
    base, _, suffix = metric.partition(".")
    bit = 1 << RECORDED["chips"].index(chip)
    if RECORDED["kinds"]["ratio"].get(base, 0) & bit:
        return suffix in ("pct", "ratio")
    rollup, _, sub = suffix.partition(".")
    return bool(RECORDED["kinds"]["counter"].get(base, 0) & bit) and rollup in ROLLUPS and sub in SUBMETRICS


def asked(chip: Chip) -> Iterator[str]:
    yield from chip.core.metrics
    yield from chip.stalls.metrics


@pytest.mark.parametrize("chip", CHIPS, ids=IDS)
def test_every_name_is_in_the_recorded_database(chip: Chip) -> None:
    assert [name for name in asked(chip) if not in_copy(name, chip.name)] == []
    assert RECORDED["passes"][chip.name] == [chip.core.passes, chip.stalls.passes]


def test_the_check_itself_sees_wrong_names() -> None:
    for name in ("dram__bytes_readd.sum", "dram__bytes", "dram__bytes.total", "dram__bytes.sum.per_hour",
                 "smsp__warp_issue_stalled_wait_per_warp_active.sum"):  # fmt: skip
        assert not in_copy(name, "GH100"), name
    assert in_copy("dram__bytes_read.sum", "GH100") and not in_copy("dram__bytes_read.sum", "GB202")
    assert not in_copy("smsp__warp_issue_stalled_gmma_per_warp_active.pct", "GA100")


@needs_database
@pytest.mark.parametrize("chip", CHIPS, ids=IDS)
def test_nvidias_database_knows_every_name_and_gives_the_passes_of_the_table(chip: Chip) -> None:
    try:
        database = MetricDatabase(chip.name)
    except SondaError as error:
        if "does not know the chip" not in str(error):
            raise
        pytest.skip(f"{PACKAGE} {metadata.version(PACKAGE)} has no {chip.name} any more; the recorded copy has")
    with database:
        assert [name for name in asked(chip) if not database.knows(name)] == []
        assert database.passes(chip.core.metrics) == chip.core.passes
        assert database.passes(chip.stalls.metrics) == chip.stalls.passes
        if metadata.version(PACKAGE) == RECORDED["version"]:
            bit = 1 << RECORDED["chips"].index(chip.name)
            copied = {name: kind for kind, names in RECORDED["kinds"].items() for name in names if names[name] & bit}
            assert database.names() == copied


@needs_database
def test_nvidias_database_refuses_what_it_does_not_know() -> None:
    with MetricDatabase("GH100") as database:
        assert not database.knows("dram__bytes_readd.sum") and not database.knows("")
        with pytest.raises(SondaError, match=r"no metric 'sm__nothing\.sum'"):
            database.passes(["dram__bytes.sum", "sm__nothing.sum"])
    with pytest.raises(SondaError, match=r"does not know the chip 'GX999'.*GH100"):
        MetricDatabase("GX999")


def test_the_recorded_database_has_as_many_metrics_as_the_chips_are_known_to_have() -> None:
    """Figures written down from another reading of the same database."""
    found = {}
    for bit, chip in enumerate(RECORDED["chips"]):
        found[chip] = sum(bool(mask & 1 << bit) for names in RECORDED["kinds"].values() for mask in names.values())
    known = {"GV100": 1731, "TU102": 1796, "GA100": 3062, "GA102": 3036, "AD102": 3001, "GH100": 3650, "GB100": 4065,
             "GB110": 4085, "GB202": 3871}  # fmt: skip
    assert {chip: found[chip] for chip in known} == known


def recorded_passes(name: str) -> tuple[list[str], set[str]]:
    """Columns of a table that an H200 wrote, and the passes that ncu says it took."""
    rows = list(csv.reader(line for line in (GPU / "ncu" / name).read_text().splitlines() if line[:1] == '"'))
    return rows[0], {row[rows[0].index("profiler__replayer_passes")] for row in rows[2:]}


def test_a_real_device_needed_the_passes_of_the_table_or_one_more() -> None:
    """The H200 counted all 19 reasons and the time in 7 passes."""
    columns, passes = recorded_passes("stalls.csv")
    hopper = find_chip(9, 0)
    assert set(hopper.stalls.metrics) <= set(columns)
    assert passes == {"7.00"} and hopper.stalls.passes in (6, 7)


@needs_database
def test_a_real_device_needed_the_passes_of_nvidias_database_or_one_more() -> None:
    columns, passes = recorded_passes("raw.csv")
    with MetricDatabase("GH100") as database:
        assert passes == {"5.00"} and database.passes([name for name in columns if database.knows(name)]) in (4, 5)


# ---- the table --------------------------------------------------------------------------------------------------

AMPERE = {"bf16_dst_fp32", "fp16_dst_fp16", "fp16_dst_fp32", "fp64", "int8", "tf32_dst_fp32"}
BLACKWELL = {"bf16_dst_fp32", "fp16_dst_fp16", "fp16_dst_fp32", "fp4_dst_fp32", "fp64", "int8", "tf32_dst_fp32"}
TENSOR = {
    "GV100": {"fp16_dst_fp16", "fp16_dst_fp32"},
    "TU102": {"fp16_bf16_tf32_dst_fp32", "fp16_dst_fp16", "int8"},
    "GA100": AMPERE,
    "GA102": AMPERE,
    "AD102": AMPERE | {"fp8"},
    "GH100": {"tf32_dst_fp32", "bf16_dst_fp32", "fp16", "fp64", "fp8", "int8"},
    "GB100": BLACKWELL | {"fp4_fp6_fp8_dst_fp16", "fp4_fp6_fp8_dst_fp32"},
    "GB110": BLACKWELL | {"fp4_fp6_dst_fp16", "fp4_fp6_dst_fp32", "fp8_dst_fp16", "fp8_dst_fp32"},
    "GB202": BLACKWELL | {"fp4_fp6_dst_fp16", "fp4_fp6_dst_fp32", "fp8_dst_fp16", "fp8_dst_fp32"},
}
"""Written down by hand, without the integers of 1 and 4 bits that are not asked for."""


@pytest.mark.parametrize("chip", [chip for chip in CHIPS if chip.name in TENSOR], ids=lambda chip: chip.name)
def test_tensor_operations_are_asked_for_in_every_precision_of_the_chip(chip: Chip) -> None:
    begin, end = "sm__ops_path_tensor_src_", ".sum"
    found = {
        name[len(begin) : -len(end)] for name in chip.core.metrics if name.startswith(begin) and name.endswith(end)
    }
    assert found == TENSOR[chip.name]
    peaks = {name for name in chip.core.metrics if name.startswith(begin) and name.endswith(".peak_sustained")}
    assert len(peaks) == len([kind for kind in found if not kind.startswith("int")])


@pytest.mark.parametrize("chip", CHIPS, ids=IDS)
def test_nothing_is_asked_for_in_vain(chip: Chip) -> None:
    """Every name becomes a quantity, the time, or a peak that a quantity is held against."""
    assert [name for name in asked(chip) if not ncu_metrics.is_known(name)] == []
    assert len(set(chip.core.metrics)) == len(chip.core.metrics)


def test_stall_reasons_differ_as_the_chips_do() -> None:
    def reasons(major: int, minor: int) -> set[str]:
        metrics = find_chip(major, minor).stalls.metrics[1:]
        return {name.removeprefix("smsp__warp_issue_stalled_").removesuffix("_per_warp_active.pct") for name in metrics}

    assert reasons(9, 0) == set(STALLS)
    assert reasons(8, 0) == set(STALLS) - {"gmma"}
    assert reasons(10, 0) == reasons(12, 0) == set(STALLS) - {"gmma", "imc_miss"}


def test_chips_are_chosen_by_compute_capability() -> None:
    assert [find_chip(*version).name for version in ((7, 0), (8, 6), (8, 9), (9, 0), (10, 3), (12, 0))] == [
        "GV100", "GA102", "AD102", "GH100", "GB110", "GB202"]  # fmt: skip
    assert find_chip(9, 0).exact
    later = find_chip(13, 0)
    assert later.name == "GB202" and later.capability == "13.0" and not later.exact
    with pytest.raises(SondaError, match=r"compute capability 6\.1; use a GPU of 7\.0"):
        find_chip(6, 1)


def test_fewer_metrics_are_announced_with_no_more_passes() -> None:
    hopper = find_chip(9, 0)
    for whole in (hopper.core, hopper.stalls):
        assert count_passes(hopper, whole.metrics) == whole.passes
        assert 1 <= count_passes(hopper, whole.metrics[:6]) <= whole.passes


def test_without_nvidias_package_the_table_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "files", absent)
    with pytest.raises(MissingExtraError, match=r"pip install 'sonda-profiler\[gpu\]'"):
        find_library()
    hopper = find_chip(9, 0)
    assert count_passes(hopper, hopper.core.metrics[:3]) == hopper.core.passes
    assert count_passes(hopper, hopper.stalls.metrics[:3]) == hopper.stalls.passes
