"""The sampler notes where threads are and what they wait in, and leaves the program as it was."""

from __future__ import annotations

import dis
import gc
import os
import sys
import threading
from _thread import get_ident
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, perf_counter_ns, sleep

import pytest

from builders import MS
from sonda.frameworks.collector.stacks import sampler as module
from sonda.frameworks.collector.stacks.sampler import StackSampler, sample_stacks
from sonda.frameworks.collector.stacks.threads import FUTEX, LOCK, SystemCalls
from sonda.frameworks.collector.stacks.trie import DEEPEST, StackTrie, _find_position
from sonda.frameworks.reconstruction.stacks import SampledStacks, read_stacks

HERE = Path(__file__).name


@pytest.fixture
def resting() -> Iterator[threading.Thread]:
    """A thread that waits for a lock until the test is over."""
    over, begun = threading.Event(), threading.Event()

    def rest_in_peace() -> None:
        begun.set()
        over.wait()

    thread = threading.Thread(target=rest_in_peace)
    thread.start()
    begun.wait()
    # This thread gives up the interpreter's lock while it reads: nobody waits for that one then.
    while not Path(f"/proc/self/task/{thread.native_id}/syscall").read_bytes().startswith((b"202 ", b"98 ")):
        pass
    yield thread
    over.set()
    thread.join()


def sample_by_hand(directory: Path, times: list[int], late: int = 0, waits: int = 0) -> SampledStacks:
    """Samples of all other threads at these moments, taken by this one."""
    sampler = StackSampler(str(directory), str(Path(__file__).parent), children=False)
    sampler._facts = [sampler._introduce()]
    for time in times:
        sampler._sample(time, late, waits, get_ident())
    sampler._write()
    return read_stacks(directory, 0)


def test_a_thread_that_waits_is_noted_once_for_all_samples(tmp_path: Path, resting: threading.Thread) -> None:
    begin = perf_counter_ns()
    sampled = sample_by_hand(tmp_path, [begin + turn * 5 * MS for turn in range(8)])
    assert sampled.stacks is not None
    samples, frames = sampled.stacks.samples, sampled.stacks.frames
    mine = samples.numbers["thread"] == resting.native_id
    assert samples.numbers["lasted"][mine].sum() == 35 * MS, "from the first sample to the last"
    assert samples.words["call"].decoded()[mine][-1] == "futex" and mine.sum() <= 2
    functions, files = frames.words["function"].decoded(), frames.words["file"].decoded()
    stack = int(samples.numbers["stack"][mine][-1])
    names = []
    while stack >= 0:
        names.append((files[stack], functions[stack]))
        stack = int(frames.numbers["parent"][stack])
    assert (HERE, "resting.<locals>.rest_in_peace") in names
    row = names.index((HERE, "resting.<locals>.rest_in_peace"))
    assert names[row - 1][1] == "Event.wait"
    texts = frames.words["text"].decoded()
    assert "over.wait()" in texts, "columns bound the expression"
    origins = dict(zip(functions, frames.words["origin"].decoded(), strict=True))
    assert origins["Event.wait"] == "library" and origins["resting.<locals>.rest_in_peace"] == "user"


def test_every_place_where_a_loop_gives_up_the_lock_has_a_line() -> None:
    """Python 3.11 knows no line of the jump behind an `if` that ends a loop, and threads give up the lock there."""

    def count(words: list[int]) -> int:
        total = 0
        for word in words:
            total += word
            if word > 4:
                total -= 1
        return total

    code = count.__code__
    jumps = [row.offset for row in dis.get_instructions(code) if "JUMP_BACKWARD" in row.opname]
    lines = {_find_position(code, jump, 0)[0] - code.co_firstlineno for jump in jumps}
    assert jumps and lines <= {4, 5}, "the condition, or what stands behind it"


