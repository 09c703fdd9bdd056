"""Outputs that pages show: what does not depend on the machine comes out as it stands there, line by line.

What was measured cannot come out again; its form can, and its figures must fit each other.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from command_line import run_command
from docs_commands import REPOSITORY, Block, blocks, shown
from docs_desk import MODEL, TRAIN, ceilings
from sonda.analysis.steps.training import Epoch, Training
from sonda.frameworks.torch.parallel.outlook import choose_outlook, describe_outlook, predict_outlook
from sonda.frameworks.torch.parallel.shares import Line
from sonda.report.screen import render
from sonda.report.views.steps.training import training_blocks

TIMED = re.compile(r"in [\d.,]+ \S+: [\d.,]+ points/s")
"""What of an exploration's counts is of the machine."""


def block_with(page: str, words: str) -> Block:
    (found,) = (block for block in blocks() if block.page == page and words in block.text)
    return found


def pieces(block: Block) -> list[list[str]]:
    """The lines of a shown output between its ellipses."""
    found: list[list[str]] = [[]]
    for line in block.lines:
        if line.strip() == "…":
            found.append([])
        else:
            found[-1].append(TIMED.sub("in T", line))
    return [piece for piece in found if piece]


def lacking(block: Block, output: str) -> list[str]:
    """The first piece that is not in the output as it stands, after the pieces before it; [] where all are."""
    lines, begin = [TIMED.sub("in T", line.rstrip()) for line in output.splitlines()], 0
    for piece in pieces(block):
        places = range(begin, len(lines) - len(piece) + 1)
        found = next((place for place in places if lines[place : place + len(piece)] == piece), None)
        if found is None:
            return piece
        begin = found + len(piece)
    return []


@pytest.mark.parametrize(
    ("page", "words", "command"),
    [
        ("docs/howto/exploring.md", "stands out", "sonda explore dlrm --vary multipliers=64,128,256"),
        ("docs/howto/repeating-a-study.md", "annexed article", "sonda study dlrm-accelerator --scale small"),
        ("docs/import.md", "Rank 2 is slow", "sonda import traces/ "),
    ],
)
def test_what_no_machine_changes_comes_out_as_it_is_shown(page: str, words: str, command: str, tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "tests/data/ranks", tmp_path / "traces", ignore=shutil.ignore_patterns("*.py", "*.md"))
    typed = next(one for one in shown() if one.page == page and one.text.startswith(command))
    done = run_command(tmp_path, *shlex.split(typed.text, comments=True)[1:], "-vv")
    assert done.returncode == 0, done.stderr
    assert lacking(block_with(page, words), done.stdout) == []


def test_the_check_itself_sees_a_line_that_differs() -> None:
    block = Block("", 0, "", ("  a   1", "  …", "  b   2", "  c   3"))
    assert lacking(block, "head\n  a   1\nmore\n  b   2\n  c   3\n") == []
    assert lacking(block, "  a   1\n  b   2\nmore\n  c   3\n") == ["  b   2", "  c   3"], "lines between are told by …"
    assert lacking(block, "  b   2\n  c   3\n  a   1\n") == ["  b   2", "  c   3"], "in this order"


def test_what_is_said_before_a_training_on_several_devices() -> None:
    pair = [Line(0, 0.010), Line(0, 0.030)]  # s a sample, as the page says
    said = describe_outlook(
        predict_outlook(pair, 32, 0.081), choose_outlook(pair, 32, 0.081), ["cuda:0", "cpu"], auto=True
    )
    assert said == list(block_with("docs/parallel.md", "@auto leaves out").lines)


def test_a_training_is_shown_in_the_form_that_it_has() -> None:
    """Measured figures, put into the table again: the form is the screen's, and sums are sums."""
    block = block_with("docs/training.md", "of the test right")
    rows = [[float(word) for word in line.split()] for line in block.lines if re.match(r"\s+\d+ +\d", line)]
    epochs = tuple(
        Epoch(int(number), 1e9 * train, 1e6 * validate, loss, held, right / 100, 1e9 * passed)
        for number, train, validate, passed, loss, held, right in rows
    )
    assert len(epochs) == 3
    last = 0.0
    for one in epochs:
        assert one.passed - last == pytest.approx(one.train + (one.validate or 0.0), abs=1.01e8)  # each in tenths of s
        last = one.passed
    text = render(training_blocks(Training(epochs, 806e6, 0.145, 2.2, 47.3e6, 13.6e9, 1, None)), 110, False)
    assert [line.rstrip() for line in text.splitlines() if line.strip()] == [line for line in block.lines if line]


