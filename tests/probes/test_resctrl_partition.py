"""Partitions of a cache through resctrl: what they change, and that state is restored, also after kill -9."""

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
from places import SUPPORT
from sonda.probes.cache_partition import partition as resctrl_partition
from sonda.probes.cache_partition.partition import (
    CacheShares,
    check_left_partition,
    divide_ways,
    find_free_ways,
    journal_path,
    open_partition,
    restore_partition,
)
from sonda.probes.cache_partition.resctrl import (
    Resctrl,
    ResctrlError,
    parse_schemata,
)
from sonda.probes.cache_partition.resctrl_files import MountedFiles
from sonda.record.errors import SondaError

no_sleep = lambda seconds: None  # noqa: E731


def intel() -> FakeResctrl:
    return FakeResctrl("intel-2-socket")


# ---- partitions -------------------------------------------------------------------------------------------------


def test_ways_become_masks_side_by_side():
    cache = Resctrl(intel()).capabilities.cache
    assert divide_ways({"a": 4, "b": 6}, cache) == {"a": 0b1111, "b": 0b1111110000}
    with pytest.raises(SondaError, match="4\\+7 ways are too many"):
        divide_ways({"a": 4, "b": 7}, cache)  # 11 of 11: nothing for all others
    with pytest.raises(SondaError, match="a: 0 ways"):
        divide_ways({"a": 0, "b": 1}, cache)


@pytest.mark.parametrize(("masks", "rest"), [([0xF], 0x7F0), ([0x0F0], 0xF), ([0x01E], 0x7E0), ([0x7FF], 0)])
def test_the_rest_is_the_longest_row_that_nobody_has(masks, rest):
    assert find_free_ways(masks, Resctrl(intel()).capabilities.cache) == rest


def test_a_partition_shrinks_the_default_group_and_leaves_nothing(tmp_path):
    files = intel()
    before = files.read("schemata")
    with open_partition(files, tmp_path, ["a", "b"], [1], control=True) as partition:
        partition.share(CacheShares({"a": 0xF, "b": 0x70}))
        groups = partition.groups
        assert files.groups[groups["a"]].lines["L3"] == {0: "7ff", 1: "f"}, "only the domain where they run"
        assert files.groups[groups["b"]].lines["L3"][1] == "70"
        assert files.groups[""].lines["L3"] == {0: "7ff", 1: "780"}
        partition.share(None)
        assert files.read("schemata") == before
        assert files.groups[groups["a"]].lines["L3"][1] == "7ff"
        partition.share(CacheShares({"a": 0x3}))
        assert files.groups[groups["b"]].lines["L3"][1] == "7fc", "who has no mask stays with all others"
    assert files.read("schemata") == before
    assert list(files.groups) == [""] and not journal_path(tmp_path).exists() and not files.locked


def test_masks_that_leave_nothing_are_told(tmp_path):
    with open_partition(intel(), tmp_path, ["a"], [0], control=True) as partition:
        notes = partition.share(CacheShares({"a": 0x7FF}))
    assert any("no ways" in note for note in notes) and any("600" in note for note in notes)


def test_code_and_data_get_the_same_ways(tmp_path):
    files = FakeResctrl("cdp")
    with open_partition(files, tmp_path, ["a"], [0], control=True) as partition:
        partition.share(CacheShares({"a": 0xFF}))
        lines = files.groups[partition.groups["a"]].lines
        assert lines["L3CODE"][0] == lines["L3DATA"][0] == "ff"
        assert files.groups[""].lines["L3CODE"][0] == "fff00"
    assert files.groups[""].lines["L3CODE"][0] == files.groups[""].lines["L3DATA"][0] == "fffff"


def test_bandwidth_is_given_and_checked(tmp_path):
    files = intel()
    with open_partition(files, tmp_path, ["a"], [0], control=True) as partition:
        partition.share(CacheShares({}, {"a": 50}))
        assert files.groups[partition.groups["a"]].lines["MB"] == {0: "50", 1: "100"}
        for value, word in ((55, "multiple of 10"), (5, "below 10")):
            with pytest.raises(SondaError, match=word):
                partition.share(CacheShares({}, {"a": value}))
        with pytest.raises(ResctrlError, match="out of range"):
            partition.share(CacheShares({}, {"a": 500}))
    assert list(files.groups) == [""]


def test_bandwidth_alone_can_be_given(tmp_path):
    files = FakeResctrl("no-l3")
    with open_partition(files, tmp_path, ["a"], [1], control=True) as partition:
        partition.share(CacheShares({}, {"a": 30}))
        assert files.groups[partition.groups["a"]].lines["MB"] == {0: "100", 1: "30"}
        partition.share(None)
        assert files.groups[partition.groups["a"]].lines["MB"] == {0: "100", 1: "100"}
    assert list(files.groups) == [""]


def test_where_nothing_can_be_divided_groups_only_watch(tmp_path):
    files = FakeResctrl("monitor-only")
    with open_partition(files, tmp_path, ["a"], [], control=False) as partition:
        assert partition.groups["a"] in files.groups and partition.share(None) == []
        assert partition.resctrl.read_usage(partition.groups["a"]).occupancy == 0
    assert list(files.groups) == [""]


def test_a_refusal_in_the_middle_restores_what_was_done(tmp_path):
    files = intel()
    files.refuse[f"sonda-{os.getpid()}-1"] = errno.ENOSPC
    with pytest.raises(ResctrlError, match="ENOSPC"):
        with open_partition(files, tmp_path, ["a", "b"], [0], control=True):
            pytest.fail("it must not begin")
    assert list(files.groups) == [""] and not journal_path(tmp_path).exists()


