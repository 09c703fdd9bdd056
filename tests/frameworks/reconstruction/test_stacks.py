"""Files of stacks are read as far as they are whole; frames have an origin, a module and a source."""

from __future__ import annotations

import json
import os
from array import array
from pathlib import Path

import numpy as np
import pytest

from sonda.frameworks.collector.stacks.file import StackFile
from sonda.frameworks.collector.stacks.threads import LOCK
from sonda.frameworks.reconstruction.span_rows import collection_columns
from sonda.frameworks.reconstruction.stacks import LONGEST_NAME, _find_origin, read_stacks
from sonda.frameworks.reconstruction.system_calls import GENERIC, X86_64, name_call

FACTS = {"process": 7, "begun": 0, "library": "/usr/lib/python3.11", "prefix": "/usr", "machine": "x86_64"}
SOURCE = "def log(rows):\n    for row in rows:\n        send(\n            row,\n        )\n"


def write(directory: Path, place: Path, worker: int | None = None) -> Path:
    """A file of one process: `log` in train.py calls `dumps` of json, sampled twice, and one garbage collection."""
    file = StackFile(str(directory))
    functions = [
        {"code": 0, "file": "train.py", "name": "log", "line": 1},
        {"code": 1, "file": "/usr/lib/python3.11/json/__init__.py", "name": "dumps", "line": 183},
    ]
    frames = array("q", [-1, 0, 3, 8, 5, 9, 0, 1, 231, -1, 231, -1, -1, 0, 2, 4, 5, 9])
    samples = array("q", [100, 7, 1, 50, 40, 0, 0, 0, 200, 7, 2, 100, 0, 0, 0, 203, 300, 7, 1, 100, 90, 6, 2, LOCK])
    file.append(
        [{**FACTS, "place": str(place), "worker": worker}, *functions], frames, samples, array("q", [1, 3, 7, 0])
    )
    return Path(file.path)


def test_frames_and_samples_are_what_was_written(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SOURCE)
    write(tmp_path, tmp_path)
    sampled = read_stacks(tmp_path, 50)
    assert sampled.stacks is not None
    frames, samples = sampled.stacks.frames, sampled.stacks.samples
    assert frames.numbers["parent"].tolist() == [-1, 0, -1]
    assert frames.words["file"].decoded().tolist() == ["train.py", "/usr/lib/python3.11/json/__init__.py", "train.py"]
    assert frames.words["module"].decoded().tolist() == ["", "json", ""]
    # An expression of several lines is told in one; of a loop its head.
    assert frames.words["text"].decoded().tolist() == ["send( row, )", "", "for row in rows:"]
    assert samples.numbers["time"].tolist() == [50, 150, 250], "since the run began"
    assert samples.numbers["lasted"].tolist() == [50, 100, 100]
    assert samples.words["call"].decoded().tolist() == ["", "futex", "interpreter"]
    assert samples.numbers["waits"].tolist() == [0, 0, 2]
    assert sampled.collections.tolist() == [[1, 3, 7, 0, 7]]


def test_a_source_that_is_gone_has_no_text(tmp_path: Path) -> None:
    write(tmp_path, tmp_path)
    sampled = read_stacks(tmp_path, 0)
    assert sampled.stacks is not None and set(sampled.stacks.frames.words["text"].decoded()) == {""}


def read_text_of(directory: Path, source: Path, first_line: int, *position: int) -> str:
    """What is quoted of a position in a function `work`, which a program saw in this file as it is now."""
    file, found = StackFile(str(directory)), source.stat()
    function = {"code": 0, "file": source.name, "name": "work", "line": first_line,
                "written": found.st_mtime_ns, "size": found.st_size}  # fmt: skip
    frames, samples = array("q", [-1, 0, *position]), array("q", [100, 7, 0, 50, 40, 0, 0, 0])
    file.append([{**FACTS, "place": str(source.parent)}, function], frames, samples, array("q"))
    stacks = read_stacks(directory, 0).stacks
    assert stacks is not None
    return str(stacks.frames.words["text"].decoded()[0])


def test_a_source_that_was_written_since_has_no_text(tmp_path: Path) -> None:
    """Its lines are others now: what stands at the line did not run."""
    source = tmp_path / "train.py"
    source.write_text("def work():\n    slow()\n")
    seen = source.stat()
    assert read_text_of(tmp_path, source, 1, 2, 4, 2, 10) == "slow()"
    source.write_text("def work():\n    fast()\n")
    os.utime(source, ns=(seen.st_atime_ns, seen.st_mtime_ns + 1))
    stacks = read_stacks(tmp_path, 0).stacks
    assert stacks is not None and stacks.frames.words["text"].decoded().tolist() == [""]


def test_columns_count_utf_8_whatever_a_source_is_written_in(tmp_path: Path) -> None:
    source = tmp_path / "train.py"
    text = "# coding: latin-1\ndef work():\n    é, ö = slow(), 1\n"
    source.write_bytes(text.encode("latin-1"))
    code = next(part for part in compile(source.read_bytes(), "", "exec").co_consts if hasattr(part, "co_positions"))
    line, last, column, end = next(at for at in code.co_positions() if at[2] and at[3] - at[2] == len("slow()"))
    assert read_text_of(tmp_path, source, 2, line, column, last, end) == "slow()"


