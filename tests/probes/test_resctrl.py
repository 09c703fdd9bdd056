"""resctrl: the rules of the kernel kept, refusals told with their reason, state always restored.

The contract tests run against a resctrl in memory, and against the real one where there is one and this is root.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest

from fake_resctrl import TREES, FakeResctrl
from sonda.probes.cache_partition.resctrl import (
    Resctrl,
    ResctrlError,
    check_mask,
    is_contiguous,
    parse_schemata,
    schemata_line,
)
from sonda.probes.cache_partition.resctrl_files import MOUNTED, MountedFiles
from sonda.record.errors import SondaError

REAL = os.geteuid() == 0 and os.access(MOUNTED / "schemata", os.W_OK)
no_sleep = lambda seconds: None  # noqa: E731


def intel() -> FakeResctrl:
    return FakeResctrl("intel-2-socket")


# ---- what there is ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "files", [FakeResctrl("intel-2-socket"), MountedFiles(TREES / "intel-2-socket")], ids=["fake", "tree"]
)
def test_an_intel_machine_is_read(files):
    found = Resctrl(files).capabilities
    assert found.cache.names == ("L3",) and found.cache.mask == 0x7FF and found.cache.ways == 11
    assert found.cache.domains == (0, 1) and found.cache.shareable == 0x600 and not found.cache.sparse
    assert (found.bandwidth.least, found.bandwidth.step) == (10, 10)
    assert found.features == ("llc_occupancy", "mbm_total_bytes", "mbm_local_bytes")
    assert found.groups == 8, "the smallest number of all resources: MB has 8, L3 has 16"


def test_an_amd_machine_has_blanks_and_ids_with_gaps():
    resctrl = Resctrl(MountedFiles(TREES / "amd-8-ccx"))
    assert resctrl.capabilities.cache.domains == (0, 1, 2, 3, 8, 9, 10, 11)
    assert resctrl.schemata()["MB"][1] == "16" and resctrl.schemata()["MB"][11] == "2048"


def test_counters_without_a_number_are_missing_with_their_word():
    usage = Resctrl(MountedFiles(TREES / "amd-8-ccx")).read_usage()
    assert usage.occupancy == 8 * 4325376
    assert usage.total is None and "Unavailable" in usage.reasons["mbm_total_bytes"]
    assert usage.local is None and "Unassigned" in usage.reasons["mbm_local_bytes"]


def test_a_machine_that_only_watches_has_nothing_to_divide():
    found = Resctrl(FakeResctrl("monitor-only")).capabilities
    assert found.cache is None and found.bandwidth is None and found.features


def test_code_and_data_apart_are_two_lines_of_one_cache():
    assert Resctrl(FakeResctrl("cdp")).capabilities.cache.names == ("L3CODE", "L3DATA")


def test_a_machine_without_l3_counts_its_groups_by_l2():
    found = Resctrl(FakeResctrl("no-l3")).capabilities
    assert found.cache is None and found.bandwidth is not None and found.groups == 4
    usage = Resctrl(FakeResctrl("no-l3")).read_usage()
    assert usage.occupancy is None and "llc_occupancy" in usage.reasons["llc_occupancy"]


@pytest.mark.parametrize("text", ["L3 0=ff", "L3:0", "L3:x=ff", "L3:0=ff=f"])
def test_lines_that_nobody_knows_are_refused(text):
    with pytest.raises(SondaError, match="schemata"):
        parse_schemata(text)


def test_a_line_has_only_the_domains_that_change_and_ends():
    assert schemata_line("L3", {3: "f0", 1: "f"}) == "L3:1=f;3=f0\n"


@pytest.mark.parametrize(("mask", "is_row"), [(0x1, True), (0x7F0, True), (0xF7, False), (0x5, False), (0, False)])
def test_rows_of_ways_are_told_from_masks_with_holes(mask, is_row):
    assert is_contiguous(mask) == is_row


def test_masks_are_judged_before_they_are_written():
    cache = Resctrl(intel()).capabilities.cache
    check_mask("a", 0x7F0, cache)
    for mask, word in ((0xF7, "holes"), (0x800, "outside"), (0, "outside")):
        with pytest.raises(SondaError, match=word):
            check_mask("a", mask, cache)


def test_holes_are_allowed_where_the_processor_says_so():
    files = intel()
    files.info["L3/sparse_masks"] = "1\n"
    check_mask("a", 0xF7, Resctrl(files).capabilities.cache)


# ---- the contract -----------------------------------------------------------------------------------------------


@pytest.fixture(
    params=[
        "fake",
        pytest.param(
            "real",
            marks=pytest.mark.skipif(
                not REAL, reason="needs root and a mounted resctrl: as root, mount -t resctrl resctrl /sys/fs/resctrl"
            ),
        ),
    ]
)
def files(request):
    """A resctrl that can divide the last-level cache."""
    if request.param == "fake":
        yield FakeResctrl("intel-2-socket")
        return
    real = MountedFiles()
    if Resctrl(real).capabilities.cache is None:
        pytest.skip("this processor cannot divide its last-level cache")
    yield real
    for name in Resctrl(real).groups():
        if name.startswith("sonda-test"):
            real.remove(name)


def test_contract_a_group_is_made_with_its_files_and_goes_again(files):
    resctrl = Resctrl(files)
    resctrl.make("sonda-test")
    try:
        assert "sonda-test" in resctrl.groups()
        assert resctrl.schemata("sonda-test").keys() == resctrl.schemata().keys()
    finally:
        resctrl.remove("sonda-test")
    assert "sonda-test" not in resctrl.groups()
    resctrl.remove("sonda-test")  # gone already: nothing to complain about


def test_contract_a_mask_is_taken_in_one_domain_only(files):
    resctrl = Resctrl(files)
    cache = resctrl.capabilities.cache
    resctrl.make("sonda-test")
    try:
        resctrl.assign("sonda-test", cache.names[0], {cache.domains[0]: "0x3"})
        found = resctrl.schemata("sonda-test")[cache.names[0]]
        assert int(found[cache.domains[0]], 16) == 3
        assert all(int(found[domain], 16) == cache.mask for domain in cache.domains[1:])
    finally:
        resctrl.remove("sonda-test")


def test_contract_a_refused_mask_names_errno_and_the_kernels_reason(files):
    resctrl = Resctrl(files)
    cache = resctrl.capabilities.cache
    if cache.sparse:
        pytest.skip("this processor allows masks with holes")
    resctrl.make("sonda-test")
    try:
        with pytest.raises(ResctrlError, match=r"EINVAL.*non-consecutive") as caught:
            resctrl.assign("sonda-test", cache.names[0], {cache.domains[0]: "5"})
        assert caught.value.errno == errno.EINVAL
    finally:
        resctrl.remove("sonda-test")


def test_contract_an_unknown_resource_is_refused(files):
    with pytest.raises(ResctrlError, match=r"EINVAL.*L9"):
        Resctrl(files).assign("", "L9", {0: "1"})


def test_contract_groups_run_out_with_a_reason(files):
    resctrl = Resctrl(files, sleep=no_sleep)
    made = []
    try:
        with pytest.raises(ResctrlError, match=r"ENOSPC.*Out of CLOSIDs"):
            for number in range(resctrl.capabilities.groups + 1):
                resctrl.make(f"sonda-test-{number}")
                made.append(f"sonda-test-{number}")
    finally:
        for name in made:
            resctrl.remove(name)
    assert 0 < len(made) <= resctrl.capabilities.groups - 1, "the default group takes one"


def test_contract_every_thread_of_a_program_is_moved(files):
    program = (
        "import threading, sys, time\n"
        "for _ in range(3): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "print('ready', flush=True); sys.stdin.read()"
    )
    resctrl = Resctrl(files)
    resctrl.make("sonda-test")
    child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout.readline() == b"ready\n"
        assert resctrl.move(child.pid, "sonda-test") == 4
        threads = {int(name) for name in os.listdir(f"/proc/{child.pid}/task")}
        assert {int(line) for line in files.read("sonda-test/tasks").split()} == threads
    finally:
        child.kill()
        child.communicate()
        resctrl.remove("sonda-test")


# ---- what only the fake can show --------------------------------------------------------------------------------


def test_every_command_is_one_write_that_ends_with_a_newline():
    files = intel()
    resctrl = Resctrl(files)
    resctrl.make("a")
    resctrl.assign("a", "L3", {0: "f", 1: "f0"})
    assert files.commands == [("mkdir", "a"), ("a/schemata", "L3:0=f;1=f0\n")]


def test_real_files_write_once_and_never_make_a_file(tmp_path, monkeypatch):
    (tmp_path / "schemata").write_text("L3:0=7ff;1=7ff\n")
    writes = []
    original = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: writes.append(data) or original(fd, data))
    MountedFiles(tmp_path).write("schemata", "L3:0=f\n")
    assert writes == [b"L3:0=f\n"]
    with pytest.raises(FileNotFoundError):
        MountedFiles(tmp_path).write("nothing", "1\n")


def test_ids_in_limbo_are_waited_for():
    files = intel()
    files.limbo = 3
    waits = []
    Resctrl(files, sleep=waits.append).make("a")
    assert len(waits) == 3 and "a" in files.groups
    files.limbo = 1000
    with pytest.raises(ResctrlError, match="EBUSY"):
        Resctrl(files, sleep=no_sleep).make("b")


def test_no_permission_says_to_be_root():
    files = intel()
    files.refuse["a"] = errno.EACCES
    with pytest.raises(ResctrlError, match=r"EACCES.*root"):
        Resctrl(files).make("a")


def test_an_exclusive_group_of_somebody_else_is_told():
    files = intel()
    files.make("theirs")
    files.write("theirs/schemata", "L3:0=3;1=3\n")
    files.write("schemata", "L3:0=7fc;1=7fc\n")
    files.write("theirs/mode", "exclusive\n")
    resctrl = Resctrl(files)
    resctrl.make("a")
    with pytest.raises(ResctrlError, match="Overlaps with exclusive group"):
        resctrl.assign("a", "L3", {0: "1"})


def test_a_thread_that_ends_meanwhile_is_no_mistake(tmp_path):
    for thread in (10, 11):
        (tmp_path / f"proc/10/task/{thread}").mkdir(parents=True)
    files = FakeResctrl("intel-2-socket", alive={10})
    resctrl = Resctrl(files)
    resctrl.make("a")
    resctrl.move(10, "a", tmp_path)
    assert set(files.tasks) == {10}
    with pytest.raises(SondaError, match="process 99"):
        resctrl.move(99, "a", tmp_path)


def test_a_monitoring_group_takes_only_tasks_of_its_parent():
    files = intel()
    files.make("a")
    files.make("mon_groups/m")
    files.write("a/tasks", "7\n")
    with pytest.raises(ResctrlError, match="different control group"):
        Resctrl(files)._move_thread(7, "mon_groups/m")
    files.write("mon_groups/m/tasks", "8\n")
    files.write("a/tasks", "8\n")  # moving to a control group takes it out of its monitoring group
    assert files.read("mon_groups/m/tasks") == ""


def test_bandwidth_is_a_difference_and_counters_add_over_domains():
    files = intel()
    resctrl = Resctrl(files)
    before = resctrl.read_usage().total
    files.groups[""].counters["mon_L3_01"]["mbm_total_bytes"] = f"{1048576000 + 64}\n"
    assert resctrl.read_usage().total - before == 64
    assert before == 2 * 1048576000
