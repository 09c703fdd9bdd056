"""Descriptors of the collector: a program that closes them, and opens files of its own, loses and notices nothing."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from sonda.frameworks.collector.counters.run_queue import RunQueue
from sonda.frameworks.collector.counters.system import OsCounters
from sonda.frameworks.collector.descriptors import ASIDE, close_named, move_aside
from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.reconstruction.events import read_events

CONTENT = bytes(range(256)) * 16


def opened_since(before: set[int]) -> list[int]:
    return sorted({int(name) for name in os.listdir("/proc/self/fd")} - before)


def descriptors() -> set[int]:
    return {int(name) for name in os.listdir("/proc/self/fd")}


@pytest.fixture
def content(tmp_path: Path) -> Path:
    path = tmp_path / "content"
    path.write_bytes(CONTENT)
    return path


def replaced(numbers: list[int], path: Path) -> None:
    """Close each and open a file under its number, as a program may."""
    for number in numbers:
        file = os.open(path, os.O_RDWR)
        os.dup2(file, number)
        os.close(file)


def untouched(numbers: list[int], path: Path) -> None:
    """Each is open still, at its beginning, and nothing was written; closes them."""
    for number in numbers:
        assert os.lseek(number, 0, os.SEEK_CUR) == 0
        os.close(number)
    assert path.read_bytes() == CONTENT


def test_a_descriptor_stands_aside_under_a_number_that_new_files_do_not_get(content: Path) -> None:
    first = os.open(content, os.O_RDONLY)
    high = move_aside(first)
    again = os.open(content, os.O_RDONLY)
    try:
        assert high >= ASIDE and again == first, "the low number is free again"
        assert os.read(high, 4) == CONTENT[:4]
        assert not os.get_inheritable(high)
    finally:
        os.close(high)
        os.close(again)


def test_a_low_limit_of_open_files_leaves_it_where_it_is(content: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    file = os.open(content, os.O_RDONLY)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(ASIDE, hard), hard))
    try:
        assert move_aside(file) == file
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        os.close(file)


def test_what_counts_and_what_records_stands_aside(tmp_path: Path) -> None:
    before = descriptors()
    counters, recorder = OsCounters(0), Recorder(str(tmp_path))
    recorder.state(versions={})
    recorder.flush()
    found = opened_since(before)
    counters.close()
    recorder.close()
    assert found and min(found) >= ASIDE
    assert opened_since(before) == []


def test_what_was_closed_and_is_another_file_now_is_not_closed(content: Path) -> None:
    before = descriptors()
    queue = RunQueue()
    queue.open(0)
    numbers = opened_since(before)
    assert numbers
    replaced(numbers, content)
    queue.read(1)  # not a count of the scheduler's: the thread is taken to have ended
    queue.close()
    untouched(numbers, content)


def test_only_a_file_of_that_name_is_closed(content: Path) -> None:
    file = os.open(content, os.O_RDONLY)
    close_named(file, "/schedstat")
    assert os.read(file, 1) == CONTENT[:1]
    close_named(file, "/content")
    with pytest.raises(OSError):
        os.read(file, 1)
    close_named(file, "/content")  # closed already: nothing happens


@pytest.mark.parametrize("reused", [False, True], ids=["closed", "another file"])
def test_a_recorder_whose_file_was_closed_goes_on_in_it(tmp_path: Path, content: Path, reused: bool) -> None:
    directory = tmp_path / "events"
    directory.mkdir()
    before = descriptors()
    recorder = Recorder(str(directory))
    recorder.state(note="first")
    recorder.flush()
    (number,) = opened_since(before)
    if reused:
        replaced([number], content)
    else:
        os.close(number)
    recorder.state(note="second")
    recorder.close()
    (file,) = directory.iterdir()
    found = read_events(file)
    assert [fact["note"] for fact in found.facts if "note" in fact] == ["first", "second"]
    if reused:
        untouched([number], content)
