"""Several programs at once as real processes: nobody measures alone, and whatever happens leaves nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from command_line import Done, run_command
from corun_examples import QUICK, alive, script, until
from fake_resctrl import FakeResctrl
from sonda.analysis.corun.interference import interference
from sonda.probes.cache_partition.partition import journal_path
from sonda.record.errors import SondaError
from sonda.record.store import Store
from sonda.targets.corun import crew as corun_crew
from sonda.targets.corun.crew import Crew
from sonda.targets.corun.launcher import corun
from sonda.targets.corun.plan import CorunSettings, parse_cast

SMALL = ["mlp --batch 4 --train", "stress-compute --size 48KiB --rounds 4"]
TRUE = "cmd:true"


@pytest.mark.slow
def test_programs_are_measured_alone_and_together_and_never_by_themselves(tmp_path):
    run = corun(SMALL, Store(tmp_path), setting=QUICK)
    windows = run.info.target.corun.windows
    assert [window.members for window in windows] == [[0], [1], [0, 1]]
    both = windows[2].measured
    for one in both:
        assert all(steps > 0 and long > 0 and cpu >= 0 for _, long, steps, cpu in one.slices)
        begin, end = one.slices[0][0], one.slices[-1][0] + one.slices[-1][1]
        for other in both:
            assert other.begin <= begin and end <= other.end, "everybody was stepping while anybody measured"
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


ENDS = """
import os, torch
class Ends(torch.nn.Module):
    calls = 0
    def forward(self, x):
        assert os.sched_getaffinity(0) == {CORE}, os.sched_getaffinity(0)
        assert torch.get_num_threads() == 1
        Ends.calls += 1
        if Ends.calls > 8:
            raise RuntimeError('no more')
        return x + 1
def build(): return Ends()
"""


@pytest.mark.slow
def test_a_workload_runs_where_it_was_put_and_its_failure_ends_the_experiment_with_its_name(tmp_path):
    mine = os.sched_getaffinity(0)
    model = tmp_path / "ends.py"
    model.write_text(ENDS.replace("CORE", str(max(mine))))
    store = tmp_path / "store"
    with pytest.raises(SondaError, match=r"^bad: the workload failed: RuntimeError: no more"):
        corun([TRUE, f"bad={model}:build --input 2x2"], Store(store), f"{min(mine)},{max(mine)}", QUICK)
    assert os.sched_getaffinity(0) == mine and alive(store) == []
    assert list(store.glob("*")) == [] and not list(store.glob(".partial-*")), "nothing half-written"


COUNTS = """
import os, signal, sys, time
with open(sys.argv[1], "ab") as file:
    file.write(b".")
runs = os.path.getsize(sys.argv[1])
if runs > 3:
    ACT
"""


@pytest.mark.parametrize(
    ("act", "word"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "^bad was ended by SIGKILL while running .*bad.*: it printed nothing"),
        ("print('one\\nno disk'); sys.exit(3)", "^bad ended with code 3 while running .*bad.*: no disk"),
        ("raise ValueError('seven')", "^bad ended with code 1 while running .*bad.*: ValueError: seven"),
    ],
    ids=["killed", "exits", "raises"],
)
def test_a_command_that_ends_badly_ends_the_experiment_with_its_name_and_its_last_words(tmp_path, act, word):
    store = tmp_path / "store"
    bad = script(tmp_path / "bad.py", COUNTS.replace("ACT", act), str(tmp_path / "runs"))
    with pytest.raises(SondaError, match=word):
        corun([TRUE, bad], Store(store), setting=QUICK)
    assert alive(tmp_path) == []
    assert list(store.glob("*")) == [] and not list(store.glob(".partial-*")), "nothing half-written"


@pytest.mark.parametrize("act", ["os.kill(os.getpid(), signal.SIGSTOP)", "time.sleep(1000)"], ids=["stops", "sleeps"])
def test_a_participant_that_hangs_is_named_within_its_timeout(tmp_path, act):
    bad = script(tmp_path / "bad.py", COUNTS.replace("ACT", act), str(tmp_path / "runs"))
    with Crew(parse_cast([TRUE, bad]).participants, tmp_path / "crew", seconds=0.1, timeout=100) as crew:
        crew.warm()
        sessions = {os.getsid(process) for process in alive(tmp_path / "crew")}
        assert len(sessions) == 2 and os.getsid(0) not in sessions, "each has its own share of every core"
        # Time passes quickly while the other steps: nobody who does is found late, however busy the machine is.
        crew.watchdog.timeout = 8.0
        crew.watchdog.clock = lambda: time.monotonic() + 0.1 * crew.board.steps(0)
        with pytest.raises(SondaError, match=r"^bad has hung while running true \+ bad: .*all were stopped"):
            crew.measure(1, [0, 1])
    assert alive(tmp_path) == [], "one that is stopped as well"


FORKS = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
if sys.argv[1] == "away":
    os.setsid()
    time.sleep(1000)
for _ in range(3):
    subprocess.Popen([sys.executable, "-I", "-S", __file__, "away"])
time.sleep(float(sys.argv[2]))
"""


def test_what_a_command_leaves_behind_is_ended_after_each_run_also_in_another_session(tmp_path):
    """Its children ignore SIGTERM and have sessions of their own."""
    run = corun([TRUE, script(tmp_path / "forks.py", FORKS, "stay", "0")], Store(tmp_path / "store"), setting=QUICK)
    assert run.info.target.corun.participants[1].region == "runs"
    assert alive(tmp_path / "forks.py") == []


