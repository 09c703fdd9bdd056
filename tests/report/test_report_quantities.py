"""Numbers as words: scales, digits, missing values and their tooltips."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonda.analysis.summary import MODEL, READINGS, TABLES, Value
from sonda.report import quantities
from sonda.report.labels import plain, script_data, shorten


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (402e6, "ns", "402 ms"),
        (999.6e6, "ns", "1.00 s"),
        (1_204, "1", "1,204"),
        (12.345, "1", "12.3"),
        (1.9e9, "B", "1.90 GB"),
        (999, "B", "999 B"),
        (0, "B", "0 B"),
        (0, "J", "0 J"),
        (35.1e9, "FLOP/s", "35.1 GFLOP/s"),
        (0.0312, "J", "31.2 mJ"),
        (48, "W", "48.0 W"),
        (0.0000123, "1", "0.0000123"),
        (None, "ns", "–"),
        (math.nan, "ns", "–"),
    ],
)
def test_a_number_on_its_own_gets_the_scale_that_suits_it(value: float | None, unit: str, words: str) -> None:
    assert quantities.amount(value, unit) == words


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (quantities.rounded(1204.46, 1), "1,204.5"),
        (quantities.rounded(0.04, 1), "0.0"),
        (quantities.significant(0.03125), "0.0312"),
        (quantities.significant(1.23456, 4), "1.235"),
        (quantities.as_given(24576), "24,576"),
        (quantities.as_given(0.9), "0.9"),
        (quantities.times(1.634), "1.63x"),
    ],
)
def test_digits_are_chosen_by_what_a_number_is(words: str, expected: str) -> None:
    assert words == expected


def test_what_is_no_number_has_no_digits() -> None:
    assert [quantities.number(value) for value in (math.nan, math.inf, -math.inf)] == ["–", "–", "–"]


def _column(unit: str, *values: float | None) -> tuple[str, list[str]]:
    scale, texts = quantities.column([Value(value, unit, "measured") for value in values])
    return scale.unit, texts


def test_a_column_has_one_scale_and_one_number_of_decimals() -> None:
    assert _column("ns", 402e6, 791e6, 61e6) == ("ms", ["402", "791", "61"])
    assert _column("FLOP", 14.1e9, 28.2e9) == ("GFLOP", ["14.1", "28.2"])


def test_a_wide_column_takes_the_smaller_scale_so_that_small_numbers_stay_visible() -> None:
    assert _column("ns", 1254e6, 9e6) == ("ms", ["1,254.0", "9.0"])


def test_a_number_too_small_for_its_column_is_not_shown_as_zero() -> None:
    assert _column("FLOP", 28.2e9, 1e6) == ("GFLOP", ["28.2", "<0.1"])
    assert _column("FLOP", 28.2e9, 0.0) == ("GFLOP", ["28.2", "0.0"])


def test_missing_numbers_are_a_dash_and_do_not_disturb_the_scale() -> None:
    assert _column("B", None, 2e6) == ("MB", ["–", "2.00"])
    assert _column("B", None, None) == ("B", ["–", "–"])
    assert quantities.column([]) == (quantities.UnitScale("", 1.0), [])


@given(st.floats(min_value=1e-3, max_value=1e18, allow_nan=False), st.sampled_from(["ns", "B", "FLOP/s", "J"]))
def test_the_words_of_a_number_are_right_to_three_digits(value: float, unit: str) -> None:
    text, shown = quantities.amount(value, unit).split(" ")
    factor = next(scale.factor for scale in quantities.scales(unit) if scale.unit == shown)
    assert float(text.replace(",", "")) * factor == pytest.approx(value, rel=0.0051)


def test_a_tooltip_tells_source_and_interval_or_the_reason() -> None:
    assert quantities.provenance(Value(402e6, "ns", "measured", 398e6, 405e6)) == (
        "402 ms, measured (a clock or sensor); 95 % interval 398 ms to 405 ms"
    )
    assert quantities.provenance(Value(None, "ns", "measured", reason="no sensor")) == "missing: no sensor"


@pytest.mark.parametrize(
    ("value", "ends"),
    [
        (Value(30.0, "J", "estimated", 18.0, 42.0, bounds=MODEL), "bounds of the power model: 18.0 J to 42.0 J"),
        (Value(30.0, "J", "measured", 29.0, 31.0, bounds=READINGS), "bounds of the readings: 29.0 J to 31.0 J"),
        (Value(2e-9, "J", "simulated", 1e-9, 4e-9, bounds=TABLES),
         "bounds of the tables it comes from: 1.00 nJ to 4.00 nJ"),
        (Value(30.0, "1", "estimated", 28.0, 32.0), "95 % interval 28 to 32"),  # a counter that took turns
        (Value(30.0, "1", "measured", 28.0, 32.0, few=4), "least to most of 4: 28 to 32"),
    ],
)  # fmt: skip
def test_ends_that_no_statistics_gave_are_called_bounds(value: Value, ends: str) -> None:
    assert quantities.provenance(value).endswith(f"; {ends}")
    # What a guess or a table of guesses gave is hatched; a sensor's bounds are none.
    assert quantities.is_guess(value) == (value.source in ("estimated", "simulated"))


def test_a_speedup_tells_its_spread_and_one_that_could_not_be_tried_why() -> None:
    assert quantities.factor(Value(1.12, "1", "measured", 1.0976, 1.1424)) == "1.12x (measured, ±2 %)"
    assert quantities.factor(Value(None, "1", "measured", reason="not on this CPU")) == "not on this CPU"


def test_characters_that_act_are_shown_instead() -> None:
    assert plain("\x1b[31mred\x07 a\u202eb\nc") == "\ufffd[31mred\ufffd a\ufffdb c"
    assert plain("layer1.0.conv – größer 層") == "layer1.0.conv – größer 層"


def test_paths_are_shortened_in_front() -> None:
    assert shorten("encoder.layers.11.attention", 12) == "…1.attention"


@given(
    st.recursive(st.text() | st.floats() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))
)
def test_data_in_a_script_cannot_end_it_and_means_the_same(value: object) -> None:
    import json

    text = script_data(value)
    assert not set(text) & set("<>&\u2028\u2029")
    if "nan" not in repr(value) and "inf" not in repr(value):
        assert json.loads(text) == value


@pytest.mark.parametrize(
    ("write", "value", "text"),
    [
        (quantities.whole, 1204.4, "1,204"), (quantities.whole, 0.0, "0"),
        (quantities.brief, 0.5, "0.5"), (quantities.brief, 2.456, "2.46"), (quantities.brief, 1204.4, "1,204"),
        (quantities.count, 25.0, "25"), (quantities.count, 25.34, "25.3"), (quantities.count, 1204.0, "1,204"),
        (quantities.signed_percent, 0.318, "+32 %"), (quantities.signed_percent, -0.0318, "-3.2 %"),
        (quantities.signed_percent, 0.0, "0"),
    ],
)  # fmt: skip
def test_numbers_of_one_kind_are_written_alike(write: Callable[[float], str], value: float, text: str) -> None:
    assert write(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(1.424, "1.42"), (0.05, "<0.1"), (0.1, "0.10"), (12.0, ">10"), (10, "10.00")]
)
def test_ratios_of_which_nothing_is_known_have_no_digits(value: float, text: str) -> None:
    assert quantities.ratio(value, 0.1, 10) == text
    assert quantities.ratio(12.0) == "12.00"
