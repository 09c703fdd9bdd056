"""The benchmarks judge rightly, and measure spans that are what they say."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks import store
from benchmarks.bar import Interval, at_least, at_most, paired_interval
from benchmarks.events_file import write_events
from benchmarks.process import processor_seconds
from benchmarks.trace_maker import REAL, STEPS, TraceMaker

from builders import stepped
from sonda.analysis import run_rows
from sonda.frameworks.reconstruction.assembly import assemble
from sonda.record.run import LISTED, Run, write_run
from sonda.record.store import Store


def test_a_bar_is_passed_missed_or_not_resolved() -> None:
    assert at_most("x", Interval(1.0, 0.5, 2.0), 2.0).state == "PASS"
    assert at_most("x", Interval(3.0, 2.1, 4.0), 2.0).state == "FAIL"
    noisy = at_most("x", Interval(1.0, 0.5, 2.5), 2.0, " %")
    assert noisy.state == "NOISY"
    assert noisy.figure == "too noisy to resolve: interval is 1.00 % [0.50, 2.50], bar 2 %"


def test_a_bar_from_below_is_passed_missed_or_not_resolved() -> None:
    assert at_least("x", Interval(3.0, 2.0, 4.0), 2.0).state == "PASS"
    assert at_least("x", Interval(1.0, 0.5, 1.9), 2.0).state == "FAIL"
    assert at_least("x", Interval(3.0, 1.9, 4.0), 2.0).state == "NOISY"


def test_the_interval_holds_the_median_and_narrows_with_rounds() -> None:
    chance = np.random.default_rng(1)
    few, many = (paired_interval(chance.normal(1.0, 0.1, count)) for count in (10, 1000))
    for found in (few, many):
        assert found.low < found.median < found.high
    assert many.high - many.low < few.high - few.low
    constant = paired_interval([1.5] * 8)
    assert (constant.low, constant.median, constant.high) == (1.5, 1.5, 1.5)


def test_processor_time_has_that_of_processes_which_have_ended() -> None:
    before = processor_seconds()
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", burn], check=True)
    assert processor_seconds() - before >= 0.28, "in ticks of 10 ms"


def test_the_invented_training_has_the_spans_it_says(tmp_path: Path) -> None:
    begin, end, total = write_events(tmp_path, steps=7, layers=5)
    assembly = assemble(tmp_path, begin, end)
    spans = assembly.spans
    assert not assembly.truncated
    assert int(spans.where(kind="step").sum()) == 7
    assert int(spans.where(kind="part", name="train").sum()) == int(spans.where(kind="epoch").sum()) == 1
    assert int(spans.where(kind="layer", direction="forward").sum()) == 7 * 5
    assert int(spans.where(kind="layer", direction="backward").sum()) == 7 * 5
    assert int(spans.number("duration")[spans.where(kind="layer")].sum()) == total
    assert int(spans.where(kind="phase").sum()) == 7 * 6


def test_a_made_trace_is_the_real_one_again_and_again(tmp_path: Path) -> None:
    maker = TraceMaker()
    real = json.loads(gzip.decompress(REAL.read_bytes()))
    assert maker.write(tmp_path / "once.json", 1) == 1
    assert json.loads((tmp_path / "once.json").read_bytes()) == real
    assert maker.write(tmp_path / "thrice.json", 3 * maker.copy_bytes) == 3
    events = json.loads((tmp_path / "thrice.json").read_bytes())["traceEvents"]
    kernels = [event for event in events if event.get("cat") == "kernel"]
    first = [event for event in real["traceEvents"] if event.get("cat") == "kernel"]
    assert len(kernels) == 3 * len(first)
    assert len({event["args"]["correlation"] for event in kernels}) == 3 * len(first)
    assert [event["dur"] for event in kernels] == 3 * [event["dur"] for event in first]
    steps = {event["name"] for event in events if event.get("cat") == "user_annotation" and "Step" in event["name"]}
    assert {f"ProfilerStep#{number}" for number in range(3 * STEPS)} <= steps


def test_listings_are_timed_with_every_run_in_the_index_and_streamed_to_their_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """30 runs: more than a listing shows. The rounds come last, and each finds an index of all."""
    for name, value in {"RUNS": 30, "LINKS": 15, "ROUNDS": 1, "FIRST_ROWS": 1}.items():
        monkeypatch.setattr(store, name, value)
    listing, indexed = store._listing, []

    def noted(root: Path, *options: str) -> tuple[float, float]:
        indexed.append((*options, store._indexed(root)))
        return listing(root, *options)

    monkeypatch.setattr(store, "_listing", noted)
    bars = store._constructed()
    assert indexed == [(0,), ("--rebuild", 20), (30,)]
    assert "the last of 30 after" in capsys.readouterr().out
    named = [bar.promise for bar in bars]
    for promise in (store.NEWEST, store.REBUILT):
        assert {f"{promise}, CPU time", f"{promise}, as waited for"} < set(named)
    assert named[-1] == store.STREAMED


def test_copies_of_a_run_are_listed_without_reading_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "ORDINARY", 3)
    run_rows.describe_new_runs()
    made = stepped([2.0, 2.0, 2.0])
    write_run(tmp_path / "made", made.info, made.spans)
    store._multiply(tmp_path / "made", tmp_path / "copies")
    copies = Store(tmp_path / "copies").directories()
    assert len(copies) == 3 and all((path / LISTED).exists() for path in copies)
    assert len({Run.load(path).id for path in copies}) == 3


def test_a_listing_that_fails_is_no_figure(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="a listing ended with 2"):
        store._listing(tmp_path, "--no-such-option")
