"""Annotations of a comparison: what is an error, what a warning, at which line, by the rules of workflow commands."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from builders import RunBuilder, stepped
from command_line import run_command
from sonda.analysis.code.summary import CodeLine, CodePlace, CodeRegion, CodeSummary, CodeTime, PartCode
from sonda.analysis.comparison.kernels import compare_kernels
from sonda.analysis.comparison.runs import compare
from sonda.analysis.summary import Value
from sonda.record.run import Run, write_run
from sonda.record.store import Store
from sonda.report.annotations import Annotation, annotate, github_lines
from trace_examples import imported, kernel, step

ROOT = Path("/repository")


def noisy(centre: float, spread: float = 0.001) -> Run:
    return stepped(np.random.default_rng(7).normal(centre, spread * centre, 20))


def line_of(phase: str, file: str, number: int = 41) -> CodeSummary:
    """Code in which one line takes half of the training step, all of it in this phase."""
    half = Value(0.5, "1", "derived")
    line = CodeLine(CodePlace(file, "step", number), "model(batch)", "", CodeTime(), half)
    return CodeSummary((PartCode("train", 9, (CodeRegion(phase, CodeTime(), half, (line,), (), (), ()),), ()),), None)


@pytest.mark.parametrize(
    ("a", "b", "spread", "limit", "level", "title"),
    [
        (100, 120, 0.001, 0.05, "error", "Sonda: slower"),
        (100, 120, 0.001, None, "warning", "Sonda: slower"),
        (100, 103, 0.001, 0.05, "notice", "Sonda: within the limit"),
        (100, 80, 0.001, 0.05, "notice", "Sonda: faster"),
        (100, 104, 0.2, 0.05, "warning", "Sonda: cannot tell"),
        (100, 104, 0.2, None, "notice", "Sonda: no slowdown shown"),
    ],
)
def test_the_level_says_what_is_known(
    a: float, b: float, spread: float, limit: float | None, level: str, title: str
) -> None:
    verdict, *_ = annotate(compare([noisy(a, spread)], [noisy(b, spread)]), limit)
    assert (verdict.level, verdict.title) == (level, title)


def test_one_step_on_a_side_cannot_be_told() -> None:
    verdict, *_ = annotate(compare([noisy(100)], [stepped([200.0])]), 0.05)
    assert (verdict.level, verdict.title) == ("warning", "Sonda: cannot tell")


def test_of_traces_more_steps_would_tell_and_no_more_processes(tmp_path: Path) -> None:
    steps = [step(number, 10_000 * number, length) for number, length in enumerate((100, 400, 900, 200))]
    kernels = [kernel("k", 10_000 * number, 50) for number in range(4)]
    trace = imported(tmp_path, [*steps, *kernels])
    verdict, *_ = annotate(compare_kernels([trace], [trace]), 0.05)
    assert "steps on each side" in verdict.message
    assert "processes" not in verdict.message and "--repeat" not in verdict.message


def test_a_slower_phase_is_marked_at_the_line_that_takes_most_of_it() -> None:
    _, place = annotate(compare([noisy(100)], [noisy(120)]), 0.05, line_of("forward", "src/train.py"), ROOT)
    assert (place.level, place.file, place.line) == ("warning", "src/train.py", 41)
    assert place.title == "Sonda: forward is 1.20x slower"
    assert "60.0 ms per step instead of 50.0 ms" in place.message
    assert "50 % of the step" in place.message


@pytest.mark.parametrize(
    ("file", "named"),
    [
        ("/repository/src/train.py", "src/train.py"),
        ("/usr/lib/python3/site-packages/library.py", ""),
        ("../elsewhere/train.py", ""),
        ("train.py", "train.py"),
    ],
)
def test_only_files_of_the_change_are_named(file: str, named: str) -> None:
    found = annotate(compare([noisy(100)], [noisy(120)]), 0.05, line_of("forward", file), ROOT)
    assert [annotation.file for annotation in found[1:]] == ([named] if named else [])


def test_a_phase_that_became_faster_is_not_marked() -> None:
    found = annotate(compare([noisy(120)], [noisy(100)]), 0.05, line_of("forward", "train.py"), ROOT)
    assert len(found) == 1


def test_a_phase_that_has_no_part_in_the_slowdown_is_not_marked() -> None:
    """Of 110 ms that the step takes longer, 10 are the forward's: less than a tenth."""

    def run(forward: float, data: float) -> Run:
        builder = RunBuilder()
        part = builder.part("train")
        for _ in range(8):
            builder.step(part, forward + data, {"data": data, "forward": forward})
        return builder.run()

    comparison = compare([run(50, 50)], [run(60, 150)])
    assert len(annotate(comparison, 0.05, line_of("forward", "train.py"), ROOT)) == 1
    assert len(annotate(comparison, 0.05, line_of("data", "train.py"), ROOT)) == 2


def test_code_in_no_phase_is_called_that() -> None:
    def run(rest: float) -> Run:
        builder = RunBuilder()
        part = builder.part("train")
        for _ in range(8):
            builder.step(part, 50 + rest, {"forward": 50})
        return builder.run()

    _, place = annotate(compare([run(10)], [run(30)]), None, line_of("other", "train.py"), ROOT)
    assert place.title == "Sonda: code between the phases is 3.00x slower"


def test_percent_signs_line_feeds_colons_and_commas_are_escaped() -> None:
    annotation = Annotation("error", "a: b, 5 %", "50 %, a: b\r\nnext\n::error::not a command", "a,b:c%.py", 3)
    assert github_lines([annotation]) == (
        "::error title=a%3A b%2C 5 %25,file=a%2Cb%3Ac%25.py,line=3::50 %25, a: b%0D%0Anext%0A::error::not a command\n"
    )


def test_an_annotation_without_a_place_names_none() -> None:
    assert github_lines([Annotation("notice", "t", "m")]) == "::notice title=t::m\n"


def test_every_annotation_is_one_line() -> None:
    annotations = annotate(compare([noisy(100)], [noisy(120)]), 0.05, line_of("forward", "train.py"), ROOT)
    lines = github_lines(annotations).splitlines()
    assert len(lines) == len(annotations) == 2
    assert all(
        re.fullmatch(r"::(error|warning|notice) title=[^,:]+(,file=[^,:]+,line=\d+)?::\S.*", line) for line in lines
    )


@pytest.fixture
def slower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose store has a run `main`, and one `head` that takes 1.2 times as long."""
    monkeypatch.chdir(tmp_path)
    store = Store(tmp_path / "store")
    for identity, tag, centre in (("0aaaaaaaaaaa", "main", 100.0), ("0bbbbbbbbbbb", "head", 120.0)):
        made = noisy(centre)
        info = stepped([1.0], id=identity).info
        write_run(store.root, info, made.spans)
        store.tag(identity, tag)
    return tmp_path


def test_compare_prints_annotations_behind_its_answer(slower: Path) -> None:
    done = run_command(slower, "compare", "main", "head", "--fail-above", "5%", "--annotations", "github")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].startswith("::error title=Sonda%3A slower::B is 1.20x slower than A")


def test_with_json_they_are_on_stderr(slower: Path) -> None:
    done = run_command(slower, "compare", "main", "head", "--json", "--annotations", "github")
    assert done.stdout.startswith("{")
    assert len(done.stdout.splitlines()) == 1
    assert "::warning title=Sonda%3A slower::" in done.stderr


def test_an_unknown_format_is_one_line_and_nothing_is_compared(slower: Path) -> None:
    done = run_command(slower, "compare", "main", "head", "--annotations", "githup")
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean 'github'?" in done.stderr
