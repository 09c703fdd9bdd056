"""Phases and layers of a step that is one graph: more of the same steps, under TensorFlow's own profiler.

The profile shows the function that was timed, with what TensorFlow or XLA fused in it. Operations are added up by the
scopes in which they were made. When each of them ran within the step is not measured.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sonda.frameworks.collector.failure import first_line
from sonda.frameworks.harness.announcer import AnnouncedObserver
from sonda.frameworks.harness.attribution import COMMUNICATE, ORDER, find_containers, order_pieces, write_call
from sonda.frameworks.harness.counted_step import StepCost, move_cost
from sonda.frameworks.harness.steps import PIECES_STEPS
from sonda.frameworks.tensorflow.profile.operations import (
    ProfileEvent,
    place_of,
    product_before,
    split_calls,
    time_by_place,
    write_profile,
)

ReadProfile = Callable[[Path], Iterable[ProfileEvent]]
"""Reads the events of a folder in which TensorFlow left a profile."""


@dataclass
class ProfiledSteps:
    """Times of the steps that ran under the profiler."""

    missing: str = ""
    """Why there are no times; '' where there are."""
    layers: set[tuple[str, str]] = field(default_factory=set)
    """Phase and path of every layer that has time of its own."""
    work_ns: list[int] = field(default_factory=list)
    """Time of each step without communication."""
    communication_ns: list[int] = field(default_factory=list)
    """Time of each step in which it only communicates."""
    share: float = 0.0
    """The share of the steps' time that the profile gives to a phase."""


def profile_steps(
    observer: AnnouncedObserver, tf: Any, step: Callable[[], tuple[int, int]], function: str,
    classes: Mapping[str, str], loss: str, read_profile: ReadProfile, phases: Sequence[str] = ORDER,
) -> ProfiledSteps:  # fmt: skip
    """Run steps under TensorFlow's profiler, and write their phases and layers.

    `step` runs one step, and gives begin and end (ns) of its call of the `tf.function` named `function`. `classes` are
    those of all layers by path, that of the network ('') among them. `loss` is the loss's class, '' in inference.
    `phases` are those that a step has.
    """
    folder = Path(observer.recorder.directory) / f"tensorflow-profile-{observer.rank}"
    bounds: list[tuple[int, int]] = []
    missing = ""
    with ExitStack() as profile:
        try:
            profile.enter_context(write_profile(tf, folder))
        except Exception as error:
            missing = first_line(error)
        # The steps run even where nobody records them: other processes may run the same steps, and would wait.
        with observer.span("pass", "pieces"):
            for _ in range(PIECES_STEPS):
                bounds.append(step())
        ending = profile.pop_all()
    try:
        ending.close()
        calls = split_calls(read_profile(folder), function) if not missing else []
    except Exception as error:
        missing = first_line(error)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if missing:
        return ProfiledSteps(missing)
    if len(calls) != len(bounds):
        return ProfiledSteps(f"TensorFlow's profile holds {len(calls)} of {len(bounds)} calls")
    holders = find_containers(classes)
    profiled = ProfiledSteps()
    attributed = lasted = 0
    for (begin, end), events in zip(bounds, calls, strict=True):
        times = time_by_place(events, lambda name: place_of(name, classes))
        pieces = order_pieces(times, loss, classes, phases)
        write_call(observer, begin, end, pieces, holders)
        profiled.layers.update((piece.phase, piece.path) for piece in pieces)
        communication = sum(piece.lasted for piece in pieces if piece.phase == COMMUNICATE)
        profiled.communication_ns.append(communication)
        profiled.work_ns.append(end - begin - communication)
        attributed += sum(piece.lasted for piece in pieces)
        lasted += end - begin
    profiled.share = attributed / lasted
    return profiled


def attribute_cost(cost: StepCost, layers: set[tuple[str, str]], classes: Mapping[str, str]) -> StepCost:
    """The cost under the layer that has its time: an operation that is fused with a product runs in its layer.

    `layers` are phase and path of all layers that have time.
    """
    if (cost.phase, cost.path) in layers or not layers or not cost.path:
        return cost
    path = product_before(cost.path, classes)
    return move_cost(cost, path, classes[path]) if path in classes else cost
