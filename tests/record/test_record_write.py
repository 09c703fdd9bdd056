"""A run is written whole or not at all: full disks, read-only stores, killed writers."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from places import SUPPORT
from plain_runs import run_info
from record_examples import a_sample, an_info, two_spans
from sonda.record.errors import SondaError
from sonda.record.files.partial import PARTIAL, write_whole
from sonda.record.machine import Machine
from sonda.record.run import Run, directory_name, new_id, now, write_run
from sonda.record.spans import Spans, Words
from sonda.record.store import Store

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def everything(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def test_a_run_and_back(tmp_path: Path) -> None:
    info = run_info(
        id="7f3a9c21",
        created="2026-11-15T03:30:12.417+00:00",
        status="incomplete",
        workload={"name": "mlp", "batch": 1},
        versions={"torch": "2.13.0"},
        seed=0,
        notes=["a\nnote 🦊"],
        exit_code=3,
        overhead={"span_ns": 900.5},
    )
    written = write_run(tmp_path, info, two_spans(), [a_sample()])
    assert everything(tmp_path) == [
        "20261115T033012417-7f3a9c21",
        "20261115T033012417-7f3a9c21/run.json",
        "20261115T033012417-7f3a9c21/samples.parquet",
        "20261115T033012417-7f3a9c21/spans.parquet",
    ]
    read = Run.load(written.directory)
    assert read.info == written.info == info
    assert read.samples == [a_sample()]
    assert list(read.spans.number("duration")) == [100, 40]


def test_a_run_without_spans_or_samples(tmp_path: Path) -> None:
    nothing = Spans({"start": np.zeros(0)}, {"name": Words.of([])}, {"flops:nominal": np.zeros(0)})
    run = Run.load(write_run(tmp_path, an_info(), nothing, []).directory)
    assert len(run.spans) == 0
    assert len(run.spans.metric("flops", "nominal")) == 0
    assert list(run.spans.words("name").decoded()) == []
    assert not run.spans.where(kind="layer").any()
    assert run.samples == []


def test_a_cost_that_is_not_known_is_left_out(tmp_path: Path) -> None:
    info = run_info(
        id=new_id(), created=now(), status="complete", overhead={"span_ns": 900.0},
    )  # fmt: skip
    info.overhead["step_share"], info.machine = float("nan"), Machine(max_mhz=float("nan"), base_mhz=2000)
    written = write_run(tmp_path, info, two_spans())
    assert Run.load(written.directory).info == written.info
    assert written.info.overhead == {"span_ns": 900.0}
    assert written.info.machine == Machine(base_mhz=2000)


def test_a_command_line_that_is_not_unicode_is_kept_as_an_escape(tmp_path: Path) -> None:
    info = run_info(id=new_id(), created=now(), status="complete", workload={"command": ["cat", "\udcff.py"]})
    run = Run.load(write_run(tmp_path, info, two_spans()).directory)
    assert run.info.workload.command == ["cat", "\\udcff.py"]


def test_runs_of_the_same_second_stay_in_order(tmp_path: Path) -> None:
    created = [f"2026-11-15T03:30:12.{ms:03d}+00:00" for ms in (999, 0, 7, 70)]
    for moment in created:
        write_run(tmp_path, an_info(created=moment), two_spans())
    assert [run.info.created for run in Store(tmp_path).runs()] == sorted(created, reverse=True)
    assert Store(tmp_path).one("last").info.created == created[0]


def test_directory_names_are_in_utc() -> None:
    assert directory_name("2026-11-15T03:30:12+00:00", "abcd") == "20261115T033012000-abcd"
    assert directory_name("2026-11-15T05:30:12.5+02:00", "abcd") == "20261115T033012500-abcd"
    assert directory_name("2026-11-15T03:30:12", "abcd") == "20261115T033012000-abcd"


def test_ids_are_unique() -> None:
    ids = {new_id() for _ in range(20_000)}
    assert len(ids) == 20_000
    assert all(len(one) == 12 and int(one, 16) >= 0 for one in ids)


def test_the_same_run_twice_is_refused_and_the_first_stays(tmp_path: Path) -> None:
    info = an_info()
    first = write_run(tmp_path, info, two_spans())
    with pytest.raises(SondaError, match="cannot keep the run"):
        write_run(tmp_path, info, Spans({"start": np.zeros(0)}, {}))
    assert len(Run.load(first.directory).spans) == 2
    assert len(everything(tmp_path)) == 3


# ---- full disks -------------------------------------------------------------------------------------------------


def failing_after(calls: int, original: Callable[..., Any], error: Exception) -> Callable[..., Any]:
    """The original, until it has been called so often; then nothing but this error."""
    left = [calls]

    def function(*args: Any, **kwargs: Any) -> Any:
        if left[0] == 0:
            raise error
        left[0] -= 1
        return original(*args, **kwargs)

    return function


@pytest.mark.parametrize("error", [FULL, pa.ArrowInvalid("out of space"), pa.ArrowMemoryError("no memory")])
@pytest.mark.parametrize(
    ("owner", "name", "calls"),
    [
        (pq, "write_table", 0),
        (pq, "write_table", 1),
        (Path, "mkdir", 0),
        (Path, "mkdir", 1),
        (Path, "write_bytes", 0),
        (Path, "rename", 0),
        (os, "fsync", 0),
        (os, "fsync", 1),
        (os, "fsync", 2),
    ],
)
def test_a_disk_that_is_full_at_any_point_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, calls: int, error: Exception
) -> None:
    kept = write_run(tmp_path, an_info(), two_spans())
    before = everything(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, failing_after(calls, getattr(owner, name), error))
        with pytest.raises(SondaError) as caught:
            write_run(tmp_path, an_info(), two_spans(), [a_sample()])
    assert everything(tmp_path) == before
    assert "\n" not in str(caught.value)
    assert (error.strerror if isinstance(error, OSError) else str(error)) in str(caught.value)
    assert "$SONDA_HOME" in str(caught.value)
    assert [run.id for run in Store(tmp_path).runs()] == [kept.id]


def test_half_a_file_before_the_disk_was_full_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(_table: Any, path: Path, **_: Any) -> None:
        with open(path, "wb") as file:
            file.write(b"PAR1 half")
        raise FULL

    monkeypatch.setattr(pq, "write_table", half)
    with pytest.raises(SondaError, match="No space left on device"):
        write_run(tmp_path, an_info(), two_spans())
    assert everything(tmp_path) == []


@pytest.mark.parametrize("stop", [KeyboardInterrupt, MemoryError, RuntimeError])
def test_an_interruption_leaves_nothing_and_is_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: type[BaseException]
) -> None:
    monkeypatch.setattr(Path, "rename", failing_after(0, Path.rename, stop()))  # type: ignore[arg-type]
    with pytest.raises(stop):
        write_run(tmp_path, an_info(), two_spans())
    assert everything(tmp_path) == []


def test_a_file_system_that_does_not_sync_directories_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync = os.fsync

    def only_files(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", only_files)
    run = write_run(tmp_path, an_info(), two_spans())
    assert Run.load(run.directory).id == run.id


CHILD = """
import os, random, resource, sys
sys.path.insert(0, {tests!r})
import numpy as np
import pyarrow.compute, pyarrow.parquet
from record_examples import a_sample, an_info
from sonda.record.errors import SondaError
from sonda.record.run import write_run
from sonda.record.spans import Spans
from sonda.record.store import Store
from pathlib import Path

