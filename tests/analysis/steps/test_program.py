"""Where a program's time went: stages that exclude each other and add up, whatever overlaps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from growth import time_growth
from plain_runs import run_info
from sonda.analysis.steps.program import STAGES, Program, summarise_program
from sonda.frameworks.reconstruction.stages import PROCESS, read_stages
from sonda.record.run import Run, now
from sonda.record.spans import Spans, Words
from sonda.report.views.steps.program import program_fields, program_table

S = 10**9


class Row(NamedTuple):
    kind: str
    name: str
    start: float
    """s"""
    end: float
    path: str = ""
    thread: int = 1
    of_pass: str = "timed"


class Kept(Run):
    """A run that is only in memory."""

    def __init__(self, spans: Spans, workload: dict) -> None:
        super().__init__(Path(), run_info(id="7f3a", created=now(), status="complete", workload=workload))
        self._kept = spans

    @property
    def spans(self) -> Spans:  # type: ignore[override]
        return self._kept


def run_of(whole: float, *rows: Row, command: bool = True) -> Run:
    """A program of so many s. A step's name is its part, which is made around each."""
    table: list[tuple[str, str, str, int, int, int, int, str]] = [("run", "", "", -1, 0, round(whole * S), 0, "")]
    for row in rows:
        parent, name = 0, row.name
        start, end = round(row.start * S), round(row.end * S)
        if row.kind == "step":
            table.append(("part", row.name, "", 0, start, end, row.thread, row.of_pass))
            parent, name = len(table) - 1, ""
        table.append((row.kind, name, row.path, parent, start, end, row.thread, row.of_pass))
    kind, name, path, parent, start, end, thread, of_pass = zip(*table, strict=True)
    spans = Spans(
        {"parent": np.array(parent), "start": np.array(start), "duration": np.array(end) - np.array(start),
         "thread": np.array(thread)},
        {"kind": Words.of(kind), "name": Words.of(name), "path": Words.of(path), "pass": Words.of(of_pass)},
    )  # fmt: skip
    return Kept(spans, {"command": ["python", "mine.py"]} if command else {"name": "cnn"})


def seconds(found: Program | None) -> dict[str, float]:
    assert found is not None
    return {stage.name: (stage.time.value or 0.0) / S for stage in found.stages}


def process(start: float, end: float, thread: int = 1) -> Row:
    return Row("stage", "process", start, end, thread=thread)


def test_a_training_is_cut_into_what_it_did() -> None:
    found = summarise_program(
        run_of(
            20,
            process(0.5, 19),
            Row("stage", "import", 0.5, 3, "torch"),
            Row("stage", "import", 1, 1.25, "sympy"),  # by torch
            Row("stage", "import", 3, 3.5, "torch.optim"),
            Row("stage", "import", 4, 4.5, "numpy"),
            Row("stage", "observing", 2.5, 3),  # inside the import of torch
            Row("step", "train", 6, 10),
            Row("compile", "torch.compile", 6.5, 8),  # inside the first step
            Row("step", "train", 10, 12),
            Row("stage", "checkpoint", 11, 12, "save"),  # between two steps, and so in the later one
            Row("step", "validate", 13, 14),
            Row("step", "test", 14, 15),
            Row("stage", "import", 15.5, 16, "matplotlib.pyplot"),  # late, inside a function
        )
    )
    assert seconds(found) == {
        "start": 0.5, "imports": 3.5 - 0.5 + 0.5 + 0.5 - 0.5, "preparation": 0.5 + 1.5, "compile": 1.5,
        "train": 6 - 1.5 - 1, "validate": 1, "test": 1, "checkpoints": 1, "between": 1, "ending": 4.5, "observing": 0.5,
    }  # fmt: skip
    assert found is not None and found.steps == 4
    assert found.steps_share == pytest.approx(5.5 / 20)
    imports = found.stage("imports")
    assert imports is not None and imports.of_it == (("torch", 2.25 * S), ("numpy", 0.5 * S), ("matplotlib", 0.5 * S))


