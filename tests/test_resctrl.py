"""resctrl: the rules of the kernel kept, refusals told with their reason, state always restored.

The contract tests run against a resctrl in memory, and against the real one where there is one and this is root.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from fake_resctrl import TREES, FakeResctrl
from sonda.probes.resctrl import (
    Resctrl,
    ResctrlError,
    check_mask,
    contiguous,
    parse_schemata,
    schemata_line,
)
from sonda.probes.resctrl_files import MOUNTED, RealFiles
from sonda.probes.resctrl_partition import (
    JOURNAL,
    Shares,
    left_checks,
    masks_of_ways,
    partitioned,
    rest_of,
    restore_left,
)
from sonda.record.errors import SondaError

REAL = os.geteuid() == 0 and os.access(MOUNTED / "schemata", os.W_OK)
no_sleep = lambda seconds: None  # noqa: E731


def intel() -> FakeResctrl:
    return FakeResctrl("intel-2-socket")


# ---- what there is ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "files", [FakeResctrl("intel-2-socket"), RealFiles(TREES / "intel-2-socket")], ids=["fake", "tree"]
)
def test_an_intel_machine_is_read(files):
    found = Resctrl(files).capabilities
    assert found.cache.names == ("L3",) and found.cache.mask == 0x7FF and found.cache.ways == 11
    assert found.cache.domains == (0, 1) and found.cache.shareable == 0x600 and not found.cache.sparse
    assert (found.bandwidth.least, found.bandwidth.step) == (10, 10)
    assert found.features == ("llc_occupancy", "mbm_total_bytes", "mbm_local_bytes")
    assert found.groups == 8, "the smallest number of all resources: MB has 8, L3 has 16"


def test_an_amd_machine_has_blanks_and_ids_with_gaps():
    resctrl = Resctrl(RealFiles(TREES / "amd-8-ccx"))
    assert resctrl.capabilities.cache.domains == (0, 1, 2, 3, 8, 9, 10, 11)
    assert resctrl.schemata()["MB"][1] == "16" and resctrl.schemata()["MB"][11] == "2048"


def test_counters_without_a_number_are_missing_with_their_word():
    usage = Resctrl(RealFiles(TREES / "amd-8-ccx")).usage()
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
    usage = Resctrl(FakeResctrl("no-l3")).usage()
    assert usage.occupancy is None and "llc_occupancy" in usage.reasons["llc_occupancy"]


@pytest.mark.parametrize("text", ["L3 0=ff", "L3:0", "L3:x=ff", "L3:0=ff=f"])
def test_lines_that_nobody_knows_are_refused(text):
    with pytest.raises(SondaError, match="schemata"):
        parse_schemata(text)


def test_a_line_has_only_the_domains_that_change_and_ends():
    assert schemata_line("L3", {3: "f0", 1: "f"}) == "L3:1=f;3=f0\n"


@pytest.mark.parametrize(("mask", "is_row"), [(0x1, True), (0x7F0, True), (0xF7, False), (0x5, False), (0, False)])
def test_rows_of_ways_are_told_from_masks_with_holes(mask, is_row):
    assert contiguous(mask) == is_row


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
    real = RealFiles()
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
    RealFiles(tmp_path).write("schemata", "L3:0=f\n")
    assert writes == [b"L3:0=f\n"]
    with pytest.raises(FileNotFoundError):
        RealFiles(tmp_path).write("nothing", "1\n")


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
    before = resctrl.usage().total
    files.groups[""].counters["mon_L3_01"]["mbm_total_bytes"] = f"{1048576000 + 64}\n"
    assert resctrl.usage().total - before == 64
    assert before == 2 * 1048576000


# ---- partitions -------------------------------------------------------------------------------------------------


def test_ways_become_masks_side_by_side():
    cache = Resctrl(intel()).capabilities.cache
    assert masks_of_ways({"a": 4, "b": 6}, cache) == {"a": 0b1111, "b": 0b1111110000}
    with pytest.raises(SondaError, match="4\\+7 ways are too many"):
        masks_of_ways({"a": 4, "b": 7}, cache)  # 11 of 11: nothing for all others
    with pytest.raises(SondaError, match="a: 0 ways"):
        masks_of_ways({"a": 0, "b": 1}, cache)


@pytest.mark.parametrize(("masks", "rest"), [([0xF], 0x7F0), ([0x0F0], 0xF), ([0x01E], 0x7E0), ([0x7FF], 0)])
def test_the_rest_is_the_longest_row_that_nobody_has(masks, rest):
    assert rest_of(masks, Resctrl(intel()).capabilities.cache) == rest


def test_a_partition_shrinks_the_default_group_and_leaves_nothing(tmp_path):
    files = intel()
    before = files.read("schemata")
    with partitioned(files, tmp_path, ["a", "b"], [1], control=True) as partition:
        partition.share(Shares({"a": 0xF, "b": 0x70}))
        groups = partition.groups
        assert files.groups[groups["a"]].lines["L3"] == {0: "7ff", 1: "f"}, "only the domain where they run"
        assert files.groups[groups["b"]].lines["L3"][1] == "70"
        assert files.groups[""].lines["L3"] == {0: "7ff", 1: "780"}
        partition.share(None)
        assert files.read("schemata") == before
        assert files.groups[groups["a"]].lines["L3"][1] == "7ff"
        partition.share(Shares({"a": 0x3}))
        assert files.groups[groups["b"]].lines["L3"][1] == "7fc", "who has no mask stays with all others"
    assert files.read("schemata") == before
    assert list(files.groups) == [""] and not (tmp_path / JOURNAL).exists() and not files.locked


def test_masks_that_leave_nothing_are_told(tmp_path):
    with partitioned(intel(), tmp_path, ["a"], [0], control=True) as partition:
        notes = partition.share(Shares({"a": 0x7FF}))
    assert any("no ways" in note for note in notes) and any("600" in note for note in notes)


def test_code_and_data_get_the_same_ways(tmp_path):
    files = FakeResctrl("cdp")
    with partitioned(files, tmp_path, ["a"], [0], control=True) as partition:
        partition.share(Shares({"a": 0xFF}))
        lines = files.groups[partition.groups["a"]].lines
        assert lines["L3CODE"][0] == lines["L3DATA"][0] == "ff"
        assert files.groups[""].lines["L3CODE"][0] == "fff00"
    assert files.groups[""].lines["L3CODE"][0] == files.groups[""].lines["L3DATA"][0] == "fffff"


def test_bandwidth_is_given_and_checked(tmp_path):
    files = intel()
    with partitioned(files, tmp_path, ["a"], [0], control=True) as partition:
        partition.share(Shares({}, {"a": 50}))
        assert files.groups[partition.groups["a"]].lines["MB"] == {0: "50", 1: "100"}
        for value, word in ((55, "multiple of 10"), (5, "below 10")):
            with pytest.raises(SondaError, match=word):
                partition.share(Shares({}, {"a": value}))
        with pytest.raises(ResctrlError, match="out of range"):
            partition.share(Shares({}, {"a": 500}))
    assert list(files.groups) == [""]


def test_bandwidth_alone_can_be_given(tmp_path):
    files = FakeResctrl("no-l3")
    with partitioned(files, tmp_path, ["a"], [1], control=True) as partition:
        partition.share(Shares({}, {"a": 30}))
        assert files.groups[partition.groups["a"]].lines["MB"] == {0: "100", 1: "30"}
        partition.share(None)
        assert files.groups[partition.groups["a"]].lines["MB"] == {0: "100", 1: "100"}
    assert list(files.groups) == [""]


def test_where_nothing_can_be_divided_groups_only_watch(tmp_path):
    files = FakeResctrl("monitor-only")
    with partitioned(files, tmp_path, ["a"], [], control=False) as partition:
        assert partition.groups["a"] in files.groups and partition.share(None) == []
        assert partition.resctrl.usage(partition.groups["a"]).occupancy == 0
    assert list(files.groups) == [""]


def test_a_refusal_in_the_middle_restores_what_was_done(tmp_path):
    files = intel()
    files.refuse[f"sonda-{os.getpid()}-1"] = errno.ENOSPC
    with pytest.raises(ResctrlError, match="ENOSPC"):
        with partitioned(files, tmp_path, ["a", "b"], [0], control=True):
            pytest.fail("it must not begin")
    assert list(files.groups) == [""] and not (tmp_path / JOURNAL).exists()


def test_the_journal_is_there_before_anything_changes(tmp_path):
    files = intel()
    seen = []
    original = files.make
    files.make = lambda path: seen.append((tmp_path / JOURNAL).exists()) or original(path)
    with partitioned(files, tmp_path, ["a"], [0], control=True):
        pass
    assert seen == [True]


# ---- after kill -9 ----------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from fake_resctrl import FakeResctrl
from sonda.probes.resctrl_files import RealFiles
from sonda.probes.resctrl_partition import Shares, partitioned
class Tree(RealFiles):
    def make(self, path):
        super().make(path)
        (self.root / path / "schemata").write_text("L3:0=7ff;1=7ff\\nMB:0=100;1=100\\n")
files = Tree(Path(sys.argv[1]))
with partitioned(files, Path(sys.argv[2]), ["a"], [0], control=True) as partition:
    partition.share(Shares({"a": 0xf}))
    os.kill(os.getpid(), signal.SIGKILL)
"""


