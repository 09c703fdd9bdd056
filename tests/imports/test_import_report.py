"""A real report of Nsight Compute: three launches whose operations are counted by hand."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from sonda.record.run import Run
from sonda.targets.imported.launcher import import_files
from trace_examples import GPU

SMALL = GPU / "ncu" / "small.csv"
ELEMENTS = 1 << 20


def check(run: Run) -> None:
    """y = 2x + y is one fused multiply-add an element, a + b in double precision one addition."""
    spans = run.spans
    names = [name.split("(")[0] for name in spans.words("name").decoded().tolist()]
    assert names == ["multiply_add", "add_double", "multiply_add"]
    assert spans.metric("flops_single", "counted").tolist() == [2 * ELEMENTS, 0, 2 * ELEMENTS]
    assert spans.metric("flops_double", "counted").tolist() == [0, ELEMENTS, 0]
    assert spans.number("stream").tolist() == [13, 14, 13]
    # Caches were emptied: what is read are both operands, up to the last burst.
    read = spans.metric("dram_read_bytes", "counted")
    assert read == pytest.approx([8 * ELEMENTS, 16 * ELEMENTS, 8 * ELEMENTS], rel=0.001)
    assert spans.number("duration").tolist() == [5344, 7584, 5344]


def test_what_ncu_prints_of_a_report(tmp_path: Path) -> None:
    check(import_files([SMALL], tmp_path))


@pytest.mark.skipif(
    shutil.which("ncu") is None and find_spec("ncu_report") is None,
    reason="needs NVIDIA's ncu or ncu-report, which read the file; the table printed from it is checked without them",
)
def test_the_report_itself(tmp_path: Path) -> None:
    check(import_files([SMALL.with_suffix(".ncu-rep")], tmp_path))


def test_an_instruction_on_two_halves_counts_once(tmp_path: Path) -> None:
    """4,096 threads with 64 operations each, on pairs but in the second kernel. The H200 counts instructions, whether
    they work on one number or two; half of the additions and multiplications of pairs are fused ones there, whose
    other operation is with 0 or 1, and these are counted as two."""
    run = import_files([GPU / "ncu" / "half.csv"], tmp_path)
    each = 4_096 * 64
    names = [name.split("(")[0] for name in run.spans.words("name").decoded().tolist()]
    assert names == ["pair_multiply_add", "single_multiply_add", "pair_add", "pair_multiply"]
    halves = run.spans.metric("flops_half", "counted")
    assert halves.tolist() == [2 * each, 2 * each, each // 2 + 2 * each // 2, each // 2 + 2 * each // 2]
    assert any("counts once" in note for note in run.info.notes)