def test_compilations_are_those_of_the_program_and_not_of_its_run_under_an_emulator() -> None:
    """Two forwards, one of them again; the backward of one waited for its first call."""
    compilations = [Row("compile", "torch.compile", 3, 4), Row("compile", "torch.compile", 4, 5, "again"),
                    Row("compile", "torch.compile", 5, 6, "backward")]  # fmt: skip
    found = summarise_program(
        run_of(20, process(0, 19), Row("step", "train", 2, 8), *compilations,
               *(row._replace(of_pass="modelled") for row in compilations))
    )  # fmt: skip
    compiled = found.stage("compile") if found is not None else None
    assert compiled is not None and (compiled.count, compiled.again) == (2, 1)


def test_a_training_while_its_module_is_imported_is_a_training() -> None:
    found = summarise_program(
        run_of(10, process(0, 10), Row("stage", "import", 1, 9, "train"), Row("step", "train", 2, 8))
    )
    assert seconds(found) == {"preparation": 1, "imports": 2, "train": 6, "ending": 1}


def test_a_program_without_steps_has_its_own_code() -> None:
    found = summarise_program(run_of(10, process(1, 9), Row("stage", "import", 1, 3, "numpy")))
    assert seconds(found) == {"start": 1, "imports": 2, "running": 6, "ending": 1}


def test_what_another_thread_imports_takes_nothing_from_a_training() -> None:
    found = summarise_program(
        run_of(
            10,
            process(0, 10),
            Row("step", "train", 2, 8, thread=1),
            Row("stage", "import", 1, 4, "pandas", thread=2),
        )
    )
    assert seconds(found) == {"preparation": 1, "imports": 1, "train": 6, "ending": 2}


def test_of_several_processes_the_one_that_steps_is_told_and_its_launcher_before_it() -> None:
    found = summarise_program(
        run_of(
            20,
            process(0, 20, thread=1),
            Row("stage", "import", 0, 4, "torch", thread=1),
            process(5, 18, thread=7),
            Row("stage", "import", 5, 8, "torch", thread=7),
            Row("step", "train", 9, 17, thread=7),
            process(5, 18, thread=8),
            Row("stage", "import", 5, 12, "torch", thread=8),
        )
    )
    assert seconds(found) == {"imports": 4 + 3 + 1, "preparation": 1, "train": 8, "ending": 3}


@pytest.mark.parametrize(
    "run", [run_of(10, process(0, 10), command=False), run_of(10, Row("step", "train", 2, 8)), run_of(0, process(0, 0))]
)
def test_other_runs_have_no_program(run: Run) -> None:
    """Built-in workloads, runs that were recorded before there were stages, and nothing at all."""
    assert summarise_program(run) is None


rows = st.builds(
    lambda which, start, length, thread: Row(*which, start, start + length, "a.b", thread),
    st.sampled_from(
        [("stage", "import"), ("stage", "checkpoint"), ("stage", "observing"), ("stage", "process"), ("compile", "x"),
         ("step", "train"), ("step", "validate"), ("step", "test")]
    ),
    st.floats(-1, 12), st.floats(0, 12), st.integers(1, 3),
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(rows, max_size=12))
def test_stages_exclude_each_other_and_add_up(found: list[Row]) -> None:
    program = summarise_program(run_of(10, process(0.5, 9), *found))
    assert program is not None
    times = [stage.time.value or 0.0 for stage in program.stages]
    assert sum(times) == pytest.approx(10 * S)
    assert all(0 < time <= 10 * S for time in times)
    assert sum(stage.share for stage in program.stages) == pytest.approx(1)
    assert [stage.name for stage in program.stages] == [name for name in STAGES if program.stage(name) is not None]
    for stage in program.stages:
        assert sum(time for _, time in stage.of_it) <= (stage.time.value or 0.0) * (1 + 1e-9)


def test_a_million_steps_are_told_in_a_moment() -> None:
    count = 10**6
    kind = Words(np.array([0, 1, 2] + [3] * count, dtype=np.int32), ("run", "stage", "part", "step"))
    name = Words(np.array([0, 1, 2] + [0] * count, dtype=np.int32), ("", "process", "train"))
    start = np.concatenate(([0, 0, 1000], 1000 + 1000 * np.arange(count)))
    duration = np.concatenate(([2000 + 1000 * count] * 2, [1000 * count], np.full(count, 900)))
    parent = np.concatenate(([-1, 0, 0], np.full(count, 2)))
    spans = Spans({"start": start, "duration": duration, "parent": parent}, {"kind": kind, "name": name})
    found = summarise_program(Kept(spans, {"command": ["python"]}))
    assert found is not None and found.steps == count
    assert seconds(found)["train"] == pytest.approx(900e-9 * count)
    assert seconds(found)["between"] == pytest.approx(100e-9 * (count - 1))