def test_a_program_is_not_kept_alive_and_its_threads_are_its_own(tmp_path: Path) -> None:
    before = threading.enumerate()
    sampler = sample_stacks(str(tmp_path), "", block=True)
    assert threading.enumerate() == before and sampler.pause() is not False
    sampler.resume()
    sampler.finish()
    assert sampler.pause(), "nothing of it is left"
    assert not any(
        callback.__self__ is sampler.collections for callback in gc.callbacks if hasattr(callback, "__self__")
    )


def test_the_program_sees_its_own_switch_interval(tmp_path: Path) -> None:
    own, get, put = sys.getswitchinterval(), sys.getswitchinterval, sys.setswitchinterval
    sampler = StackSampler(str(tmp_path), "", children=False)
    sampler.switching.begin()
    try:
        assert sampler.switching.shorten() < own
        assert sys.getswitchinterval() == own and get() < own
        sys.setswitchinterval(0.25)
        assert sys.getswitchinterval() == sampler.switching.restore() == get() == 0.25
        with pytest.raises(ValueError, match="positive"):
            sys.setswitchinterval(-1)
        sys.setswitchinterval(own)
    finally:
        sampler.switching.end()
    assert (sys.getswitchinterval, sys.setswitchinterval, get()) == (get, put, own)


def test_a_fork_finds_no_thread_of_the_sampler(tmp_path: Path) -> None:
    """Python 3.12 warns of a fork with several threads."""
    sampler = StackSampler(str(tmp_path), "", children=True)
    sampler.begin()
    native = sampler._native
    sampler.pause_to_fork()
    assert not os.path.exists(f"/proc/self/task/{native}") or native == 0
    sampler.resume()
    sampler.finish()


def sampled_processes(directory: Path) -> set[int]:
    stacks = read_stacks(directory, 0).stacks
    return set(stacks.samples.numbers["process"].tolist()) if stacks is not None else set()


def test_a_forked_child_has_a_file_of_its_own(tmp_path: Path) -> None:
    sampler = sample_stacks(str(tmp_path), "", block=False)
    child = os.fork()
    if child == 0:
        last = perf_counter_ns() + 60_000 * MS
        while os.getpid() not in sampled_processes(tmp_path) and perf_counter_ns() < last:
            pass
        sampler.finish()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    sampler.finish()
    assert child in sampled_processes(tmp_path)


def test_the_sampler_blocks_all_signals(tmp_path: Path) -> None:
    sampler = StackSampler(str(tmp_path), "", children=False)
    sampler.begin()
    while not sampler._native:
        pass
    status = Path(f"/proc/self/task/{sampler._native}/status").read_text()
    sampler.finish()
    blocked = int(next(line for line in status.splitlines() if line.startswith("SigBlk")).split()[1], 16)
    mine = next(line for line in Path("/proc/thread-self/status").read_text().splitlines() if "SigBlk" in line)
    assert blocked >> 9 & 1 and blocked >> 14 & 1, "SIGUSR1 and SIGTERM"
    assert int(mine.split()[1], 16) != blocked, "those of the program are as before"


def test_no_garbage_collection_begins_in_a_sample(tmp_path: Path, resting: threading.Thread) -> None:
    seen = []
    threshold = gc.get_threshold()

    def note(phase: str, about: dict[str, int]) -> None:
        seen.append(sys._getframe(1).f_code.co_filename)

    gc.callbacks.append(note)
    gc.set_threshold(1)
    try:
        sampler = StackSampler(str(tmp_path), "", children=False)
        seen.clear()
        sampler._sample(perf_counter_ns(), 0, 0, get_ident())
        inside = [file for file in seen if "stacks" in file and file.endswith("trie.py")]
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(note)
    assert not inside and gc.isenabled()


def test_what_is_sampled_is_let_go(tmp_path: Path) -> None:
    """A frame that is held keeps the variables of its function alive."""
    trie = StackTrie()

    def number_itself() -> int:
        return trie.number(sys._getframe())

    frame = sys._getframe()
    before = sys.getrefcount(frame)
    number_itself()
    assert sys.getrefcount(frame) == before


