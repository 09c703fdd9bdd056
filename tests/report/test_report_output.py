"""Files that are written for others: whole or not at all, and a place that takes none is one line."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from builders import stepped
from command_line import run_command
from sonda.record.errors import SondaError
from sonda.record.run import write_run
from sonda.report.output import whole_file


def write(path: Path, data: bytes = b"new") -> None:
    with whole_file(path) as stream:
        stream.write(data)


@pytest.mark.parametrize("name", ["", ".", "..", "/", "folder", "folder/"])
def test_a_folder_is_no_file_to_write(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(SondaError, match="is a folder, not a file to write; name a file in it"):
        write(Path(name))
    assert [path.name for path in tmp_path.iterdir()] == ["folder"] and not list((tmp_path / "folder").iterdir())


def test_a_file_in_the_place_of_a_folder_is_told_as_that(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name in ("file/page.html", "file/deeper/page.html"):
        with pytest.raises(SondaError, match=rf"cannot write .*{name}: Not a directory; choose another place"):
            write(tmp_path / name)


def test_a_link_is_followed_and_stays(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    link = tmp_path / "page.html"
    link.symlink_to(tmp_path / "far" / "kept.html")
    write(link)
    assert link.is_symlink() and (tmp_path / "far" / "kept.html").read_bytes() == b"new"
    assert [path.name for path in (tmp_path / "far").iterdir()] == ["kept.html"]


def test_what_is_no_file_is_written_to_and_stays(tmp_path: Path) -> None:
    """As /dev/null, which must not become a file."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write(pipe)
    reader.join(timeout=300)
    assert read == [b"new"] and pipe.is_fifo() and [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_what_fails_halfway_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), whole_file(path) as stream:
        stream.write(b"half")
        raise ZeroDivisionError
    assert path.read_bytes() == b"old" and [one.name for one in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.parametrize(
    "words", [("report", "-o", "."), ("report", "-o", ""), ("export", "--trace", ".."), ("export", "--xplane", "/")]
)
def test_commands_say_so_in_one_line(words: tuple[str, ...], tmp_path: Path) -> None:
    run = stepped([100.0] * 8)
    write_run(tmp_path / "store", run.info, run.spans)
    done = run_command(tmp_path, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("sonda: ")
    assert done.stderr.endswith(" is a folder, not a file to write; name a file in it\n")
    assert done.stderr.count("\n") == 1
