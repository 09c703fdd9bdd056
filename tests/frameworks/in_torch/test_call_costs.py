"""Calls that agree in what their formulas read have one cost; calls of long loops are foretold, and checked."""

from __future__ import annotations

from typing import Any

import pytest

from sonda.frameworks.torch.observe.counting.call_costs import CallCosts, CallKind, CallSequence
from sonda.frameworks.torch.observe.counting.operation_groups import add_mapped

torch = pytest.importorskip("torch")
KINDS = {name: CallKind(code, name, 1, 1, "other", 32, 0, False) for code, name in enumerate("abc")}


def count_descriptions(calls: list[tuple]) -> int:
    """How many of these calls, each a tuple of arguments, had to be described."""
    described: list = []

    def describe(func: Any, args: tuple, kwargs: dict, out: Any) -> CallKind:
        described.append(args)
        return KINDS["a"]

    costs = CallCosts(torch, describe)
    for args in calls:
        costs.find("aten.add", args, {}, None)
    return len(described)


def test_calls_of_one_shape_are_described_once() -> None:
    assert count_descriptions([(torch.ones(2, 3), torch.ones(2, 3), 1.0) for _ in range(5)]) == 1


@pytest.mark.parametrize(
    "other",
    [
        lambda x: (x, torch.ones(3, 2).T),
        lambda x: (x, torch.ones(2, 3, dtype=torch.float64)),
        lambda x: (x, x),
        lambda x: (x, 1),
        lambda x: (x, [torch.ones(2, 3)]),
    ],
    ids=["strides", "type", "shared memory", "a number", "a list"],
)
def test_calls_that_may_differ_in_cost_are_described_apart(other: Any) -> None:
    first = torch.ones(2, 3)
    assert count_descriptions([(first, torch.ones(2, 3)), other(first)]) == 2


def test_a_whole_number_is_no_other_number() -> None:
    assert count_descriptions([(1,), (1.0,), (True,)]) == 3


def test_sparse_tensors_are_described_each_time() -> None:
    sparse = torch.eye(3).to_sparse()
    assert count_descriptions([(sparse,), (sparse,)]) == 2


def walk(names: str) -> tuple[CallSequence, list[str]]:
    """The sequence after calls of these names, and the names it foretold or was told."""
    sequence, groups, given = CallSequence(), {name: [] for name in names}, []  # type: ignore[var-annotated]
    for name in names:
        place = sequence.foretell(len, 0, 0)
        if place is None:
            sequence.note(len, KINDS[name], groups[name])
        given.append(place.kind.name if place is not None else name)
    return sequence, given


def test_a_loop_is_foretold_from_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CallSequence, "EXAMINED", 10)
    names = "abc" * 200
    sequence, given = walk(names)
    assert "".join(given) == names
    assert sequence.foretold + sequence.checked == len(names) - 10
    assert sequence.checked == pytest.approx((len(names) - 10) / CallSequence.CHECKED_ONE_IN, abs=2)
    assert not sequence.wrong


def test_what_follows_no_order_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CallSequence, "EXAMINED", 10)
    numbers, state = [], 1
    for _ in range(3000):
        state = state * 1103515245 + 12345 & 0x7FFFFFFF
        numbers.append("abc"[(state >> 16) % 3])
    sequence, _ = walk("".join(numbers))
    assert sequence.wrong >= 2
    assert sequence.foretold < 300


def test_few_operations_are_all_looked_at() -> None:
    sequence, _ = walk("abc" * 600)
    assert not sequence.foretold


def test_a_long_loop_has_the_flops_of_its_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    from sonda.frameworks.collector.recorder import Recorder
    from sonda.frameworks.torch.observe.counting.counter import OperationCounter

    monkeypatch.setattr(CallSequence, "EXAMINED", 40)
    counter = OperationCounter(torch, Recorder(""))
    stream = counter.recorder.stream()
    stream.phases.append((0, None))
    counter.start(stream, [])
    state, weights = torch.ones(4, 16), torch.ones(16, 16)
    with torch.no_grad(), counter.mode(stream):
        for _ in range(500):
            state = torch.tanh(state @ weights)
    assert counter.inspection is not None
    operations = counter.inspection.operations
    assert operations.sequence.foretold > 800
    # A product of 4 x 16 by 16 x 16 is 2 x 4 x 16 x 16 FLOPs, and tanh one for each of 64 elements.
    assert sum(group[7] for group in operations.facts()) == 500 * (2 * 4 * 16 * 16 + 64)


def test_results_that_the_c_library_maps_for_them_alone() -> None:
    """36 MB in memory of their own; a view and a result written in place have none, and smaller ones are kept."""
    large, small = torch.zeros(9_000_000), torch.zeros(1_000)
    assert add_mapped(torch, ((small,), {}), large) == 36_000_000
    assert add_mapped(torch, ((small,), {}), (large, large[1:], small)) == 36_000_000
    assert add_mapped(torch, ((large,), {}), large) == add_mapped(torch, ((large,), {}), large[1:]) == 0
    assert add_mapped(torch, ((large,), {}), small) == 0
    assert add_mapped(torch, ((large,), {}), torch.zeros(9_000_000, device="meta")) == 0
