"""One lock for everybody who measures on a node."""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sonda.record.errors import SondaError
from sonda.record.files.partial import NODE
from sonda.studies.executors.node_lock import hold_node

SOMEBODY, ANYBODY = 65533, 65534
"""Numbers of users."""


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of temporary files as systems have them: for everybody, and only owners remove."""
    place = Path(tempfile.mkdtemp(prefix="sonda-alone-test-"))
    place.chmod(0o1777)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(place))
    monkeypatch.setenv(NODE, "here")
    yield place
    shutil.rmtree(place)


def is_locked(path: Path) -> bool:
    """Whether anybody else who opens the file to read it is kept out."""
    with path.open() as other:
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def as_user(user: int, work: Callable[[], None]) -> threading.Thread:
    """A thread that sees files as this user does; only that thread."""

    def run() -> None:
        ctypes.CDLL(None).setfsuid(user)
        work()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_who_measures_is_alone_and_simulations_share(folder: Path) -> None:
    path = folder / "sonda-alone-here"
    before = os.umask(0o077)
    try:
        with hold_node(fcntl.LOCK_EX):
            assert path.stat().st_mode & 0o777 == 0o644, "others lock it too, whatever the mask of the first"
            assert is_locked(path)
    finally:
        os.umask(before)
    with hold_node(fcntl.LOCK_SH), hold_node(fcntl.LOCK_SH):
        assert is_locked(path), "but nobody measures meanwhile"
    assert not is_locked(path)


def test_a_file_that_others_may_only_read_is_locked(folder: Path) -> None:
    path = folder / "sonda-alone-here"
    path.touch(0o444)
    with hold_node(fcntl.LOCK_EX):
        assert is_locked(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can see files as other users do")
def test_another_user_waits_too(folder: Path) -> None:
    """And may not write the file."""
    path = folder / "sonda-alone-here"
    begun, end, said = threading.Event(), threading.Event(), list[str]()
    refused: list[str] = []

    def measure() -> None:
        with hold_node(fcntl.LOCK_EX):
            begun.set()
            end.wait(300)

    def follow() -> None:
        try:
            path.open("ab").close()
        except PermissionError:
            refused.append(str(path))
        with hold_node(fcntl.LOCK_EX, said.append):
            assert end.is_set()
            refused.append("and yet it was locked")

    before = os.umask(0o077)
    try:
        first = as_user(SOMEBODY, measure)
        assert begun.wait(300)
    finally:
        os.umask(before)
    second = as_user(ANYBODY, follow)
    while not said and second.is_alive():
        second.join(0.01)
    end.set()
    first.join(300)
    second.join(300)
    assert path.stat().st_uid == SOMEBODY
    assert refused == [str(path), "and yet it was locked"] and len(said) == 1


def test_a_file_that_was_removed_meanwhile_keeps_nobody_out(folder: Path) -> None:
    """Somebody waits for it, the folder is tidied up, and a third one has made it anew."""
    path = folder / "sonda-alone-here"
    said: list[str] = []
    got = threading.Event()

    def wait() -> None:
        with hold_node(fcntl.LOCK_EX, said.append):
            got.set()

    path.touch()
    with path.open() as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        waiter = threading.Thread(target=wait)
        waiter.start()
        while not said:
            waiter.join(0.01)
        path.unlink()
        path.touch()
        with path.open() as second:
            fcntl.flock(second, fcntl.LOCK_EX)
            fcntl.flock(first, fcntl.LOCK_UN)
            while len(said) < 2:
                waiter.join(0.01)
            assert not got.is_set()
        waiter.join(300)
    assert got.is_set()
    assert said == [f"waiting until nobody else measures or simulates on this machine ({path})"] * 2


def test_simulations_do_not_keep_a_measurement_out(folder: Path) -> None:
    """One simulates, one waits to measure; whoever then begins to simulate comes after it."""
    said: dict[str, list[str]] = {"measured": [], "simulated": []}
    order: list[str] = []

    def take_part(name: str, how: int) -> threading.Thread:
        def work() -> None:
            with hold_node(how, said[name].append):
                order.append(name)

        thread = threading.Thread(target=work)
        thread.start()
        while thread.is_alive() and not said[name]:
            thread.join(0.01)
        return thread

    with hold_node(fcntl.LOCK_SH):
        threads = [take_part("measured", fcntl.LOCK_EX), take_part("simulated", fcntl.LOCK_SH)]
        assert order == []
    for thread in threads:
        thread.join(300)
    assert order == ["measured", "simulated"]
    path = folder / "sonda-alone-here"
    assert said == {
        "measured": [f"waiting until nobody else measures or simulates on this machine ({path})"],
        "simulated": [f"waiting until nobody measures on this machine ({path})"],
    }


def test_what_is_no_file_is_refused_in_one_line(folder: Path) -> None:
    path = folder / "sonda-alone-here"
    os.mkfifo(path)
    with pytest.raises(SondaError, match="is no file of Sonda's; have it removed"), hold_node(fcntl.LOCK_EX):
        pass
    path.unlink()
    path.symlink_to("/dev/null")
    with pytest.raises(SondaError, match="whether anybody measures on this machine is not known"):
        with hold_node(fcntl.LOCK_EX):
            pass