def test_a_name_of_any_length_leaves_a_sentence_readable(tmp_path: Path) -> None:
    file = StackFile(str(tmp_path))
    function = {"code": 0, "file": os.fsdecode(b"net-\xff.py"), "name": "f" * 5000 + ".forward", "line": 1}
    file.append([FACTS, function], array("q", [-1, 0, 1, -1, 1, -1]), array("q", [1, 7, 0, 5, 4, 0, 0, 0]), array("q"))
    stacks = read_stacks(tmp_path, 0).stacks
    assert stacks is not None
    name = str(stacks.frames.words["function"].decoded()[0])
    assert len(name) == LONGEST_NAME and name.endswith("f.forward") and name.startswith("…")


def test_a_file_that_was_cut_anywhere_is_read_as_far_as_it_is_whole(tmp_path: Path) -> None:
    path = write(tmp_path, tmp_path)
    data = path.read_bytes()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        sampled = read_stacks(tmp_path, 0)
        assert sampled.stacks is None or len(sampled.stacks.samples) == 3


def test_equal_stacks_of_two_processes_are_one(tmp_path: Path) -> None:
    first = write(tmp_path, tmp_path)
    first.rename(tmp_path / "1.stacks")
    write(tmp_path, tmp_path, worker=1).rename(tmp_path / "2.stacks")
    sampled = read_stacks(tmp_path, 0)
    assert sampled.stacks is not None and len(sampled.stacks.frames) == 3
    assert sorted(sampled.stacks.samples.numbers["worker"].tolist()) == [-1, -1, -1, 1, 1, 1]


def test_below_a_forked_process_there_is_nothing_of_its_parent(tmp_path: Path) -> None:
    file = StackFile(str(tmp_path))
    functions = [("train.py", "main"), ("/usr/lib/python3.11/multiprocessing/process.py", "BaseProcess._bootstrap"),
                 ("train.py", "Rows.__getitem__")]  # fmt: skip
    facts = [{"code": code, "file": path, "name": name, "line": 1} for code, (path, name) in enumerate(functions)]
    frames = array("q", [part for code in range(3) for part in (code - 1, code, 1, -1, 1, -1)])
    file.append([FACTS, *facts], frames, array("q", [100, 7, 2, 50, 40, 0, 0, 0]), array("q"))
    sampled = read_stacks(tmp_path, 0)
    assert sampled.stacks is not None and sampled.stacks.frames.numbers["parent"].tolist() == [-1, -1, 1]


def test_functions_that_a_library_makes_from_text_are_not_the_users(tmp_path: Path) -> None:
    file = StackFile(str(tmp_path))
    functions = [("<string>", "<module>"), ("<string>", "work"), ("train.py", "main"), ("<string>", "<lambda>")]
    facts = [{"code": code, "file": path, "name": name, "line": 1} for code, (path, name) in enumerate(functions)]
    parents = (-1, 0, -1, 2)
    frames = array("q", [part for code in range(4) for part in (parents[code], code, 1, -1, 1, -1)])
    file.append([FACTS, *facts], frames, array("q", [100, 7, 3, 50, 40, 0, 0, 0]), array("q"))
    stacks = read_stacks(tmp_path, 0).stacks
    assert stacks is not None
    assert stacks.frames.words["origin"].decoded().tolist() == ["user", "user", "user", "library"]


@pytest.mark.parametrize(
    ("path", "origin"),
    [
        ("/project/train.py", ("user", "")),
        ("<string>", ("user", "")),
        ("/usr/lib/python3.11/json/decoder.py", ("library", "json.decoder")),
        (
            "/venv/lib/python3.11/site-packages/torch/nn/modules/module.py",
            ("library", "torch.nn.modules.module"),
        ),
        ("/venv/lib/python3.11/site-packages/tqdm/__init__.py", ("library", "tqdm")),
        ("/src/pytorch/torch/serialization.py", ("library", "torch.serialization")),
        ("<frozen importlib._bootstrap>", ("library", "importlib._bootstrap")),
        ("/usr/bin/torchrun", ("library", "torchrun")),
        ("<sonda>", ("sonda", "")),
    ],
)
def test_where_a_file_belongs(path: str, origin: tuple[str, str]) -> None:
    assert _find_origin(path, {**FACTS, "frameworks": ["/src/pytorch/torch"]}) == origin


def test_system_calls_have_names_on_known_machines() -> None:
    assert (name_call("x86_64", 230), name_call("aarch64", 115)) == ("clock_nanosleep", "clock_nanosleep")
    assert (name_call("x86_64", -1), name_call("x86_64", 999), name_call("mips", 7)) == ("", "other", "other")
    assert len(set(X86_64.values())) == len(X86_64) and len(set(GENERIC.values())) == len(GENERIC)


def test_collections_are_counted_in_the_step_that_they_begin_in() -> None:
    rows = [(0, "part", "", "", 0, 0, 200), (1, "step", "", "", 0, 0, 100), (1, "step", "", "", 0, 100, 200)]
    collections = np.array([[150, 160, 7, 2, 7], [10, 14, 7, 0, 7], [50, 51, 7, 0, 7]])
    columns = collection_columns(rows, collections)
    assert json.dumps(columns["collections:counted"][1:].tolist()) == "[2.0, 1.0]"
    assert columns["collection_time:measured"][1:].tolist() == [5, 10] and np.isnan(columns["collections:counted"][0])