def test_the_journal_is_there_before_anything_changes(tmp_path):
    files = intel()
    seen = []
    original = files.make
    files.make = lambda path: seen.append(journal_path(tmp_path).exists()) or original(path)
    with open_partition(files, tmp_path, ["a"], [0], control=True):
        pass
    assert seen == [True]


# ---- after kill -9 ----------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from fake_resctrl import FakeResctrl
from sonda.probes.cache_partition.resctrl_files import MountedFiles
from sonda.probes.cache_partition.partition import CacheShares, open_partition
class Tree(MountedFiles):
    def make(self, path):
        super().make(path)
        (self.root / path / "schemata").write_text("L3:0=7ff;1=7ff\\nMB:0=100;1=100\\n")
files = Tree(Path(sys.argv[1]))
with open_partition(files, Path(sys.argv[2]), ["a"], [0], control=True) as partition:
    partition.share(CacheShares({"a": 0xf}))
    os.kill(os.getpid(), signal.SIGKILL)
"""


class Tree(MountedFiles):
    """A copied tree: removing a group must take the files that the kernel would take."""

    def remove(self, path: str) -> None:
        shutil.rmtree(self.root / path)


def test_what_a_killed_process_left_is_restored_at_the_next_start(tmp_path):
    root, store = tmp_path / "resctrl", tmp_path / "store"
    shutil.copytree(TREES / "intel-2-socket", root)
    done = subprocess.run([sys.executable, "-c", KILLED, str(root), str(store), str(SUPPORT)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert parse_schemata((root / "schemata").read_text()) == {"L3": {0: "7f0"}}, "left as it was divided"
    assert len(list(root.glob("sonda-*"))) == 1
    said = restore_partition(store, Tree(root))
    assert "restored" in said
    # A plain file keeps what was written last; the kernel would merge it into the other domains.
    assert parse_schemata((root / "schemata").read_text()) == {"L3": {0: "7ff"}}
    assert list(root.glob("sonda-*")) == []
    assert restore_partition(store, Tree(root)) == "", "once"


def journal(tmp_path: Path, **changes) -> None:
    fields = {"process": 1 << 30, "started": "1", "schemata": {"L3": {0: "7ff"}},
              "groups": ["sonda-9-0"], **changes}  # fmt: skip
    journal_path(tmp_path).write_bytes(msgspec.json.encode(fields))


def test_a_living_process_is_left_alone(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        journal(tmp_path, process=child.pid, started=resctrl_partition._process_start(child.pid))
        with pytest.raises(SondaError, match=f"process {child.pid}"):
            restore_partition(tmp_path, intel())
        journal(tmp_path, process=child.pid, started="1")  # the number of a process that is gone, given again
        assert "restored" in restore_partition(tmp_path, intel())
    finally:
        child.kill()
        child.communicate()


def test_what_another_machine_or_another_boot_has_divided_is_left_alone(tmp_path, monkeypatch):
    files = intel()
    journal(tmp_path)
    theirs = journal_path(tmp_path)
    (tmp_path / "boot").write_text("another\n")
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(resctrl_partition, "BOOT", tmp_path / "boot")
        assert restore_partition(tmp_path, files) == "" and files.commands == []
        with open_partition(files, tmp_path, ["a"], [0], True):
            assert theirs.exists() and journal_path(tmp_path).exists() and journal_path(tmp_path) != theirs
    assert theirs.exists() and "restored" in restore_partition(tmp_path, files)


def test_where_resctrl_is_not_mounted_there_is_nothing_to_restore(tmp_path):
    journal(tmp_path)
    for root in (tmp_path / "no such directory", tmp_path):
        assert restore_partition(tmp_path, MountedFiles(root)) == ""
        assert check_left_partition(tmp_path, MountedFiles(root)) == []
    assert journal_path(tmp_path).exists(), "the host may see what a container does not"


def test_a_damaged_journal_is_not_passed_over(tmp_path):
    journal_path(tmp_path).write_text("{")
    with pytest.raises(SondaError, match="cache partitions may have been left"):
        restore_partition(tmp_path, intel())


def test_a_restoring_that_is_refused_keeps_the_journal(tmp_path):
    journal(tmp_path, schemata={"L3": {0: "5"}})
    with pytest.raises(ResctrlError, match="non-consecutive"):
        restore_partition(tmp_path, intel())
    assert journal_path(tmp_path).exists()


def test_a_store_that_cannot_be_written_changes_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    files = intel()
    with pytest.raises(SondaError, match="journal"):
        with open_partition(files, tmp_path / "file", ["a"], [0], control=True):
            pytest.fail("it must not begin")
    assert files.commands == []


def test_the_lock_of_another_tool_is_waited_for_and_named(tmp_path, monkeypatch):
    import fcntl

    from sonda.probes.cache_partition import resctrl_files

    monkeypatch.setattr(resctrl_files, "LOCK_S", 0.1)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        with pytest.raises(SondaError, match="held the lock"), MountedFiles(tmp_path).lock():
            pytest.fail("it must not begin")
    finally:
        os.close(descriptor)
    with MountedFiles(tmp_path).lock():
        pass


def test_an_examination_restores_and_says_so(tmp_path):
    assert check_left_partition(tmp_path, intel()) == []
    journal(tmp_path)
    ((_, state, detail, _),) = check_left_partition(tmp_path, intel())
    assert state == "ok" and "restored" in detail
    journal_path(tmp_path).write_text("{")
    ((_, state, _, remedy),) = check_left_partition(tmp_path, intel())
    assert state == "warning" and remedy
