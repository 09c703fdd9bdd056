"""Progress: a line that says how long something has taken and will take still; tested by a clock of its own."""

from __future__ import annotations

import io
import sys
from time import monotonic, sleep

import pytest
from rich.cells import cell_len

from builders import stepped
from command_line import run_command
from sonda.cli.application import _prepare_streams, complain, put, say_or_log
from sonda.cli.progress import WIPE, ProgressLog, ScreenLine
from sonda.probes.ceilings.processor import TAKES_S
from sonda.record.errors import SondaError
from sonda.record.progress import Expected, Lasting, Reached, TimeTold, time_words
from sonda.record.run import write_run
from sonda.record.store import Store
from sonda.studies.engine.plan import plan_points
from sonda.studies.engine.progress_line import ProgressLine
from sonda.studies.engine.runner import StudyProgress
from sonda.studies.file.study import Study
from sonda.targets.job import Job
from sonda.targets.local.launcher import MEASURING_CEILINGS, describe_running
from sonda.targets.pipeline import STARTING_S
from sonda.targets.progress import ProgressRecord as TrainingProgress
from sonda.targets.progress import progress_writer, report_progress
from sonda.targets.serving import launcher as serving
from sonda.targets.serving.traffic import ServingTraffic


class Watch:
    """A progress line, its stream, and a clock that is set by hand."""

    def __init__(self, watched: bool = True) -> None:
        self.stream, self.now = io.StringIO(), 100.0
        self.progress = ScreenLine(lambda: self.stream, lambda: watched, lambda: self.now)

    def after(self, seconds: float) -> str:
        self.now += seconds
        return self.progress.line()


@pytest.fixture
def watch():
    made = Watch()
    yield made
    made.progress.hush()


def test_what_is_short_has_no_times(watch):
    watch.progress.say("reading")
    assert watch.after(1.9) == "reading …"
    assert watch.stream.getvalue().startswith(f"{WIPE}reading …")


def test_what_lasts_says_how_long_it_has_taken(watch):
    watch.progress.say("reading")
    assert watch.after(12) == "reading … 12 s"
    assert watch.after(300) == "reading … 5 min"


def test_what_is_expected_says_how_long_is_left_until_it_is_wrong(watch):
    watch.progress.say(Expected("running mlp on cpu", 16))
    assert watch.after(6) == "running mlp on cpu … 6 s, about 10 s left"
    assert watch.after(14) == "running mlp on cpu … 20 s"


def test_what_counts_says_how_long_is_left(watch):
    watch.progress.say("simulating run 1 of 1,001")
    watch.now += 10
    watch.progress.say("simulating run 101 of 1,001")
    # 100 runs in 10 s, 900 to go
    assert watch.after(0) == "simulating run 101 of 1,001 … 10 s, about 90 s left"


def test_another_total_begins_anew(watch):
    watch.progress.say("read 1 of 4 traces")
    watch.now += 30
    watch.progress.say("linked 0 of 8 traces")
    watch.now += 4
    watch.progress.say("linked 2 of 8 traces")
    assert watch.after(0) == "linked 2 of 8 traces … 4 s, about 12 s left"


def test_whoever_knows_better_is_believed(watch):
    watch.progress.say(TimeTold("drew 5 of 10 fish, 7 s left"))
    assert watch.after(3) == "drew 5 of 10 fish, 7 s left … 3 s"


def test_what_is_begun_is_shown_only_once_it_has_lasted(watch):
    watch.progress.begin("sonda show")
    assert watch.stream.getvalue() == ""
    assert watch.after(3) == "sonda show … 3 s"
    watch.progress.hush()
    assert watch.stream.getvalue() == "", "what was never shown needs no wiping"


def test_saying_nothing_takes_the_line_away(watch):
    watch.progress.say("measuring idle power")
    watch.progress.say("")
    assert watch.stream.getvalue().endswith(f"…{WIPE}")


def test_nobody_watches_nothing_is_written():
    unwatched = Watch(watched=False)
    unwatched.progress.say("reading")
    unwatched.progress.hush()
    assert unwatched.stream.getvalue() == ""


