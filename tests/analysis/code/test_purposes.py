"""What samples are for, of stacks that are written down by hand: a step with forward at line 10 and backward at 12."""

from __future__ import annotations

import pytest

from sonda.analysis.code.activities import Callee
from sonda.analysis.code.placement import NATIVE, PYTHON, WAITING
from sonda.analysis.code.purposes import PlacedSample, UserFrame, find_purposes
from sonda.analysis.code.regions import find_callee
from sonda.analysis.code.summary import OTHER, Activity
from sonda.record.stacks import INTERPRETER


def frame(
    statement: int, *feeds: int, function: str = "train", loops: tuple[int, ...] = (), known: bool = True
) -> UserFrame:
    """A frame; `train` steps in a loop at line 5."""
    around = (5, *loops) if function == "train" else loops
    return UserFrame(
        ("train.py", function, 1), statement, frozenset(map(str, around)), frozenset(map(str, feeds)), known
    )


def sample(
    *frames: UserFrame, text: str = "", below: str = "", phase: str = OTHER, doing: int = PYTHON, call: str = "",
    weight: float = 1.0, collecting: bool = False,
) -> PlacedSample:  # fmt: skip
    library = [(below.rpartition(".")[0], below.rpartition(".")[2])] if below else []
    return PlacedSample(frames, Callee(text, find_callee(text), library), doing, call, phase, weight, collecting)


FORWARD = sample(frame(10, 12), text="net(x)", phase="forward", doing=NATIVE)
BACKWARD = sample(frame(12), text="loss.backward()", phase="backward", doing=NATIVE)


def purpose(*samples: PlacedSample) -> Activity:
    """Of the first."""
    return find_purposes([*samples, FORWARD, BACKWARD])[0]


@pytest.mark.parametrize(
    ("text", "below", "activity"),
    [
        ("print(loss)", "", Activity.LOG),
        ("log.info('x')", "logging.info", Activity.LOG),
        ("file.flush()", "", Activity.LOG),
        ("torch.save(net, path)", "torch.serialization.save", Activity.CHECKPOINT),
        ("copy.deepcopy(net.state_dict())", "copy.deepcopy", Activity.CHECKPOINT),
        ("copy.deepcopy(rows)", "copy.deepcopy", Activity.COPY),
        ("out.clone()", "", Activity.COPY),
        ("np.array(rows)", "", Activity.COPY),
        ("gc.collect()", "", Activity.COLLECTION),
        ("float(loss)", "", Activity.METRIC),
        ("score(out, y)", "", Activity.METRIC),
    ],
)  # fmt: skip
def test_calls_behind_the_step_are_told_by_name_or_are_metrics(text: str, below: str, activity: Activity) -> None:
    assert purpose(sample(frame(14), text=text, below=below)) is activity


def test_what_backward_needs_is_no_metric() -> None:
    assert purpose(sample(frame(11, 12), text="mix(out, y)", doing=NATIVE)) is Activity.UNKNOWN
    assert purpose(sample(frame(11), text="score(out, y)", doing=NATIVE)) is Activity.METRIC
    # A function that returns nothing of it to the line that feeds backward.
    inner = frame(3, function="check")
    assert purpose(sample(frame(11, 12), inner, text="score(out)", doing=NATIVE)) is Activity.METRIC
    given = frame(3, 0, function="check")
    assert purpose(sample(frame(11, 12), given, text="score(out)", doing=NATIVE)) is Activity.UNKNOWN
    unknown = frame(3, function="check", known=False)
    assert purpose(sample(frame(11, 12), unknown, text="score(out)", doing=NATIVE)) is Activity.UNKNOWN


def test_without_a_source_nothing_is_said_to_prepare_the_input() -> None:
    """Its values may reach nothing, and it may be a loop."""
    inner = {"function": "make", "known": False}
    assert purpose(sample(frame(8, 10), frame(3, 0, function="make"), text="make()")) is Activity.INPUT
    assert purpose(sample(frame(8, 10), frame(3, **inner), text="")) is Activity.UNKNOWN
    assert purpose(sample(frame(8, known=False), frame(3, 0, function="make"), text="")) is Activity.UNKNOWN


def test_the_line_of_a_phase_is_no_metric() -> None:
    step = sample(frame(13), text="opt.step()", phase="optimizer", doing=NATIVE)
    assert find_purposes([sample(frame(13), text="opt.step()"), step, FORWARD, BACKWARD])[0] is Activity.UNKNOWN


def test_without_a_backward_nothing_is_a_metric() -> None:
    assert find_purposes([sample(frame(14), text="score(out)"), FORWARD])[0] is Activity.UNKNOWN


def test_a_call_that_reaches_nothing_has_the_purpose_of_most_of_it() -> None:
    helper = frame(3, function="report", loops=(2,))
    formats = sample(frame(14), helper, text="row.tolist()", weight=1)
    writes = sample(frame(14), helper, text="log.info(row)", below="logging.info", weight=3)
    assert purpose(formats, writes) is Activity.LOG
    opens = sample(frame(14), frame(3, function="keep"), text='open(path, "wb")', weight=3)
    saves = sample(frame(14), frame(4, function="keep"), text="pickle.dump(net, file)", below="pickle.dump")
    assert purpose(opens, saves) is Activity.CHECKPOINT, "the file holds what is saved"