def test_ten_thousand_processes_are_told_in_seconds() -> None:
    """One after the other, each a second of imports and a second of steps."""

    def tell(count: int) -> None:
        each = range(count)
        rows = [Row("stage", "import", 2 * at, 2 * at + 1, f"package{at}", 7 + at) for at in each]
        rows += [Row("step", "train", 2 * at + 1, 2 * at + 2, thread=7 + at) for at in each]
        found = summarise_program(run_of(2 * count, process(0, 2 * count), *rows))
        assert found is not None and found.steps == count
        assert seconds(found) == pytest.approx({"imports": count, "train": count})

    assert time_growth(tell, 1000, 10_000, 30) < 30, "times; looking at everything for each of them takes 100 times"


# ---- shown ------------------------------------------------------------------------------------------------------


def test_the_table_adds_up_and_small_stages_share_a_row() -> None:
    found = summarise_program(
        run_of(
            1000, process(1, 999), Row("stage", "import", 1, 400, "torch"), Row("step", "train", 402, 998),
            Row("stage", "checkpoint", 998, 998.5, "save"),
        )
    )  # fmt: skip
    assert found is not None
    table = program_table(found)
    shown = {row[0].text: (row[1].text, row[2].text, row[3].text) for row in table.rows}
    assert shown == {
        "imports": ("399.00", "39.9", "torch 399 s"),
        "training": ("596.00", "59.6", "1 step"),
        "the rest": ("5.00", "0.5", "interpreter start, before the first step, files of weights, after the last step"),
        "whole program": ("1,000.00", "100.0", ""),
    }
    document = program_fields(found)["program"]
    assert sum(stage["time"]["value"] for stage in document["stages"]) == document["whole"]["value"]
    assert sum(stage["share"] for stage in document["stages"]) == pytest.approx(1)
    assert document["steps"] == 1 and document["steps_share"] == pytest.approx(0.596)


# ---- read -------------------------------------------------------------------------------------------------------


def test_lines_that_were_cut_short_are_left_out_and_a_killed_process_lasts_to_the_end(tmp_path: Path) -> None:
    lines = [
        {"process": 7, "begun": 100},
        {"kind": "stage", "name": "import", "what": "torch", "thread": 7, "start": 110, "end": 150},
        {"kind": "stage", "name": "import", "what": "late", "thread": 7, "start": 190, "end": 260},
    ]
    text = "\n".join(json.dumps(line) for line in lines) + '\n{"kind": "stage", "na'
    (tmp_path / "7.stages").write_text(text)
    found = [(stage.name, stage.detail, stage.start, stage.end) for stage in read_stages(tmp_path, 90, 200)]
    assert found == [("import", "torch", 110, 150), ("import", "late", 190, 200), ("process", "", 100, 200)]


def test_a_killed_child_ends_with_what_it_wrote_last(tmp_path: Path) -> None:
    imported = {"kind": "stage", "name": "import", "what": "json", "thread": 8, "start": 110, "end": 130}
    files = {
        "10": [{"process": 10, "begun": 100}],
        "8": [{"process": 8, "begun": 105}, imported],
        "9": [{"process": 9, "begun": 120}, {"process": 9, "ended": 160}],
    }
    for name, lines in files.items():
        (tmp_path / f"{name}.stages").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = {stage.thread: (stage.start, stage.end) for stage in read_stages(tmp_path, 0, 200) if stage.name == PROCESS}
    assert found == {10: (100, 200), 8: (105, 130), 9: (120, 160)}, "the first is the program, which was killed too"


def test_a_program_that_replaces_itself_is_one_process(tmp_path: Path) -> None:
    lines = [{"process": 7, "begun": 100}, {"process": 7, "begun": 150}, {"process": 7, "ended": 180}]
    (tmp_path / "7.stages").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [(stage.start, stage.end) for stage in read_stages(tmp_path, 0, 200)] == [(100, 180)]
