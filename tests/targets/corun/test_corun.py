"""Several programs at once, before they start: who takes part, on which cores, in which windows and partitions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fake_resctrl import FakeResctrl
from sonda.frameworks.collector.corun import window as window_module
from sonda.probes.cache_partition.partition import journal_path
from sonda.probes.cache_partition.resctrl import Resctrl
from sonda.record.errors import SondaError
from sonda.record.store import Store
from sonda.targets.corun.cache_partition import CacheDivision
from sonda.targets.corun.launcher import corun
from sonda.targets.corun.messages import WindowReport
from sonda.targets.corun.plan import CorunSettings, PlannedWindow, parse_cast, plan_partitions, plan_windows

SMALL = ["mlp --batch 4 --train", "stress-compute --size 48KiB --rounds 4"]


# ---- who and where ----------------------------------------------------------------------------------------------


@pytest.fixture
def eight(monkeypatch):
    """A machine with eight cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))


def machine(root: Path, caches: list[str], siblings: list[str] | None = None) -> Path:
    for core, shared in enumerate(caches):
        own = root / f"sys/devices/system/cpu/cpu{core}"
        (own / "cache/index3").mkdir(parents=True)
        (own / "cache/index3/shared_cpu_list").write_text(shared)
        (own / "topology").mkdir()
        (own / "topology/thread_siblings_list").write_text(siblings[core] if siblings else str(core))
    return root


def test_participants_are_named_and_have_options_of_their_own(eight):
    cast = parse_cast(["mlp --batch 8 --train", "x=cnn", "mlp", "mlp"], "0,1-2,3+5,4")
    assert cast.names == ["mlp", "x", "mlp#2", "mlp#3"]
    first, second, third, _ = cast.participants
    assert first.job.train and first.job.options == {"batch": "8"} and first.job.threads == 1
    assert second.job.workload == "cnn" and second.cores == (1, 2) and second.job.threads == 2
    assert third.cores == (3, 5)


@pytest.mark.parametrize(
    ("texts", "cores", "word"),
    [
        (["mlp"], "", "nobody to run with"),
        (["mlp", "nothing"], "", "no workload 'nothing'"),
        (["mlp", "cnn --batc 8"], "", "batch"),
        (["mlp", "cnn --batch many"], "", "batch=many"),
        (["mlp", "cnn --warmup many"], "", "--warmup"),
        (["mlp", "cnn --on cuda:0"], "", "--on means nothing"),
        (["mlp", "cnn --steps 4"], "", "--steps means nothing"),
        (["mlp", "--batch 8"], "", "names no workload"),
        (["mlp", "'cnn"], "", "quotation"),
        (["mlp", "=cnn"], "", "names no workload"),
        (["mlp", "mlp#2=cnn", "mlp"], "", "two participants"),
        (["mlp", "cnn"], "0,8", r"core 8 does not exist"),
        (["mlp", "cnn"], "9,8", r"cores 8, 9 do not exist"),
        (["mlp", "cnn"], "0,1,2", "3 entries for 2"),
        (["mlp", "cnn"], "0,x", "'x' is not a list of cores"),
        (["mlp", "cnn"], "0,²", "'²' is not a list of cores"),
        (["mlp", "cnn"], "0,1-99999999999", "'1-99999999999' is not a list of cores"),
        (["mlp", "cnn"], "0,3-1", "'3-1' holds no core"),
        (["mlp", "cnn"], "0,", "not a list"),
    ],
)
def test_what_cannot_be_is_one_line(eight, texts, cores, word):
    with pytest.raises(SondaError, match=word) as caught:
        parse_cast(texts, cores)
    assert caught.value.remedy and "\n" not in str(caught.value)


def test_cores_are_dealt_out_evenly_unless_given(eight):
    assert [one.cores for one in parse_cast(["mlp", "cnn", "lstm"]).participants] == [(0, 1), (2, 3), (4, 5)]