def noisy(count):
    # Numbers that do not compress, so that the file is as large as it looks.
    values = np.random.default_rng(0).integers(0, 2**62, count)
    return Spans({{"start": values, "duration": values[::-1].copy()}}, {{}})
"""


def child(body: str, *arguments: object, **more: Any) -> subprocess.Popen[str]:
    program = CHILD.format(tests=str(SUPPORT)) + body
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, **more,
    )  # fmt: skip


LIMITED = """
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
spans = noisy(50_000)
root = Path(sys.argv[1])
write_run(root, an_info(), spans)
for limit in (0, 10, 4_000, 100_000, 700_000):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        write_run(root, an_info(), spans)
        print("written with", limit)
    except SondaError as error:
        print(error)
"""


def test_a_real_limit_on_the_size_of_files_leaves_nothing(tmp_path: Path) -> None:
    process = child(LIMITED, tmp_path)
    said, complaint = process.communicate(timeout=300)
    assert process.returncode == 0, complaint
    lines = said.splitlines()
    assert len(lines) == 5
    for line in lines:
        assert line.startswith(f"cannot keep the run in {tmp_path}: "), line
        assert "File too large" in line
    assert len(list(Store(tmp_path).runs())) == 1
    assert len(everything(tmp_path)) == 3, "the run that was written before, and nothing else"


READ_ONLY = """
an_info()  # imports what only the administrator may be able to read
os.chdir(sys.argv[1])
if os.getuid() == 0:
    os.setuid(65534)  # the administrator may write anywhere
store = Store(Path("store"))
def attempt(action):
    try:
        action()
        print("done")
    except SondaError as error:
        print(error)
