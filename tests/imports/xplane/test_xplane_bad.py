"""Profiles that are cut, damaged or made to do harm: what can be read is read, the rest is one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sonda.analysis.traces.summary import summarise_trace
from sonda.imports.trace import spill
from sonda.imports.xplane import file as xplane
from sonda.imports.xplane import planes as xplane_plane
from sonda.imports.xplane.file import open_space, profile_events
from sonda.record.errors import SondaError
from sonda.record.run import Run
from sonda.report.blocks import Detail
from sonda.report.views.imported import TraceView
from sonda.targets.imported.launcher import import_files
from xplane_examples import PlaneMaker, number, space, stretch, training, varint

ANYTHING = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
LENGTH = len(training(4))
"""Bytes of the profile that is cut and changed."""


def read(content: bytes, place: Path) -> Run:
    path = place / "a.xplane.pb"
    path.write_bytes(content)
    return import_files([path], place / "runs")


def shown(run: Run) -> str:
    return TraceView(summarise_trace(run)).text(120, color=False, detail=Detail.ALL)


def test_a_profile_cut_in_its_events_gives_what_it_has_and_says_so(tmp_path: Path) -> None:
    whole = training(50)
    # Behind the middle of the events of the first line, before all tables of names.
    run = read(whole[: len(whole) // 4], tmp_path)
    assert run.info.status == "incomplete"
    assert "the file ends in the middle: what stands before that is here" in run.info.notes
    assert any(
        note.startswith("the names of events stand behind the place where the file ends") for note in run.info.notes
    )
    assert 0 < len(run.spans) < 150
    assert "event 1" in run.spans.words("name").words


def test_a_profile_cut_in_its_tables_keeps_the_names_before(tmp_path: Path) -> None:
    whole = training(3)
    run = read(whole[: whole.index(b"step_num") - 8], tmp_path)
    assert run.info.status == "incomplete"
    assert "train" in run.spans.words("name").words
    assert len(run.spans) == 9


@ANYTHING
@given(cut=st.integers(0, LENGTH - 1))
def test_wherever_it_is_cut_a_run_or_one_line_comes_out(cut: int, tmp_path: Path) -> None:
    whole = training(4)
    try:
        run = read(whole[:cut], tmp_path)
    except SondaError as error:
        assert "\n" not in str(error) and "a.xplane.pb" in str(error)
    else:
        # Of the name of the host, which stands at the end in five bytes, nobody knows that it is missing.
        assert run.info.status == ("complete" if cut == LENGTH - 5 else "incomplete")
        assert shown(run)


@ANYTHING
@given(content=st.binary(max_size=300))
def test_random_bytes_are_one_line_or_a_run(content: bytes, tmp_path: Path) -> None:
    try:
        assert shown(read(content, tmp_path))
    except SondaError as error:
        assert "\n" not in str(error)


@ANYTHING
@given(places=st.lists(st.tuples(st.integers(0, LENGTH - 1), st.integers(0, 255)), min_size=1, max_size=6))
def test_bytes_that_were_changed_are_one_line_or_a_run(places: list[tuple[int, int]], tmp_path: Path) -> None:
    content = bytearray(training(4))
    for at, value in places:
        content[at] = value
    try:
        assert shown(read(bytes(content), tmp_path))
    except SondaError as error:
        assert "\n" not in str(error)


@given(content=st.binary(max_size=120))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_a_line_of_anything_is_read_alike_by_both_loops(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.pb"
    path.write_bytes(stretch(1, stretch(2, b"/host:CPU") + stretch(3, content)))
    found = []
    for least in (1 << 40, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(xplane, "COMPILED_FROM", least)
            with open_space(path) as one:
                line = one.planes[0].lines[0]
                rows = [block.rows.tolist() for block in line.blocks()]
                found.append((line.number, line.name, line.timestamp_ns, line.count, line.unreadable, rows))
    assert found[0] == found[1]


def test_numbers_as_large_as_can_be_do_no_harm(tmp_path: Path) -> None:
    plane = PlaneMaker("/host:CPU")
    huge = [
        number(1, 1) + number(2, (1 << 63) - 1) + number(3, (1 << 63) - 1),
        number(1, 1) + number(2, 5) + number(3, -5),
        number(1, (1 << 63) - 1) + number(2, -(1 << 63)),
        plane.event("train", 10, 20, step_num=(1 << 63) - 1),
        plane.event("work", 12, 5, correlation_id=-(1 << 63)),
    ]
    run = read(space(plane.line(-(1 << 63), "main", huge)), tmp_path)
    assert run.spans.words("name").decoded().tolist() == ["train", "work"]
    assert "3 events have no time that can be read: left out" in run.info.notes
    far = PlaneMaker("/host:CPU")
    far.line(1, "main", [far.event("train", 1, 1)], begin=(1 << 63) - 1)
    with pytest.raises(SondaError, match="1 have no time that can be read"):
        read(space(far), tmp_path)


def test_a_length_beyond_the_end_of_a_line_loses_the_rest_of_it(tmp_path: Path) -> None:
    plane = PlaneMaker("/host:CPU")
    good = stretch(4, plane.event("first", 1, 2))
    plane.lines.append(good + varint(34) + varint(1 << 62) + good)
    run = read(space(plane), tmp_path)
    assert run.spans.words("name").decoded().tolist() == ["first"]


def test_an_event_whose_inside_is_damaged_is_counted(tmp_path: Path) -> None:
    plane = PlaneMaker("/host:CPU")
    bad = stretch(4, b"\x08" + b"\xff" * 11)
    plane.lines.append(stretch(4, plane.event("first", 1, 2)) + bad + stretch(4, plane.event("last", 5, 2)))
    run = read(space(plane), tmp_path)
    assert run.spans.words("name").decoded().tolist() == ["first", "last"]
    assert "1 events cannot be read: left out" in run.info.notes


def test_times_that_go_backwards_are_put_in_order(tmp_path: Path) -> None:
    plane = PlaneMaker("/host:CPU")
    events = [plane.event("late", 500, 10), plane.event("train", 100, 50, step_num=0), plane.event("early", 5, 10)]
    run = read(space(plane.line(1, "main", events, begin=-3)), tmp_path)
    assert run.spans.words("name").decoded().tolist() == ["early", "train", "late"]
    assert run.spans.number("start").tolist() == [0, 95, 495]


def test_an_event_with_more_stats_than_a_block_holds_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xplane_plane, "STATS", 2)
    plane = PlaneMaker("/host:CPU")
    many = {f"stat{place}": place for place in range(9)}
    path = tmp_path / "a.pb"
    path.write_bytes(space(plane.line(1, "main", [plane.event("one", 1, 2, **many), plane.event("two", 3, 4)])))
    assert [event.stats for _, _, event in profile_events(path)] == [many, {}]


def test_sums_without_a_moment_are_no_spans(tmp_path: Path) -> None:
    plane = PlaneMaker("/host:CPU")
    together = number(1, 1) + number(5, 40) + number(3, 1000)
    plane.line(1, "main", [plane.event("train", 10, 20, step_num=0), together])
    assert len(read(space(plane), tmp_path).spans) == 1


@pytest.mark.parametrize("content", [b"", b"\x0a", b"hello", stretch(4, b"host"), stretch(1, b"")])
def test_what_holds_no_event_is_one_line(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(SondaError) as error:
        read(content, tmp_path)
    assert "a.xplane.pb" in str(error.value) and "\n" not in str(error.value)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SondaError, match=r"cannot read .*none\.xplane\.pb"):
        list(profile_events(tmp_path / "none.xplane.pb"))


def test_small_blocks_give_the_same_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Every event of 40 steps; blocks of 64 rows, so that steps and operations reach across them.
    plane = PlaneMaker("/host:CPU", shown={"a/While:While": "While", "a/Mul:Mul": "Mul"})
    draw = np.random.default_rng(5)
    main, worker = [], []
    for step in range(40):
        main += [plane.event("train", 1000 * step, 950, step_num=step), plane.event("call", 1000 * step + 10, 800)]
        worker.append(plane.event("a/While:While", 1000 * step + 20, 700))
        worker += [plane.event("a/Mul:Mul", 1000 * step + 30 + 60 * at, int(draw.integers(1, 60))) for at in range(10)]
    content = space(plane.line(1, "python", main).line(2, "tf_Compute", worker))
    whole = summarise_trace(read(content, tmp_path)).profile
    monkeypatch.setattr(spill, "BLOCK_ROWS", 64)
    monkeypatch.setattr(spill.merge_by_time, "__defaults__", (64,))
    pieces = summarise_trace(read(content, tmp_path)).profile
    assert whole is not None and pieces == whole
    loop = next(one for one in whole.operations if one.name == "While")
    inside = next(one for one in whole.operations if one.name == "Mul")
    assert (loop.calls, loop.total, inside.calls) == (40, 28_000, 400)
    assert loop.own == 28_000 - inside.total
    assert (whole.steps[0].parts["operations"].value, whole.steps[0].parts["host"].value) == (28_000, 4_000)