def test_fewer_cores_than_participants_are_shared_and_told(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    cast = parse_cast(["mlp", "cnn", "lstm"])
    assert [one.cores for one in cast.participants] == [(0,), (1,), (0,)]
    assert any("mlp and lstm share core 0" in note for note in cast.notes)


def test_siblings_and_separate_caches_are_told(eight, tmp_path):
    root = machine(tmp_path, ["0-3"] * 4 + ["4-7"] * 4, ["0-1", "0-1", "2-3", "2-3", "4-5", "4-5", "6-7", "6-7"])
    notes = parse_cast(["mlp", "cnn", "lstm"], "0,1,4", root).notes
    assert [note for note in notes if "two threads of one core" in note and "mlp and cnn" in note]
    assert [note for note in notes if "no last-level cache" in note and "mlp and lstm" in note]
    assert not parse_cast(["mlp", "cnn"], "0,2", root).notes


def test_more_threads_than_cores_are_told(eight):
    assert any("4 threads on 1 core" in note for note in parse_cast(["mlp --threads 4", "cnn"], "0,1").notes)


def test_windows_are_everybody_alone_every_two_and_all():
    assert plan_windows(2) == [PlannedWindow((0,)), PlannedWindow((1,)), PlannedWindow((0, 1))]
    assert [window.members for window in plan_windows(3)] == [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"seconds": 0}, "--seconds"),
        ({"timeout": -1}, "--timeout"),
        ({"repeat": 0}, "--repeat"),
        ({"ways": "1,2", "sweep": True}, "the same cache"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes, word):
    with pytest.raises(SondaError, match=word):
        CorunSettings(**changes).check()


def test_a_sweep_gives_the_first_every_number_of_ways_and_the_others_the_rest():
    cache = Resctrl(FakeResctrl("intel-2-socket")).capabilities.cache
    sweep = plan_partitions(CorunSettings(sweep=True), ["a", "b", "c"], cache)
    assert [label for label, _ in sweep] == [f"a {count} of 11 ways" for count in range(1, 10)]
    for count, (_, shares) in enumerate(sweep, start=1):
        assert shares.masks["a"].bit_count() == count
        assert shares.masks["b"] == shares.masks["c"] and shares.masks["b"].bit_count() == 11 - 1 - count
        assert not shares.masks["a"] & shares.masks["b"] and not (shares.masks["a"] | shares.masks["b"]) & 1


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"ways": "4"}, "each of 2"),
        ({"ways": "4,x"}, "each of 2"),
        ({"partition": "z=0xf"}, "'z' takes no part|z"),
        ({"partition": "a=zz"}, "not a mask"),
        ({"bandwidth": "10"}, "--bandwidth"),
    ],
)
def test_partitions_that_cannot_be_read_are_refused(changes, word):
    cache = Resctrl(FakeResctrl("intel-2-socket")).capabilities.cache
    with pytest.raises(SondaError, match=word):
        plan_partitions(CorunSettings(**changes), ["a", "b"], cache)


class Alone:
    """A board on which nobody else is."""

    def line_up(self, *_words):
        pass

    def mark_measured(self, *_words):
        pass

    def measuring(self, *_words):
        return False


class Faulting:
    """Counters that see one fault a step, and half of the time as CPU time."""

    def __init__(self, clock):
        self.clock = clock
        self.done = 0

    def read(self):
        return self.done, self.clock[0]

    def count_since(self, before):
        return {"page_faults": self.done - before[0], "time": self.clock[0] - before[1]}

    def cpu_time(self):
        return self.clock[0] // 2


