"""Tables of launches and counts of any size: block by block they give what they give at once, in bounded memory."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from ncu_examples import table
from sonda.imports.ncu import spans as ncu_spans
from sonda.imports.ncu.spans import write_launches
from sonda.imports.ncu.tables import Damage, read_launches
from sonda.imports.perf_stat import write_counts
from sonda.imports.trace import readings as reading_file
from sonda.record.files.tables import read_blocks
from sonda.targets.imported.launcher import import_files
from trace_examples import GPU
from trace_examples import table as rows_of

NCU = GPU / "ncu"
LINE = '{{"interval" : {}, "counter-value" : "{}", "unit" : "{}", "event" : "{}", "pcnt-running" : {}}}\n'


def test_blocks_give_what_one_does_also_where_launches_have_other_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two real tables behind one another: the first has FLOPs, the second stalls."""
    path = tmp_path / "launches.csv"
    path.write_bytes((NCU / "raw.csv").read_bytes() + (NCU / "stalls.csv").read_bytes())
    whole = import_files([path], tmp_path / "runs")
    monkeypatch.setattr(ncu_spans.launch_blocks, "__defaults__", (5,))
    cut = import_files([path], tmp_path / "runs")
    assert len(list(read_blocks(cut))) == 3 and len(list(read_blocks(whole))) == 1
    assert rows_of(cut) == rows_of(whole) and len(rows_of(whole)) == 12 and cut.info.notes == whole.info.notes
    assert cut.spans.number("id").tolist() == list(range(12))
    flops = whole.spans.metric("flops", "counted")
    assert (flops[:6] > 0).all() and (flops[6:] != flops[6:]).all()
    assert whole.spans.metric("stall_long_scoreboard", "counted")[6] == 82.14
    assert sorted(one.name for one in cut.directory.iterdir()) == sorted(one.name for one in whole.directory.iterdir())


def peak(work: Callable[[], object]) -> int:
    """Bytes of Python and numpy at most while this is done."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_four_times_as_many_launches_take_no_more_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ncu_spans.launch_blocks, "__defaults__", (20,))
    columns = {f"smsp__sass_thread_inst_executed_op_{name}_pred_on.sum": "inst" for name in ("fadd", "ffma", "fmul")}
    columns |= {f"device__attribute_{number}": "" for number in range(30)}
    head, *rows = table(columns, ("k", tuple("1" for _ in columns))).splitlines(keepends=True)[1:]

    def lines(many: int) -> Iterator[str]:
        yield from (head, rows[0])
        for number in range(many):
            yield f'"{number}' + rows[1].removeprefix('"0')

    def work(many: int, folder: Path) -> None:
        folder.mkdir()
        write_launches(read_launches(lines(many)), folder, Damage())

    work(40, tmp_path / "first")  # what is loaded and kept once
    small, large = (peak(partial(work, many, tmp_path / str(many))) for many in (150, 600))
    assert large < 1.3 * small


def test_four_times_as_many_intervals_take_no_more_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_file, "BLOCK", 100)
    monkeypatch.setattr("sonda.imports.text_lines.PIECE", 1 << 12)

    def work(many: int) -> None:
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        path = folder / "counts.json"
        with open(path, "w") as file:
            file.writelines(LINE.format(number / 10, number, "", "page-faults", 100) for number in range(many))
        notes, cut = write_counts(path, folder)
        assert not notes and not cut

    work(150)
    small, large = (peak(partial(work, many)) for many in (300, 1_200))
    assert large < 1.3 * small


def test_a_report_that_says_more_than_a_pipe_holds_after_what_cannot_be_read_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Constructed: an ncu whose heading is another's, and that fails at the end."""
    program = tmp_path / "ncu"
    program.write_text('#!/bin/sh\necho \'"ID","Kernel Name"\'\nhead -c 300000 /dev/zero\necho late >&2\nexit 1\n')
    program.chmod(0o755)
    (tmp_path / "a.ncu-rep").write_bytes(b"NVR\x00 constructed")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(Exception, match=r"a\.ncu-rep: ncu cannot read a\.ncu-rep: late"):
        import_files([tmp_path / "a.ncu-rep"], tmp_path / "runs")
