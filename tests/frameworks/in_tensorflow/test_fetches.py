"""How long graphs wait for the batches that they fetch, from what tf.data says of itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.tensorflow.observe import fetches
from sonda.frameworks.tensorflow.observe.fetches import GraphFetches, stages_of

MS = 1_000_000


class Owner:
    """An iterator."""


class Pipeline:
    """Plays tf.data: every fetch begins `late` after its call and takes as long as it is told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.elements, self.gaps, self.ended = 0, [], None
        self.notes: list[str] = []
        self.recorder = Recorder("")
        self.fetches = GraphFetches(self.recorder, self.notes.append)
        self.owner = Owner()
        self.broken, self.over = False, False
        monkeypatch.setattr(fetches, "_model_of", self.model)

    def model(self, resource: Any) -> Any:
        if self.broken:
            raise ValueError("no model")
        source = SimpleNamespace(
            name="Generator", num_elements=self.elements, processing_time=0, parameters=[], inputs=[]
        )
        inputs = [] if self.over else [2]
        root = SimpleNamespace(name="Root", num_elements=self.elements, processing_time=0, parameters=[], inputs=inputs)
        return SimpleNamespace(output=1, nodes={1: root, 2: source}, gap_times=self.gaps[-100:])

    def begin_anew(self) -> None:
        """Give the next calls an iterator of their own."""
        self.owner = Owner()
        self.fetches.ask_closed()
        self.elements, self.gaps, self.ended, self.over = 0, [], None, False

    def fetch(self, begin: int, end: int, gives: bool = True) -> None:
        if self.ended is not None:
            self.gaps.append((begin - self.ended) // 1000)
        self.ended = end
        self.elements += gives

    def called(self, begin: int, end: int, traced: bool = False, done: bool = True) -> int:
        return self.fetches.note_call(self.owner, object(), 1, begin, end, traced, done)

    def steps(self, waits: list[int], computing: int = 2 * MS, late: int = MS // 10) -> list[int]:
        """Calls one behind the other, 1 ms apart."""
        at, numbers = 10 * MS, []
        for wait in waits:
            self.fetch(at + late, at + late + wait)
            end = at + late + wait + computing
            numbers.append(self.called(at, end))
            at = end + MS
        return numbers

    @property
    def stated(self) -> dict[int, int]:
        self.fetches.facts()
        stated = [fact for fact in self.recorder._pending if "fetches" in fact]
        return {number: wait for fact in stated for number, wait in zip(fact["fetches"], fact["fetch_ns"], strict=True)}


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    return Pipeline(monkeypatch)


def test_waits_are_what_gaps_leave_of_the_time_between_calls(pipeline: Pipeline) -> None:
    waits = [(1 + number % 7) * MS for number in range(350)]
    numbers = pipeline.steps(waits)
    assert pipeline.stated == dict(zip(numbers[:-1], waits[:-1], strict=True))


def test_the_last_wait_is_known_where_a_fetch_came_in_vain(pipeline: Pipeline) -> None:
    numbers = pipeline.steps([5 * MS, 6 * MS, 7 * MS])
    begin = 10 * MS + 18 * MS + 3 * (2 * MS + MS + MS // 10)
    pipeline.fetch(begin + MS // 10, begin + MS, gives=False)
    pipeline.called(begin, begin + MS, done=False)
    assert pipeline.stated == dict(zip(numbers, [5 * MS, 6 * MS, 7 * MS], strict=True))


def test_calls_that_begin_late_before_their_fetch_take_nothing_from_the_sum(pipeline: Pipeline) -> None:
    at, late = 0, [MS // 10, MS, 0, MS // 2, 0, 0, MS // 3, 0]
    for number, delay in enumerate(late):
        pipeline.fetch(at + delay, at + delay + number % 2 * MS)
        pipeline.called(at, at + 5 * MS)
        at += 6 * MS
    waits = pipeline.stated
    assert min(waits.values()) == fetches.LEAST_NS
    assert sum(waits.values()) == pytest.approx(3 * MS, abs=MS)


def test_a_short_last_call_of_several_batches_leaves_the_waits_of_the_others(pipeline: Pipeline) -> None:
    """Ten batches, four a call: the last call of every epoch has two. The first calls have their waits in every one."""
    firsts = []
    for _ in range(3):
        at = 0
        for count in (4, 4, 2):
            for fetch in range(count):
                pipeline.fetch(at + 30 * MS * fetch, at + 30 * MS * (fetch + 1))
            number = pipeline.called(at, at + 30 * MS * count + 20 * MS)
            firsts += [number] if not at else []
            at += 200 * MS
        pipeline.begin_anew()
    assert set(firsts) <= set(pipeline.stated)


def test_a_stage_that_is_gone_at_the_end_is_in_the_table_of_every_epoch(pipeline: Pipeline) -> None:
    for _ in range(3):
        pipeline.steps([MS] * 8)
        pipeline.over = True
        pipeline.begin_anew()
    pipeline.fetches.facts()
    (told,) = pipeline.fetches.pipelines.values()
    assert [stage["name"] for stage in told["stages"]] == ["Root", "Generator"]


def test_what_is_traced_hides_its_own_wait_and_that_before_it(pipeline: Pipeline) -> None:
    numbers = []
    for number in range(6):
        at = 20 * MS * number
        pipeline.fetch(at + (9 * MS if number == 3 else 0), at + 10 * MS)
        numbers.append(pipeline.called(at, at + 12 * MS, traced=number == 3))
    assert sorted(pipeline.stated) == [numbers[0], numbers[1], numbers[4]]


def test_of_several_batches_in_a_call_only_what_did_not_hide_behind_computing_counts(pipeline: Pipeline) -> None:
    """Four batches: 30 ms to fetch, 20 ms to compute. The first fetch and the last computing stand alone."""
    numbers = []
    for number in range(5):
        at = 200 * MS * number
        for fetch in range(4):
            pipeline.fetch(at + 30 * MS * fetch, at + 30 * MS * (fetch + 1))
        numbers.append(pipeline.called(at, at + 140 * MS))
    waits = pipeline.stated
    assert set(waits) == set(numbers[:-1])
    # 140 ms, of which 4 x 20 compute: but the next call begins 60 ms behind this one, and so does nothing else.
    assert set(waits.values()) == {140 * MS - 4 * 20 * MS}


def test_older_gaps_have_no_place_where_a_long_one_was_dropped(pipeline: Pipeline) -> None:
    first = pipeline.steps([MS] * 10)
    pipeline.gaps[-1:] = []
    at = 60_000 * MS
    later = []
    for number in range(5):
        begin = at + number * 10 * MS
        pipeline.fetch(begin, begin + 4 * MS)
        if number == 0:
            pipeline.gaps.pop()
        later.append(pipeline.called(begin, begin + 5 * MS))
    waits = pipeline.stated
    assert {number: waits[number] for number in later[:-1]} == dict.fromkeys(later[:-1], 4 * MS)
    assert first[-1] not in waits


def test_without_a_model_nothing_is_told_and_that_is_said_once(pipeline: Pipeline) -> None:
    pipeline.broken = True
    pipeline.steps([MS] * 3)
    assert pipeline.stated == {}
    (note,) = pipeline.notes
    assert "cannot be told" in note and "autotune" in note


def test_calls_of_different_numbers_of_batches_are_not_told(pipeline: Pipeline) -> None:
    for number in range(9):
        begin = 20 * MS * number
        for fetch in range(1 + number % 3):
            pipeline.fetch(begin + fetch * MS, begin + (fetch + 1) * MS)
        pipeline.called(begin, begin + 10 * MS)
    assert pipeline.stated == {}
    assert [fetches.UNEVEN in note for note in pipeline.notes] == [True]


def test_batches_of_workers_are_waited_for_while_they_are_fetched(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([5 * MS, 9 * MS, 21 * MS, 40 * MS])
    monkeypatch.setattr(fetches, "now", lambda: next(times))
    pipeline.broken = True
    pipeline.fetches.time_fetch(lambda: "first")
    pipeline.called(4 * MS, 10 * MS, traced=True)
    assert pipeline.fetches.time_fetch(lambda: "second") == "second"
    number = pipeline.called(20 * MS, 30 * MS)
    assert pipeline.stated == {number: 9 * MS}
    assert pipeline.notes == []


def test_stages_from_the_last_to_the_source() -> None:
    def node(name: str, elements: int, *inputs: int, **tuned: int) -> Any:
        parameters = [SimpleNamespace(name=key, value=value) for key, value in tuned.items()]
        return SimpleNamespace(
            name=name, num_elements=elements, processing_time=10 * elements, parameters=parameters, inputs=inputs
        )

    nodes = {
        1: node("Root", 3, 2), 2: node("Prefetch", 3, 3, buffer_size=2),
        3: node("ParallelInterleaveV4", 24, 4, 5, 6, parallelism=2), 4: node("Range", 2), 5: node("Map", 12, 7),
        6: node("Map", 14, 8), 7: node("TensorSlice", 12), 8: node("TensorSlice", 14),
    }  # fmt: skip
    stages = stages_of(SimpleNamespace(output=1, nodes=nodes))
    assert [(stage["name"], stage["elements"], stage["parallel"]) for stage in stages] == [
        ("Root", 3, 1), ("Prefetch", 3, 1), ("ParallelInterleaveV4", 24, 2), ("Range", 2, 2), ("Map", 26, 2),
        ("TensorSlice", 26, 2),
    ]  # fmt: skip
    assert stages[1]["buffer"] == 2 and stages[4]["ns"] == 260
