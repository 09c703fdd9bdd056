"""A modelled step: every part of callgrind's counters goes to the spans it belongs to, once."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

import numpy as np
import pytest

from builders import RunBuilder
from places import DATA
from sonda.frameworks.collector.callgrind import EMPTY, EMPTY_WARMUP
from sonda.frameworks.reconstruction.events import ProcessEvents, read_events
from sonda.probes.callgrind.valgrind import EVENT_NAMES, QUANTITIES, parse_dump
from sonda.record.spans import Spans
from sonda.targets.instruments.callgrind_spans import ModelledStep, append_modelled, modelled_step

RECORDED = DATA / "callgrind" / "convolving"
needs_valgrind = pytest.mark.skipif(shutil.which("valgrind") is None, reason="needs valgrind")
needs_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="needs an x86-64 processor")

MARKER, PHASE_MARKER = 10, 30
"""Instructions of an empty span and of an empty phase in the stories below."""


# ---- parts and the spans they belong to -------------------------------------------------------------------------


class Story:
    """Writes events as a collector would, one part of callgrind's before each boundary."""

    def __init__(self, calibrated: bool = True) -> None:
        self.definitions: list[dict] = []
        self.pairs: list[tuple[int, int]] = []
        self.parts: dict[int, dict[str, int]] = {}
        self.clock = 0
        self.part = self.code("value", quantity="part", source="modelled")
        self.code("phase", "loss")
        self.step = self.code("pass", "modelled")
        if calibrated:
            for name, cost in (("span", MARKER), ("phase", PHASE_MARKER)):
                code = self.code("calibration", name)
                for number in range(EMPTY_WARMUP + EMPTY):
                    self.boundary(code, 777)
                    # The first ones cost more: their code is new.
                    self.boundary(code + 1, 5000 if number < EMPTY_WARMUP else cost)

    def code(self, kind: str, name: str = "", **more: object) -> int:
        found = next((one["id"] for one in self.definitions
                      if (one["kind"], one.get("name"), one.get("direction")) == (kind, name, more.get("direction"))
                      and kind != "value"), None)  # fmt: skip
        if found is None:
            found = len(self.definitions)
            self.definitions.append({"id": found, "kind": kind, "name": name, **more})
        return 2 * found

    def layer(self, path: str, direction: str = "forward") -> int:
        return self.code("layer", path or "Model", path=path, root=1, root_name="Model", direction=direction)

    def boundary(self, code: int, instructions: int) -> None:
        """A boundary, before which so many instructions were counted, observing included."""
        number = len(self.parts)
        self.parts[number] = dict.fromkeys(EVENT_NAMES, 0) | {"Ir": instructions, "Dr": instructions // 2}
        self.clock += 1000
        self.pairs += [(self.part, number), (code, self.clock)]

    def value(self, quantity: str, value: int) -> None:
        self.pairs.append((self.code("value", quantity=quantity, source="counted"), value))

    def read(self, tmp_path: Path) -> ModelledStep:
        events = ProcessEvents(self.definitions, [{"isa": "AVX2", "threads": 1, "rank": 0}])
        events.threads = {1: np.array(self.pairs, dtype=np.int64)}
        found = modelled_step(events, self.parts, tmp_path, 0)
        assert found is not None
        return found


def training(story: Story, ended: bool = True) -> None:
    """zero_grad; forward of a model with two layers; a loss outside any module; backward of both; an optimizer step."""
    forward, backward, optimizer = (story.code("phase", name) for name in ("forward", "backward", "optimizer"))
    stepping = story.code("phase", "optimizer", step=True, direction="step")
    story.boundary(story.step, 123_456)  # before the step: nobody's
    story.boundary(optimizer, 100 + MARKER)  # 100 outside any phase
    story.boundary(optimizer + 1, 40 + PHASE_MARKER)
    story.boundary(forward, 5 + MARKER)
    story.boundary(story.layer(""), 50 + MARKER)
    story.boundary(story.layer("a"), 20 + MARKER)
    story.boundary(story.layer("a") + 1, 1000 + MARKER)
    story.boundary(story.layer("b"), 7 + MARKER)
    story.boundary(story.layer("b") + 1, 2000 + MARKER)
    story.boundary(story.layer("") + 1, 15 + MARKER)
    story.value("training", 1)
    story.boundary(forward + 1, 20 + PHASE_MARKER)
    story.boundary(backward, 300 + MARKER)  # the loss
    story.boundary(story.layer("b", "backward"), 60 + MARKER)
    story.boundary(story.layer("b", "backward") + 1, 4000 + MARKER)
    story.boundary(story.layer("a", "backward"), 0 + MARKER)
    if not ended:
        return
    story.boundary(story.layer("a", "backward") + 1, 3000 + MARKER)
    story.boundary(backward + 1, 9 + PHASE_MARKER)
    story.boundary(stepping, 11 + MARKER)
    story.value("optimizer", 0)
    story.boundary(stepping + 1, 500 + PHASE_MARKER)
    story.boundary(story.step + 1, 13 + MARKER)


def instructions(spans: Spans, kind: str, name: str = "", path: str = "", direction: str = "") -> float:
    """Of all spans of this kind, name or path and direction, together."""
    mask = spans.where(kind=kind)
    for column, word in (("name", name), ("path", path), ("direction", direction)):
        if word:
            mask &= spans.words(column).equal(word)
    return float(np.nansum(spans.metric("instructions", "modelled")[mask]))


def test_every_part_goes_to_the_spans_around_it_without_its_marker(tmp_path: Path) -> None:
    story = Story()
    training(story)
    step = story.read(tmp_path)
    spans = step.spans
    assert instructions(spans, "layer", path="a", direction="forward") == 1000
    assert instructions(spans, "layer", path="b", direction="forward") == 2000
    assert instructions(spans, "layer", name="Model", direction="forward") == 20 + 1000 + 7 + 2000 + 15
    assert instructions(spans, "phase", name="forward") == 50 + 3042 + 20
    assert instructions(spans, "phase", name="loss") == 300
    assert instructions(spans, "layer", path="b", direction="backward") == 4000
    assert instructions(spans, "layer", path="a", direction="backward") == 3000
    assert instructions(spans, "phase", name="backward") == 60 + 4000 + 3000 + 9
    assert instructions(spans, "phase", name="optimizer") == 40 + 500
    outside = 100 + 5 + 11 + 13
    phases = sum(instructions(spans, "phase", name=name) for name in ("forward", "loss", "backward", "optimizer"))
    assert instructions(spans, "step") == phases + outside
    assert (step.complete, step.part, step.isa) == (True, "train", "AVX2")
    assert (step.markers.span[0], step.markers.phase[0]) == (MARKER, PHASE_MARKER)


def test_other_counters_go_the_same_way(tmp_path: Path) -> None:
    story = Story()
    training(story)
    spans = story.read(tmp_path).spans
    row = int(np.flatnonzero(spans.where(kind="layer", path="b", direction="forward"))[0])
    # (2000 + 10) // 2 loads, of which the marker's 5 are taken off.
    assert spans.metric("loads", "modelled")[row] == 1000
    assert sorted(spans.metrics) == sorted(f"{name}:modelled" for name in QUANTITIES.values())


def test_rows_hang_together_and_belong_to_the_modelled_pass(tmp_path: Path) -> None:
    story = Story()
    training(story)
    spans = story.read(tmp_path).spans
    kind, name = spans.words("kind").decoded(), spans.words("name").decoded()
    parent = spans.number("parent")
    assert kind[0] == "step" and parent[0] == -1
    assert set(spans.words("pass").decoded()) == {"modelled"}
    for row in range(1, len(spans)):
        assert kind[parent[row]] == {"phase": "step"}.get(kind[row], "layer" if name[row] in "ab" else "phase") or (
            spans.words("direction").decoded()[row] == "backward" and kind[parent[row]] == "phase"
        )


def test_a_phase_inside_another_takes_its_own_and_leaves_the_rest(tmp_path: Path) -> None:
    story = Story()
    forward, transfer = story.code("phase", "forward"), story.code("phase", "transfer")
    story.boundary(story.step, 0)
    story.boundary(forward, MARKER)
    story.boundary(transfer, 100 + MARKER)
    story.boundary(transfer + 1, 40 + PHASE_MARKER)
    story.boundary(forward + 1, 200 + PHASE_MARKER)
    story.boundary(story.step + 1, MARKER)
    spans = story.read(tmp_path).spans
    assert instructions(spans, "phase", name="transfer") == 40
    assert instructions(spans, "phase", name="forward") == 300
    assert instructions(spans, "step") == 340


def test_a_phase_inside_a_layer_stays_that_layers(tmp_path: Path) -> None:
    story = Story()
    forward, backward = story.code("phase", "forward"), story.code("phase", "backward")
    story.boundary(story.step, 0)
    story.boundary(forward, MARKER)
    story.boundary(story.layer(""), MARKER)
    story.boundary(backward, 100 + MARKER)  # a gradient taken in a module's forward
    story.boundary(backward + 1, 40 + PHASE_MARKER)
    story.boundary(story.layer("") + 1, 200 + MARKER)
    story.boundary(forward + 1, PHASE_MARKER)
    story.boundary(story.step + 1, MARKER)
    spans = story.read(tmp_path).spans
    assert instructions(spans, "phase", name="forward") == 340
    assert instructions(spans, "layer", name="Model") == 340
    assert not spans.where(kind="phase", name="backward").any()


def test_a_part_smaller_than_its_marker_is_empty_and_not_negative(tmp_path: Path) -> None:
    story = Story()
    forward = story.code("phase", "forward")
    story.boundary(story.step, 0)
    story.boundary(forward, 3)
    story.boundary(forward + 1, 4)
    story.boundary(story.step + 1, 5)
    spans = story.read(tmp_path).spans
    assert instructions(spans, "step") == 0 and instructions(spans, "phase", name="forward") == 0


def test_a_program_that_ends_in_the_middle_keeps_what_was_complete(tmp_path: Path) -> None:
    story = Story()
    training(story, ended=False)
    step = story.read(tmp_path)
    assert not step.complete
    assert instructions(step.spans, "phase", name="forward") == 3112
    assert instructions(step.spans, "layer", path="b", direction="backward") == 4000
    assert not step.spans.where(kind="layer", path="a", direction="backward").any()
    assert not step.spans.where(kind="phase", name="backward").any()


def test_a_step_that_was_never_reached_is_none(tmp_path: Path) -> None:
    story = Story()
    events = ProcessEvents(story.definitions, [], {1: np.array(story.pairs, dtype=np.int64)})
    assert modelled_step(events, story.parts, tmp_path, 0) is None
    assert modelled_step(ProcessEvents(), {}, tmp_path, 0) is None


def recorded_parts() -> dict[int, dict[str, int]]:
    texts = (RECORDED / "parts.txt").read_text().split("# callgrind format\n")[1:]
    dumps = [parse_dump(text) for text in texts]
    return {dump.number: dump.counters for dump in dumps}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> ModelledStep:
    events = read_events(RECORDED / "7.events")
    step = modelled_step(events, recorded_parts(), tmp_path_factory.mktemp("recorded"), 0)
    assert step is not None
    return step


def test_a_recorded_pass_adds_up_to_what_callgrind_counted(recorded: ModelledStep) -> None:
    events = read_events(RECORDED / "7.events")
    (pairs,) = [pairs for pairs in events.threads.values() if len(pairs) > 10]
    kinds = {2 * one["id"]: one for one in events.definitions}
    codes = pairs[:, 0].tolist()
    begin = next(code for code, one in kinds.items() if one["kind"] == "pass" and one["name"] == "modelled")
    part = next(code for code, one in kinds.items() if one.get("quantity") == "part")
    inside = pairs[codes.index(begin) + 1 : codes.index(begin + 1)]
    numbers = inside[inside[:, 0] == part][:, 1].tolist()
    counted = sum(recorded_parts()[number]["Ir"] for number in numbers)
    # Every part has the marker of a span or of a phase in it.
    least = counted - len(numbers) * max(recorded.markers.span[0], recorded.markers.phase[0])
    most = counted - len(numbers) * min(recorded.markers.span[0], recorded.markers.phase[0])
    assert least <= instructions(recorded.spans, "step") <= most


def test_max_pooling_executes_three_times_the_instructions_of_the_convolution_before_it(recorded: ModelledStep) -> None:
    """As the same program did on another processor: conv1 1.67 M, pool1 5.24 M, forward 12.27 M, backward 9.52 M."""
    spans = recorded.spans
    conv, pool = (instructions(spans, "layer", path=path, direction="forward") for path in ("conv1", "pool1"))
    assert pool / conv == pytest.approx(5.24 / 1.67, rel=0.1)
    assert instructions(spans, "phase", name="forward") == pytest.approx(12_274_401, rel=0.05)
    assert instructions(spans, "phase", name="backward") == pytest.approx(9_521_746, rel=0.05)


# ---- joined to a run, and started ------------------------------------------------------------------------------------


def test_the_modelled_step_hangs_on_the_run_and_changes_nothing_else(tmp_path: Path) -> None:
    story = Story()
    training(story)
    builder = RunBuilder()
    part = builder.part("train")
    for _ in range(2):
        builder.step(part, 10.0, {"forward": 5.0})
    native, extra = builder.run().spans, story.read(tmp_path).spans
    both = append_modelled(native, extra)
    assert len(both) == len(native) + len(extra)
    assert both.number("parent")[len(native)] == 0
    assert both.number("parent")[: len(native)].tolist() == native.number("parent").tolist()
    inner = extra.number("parent")[1:] + len(native)
    assert both.number("parent")[len(native) + 1 :].tolist() == inner.tolist()
    assert np.isnan(both.metric("instructions", "modelled")[: len(native)]).all()
    assert both.words("kind").decoded()[: len(native)].tolist() == native.words("kind").decoded().tolist()
