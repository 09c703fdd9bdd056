"""Convolutions of XLA on a processor run on behind their events: until when they did."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from sonda.frameworks.tensorflow.profile.operations import ProfileEvent, split_calls
from sonda.imports.xplane.instruction_ends import InstructionEnds


def event(name: str, start: int, duration: int, number: int, ends: bool = False) -> Any:
    about = {"_c": number} if ends else {"_p": number, "hlo_op": name}
    return SimpleNamespace(name=name, start_ns=start, duration_ns=duration, stats=about)


def test_an_instruction_that_others_go_on_with_lasts_until_what_follows_it_begins() -> None:
    """The order of a profile that TensorFlow wrote: the caller launches the first convolution, which a worker finishes;
    that one goes on, launches the second, and only then says that the first has ended."""
    first = event("convolution.1", 100, 20, 1)
    pool = event("reduce-window", 300, 50, 2)
    second = event("convolution.2", 351, 9, 3)
    last = event("fusion", 800, 10, 4)
    alone = event("wrapped_iota", 820, 10, 5)
    caller = [first, SimpleNamespace(name="BlockUntilReady", start_ns=121, duration_ns=900, stats={})]
    worker = [
        pool, event("end: reduce-window", 349, 1, 2, ends=True), second,
        event("end: convolution.1", 361, 1, 1, ends=True), last, event("end: fusion", 809, 1, 4, ends=True),
        event("end: convolution.2", 811, 1, 3, ends=True), alone,
    ]  # fmt: skip
    other = [event("end: wrapped_iota", 860, 1, 5, ends=True), event("end: unknown", 870, 1, 77, ends=True)]
    lines = [SimpleNamespace(events=lambda row=row: iter(row)) for row in (caller, worker, other)]
    ends = InstructionEnds(SimpleNamespace(planes=[SimpleNamespace(lines=lines)]))  # type: ignore[arg-type]
    found = {one.name: ends.of(one) for one in (first, pool, second, last, alone)}
    assert found == {
        "convolution.1": 300, "reduce-window": 350, "convolution.2": 800, "fusion": 810,
        "wrapped_iota": 860,  # nothing began behind it in the thread that ended it
    }  # fmt: skip
    assert ends.of(caller[1]) == 1021, "no instruction"


def test_what_ends_behind_its_call_counts_until_the_call_ends() -> None:
    call = ProfileEvent("EagerLocalExecute: __inference_step_7", 1000, 2000)
    found = split_calls(
        [call, ProfileEvent("forward/a/Conv2D:convolution", 1900, 2300), ProfileEvent("x:y", 2100, 2200)], "step"
    )
    assert found == [[ProfileEvent("forward/a/Conv2D:convolution", 1900, 2000)]]
