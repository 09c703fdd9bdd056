"""Every screen at a fixed width, as somebody sees it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from rich.cells import cell_len

import report_examples as examples
import snapshot_files as snapshots
from plain_runs import target_of
from sonda.analysis.findings import Remark
from sonda.analysis.rules.program.whole_program import rule as judge_program
from sonda.analysis.steps.program import Program, ProgramStage
from sonda.report.blocks import Detail
from sonda.report.markup import blocks_html
from sonda.report.screen import Screen, render
from sonda.report.views.compare.screen import comparison_blocks, side_by_side_blocks
from sonda.report.views.listing import doctor_blocks, runs_blocks
from sonda.report.views.steps.tables import layer_table, side_by_side_table
from sonda.report.views.steps.verdict import verdict_block
from sonda.report.views.steps.view import StepsView

S = 1e9


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


def two_parts() -> examples.Summary:
    summary = examples.training()
    validate = replace(examples.inference().parts[0], name="validate")
    return replace(summary, parts=(*summary.parts, validate))


def mostly_imports() -> examples.Summary:
    """A training of 25 s in a program of 90."""
    seconds = {"start": 0.1, "imports": 40.0, "preparation": 20.2, "train": 25.3, "checkpoints": 3.9, "between": 0.4,
               "observing": 0.1}  # fmt: skip
    counts = {"imports": 12, "train": 23, "checkpoints": 3}
    packages = (("torch", 31.0 * S), ("transformers", 8.4 * S), ("pandas", 0.4 * S))
    total = sum(seconds.values())
    stages = tuple(
        ProgramStage(name, examples.Value(time * S, "ns", "measured"), time / total, counts.get(name, 0),
                     packages if name == "imports" else ())
        for name, time in seconds.items()
    )  # fmt: skip
    program = Program(examples.Value(total * S, "ns", "measured"), stages)
    summary = replace(examples.training(), program=program, notes=(), warnings=())
    whole = judge_program(summary)
    assert whole is not None
    return replace(summary, verdicts=(whole, *summary.verdicts))


@pytest.mark.parametrize(
    ("name", "summary", "width"),
    [
        ("summary_training_120", examples.training(), 120),
        ("summary_training_80", examples.training(), 80),
        ("summary_training_60", examples.training(), 60),
        ("summary_incomplete_100", examples.inference(), 100),
        ("summary_two_parts_110", two_parts(), 110),
        ("summary_program_80", mostly_imports(), 80),
        ("summary_hostile_110", examples.hostile(), 110),
    ],
)
def test_summary(name: str, summary: examples.Summary, width: int) -> None:
    text = StepsView(summary).text(width, rows=6, short=summary.run[:4], color=False, detail=Detail.ALL)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    snapshots.check(name, text)


@pytest.mark.parametrize("width", [60, 100])
def test_side_by_side(width: int) -> None:
    runs = [examples.training(), examples.inference(), examples.training("1234abcd")]
    runs = [
        replace(run, target=target_of({"spec": spec}))
        for run, spec in zip(runs, ("cpu", "cuda:0", "ddp=cpu/1+cpu/1"), strict=True)
    ]
    text = render(side_by_side_blocks(runs), width, False)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    assert "cuda:0 (fastest)" in text
    snapshots.check(f"side_by_side_{width}", text)


@pytest.mark.parametrize("width", [60, 100])
def test_comparison(width: int) -> None:
    snapshots.check(f"comparison_{width}", render(comparison_blocks(examples.comparison(), layers=3), width, False))


def test_a_limit_that_is_passed_is_said() -> None:
    slower = replace(examples.comparison(), slowdown=examples.Value(0.08, "1", "derived", 0.06, 0.10))
    assert "Above the limit of 5 %: B takes 6.0 to 10 % more time" in render(
        comparison_blocks(slower, fail_above=0.05), 100, False
    )
    assert "Cannot tell whether B is above the limit of 7 %" in render(
        comparison_blocks(slower, fail_above=0.07), 100, False
    )
    assert "Within the limit of 11 %" in render(comparison_blocks(slower, fail_above=0.11), 100, False)


@pytest.mark.parametrize("width", [60, 110])
def test_runs(width: int) -> None:
    damaged = ["20261101T000000-dead is damaged: run.json: truncated; remove it"]
    snapshots.check(f"runs_{width}", render(runs_blocks(examples.run_rows(), damaged=damaged, more=1234), width, False))


def test_an_empty_store_says_what_to_do() -> None:
    assert render(runs_blocks([]), 80, False) == "No runs yet. Make one with: sonda run mlp"


@pytest.mark.parametrize("width", [60, 110])
def test_doctor(width: int) -> None:
    snapshots.check(f"doctor_{width}", render(doctor_blocks(examples.CHECKS), width, False))


def test_colours_appear_only_on_a_terminal_and_not_under_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[" not in StepsView(examples.training()).text(100, detail=Detail.ALL)
    assert "\x1b[36m" in StepsView(examples.training()).text(100, color=True, detail=Detail.ALL)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[36m" not in StepsView(examples.training()).text(100, color=True, detail=Detail.ALL)


def test_names_cannot_send_codes_to_the_terminal() -> None:
    text = StepsView(examples.hostile()).text(200, color=False, detail=Detail.ALL)
    assert "\x1b" not in text and "\x07" not in text and "\u202e" not in text
    assert "[red]x[/red]" in text and "<b>bold</b>" in text and "[link=http://x]title" in text


def test_a_pipe_gets_the_full_table_and_the_width_of_columns_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "left out at this width" not in StepsView(examples.training()).text(detail=Detail.ALL)
    monkeypatch.setenv("COLUMNS", "60")
    assert "left out at this width" in StepsView(examples.training()).text(detail=Detail.ALL)


def test_no_layers_when_none_are_wanted_or_seen() -> None:
    assert "layer4.0.conv" not in StepsView(examples.training()).text(100, rows=0, detail=Detail.ALL)
    bare = replace(examples.training(), parts=(examples.training_part(layers=False),))
    assert "layer (" not in StepsView(bare).text(100, detail=Detail.ALL)


def test_a_run_without_steps_still_has_a_screen() -> None:
    empty = replace(examples.inference(), parts=(), warnings=(Remark("no step was seen; let it run longer"),))
    text = StepsView(empty).text(100, color=False, detail=Detail.ALL)
    assert "! no step was seen; let it run longer" in text
    assert "–" in render(side_by_side_blocks([empty, examples.training()]), 100, False)


def test_what_the_layer_table_leaves_out_is_added_up() -> None:
    # 24 convolutions, 24 normalisations of 5.1 ms, 24 activations of 0.05 ms; of each block's convolutions the scales
    # are 1 + 0.15 block - 0.04 unit, 36.7 ms each: block sums 5.4, 6.3, 7.2, 8.1 scales.
    convolutions = 36.7 * (5.4 + 6.3 + 7.2 + 8.1)
    shown = 36.7 * (1.45 + 1.41 + 1.37 + 1.33 + 1.30 + 1.29)
    rest = convolutions - shown + 24 * 5.1 + 24 * 0.05
    text = StepsView(examples.training()).text(120, rows=6, color=False, detail=Detail.ALL)
    assert f"the other 66 layers {rest:.0f} ms" in text
    assert "code of modules around the layers 1.00 ms" in text  # 4 containers and the model, 0.2 ms each
    assert "of it in" not in text
    summary = examples.training()
    part = summary.parts[0]
    heavy = next(row for row in part.layers if not row.leaf and row.path)
    rows = tuple(replace(row, own=replace(row.own, value=90e6)) if row is heavy else row for row in part.layers)
    text = StepsView(replace(summary, parts=(replace(part, layers=rows),))).text(
        160, rows=6, color=False, detail=Detail.ALL
    )
    assert f"code of modules around the layers 90.8 ms, 90.0 ms of it in {heavy.path}" in text, "attention, say"


def test_layers_that_are_numbers_are_shown_with_their_types():
    """At 80 columns the type goes first; without it `0` and `3` would tell nothing."""
    summary = examples.training()
    part = summary.parts[0]
    rows = [row for row in part.layers if row.leaf][:3]
    named, numbered = rows, [replace(row, path=str(at)) for at, row in enumerate(rows)]
    keeps = [next(one.keep for one in layer_table(layers, "layer").columns if one.name == "type")
             for layers in (named, numbered)]  # fmt: skip
    assert keeps[0] < keeps[1]
    screen = Screen(80, color=False)
    screen.table(layer_table(numbered, "layer"))
    assert rows[0].name in screen.text()


@pytest.mark.parametrize("width", range(24, 60))
def test_no_line_ends_between_a_number_and_its_unit(width: int) -> None:
    text = "copies 18.7 µs and 5 % of 3.2 GB/s take 12 steps, 4 s each at 1,204 samples/s (3 times) in 2 MiB"
    screen = Screen(width, color=False)
    screen.line(text, "bold", 2, 2)
    lines = screen.text().splitlines()
    assert " ".join(line.strip() for line in lines) == text
    assert not [line for line in lines if re.search(r"(?<!take 1)\d$", line)], lines
    assert len(lines) > 1 and max(map(len, lines)) <= width


def few(summary: examples.Summary, count: int = 3) -> examples.Summary:
    """The same run with so few steps that the ends of its interval are the least and the most: -1.8 % and +1.8 %."""
    part = summary.parts[0]
    return replace(summary, parts=(replace(part, step=replace(part.step, few=count)), *summary.parts[1:]))


def test_the_least_and_the_most_of_few_steps_are_called_so() -> None:
    """Of 2 to 5 steps there is no 95 % interval, on a screen as little as in a hint."""
    one, two = few(two_parts()), replace(examples.training("1234abcd"), target=target_of({"spec": "cpu/2"}))
    assert "train: 20 steps after 3 warm-up, 1.26 s each, ±1.8 % (least to most of 3)" in StepsView(one).text(
        110, detail=Detail.ALL
    )
    assert "train: 20 steps after 3 warm-up, 1.26 s each, ±1.8 %\n" in StepsView(two_parts()).text(
        110, detail=Detail.ALL
    )
    side = render(side_by_side_blocks([replace(one, target=target_of({"spec": "cpu"})), two]), 110, False)
    assert re.search(r"^  ± +1\.8 % \(least to most of 3\) +1\.8 % \(95 % interval\)$", side, re.MULTILINE), side
    assert "± (95 %)" not in side
    hints = [cell.hint for cell in side_by_side_table([one, two], ["a", "b"]).rows[1]]
    assert hints[1:] == [
        f"half of the interval over the median ({what}), derived" for what in ("least to most of 3", "95 % interval")
    ]
    assert "<small>±1.8 % (least to most of 3)</small>" in blocks_html([verdict_block(one)], "")
    assert "<small>±1.8 %</small>" in blocks_html([verdict_block(two_parts())], "")


def test_the_page_of_a_comparison_is_asked_for_by_the_names_that_were_given() -> None:
    text = render(comparison_blocks(examples.comparison(), asked=("main", "head")), 100, False)
    assert text.endswith("\n\n  Page of both: sonda report main head")


def test_wild_intervals_have_no_digits_that_say_nothing() -> None:
    found = examples.comparison()
    wild = examples.Value(18.9354, "1", "derived", 0.00001, 499_058_916.0)
    step = replace(found.parts[0].step, ratio=wild, significant=False)
    text = render(comparison_blocks(replace(found, parts=(replace(found.parts[0], step=step),))), 120, False)
    assert "The step cannot be told: B may be more than 10x faster or slower (95 %)" in text
    assert "<0.001–>1,000" in text
    assert "499" not in text
    step = replace(step, ratio=replace(wild, high=999.75))
    text = render(comparison_blocks(replace(found, parts=(replace(found.parts[0], step=step),))), 120, False)
    assert "<0.001–999.750" in text, "which is not above 1,000"