attempt(lambda: write_run(store.root, an_info(), noisy(3)))
attempt(lambda: store.scratch().__enter__())
attempt(lambda: store.tag(sys.argv[2], "base"))
attempt(lambda: store.untag(sys.argv[2], "old"))
attempt(lambda: store.remove(store.directories()[0]))
attempt(lambda: store.sweep())
print([run.id for run in store.runs()] == [sys.argv[2]], len(store.one("old").spans))
"""


def test_a_read_only_store_is_read_and_refuses_the_rest(tmp_path: Path) -> None:
    root = tmp_path / "store"
    run = write_run(root, an_info(), two_spans())
    Store(root).tag(run.id, "old")
    before = everything(root)
    tmp_path.chmod(0o755)
    for path in (root, *root.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        process = child(READ_ONLY, tmp_path, run.id)
        said, complaint = process.communicate(timeout=300)
    finally:
        for path in (root, *root.rglob("*")):
            path.chmod(0o755)
    assert process.returncode == 0, complaint
    written, scratch, tag, untag, removed, swept, read = said.splitlines()
    assert written.startswith("cannot keep the run in store: ") and "$SONDA_HOME" in written
    assert scratch.startswith("cannot write the store store: ") and "$SONDA_HOME" in scratch
    assert tag.startswith("cannot tag in store: ")
    assert untag.startswith("cannot untag in store: ")
    assert removed.startswith(f"cannot remove {run.directory.name}: ")
    assert swept == "done"
    assert read == "True 2"
    assert everything(root) == before


# ---- killed writers ---------------------------------------------------------------------------------------------

WRITER = """
spans = noisy(20_000)
for _ in sys.stdin:
    writer = os.fork()
    if writer:
        os.waitpid(writer, 0)
        print("ended", flush=True)
        continue
    print(os.getpid(), flush=True)
    while True:
        write_run(Path(sys.argv[1]), an_info(), spans, [a_sample()])
        print("one", flush=True)
"""
"""Forks a writer for each line that it is given, and tells its number."""


def test_a_writer_killed_at_random_moments_leaves_whole_runs_only(tmp_path: Path) -> None:
    chance = random.Random(7)
    store = Store(tmp_path)
    left = kills = 0
    with child(WRITER, tmp_path, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        while kills < 12 or (not left and kills < 60):
            kills += 1
            process.stdin.write("\n")
            process.stdin.flush()
            writer = int(process.stdout.readline())
            assert process.stdout.readline() == "one\n"
            time.sleep(chance.uniform(0.0, 0.06))
            os.kill(writer, signal.SIGKILL)
            while (said := process.stdout.readline()) != "ended\n":
                assert said == "one\n"
            left += len(list(tmp_path.glob(f"{PARTIAL}*")))
            for run in store.runs():
                assert len(run.spans) == 20_000
                assert run.samples == [a_sample()]
            assert not store.damaged
            store.sweep()
            assert not list(tmp_path.glob(f"{PARTIAL}*"))
    assert left, "no kill hit a writer at work: this test would prove nothing"
    assert len(store.directories()) >= kills


def test_sweeping_leaves_what_a_living_writer_is_writing(tmp_path: Path) -> None:
    process = child('with Store(Path(sys.argv[1])).scratch() as d:\n print(d, flush=True)\n input()', tmp_path,
                    stdin=subprocess.PIPE)  # fmt: skip
    assert process.stdout is not None
    scratch = Path(process.stdout.readline().strip())
    with Store(tmp_path).scratch() as mine:
        Store(tmp_path).sweep()
        assert scratch.is_dir()
        assert mine.is_dir()
    assert not mine.exists()
    process.kill()
    process.communicate()
    assert scratch.is_dir()
    Store(tmp_path).sweep()
    assert not scratch.exists()


def test_another_machines_work_is_left_alone_until_it_is_old(tmp_path: Path) -> None:
    theirs = tmp_path / f"{PARTIAL}another-node-4194304-abc123"
    theirs.mkdir(parents=True)
    Store(tmp_path).sweep()
    assert theirs.is_dir()
    last_month = time.time() - 30 * 24 * 3600
    (theirs / "1.events").write_bytes(b"")
    os.utime(theirs, (last_month, last_month))
    Store(tmp_path).sweep()
    assert theirs.is_dir(), "a file inside is still being written"
    os.utime(theirs / "1.events", (last_month, last_month))
    os.utime(theirs, (last_month, last_month))
    Store(tmp_path).sweep()
    assert not theirs.exists()


def test_sweeping_takes_files_and_links_but_not_what_they_lead_to(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    owner = f"{PARTIAL}{os.uname().nodename}-{gone.pid}"
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("years")
    store = tmp_path / "store"
    store.mkdir()
    (store / f"{owner}-a1").symlink_to(precious)
    (store / f"{owner}-b2").write_text("")
    (store / f"{owner}-c3").mkdir()
    (store / f"{owner}-c3" / "link").symlink_to(precious)
    (store / f"{PARTIAL}notes").mkdir()
    Store(store).sweep()
    assert everything(store) == [f"{PARTIAL}notes"]
    assert (precious / "thesis.txt").read_text() == "years"


@pytest.mark.parametrize("failure", [FULL, KeyboardInterrupt()])
def test_a_small_file_is_replaced_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    path = tmp_path / "progress.json"
    write_whole(path, b"one")
    write_whole(path, b"two")
    assert path.read_bytes() == b"two" and everything(tmp_path) == ["progress.json"]

    def half(self: Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[: len(data) // 2])
        raise failure

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(type(failure)):
        write_whole(path, b"three")
    assert path.read_bytes() == b"two" and everything(tmp_path) == ["progress.json"]