def test_equal_stacks_have_equal_numbers_and_deep_ones_an_end() -> None:
    trie = StackTrie()

    def dive(depth: int) -> int:
        return dive(depth - 1) if depth else trie.number(sys._getframe())

    numbers = {dive(3) for _ in range(2)}
    assert len(numbers) == 1
    trie.take()
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(12_000)
    try:
        dive(10_000)
    finally:
        sys.setrecursionlimit(limit)
    _, rows = trie.take()
    assert len(rows) == 6 * DEEPEST


def test_a_source_is_known_by_its_time_and_size_wherever_the_program_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("def work(): return number()")
    trie = StackTrie(str(tmp_path))
    scope = {"number": lambda: trie.number(sys._getframe())}
    exec(compile("def work(): return number()", "train.py", "exec"), scope)
    monkeypatch.chdir("/")
    scope["work"]()
    facts, _ = trie.take()
    found = (tmp_path / "train.py").stat()
    assert [(fact["written"], fact["size"]) for fact in facts if fact["file"] == "train.py"] == [
        (found.st_mtime_ns, found.st_size)
    ]


def test_the_interpreters_lock_is_learnt_from_a_thread_that_runs_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a crowded machine a new thread may wait for a processor first. Unlearnt, every wait for the interpreter's lock
    would be a wait for a lock of the program's."""
    calls = SystemCalls()
    late = perf_counter_ns() + 5 * MS
    monkeypatch.setattr(calls, "_ask", lambda native: (FUTEX, 4096) if perf_counter_ns() > late else ())
    calls.learn_lock(1)
    assert calls.read(1) == LOCK


def test_sampling_that_costs_much_waits_longer(tmp_path: Path) -> None:
    sampler = StackSampler(str(tmp_path), "", children=False)
    ordinary = [sampler._choose_interval() for _ in range(100)]
    assert min(ordinary) >= 0.5 * module.INTERVAL_NS and max(ordinary) <= 1.5 * module.INTERVAL_NS
    assert sum(ordinary) / 100 == pytest.approx(module.INTERVAL_NS, rel=0.02)
    sampler._debt = module.SAVED_NS + 20 * MS
    assert sampler._choose_interval() == module.LONGEST_NS, "but steps are seen"
    sampler._debt = module.SAVED_NS + module.LONGEST_NS // (2 * module.COST_SHARE)
    assert sampler._choose_interval() == module.LONGEST_NS // 2, "until it is a small part of the time"


def test_steps_are_sampled_whatever_was_spent_before(tmp_path: Path, resting: threading.Thread) -> None:
    """Imports have made a debt; from the first step on there is some to spend, once."""
    begun = threading.Event()
    sampler = StackSampler(str(tmp_path), "", children=False, steps=begun.is_set)
    sampler._debt = module.SAVED_NS + 20 * MS
    sampler.begin()
    begun.set()
    last = monotonic() + 5
    while sampler._saved != module.STEPS_NS and monotonic() < last:
        sleep(0.01)
    owed, longest = sampler._debt, sampler._choose_interval()
    sampler.finish()
    assert sampler._saved == module.STEPS_NS and owed < 20 * MS
    assert longest <= 1.5 * module.INTERVAL_NS


def test_a_long_program_is_sampled_less_often(tmp_path: Path, resting: threading.Thread) -> None:
    sampler = StackSampler(str(tmp_path), "", children=False)
    sampler._sample(perf_counter_ns(), 0, 0, get_ident())
    sampler._sample(perf_counter_ns(), 0, 0, get_ident())
    sampler.taken = module.MOST_SAMPLES
    sampler._write()
    assert (sampler.interval, sampler.taken) == (2 * module.INTERVAL_NS, 0)


def test_a_disk_that_cannot_be_written_ends_sampling_and_not_the_program(
    tmp_path: Path, resting: threading.Thread
) -> None:
    sampler = StackSampler(str(tmp_path / "gone"), "", children=False)
    sampler.on = True
    sampler._sample(perf_counter_ns(), 0, 0, get_ident())
    sampler._write()
    assert not sampler.on
