"""Spans keep what they are given: through columns, through Arrow, through a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as some

from places import REPOSITORY
from record_examples import an_info, two_spans
from sonda.record.errors import MissingExtraError, SondaError
from sonda.record.quantities import QUANTITIES, SOURCES, Metric
from sonda.record.run import write_run
from sonda.record.samples import Sample, samples_from_arrow, samples_to_arrow
from sonda.record.spans import COLUMNS, KINDS, NUMBER_COLUMNS, PASSES, TEXT_COLUMNS, Spans, Words

TEXT = some.text(alphabet=some.characters(exclude_categories=["Cs"]), max_size=20)
INT64 = some.integers(-(2**63), 2**63 - 1)
INT32 = some.integers(-(2**31), 2**31 - 1)
METRICS = some.sampled_from([str(Metric(q, s)) for q in QUANTITIES for s in SOURCES])


@some.composite
def tables(draw: some.DrawFn) -> Spans:
    length = draw(some.integers(0, 12))

    def column(values: some.SearchStrategy) -> list:
        return draw(some.lists(values, min_size=length, max_size=length))

    numbers = {
        name: np.array(column(INT32 if kind is np.int32 else INT64), dtype=kind)
        for name, kind in NUMBER_COLUMNS.items()
        if name == "start" or draw(some.booleans())
    }
    if "parent" in numbers:
        numbers["parent"] = np.array(column(some.integers(-1, length - 1)), dtype=np.int64)
    words = {name: Words.of(column(TEXT)) for name in TEXT_COLUMNS if draw(some.booleans())}
    metrics = {name: np.array(column(some.floats(width=64))) for name in draw(some.sets(METRICS, max_size=3))}
    return Spans(numbers, words, metrics)


def assert_same(one: Spans, other: Spans) -> None:
    assert len(one) == len(other)
    for name, kind in NUMBER_COLUMNS.items():
        assert other.number(name).dtype == kind
        np.testing.assert_array_equal(one.number(name), other.number(name))
    for name in TEXT_COLUMNS:
        assert list(one.words(name).decoded()) == list(other.words(name).decoded())
    assert set(one.metrics) == set(other.metrics)
    for name, values in one.metrics.items():
        np.testing.assert_array_equal(values, other.metrics[name])


@given(tables())
def test_arrow_and_back(spans: Spans) -> None:
    assert_same(spans, Spans.from_arrow(spans.to_arrow()))


@given(tables())
def test_a_file_and_back(tmp_path_factory: pytest.TempPathFactory, spans: Spans) -> None:
    run = write_run(tmp_path_factory.mktemp("store"), an_info(), spans)
    assert_same(spans, run.spans)


@pytest.mark.parametrize(
    "name", ["", "two\nlines\r\n", "nul\0inside", "émoji 🦊 \u202e", "x" * 200_000, "a,b;\"c\"'d'", "<b>&amp;"]
)
def test_any_name_survives(tmp_path: Path, name: str) -> None:
    spans = Spans({"start": np.zeros(2)}, {"name": Words.of([name, "plain"]), "path": Words.of(["plain", name])})
    read = write_run(tmp_path, an_info(), spans).spans
    assert list(read.words("name").decoded()) == [name, "plain"]
    assert list(read.words("path").decoded()) == ["plain", name]
    assert list(read.words("name").equal(name)) == [True, name == "plain"]


def test_a_name_that_is_not_unicode_is_kept_as_an_escape(tmp_path: Path) -> None:
    spans = Spans({"start": np.zeros(1)}, {"name": Words.of(["bad\udcff"])})
    assert list(write_run(tmp_path, an_info(), spans).spans.words("name").decoded()) == ["bad\\udcff"]


def test_missing_stays_missing_and_zero_stays_zero(tmp_path: Path) -> None:
    spans = Spans({"start": np.zeros(4)}, {}, {"flops:nominal": np.array([np.nan, 0.0, np.inf, -0.0])})
    column = spans.to_arrow().column("flops:nominal")
    assert column.null_count == 1
    values = write_run(tmp_path, an_info(), spans).spans.metric("flops", "nominal")
    assert np.isnan(values[0])
    assert list(values[1:]) == [0.0, np.inf, 0.0]
    assert np.isnan(spans.metric("bytes", "nominal")).all(), "a metric nobody measured is missing everywhere"


def test_every_metric_column_says_its_unit() -> None:
    units = {"flops:nominal": b"FLOP", "peak_memory:counted": b"B", "cpu_time:counted": b"ns", "oddity:derived": b"1"}
    table = Spans({"start": np.zeros(1)}, {}, {name: np.zeros(1) for name in units}).to_arrow()
    assert {name: table.field(name).metadata[b"unit"] for name in units} == units
    assert table.column_names[: len(COLUMNS)] == list(COLUMNS)


def test_columns_nobody_gave_have_their_defaults() -> None:
    spans = Spans({"start": np.array([5, 6])}, {})
    assert list(spans.number("id")) == [0, 1]
    assert list(spans.number("parent")) == [-1, -1]
    assert spans.where(pass_="timed", clock="host", device="cpu", kind="").all()
    assert not spans.where(kind="layer").any()


@pytest.mark.parametrize(
    ("numbers", "words", "metrics", "what"),
    [
        ({"strat": np.zeros(1)}, {}, {}, "no column 'strat'"),
        ({}, {"colour": Words.of(["red"])}, {}, "no column 'colour'"),
        ({"duration": np.zeros(2)}, {}, {}, "'duration' has 2 rows, start has 1"),
        ({}, {"kind": Words.of([])}, {}, "'kind' has 0 rows, start has 1"),
        ({}, {}, {"flops:nominal": np.zeros(3)}, "'flops:nominal' has 3 rows"),
        ({}, {}, {"flops": np.zeros(1)}, "not quantity:source"),
        ({}, {}, {"flops:guessed": np.zeros(1)}, "unknown source 'guessed'"),
        ({}, {}, {":nominal": np.zeros(1)}, "needs a quantity"),
    ],
)
def test_columns_that_cannot_be_are_refused(numbers: dict, words: dict, metrics: dict, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        Spans({"start": np.zeros(1), **numbers}, words, metrics)


def changed(name: str, values: object) -> pa.Table:
    table = two_spans().to_arrow()
    at = table.column_names.index(name) if name in table.column_names else table.num_columns
    if at == table.num_columns:
        return table.append_column(name, pa.array(values))
    return table.set_column(at, name, pa.array(values))


@pytest.mark.parametrize(
    ("table", "what"),
    [
        (changed("parent", [-1, 2]), "parent is not in the file"),
        (changed("parent", [-2, 0]), "parent is not in the file"),
        (changed("start", ["a", "b"]), "'start' does not hold whole numbers"),
        (changed("start", [1.5, 2.5]), "'start' does not hold whole numbers"),
        (changed("duration", [1, None]), "'duration' does not hold whole numbers"),
        (changed("call", [1, 2**40]), "not spans"),
        (changed("kind", ["run", None]), "a word is missing"),
        (changed("kind", [{"a": 1}, {"a": 2}]), "not spans"),
        (changed("flops:nominal", ["a", "b"]), "not spans"),
        (changed("flops:invented", [1.0, 2.0]), "unknown source 'invented'"),
        (two_spans().to_arrow().drop_columns(["name"]), "lack the column 'name'"),
        (two_spans().to_arrow().append_column("kind", pa.array(["a", "b"])), "two columns 'kind'"),
        (pa.table({}), "lack the column 'start'"),
    ],
)
def test_a_table_that_is_not_spans_is_said_to_be_none(table: pa.Table, what: str) -> None:
    with pytest.raises(SondaError, match=what):
        Spans.from_arrow(table)


def test_other_ways_to_store_the_same_table_are_read() -> None:
    table = two_spans().to_arrow()
    plain = table.set_column(table.column_names.index("kind"), "kind", pa.array(["run", "step"]))
    plain = plain.append_column("remark", pa.array(["of a later version", "left alone"]))
    pieces = pa.concat_tables([plain.slice(0, 1), plain.slice(1, 1)])
    read = Spans.from_arrow(pieces)
    assert list(read.words("kind").decoded()) == ["run", "step"]
    assert list(read.number("duration")) == [100, 40]


def test_the_architecture_names_the_kinds_and_passes_of_spans() -> None:
    page = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert f"Kinds of span: {', '.join(KINDS)}." in page
    passes = page.partition("\nPasses: ")[2].partition("\n\n")[0]
    assert [word for word in PASSES if f"`{word}`" not in passes] == []


def test_words() -> None:
    words = Words.of(["b", "a", "b"])
    assert words.words == ("b", "a")
    assert list(words.codes) == [0, 1, 0]
    assert list(words.equal("b")) == [True, False, True]
    assert list(words.equal("c")) == [False, False, False]
    assert list(Words.of([]).decoded()) == []
    assert list(Words.constant("x", 2).decoded()) == ["x", "x"]


def test_metric_names() -> None:
    assert Metric.parse("page_faults:counted") == Metric("page_faults", "counted")
    assert str(Metric("energy", "measured")) == "energy:measured"
    assert Metric("energy", "measured").unit == "J"
    for wrong in ("flops", "flops:", ":", ":nominal", "flops:nominal:more", ""):
        with pytest.raises(ValueError, match=r"quantity|source"):
            Metric.parse(wrong)


def test_samples_and_back() -> None:
    samples = [Sample(1, "power", 41.5, "W", "measured", "node7", "cuda:0"), Sample(-2, "\n🦊", 0.0, "1", "counted")]
    assert samples_from_arrow(samples_to_arrow(samples)) == samples
    assert samples_from_arrow(samples_to_arrow([])) == []
    more = samples_to_arrow(samples).append_column("remark", pa.array(["of a later", "version"]))
    assert samples_from_arrow(more) == samples


def test_a_sample_says_where_it_comes_from() -> None:
    with pytest.raises(ValueError, match="unknown source 'a friend'"):
        Sample(0, "power", 1.0, "W", "a friend")
    table = samples_to_arrow([Sample(0, "power", 1.0, "W", "measured")])
    foreign = table.set_column(table.column_names.index("source"), "source", pa.array(["a friend"]))
    for wrong in (foreign, table.drop_columns(["unit"]), table.set_column(0, "time", pa.array(["noon"]))):
        with pytest.raises(SondaError, match="not samples"):
            samples_from_arrow(wrong)


def test_an_error_is_one_printable_line() -> None:
    error = SondaError("first\nsecond \x1b[31mred\x00", "do\n\tthis 🦊")
    assert str(error) == "first second \\x1b[31mred\\x00; do this 🦊"
    assert error.exit_code == 2
    assert str(MissingExtraError("PyTorch", "torch")) == (
        "PyTorch is not installed; install it with: pip install 'sonda-profiler[torch]'"
    )
