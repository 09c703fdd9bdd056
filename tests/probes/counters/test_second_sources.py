"""perf stat and PAPI: their real output, and that they agree with our own counters where they are installed."""

from __future__ import annotations

import shutil
import subprocess
import sys

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perf_event_cases import descriptors, needs_kernel, settled, touch
from places import TESTS
from sonda.frameworks.collector.counters.perf_event import Event, EventGroup
from sonda.probes.counters.command_counter import EventCount, KernelCounter
from sonda.probes.counters.papi import Papi
from sonda.probes.counters.perf_stat import PerfStat, parse_output
from sonda.record.errors import SondaError

__all__ = ["settled"]

DATA = (TESTS / "data") / "perf_stat"
PERF = PerfStat().state()
PAPI = Papi().state()
needs_perf = pytest.mark.skipif(PERF.state != "ok", reason=f"perf: {PERF.reason}")
needs_papi = pytest.mark.skipif(PAPI.state != "ok", reason=f"PAPI: {PAPI.reason}")


# ---- what perf writes ---------------------------------------------------------------------------------------------


def test_real_output_of_a_whole_command() -> None:
    # Recorded with perf 6.1 on a machine without a PMU; the numbers are those in the file.
    found = parse_output((DATA / "whole.json").read_text())
    assert found.counts["page-faults"] == EventCount(338.0, 4767124, 4767124)
    assert found.counts["task-clock"].value == 4767124  # 4.767124 msec
    assert found.counts["context-switches"].value == 1
    assert found.missing == {"instructions": "not supported", "cycles": "not supported"}
    assert found.series == []


def test_real_output_in_intervals() -> None:
    found = parse_output((DATA / "interval.json").read_text())
    assert [time for time, _ in found.series] == [0.020133550, 0.040425598, 0.065390735, 0.069823851]
    # Nothing happened while it slept, which perf calls `<not counted>`; sums run on.
    assert [counts["page-faults"].value for _, counts in found.series] == [479, 479, 479, 479]
    assert found.counts["page-faults"].value == 479
    assert found.counts["task-clock"].value == pytest.approx(17_246_182 + 115_027)
    assert found.missing == {"instructions": "not supported"}


def test_a_value_that_perf_scaled_is_marked() -> None:
    line = (
        '{"counter-value" : "5000.0", "unit" : "", "event" : "cycles:u", "event-runtime" : 250, "pcnt-running" : 25.00}'
    )
    assert parse_output(line).counts["cycles"] == EventCount(5000.0, 1000, 250)


def test_what_an_ordinary_users_perf_leaves_out_is_missing_and_not_zero() -> None:
    # perf 6.1 at perf_event_paranoid 2: `true`, which is switched and faults in the kernel as every program does.
    lines = (
        '{"counter-value" : "0.674127", "unit" : "msec", "event" : "task-clock:u", "event-runtime" : 674127, '
        '"pcnt-running" : 100.00}\n'
        '{"counter-value" : "46.000000", "unit" : "", "event" : "page-faults:u", "event-runtime" : 674127}\n'
        '{"counter-value" : "0.000000", "unit" : "", "event" : "context-switches:u", "event-runtime" : 674127}\n'
        '{"counter-value" : "0.000000", "unit" : "", "event" : "cpu-migrations:u", "event-runtime" : 674127}\n'
    )
    found = parse_output(lines)
    assert found.counts == {"task-clock": EventCount(674127.0, 674127, 674127)}
    assert set(found.missing) == {"page-faults", "context-switches", "cpu-migrations"}
    assert all("user mode only" in reason for reason in found.missing.values())


@pytest.mark.parametrize("text", ["", "# started\n\n", "[1, 2]", '{"interval": 1}', "Error: no such event"])
def test_output_without_counters_is_one_line(text: str) -> None:
    with pytest.raises(SondaError, match="wrote no counters"):
        parse_output(text)


@given(st.text(max_size=300))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_output(text)
    except SondaError:
        pass


def test_without_perf_one_line_says_so() -> None:
    missing = PerfStat("no-such-perf")
    assert missing.state().state == "missing"
    with pytest.raises(SondaError, match="not installed"):
        missing.count(["true"], ["page-faults"])


# ---- agreement ----------------------------------------------------------------------------------------------------

PROGRAM = "import mmap\nm = mmap.mmap(-1, 4000 * 4096)\nfor p in range(4000): m[p * 4096] = 1\n"


