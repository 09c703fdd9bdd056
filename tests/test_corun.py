"""Several programs at once: who takes part and where, nobody measures alone, and whatever happens leaves nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fake_resctrl import FakeResctrl
from sonda.analysis.interference import interference
from sonda.probes.resctrl import Resctrl
from sonda.probes.resctrl_partition import JOURNAL
from sonda.record.errors import SondaError
from sonda.record.store import Store
from sonda.targets import corun_crew, participant
from sonda.targets.corun import _Cache, corun
from sonda.targets.corun_crew import Crew
from sonda.targets.corun_plan import Setting, Window, cast_of, partitions_of, windows_of
from sonda.targets.job import Job
from sonda.targets.participant import Order, Participation

SMALL = ["mlp --batch 4 --train", "stress-compute --size 48KiB --rounds 4"]
QUICK = Setting(seconds=0.2, repeat=1, timeout=100)


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
    cast = cast_of(["mlp --batch 8 --train", "x=cnn", "mlp", "mlp"], "0,1-2,3+5,4")
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
        (["mlp", "cnn"], "0,3-1", "'3-1' holds no core"),
        (["mlp", "cnn"], "0,", "not a list"),
    ],
)
def test_what_cannot_be_is_one_line(eight, texts, cores, word):
    with pytest.raises(SondaError, match=word) as caught:
        cast_of(texts, cores)
    assert caught.value.remedy and "\n" not in str(caught.value)


def test_cores_are_dealt_out_evenly_unless_given(eight):
    assert [one.cores for one in cast_of(["mlp", "cnn", "lstm"]).participants] == [(0, 1), (2, 3), (4, 5)]


def test_fewer_cores_than_participants_are_shared_and_told(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    cast = cast_of(["mlp", "cnn", "lstm"])
    assert [one.cores for one in cast.participants] == [(0,), (1,), (0,)]
    assert any("mlp and lstm share core 0" in note for note in cast.notes)


def test_siblings_and_separate_caches_are_told(eight, tmp_path):
    root = machine(tmp_path, ["0-3"] * 4 + ["4-7"] * 4, ["0-1", "0-1", "2-3", "2-3", "4-5", "4-5", "6-7", "6-7"])
    notes = cast_of(["mlp", "cnn", "lstm"], "0,1,4", root).notes
    assert [note for note in notes if "two threads of one core" in note and "mlp and cnn" in note]
    assert [note for note in notes if "no last-level cache" in note and "mlp and lstm" in note]
    assert not cast_of(["mlp", "cnn"], "0,2", root).notes


def test_more_threads_than_cores_are_told(eight):
    assert any("4 threads on 1 core" in note for note in cast_of(["mlp --threads 4", "cnn"], "0,1").notes)


def test_windows_are_everybody_alone_every_two_and_all():
    assert windows_of(2) == [Window((0,)), Window((1,)), Window((0, 1))]
    assert [window.members for window in windows_of(3)] == [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)]


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
        Setting(**changes).check()


def test_a_sweep_gives_the_first_every_number_of_ways_and_the_others_the_rest():
    cache = Resctrl(FakeResctrl("intel-2-socket")).capabilities.cache
    sweep = partitions_of(Setting(sweep=True), ["a", "b", "c"], cache)
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
        partitions_of(Setting(**changes), ["a", "b"], cache)


class Alone:
    """A board on which nobody else is."""

    def line_up(self, *_words):
        pass

    def measured(self, *_words):
        pass

    def measuring(self, *_words):
        return False


@pytest.mark.parametrize("step_ms", [1, 7, 60, 130, 3000])
def test_what_was_counted_and_the_pieces_are_of_the_same_steps(monkeypatch, step_ms):
    """One fault a step, on a clock that only steps move: whatever a step takes, it comes out as one."""
    clock = [0]
    monkeypatch.setattr(participant, "perf_counter_ns", lambda: clock[0])
    monkeypatch.setattr(participant, "process_time_ns", lambda: clock[0] // 2)

    class Stepped(participant.Participant):
        def __init__(self):
            self.what = Participation(job=Job(workload="mlp"), slot=0, slots=1, board=0, cores=[0], seconds=1.0,
                                      timeout=9.0)  # fmt: skip
            self.board = Alone()
            self.done = 0

        def step(self):
            clock[0] += step_ms * 1_000_000
            self.done += 1

        def _counters(self):
            return {"page_faults": self.done, "time": clock[0]}

    report = Stepped().measure(Order(window=1, members=[0]))
    assert report.counters["page_faults"] == sum(steps for _, _, steps, _ in report.slices) >= 3
    assert report.counters["time"] == sum(long for _, long, _, _ in report.slices) >= 1_000_000_000


# ---- real processes ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_programs_are_measured_alone_and_together_and_never_by_themselves(tmp_path):
    run = corun(SMALL, Store(tmp_path), setting=QUICK)
    windows = run.info.target["corun"]["windows"]
    assert [window["members"] for window in windows] == [[0], [1], [0, 1]]
    both = windows[2]["measured"]
    for one in both:
        assert all(steps > 0 and long > 0 and cpu >= 0 for _, long, steps, cpu in one["slices"])
        begin, end = one["slices"][0][0], one["slices"][-1][0] + one["slices"][-1][1]
        for other in both:
            assert other["begin"] <= begin and end <= other["end"], "everybody was stepping while anybody measured"
    found = interference(run)
    assert found.participants == ("mlp", "stress-compute")
    assert found.slowdown("mlp", "stress-compute").value > 0
    assert set(found.together.phases["mlp"]) >= {"data", "forward", "backward", "optimizer"}
    spans = run.spans
    epochs = spans.where(kind="epoch")
    assert epochs.sum() == 4
    steps = spans.where(kind="step")
    start, end = spans.number("start"), spans.number("start") + spans.number("duration")
    parent = spans.number("parent")
    assert steps.any() and all(start[parent[row]] <= start[row] and end[row] <= end[parent[row]]
                               for row in steps.nonzero()[0])  # fmt: skip
    assert not list(tmp_path.glob(".partial-*")), "nothing is left beside the run"


@pytest.mark.slow
def test_each_program_runs_where_it_was_put(tmp_path):
    model = tmp_path / "where.py"
    model.write_text(
        "import os, torch\n"
        "class Where(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        assert os.sched_getaffinity(0) == {CORE}, os.sched_getaffinity(0)\n"
        "        assert torch.get_num_threads() == 1\n"
        "        return x + 1\n"
        "def build(): return Where()\n".replace("CORE", str(max(os.sched_getaffinity(0))))
    )
    mine = os.sched_getaffinity(0)
    core = max(mine)
    run = corun([f"a={model}:build --input 2x2", f"b={model}:build --input 2x2"], Store(tmp_path / "store"),
                f"{core},{core}", QUICK)  # fmt: skip
    assert any(f"share core {core}" in note for note in run.info.notes)
    assert os.sched_getaffinity(0) == mine


ENDS = """
import os, signal, time, torch
class Ends(torch.nn.Module):
    calls = 0
    def forward(self, x):
        Ends.calls += 1
        if Ends.calls > 8:
            {act}
        return x + 1
