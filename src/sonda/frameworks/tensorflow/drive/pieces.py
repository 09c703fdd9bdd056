"""Phases and layers of a step that is one graph: more of the same steps, under TensorFlow's own profiler.

The profile is of the function that was timed, with what TensorFlow or XLA fused in it. Its operations are added up by
the scopes that they were made under; their places within the step are not measured.
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
from sonda.frameworks.tensorflow.profile import Event, calls, place_of, product_before, profiled, spent

ReadProfile = Callable[[Path], Iterable[Event]]
"""Reads the events of a folder in which TensorFlow left a profile."""


@dataclass
class Inside:
    """What profiled steps told."""

    missing: str = ""
    """Why they told nothing."""
    ran: set[tuple[str, str]] = field(default_factory=set)
    """Phase and path of every layer that has time of its own."""
    worked: list[int] = field(default_factory=list)
    waited: list[int] = field(default_factory=list)
    """ns of work and of communication of each step."""
    share: float = 0.0
    """Of the steps' time that is told apart."""


def steps_in_pieces(
    observer: AnnouncedObserver, tf: Any, step: Callable[[], tuple[int, int]], function: str,
    classes: Mapping[str, str], loss: str, read: ReadProfile, phases: Sequence[str] = ORDER,
) -> Inside:  # fmt: skip
    """Run steps under TensorFlow's profiler, and write their phases and layers.

    `step` runs one, and tells when its call of the function of this name began and ended, ns. `classes`: of all layers
    by path, '' among them; `loss`: the loss's class, '' in inference; `phases`: those that a step has.
    """
    folder = Path(observer.recorder.directory) / f"tensorflow-profile-{observer.rank}"
    noted: list[tuple[int, int]] = []
    missing = ""
    with ExitStack() as profile:
        try:
            profile.enter_context(profiled(tf, folder))
        except Exception as error:
            missing = first_line(error)
        # Also where nobody records them: other processes may do the same steps, and would wait.
        with observer.span("pass", "pieces"):
            for _ in range(PIECES_STEPS):
                noted.append(step())
        ending = profile.pop_all()
    try:
        ending.close()
        found = calls(read(folder), function) if not missing else []
    except Exception as error:
        missing = first_line(error)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if missing:
        return Inside(missing)
    if len(found) != len(noted):
        return Inside(f"TensorFlow's profile holds {len(found)} of {len(noted)} calls")
    holders = find_containers(classes)
    inside = Inside()
    told = lasted = 0
    for (begin, end), events in zip(noted, found, strict=True):
        times = spent(events, lambda name: place_of(name, classes))
        pieces = order_pieces(times, loss, classes, phases)
        write_call(observer, begin, end, pieces, holders)
        inside.ran.update((piece.phase, piece.path) for piece in pieces)
        waited = sum(piece.lasted for piece in pieces if piece.phase == COMMUNICATE)
        inside.waited.append(waited)
        inside.worked.append(end - begin - waited)
        told += sum(piece.lasted for piece in pieces)
        lasted += end - begin
    inside.share = told / lasted
    return inside


def where_it_ran(cost: StepCost, ran: set[tuple[str, str]], classes: Mapping[str, str]) -> StepCost:
    """The cost under the layer that has its time: what is fused with a product ran there."""
    if (cost.phase, cost.path) in ran or not ran or not cost.path:
        return cost
    path = product_before(cost.path, classes)
    return move_cost(cost, path, classes[path]) if path in classes else cost