@pytest.mark.parametrize("step_ms", [1, 7, 60, 130, 3000])
@pytest.mark.parametrize("instructions", [0, 1000])
def test_what_was_counted_and_the_pieces_are_of_the_same_steps(monkeypatch, step_ms, instructions):
    """One fault a step, on a clock that only steps move: whatever a step takes, it comes out as one."""
    clock = [0]
    monkeypatch.setattr(window_module, "now", lambda: clock[0])
    counters = Faulting(clock)
    progress = (lambda: instructions * counters.done) if instructions else None
    going = window_module.measure_window(Alone(), 0, 1, [0], 1.0, 9.0, counters, progress)
    while True:
        try:
            next(going)
        except StopIteration as ended:
            report = WindowReport(**ended.value)
            break
        clock[0] += step_ms * 1_000_000
        counters.done += 1
    steps = sum(steps for _, _, steps, _ in report.slices)
    assert report.counters["page_faults"] * (instructions or 1) == steps >= 3
    assert report.counters["time"] == sum(long for _, long, _, _ in report.slices) >= 1_000_000_000
    assert 2 * sum(cpu for _, _, _, cpu in report.slices) == report.counters["time"]


@pytest.mark.parametrize(
    ("tree", "changes", "why"),
    [
        ("no-l3", {"ways": "4,6"}, "cannot divide its last-level cache"),
        ("monitor-only", {"sweep": True}, "cannot divide its last-level cache"),
        ("cdp", {"bandwidth": "50,50"}, "cannot throttle memory bandwidth"),
    ],
)
def test_where_nothing_can_be_divided_the_rest_goes_on_with_the_reason(tmp_path, monkeypatch, tree, changes, why):
    started = []
    monkeypatch.setattr(
        "sonda.targets.corun.launcher.Crew", lambda *words: started.append(True) or pytest.skip("it went on")
    )
    files = FakeResctrl(tree)
    setting = CorunSettings(**changes)
    cache = CacheDivision(setting, files)
    cache.divide(parse_cast(SMALL))
    assert cache.partitions == [] and why in cache.describe().reason and why in cache.notes[0]
    said = []

    def warn(text):
        said.append((text, bool(started)))

    with pytest.raises(BaseException, match="it went on"):
        corun(SMALL, Store(tmp_path), setting=setting, files=files, warn=warn)
    [(text, late)] = said
    assert text.startswith("partitions are left out: ") and why in text and not late, "before anything is measured"
    assert started and list(files.groups) == [""] and not journal_path(tmp_path).exists()


def test_masks_that_the_processor_refuses_are_told_before_anything_starts(tmp_path, monkeypatch):
    monkeypatch.setattr("sonda.targets.corun.launcher.Crew", lambda *words: pytest.fail("nothing may start"))
    setting = CorunSettings(partition="mlp=0x5,stress-compute=0xf0")
    with pytest.raises(SondaError, match="mlp: mask 5 has holes"):
        corun(SMALL, Store(tmp_path), setting=setting, files=FakeResctrl("intel-2-socket"))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"ways": "4"}, "--ways 4 is not a whole number from 1 for each of 2 participants"),
        ({"ways": "4,0"}, "--ways 4,0 is not a whole number from 1"),
        ({"bandwidth": "50,half"}, "--bandwidth 50,half is not a whole number"),
        ({"partition": "mlp=0xf,cnn=0xf0"}, "--partition: 'cnn' takes no part"),
        ({"partition": "mlp=0xf,mlp=0xf0"}, "--partition names mlp twice"),
        ({"partition": "mlp=-1"}, "--partition: mlp=-1 is not a mask of ways"),
        ({"partition": "mlp=many"}, "--partition: mlp=many is not a mask of ways"),
    ],
)
@pytest.mark.parametrize("tree", ["no-l3", "intel-2-socket"])
def test_shares_that_no_processor_could_give_are_told_everywhere(tmp_path, monkeypatch, tree, changes, why):
    monkeypatch.setattr("sonda.targets.corun.launcher.Crew", lambda *words: pytest.fail("nothing may start"))
    with pytest.raises(SondaError, match=why):
        corun(SMALL, Store(tmp_path), setting=CorunSettings(**changes), files=FakeResctrl(tree))
