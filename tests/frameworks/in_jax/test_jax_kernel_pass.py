"""Which calls of a JAX program on a GPU are recorded for their kernels: whole steps of what learns, and no more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sonda.frameworks.jax.observe import devices as jax_devices
from sonda.frameworks.jax.observe import kernel_pass as jax_kernel_pass
from sonda.frameworks.jax.observe.kernel_pass import COMPILED, FIRST, STEPS, JaxKernelPass

LEARN, UPDATE, CHECK = 1, 2, 3


class Recorder:
    directory = "somewhere"

    def define(self, **about: str) -> int:
        return 8

    def stream(self) -> Any:
        return SimpleNamespace(native=7)


class Program:
    """Calls functions by number; notes which calls were recorded, counted by function, from 1."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, replay: bool = False) -> None:
        monkeypatch.setattr(jax_devices, "gpus", lambda jax: ["a GPU"])
        monkeypatch.setattr(JaxKernelPass, "start_profile", lambda self, folder: None)
        monkeypatch.setattr(JaxKernelPass, "stop_profile", lambda self, save: None)
        monkeypatch.setattr(jax_kernel_pass.glob, "glob", lambda *_, **__: ["somewhere/one.xplane.pb"])
        self.kernels = JaxKernelPass(Recorder(), None, True, replay)
        self.calls: dict[int, int] = {}
        self.recorded: list[tuple[int, int]] = []

    def call(self, *numbers: int, compiled: bool = False) -> None:
        for number in numbers:
            self.calls[number] = self.calls.get(number, 0) + 1
            self.kernels.comes(number)
            if self.kernels.begin_call(number, self.calls[number], number == LEARN):
                self.recorded.append((number, self.calls[number]))
                self.kernels.note_call(number, "", "", 0, True, compiled, 0, None)


def steps(first: int, *functions: int, many: int = STEPS) -> list[tuple[int, int]]:
    return [(number, call) for call in range(first, first + many) for number in functions]


@pytest.mark.parametrize("replay", [False, True])
def test_steps_are_recorded_whole_and_a_replay_has_the_first_of_them(
    monkeypatch: pytest.MonkeyPatch, replay: bool
) -> None:
    program = Program(monkeypatch, replay)
    program.call(*([LEARN, UPDATE] * 40))
    assert program.recorded == steps(FIRST, LEARN, UPDATE, many=1 if replay else STEPS)
    assert FIRST == 20  # as the docs say


@pytest.mark.parametrize("replay", [False, True])
@pytest.mark.parametrize("epoch", [FIRST, FIRST + 1, FIRST + 5])
def test_a_validation_behind_the_steps_is_not_recorded(
    monkeypatch: pytest.MonkeyPatch, epoch: int, replay: bool
) -> None:
    program = Program(monkeypatch, replay)
    program.call(*([LEARN] * epoch), *([CHECK] * 100), *([LEARN] * epoch))
    many = 1 if replay else min(STEPS, epoch - FIRST + 1)
    assert program.recorded == steps(FIRST, LEARN, many=many)


def test_what_is_called_in_every_step_is_a_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program(monkeypatch)
    program.call(*([LEARN, CHECK] * 40))
    assert program.recorded == steps(FIRST, LEARN, CHECK)


def test_what_does_not_learn_does_not_take_the_place_of_what_does(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program(monkeypatch)
    program.call(*([CHECK] * 30), *([LEARN] * 40))
    assert program.recorded == steps(FIRST, LEARN)
    assert program.kernels.facts() == {"kernels": "one.xplane.pb", "launching": 7}


def test_calls_that_compile_are_tried_some_times_and_the_cause_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program(monkeypatch)
    program.call(*([LEARN] * 40), compiled=True)
    assert len(program.recorded) == JaxKernelPass.TRIES and program.kernels.facts() == {"no_kernels": COMPILED}
    again = Program(monkeypatch)
    again.call(*([LEARN] * FIRST), compiled=True)
    again.call(*([LEARN] * 10))
    assert again.recorded[1:] == steps(FIRST + 1, LEARN) and "no_kernels" not in again.kernels.facts()