def build(): return Ends()
"""


def ends(tmp_path: Path, act: str) -> str:
    path = tmp_path / "ends.py"
    path.write_text(ENDS.format(act=act))
    return f"bad={path}:build --input 2x2"


def alive(marker: Path) -> list[int]:
    """Processes that were started for this test's store."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes()
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if b"sonda.targets.participant" in words and str(marker).encode() in words and state != "Z":
            found.append(int(entry.name))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("act", "word"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", r"bad was ended by SIGKILL"),
        ("raise RuntimeError('no more')", "bad: the workload failed: RuntimeError: no more"),
    ],
    ids=["killed", "raises"],
)
def test_a_participant_that_ends_or_fails_ends_the_experiment_with_its_name(tmp_path, act, word):
    store = tmp_path / "store"
    with pytest.raises(SondaError, match=word):
        corun(["stress-compute --size 48KiB", ends(tmp_path, act)], Store(store), setting=QUICK)
    assert alive(store) == []
    assert list(store.glob("*")) == [] and not list(store.glob(".partial-*")), "nothing half-written"


@pytest.mark.slow
def test_a_participant_that_hangs_is_named_within_its_timeout(tmp_path):
    texts = ["stress-compute --size 48KiB", ends(tmp_path, "os.kill(os.getpid(), signal.SIGSTOP)")]
    with Crew(cast_of(texts).participants, tmp_path / "crew", seconds=0.2, timeout=100) as crew:
        crew.warm()
        sessions = {os.getsid(process) for process in alive(tmp_path)}
        assert len(sessions) == 2 and os.getsid(0) not in sessions, "each has its own share of every core"
        crew.watchdog.timeout = 5.0
        with pytest.raises(SondaError, match=r"^bad has hung while running stress-compute \+ bad") as caught:
            for window in range(1, 9):
                crew.measure(window, [0, 1])
        assert "all were stopped" in str(caught.value)
    assert alive(tmp_path) == [], "one that is stopped as well"


@pytest.mark.slow
def test_only_who_is_not_ready_has_hung_while_starting_and_importing_may_take_longer_than_a_step(tmp_path, monkeypatch):
    """On a clock that stands at 119 s until the first is ready, and then at 121 s; a step may take 1 s."""
    model = tmp_path / "hangs.py"
    model.write_text("import time\ndef build(): time.sleep(1000)\n")
    cast = cast_of(["mlp --batch 4", f"bad={model}:build --input 2x2"])
    with Crew(cast.participants, tmp_path / "crew", seconds=0.2, timeout=1) as crew:
        clock = [0.0]
        first = crew._members[0]
        take = first.take

        def taken():
            clock[0] = 119.0
            line = take()
            if line is not None:
                clock[0] = 121.0
                monkeypatch.setattr(first, "take", take)
            return line

        monkeypatch.setattr(first, "take", taken)
        monkeypatch.setattr(corun_crew.time, "monotonic", lambda: clock[0])
        with pytest.raises(SondaError, match=r"^bad has hung while starting: nothing for 120 s; all were stopped"):
            crew.warm()
        monkeypatch.undo()
    assert alive(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["term", "kill"])
