"""Parts, epochs and steps from phases; exclusive phases; paths."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from observed import check_structure, seen
from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.reconstruction.assembly import assemble
from sonda.frameworks.reconstruction.paths import LayerPlaces
from sonda.frameworks.reconstruction.phases import Phase
from sonda.frameworks.reconstruction.steps import derive_sections


def phases(text: str) -> list[Phase]:
    """A program in letters: d0 data of loader 0, x its end, f forward, e evaluating forward (e7: of what lies at
    address 7), l loss, b backward, z zero_grad, s0 step of optimizer 0. Each takes 10 ns, with 1 ns before it."""
    found: list[Phase] = []
    iterator = 0
    names = {"d": "data", "x": "data", "f": "forward", "e": "forward", "l": "loss", "b": "backward", "z": "optimizer",
             "s": "optimizer"}  # fmt: skip
    for at, word in enumerate(text.split()):
        kind, number = word[0], int(word[1:] or 0)
        start = 11 * at
        data = kind in "dx"
        found.append(
            Phase(
                names[kind],
                start,
                start + 10,
                optimizer=number if kind == "s" else None,
                loader=number if data else None,
                iterator=iterator if data else None,
                training=kind == "f",
                graph=False if kind == "e" and number else None,
                address=number if kind == "e" else 0,
                exhausted=kind == "x",
            )
        )
        iterator += kind == "x"
    return found


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("f b s0 f b s0 f b s0", [("train", 3)]),
        ("z f l b s0 z f l b s0", [("train", 2)]),
        ("f b f b s0 f b f b s0", [("train", 2)]),  # gradient accumulation
        ("f b s0 f b s1 f b s0 f b s1", [("train", 2)]),  # two optimizers
        ("d0 f b s0 d0 f b s0 x0 d1 e d1 e x1 d0 f b s0 x0 d1 e d1 e x1", [("train", 2), ("validate", 2), ("train", 1),
                                                                        ("validate", 2)]),
        ("d0 f b s0 x0 d1 e x1 d2 e d2 e x2", [("train", 1), ("test", 1), ("test", 2)]),
        ("d0 e e d0 e e x0", [("test", 2)]),  # two models for every batch
        ("e e e", [("test", 3)]),
        # Data that is evaluated between trainings is validated once more at the end; other data tests.
        ("d0 f b s0 x0 d1 e x1 d0 f b s0 x0 d1 e x1 d2 e x2",
         [("train", 1), ("validate", 1), ("train", 1), ("validate", 1), ("test", 1)]),
        ("d0 f b s0 x0 d1 e x1 d0 f b s0 x0 d2 e x2", [("train", 1), ("validate", 1), ("train", 1), ("test", 1)]),
        # Data of its own for every fold.
        ("d0 f b s0 x0 d1 e x1 d0 f b s0 x0 d2 e x2 d0 f b s0 x0 d3 e x3 d4 e x4",
         [("train", 1), ("validate", 1), ("train", 1), ("validate", 1), ("train", 1), ("validate", 1), ("test", 1)]),
        # Without a loader: what follows each training, what is evaluated again, and something else.
        ("f b s0 e7 f b s0 e7", [("train", 1), ("validate", 1), ("train", 1), ("validate", 1)]),
        ("f b s0 e7 f b s0 e7 e7", [("train", 1), ("validate", 1), ("train", 1), ("validate", 2)]),
        ("f b s0 e7 f b s0 e7 e9", [("train", 1), ("validate", 1), ("train", 1), ("validate", 1), ("test", 1)]),
        ("f b s0 e7 f b s0 e8 f b s0 e9", [("train", 1), ("validate", 1)] * 3),  # made anew each time
        ("f b s0 e7 f b s0 e7 f b s0 e9", [("train", 1), ("validate", 1), ("train", 1), ("validate", 1), ("train", 1),
                                           ("test", 1)]),
        ("f b f b", [("train", 2)]),  # weights updated by hand
        ("z", []),
        ("", []),
    ],
)  # fmt: skip
def test_steps_and_parts_of_a_program(program: str, expected: list[tuple[str, int]]) -> None:
    assert [(section.part, len(section.steps)) for section in derive_sections(phases(program))] == expected


def test_gradients_cleared_after_the_last_step_of_an_epoch_belong_to_it() -> None:
    train, evaluate = derive_sections(phases("d0 f b s0 z x0 d1 e x1"))
    assert [step.phases for step in train.steps] == [[0, 1, 2, 3, 4]]
    assert [step.phases for step in evaluate.steps] == [[6, 7]]


def test_an_optimizer_made_since_the_last_step_begins_another() -> None:
    program = phases("f b s0 f b s1")
    assert [len(section.steps) for section in derive_sections(program)] == [1]
    made = Phase("optimizer", program[5].start, program[5].end, optimizer=1, made=program[2].end + 1)
    assert [len(section.steps) for section in derive_sections([*program[:5], made])] == [2]


def test_what_lies_between_two_steps_belongs_to_the_later_one() -> None:
    [section] = derive_sections(phases("f b s0 f b s0"))
    first, second = section.steps
    assert (first.start, first.end, second.start, second.end) == (0, 32, 32, 65)


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(str(tmp_path))


def phase(recorder: Recorder, name: str) -> int:
    return recorder.define(kind="phase", name=name)


def layer(recorder: Recorder, path: str, direction: str = "forward") -> int:
    return recorder.define(kind="layer", name="M", path=path, root=1, root_name="M", direction=direction)


def test_a_phase_inside_another_is_cut_out_of_it(recorder: Recorder, tmp_path: Path) -> None:
    optimizer, forward, backward = (phase(recorder, name) for name in ("optimizer", "forward", "backward"))
    number = recorder.define(kind="value", quantity="optimizer", source="counted")
    faults = recorder.define(kind="value", quantity="page_faults", source="counted")
    inner = layer(recorder, "")
    recorder.stream().push(
        (optimizer, 100, number, 0, forward, 110, inner, 111, inner + 1, 119, faults, 3, forward + 1, 120,
         backward, 130, faults, 4, backward + 1, 150, faults, 9, optimizer + 1, 160)
    )  # fmt: skip
    recorder.close()
    spans = assemble(tmp_path, 0, 200).spans
    check_structure(spans)
    assert seen(spans).parts == [("train", 1)]
    rows = spans.where(kind="phase")
    names = spans.words("name").decoded()[rows].tolist()
    times = list(zip(spans.number("start")[rows].tolist(), spans.number("duration")[rows].tolist(), strict=True))
    assert list(zip(names, times, strict=True)) == [
        ("optimizer", (100, 10)), ("forward", (110, 10)), ("optimizer", (120, 10)), ("backward", (130, 20)),
        ("optimizer", (150, 10)),
    ]  # fmt: skip
    # What the inner phases counted is taken off the outer one's.
    assert spans.metric("page_faults", "counted")[rows][[0, 1, 3]].tolist() == [2, 3, 4]


def test_a_gradient_taken_inside_a_layer_stays_in_that_layer(recorder: Recorder, tmp_path: Path) -> None:
    forward, backward = phase(recorder, "forward"), phase(recorder, "backward")
    outer, inner = layer(recorder, ""), layer(recorder, "a", "backward")
    recorder.stream().push(
        (
            forward,
            10,
            outer,
            11,
            backward,
            20,
            inner,
            21,
            inner + 1,
            29,
            backward + 1,
            30,
            outer + 1,
            39,
            forward + 1,
            40,
        )
    )
    recorder.close()
    spans = assemble(tmp_path, 0, 50).spans
    check_structure(spans)
    assert seen(spans).phases == {"forward": 1}
    assert spans.number("duration")[spans.where(kind="layer")].tolist() == [28, 8]


def test_calls_of_a_layer_are_numbered_within_its_step(recorder: Recorder, tmp_path: Path) -> None:
    forward, inner = phase(recorder, "forward"), layer(recorder, "")
    for at in (0, 100):
        recorder.stream().push(
            (forward, at, inner, at + 1, inner + 1, at + 2, inner, at + 3, inner + 1, at + 4, forward + 1, at + 9)
        )
    recorder.close()
    spans = assemble(tmp_path, 0, 200).spans
    assert spans.number("call")[spans.where(kind="layer")].tolist() == [0, 1, 0, 1]


def test_what_a_layer_held_stands_on_its_first_call_in_that_forward(recorder: Recorder, tmp_path: Path) -> None:
    """Of a layer that was not called there (`gone`) it stands nowhere."""
    forward, first, second, gone = phase(recorder, "forward"), *(layer(recorder, path) for path in ("a", "b", "c"))
    for at in (0, 100):
        recorder.stream().push((forward, at))
        for number, one in enumerate((first, second, first)):
            recorder.stream().push((one, at + 10 + 10 * number, one + 1, at + 15 + 10 * number))
        recorder.stream().push((forward + 1, at + 90))
    recorder.state(activations={first: 64, second: 32, gone: 8}, at=180)
    recorder.close()
    spans = assemble(tmp_path, 0, 200).spans
    held = spans.metric("activations", "counted")[spans.where(kind="layer")]
    np.testing.assert_array_equal(held, [np.nan, np.nan, np.nan, 64, 32, np.nan])


def test_paths_are_the_models_own_unless_there_are_several() -> None:
    def defined(number: int, root: int, name: str, path: str) -> dict[str, object]:
        return {"id": number, "kind": "layer", "name": name, "path": path, "root": root, "root_name": name}

    one = [defined(0, 1, "Net", ""), defined(1, 1, "Net", "a"), defined(2, 2, "MSELoss", "")]
    assert LayerPlaces(one).paths() == {0: "", 1: "a", 2: "MSELoss"}
    two = [*one, defined(3, 3, "Net", "a"), {"id": 4, "kind": "layer", "name": "T", "path": "T", "inside": 3}]
    assert LayerPlaces(two).paths() == {0: "Net", 1: "Net.a", 2: "MSELoss", 3: "Net#2.a", 4: "Net#2.a.T"}


def test_a_network_that_is_named_a_loss_is_a_model() -> None:
    def defined(number: int, root: int, name: str, path: str, **more: object) -> dict[str, object]:
        return {"id": number, "kind": "layer", "name": name, "path": path, "root": root, "root_name": name, **more}

    net = [defined(0, 1, "NetWithLoss", "", loss=False), defined(1, 1, "NetWithLoss", "net")]
    assert LayerPlaces([*net, defined(2, 2, "MSELoss", "", loss=True)]).paths() == {0: "", 1: "net", 2: "MSELoss"}


def test_a_part_that_was_called_before_its_whole_has_the_name_that_the_whole_gives_it() -> None:
    def defined(number: int, root: int, name: str, path: str) -> dict[str, object]:
        return {"id": number, "kind": "layer", "name": "Conv2d", "path": path, "root": root, "root_name": name}

    layers = [defined(0, 1, "Conv2d", ""), defined(1, 2, "Net", ""), defined(2, 2, "Net", "stem.0")]
    places = LayerPlaces(layers, [{"absorbed": 1, "into": 2, "path": "stem.0"}])
    assert places.paths() == {0: "stem.0", 1: "", 2: "stem.0"}
    assert places.place(0) == places.place(2)