def test_the_quickstart_shows_what_the_readme_shows() -> None:
    assert lacking(block_with("docs/quickstart.md", "Compute-bound"), block_with("README.md", "$ make demo").text) == []


def heading(line: str) -> str:
    """The names of a table's columns, without units that depend on how large its numbers are."""
    line = re.sub(r"\b(?:ns|µs|ms|s)\b", "T", line)
    return " ".join(re.sub(r"\(\d+ of \d+\)", "", re.sub(r"\b[kMGT](?=FLOP)", "", line)).split())


@pytest.mark.parametrize(
    ("page", "words", "command"),
    [
        ("README.md", "layer (10 of 123)", "run cnn --train --batch 4 --image 32x32 --on cpu/1 --steps 2 --rows 2 -v"),
        ("docs/howto/slow-training.md", "Input-bound", "run -v -- python train.py"),
        ("docs/howto/choosing-hardware.md", "model.py:build, inference", "run model.py:build --input 1x3x16x16 "
         "--on cpu/1 --on sim:maeri-256 --steps 2 -v"),
        ("docs/howto/new-machine.md", "timer noise", "doctor"),
    ],
)  # fmt: skip
def test_what_was_measured_still_has_these_columns(page: str, words: str, command: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "model.py").write_text(MODEL)
    ceilings(tmp_path / "store")
    done = run_command(tmp_path, *[sys.executable if word == "python" else word for word in command.split()])
    assert done.returncode == 0, done.stderr
    came = {heading(line) for line in (done.stdout + done.stderr).splitlines()}
    tables = [heading(line) for line in block_with(page, words).lines if re.match(r" *(phase|layer|check) ", line)]
    assert tables
    assert [names for names in tables if names.replace("cpu T", "cpu/1 T") not in came] == []


def rows(text: str) -> set[str]:
    """What rows of tables and verdicts of targets begin with."""
    found = re.findall(r"^ {2,4}(\S.*?)(?: {2,}\S|: [A-Z])", text, re.MULTILINE)
    return {re.sub(r"^[\d()]*$", "N", one.replace("cpu/1", "cpu")) for one in found}


def test_targets_side_by_side_still_have_these_rows(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    ceilings(tmp_path / "store")
    words = "run model.py:build --input 1x3x16x16 --on cpu/1 --on sim:maeri-256 --steps 12 -v"
    done = run_command(tmp_path, *words.split())
    assert done.returncode == 0, done.stderr
    told = rows(block_with("docs/howto/choosing-hardware.md", "model.py:build, inference").text)
    assert {"cpu", "sim:maeri-256", "step", "limited by", "N"} <= told
    assert told <= rows(done.stdout)


def test_the_check_itself_sees_other_columns() -> None:
    assert (
        heading("  phase          ms      %   GFLOP/s") == heading("  phase   µs   %   MFLOP/s") == "phase T % FLOP/T"
    )
    assert heading("  layer (10 of 123)   type   forward ms") == "layer type forward T"
    assert heading("  phase   time   %") != heading("  phase   ms   %")


@pytest.mark.slow
def test_figures_of_a_simulated_study_are_those_on_its_page(tmp_path: Path) -> None:
    done = run_command(tmp_path, "study", "dlrm-accelerator", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    shares = {
        row["configuration"]["preset"]: row["figures"]["share_percent@embeddings"]["value"]
        for row in found["rows"] if row["configuration"]["variant"] == "as published"
    }  # fmt: skip
    ratios = {(one["variant"], one["figure"]): one["ratio"] for one in found["compared"]}
    text = (REPOSITORY / "docs" / "studies" / "dlrm-accelerator.md").read_text(encoding="utf-8")
    cells = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    seen = 0
    for name, *rest in cells:
        if name in shares:
            assert rest[0] == f"{shares[name]:.1f}", name
        elif (name, "cycles") in ratios:
            for shown_as, figure in zip(rest[-2:], ("cycles", "energy_uJ"), strict=True):
                number = shown_as.strip("×").replace(",", "")
                digits = len(number.partition(".")[2])
                assert number == f"{ratios[name, figure]:.{digits}f}", (name, figure)
        else:
            continue
        seen += 1
    assert seen == 12 + 9  # of the thirteen workloads one looks up two samples only, and has no published share