def test_stopping_sonda_stops_every_participant(tmp_path, number):
    store = tmp_path / "store"
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "sonda", "corun", *SMALL, "--seconds", "300", "--repeat", "1"],
        env={**os.environ, "SONDA_HOME": str(store)}, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        for line in child.stderr:
            if "window 1" in line:
                break
        assert len(alive(store)) == 2
        child.send_signal(number)
        code = child.wait(100)
        said = child.stderr.read()
    finally:
        child.kill()
        child.wait()
    expected = {signal.SIGTERM: 128 + 15, signal.SIGKILL: -9}
    assert code == expected[number] and "Traceback" not in said
    end = time.monotonic() + 100
    while alive(store) and time.monotonic() < end:
        time.sleep(0.05)
    assert alive(store) == []


class Watched(FakeResctrl):
    """A resctrl whose counters move: every reading of a group's traffic finds 1 MB more."""

    moved = 0

    def read(self, path: str) -> str:
        if path.startswith("sonda-") and path.endswith("mon_L3_00/mbm_total_bytes"):
            self.moved += 1_000_000
            return f"{self.moved}\n"
        return super().read(path)


@pytest.mark.slow
def test_ways_are_given_measured_and_taken_back(tmp_path):
    files = Watched("intel-2-socket")
    before = files.read("schemata")
    run = corun(SMALL, Store(tmp_path), setting=Setting(seconds=0.2, repeat=1, timeout=100, ways="4,6"), files=files)
    assert files.read("schemata") == before and list(files.groups) == [""] and not (tmp_path / JOURNAL).exists()
    written = [text for path, text in files.commands if path.endswith("schemata")]
    assert "L3:0=f\n" in written and "L3:0=3f0\n" in written and "L3:0=400\n" in written
    moved = {path.split("/")[0] for path, _ in files.commands if path.endswith("/tasks")}
    assert moved == {f"sonda-{os.getpid()}-0", f"sonda-{os.getpid()}-1"}
    found = interference(run)
    assert [one.partition for one in found.partitions] == ["mlp=f stress-compute=3f0"]
    assert found.partitions[0].slowdowns["mlp"].value > 0
    assert found.together.counters["mlp"]["memory_traffic"].value > 0


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
    monkeypatch.setattr("sonda.targets.corun.Crew", lambda *words: started.append(True) or pytest.skip("it went on"))
    files = FakeResctrl(tree)
    setting = Setting(**changes)
    cache = _Cache(files, setting, cast_of(SMALL))
    assert cache.partitions == [] and why in cache.facts()["reason"] and why in cache.notes[0]
    said = []

    def warn(text):
        said.append((text, bool(started)))

    with pytest.raises(BaseException, match="it went on"):
        corun(SMALL, Store(tmp_path), setting=setting, files=files, warn=warn)
    [(text, late)] = said
    assert text.startswith("partitions are left out: ") and why in text and not late, "before anything is measured"
    assert started and list(files.groups) == [""] and not (tmp_path / JOURNAL).exists()


def test_masks_that_the_processor_refuses_are_told_before_anything_starts(tmp_path, monkeypatch):
    monkeypatch.setattr("sonda.targets.corun.Crew", lambda *words: pytest.fail("nothing may start"))
    setting = Setting(partition="mlp=0x5,stress-compute=0xf0")
    with pytest.raises(SondaError, match="mlp: mask 5 has holes"):
        corun(SMALL, Store(tmp_path), setting=setting, files=FakeResctrl("intel-2-socket"))


@pytest.mark.slow
def test_the_command_shows_saves_and_shows_again(tmp_path):
    environment = {**os.environ, "SONDA_HOME": str(tmp_path), "COLUMNS": "160"}

    def sonda(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-P", "-m", "sonda", *words], capture_output=True, text=True,
                              env=environment, timeout=300, check=False)  # fmt: skip

    done = sonda("corun", *SMALL, "--seconds", "0.2", "--repeat", "1", "--tag", "both", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["kind"] == "corun" and set(document["matrix"]) == {"mlp", "stress-compute"}
    value = document["matrix"]["mlp"]["stress-compute"]
    assert value["unit"] == "1" and value["source"] == "derived" and value["value"] > 0
    assert "low" not in value and value["reason"] == "too few repetitions for an interval"
    shown = sonda("show", "both")
    assert shown.returncode == 0 and "weighted speed-up" in shown.stdout and "by stress-compute" in shown.stdout
    assert "mlp + stress-compute" in sonda("ls").stdout
    assert sonda("report", "both", "-o", str(tmp_path / "page.html")).returncode == 0
    wrong = sonda("corun", "mlp", "cnn", "--cores", "0,4000")
    assert wrong.returncode == 2 and wrong.stderr.count("\n") == 1 and "core 4000 does not exist" in wrong.stderr