def test_a_statement_that_writes_records_makes_its_arguments_for_them() -> None:
    """`record(step, state[env])` reaches nothing: what it is given, and what describes that, is for the record."""
    called = frame(11, loops=(9,))
    writes = sample(called, frame(20, function="record"), text="file.write(line)")
    assert purpose(sample(called, text="state[env]", doing=NATIVE), writes) is Activity.LOG
    describes = sample(called, frame(30, 0, function="describe"), text="row.tolist()", doing=NATIVE)
    assert purpose(describes, writes) is Activity.LOG
    works = sample(called, frame(41, function="simulate"), text="work(a)", weight=20)
    assert purpose(sample(called, text="state[env]", doing=NATIVE), writes, works) is not Activity.LOG, "an aside"
    trains = sample(called, text="net(x)", below="torch.nn.modules.module._call_impl")
    assert purpose(sample(called, text="state[env]", doing=NATIVE), writes, trains) is not Activity.LOG


def test_python_in_a_loop_of_what_the_step_needs() -> None:
    own_loss = frame(4, 0, function="own_loss", loops=(3,))
    assert purpose(sample(frame(11, 12), own_loss, text="best")) is Activity.LOOP
    assert purpose(sample(frame(11, 12), own_loss, text="a @ b", doing=NATIVE)) is Activity.UNKNOWN
    # The loop over steps is none.
    assert purpose(sample(frame(11, 12), text="mix(out)")) is Activity.UNKNOWN
    assert purpose(sample(frame(11, 12, loops=(9,)), text="mix(out)")) is Activity.LOOP
    walks = sample(frame(9, 10), text="torch.tensor([encode(line) for line in lines])")
    assert purpose(walks) is Activity.LOOP


def test_what_a_loop_fills_and_converts_belongs_to_it_also_within_an_outer_loop() -> None:
    """`rows = [count(text) for text in texts]`, where `count` fills a list in Python and makes it a tensor."""
    called = frame(9, 10, loops=(9,))
    fills = sample(called, frame(4, 5, function="count", loops=(3,)), text="counts[index]", weight=1)
    converts = sample(called, frame(5, 0, function="count"), text="torch.tensor(counts)", doing=NATIVE, weight=3)
    assert purpose(converts, fills) is Activity.LOOP and purpose(fills, converts) is Activity.LOOP
    passes = sample(called, frame(4, 6, function="count", loops=(3,)), text="counts[index]", weight=1)
    assert purpose(converts, passes) is Activity.COPY, "another list"


def test_a_loop_in_a_forward_is_one_unless_it_runs_layers() -> None:
    forward = frame(30, 0, function="Net.forward", loops=(29,))
    assert purpose(sample(frame(10, 12), forward, text="s", phase="forward")) is Activity.LOOP
    layer = sample(frame(10, 12), forward, text="layer(x)", below="torch.nn.modules.module._call_impl", phase="forward")
    assert purpose(layer) is Activity.UNKNOWN


def test_input_is_what_a_loader_does_and_what_prepares_a_forward() -> None:
    assert (
        purpose(sample(frame(5), text="time.sleep(1)", phase="data", doing=WAITING, call="clock_nanosleep"))
        is Activity.INPUT
    )
    assert purpose(sample(frame(9, 10), text="f.read()")) is Activity.INPUT
    assert purpose(sample(frame(9, 10), text="prepare(x)")) is Activity.INPUT
    assert purpose(sample(frame(9, 10), text="x @ x.T", doing=NATIVE)) is Activity.INPUT
    assert purpose(sample(frame(9), text="x @ x.T", doing=NATIVE)) is Activity.UNKNOWN, "it reaches nothing"


@pytest.mark.parametrize(
    ("text", "below", "call", "activity"),
    [
        ("time.sleep(1)", "", "clock_nanosleep", Activity.WAIT),
        ("subprocess.run(['true'])", "subprocess.run", "wait4", Activity.WAIT),
        ("box.get()", "queue.get", "futex", Activity.WAIT),
        ("self._lock", "", "futex", Activity.WAIT),
        ("pipe.recv()", "multiprocessing.connection.recv", "read", Activity.WAIT),
        ("a @ b", "", "futex", Activity.UNKNOWN),  # threads of its kernel
        ("mix(out)", "", "", Activity.UNKNOWN),  # in the queue for a processor
        ("mix(out)", "", INTERPRETER, Activity.UNKNOWN),
        ("os.fsync(file)", "", "fsync", Activity.LOG),
    ],
)  # fmt: skip
def test_waiting_is_for_somebody(text: str, below: str, call: str, activity: Activity) -> None:
    waits = sample(frame(11, 12), text=text, below=below, doing=WAITING, call=call)
    assert purpose(waits) is activity


def test_collections_belong_to_what_copies_or_else_to_the_line() -> None:
    assert purpose(sample(frame(11, 12), text="Node(i)", collecting=True)) is Activity.COLLECTION
    assert (
        purpose(sample(frame(11, 12), text="copy.deepcopy(x)", below="copy.deepcopy", collecting=True)) is Activity.COPY
    )
