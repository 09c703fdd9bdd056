"""The space of an exploration: what a command line or Python gives, read or refused in one line."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonda.record.errors import SondaError
from sonda.studies.explore.space import MOST_POINTS, count_points, parse_space, read_space
from sonda.targets.simulated.design_space import values_by_field


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=64,128", ("64", "128")),
        ("a=64..1024*2", ("64", "128", "256", "512", "1024")),
        ("a=64..1000*2", ("64", "128", "256", "512")),
        ("a=0..10+5", ("0", "5", "10")),
        ("a=0.5..1.2+0.25", ("0.5", "0.75", "1")),
        ("a=0.1..0.3+0.1", ("0.1", "0.2", "0.3")),
        ("a=1,16..64*2", ("1", "16", "32", "64")),
        ("a=7..7*2", ("7",)),
        ("a= 1 , 2 ", ("1", "2")),
        ("on=sim:a,sim:./b/../c.toml", ("sim:a", "sim:./b/../c.toml")),
    ],
)
def test_values_are_lists_multiples_or_steps(text: str, values: tuple[str, ...]) -> None:
    assert list(parse_space([text]).values()) == [values]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no field and values"),
        ("a", "has no field and values"),
        ("=1", "has no field and values"),
        ("a=", "--vary a: a value is empty"),
        ("a=1,,2", "--vary a: a value is empty"),
        ("a=1,1", "--vary a: 1 is given twice"),
        ("a=1..4*2,4", "--vary a: 4 is given twice"),
        ("a=1..2", "--vary a: 1..2 has no step; write 1..2*2 or 1..2+1"),
        ("a=8..2*2", "--vary a: 8..2*2 ends before it begins; write 2..8*2"),
        ("a=1..8*1", "does not grow"),
        ("a=1..8*0", "does not grow"),
        ("a=0..8*2", "does not grow"),
        ("a=-4..8*2", "does not grow"),
        ("a=1..8+0", "does not grow"),
        ("a=1..8+-1", "does not grow"),
        ("a=..8*2", "is not a range of numbers"),
        ("a=x..8*2", "is not a range of numbers"),
        ("a=1..8*2*2", "is not a range of numbers"),
        ("a=1..1e9*2", "is not a range of numbers"),
        ("a=1.." + "9" * 99 + "*2", "is not a range of numbers"),
        ("a=1..999999999999+1", "has more than 2,000,000 values"),
        ("a=1..2*1.0000000001", "has more than 2,000,000 values"),
    ],
)
def test_a_mistake_in_values_names_the_field(text: str, said: str) -> None:
    with pytest.raises(SondaError) as caught:
        parse_space([text])
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("a,b=8..32*2", {"a": ("8", "16", "32"), "b": ("8", "16", "32")}),
        ("a,b=8:16,16:32", {"a": ("8", "16"), "b": ("16", "32")}),
        ("a,b=8..32*2:1..3+1", {"a": ("8", "16", "32"), "b": ("1", "2", "3")}),
        (" a , b = 8 : 16 , 4 ", {"a": ("8", "4"), "b": ("16", "4")}),
        ("a,b,c=1:2:3", {"a": ("1",), "b": ("2",), "c": ("3",)}),
        ("a.kind,b=flexible_dense:8,mesh:4", {"a.kind": ("flexible_dense", "mesh"), "b": ("8", "4")}),
    ],
)
def test_fields_in_step_have_values_in_pairs(text: str, fields: dict[str, tuple[str, ...]]) -> None:
    space = parse_space([text])
    assert values_by_field(space) == fields
    assert count_points(space) == len(next(iter(fields.values())))


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["a,b=8:16:32"], "--vary a,b: 8:16:32 is not a value for each of 2 fields; write one for all of them, or …:…"),
        (["a,b=8:"], "--vary a,b: 8: is not a value for each of 2 fields"),
        (["a,b=8..64*2:16"], "--vary a,b: 8..64*2:16 has 4 and 1 values; give as many of each field"),
        (["a,b,c=1:1..3+1:1..2+1"], "has 1, 3 and 2 values"),
        (["a,b=8x16"], "--vary a,b: 8x16 is not a value; write 8:16"),
        (["a,b=8,8:8"], "--vary a,b: 8:8 is given twice"),
        (["a,a=8"], "--vary a is given twice"),
        (["a,b=8", "b=4"], "--vary b is given twice"),
        (["a,=8"], "has no field and values"),
        (["mapping,a=best:8"], "--vary mapping,a: mapping varies alone; give it a --vary mapping=… of its own"),
        (["a,on=8:sim"], "on varies alone"),
    ],
)
def test_a_mistake_in_fields_in_step_is_one_line(texts: list[str], said: str) -> None:
    with pytest.raises(SondaError) as caught:
        parse_space(texts)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "vary",
    [
        "rows,columns=8:16,16:32 clock_GHz=0.5,1",
        ["rows,columns=8:16,16:32", "clock_GHz=0.5,1"],
        {("rows", "columns"): [(8, 16), (16, 32)], "clock_GHz": [0.5, 1]},
        {"rows,columns": ["8:16", [16, 32]], "clock_GHz": "0.5,1"},
        {("rows", "columns"): "8..16*2:16..32*2", "clock_GHz": (one for one in ("0.5", "1"))},
    ],
)
def test_python_writes_the_same_space_in_its_own_ways(vary: Any) -> None:
    assert read_space(vary) == {"rows,columns": ("8:16", "16:32"), "clock_GHz": ("0.5", "1")}


def test_python_gives_single_values_and_switches() -> None:
    assert read_space({"a": 64, "b": [True, False]}) == {"a": ("64",), "b": ("true", "false")}


@pytest.mark.parametrize(
    ("vary", "said"),
    [
        (7, "vary cannot be 7; give"),
        ([7], "vary cannot be [7]; give"),
        (None, "vary cannot be None"),
        ("multipliers", "'multipliers' has no field and values"),
        ("a='1", "cannot be read (no closing quotation); close the quotes"),
        ({"a": None}, "vary: None is no value and no list of values"),
        ({"a": []}, "--vary a: a value is empty"),
        ({("a", "b"): [(1, 2, 3)]}, "--vary a,b: 1:2:3 is not a value for each of 2 fields"),
        ({(): [1]}, "has no field and values"),
    ],
)
def test_what_python_cannot_vary_is_one_line(vary: Any, said: str) -> None:
    with pytest.raises(SondaError) as caught:
        read_space(vary)
    assert said in str(caught.value)


def test_a_field_is_given_once_and_points_are_not_too_many() -> None:
    with pytest.raises(SondaError, match="--vary a is given twice"):
        parse_space(["a=1", "a=2"])
    assert count_points({"a": range(MOST_POINTS)}) == MOST_POINTS
    with pytest.raises(SondaError, match="121,000,000 points are more than 100,000,000; vary fewer fields"):
        parse_space(["a=1..11000+1", "b=1..11000+1"])


@settings(deadline=None)
@given(st.integers(1, 10**6), st.integers(1, 10**7), st.integers(2, 9))
def test_multiples_are_those_that_counting_finds(first: int, last: int, factor: int) -> None:
    expected = [str(first * factor**power) for power in range(30) if first * factor**power <= last]
    if expected:
        assert parse_space([f"a={first}..{last}*{factor}"]) == {"a": tuple(expected)}


@settings(deadline=None)
@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        space = parse_space([text])
    except SondaError:
        return
    assert all(space.values())