def test_a_line_is_cut_at_the_width_of_the_terminal(watch, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    watch.progress.say("a sentence that is longer than twenty columns")
    shown = watch.stream.getvalue().removeprefix(WIPE)
    assert len(shown) == 19 and shown == "a sentence that is…"


def test_hushing_takes_the_line_away_once(watch):
    watch.progress.say("reading")
    watch.progress.hush()
    watch.progress.hush()
    assert watch.stream.getvalue().endswith(f"…{WIPE}")


def test_a_stream_that_is_closed_disturbs_nothing(watch):
    watch.stream.close()
    watch.progress.say("reading")


def test_the_first_minute_says_how_long_measuring_the_machine_takes(watch):
    watch.progress.say(MEASURING_CEILINGS)
    assert watch.after(2) == f"measuring what this machine can do, once … 2 s, about {TAKES_S - 2:.0f} s left"


def test_steps_that_were_asked_for_are_counted_by_who_does_them(tmp_path, watch):
    said = []
    tell = progress_writer(tmp_path, 12, 2)
    with report_progress(tmp_path, said.append, "running mlp on cpu, "):
        tell(1)
        limit = monotonic() + 300
        while not said and monotonic() < limit:
            sleep(0.01)
    assert said == ["running mlp on cpu, step 3 of 14, warm-up included"]
    watch.progress.say(describe_running(Job(workload="mlp", steps=12)))
    assert watch.after(2) == f"starting mlp on cpu … 2 s, about {STARTING_S - 2:.0f} s left"
    watch.progress.say("running mlp on cpu, step 2 of 14, warm-up included")
    watch.now += 5
    watch.progress.say(said[0])
    # A step took 5 s, 11 are to go.
    assert watch.after(0) == "running mlp on cpu, step 3 of 14, warm-up included … 5 s, about 55 s left"


def test_of_steps_without_a_number_nothing_is_said(tmp_path):
    progress_writer(tmp_path, None, 2)(3)
    assert list(tmp_path.iterdir()) == []


def test_a_page_of_several_runs_counts_them(tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr("sonda.cli.runs.say", said.append)
    for number in range(3):
        made = stepped([10.0, 10.0, 10.0], id=f"7f3a9c21d04{number}")
        write_run(tmp_path / "store", made.info, made.spans)
        Store(tmp_path / "store").tag(made.id, "main")
    assert run_command(tmp_path, "report", "main", "-o", "page.html").returncode == 0
    assert said == [*(f"reading run {number} of 3" for number in (1, 2, 3)), "writing page.html"]


def test_what_is_imported_first_is_said() -> None:
    """Before PyTorch, whose import is short, nothing."""
    assert describe_running(Job(workload="mlp", steps=3)) == "starting mlp on cpu"
    assert describe_running(Job(workload="mlp", framework="jax", steps=3)) == "importing JAX, then starting mlp on cpu"


def test_names_from_outside_cannot_act_on_the_line(watch):
    watch.progress.say("reading a\x1b[2J\r\u202eb.json")
    assert watch.stream.getvalue() == f"{WIPE}reading a�[2J��b.json …"


def test_a_line_of_wide_characters_is_cut_at_the_width_of_the_terminal(watch, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    watch.progress.say("读取文件夹中的所有轨迹文件")
    shown = watch.stream.getvalue().removeprefix(WIPE)
    assert cell_len(shown) == 19 and shown.endswith("…")


@pytest.mark.parametrize("said", [str, Lasting])
def test_what_is_said_and_stays_cannot_act(said, capsys):
    say_or_log(said("skipped a\x1b[31m\r.json"))
    complain("b\x1b]0;owned\x07 is damaged\nand c too")
    assert capsys.readouterr().err == "skipped a�[31m�.json\nsonda: b�]0;owned� is damaged\nand c too\n"


def test_times_are_told_in_the_same_words_everywhere():
    assert [time_words(seconds) for seconds in (0.4, 8, 99.4, 99.5, 150, 5969, 5970, 9000)] == [
        "0 s", "8 s", "99 s", "2 min", "2 min", "99 min", "1.7 h", "2.5 h",
    ]  # fmt: skip
    training = TrainingProgress(part="train", epoch=1, epochs=3, step=1, steps=4, left_s=150.0)
    assert training.describe() == "epoch 2 of 3, training 25 %, 2 min left"


@pytest.mark.parametrize(
    ("encoding", "errors", "written"),
    [
        ("ascii", "strict", b"?2 % p?.html"),
        ("ascii", "surrogateescape", b"?2 % p?.html"),
        ("utf-8", "strict", "±2 % p?.html".encode()),
        ("utf-8", "surrogateescape", "±2 % p".encode() + b"\xff.html"),
    ],
)
def test_what_a_terminal_has_no_code_for_is_no_defect(encoding, errors, written, monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding, errors, write_through=True)
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", None)
    _prepare_streams()
    put("±2 % p\udcff.html")
    complain("nobody hears this")
    assert stream.buffer.getvalue() == written + b"\n"


@pytest.mark.parametrize(
    ("traffic", "seconds"),
    [
        (ServingTraffic(scenario="server", qps=50.0, queries=600), 12.0),
        (ServingTraffic(scenario="server", qps=50.0, seconds=7.0), 7.0),
        (ServingTraffic(scenario="offline"), 10.0),
        (ServingTraffic(scenario="single-stream", queries=600), None),
        (ServingTraffic(scenario="server", find=True, bound=10**7, seconds=7.0), None),
    ],
)
def test_how_long_a_model_is_served_is_said_where_it_is_known(traffic, seconds):
    found = serving._describe_serving(Job(workload="mlp"), traffic)
    assert found == f"serving mlp on cpu, {traffic.scenario}"
    assert getattr(found, "seconds", None) == (None if seconds is None else STARTING_S + seconds)


def study_line(said, clock):
    study = Study("small", {"workload": "mlp"}, {"batch": (1, 2)}, repeat=2, protocol="plain")
    return ProgressLine(study, said.append, clock), plan_points(study)


def test_a_study_says_which_run_which_epoch_and_how_long_all_will_take():
    """Nothing has ended yet: the three runs after this one are taken to be as long. It began 8 s ago and has trained
    1.5 of 4 epochs, 20 s each as it says: 50 s are left of it, and three of 58 s follow."""
    said, now = [], [100.0]
    line, points = study_line(said, lambda: now[0])
    line.tell(StudyProgress(0, 4, 0, points[0], None, None))
    now[0] += 8
    line.hear(TrainingProgress(part="train", epoch=1, epochs=4, step=2, steps=4, accuracy=0.25, left_s=50.0).describe())
    assert said == [
        "small: run 1 of 4 · batch=1",
        "small: run 1 of 4, 4 min left · batch=1 · epoch 2 of 4, training 50 %, accuracy 25 %",
    ]
    assert round((50 + 3 * 58) / 60) == 4


def test_before_its_first_epoch_ended_a_run_is_reckoned_by_its_pace_and_starting_counts_once():
    """30 s of starting, then a tenth of the run every 2 s: 16 s are left when two tenths are done, and the last run,
    whose configuration has taken 40 s, follows."""
    said, now = [], [0.0]
    line, points = study_line(said, lambda: now[0])
    line.tell(StudyProgress(2, 4, 0, points[2], 80.0, 40.0))
    now[0] = 30.0
    line.hear("starting mlp on cpu")
    for step in (1, 2):
        line.hear(TrainingProgress(part="train", epoch=0, epochs=1, step=step, steps=10).describe())
        now[0] += 2
    assert [words.partition(" · ")[0] for words in said] == [
        "small: run 3 of 4, 80 s left",
        "small: run 3 of 4, 50 s left",  # 40 s are expected of this one, 30 are over
        "small: run 3 of 4, 50 s left",
        "small: run 3 of 4, 56 s left",
    ]
    line.tell(StudyProgress(4, 4, 1, None, 0.0))
    assert said[-1] == "small: 4 of 4 runs, 1 failed, 0 s left"


def test_a_log_is_told_of_new_epochs_and_that_a_long_one_goes_on():
    now = [0.0]
    log = ProgressLog(lambda: now[0])

    def takes(seconds, text):
        now[0] = seconds
        return log.accepts(text)

    epoch = [Reached("training", f"epoch {number}") for number in range(4)]
    assert takes(100, "run 1 of 4") and takes(100, "run 2 of 4"), "what is no progress is always written"
    assert [takes(at, epoch[number]) for at, number in ((101, 0), (106, 0), (107, 0), (108, 1), (112, 1))] == [
        False, True, False, False, True,
    ]  # fmt: skip
    assert [takes(at, epoch[1]) for at in (113, 171, 172, 173)] == [False, False, True, False]


def test_a_study_without_a_terminal_shows_the_epochs_of_its_runs(tmp_path, monkeypatch):
    """The run says how far it is, and fails: without axes there is no table then, which is no defect either."""
    file = tmp_path / "short.toml"
    file.write_text(
        '[study]\nname = "short"\nquestion = "?"\nprotocol = "plain"\n'
        '[workload]\nname = "mlp"\ntrain = true\nepochs = 40\n'
    )

    def measure(job, store, place, say):
        for epoch in range(3):
            say(TrainingProgress(part="train", epoch=epoch, epochs=40, step=1, steps=4, left_s=9.0).describe())
        raise SondaError("enough", "stop")

    monkeypatch.setattr("sonda.targets.pipeline.measure", measure)
    monkeypatch.setattr("sonda.cli.progress.STAGE_S", 0.0)
    found = run_command(tmp_path, "study", str(file))
    assert found.returncode == 0
    assert found.stderr.splitlines() == [
        "short: run 1 of 1",
        *(f"short: run 1 of 1, 9 s left · epoch {epoch} of 40, training 25 %" for epoch in (1, 2, 3)),
        "short: 1 of 1 runs, 1 failed, 0 s left",
    ]