class Tree(RealFiles):
    """A copied tree: removing a group must take the files that the kernel would take."""

    def remove(self, path: str) -> None:
        shutil.rmtree(self.root / path)


def test_what_a_killed_process_left_is_restored_at_the_next_start(tmp_path):
    root, store = tmp_path / "resctrl", tmp_path / "store"
    shutil.copytree(TREES / "intel-2-socket", root)
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(root), str(store), str(Path(__file__).parent)], check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert parse_schemata((root / "schemata").read_text()) == {"L3": {0: "7f0"}}, "left as it was divided"
    assert len(list(root.glob("sonda-*"))) == 1
    said = restore_left(store, Tree(root))
    assert "restored" in said
    # A plain file keeps what was written last; the kernel would merge it into the other domains.
    assert parse_schemata((root / "schemata").read_text()) == {"L3": {0: "7ff"}}
    assert list(root.glob("sonda-*")) == []
    assert restore_left(store, Tree(root)) == "", "once"


def journal(tmp_path: Path, **changes) -> None:
    from sonda.probes import resctrl_partition

    fields = {"process": 1 << 30, "started": "1", "boot": resctrl_partition._boot(), "schemata": {"L3": {0: "7ff"}},
              "groups": ["sonda-9-0"], **changes}  # fmt: skip
    (tmp_path / JOURNAL).write_bytes(msgspec.json.encode(fields))