def test_a_command_that_forks_and_hangs_is_ended_with_all_its_children(tmp_path, monkeypatch):
    monkeypatch.setattr(corun_crew, "STARTING_S", 3.0)
    setting = CorunSettings(seconds=0.1, repeat=1, timeout=3)
    hangs = script(tmp_path / "forks.py", FORKS, "stay", "1000")
    with pytest.raises(SondaError, match=r"bad ha(s|ve) hung while starting: nothing for 3 s; all were stopped"):
        corun([TRUE, hangs], Store(tmp_path / "store"), setting=setting)
    assert alive(tmp_path) == []


def test_only_who_is_not_ready_has_hung_while_starting_and_importing_may_take_longer_than_a_step(tmp_path, monkeypatch):
    """On a clock that stands at 119 s until the first is ready, and then at 121 s; a step may take 1 s."""
    cast = parse_cast([TRUE, "bad=cmd:sleep 1000"])
    with Crew(cast.participants, tmp_path / "crew", seconds=0.1, timeout=1) as crew:
        clock = [0.0]
        first = crew._members[0]
        take = first.next_line

        def taken():
            clock[0] = 119.0
            line = take()
            if line is not None:
                clock[0] = 121.0
                monkeypatch.setattr(first, "next_line", take)
            return line

        monkeypatch.setattr(first, "next_line", taken)
        monkeypatch.setattr(corun_crew.time, "monotonic", lambda: clock[0])
        with pytest.raises(SondaError, match=r"^bad has hung while starting: nothing for 120 s; all were stopped"):
            crew.warm()
        monkeypatch.undo()
    assert alive(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["term", "kill"])
def test_stopping_sonda_stops_every_participant_and_what_it_started(tmp_path, number):
    store = tmp_path / "store"
    forks = script(tmp_path / "forks.py", FORKS, "stay", "1000", kind="window")
    first = "stress-compute --size 48KiB" if number == signal.SIGKILL else TRUE
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "sonda", "corun", first, forks, "--seconds", "0.5", "--repeat", "99"],
        env={**os.environ, "SONDA_HOME": str(store)}, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        for line in child.stderr:
            if "window 2" in line:
                break
        # Sonda, the command, its children.
        until(lambda: len(alive(store)) == 2 and len(alive(tmp_path / "forks.py")) == 5)
        child.send_signal(number)
        code = child.wait(300)
        said = child.stderr.read()
    finally:
        child.kill()
        child.wait()
    expected = {signal.SIGTERM: 128 + 15, signal.SIGKILL: -9}
    assert code == expected[number] and "Traceback" not in said
    until(lambda: alive(tmp_path) == [])


class Watched(FakeResctrl):
    """A resctrl whose counters move: every reading of a group's traffic finds 1 MB more."""

    moved = 0

    def read(self, path: str) -> str:
        if path.startswith("sonda-") and path.endswith("mon_L3_00/mbm_total_bytes"):
            self.moved += 1_000_000
            return f"{self.moved}\n"
        return super().read(path)


def test_ways_are_given_measured_and_taken_back(tmp_path):
    files = Watched("intel-2-socket")
    before = files.read("schemata")
    setting = CorunSettings(seconds=0.1, repeat=1, timeout=100, ways="4,6")
    run = corun(["a=cmd:true", "b=cmd:true"], Store(tmp_path), setting=setting, files=files)
    assert files.read("schemata") == before and list(files.groups) == [""] and not journal_path(tmp_path).exists()
    written = [text for path, text in files.commands if path.endswith("schemata")]
    assert "L3:0=f\n" in written and "L3:0=3f0\n" in written and "L3:0=400\n" in written
    moved = {path.split("/")[0] for path, _ in files.commands if path.endswith("/tasks")}
    assert moved == {f"sonda-{os.getpid()}-0", f"sonda-{os.getpid()}-1"}
    found = interference(run)
    assert [one.partition for one in found.partitions] == ["a=f b=3f0"]
    assert found.partitions[0].slowdowns["a"].value > 0
    assert found.together.counters["a"]["memory_traffic"].value > 0


@pytest.mark.slow
def test_the_command_shows_saves_and_shows_again(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")

    def sonda(*words: str) -> Done:
        return run_command(tmp_path, *words)

    done = sonda("corun", "a=cmd:true", "b=cmd:true", "--seconds", "0.1", "--repeat", "1", "--tag", "both", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["kind"] == "corun" and set(document["matrix"]) == {"a", "b"}
    value = document["matrix"]["a"]["b"]
    assert value["unit"] == "1" and value["source"] == "derived" and value["value"] > 0
    assert "low" not in value and value["reason"] == "too few repetitions for an interval"
    shown = sonda("show", "both", "-v")
    assert shown.returncode == 0 and "weighted speed-up" in shown.stdout and "by b" in shown.stdout
    assert "a + b" in sonda("ls").stdout
    assert sonda("report", "both", "-o", str(tmp_path / "page.html")).returncode == 0
    wrong = sonda("corun", "mlp", "cnn", "--cores", "0,4000")
    assert wrong.returncode == 2 and wrong.stderr.count("\n") == 1 and "core 4000 does not exist" in wrong.stderr