@needs_perf
@needs_kernel
@pytest.mark.skipif(shutil.which("setarch") is None, reason="needs setarch, to have the same addresses each time")
def test_perf_stat_and_our_own_counters_agree() -> None:
    command = ["setarch", "-R", "env", "-i", "PYTHONHASHSEED=0", sys.executable, "-S", "-E", "-c", PROGRAM]
    KernelCounter().count(command, ["page-faults"])  # its files may have to come from the disk
    ours = KernelCounter().count(command, ["page-faults"])
    theirs = PerfStat().count(command, ["page-faults"])
    assert ours.code == theirs.code == 0
    # Both begin with the exec. The kernel maps pages of files in blocks of up to 16, as far as it finds them in memory.
    assert abs(ours.counts["page-faults"].value - theirs.counts["page-faults"].value) <= 16


@needs_perf
def test_perf_stat_passes_the_exit_code_on_and_gives_a_series() -> None:
    assert PerfStat().count([sys.executable, "-S", "-c", "raise SystemExit(4)"], ["page-faults"]).code == 4
    program = PROGRAM + "import time\ntime.sleep(0.5)"
    found = PerfStat().count([sys.executable, "-S", "-c", program], ["page-faults"], interval=0.05)
    assert len(found.series) >= 2
    assert found.series[-1][1]["page-faults"].value == found.counts["page-faults"].value >= 4000
    with pytest.raises(SondaError, match="too short"):
        PerfStat().count(["true"], ["page-faults"], interval=0.001)


def test_without_papi_one_line_says_so() -> None:
    missing = Papi(["libno-such-papi.so"])
    assert missing.state().state == "missing" and "apt install" in missing.state().remedy
    with pytest.raises(SondaError, match="not installed"):
        missing.count(["true"], ["page-faults"])


@needs_papi
@needs_kernel
@pytest.mark.usefixtures("settled")
def test_papi_and_our_own_counters_agree_on_a_thread() -> None:
    group = EventGroup([Event("page_faults", 1, 2, kernel=True)])
    group.enable()
    touch(10)
    seen = []

    def work() -> None:
        before = group.read().values[0]
        touch(3000)
        seen.append(group.read().values[0] - before)

    # The first time, pages of PAPI's library come in.
    _, counted = (Papi().count_in_thread(work, ["page-faults", "task-clock"]) for _ in range(2))
    group.close()
    assert seen[1] >= 3000, "a page of the interpreter may come in besides"
    # PAPI's own start and stop may touch a page or two of its library.
    assert seen[1] <= counted["page-faults"].value <= seen[1] + 8
    assert counted["task-clock"].value > 0


@needs_papi
def test_papi_names_what_it_cannot_count() -> None:
    with pytest.raises(SondaError, match="PAPI counts none of no::such"):
        Papi().count_in_thread(lambda: None, ["no::such"])
    with pytest.raises(SondaError, match="no series"):
        Papi().count(["true"], ["page-faults"], interval=1.0)


@needs_papi
def test_papi_counts_a_command_or_says_that_it_cannot_attach() -> None:
    before, children = descriptors(), set(psutil.Process().children())
    try:
        found = Papi().count([sys.executable, "-S", "-c", PROGRAM], ["page-faults"])
    except SondaError as error:
        assert "without a PMU" in error.cause
        assert descriptors() <= before and set(psutil.Process().children()) <= children
    else:
        assert found.code == 0 and found.counts["page-faults"].value >= 4000


def test_the_fixtures_are_what_the_installed_perf_writes() -> None:
    if PERF.state != "ok":
        pytest.skip(PERF.reason)
    keys = parse_keys((DATA / "whole.json").read_text())
    real = subprocess.run(
        ["perf", "stat", "-j", "-e", "page-faults", "true"], capture_output=True, text=True, check=True
    )
    assert keys <= parse_keys(real.stderr) | {"metric-value", "metric-unit"}


def parse_keys(text: str) -> set[str]:
    import json

    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return set().union(*lines)


class PapiWithoutEvents:
    """Stands in for a libpapi whose libpfm does not know the processor: it loads, and has no event."""

    def PAPI_create_eventset(self, number: object) -> int:  # noqa: N802
        return 0

    def PAPI_add_named_event(self, number: object, name: bytes) -> int:  # noqa: N802
        return -7

    def PAPI_strerror(self, code: object) -> bytes:  # noqa: N802
        return b"Event does not exist"


def test_a_papi_that_has_no_event_on_this_processor_is_missing() -> None:
    papi = Papi()
    papi._library = PapiWithoutEvents()
    state = papi.state()
    assert (state.state, state.reason) == ("missing", "PAPI counts none of task-clock: event does not exist")