def test_a_living_process_is_left_alone(tmp_path):
    from sonda.probes import resctrl_partition

    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        journal(tmp_path, process=child.pid, started=resctrl_partition._started(child.pid))
        with pytest.raises(SondaError, match=f"process {child.pid}"):
            restore_left(tmp_path, intel())
        journal(tmp_path, process=child.pid, started="1")  # the number of a process that is gone, given again
        assert "restored" in restore_left(tmp_path, intel())
    finally:
        child.kill()
        child.communicate()


def test_after_a_reboot_there_is_nothing_to_restore(tmp_path):
    files = intel()
    journal(tmp_path, boot="another")
    assert restore_left(tmp_path, files) == "" and files.commands == [] and not (tmp_path / JOURNAL).exists()


def test_where_resctrl_is_not_mounted_there_is_nothing_to_restore(tmp_path):
    journal(tmp_path)
    for root in (tmp_path / "no such directory", tmp_path):
        assert restore_left(tmp_path, RealFiles(root)) == "" and left_checks(tmp_path, RealFiles(root)) == []
    assert (tmp_path / JOURNAL).exists(), "the host may see what a container does not"


def test_a_damaged_journal_is_not_passed_over(tmp_path):
    (tmp_path / JOURNAL).write_text("{")
    with pytest.raises(SondaError, match="cache partitions may have been left"):
        restore_left(tmp_path, intel())


def test_a_restoring_that_is_refused_keeps_the_journal(tmp_path):
    journal(tmp_path, schemata={"L3": {0: "5"}})
    with pytest.raises(ResctrlError, match="non-consecutive"):
        restore_left(tmp_path, intel())
    assert (tmp_path / JOURNAL).exists()


def test_a_store_that_cannot_be_written_changes_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    files = intel()
    with pytest.raises(SondaError, match="journal"):
        with partitioned(files, tmp_path / "file", ["a"], [0], control=True):
            pytest.fail("it must not begin")
    assert files.commands == []


def test_the_lock_of_another_tool_is_waited_for_and_named(tmp_path, monkeypatch):
    import fcntl

    from sonda.probes import resctrl_files

    monkeypatch.setattr(resctrl_files, "LOCK_S", 0.1)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        with pytest.raises(SondaError, match="held the lock"), RealFiles(tmp_path).lock():
            pytest.fail("it must not begin")
    finally:
        os.close(descriptor)
    with RealFiles(tmp_path).lock():
        pass


def test_an_examination_restores_and_says_so(tmp_path):
    assert left_checks(tmp_path, intel()) == []
    journal(tmp_path)
    ((_, state, detail, _),) = left_checks(tmp_path, intel())
    assert state == "ok" and "restored" in detail
    (tmp_path / JOURNAL).write_text("{")
    ((_, state, _, remedy),) = left_checks(tmp_path, intel())
    assert state == "warning" and remedy
